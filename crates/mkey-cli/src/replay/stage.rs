//! Everything that the script of one process is played on.

use super::layout::Layout;
use super::left::{Left, Why};
use super::memory::Memory;
use super::script::{Act, Registered, Script, Step};
use super::strategy::Strategy;
use crate::bench::arena::Arena;
use crate::bench::error::Result;
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use mkey::{Device, Pd, Rights};
use mkey_os::mapping::PageKind;
use std::sync::Arc;

/// A script with its memory and its protection domains on a device.
#[derive(Debug)]
pub struct Stage {
    /// The device.
    pub device: Device,
    /// What is played.
    pub script: Script,
    /// One a domain of the script.
    pub domains: Vec<Pd>,
    /// Bytes that a strategy may have besides.
    pub room: u64,
    /// The number of each range among the distinct ones, and how many there are.
    pub distinct: (Vec<usize>, usize),
    /// On the pages that it was on.
    recorded: Place,
    /// On huge pages; `None`: not asked for.
    huge: Option<Place>,
}

/// Memory and where ranges lie in it.
#[derive(Debug)]
struct Place {
    layout: Layout,
    memory: Memory,
}

impl Place {
    fn new(
        script: &Script,
        on: Option<PageKind>,
        room: &mut u64,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Self> {
        let layout = Layout::of(&script.ranges, on);
        let memory = Memory::obtain(&layout, room, stop, progress)?;
        Ok(Self { layout, memory })
    }

    /// A range's area, its memory and its offset there.
    fn of(&self, range: usize) -> Option<(usize, &Arc<Arena>, u64)> {
        let (block, offset) = *self.layout.places.get(range)?;
        let block = self.layout.blocks.get(block)?;
        let (arena, start) = self.memory.block(block)?;
        Some((block.area, arena, start.saturating_add(offset)))
    }
}

impl Stage {
    /// Maps the memory that `strategies` need, out of `room` bytes, and brings it in.
    ///
    /// # Errors
    /// `Stopped`; as the device refuses domains.
    pub fn new(
        device: &Device,
        script: Script,
        strategies: &[Strategy],
        room: &mut u64,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Self> {
        let besides = *room;
        let recorded = Place::new(&script, None, room, stop, progress)?;
        let huge = match strategies.contains(&Strategy::Huge) {
            true => Some(Place::new(&script, Some(PageKind::Huge2M), room, stop, progress)?),
            false => None,
        };
        let domains = (0..script.domains).map(|_| Pd::new(device));
        let domains = domains.collect::<mkey::Result<Vec<_>>>()?;
        let distinct = script.distinct();
        Ok(Self {
            device: device.clone(),
            script,
            domains,
            room: besides,
            distinct,
            recorded,
            huge,
        })
    }

    /// The steps that can be played by a strategy, and what is left out.
    pub fn steps(&self, strategy: Strategy) -> (Vec<Step>, Left) {
        let mut left = Left::default();
        let mut played = Vec::with_capacity(self.script.steps.len());
        for step in &self.script.steps {
            let Some(range) = self.script.ranges.get(step.range) else { continue };
            match self.why_not(strategy, step.range, range) {
                None => played.push(*step),
                Some(why) if step.act == Act::Register => {
                    let ns = [range.register_ns, range.deregister_ns].into_iter().flatten().sum();
                    left.add(why, 1, ns);
                }
                Some(_) => {}
            }
        }
        (played, left)
    }

    fn why_not(&self, strategy: Strategy, number: usize, range: &Registered) -> Option<Why> {
        // As recorded in any case: strategies are compared over the same registrations.
        if self.recorded.of(number).is_none() {
            return Some(Why::NoRoom);
        }
        if range.on_demand && !self.device.capabilities().odp.explicit {
            return Some(Why::OnDemand);
        }
        match strategy {
            Strategy::Huge if self.huge.as_ref().is_none_or(|huge| huge.of(number).is_none()) => {
                Some(Why::NoRoom)
            }
            Strategy::Mw | Strategy::Frmr if u32::try_from(range.len).is_err() => {
                Some(Why::TooLong)
            }
            _ => None,
        }
    }

    /// A range's memory and its offset there.
    pub fn place(&self, strategy: Strategy, range: usize) -> Option<(&Arc<Arena>, u64)> {
        let place = match strategy {
            Strategy::Huge => self.huge.as_ref()?,
            _ => &self.recorded,
        };
        let (_, arena, offset) = place.of(range)?;
        Some((arena, offset))
    }

    /// The number of the area that a range lies in, on the pages that it was on.
    pub fn area(&self, range: usize) -> Option<usize> {
        self.recorded.of(range).map(|(area, ..)| area)
    }

    /// The areas, on the pages that they were on; `None`: there was no room.
    pub fn areas(&self) -> &[Option<Arc<Arena>>] {
        &self.recorded.memory.areas
    }

    /// A range of the script.
    pub fn range(&self, range: usize) -> Option<&Registered> {
        self.script.ranges.get(range)
    }

    /// The rights that a range is registered with here.
    pub fn rights(&self, range: &Registered) -> Rights {
        match range.on_demand {
            true => range.rights | Rights::ON_DEMAND,
            false => range.rights,
        }
    }

    /// What is otherwise than in the recording, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let huge = self.huge.iter().flat_map(|huge| &huge.memory.notes);
        let huge = huge.map(|note| format!("huge: {note}"));
        let shared = match self.script.substituted {
            0 => None,
            n => Some(format!(
                "{n} registrations of files and shared memory are of anonymous memory"
            )),
        };
        self.recorded.memory.notes.iter().cloned().chain(huge).chain(shared).collect()
    }
}
