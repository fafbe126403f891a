//! The objects of a device. Each holds what it stands on, so that this is not freed before it.

use crate::fast_mr::{Mkey, Umr};
use crate::live::Live;
use crate::table::Table;
use mkey_core::device::MwKind;
use mkey_core::error::Object;
use mkey_core::key::Lkey;
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Rights;
use mkey_sys::types::*;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) handle: u64,
    pub(crate) live: Live<ibv_pd>,
}

/// What a memory region is to libibverbs.
#[derive(Debug)]
pub(crate) enum Memory {
    /// `ibv_reg_mr` and its like.
    Region(NonNull<ibv_mr>),
    /// Written by work requests.
    Fast(Mkey),
}

/// A memory region. It is taken out of its table before it is deregistered.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) memory: Memory,
    pub(crate) pd: Arc<Pd>,
    pub(crate) lkey: u32,
    pub(crate) rights: Rights,
}

// SAFETY: libibverbs' objects may be used by any thread; it is destroyed by whoever took it out.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

/// A memory window. It is taken out of its table before it is freed; its key is written with the
/// table locked.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) window: NonNull<ibv_mw>,
    pub(crate) kind: MwKind,
    pub(crate) pd: Arc<Pd>,
    /// The region that a bind named last.
    pub(crate) region: Option<Lkey>,
}

// SAFETY: as for memory regions.
unsafe impl Send for Mw {}
// SAFETY: as above.
unsafe impl Sync for Mw {}

/// An address handle. It is used and destroyed with its table locked.
#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) address: NonNull<ibv_ah>,
    pub(crate) pd: Arc<Pd>,
}

// SAFETY: as for memory regions.
unsafe impl Send for Ah {}
// SAFETY: as above.
unsafe impl Sync for Ah {}

/// A completion channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) live: Live<ibv_comp_channel>,
    /// Readable when those who wait are to look again: the channel goes away.
    pub(crate) wake: OwnedFd,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) handle: u64,
    pub(crate) live: Live<ibv_cq>,
    pub(crate) depth: u32,
    /// The device said that completions were lost.
    pub(crate) overrun: AtomicBool,
    pub(crate) channel: Option<Arc<Channel>>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) handle: u64,
    pub(crate) live: Live<ibv_srq>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
}

/// A queue pair. Posting uses it alone, so that one post is one critical section.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) handle: u64,
    pub(crate) live: Live<ibv_qp>,
    pub(crate) num: u32,
    pub(crate) kind: QpKind,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) umr: Option<Umr>,
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
}

/// Objects of one kind, which work requests name by a key.
#[derive(Debug)]
pub(crate) struct Keyed<T> {
    pub(crate) table: Table<T>,
    /// Handles by what of a key does not change.
    pub(crate) handles: Table<u64>,
}

impl<T> Keyed<T> {
    fn new(object: Object) -> Self {
        Self { table: Table::new(object), handles: Table::new(object) }
    }

    /// Keeps an object that is found by `key`, too.
    pub(crate) fn put(&self, handle: u64, key: u64, object: T) {
        self.handles.put(key, handle);
        self.table.put(handle, object);
    }

    /// The object that `key` finds.
    pub(crate) fn find<'a>(&self, objects: &'a HashMap<u64, T>, key: u64) -> Option<&'a T> {
        objects.get(self.handles.read().get(&key)?)
    }

    /// Forgets what a key names, if it is this object.
    pub(crate) fn forget(&self, handle: u64, key: u64) {
        let mut handles = self.handles.write();
        if handles.get(&key) == Some(&handle) {
            handles.remove(&key);
        }
    }
}

/// All objects of a device.
///
/// Who locks more than one table does so in this order: channels before completion queues; address
/// handles, windows, regions. Of what lives behind a [`Live`] the object comes before the tables.
/// `Keyed::handles` comes after all and is let go of at once.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) pds: Table<Arc<Pd>>,
    /// By lkey.
    pub(crate) mrs: Keyed<Mr>,
    /// By the index of their key.
    pub(crate) mws: Keyed<Mw>,
    pub(crate) ahs: Table<Ah>,
    pub(crate) channels: Table<Arc<Channel>>,
    pub(crate) cqs: Table<Arc<Cq>>,
    pub(crate) srqs: Table<Arc<Srq>>,
    pub(crate) qps: Table<Arc<Qp>>,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            pds: Table::new(Object::Pd),
            mrs: Keyed::new(Object::Mr),
            mws: Keyed::new(Object::Mw),
            ahs: Table::new(Object::Ah),
            channels: Table::new(Object::CompChannel),
            cqs: Table::new(Object::Cq),
            srqs: Table::new(Object::Srq),
            qps: Table::new(Object::Qp),
        }
    }
}

impl Objects {
    /// What belongs to a protection domain, in words; empty if nothing does.
    pub(crate) fn members(&self, pd: &Arc<Pd>) -> String {
        let of = |member: &Arc<Pd>| Arc::ptr_eq(member, pd);
        let counts = [
            ("memory regions", count(&self.mrs.table, |mr| of(&mr.pd))),
            ("memory windows", count(&self.mws.table, |mw| of(&mw.pd))),
            ("queue pairs", count(&self.qps, |qp| of(&qp.pd))),
            ("shared receive queues", count(&self.srqs, |srq| of(&srq.pd))),
            ("address handles", count(&self.ahs, |ah| of(&ah.pd))),
        ];
        let some = counts.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(what, count)| format!("{what}: {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// A handle as libibverbs keeps it for us.
pub(crate) fn context_of(handle: u64) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(handle as usize)
}

/// How many of a table are so. The table is let go of before the next is looked at.
fn count<T>(table: &Table<T>, is: impl Fn(&T) -> bool) -> usize {
    table.read().values().filter(|object| is(object)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::sleeps;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn counting_members_holds_no_table_while_it_waits_for_another() {
        let objects = Objects::default();
        let mut window = 0u8;
        let live = Live::new(NonNull::from(&mut window).cast());
        let pd = Arc::new(Pd { handle: 1, live });
        let (say, said) = mpsc::channel();
        std::thread::scope(|scope| {
            // As a post that binds has them locked: windows, then regions.
            let windows = objects.mws.table.write();
            scope.spawn(|| {
                // SAFETY: takes nothing.
                say.send(unsafe { libc::gettid() }).unwrap();
                objects.members(&pd)
            });
            let thread = said.recv().unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            while !sleeps(thread) || objects.mrs.table.try_write().is_none() {
                // Not with the lock held: the other thread is waited for.
                if Instant::now() > end {
                    drop(windows);
                    panic!("it keeps the regions while it waits for the windows");
                }
                std::thread::yield_now();
            }
        });
    }
}
