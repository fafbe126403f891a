//! Those whom this process lends to, and taking back from all of them.
//!
//! Who takes back may be the thread that hears of memory that goes, while others are stopped wherever they
//! are; so it takes no lock, allocates nothing and frees nothing. Who waits for a peer's copy keeps nobody
//! else from lending to another peer or taking back: each peer is kept until nobody looks at it.

use super::Area;
use crate::link::shm::atomic::{Ordering, fence};
use crate::link::shm::is_ready;
use crate::per_process::PerProcess;
use crate::sync::lock;
use mkey_os::file_mapping::FileMapping;
use rustix::event::PollFlags;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Peers that a process lends to at once; others get no leases.
const PEERS: usize = 64;
/// Looks at a sender that is in the middle of a copy before it is left alone for [`NAP`] between looks.
const LOOKS: u32 = 256;
const NAP: Duration = Duration::from_micros(50);

/// A forked child lends nothing of what its parent lends, and must not take it back.
static LENDERS: PerProcess<Lenders> = PerProcess::new();

struct Lenders {
    slots: [Slot; PEERS],
    /// Held by who adds peers or takes them out.
    changing: Mutex<()>,
}

struct Slot {
    peer: AtomicPtr<Peer>,
    /// Who looks at it just now.
    users: AtomicU32,
}

/// A peer that this process lends to, or has lent to.
#[derive(Debug)]
pub(super) struct Peer {
    area: NonNull<Area>,
    process: Arc<OwnedFd>,
    _memory: Arc<FileMapping>,
    /// Nothing is lent to it any more: it goes once it copies no more.
    left: AtomicBool,
    /// The copy that was not waited for to the end.
    passed_over: AtomicU64,
}

// SAFETY: the area consists of atomics, and is mapped for as long as this is.
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

/// Takes back all that this process lends, without waiting for copies that have begun. Whatever has
/// ended is to be unusable for this process's own accesses before. Never blocks.
pub(crate) fn end() {
    each(|peer| peer.area().take_back());
}

/// The same, and waits for copies that have begun, however long: on return no peer writes by a lease that
/// was made before. Not to be called with a lock held.
pub(crate) fn settle() {
    end();
    each(|peer| {
        let mut looks = 0u32;
        peer.wait(|| {
            looks = looks.saturating_add(1);
            match looks < LOOKS {
                true => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
            true
        });
    });
}

/// The same, for as long as `is_left` says that there is patience left; false if a copy was not waited for
/// to the end. One that was not is not waited for another time. Allocates nothing and takes no lock.
pub(crate) fn settle_within(mut is_left: impl FnMut() -> bool) -> bool {
    end();
    let mut all = true;
    each(|peer| {
        let known = peer.passed_over.load(Ordering::Relaxed);
        if let Some(turn) = peer.wait(|| peer.copies() != Some(known) && is_left()) {
            peer.passed_over.store(turn, Ordering::Relaxed);
            all = false;
        }
    });
    all
}

fn each(mut act: impl FnMut(&Peer)) {
    // Who begins to lend puts itself there first and then looks at what may have ended.
    fence(Ordering::SeqCst);
    let Some(lenders) = LENDERS.get() else { return };
    for slot in &lenders.slots {
        if slot.peer.load(Ordering::Relaxed).is_null() {
            continue;
        }
        slot.users.fetch_add(1, Ordering::SeqCst);
        // SAFETY: null or of a box that is not freed while anybody has counted itself before it read this.
        if let Some(peer) = unsafe { slot.peer.load(Ordering::SeqCst).as_ref() } {
            act(peer);
        }
        slot.users.fetch_sub(1, Ordering::Release);
    }
}

impl Peer {
    /// # Safety
    /// The area is of the memory.
    pub(super) unsafe fn new(
        area: NonNull<Area>,
        memory: &Arc<FileMapping>,
        process: &Arc<OwnedFd>,
    ) -> Self {
        Self {
            area,
            process: process.clone(),
            _memory: memory.clone(),
            left: AtomicBool::new(false),
            // Even, as no copy is.
            passed_over: AtomicU64::new(0),
        }
    }

    fn area(&self) -> &Area {
        // SAFETY: mapped for as long as this is; atomics only.
        unsafe { self.area.as_ref() }
    }

    /// The copy that it is in the middle of.
    fn copies(&self) -> Option<u64> {
        self.area().copies()
    }

    /// Waits until a copy that has begun is done, or will never be, as long as `go_on` says so, which is
    /// asked between looks. The copy, if it was not.
    fn wait(&self, mut go_on: impl FnMut() -> bool) -> Option<u64> {
        fence(Ordering::SeqCst);
        let begun = self.copies()?;
        while self.copies() == Some(begun) && !is_ready(&self.process, PollFlags::IN) {
            if !go_on() {
                return Some(begun);
            }
        }
        None
    }
}

/// From now on leases of this peer are taken back; false if there is no place.
pub(super) fn join(peer: Peer) -> bool {
    let Some(lenders) = LENDERS.get_or_make(|| Some(Lenders::new())) else { return false };
    let _changing = lock(&lenders.changing);
    lenders.sweep();
    let is_free = |slot: &&Slot| slot.peer.load(Ordering::Relaxed).is_null();
    let Some(slot) = lenders.slots.iter().find(is_free) else { return false };
    slot.peer.store(Box::into_raw(Box::new(peer)), Ordering::SeqCst);
    true
}

/// Takes back what is lent in this area, in which nothing will be lent any more. If the peer is in the
/// middle of a copy, it is waited for by who takes back, not here.
pub(super) fn leave(area: NonNull<Area>) {
    each(|peer| {
        if peer.area == area {
            peer.area().take_back();
            peer.left.store(true, Ordering::SeqCst);
        }
    });
    if let Some(lenders) = LENDERS.get() {
        let _changing = lock(&lenders.changing);
        lenders.sweep();
    }
}

impl Lenders {
    fn new() -> Self {
        let empty = || Slot { peer: AtomicPtr::new(ptr::null_mut()), users: AtomicU32::new(0) };
        Self { slots: std::array::from_fn(|_| empty()), changing: Mutex::default() }
    }

    /// Frees those to whom nothing is lent any more and who copy no more. Called with `changing` locked.
    fn sweep(&self) {
        for slot in &self.slots {
            let place = slot.peer.load(Ordering::Acquire);
            // SAFETY: null, or of a box that only this frees.
            let Some(peer) = (unsafe { place.as_ref() }) else { continue };
            fence(Ordering::SeqCst);
            let copies = peer.copies().is_some() && !is_ready(&peer.process, PollFlags::IN);
            if copies || !peer.left.load(Ordering::Relaxed) {
                continue;
            }
            // Who misses it meanwhile misses nothing: what it had was taken back, and it copies no more.
            slot.peer.store(ptr::null_mut(), Ordering::SeqCst);
            if slot.users.load(Ordering::SeqCst) == 0 {
                // SAFETY: out of a box, and nobody has it any more.
                drop(unsafe { Box::from_raw(place) });
            } else {
                slot.peer.store(place, Ordering::SeqCst);
            }
        }
    }
}
