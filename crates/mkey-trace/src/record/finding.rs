//! Mistakes in the life of memory and keys: the first of a kind at a region is written, others are counted.

use super::log::Placed;
use super::table::Table;
use super::{Recorder, lock::Spin, now, stack, thread};
use crate::raw::{Call, Finding, Head, Mr, Slot, Wrong};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Findings that are written, at most; but of each kind one. Those beyond count as the last of their kind.
const MOST: usize = 4096;

/// All findings so far.
pub struct Findings {
    /// By region and kind.
    known: Table,
    making: Spin<Made>,
}

struct Made {
    count: usize,
    /// The last of each kind.
    last: [Slot; Wrong::ALL.len()],
}

/// What was found.
#[derive(Clone, Copy)]
pub struct Found {
    pub wrong: Wrong,
    /// The region, if there is or was one.
    pub mr: Option<Placed<Mr>>,
    /// The queue with the work; 0: none.
    pub queue: Slot,
    /// The memory meant, and the key named.
    pub addr: u64,
    pub len: u64,
    pub key: u32,
    /// The call that it goes against.
    pub against: Slot,
}

impl Findings {
    /// None yet.
    pub const fn new() -> Self {
        let made = Made { count: 0, last: [0; Wrong::ALL.len()] };
        Self { known: Table::new(MOST + Wrong::ALL.len()), making: Spin::new(made) }
    }
}

impl Recorder {
    /// Notes a mistake of the calling thread's. `ask` as of [`stack::Stacks::place`].
    #[cold]
    #[inline(never)]
    pub(super) fn found(&self, found: &Found, ask: bool) {
        let mr = found.mr.map_or(0, |mr| mr.slot);
        let name = u64::from(mr) << 8 | found.wrong as u64;
        if self.count(name) {
            return;
        }
        // What is freed while the thread's stack is asked for is no concern of the program's. Where memory
        // is given back the thread is inside already.
        let _inside = thread::Inside::enter();
        let mut made = self.findings.making.lock();
        if self.count(name) {
            return;
        }
        let kind = (found.wrong as usize).wrapping_sub(Wrong::ALL[0] as usize);
        if made.count >= MOST
            && let Some(last) = made.last.get(kind)
            && let Some(last) = self.log.placed::<Finding>(*last)
        {
            last.word::<{ offset_of!(Finding, times) }>().fetch_add(1, Relaxed);
            return;
        }
        let place = self.stacks.place(&self.log, &stack::here(), ask);
        let against = self.log.placed::<Call>(found.against);
        let written = self.log.write(
            Finding {
                head: Head { len: 0, kind: 0, zero: 0 },
                at: now(),
                addr: found.addr,
                len: found.len,
                key: found.key,
                wrong: found.wrong as u16,
                zero: 0,
                mr,
                queue: found.queue,
                stack: place,
                before: against
                    .map_or(0, |call| call.half::<{ offset_of!(Call, stack) }>().load(Relaxed)),
                thread: thread::here(self).slot,
                rest: 0,
                times: 1,
                rests: [0; 7],
            },
            &[],
        );
        if let Some(written) = written {
            made.count += 1;
            if let Some(last) = made.last.get_mut(kind) {
                *last = written.slot;
            }
            // If there is no place for it each time is written by itself, as long as there is room.
            let _ = self.findings.known.insert(name, written.slot.into());
        }
    }

    /// Counts it, if it is known.
    fn count(&self, name: u64) -> bool {
        let known = self.findings.known.get(name);
        let Some(known) = known.and_then(|slot| self.log.placed::<Finding>(slot as Slot)) else {
            return false;
        };
        known.word::<{ offset_of!(Finding, times) }>().fetch_add(1, Relaxed);
        true
    }
}
