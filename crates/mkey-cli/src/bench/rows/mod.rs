//! The rows: one strategy each.
//!
//! Every strategy makes the same I/O possible: a peer writes [`IoShape::bytes`] into the
//! application's memory, over a working set, some at a time. They differ in when the memory is
//! registered and in what one I/O needs besides.

pub mod grant;
pub mod on_demand;
pub mod per_io;
pub mod pool;
pub mod region;
#[cfg(test)]
mod tests;

use super::arena::Arena;
use super::error::{Result, RowError};
use super::link::{Link, Target};
use super::measure::{self, Budget, Samples};
use super::populate;
use super::progress::Progress;
use super::report::{Bandwidth, Figures, IoShape, Missing, Register};
use super::stop::Stop;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::DataPlane;
use mkey_core::key::Rkey;
use mkey_core::rights::Rights;
use mkey_core::work::RemoteAddr;
use mkey_os::mapping::PageKind;
use std::time::{Duration, Instant};

/// What the peer's buffer is filled with.
pub const SOURCE_BYTE: u8 = 0x5a;

/// What all rows share.
#[derive(Debug)]
pub struct Context<'a, D: DataPlane> {
    /// The device measured.
    pub device: &'a D,
    /// What the peer writes from.
    pub source: &'a Arena,
    /// Bytes that each row registers.
    pub memory: u64,
    /// The I/O.
    pub io: IoShape,
    /// Threads that prefault.
    pub threads: usize,
    /// What two readings of the clock cost.
    pub clock: Duration,
    /// Asked at safe points.
    pub stop: &'a Stop,
    /// Told how far the run is.
    pub progress: &'a Progress,
}

/// How one I/O is done.
pub trait Strategy {
    /// Makes everything ready for a round over the working set; not timed.
    ///
    /// # Errors
    /// As the device or the operating system refuses.
    fn ready(&mut self) -> Result<()> {
        Ok(())
    }

    /// Does one I/O into each block, named by its offset in the working set; at most
    /// [`IoShape::depth`] of them.
    ///
    /// # Errors
    /// As the device refuses.
    fn io(&mut self, offsets: &[u64]) -> Result<()>;

    /// The application's memory, where the data of I/Os arrives.
    ///
    /// # Errors
    /// If there is none now.
    fn memory(&self) -> Result<&Arena>;

    /// The distance between the offsets that [`Strategy::map`] is given; `None`: an I/O needs
    /// nothing besides its data.
    fn map_step(&self) -> Option<u64>;

    /// What one I/O needs besides its data, there and back again.
    ///
    /// # Errors
    /// As the device refuses.
    fn map(&mut self, _offset: u64) -> Result<()> {
        Ok(())
    }
}

impl<D: DataPlane> Context<'_, D> {
    /// Memory on pages of one kind, not touched yet.
    ///
    /// # Errors
    /// `Missing` with the reason and the command that would mend it.
    pub fn map(&self, bytes: u64, kind: PageKind) -> Result<Arena> {
        populate::map(bytes, kind)
    }

    /// Brings all of an arena in; checks that transparent huge pages are huge.
    ///
    /// # Errors
    /// `Stopped`; `Missing` with the reason and the command that would mend it.
    pub fn prefault(&self, arena: &Arena) -> Result<()> {
        populate::prefault(arena, self.threads, self.stop, self.progress)
    }

    /// Memory on pages of one kind, brought in.
    ///
    /// # Errors
    /// As [`Context::map`] and [`Context::prefault`].
    pub fn populated(&self, bytes: u64, kind: PageKind) -> Result<Arena> {
        let arena = self.map(bytes, kind)?;
        self.prefault(&arena)?;
        Ok(arena)
    }

    /// Registers all of the memory again and again, on new memory where time allows, and hands
    /// back the last arena, brought in and not registered.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn register_all(
        &self,
        link: &Link<'_, D>,
        kind: PageKind,
        rights: Rights,
        time: Duration,
    ) -> Result<(Register, Arena)> {
        let (mut prefault, mut terms) = (Samples::new(1), Terms::default());
        // Bringing 1 GiB in may take seconds; registering it again is quick. New memory at least
        // twice, four times where half of the time allows; the rest on the last. The first time
        // warms up: a virtual machine may only then get the memory from its host.
        let fresh = Budget::new(time / 2, 2, 4);
        let all = Budget::new(time, 3, 200);
        let on_demand = rights.contains(Rights::ON_DEMAND);
        let mut rounds = 0;
        loop {
            self.stop.check()?;
            self.progress.step("prefault");
            let arena = self.map(self.memory, kind)?;
            if !on_demand {
                let start = Instant::now();
                self.prefault(&arena)?;
                if rounds > 0 {
                    prefault.record(start.elapsed());
                }
            }
            rounds += 1;
            self.progress.step("register");
            let last = on_demand || !fresh.more(rounds);
            for taken in 0.. {
                self.stop.check()?;
                terms.time(self.device, link, &arena, self.memory, rights)?;
                if taken >= 2 && (!last || !all.more(terms.taken)) {
                    break;
                }
            }
            if last {
                let register = terms.register(self.memory, prefault, on_demand)?;
                return Ok((register, arena));
            }
        }
    }

    /// Does I/O by a strategy, in turns with bare copies into `bare`, and times what an I/O needs
    /// besides its data.
    ///
    /// # Errors
    /// As the strategy fails.
    pub fn io(&self, strategy: &mut dyn Strategy, bare: &Arena, time: Duration) -> Result<Figures> {
        let mut figures = Figures::default();
        let steps = if strategy.map_step().is_some() { 2 } else { 1 };
        self.progress.step("I/O");
        let offsets: Vec<u64> = (0..self.io.working_set / self.io.bytes.max(1))
            .map(|block| block * self.io.bytes)
            .collect();
        let bytes = (offsets.len() as u64).saturating_mul(self.io.bytes) as f64;
        self.check_arrival(strategy, &offsets)?;
        let (mut ratios, mut ours, mut bares) = (Vec::new(), Vec::new(), Vec::new());
        let mut cpu = Samples::new(u32::try_from(offsets.len()).unwrap_or(u32::MAX));
        let budget = Budget::new(time / steps, 6, 2000);
        let mut round = 0;
        while budget.more(round) {
            self.stop.check()?;
            strategy.ready()?;
            // Which of the two goes first takes turns, so that drift meets both alike.
            let (bare_time, (our_time, our_cpu)) = if round % 2 == 0 {
                (self.bare_pass(bare, &offsets)?, self.pass(strategy, &offsets)?)
            } else {
                let pass = self.pass(strategy, &offsets)?;
                (self.bare_pass(bare, &offsets)?, pass)
            };
            // The first round warms up.
            if round >= 1 {
                let (ours_ns, bare_ns) = (our_time.as_secs_f64(), bare_time.as_secs_f64());
                ratios.push(bare_ns / ours_ns.max(1e-12) * 100.0);
                ours.push(bytes / ours_ns.max(1e-12));
                bares.push(bytes / bare_ns.max(1e-12));
                cpu.record(our_cpu);
            }
            round += 1;
        }
        let rounds = ratios.len() as u64;
        if let (Some(percent), Some(ours), Some(bare)) =
            (measure::median(&mut ratios), measure::median(&mut ours), measure::median(&mut bares))
        {
            figures.bandwidth = Some(Bandwidth {
                percent_of_bare: percent,
                bytes_per_second: ours,
                bare_bytes_per_second: bare,
                rounds,
            });
        }
        figures.cpu = cpu.summary();
        if let Some(step) = strategy.map_step() {
            figures.map = self.time_map(strategy, step, time / steps)?;
        }
        Ok(figures)
    }

    /// One round that is not timed: warms up, and shows that the bytes arrive.
    fn check_arrival(&self, strategy: &mut dyn Strategy, offsets: &[u64]) -> Result<()> {
        strategy.ready()?;
        let last_byte = |offset: &u64| offset.saturating_add(self.io.bytes).saturating_sub(1);
        let memory = strategy.memory()?;
        for offset in offsets {
            memory.set(last_byte(offset), !SOURCE_BYTE)?;
        }
        self.pass(strategy, offsets)?;
        let memory = strategy.memory()?;
        for offset in offsets {
            if memory.byte(last_byte(offset))? != SOURCE_BYTE {
                return Err(RowError::NotArrived { offset: *offset });
            }
        }
        Ok(())
    }

    fn pass(&self, strategy: &mut dyn Strategy, offsets: &[u64]) -> Result<(Duration, Duration)> {
        let cpu = measure::cpu_time();
        let start = Instant::now();
        for chunk in offsets.chunks(self.io.depth.max(1)) {
            // A pass with a declared device command may take seconds.
            self.stop.check()?;
            strategy.io(chunk)?;
        }
        Ok((start.elapsed(), measure::cpu_time().saturating_sub(cpu)))
    }

    fn bare_pass(&self, bare: &Arena, offsets: &[u64]) -> Result<Duration> {
        let start = Instant::now();
        for offset in offsets {
            bare.copy_from(*offset, self.source, 0, self.io.bytes)?;
        }
        Ok(start.elapsed())
    }

    fn time_map(
        &self,
        strategy: &mut dyn Strategy,
        step: u64,
        time: Duration,
    ) -> Result<Option<super::report::Summary>> {
        self.progress.step("map");
        let offsets: Vec<u64> = (0..self.io.working_set / step.max(1)).map(|n| n * step).collect();
        // Warm up, and learn how long one takes.
        strategy.ready()?;
        let mut probe = Samples::new(1);
        for offset in &offsets {
            let start = Instant::now();
            strategy.map(*offset)?;
            probe.record(start.elapsed());
        }
        let one =
            probe.summary().map_or(Duration::ZERO, |s| Duration::from_nanos(s.median_ns as u64));
        let most = u32::try_from(offsets.len()).unwrap_or(u32::MAX).max(1);
        let batch = measure::batch_for(one, self.clock).min(most);
        let mut samples = Samples::new(batch);
        let budget = Budget::new(time, 1, 100_000);
        let mut rounds = 0;
        while budget.more(rounds) {
            self.stop.check()?;
            strategy.ready()?;
            for chunk in offsets.chunks_exact(batch as usize) {
                let start = Instant::now();
                for offset in chunk {
                    strategy.map(*offset)?;
                }
                samples.record(start.elapsed());
            }
            rounds += 1;
        }
        Ok(samples.summary())
    }
}

/// The part of the memory at `address` that the peer may write by `rkey`.
pub fn target(address: u64, rkey: Rkey, length: u64) -> Target {
    Target {
        remote: RemoteAddr { address: IoAddr(address), rkey },
        length: u32::try_from(length).unwrap_or(u32::MAX),
    }
}

/// The terms of many registrations.
#[derive(Debug)]
struct Terms {
    taken: u64,
    pin: Samples,
    table: Samples,
    command: Samples,
    verb: Samples,
    deregister: Samples,
}

impl Default for Terms {
    fn default() -> Self {
        let one = || Samples::new(1);
        Self { taken: 0, pin: one(), table: one(), command: one(), verb: one(), deregister: one() }
    }
}

impl Terms {
    fn time<D: DataPlane>(
        &mut self,
        device: &D,
        link: &Link<'_, D>,
        arena: &Arena,
        bytes: u64,
        rights: Rights,
    ) -> Result<()> {
        let before = device.registration_terms();
        let start = Instant::now();
        let registration = arena.register(device, link.pd, 0, bytes, rights)?;
        let verb = start.elapsed();
        let after = device.registration_terms();
        let start = Instant::now();
        registration.deregister()?;
        self.deregister.record(start.elapsed());
        self.verb.record(verb);
        self.pin.record_ns(after.pin.saturating_sub(before.pin));
        if after.registrations > before.registrations {
            self.table.record_ns(after.table.saturating_sub(before.table));
        }
        self.command.record_ns(after.command.saturating_sub(before.command));
        self.taken += 1;
        Ok(())
    }

    fn register(&self, bytes: u64, prefault: Samples, on_demand: bool) -> Result<Register> {
        let nothing = || RowError::Missing(Missing::plain("nothing was registered"));
        let above_zero = |samples: &Samples| samples.summary().filter(|s| s.p99_ns > 0.0);
        Ok(Register {
            bytes,
            prefault: prefault.summary(),
            pin: above_zero(&self.pin).filter(|_| !on_demand),
            table: self.table.summary(),
            command: above_zero(&self.command),
            verb: self.verb.summary().ok_or_else(nothing)?,
            deregister: self.deregister.summary().ok_or_else(nothing)?,
        })
    }
}
