//! What registrations cost in the recorded program, by kind of page and size.
//!
//! The first registration of a process is apart: what is made once, in the library and in the kernel,
//! is made with it.

use crate::bench::measure::median;
use crate::replay::script::{Registered, Script};
use mkey_os::mapping::PageKind;
use std::collections::BTreeMap;

/// Sizes within a factor of two are one class.
type Class = (PageKind, u32);

/// Medians of what was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    classes: BTreeMap<Class, Cost>,
}

/// What registering and deregistering take, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Registering; `None`: not recorded.
    pub register: Option<f64>,
    /// Deregistering; `None`: not recorded.
    pub deregister: Option<f64>,
}

impl Recorded {
    /// Of all that was registered.
    pub fn of(scripts: &[Script]) -> Self {
        let later = Self::of_ranges(scripts.iter().flat_map(later));
        if later.classes.is_empty() {
            return Self::of_ranges(scripts.iter().flat_map(|script| &script.ranges));
        }
        later
    }

    /// Of memory that had been registered before.
    pub fn of_again(scripts: &[Script]) -> Self {
        Self::of_ranges(scripts.iter().flat_map(Script::again))
    }

    fn of_ranges<'a>(ranges: impl Iterator<Item = &'a Registered>) -> Self {
        let mut times: BTreeMap<Class, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        for range in ranges {
            let (register, deregister) = times.entry(class_of(range)).or_default();
            register.extend(range.register_ns.map(|ns| ns as f64));
            deregister.extend(range.deregister_ns.map(|ns| ns as f64));
        }
        let classes = times.into_iter().map(|(class, (mut register, mut deregister))| {
            let (register, deregister) = (median(&mut register), median(&mut deregister));
            (class, Cost { register, deregister })
        });
        Self { classes: classes.collect() }
    }

    /// Of registrations of about this size on these pages, if there were any.
    pub fn about(&self, pages: PageKind, bytes: u64) -> Option<Cost> {
        self.classes.get(&class(pages, bytes)).copied()
    }
}

/// All but the first registration of a process.
pub fn later(script: &Script) -> impl Iterator<Item = &Registered> {
    let first = script.steps.first().map(|step| step.range);
    let ranges = script.ranges.iter().enumerate();
    ranges.filter(move |(number, _)| Some(*number) != first).map(|(_, range)| range)
}

fn class_of(range: &Registered) -> Class {
    class(range.pages, range.bytes())
}

fn class(pages: PageKind, bytes: u64) -> Class {
    (pages, bytes.max(1).ilog2())
}
