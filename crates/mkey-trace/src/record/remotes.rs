//! Keys of peers that requests named.

use super::Recorder;
use super::log::Placed;
use crate::raw::{Head, Op, Remote, Slot};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Keys, at most.
pub const MOST: usize = 1 << 16;

/// The key that a queue named last.
#[derive(Clone, Copy, Default)]
pub struct Last(Option<(u32, Option<Placed<Remote>>)>);

impl Recorder {
    /// A request names a key of a peer, and `len` bytes at `addr`. `last` is the queue's.
    #[inline]
    pub(super) fn named(
        &self,
        last: &mut Last,
        device: Slot,
        rkey: u32,
        addr: u64,
        len: u64,
        op: Op,
    ) {
        let remote = match last.0 {
            Some((key, remote)) if key == rkey => remote,
            _ => {
                let remote = self.remote(device, rkey, addr);
                last.0 = Some((rkey, remote));
                remote
            }
        };
        let Some(remote) = remote else { return };
        let counter = match op {
            Op::Write => remote.word::<{ offset_of!(Remote, writes) }>(),
            Op::Read => remote.word::<{ offset_of!(Remote, reads) }>(),
            Op::Atomic => remote.word::<{ offset_of!(Remote, atomics) }>(),
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
        let low = remote.word::<{ offset_of!(Remote, low) }>();
        if addr < low.load(Relaxed) {
            low.fetch_min(addr, Relaxed);
        }
        let (high, end) = (remote.word::<{ offset_of!(Remote, high) }>(), addr.saturating_add(len));
        if end > high.load(Relaxed) {
            high.fetch_max(end, Relaxed);
        }
    }

    #[cold]
    fn remote(&self, device: Slot, rkey: u32, addr: u64) -> Option<Placed<Remote>> {
        let key = super::key(device, rkey);
        let known = || self.log.placed(self.remotes.get(key)? as Slot);
        if let Some(remote) = known() {
            return Some(remote);
        }
        let _making = self.making_remote.lock();
        if let Some(remote) = known() {
            return Some(remote);
        }
        self.remotes.insert(key, 0).ok()?;
        let remote = self.log.write(
            Remote {
                head: Head { len: 0, kind: 0, zero: 0 },
                rkey,
                device,
                low: addr,
                high: addr,
                writes: 0,
                reads: 0,
                atomics: 0,
                rest: 0,
            },
            &[],
        )?;
        // The key is there: there is a place for it.
        let _ = self.remotes.insert(key, remote.slot.into());
        Some(remote)
    }
}
