//! Rows 13 to 16: queue pairs of two processes, each on a processor of its own.

use super::Setup;
use crate::measure::{Failed, alternate, median, once, timed};
use crate::peer::{Board, End, FREE, SPACE, Second, Task};
use crate::report::{Aim, Line, Unit};
use anyhow::{Context, Result};
use mkey_core::work::{SendOp, SendWr};
use mkey_soft::{Link, gid_of};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Round trips of a round.
const TRIPS: u64 = 1000;
const WRITE_TRIPS: u64 = 200;
/// Bytes that a round moves.
const ROUND: usize = 32 << 20;
/// WRITEs that are posted at a time.
const POSTED: usize = 8;
/// Bytes of a slot of the bare ring, as a packet of the link through shared memory carries at most.
const SLOT: usize = 15 * 4096;
const SLOTS: usize = SPACE / SLOT;
/// Bytes of a packet by UDP, headers included, and of its payload.
const PACKET: usize = 4096 + 32;
const PAYLOAD: usize = 4096;

const PING: usize = FREE;
const PONG: usize = FREE + 1;
const STOP: usize = FREE + 2;
const WRITTEN: usize = FREE + 3;
const READ: usize = FREE + 4;
const RECEIVED: usize = FREE + 5;

/// What the second process does, by number.
pub const TASKS: &[Task] =
    &[open_shared, open_udp, flags, sends, writes, drive, rest, ring, datagrams];
const OPEN_SHARED: usize = 0;
const OPEN_UDP: usize = 1;
const FLAGS: usize = 2;
const SENDS: usize = 3;
const WRITES: usize = 4;
const DRIVE: usize = 5;
const REST: usize = 6;
const RING: usize = 7;
const DATAGRAMS: usize = 8;

fn open_shared(board: &Board, end: &mut Option<End>, _: u64) -> Result<()> {
    let connected = opened(board, Side::Second, Link::SharedMemory)?;
    receives(&connected)?;
    *end = Some(connected);
    Ok(())
}

fn open_udp(board: &Board, end: &mut Option<End>, _: u64) -> Result<()> {
    *end = Some(opened(board, Side::Second, Link::Udp)?);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

/// An end, connected with that of the other process.
fn opened(board: &Board, side: Side, link: Link) -> Result<End> {
    let (first, second) = match link {
        Link::Udp => (1, 2),
        _ => (1, 1),
    };
    let (own, other) = if side == Side::First { (first, second) } else { (second, first) };
    let ip = |last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    let mut end = End::open(link, ip(own))?;
    end.connect(board, side == Side::Second, gid_of(ip(other)))?;
    Ok(end)
}

fn the(end: &Option<End>) -> Result<&End> {
    end.as_ref().context("no connection was made before")
}

/// Answers flags, `count` of them.
fn flags(board: &Board, _: &mut Option<End>, count: u64) -> Result<()> {
    let begun = board.word(PONG).load(Ordering::Acquire);
    for number in begun + 1..=begun + count {
        board.await_value(PING, number);
        board.word(PONG).store(number, Ordering::Release);
    }
    Ok(())
}

/// Both sides have them before anything comes.
fn receives(end: &End) -> Result<()> {
    (0..16).try_for_each(|_| end.receive(&[end.sge(0, 8)]))
}

/// Answers SENDs.
fn sends(_: &Board, end: &mut Option<End>, count: u64) -> Result<()> {
    let end = the(end)?;
    let (into, from) = ([end.sge(0, 8)], [end.sge(64, 8)]);
    let (mut sent, mut received) = (0, 0);
    while sent < count {
        let (done, arrived) = end.poll()?;
        sent += done as u64;
        for _ in 0..arrived {
            end.receive(&into)?;
            end.post(&SendWr::new(1, SendOp::Send, &from))?;
            received += 1;
        }
    }
    anyhow::ensure!(received == count, "{received} of {count} came");
    Ok(())
}

/// Answers WRITEs by flags, as a program that polls its memory and nothing else.
fn writes(board: &Board, end: &mut Option<End>, count: u64) -> Result<()> {
    let end = the(end)?;
    let begun = board.word(PONG).load(Ordering::Acquire);
    for number in begun + 1..=begun + count {
        while end.byte(7) != number as u8 {
            std::hint::spin_loop();
        }
        board.word(PONG).store(number, Ordering::Release);
    }
    Ok(())
}

/// Polls until it is told to stop.
fn drive(board: &Board, end: &mut Option<End>, stop: u64) -> Result<()> {
    let end = the(end)?;
    while board.word(STOP).load(Ordering::Relaxed) != stop {
        end.poll()?;
    }
    Ok(())
}

/// Sleeps for a second; leaves the processor time that passed meanwhile, in nanoseconds.
fn rest(board: &Board, _: &mut Option<End>, _: u64) -> Result<()> {
    let used = idle()?;
    board.word(RECEIVED).store(used.as_nanos() as u64, Ordering::Release);
    Ok(())
}

/// Takes slots out of the bare ring.
fn ring(board: &Board, end: &mut Option<End>, count: u64) -> Result<()> {
    let memory = the(end)?.memory.as_ptr();
    let begun = board.word(READ).load(Ordering::Acquire);
    for number in begun..begun + count {
        while board.word(WRITTEN).load(Ordering::Acquire) <= number {
            std::hint::spin_loop();
        }
        let place = number as usize % SLOTS * SLOT;
        // SAFETY: a slot of the ring that is written, and as many bytes of memory of our own.
        unsafe { memory.copy_from_nonoverlapping(board.space().add(place), SLOT) };
        board.word(READ).store(number + 1, Ordering::Release);
    }
    Ok(())
}

/// Takes bare datagrams in until told to stop.
fn datagrams(board: &Board, _: &mut Option<End>, stop: u64) -> Result<()> {
    let socket = bare::Receiver::open()?;
    board.word(PING).store(u64::from(socket.port()), Ordering::Release);
    let mut buffer = vec![0; 1 << 16];
    let mut received = 0;
    while board.word(STOP).load(Ordering::Relaxed) != stop {
        received += socket.receive(&mut buffer);
        board.word(RECEIVED).store(received, Ordering::Release);
    }
    Ok(())
}

/// Processor time that passes while the main thread sleeps for a second.
fn idle() -> Result<Duration> {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(1));
    Ok(used().saturating_sub(before))
}

fn second(setup: &Setup) -> Result<Second> {
    let cpu = setup.cpus.get(1).context("it takes two processors")?;
    Second::start(*cpu)
}

fn linked(setup: &Setup, link: Link) -> Result<(Second, End)> {
    let mut second = second(setup)?;
    second.begin(if matches!(link, Link::Udp) { OPEN_UDP } else { OPEN_SHARED }, 0);
    let end = opened(&second.board, Side::First, link)?;
    second.finish()?;
    Ok((second, end))
}

/// Nanoseconds that a flag takes, one way.
fn flag_trip(second: &mut Second) -> Result<f64> {
    second.begin(FLAGS, TRIPS);
    let board = &second.board;
    let mut number = board.word(PONG).load(Ordering::Acquire);
    let trip = timed(TRIPS, || {
        number += 1;
        board.word(PING).store(number, Ordering::Release);
        board.await_value(PONG, number);
    });
    second.finish()?;
    Ok(trip / 2.0)
}

/// Row 13.
pub fn latency(setup: &Setup) -> Result<Vec<Line>> {
    let (second, end) = linked(setup, Link::SharedMemory)?;
    let second = std::cell::RefCell::new(second);
    let (into, from) = ([end.sge(0, 8)], [end.sge(64, 8)]);
    receives(&end)?;
    let failed = Failed::default();
    let send_trip = || -> Result<f64> {
        let second = &mut *second.borrow_mut();
        second.begin(SENDS, TRIPS);
        let mut problem = Ok(());
        let trip = timed(TRIPS, || {
            let turn = || -> Result<()> {
                end.post(&SendWr::new(1, SendOp::Send, &from))?;
                let mut arrived = 0;
                while arrived == 0 {
                    arrived = end.poll()?.1;
                }
                end.receive(&into)
            };
            if problem.is_ok() {
                problem = turn();
            }
        });
        problem?;
        second.finish()?;
        Ok(trip / 2.0)
    };
    let write_trip = || -> Result<f64> {
        let second = &mut *second.borrow_mut();
        second.begin(WRITES, 1 + WRITE_TRIPS);
        let board = &second.board;
        let mut number = board.word(PONG).load(Ordering::Acquire);
        let mut trips = Vec::new();
        for _ in 0..=WRITE_TRIPS {
            number += 1;
            end.set(71, number as u8);
            let (trip, posted) = once(|| -> Result<()> {
                end.post(&SendWr::new(2, SendOp::Write(end.remote(0)), &from))?;
                board.await_value(PONG, number);
                Ok(())
            });
            posted?;
            trips.push(trip);
            while end.poll()?.0 == 0 {}
        }
        second.finish()?;
        // The first one waits until the thread there has noticed that nobody polls any more; and now and
        // then the kernel lets the program there have the rest of its turn.
        Ok(median(trips.get(1..).unwrap_or_default()))
    };
    let [sends, writes, flags] = alternate(
        setup.rounds,
        [&mut || failed.round(send_trip), &mut || failed.round(write_trip), &mut || {
            failed.round(|| flag_trip(&mut second.borrow_mut()))
        }],
    );
    failed.check()?;
    let flag = flags.median();
    let beside = format!("SEND: {:.0} ns, a bare flag: {flag:.0} ns", sends.median());
    let asleep = (writes.median() - flag) / 1000.0;
    Ok(vec![
        Line::new(
            "SEND of 8 B to another process, one way",
            Aim::AtMost(4.0),
            Unit::Times,
            sends.over(&flags),
        )
        .beside(beside),
        Line::new(
            "WRITE of 8 B, nobody polls there",
            Aim::AtMost(20.0),
            Unit::Microseconds,
            asleep,
        )
        .beside("to be seen by who polls the memory; typical"),
    ])
}

/// Nanoseconds that WRITEs of a round take, to be done.
fn write_round(second: &mut Second, end: &End, length: usize, stop: u64) -> Result<f64> {
    second.begin(DRIVE, stop);
    let from = [end.sge(0, length)];
    let (mut posted, mut done) = (0, 0);
    let all = ROUND / length;
    let (time, moved) = once(|| -> Result<()> {
        while done < all {
            while posted < all && posted - done < POSTED {
                end.post(&SendWr::new(1, SendOp::Write(end.remote(0)), &from))?;
                posted += 1;
            }
            done += end.poll()?.0;
        }
        Ok(())
    });
    moved?;
    second.board.word(STOP).store(stop, Ordering::Release);
    second.finish()?;
    Ok(time)
}

/// Nanoseconds that a round takes through the bare ring.
fn ring_round(second: &mut Second, end: &End) -> Result<f64> {
    let slots = (ROUND / SLOT) as u64;
    second.begin(RING, slots);
    let board = &second.board;
    let begun = board.word(WRITTEN).load(Ordering::Acquire);
    let (time, ()) = once(|| {
        for number in begun..begun + slots {
            while number - board.word(READ).load(Ordering::Acquire) >= SLOTS as u64 {
                std::hint::spin_loop();
            }
            let place = number as usize % SLOTS * SLOT;
            let from = black_box(end.memory.as_ptr());
            // SAFETY: a slot of the ring that was read, and as many bytes of memory of our own.
            unsafe { board.space().add(place).copy_from_nonoverlapping(from, SLOT) };
            board.word(WRITTEN).store(number + 1, Ordering::Release);
        }
        board.await_value(READ, begun + slots);
    });
    second.finish()?;
    Ok(time * ROUND as f64 / (slots as usize * SLOT) as f64)
}

/// Row 14.
pub fn bandwidth(setup: &Setup) -> Result<Vec<Line>> {
    let (second, end) = linked(setup, Link::SharedMemory)?;
    let second = std::cell::RefCell::new(second);
    let mut lines = Vec::new();
    let mut stop = 0;
    for (name, length) in [("64 KiB", 64 << 10), ("1 MiB", 1 << 20)] {
        let failed = Failed::default();
        let [writes, bare] = alternate(
            setup.rounds.div_ceil(4),
            [
                &mut || {
                    stop += 1;
                    failed.round(|| write_round(&mut second.borrow_mut(), &end, length, stop))
                },
                &mut || failed.round(|| ring_round(&mut second.borrow_mut(), &end)),
            ],
        );
        failed.check()?;
        let share = 100.0 * bare.over(&writes);
        let rate = |time: f64| ROUND as f64 / time;
        let line = Line::new(
            format!("WRITE of {name} to another process"),
            Aim::AtLeast(70.0),
            Unit::Percent,
            share,
        );
        lines.push(line.beside(format!(
            "WRITE: {:.1} GB/s, a bare ring of such slots: {:.1} GB/s",
            rate(writes.median()),
            rate(bare.median())
        )));
    }
    Ok(lines)
}

/// Bytes in a nanosecond that go through bare sockets in a round.
fn datagram_round(second: &mut Second, stop: u64) -> Result<f64> {
    second.board.word(PING).store(0, Ordering::Release);
    second.board.word(RECEIVED).store(0, Ordering::Release);
    second.begin(DATAGRAMS, stop);
    let board = &second.board;
    let port = loop {
        match board.word(PING).load(Ordering::Acquire) {
            0 => std::hint::spin_loop(),
            port => break port as u16,
        }
    };
    let sender = bare::Sender::open(port)?;
    let begun = Instant::now();
    let mut sent = 0;
    while sent < ROUND {
        sent += sender.send();
    }
    let time = begun.elapsed();
    let received = board.word(RECEIVED).load(Ordering::Acquire);
    board.word(STOP).store(stop, Ordering::Release);
    second.finish()?;
    Ok(received as f64 * PAYLOAD as f64 / PACKET as f64 / time.as_nanos() as f64)
}

/// Row 15.
pub fn udp(setup: &Setup) -> Result<Vec<Line>> {
    let (second, end) = linked(setup, Link::Udp)?;
    let second = std::cell::RefCell::new(second);
    let failed = Failed::default();
    let stop = std::cell::Cell::new(0);
    let next = || {
        stop.set(stop.get() + 1);
        stop.get()
    };
    let [writes, bare] = alternate(
        setup.rounds.div_ceil(4),
        [
            &mut || {
                let round = || write_round(&mut second.borrow_mut(), &end, 1 << 20, next());
                ROUND as f64 / failed.round(round)
            },
            &mut || failed.round(|| datagram_round(&mut second.borrow_mut(), next())),
        ],
    );
    failed.check()?;
    let share = 100.0 * writes.over(&bare);
    let line =
        Line::new("WRITE of 1 MiB by UDP, loopback", Aim::AtLeast(60.0), Unit::Percent, share);
    Ok(vec![line.beside(format!(
        "WRITE: {:.2} GB/s, bare datagrams of the same packets: {:.2} GB/s",
        writes.median(),
        bare.median()
    ))])
}

/// Row 16.
pub fn nothing(setup: &Setup) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, link) in [("shared memory", Link::SharedMemory), ("UDP", Link::Udp)] {
        let (mut second, end) = linked(setup, link)?;
        write_round(&mut second, &end, 1 << 20, 1)?;
        second.begin(REST, 0);
        let used = idle()?;
        second.finish()?;
        let there = second.board.word(RECEIVED).load(Ordering::Acquire);
        let percent = |time: f64| time / 1e7;
        let worst = percent(used.as_nanos() as f64).max(percent(there as f64));
        let work = format!("idle, connected by {name}");
        lines.push(
            Line::new(work, Aim::AtMost(0.1), Unit::Percent, worst).beside("the busier process"),
        );
    }
    Ok(lines)
}

/// Bare sockets, with segmentation and receive offload.
mod bare {
    use super::PACKET;
    use anyhow::Result;
    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg, setsockopt, sockopt};
    use std::io::IoSlice;
    use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
    use std::os::fd::AsRawFd;

    /// Packets that are sent at once.
    const AT_ONCE: usize = 15;

    pub struct Receiver(UdpSocket);

    impl Receiver {
        pub fn open() -> Result<Self> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
            // Where that is not allowed, as much as is given.
            let _ = setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20));
            Ok(Self(socket))
        }

        pub fn port(&self) -> u16 {
            self.0.local_addr().map_or(0, |address| address.port())
        }

        pub fn receive(&self, buffer: &mut [u8]) -> u64 {
            self.0.recv(buffer).unwrap_or(0) as u64
        }
    }

    pub struct Sender {
        socket: UdpSocket,
        to: SockaddrIn,
        bytes: Vec<u8>,
    }

    impl Sender {
        pub fn open(port: u16) -> Result<Self> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
            Ok(Self { socket, to, bytes: vec![1; AT_ONCE * PACKET] })
        }

        pub fn send(&self) -> usize {
            let size = PACKET as u16;
            let about = [ControlMessage::UdpGsoSegments(&size)];
            let (fd, bytes) = (self.socket.as_raw_fd(), [IoSlice::new(&self.bytes)]);
            sendmsg(fd, &bytes, &about, MsgFlags::empty(), Some(&self.to)).unwrap_or(0)
        }
    }
}
