//! Two ports that share memory: this side of it.
#![allow(unsafe_code)]

use super::greeting::{Doorbells, pid_of};
use super::is_ready;
use super::lease::{Borrowing, Lending};
use super::record::{self, Packet};
use super::ring::{Arrivals, Broken, Reading, Writing};
use super::segment::{MTU, Segment};
use super::unread::Unread;
use crate::core::generation;
use crate::driver::{Driver, Source, Token};
use crate::link::{Borrow, Fill, Inbound, Lend, Lent, Outbound, Path, Unsent};
use crate::payload::Bytes;
use crate::sync::{lock, try_lock};
use mkey_core::device::Gid;
use mkey_os::file_mapping::FileMapping;
use rustix::event::PollFlags;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Packets that are taken in before others have their turn, and bytes: then they are answered, and the
/// writer has their room back, so that it goes on meanwhile.
const BATCH: usize = 128;
const SHARE: u64 = 128 << 10;

/// This side of a pair of ports.
#[derive(Debug)]
pub(super) struct Pair {
    /// `None` if there is no place for them.
    lending: Option<Lending>,
    borrowing: Option<Borrowing>,
    writing: Mutex<Writing>,
    /// How far it is written.
    sent: AtomicU64,
    unread: Unread,
    reading: Mutex<Reading>,
    arrivals: Arrivals,
    /// Tells that the peer has ended.
    socket: OwnedFd,
    doorbells: Doorbells,
    /// The peer's process, where that can be told: it may leave the socket to a child.
    process: Option<Arc<OwnedFd>>,
    own: Gid,
    peer: Gid,
    dead: AtomicBool,
    /// A forked child has the memory and the socket, too, but they are not its.
    born: u32,
    waits: OnceLock<Waits>,
    me: Weak<Pair>,
    /// Unmapped after the rings are gone.
    _memory: Arc<FileMapping>,
}

/// What the thread waits for.
struct Waits {
    driver: &'static Driver,
    socket: Option<Token>,
    process: Option<Token>,
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (self.socket, self.process).fmt(f)
    }
}

impl Pair {
    /// A pair on this memory, whose other side is at the end of this socket.
    pub(super) fn new(
        segment: Segment,
        socket: OwnedFd,
        doorbells: Doorbells,
        process: Option<OwnedFd>,
        own: Gid,
        peer: Gid,
    ) -> Arc<Self> {
        let Segment { writing, reading, lending, borrowing, memory } = segment;
        let (memory, process) = (Arc::new(memory), process.map(Arc::new));
        let pid = pid_of(&socket);
        // SAFETY: both areas are of the memory.
        let (lending, borrowing) = unsafe {
            (
                Lending::new(lending, &memory, process.as_ref()),
                Borrowing::new(borrowing, &memory, pid),
            )
        };
        Arc::new_cyclic(|me| Self {
            lending,
            borrowing,
            writing: Mutex::new(writing),
            sent: AtomicU64::new(0),
            unread: Unread::default(),
            arrivals: reading.arrivals(),
            reading: Mutex::new(reading),
            socket,
            doorbells,
            process,
            own,
            peer,
            dead: AtomicBool::new(false),
            born: generation(),
            waits: OnceLock::new(),
            me: me.clone(),
            _memory: memory,
        })
    }

    /// The thread waits on the pair from now on.
    pub(super) fn watch(&self, driver: &'static Driver) {
        let source = || -> Weak<dyn Source> { self.me.clone() };
        let watch = |fd: &OwnedFd| driver.watch(fd, source()).ok();
        let (socket, process) = (watch(&self.socket), self.process.as_deref().and_then(watch));
        // Without it, packets are late that come while the program does not poll.
        let _ = driver.wake_by(&self.doorbells.own);
        // Once only: a pair is watched by who makes it.
        let _ = self.waits.set(Waits { driver, socket, process });
    }

    /// Whether the peer is there no more, or can not be talked to.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Looks whether the peer is there still, without waiting until the thread has noticed.
    pub(super) fn has_hung_up(&self) -> bool {
        let hung_up = is_ready(&self.socket, PollFlags::RDHUP);
        let gone = hung_up || self.has_ended();
        if gone {
            self.end();
        }
        gone
    }

    /// Whether the peer's process has ended, although it may have left the socket to a child.
    fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| is_ready(process, PollFlags::IN))
    }

    fn end(&self) {
        self.dead.store(true, Ordering::Release);
        // The peer hears of it, too.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn ring(&self) {
        // It waits for nothing, and if the peer is gone, that shows elsewhere.
        let _ = rustix::io::write(&self.doorbells.peer, &1u64.to_ne_bytes());
    }

    /// Wakes the peer's thread if the peer leaves lying what it was sent. Called whenever this side
    /// looks for packets itself.
    #[inline]
    fn nudge(&self) {
        if self.unread.is_to_be_looked_for() {
            self.look_for_unread();
        }
    }

    fn look_for_unread(&self) {
        // Who writes now is looked after by itself, or by the next call.
        let Some(writing) = try_lock(&self.writing) else { return };
        let Some(read) = writing.unread() else { return self.unread.ends() };
        drop(writing);
        if self.unread.is_left_lying(read) {
            self.ring();
        }
    }

    /// Takes packets in; whether there were any.
    pub(super) fn receive(self: &Arc<Self>, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        self.nudge();
        let any = self.arrivals.any() && self.take_in(deliver);
        // Also where nothing came: it may not have been seen when the room was given back.
        self.tell_of_room();
        any
    }

    /// Wakes the peer's thread if it waits for room that was made.
    fn tell_of_room(&self) {
        if self.arrivals.has_made_room() {
            self.ring();
        }
    }

    fn take_in(self: &Arc<Self>, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        let mut reading = lock(&self.reading);
        let mut any = false;
        for _ in 0..BATCH {
            match reading.next(|record| self.hand_over(record, deliver)) {
                Ok(Some(())) => any = true,
                Ok(None) => break,
                Err(Broken) => {
                    self.end();
                    break;
                }
            }
            if reading.kept() >= SHARE {
                break;
            }
        }
        reading.give_back();
        self.arrivals.are_read(&reading);
        any
    }

    fn hand_over(self: &Arc<Self>, record: Bytes<'_>, deliver: &mut dyn FnMut(&Inbound<'_>)) {
        let Some(Packet { repr, envelope, sender, payload }) = record::read(record) else { return };
        deliver(&Inbound {
            repr,
            payload,
            from: sender.unwrap_or(self.peer),
            to: self.own,
            envelope,
            mtu: sender.is_none().then_some(MTU),
            back: &|| sender.is_none().then(|| self.clone() as Arc<dyn Path>),
        });
    }

    /// Passes a packet on that has come from somewhere else. Without room for it, it is lost.
    pub(super) fn pass_on(&self, inbound: &Inbound<'_>) {
        let &Inbound { repr, payload, envelope, from, .. } = inbound;
        let packet = Outbound { repr, length: payload.len(), envelope, damage: None };
        let _ = self.put(&packet, Some(from), &mut |mut room| {
            room.put(payload);
            true
        });
    }

    fn put(
        &self,
        packet: &Outbound,
        sender: Option<Gid>,
        fill: &mut Fill<'_>,
    ) -> Result<(), Unsent> {
        // What is sent to who has ended is lost.
        if self.is_dead() || self.born != generation() {
            return Ok(());
        }
        let mut writing = lock(&self.writing);
        let length = record::length(packet, sender);
        let room = match writing.room(length) {
            Ok(Some(room)) => room,
            Ok(None) => return Err(Unsent::Full),
            Err(Broken) => {
                self.end();
                return Ok(());
            }
        };
        let Some(payload) = record::write(packet, sender, room) else { return Ok(()) };
        if !fill(payload) {
            return Err(Unsent::Unfilled);
        }
        let woken = writing.commit();
        self.sent.store(writing.written(), Ordering::Relaxed);
        if woken {
            self.ring();
        } else {
            self.unread.begins();
        }
        Ok(())
    }

    /// As [`crate::link::Link::hang_bells`].
    pub(super) fn hang_bell(&self) -> bool {
        let reading = lock(&self.reading);
        reading.arrival_bell().hang();
        self.tell_of_room();
        let arrived = reading.is_ready();
        drop(reading);
        let mut writing = lock(&self.writing);
        writing.asks_again = false;
        let Ok(has_room) = writing.hang_room_bell() else {
            self.end();
            return false;
        };
        (arrived || has_room) && !self.is_dead()
    }

    /// As [`crate::link::Link::take_bells_down`].
    pub(super) fn take_bell_down(&self, program_polls: bool) {
        if !program_polls {
            return lock(&self.reading).arrival_bell().take_down();
        }
        // Who works with it now is not to wait for that.
        if let (Some(reading), Some(mut writing)) =
            (try_lock(&self.reading), try_lock(&self.writing))
        {
            reading.arrival_bell().take_away();
            writing.asks_again = true;
        }
    }
}

impl Path for Pair {
    fn mtu(&self) -> Option<u32> {
        Some(MTU)
    }

    fn window(&self) -> u32 {
        128
    }

    fn mark(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn leaves_lying(&self, before: u64) -> bool {
        self.born == generation()
            && !self.has_hung_up()
            && lock(&self.writing).unread().is_some_and(|read| read < before)
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        // There is no ICRC that could tell that it is damaged, so it goes no further.
        match packet.damage {
            Some(_) => Ok(()),
            None => self.put(packet, None, fill),
        }
    }

    fn lend(
        &self,
        lend: &Lend,
        address: u64,
        length: u64,
        allowed: &mut dyn FnMut() -> Option<Lent>,
    ) {
        if let Some(lending) = &self.lending
            && self.born == generation()
        {
            lending.lend(lend, address, length, allowed);
        }
    }

    fn is_lent(&self, borrow: &Borrow) -> bool {
        self.borrowing.as_ref().is_some_and(|borrowing| borrowing.is_lent(borrow))
    }

    unsafe fn write_direct(&self, borrow: &Borrow, source: *const u8) -> bool {
        let Some(borrowing) = &self.borrowing else { return false };
        if self.is_dead() || self.born != generation() {
            return false;
        }
        let lives = || self.process.is_some() && !self.has_ended();
        // SAFETY: the caller's.
        unsafe { borrowing.write(borrow, source, lives) }
    }
}

impl Source for Pair {
    fn attend(&self) {
        // Nothing is said after the greeting.
        self.gone();
    }
}

impl Pair {
    fn gone(&self) {
        self.end();
        let Some(&Waits { driver, socket, process }) = self.waits.get() else { return };
        if let Some(token) = socket {
            driver.forget(&self.socket, token);
        }
        if let (Some(fd), Some(token)) = (&self.process, process) {
            driver.forget(&**fd, token);
        }
        driver.wake_no_more_by(&self.doorbells.own);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.born == generation() {
            self.gone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey_wire::body::Body;
    use mkey_wire::packet::Repr;
    use mkey_wire::request::{Request::Write, Write::Middle};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn packet() -> Outbound {
        let body = Body::RcRequest(Write(Middle));
        let fields = mkey_wire::bth::Fields::new(Default::default(), Default::default());
        let envelope = crate::link::Envelope::default();
        Outbound { repr: Repr { fields, body }, length: 0, envelope, damage: None }
    }

    /// What one queue pair sent was read, and what another one sent afterwards was not.
    #[test]
    fn only_what_was_sent_before_lies() {
        let (socket, peer) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let (memory, file) = Segment::create().unwrap();
        let doorbells = Doorbells::new().unwrap();
        let ours = Pair::new(memory, socket, doorbells, None, Gid([1; 16]), Gid([2; 16]));
        let memory = Segment::open(file).unwrap();
        let doorbells = Doorbells::new().unwrap();
        let theirs = Pair::new(memory, peer, doorbells, None, Gid([2; 16]), Gid([1; 16]));
        ours.send(&packet(), &mut |_| true).unwrap();
        let first = ours.mark();
        assert!(ours.leaves_lying(first));
        assert!(theirs.receive(&mut |_| {}));
        assert!(!ours.leaves_lying(first));
        ours.send(&packet(), &mut |_| true).unwrap();
        assert!(!ours.leaves_lying(first), "that was read");
        assert!(ours.leaves_lying(ours.mark()));
    }
}
