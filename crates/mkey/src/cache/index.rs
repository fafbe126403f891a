//! Which registrations contain or overlap a range.
//!
//! Registrations may overlap. They are kept apart by the power of two of their length: among those
//! of one class only the ones that start less than the class's longest length before a range can
//! reach into it.

use super::span::Span;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(super) struct Index {
    /// By the exponent of the length; then by start and number.
    classes: Vec<BTreeMap<(usize, u32), Span>>,
}

impl Index {
    fn class(len: usize) -> usize {
        len.checked_ilog2().unwrap_or(0) as usize
    }

    /// The first start from which a registration of the class reaches beyond `address`.
    fn first(class: usize, address: usize) -> usize {
        let longest = (2usize << class).wrapping_sub(1);
        address.saturating_sub(longest)
    }

    pub(super) fn insert(&mut self, number: u32, span: Span) {
        let class = Self::class(span.len());
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, BTreeMap::new);
        }
        if let Some(members) = self.classes.get_mut(class) {
            members.insert((span.start, number), span);
        }
    }

    pub(super) fn remove(&mut self, number: u32, span: &Span) {
        if let Some(members) = self.classes.get_mut(Self::class(span.len())) {
            members.remove(&(span.start, number));
        }
    }

    /// One that serves a request.
    pub(super) fn find(&self, wanted: &Span) -> Option<u32> {
        let smallest = Self::class(wanted.len());
        self.classes.iter().enumerate().skip(smallest).find_map(|(class, members)| {
            members
                .range((Self::first(class, wanted.start), 0)..=(wanted.start, u32::MAX))
                .rev()
                .find(|(_, span)| span.serves(wanted))
                .map(|(&(_, number), _)| number)
        })
    }

    /// All that overlap a range.
    pub(super) fn overlapping(&self, range: Range<usize>) -> impl Iterator<Item = (u32, Span)> {
        let empty = range.is_empty();
        self.classes.iter().enumerate().filter(move |_| !empty).flat_map(move |(class, members)| {
            let range = range.clone();
            members
                .range((Self::first(class, range.start), 0)..(range.end, 0))
                .filter(move |(_, span)| span.overlaps(&range))
                .map(|(&(_, number), &span)| (number, span))
        })
    }
}
