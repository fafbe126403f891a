//! Where registered memory lies, so that memory which is given back is known to be registered.
//!
//! A span is listed in the cells that it overlaps of a grid whose cells are as large as the span is, rounded
//! up to a power of two: in two at most. Memory given back looks into its cells of each grid that has spans.

use super::lock::Spin;
use super::memory;
use super::table::Table;
use crate::raw::Slot;
use bytemuck::Zeroable;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cells are 4 KiB at least.
const LEAST: u32 = 12;
/// Spans, at most; nodes are made in segments.
pub const MOST: usize = 1 << 19;
const SEGMENT: usize = 4096;
/// Looking into so many cells, the list of all spans is shorter.
const CELLS: u64 = 64;

/// All of them.
pub struct Spans {
    /// The lowest and the highest address of any since there was none.
    low: AtomicU64,
    high: AtomicU64,
    /// Grids that have spans, by the power of two that their cells are.
    grids: AtomicU64,
    /// A cell's first node.
    cells: Table,
    state: Spin<State>,
}

struct State {
    segments: [Option<&'static mut [Node]>; MOST / SEGMENT],
    /// Nodes ever made; the first of those that are free again; those in use.
    made: u32,
    free: u32,
    live: u32,
    /// Spans of each grid.
    counts: [u32; 64],
}

/// A span; nodes are named by their index, from 1.
#[derive(Clone, Copy, Zeroable)]
struct Node {
    start: u64,
    end: u64,
    mr: Slot,
    /// 0: it is free.
    grid: u32,
    /// Of the lists of its first cell, and of the next, if it reaches there.
    prev: [u32; 2],
    next: [u32; 2],
}

/// A span, by which it is taken out again. 0: none.
pub type Span = u32;

impl Spans {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            low: AtomicU64::new(u64::MAX),
            high: AtomicU64::new(0),
            grids: AtomicU64::new(0),
            cells: Table::new(2 * MOST),
            state: Spin::new(State {
                segments: [const { None }; MOST / SEGMENT],
                made: 0,
                free: 0,
                live: 0,
                counts: [0; 64],
            }),
        }
    }

    /// Puts in a span of a region. 0: there is no place, or it is no memory that can be given back.
    pub fn add(&self, addr: u64, len: u64, mr: Slot) -> Span {
        let Some(end) = addr.checked_add(len).filter(|end| addr < *end && *end < 1 << 56) else {
            return 0;
        };
        let grid = grid(len);
        let mut state = self.state.lock();
        let Some(span) = state.node() else { return 0 };
        let node = Node { start: addr, end, mr, grid, prev: [0; 2], next: [0; 2] };
        state.set(span, node);
        for side in 0..node.cells() {
            if self.link(&mut state, span, side).is_none() {
                // No place for the cell: not in any list, then.
                if side == 1 {
                    self.unlink(&mut state, span, 0);
                }
                state.give_back(span);
                return 0;
            }
        }
        if let Some(count) = state.counts.get_mut(grid as usize) {
            *count += 1;
        }
        state.live += 1;
        self.low.fetch_min(addr, Relaxed);
        self.high.fetch_max(end, Relaxed);
        self.grids.fetch_or(1 << grid, Relaxed);
        span
    }

    /// Takes it out.
    pub fn remove(&self, span: Span) {
        let mut state = self.state.lock();
        let Some(node) = state.get(span) else { return };
        for side in 0..node.cells() {
            self.unlink(&mut state, span, side);
        }
        state.give_back(span);
        state.live -= 1;
        if let Some(count) = state.counts.get_mut(node.grid as usize) {
            *count -= 1;
            if *count == 0 {
                self.grids.fetch_and(!(1 << node.grid), Relaxed);
            }
        }
        if state.live == 0 {
            self.low.store(u64::MAX, Relaxed);
            self.high.store(0, Relaxed);
        }
    }

    /// Whether there may be a span that overlaps. No lock, a few nanoseconds; from within a signal handler,
    /// too, that has interrupted a change.
    #[inline]
    pub fn near(&self, addr: u64, len: u64) -> bool {
        let end = addr.saturating_add(len);
        addr < self.high.load(Relaxed) && end > self.low.load(Relaxed) && self.in_cells(addr, end)
    }

    /// Whether there may be one that lies within.
    pub fn may_be_within(&self, addr: u64, len: u64) -> bool {
        let grids = (2_u64 << grid(len.max(1))) - 1;
        self.in_grids(grids, addr, addr.saturating_add(len))
    }

    /// Calls `f` with each span that overlaps: its region, where it begins and where it ends. Not at all if
    /// the list stays locked (by this very thread, interrupted), or, unless `patient`, is.
    pub fn overlapping(
        &self,
        addr: u64,
        len: u64,
        patient: bool,
        mut f: impl FnMut(Slot, u64, u64),
    ) {
        let end = addr.saturating_add(len);
        let held = if patient { self.state.try_lock() } else { self.state.try_once() };
        let Some(state) = held else { return };
        if end <= addr {
            return;
        }
        let mut seen = |node: &Node| {
            if node.start < end && addr < node.end {
                f(node.mr, node.start, node.end);
            }
        };
        for grid in bits(self.grids.load(Relaxed)) {
            let (first, last) = (addr >> grid, (end - 1) >> grid);
            if last - first >= CELLS && last - first >= u64::from(state.live) {
                (1..=state.made)
                    .filter_map(|span| state.get(span))
                    .filter(|n| n.grid == grid)
                    .for_each(|n| seen(&n));
                continue;
            }
            for cell in first..=last {
                let mut span = self.cells.get(name(grid, cell)).unwrap_or(0) as u32;
                while let Some(node) = state.get(span) {
                    let home = node.start >> grid;
                    // In two cells of these: seen in the first.
                    if home == cell || cell == first {
                        seen(&node);
                    }
                    span = if home == cell { node.next[0] } else { node.next[1] };
                }
            }
        }
    }

    fn in_cells(&self, addr: u64, end: u64) -> bool {
        self.in_grids(u64::MAX, addr, end)
    }

    /// Whether a cell of one of these grids has spans.
    fn in_grids(&self, grids: u64, addr: u64, end: u64) -> bool {
        if end <= addr {
            return false;
        }
        bits(self.grids.load(Relaxed) & grids).any(|grid| {
            let (first, last) = (addr >> grid, (end - 1) >> grid);
            last - first >= CELLS
                || (first..=last).any(|cell| self.cells.may_have(name(grid, cell)))
        })
    }

    /// Puts a span before the others of one of its cells.
    fn link(&self, state: &mut State, span: Span, side: usize) -> Option<()> {
        let node = state.get(span)?;
        let cell = name(node.grid, (node.start >> node.grid) + side as u64);
        let next = self.cells.insert(cell, span.into()).ok()?.unwrap_or(0) as u32;
        if let Some(after) = state.at(next) {
            after.prev[after.side(&node, side)] = span;
        }
        let node = state.at(span)?;
        (node.prev[side], node.next[side]) = (0, next);
        Some(())
    }

    /// Takes a span out of the list of one of its cells.
    fn unlink(&self, state: &mut State, span: Span, side: usize) {
        let Some(node) = state.get(span) else { return };
        let (prev, next) = (node.prev[side], node.next[side]);
        if let Some(after) = state.at(next) {
            after.prev[after.side(&node, side)] = prev;
        }
        match state.at(prev) {
            Some(before) => before.next[before.side(&node, side)] = next,
            None => {
                let cell = name(node.grid, (node.start >> node.grid) + side as u64);
                if next == 0 {
                    self.cells.remove(cell);
                } else {
                    // The key is there: there is a place for it.
                    let _ = self.cells.insert(cell, next.into());
                }
            }
        }
    }
}

impl Node {
    /// How many cells it overlaps.
    fn cells(&self) -> usize {
        1 + usize::from(self.start >> self.grid != (self.end - 1) >> self.grid)
    }

    /// Which of its lists is the one of `other`'s cell `side`.
    fn side(&self, other: &Self, side: usize) -> usize {
        usize::from(self.start >> self.grid != (other.start >> other.grid) + side as u64)
    }
}

impl State {
    fn at(&mut self, span: Span) -> Option<&mut Node> {
        let index = (span as usize).checked_sub(1)?;
        self.segments.get_mut(index / SEGMENT)?.as_mut()?.get_mut(index % SEGMENT)
    }

    fn get(&self, span: Span) -> Option<Node> {
        let index = (span as usize).checked_sub(1)?;
        let node = *self.segments.get(index / SEGMENT)?.as_ref()?.get(index % SEGMENT)?;
        (node.grid != 0).then_some(node)
    }

    fn set(&mut self, span: Span, node: Node) {
        if let Some(to) = self.at(span) {
            *to = node;
        }
    }

    /// A node that is free.
    fn node(&mut self) -> Option<Span> {
        let free = self.free;
        if let Some(node) = self.at(free) {
            self.free = node.next[0];
            return Some(free);
        }
        let segment = self.segments.get_mut(self.made as usize / SEGMENT)?;
        if segment.is_none() {
            *segment = memory::zeros(SEGMENT);
        }
        segment.as_ref()?;
        self.made += 1;
        Some(self.made)
    }

    fn give_back(&mut self, span: Span) {
        let free = std::mem::replace(&mut self.free, span);
        self.set(span, Node { next: [free, 0], ..Node::zeroed() });
    }
}

/// The grid of spans of a length that is not 0.
fn grid(len: u64) -> u32 {
    (64 - (len - 1).leading_zeros()).clamp(LEAST, 62)
}

/// The key of a cell.
fn name(grid: u32, cell: u64) -> u64 {
    u64::from(grid) << 56 | cell
}

fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlapping(spans: &Spans, addr: u64, len: u64) -> Vec<Slot> {
        let mut found = Vec::new();
        spans.overlapping(addr, len, true, |mr, _, _| found.push(mr));
        found.sort_unstable();
        found
    }

    proptest! {
        #[test]
        fn it_finds_what_a_list_finds(
            steps in prop::collection::vec((any::<bool>(), 0..1_u64 << 24, 0..24_u32, any::<u16>()), 1..200),
        ) {
            let spans = Spans::new();
            let mut model: Vec<(u64, u64, Slot, Span)> = Vec::new();
            for (number, (add, addr, power, odd)) in steps.into_iter().enumerate() {
                let len = (1 << power) + u64::from(odd) % (1 << power);
                if add || model.is_empty() {
                    let mr = number as Slot + 1;
                    let span = spans.add(addr, len, mr);
                    prop_assert_ne!(span, 0);
                    model.push((addr, len, mr, span));
                } else {
                    let (.., span) = model.swap_remove(usize::from(odd) % model.len());
                    spans.remove(span);
                }
                let mut expected: Vec<_> = model
                    .iter()
                    .filter(|(a, l, ..)| *a < addr + len && addr < a + l)
                    .map(|(_, _, mr, _)| *mr)
                    .collect();
                expected.sort_unstable();
                prop_assert!(expected.is_empty() || spans.near(addr, len));
                let within = model.iter().any(|(a, l, ..)| addr <= *a && a + l <= addr + len);
                prop_assert!(!within || spans.may_be_within(addr, len));
                prop_assert_eq!(overlapping(&spans, addr, len), expected);
            }
            for (.., span) in model {
                spans.remove(span);
            }
            prop_assert!(!spans.near(0, 1 << 40));
            prop_assert_eq!(spans.cells.get(name(12, 0)), None);
        }
    }

    #[test]
    fn what_is_no_memory_is_not_put_in() {
        let spans = Spans::new();
        assert_eq!(spans.add(0, u64::MAX, 1), 0);
        assert_eq!(spans.add(4096, 0, 1), 0);
        assert_eq!(spans.add(u64::MAX - 10, 20, 1), 0);
        assert!(!spans.near(0, u64::MAX));
    }

    #[test]
    fn the_same_memory_registered_often_is_taken_out_in_any_order() {
        let spans = Spans::new();
        let all: Vec<_> = (1..=20_000).map(|mr| spans.add(0x10_0800, 4096, mr)).collect();
        assert_eq!(overlapping(&spans, 0x10_0000, 4096).len(), 20_000);
        all.iter().for_each(|span| spans.remove(*span));
        assert!(overlapping(&spans, 0x10_0000, 4096).is_empty() && !spans.near(0x10_0000, 8192));
    }
}
