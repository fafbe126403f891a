//! Keys of peers that requests named.

use super::Recorder;
use super::count::{self, By};
use super::log::Placed;
use crate::raw::{Head, Op, Remote, Slot};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Keys, at most.
pub const MOST: usize = 1 << 16;

/// The key that a queue named last.
#[derive(Clone, Copy, Default)]
pub struct Last(Option<(u64, Option<Placed<Remote>>)>);

impl Recorder {
    /// A request names a key of a peer (by the [`key`](super::key) of it and the device) and memory there.
    /// `last` is the queue's.
    #[inline]
    pub(super) fn named(&self, last: &mut Last, by: By, name: u64, range: Range<u64>, op: Op) {
        let remote = match last.0 {
            Some((known, remote)) if known == name => remote,
            _ => {
                let remote = self.remote(name, range.start);
                last.0 = Some((name, remote));
                remote
            }
        };
        let Some(remote) = remote else { return };
        if !matches!(op, Op::Write | Op::Read | Op::Atomic) {
            return;
        }
        count::named(remote, by, op);
        let low = remote.word::<{ offset_of!(Remote, low) }>();
        if range.start < low.load(Relaxed) {
            low.fetch_min(range.start, Relaxed);
        }
        let high = remote.word::<{ offset_of!(Remote, high) }>();
        if range.end > high.load(Relaxed) {
            high.fetch_max(range.end, Relaxed);
        }
    }

    #[cold]
    fn remote(&self, name: u64, addr: u64) -> Option<Placed<Remote>> {
        let known = || self.log.placed(self.remotes.get(name)? as Slot);
        if let Some(remote) = known() {
            return Some(remote);
        }
        let _making = self.making_remote.lock();
        if let Some(remote) = known() {
            return Some(remote);
        }
        self.remotes.insert(name, 0).ok()?;
        let remote = self.log.write(
            Remote {
                head: Head { len: 0, kind: 0, zero: 0 },
                rkey: name as u32,
                device: (name >> 32) as Slot,
                low: addr,
                high: addr,
                writes: 0,
                reads: 0,
                atomics: 0,
                owner: 0,
                own_writes: 0,
                own_reads: 0,
                own_atomics: 0,
                rest: [0; 5],
            },
            &[],
        )?;
        // The key is there: there is a place for it.
        let _ = self.remotes.insert(name, remote.slot.into());
        Some(remote)
    }
}
