//! What the lock of a pool guards.

use super::arena::{Arena, Slab};
use super::local::Own;
use super::magazine::Class;
use super::options::Limits;
use super::queue::Queue;
use super::record::Idle;
use super::shared::Shared;
use std::sync::Arc;

/// See the module.
pub(super) struct State {
    pub(super) arena: Arena,
    pub(super) queue: Queue,
    /// The magazines of all threads.
    pub(super) own: Vec<Arc<Own>>,
    /// All records, and those of no block.
    pub(super) records: Vec<Idle>,
    pub(super) spare: Vec<Idle>,
    /// Blocks handed out or resting.
    pub(super) out: usize,
    pub(super) out_granules: u64,
    pub(super) high_granules: u64,
    /// Allocations past the magazines, and those from magazines of threads that have ended.
    pub(super) slow: u64,
    pub(super) fast: u64,
    pub(super) grows: u64,
    pub(super) shrinks: u64,
    pub(super) closed: bool,
    /// This very object, from the end of the pool until the last block is back.
    pub(super) last: Option<Arc<Shared>>,
}

impl State {
    pub(super) fn new(shift: u32) -> Self {
        Self {
            arena: Arena::new(shift),
            queue: Queue::default(),
            own: Vec::new(),
            records: Vec::new(),
            spare: Vec::new(),
            out: 0,
            out_granules: 0,
            high_granules: 0,
            slow: 0,
            fast: 0,
            grows: 0,
            shrinks: 0,
            closed: false,
            last: None,
        }
    }

    /// Whether its slab is empty now.
    pub(super) fn put_back(&mut self, idle: Idle) -> bool {
        let piece = idle.piece();
        self.out -= 1;
        self.out_granules -= u64::from(piece.granules);
        self.spare.push(idle);
        self.arena.give(&piece)
    }

    /// Moves what rests in these magazines back, whose owner is out or is the caller. Whether a
    /// slab fell empty.
    pub(super) fn empty(&mut self, own: &Own) -> bool {
        let mut emptied = false;
        for class in Class::all() {
            while let Some(pointer) = own.take_locked(class) {
                // SAFETY: it was put there by `Idle::pointer`, and is out of there now.
                emptied |= self.put_back(unsafe { Idle::from_pointer(pointer) });
            }
        }
        emptied
    }

    /// Takes out empty slabs above the floor but `keep`; all of a pool that has gone.
    pub(super) fn shrink(&mut self, limits: &Limits, keep: usize, dropped: &mut Vec<Slab>) {
        let (floor, keep) = if self.closed { (0, 0) } else { (limits.floor, keep) };
        while let Some(slab) = self.arena.remove_empty(floor, keep) {
            dropped.push(slab);
            self.shrinks += u64::from(!self.closed);
        }
    }
}
