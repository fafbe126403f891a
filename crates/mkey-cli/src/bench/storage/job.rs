//! A job: an initiator and a target in one thread, with a number of I/Os in flight.

use super::args::{Name, Pattern};
use super::capsule::{Op, Request, tag_of};
use super::content::{Content, WHOLE};
use super::disk::Disk;
use super::order::Coin;
use super::side::{BATCH, Side};
use super::strategy::{Shape, Strategy, set_up};
use super::target::Target;
use crate::allocations;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::nanoseconds;
use crate::bench::stop::Stop;
use hdrhistogram::Histogram;
use mkey::{Completion, Device, PageKind, Pd, Work};
use std::time::{Duration, Instant};

/// How long a run goes on.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// For a while; each I/O is timed.
    Time(Duration),
    /// For so many I/Os, without a look at the clock.
    Count(u64),
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// I/Os within the time.
    pub ios: u64,
    /// I/Os with those that were in flight at its end.
    pub all: u64,
    /// The time, to the last of `ios`.
    pub time: Duration,
    /// I/Os that were checked to the last word; of the others, both ends were.
    pub whole: u64,
    /// Heap allocations of the thread from the first I/O to the last.
    pub allocations: u64,
}

/// A job.
pub struct Job {
    strategy: Box<dyn Strategy>,
    initiator: Side,
    target: Target,
    flights: Vec<Flight>,
    pattern: Pattern,
    coin: Coin,
    asked: u64,
}

/// An I/O in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    op: Op,
    content: Content,
    whole: bool,
    since: Option<Instant>,
}

impl Job {
    /// Sets a job up; `target` is the protection domain of its disk.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(
        device: &Device,
        target: &Pd,
        name: Name,
        shape: Shape,
        pattern: Pattern,
    ) -> Result<Self> {
        let initiator = Side::new(device, &Pd::new(device)?, shape.depth)?;
        let target = Side::new(device, target, shape.depth)?;
        initiator.connect(&target)?;
        let strategy = set_up(name, &initiator, shape)?;
        Ok(Self::over(initiator, target, strategy, shape, pattern))
    }

    /// A job over ends that are connected.
    fn over(
        initiator: Side,
        target: Side,
        strategy: Box<dyn Strategy>,
        shape: Shape,
        pattern: Pattern,
    ) -> Self {
        let target = Target { side: target, invalidates: strategy.is_invalidated_by_target() };
        let content = Content { block: 0, version: 0, bytes: shape.block };
        let flight = Flight { op: Op::Read, content, whole: false, since: None };
        let flights = vec![flight; shape.depth];
        let coin = Coin::new(0x6a6f_6273);
        Self { strategy, initiator, target, flights, pattern, coin, asked: 0 }
    }

    /// What one I/O needs besides its data, in words, and the pages that the initiator's registered
    /// memory lies on.
    pub fn about(&self) -> (String, PageKind) {
        (self.strategy.how(), self.strategy.pages())
    }

    /// Keeps all I/Os in flight until the end, and then waits for the last of them.
    ///
    /// # Errors
    /// As an I/O fails; `NotArrived` if one was done and its bytes are not there; `Stopped`.
    pub fn run(
        &mut self,
        disk: &mut Disk,
        until: Until,
        latency: &mut Histogram<u64>,
        stop: &Stop,
    ) -> Result<Done> {
        let mut done = Done::default();
        let mut completions = [Completion::BLANK; BATCH];
        let allocated = allocations::made();
        let start = match until {
            Until::Time(_) => Some(Instant::now()),
            Until::Count(_) => None,
        };
        let mut ending = false;
        let mut in_flight = 0;
        for slot in 0..self.flights.len() {
            self.ask(slot, disk, start)?;
            in_flight += 1;
        }
        while in_flight > 0 {
            stop.check()?;
            self.target.serve(disk)?;
            for receive in self.initiator.poll(&mut completions)? {
                let word = self.initiator.received(receive)?.load(0)?;
                let tag = tag_of(word).ok_or(RowError::Protocol("a response of no known kind"))?;
                self.initiator.post_recv(receive)?;
                let slot = tag as usize;
                let flight = self.finish(slot, disk)?;
                done.all += 1;
                done.whole += u64::from(flight.whole);
                let now = start.map(|_| Instant::now());
                if !ending {
                    done.ios += 1;
                    if let Some(((start, since), now)) = start.zip(flight.since).zip(now) {
                        // Within the bounds of the histogram, or far beyond any use.
                        let _ = latency.record(nanoseconds(now.duration_since(since)).max(1));
                        done.time = now.duration_since(start);
                    }
                    ending = match until {
                        Until::Time(time) => done.time >= time,
                        Until::Count(count) => done.ios >= count,
                    };
                }
                if ending {
                    in_flight -= 1;
                } else {
                    self.ask(slot, disk, now)?;
                }
            }
        }
        done.allocations = allocations::made().wrapping_sub(allocated);
        Ok(done)
    }

    /// Asks for the next I/O.
    fn ask(&mut self, slot: usize, disk: &mut Disk, since: Option<Instant>) -> Result<()> {
        let block = disk.order.step();
        let op = match self.pattern {
            Pattern::Randread => Op::Read,
            Pattern::Randwrite => Op::Write,
            Pattern::Randrw if self.coin.toss() => Op::Read,
            Pattern::Randrw => Op::Write,
        };
        self.asked = self.asked.wrapping_add(1);
        let whole = self.asked.is_multiple_of(WHOLE);
        let buffer = self.strategy.buffer(slot)?;
        let content = match op {
            Op::Read => {
                let content = disk.content(block);
                content.spoil(buffer, whole)?;
                content
            }
            Op::Write => {
                let content = disk.write(block);
                content.stamp(buffer)?;
                content.spoil(&mut disk.words(block), whole)?;
                content
            }
        };
        if let Some(flight) = self.flights.get_mut(slot) {
            *flight = Flight { op, content, whole, since };
        }
        let buffer = self.strategy.open(&self.initiator, slot, op)?;
        let tag = u32::try_from(slot).unwrap_or(u32::MAX);
        let request = Request { op, tag, offset: disk.offset(block), buffer }.to_bytes();
        let send = self.initiator.counted(Work::send_inline(&request));
        let qp = &self.initiator.qp;
        match self.strategy.opening(slot) {
            Some(opening) => qp.post(&[opening, send])?,
            None => qp.post(&[send])?,
        }
        Ok(())
    }

    /// An I/O has been answered: closes its buffer and checks that the bytes have moved.
    fn finish(&mut self, slot: usize, disk: &Disk) -> Result<Flight> {
        let flight = *self.flights.get(slot).ok_or(RowError::Protocol("a tag of no I/O"))?;
        self.strategy.close(slot, flight.op)?;
        let right = match flight.op {
            Op::Read => {
                let buffer = self.strategy.buffer(slot)?;
                flight.content.is_in(buffer, flight.whole)?
            }
            Op::Write => flight.content.is_in(&disk.words(flight.content.block), flight.whole)?,
        };
        if right {
            Ok(flight)
        } else {
            Err(RowError::NotArrived { offset: disk.offset(flight.content.block) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::storage::content::Words;
    use crate::device::{Opened, SOFTWARE};
    use clap::ValueEnum;
    use mkey::{Mr, Region, RemoteKey, Slice};

    const SHAPE: Shape = Shape { block: 4096, depth: 8 };

    fn device() -> Device {
        Opened::open(SOFTWARE, None, Duration::ZERO).expect("a software RNIC").device
    }

    fn ground(device: &Device) -> (Pd, Disk, Histogram<u64>) {
        let pd = Pd::new(device).expect("pd");
        let disk = Disk::new(&pd, 1 << 20, SHAPE.block).expect("a disk");
        (pd, disk, Histogram::new(3).expect("three digits"))
    }

    #[test]
    fn every_strategy_moves_every_byte_both_ways() {
        let device = device();
        let (pd, mut disk, mut times) = ground(&device);
        for name in Name::value_variants() {
            for pattern in Pattern::value_variants() {
                let mut job = Job::new(&device, &pd, *name, SHAPE, *pattern).expect("set up");
                // Twice around the disk: what was written is read.
                let until = Until::Count(2 * disk.blocks());
                let done = job.run(&mut disk, until, &mut times, &Stop::default());
                let done = done.unwrap_or_else(|error| panic!("{name:?} {pattern:?}: {error}"));
                assert_eq!(done.ios, 2 * disk.blocks(), "{name:?} {pattern:?}");
                assert_eq!(done.all, done.ios + SHAPE.depth as u64 - 1, "{name:?} {pattern:?}");
                assert!(done.whole >= done.ios / WHOLE, "{name:?} {pattern:?}: {done:?}");
            }
        }
        drop((disk, pd));
        let stats = device.stats();
        assert_eq!((stats.registered_bytes, stats.kept, stats.failed_drops), (0, 0, 0));
    }

    #[test]
    fn a_timed_run_has_a_time_for_each_io() {
        let device = device();
        let (pd, mut disk, mut times) = ground(&device);
        let mut job =
            Job::new(&device, &pd, Name::Static, SHAPE, Pattern::Randread).expect("set up");
        let time = Duration::from_millis(20);
        let done =
            job.run(&mut disk, Until::Time(time), &mut times, &Stop::default()).expect("run");
        assert!(done.time >= time && done.ios > 0, "{done:?}");
        assert_eq!(times.len(), done.ios);
    }

    #[test]
    fn a_signal_ends_a_run() {
        let device = device();
        let (pd, mut disk, mut times) = ground(&device);
        let mut job =
            Job::new(&device, &pd, Name::Static, SHAPE, Pattern::Randread).expect("set up");
        let until = Until::Time(Duration::from_secs(3600));
        let ended = job.run(&mut disk, until, &mut times, &Stop::by(2));
        assert!(matches!(ended, Err(RowError::Stopped(2))), "{ended:?}");
    }

    /// Opens one buffer to the target, and shows the application another.
    struct Elsewhere {
        opened: Slice,
        shown: Vec<u8>,
    }

    impl Strategy for Elsewhere {
        fn open(&mut self, _: &Side, _: usize, _: Op) -> Result<RemoteKey> {
            Ok(self.opened.remote_key()?)
        }

        fn close(&mut self, _: usize, _: Op) -> Result<()> {
            Ok(())
        }

        fn buffer(&mut self, _: usize) -> Result<&mut dyn Words> {
            Ok(&mut self.shown)
        }

        fn how(&self) -> String {
            String::new()
        }

        fn pages(&self) -> PageKind {
            PageKind::Base
        }
    }

    #[test]
    fn bytes_that_did_not_move_are_found_out() {
        let device = device();
        for pattern in [Pattern::Randread, Pattern::Randwrite] {
            let (pd, mut disk, mut times) = ground(&device);
            let initiator = Side::new(&device, &Pd::new(&device).expect("pd"), 1).expect("side");
            let target = Side::new(&device, &pd, 1).expect("side");
            initiator.connect(&target).expect("connected");
            let mr = Mr::builder(&initiator.pd).remote_read().remote_write();
            let mr = mr.register(Region::new(SHAPE.block).expect("memory")).expect("registered");
            let opened = mr.slice(..SHAPE.block).expect("within");
            let strategy = Box::new(Elsewhere { opened, shown: vec![0; SHAPE.block] });
            let shape = Shape { depth: 1, ..SHAPE };
            let mut job = Job::over(initiator, target, strategy, shape, pattern);
            let ended = job.run(&mut disk, Until::Count(1), &mut times, &Stop::default());
            assert!(matches!(ended, Err(RowError::NotArrived { .. })), "{pattern:?}: {ended:?}");
        }
    }
}
