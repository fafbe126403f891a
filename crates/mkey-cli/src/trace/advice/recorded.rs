//! What registrations cost in the recorded program, by kind of page and size.

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
    /// Bytes of the registrations that it is of, on average.
    pub bytes: f64,
}

impl Recorded {
    /// Of all that was registered.
    pub fn of<'a>(scripts: impl IntoIterator<Item = &'a Script>) -> Self {
        let mut times: BTreeMap<Class, (Vec<f64>, Vec<f64>, f64, u64)> = BTreeMap::new();
        for range in scripts.into_iter().flat_map(|script| &script.ranges) {
            let (register, deregister, bytes, count) = times.entry(class_of(range)).or_default();
            register.extend(range.register_ns.map(|ns| ns as f64));
            deregister.extend(range.deregister_ns.map(|ns| ns as f64));
            *bytes += range.bytes() as f64;
            *count += 1;
        }
        let classes = times.into_iter().map(|(class, (mut register, mut deregister, bytes, n))| {
            let (register, deregister) = (median(&mut register), median(&mut deregister));
            (class, Cost { register, deregister, bytes: bytes / n.max(1) as f64 })
        });
        Self { classes: classes.collect() }
    }

    /// Of registrations of about this size on these pages, if there were any.
    pub fn about(&self, pages: PageKind, bytes: u64) -> Option<Cost> {
        self.classes.get(&class(pages, bytes)).copied()
    }

    /// Of the registrations nearest in size on these pages.
    pub fn nearest(&self, pages: PageKind, bytes: u64) -> Option<Cost> {
        let wanted = class(pages, bytes).1;
        let of_kind = self.classes.iter().filter(|((kind, _), _)| *kind == pages);
        of_kind.min_by_key(|((_, class), _)| class.abs_diff(wanted)).map(|(_, cost)| *cost)
    }
}

fn class_of(range: &Registered) -> Class {
    class(range.pages, range.bytes())
}

fn class(pages: PageKind, bytes: u64) -> Class {
    (pages, bytes.max(1).ilog2())
}
