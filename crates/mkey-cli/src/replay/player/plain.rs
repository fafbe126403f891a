//! The verbs themselves: as recorded, and once for each distinct range.

use super::{Player, no_range};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::Result;
use crate::replay::stage::Stage;
use crate::replay::strategy::Strategy;
use mkey_core::device::Device;

type Live<'a> = Registration<'a, dyn Device, &'a Arena>;

/// Registers a range of the stage.
fn register<'a>(stage: &'a Stage, strategy: Strategy, range: usize) -> Result<Live<'a>> {
    let of = stage.range(range).ok_or_else(no_range)?;
    let (arena, offset) = stage.place(strategy, range).ok_or_else(no_range)?;
    let pd = stage.domains.get(of.domain).ok_or_else(no_range)?.handle();
    let device: &dyn Device = &**stage.device.control();
    arena.register(device, pd, offset, of.len, stage.rights(of))
}

/// What is registered, in bytes.
#[derive(Debug, Default)]
struct Bytes {
    now: u64,
    most: u64,
}

impl Bytes {
    fn add(&mut self, bytes: u64) {
        self.now = self.now.saturating_add(bytes);
        self.most = self.most.max(self.now);
    }
}

/// Registered and deregistered as they were.
pub struct Plain<'a> {
    stage: &'a Stage,
    strategy: Strategy,
    live: Vec<Option<Live<'a>>>,
    made: u64,
    bytes: Bytes,
}

impl<'a> Plain<'a> {
    /// Nothing is registered yet.
    pub fn new(strategy: Strategy, stage: &'a Stage) -> Self {
        let live = stage.script.ranges.iter().map(|_| None).collect();
        Self { stage, strategy, live, made: 0, bytes: Bytes::default() }
    }
}

impl Player for Plain<'_> {
    #[inline]
    fn register(&mut self, range: usize) -> Result<()> {
        let live = register(self.stage, self.strategy, range)?;
        let slot = self.live.get_mut(range).ok_or_else(no_range)?;
        *slot = Some(live);
        self.made += 1;
        self.bytes.add(self.stage.range(range).map_or(0, |range| range.bytes()));
        Ok(())
    }

    #[inline]
    fn deregister(&mut self, range: usize) -> Result<()> {
        let Some(live) = self.live.get_mut(range).and_then(Option::take) else { return Ok(()) };
        let bytes = self.stage.range(range).map_or(0, |range| range.bytes());
        self.bytes.now = self.bytes.now.saturating_sub(bytes);
        live.deregister()
    }

    fn finish(&mut self) -> Result<()> {
        self.live.iter_mut().filter_map(Option::take).try_for_each(Registration::deregister)
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn most_bytes(&self) -> u64 {
        self.bytes.most
    }
}

/// Each distinct range registered at its first use.
pub struct Once<'a> {
    stage: &'a Stage,
    kept: Vec<Option<Live<'a>>>,
    made: u64,
    bytes: Bytes,
}

impl<'a> Once<'a> {
    /// Nothing is registered yet.
    pub fn new(stage: &'a Stage) -> Self {
        let kept = (0..stage.distinct.1).map(|_| None).collect();
        Self { stage, kept, made: 0, bytes: Bytes::default() }
    }
}

impl Player for Once<'_> {
    #[inline]
    fn register(&mut self, range: usize) -> Result<()> {
        let number = self.stage.distinct.0.get(range).copied().ok_or_else(no_range)?;
        let slot = self.kept.get_mut(number).ok_or_else(no_range)?;
        if slot.is_none() {
            *slot = Some(register(self.stage, Strategy::Once, range)?);
            self.made += 1;
            self.bytes.add(self.stage.range(range).map_or(0, |range| range.bytes()));
        }
        Ok(())
    }

    #[inline]
    fn deregister(&mut self, _range: usize) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.kept.iter_mut().filter_map(Option::take).try_for_each(Registration::deregister)
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn most_bytes(&self) -> u64 {
        self.bytes.most
    }
}
