//! What posted work uses, kept until its completion has been seen.

use crate::keep::Hold;
use crate::lease::{Lease, Step};
use crate::mw;
use crate::sync::lock;
use mkey_core::error::Result;
use mkey_core::status::WcStatus;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// One work request.
#[derive(Debug)]
pub(crate) struct Entry {
    /// What the user calls it.
    pub(crate) id: u64,
    pub(crate) holds: SmallVec<[Hold; 2]>,
    /// One of the library's own: who hears of it, instead of the user.
    pub(crate) own: Option<Owner>,
}

/// Who hears of a work request of the library's own.
#[derive(Debug)]
pub(crate) enum Owner {
    Lease(Arc<Lease>, u32, Step),
    Window(Arc<mw::Inner>),
}

/// Entries that have ended, to be let go of when no lock is held: their owners may do anything.
pub(crate) type Ended = Vec<(Entry, WcStatus)>;

/// Tells those who wait for entries that have ended, and lets go of what they kept.
pub(crate) fn tell(ended: &mut Ended) {
    for (entry, status) in ended.drain(..) {
        // Let go before: who hears that work has ended finds the memory free.
        drop(entry.holds);
        match entry.own {
            None => {}
            Some(Owner::Lease(lease, turn, step)) => lease.completed(turn, step, status),
            Some(Owner::Window(window)) => window.completed(status),
        }
    }
}

/// The work in flight of one queue, in the order of posting.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u32,
}

impl Queue {
    fn new(depth: u32) -> Self {
        Self { entries: VecDeque::with_capacity(depth as usize), first: 0 }
    }

    /// Adds an entry; its number.
    pub(crate) fn push(&mut self, entry: Entry) -> u32 {
        let number = self.first.wrapping_add(self.entries.len() as u32);
        self.entries.push_back(entry);
        number
    }

    /// Takes all of them; their numbers are not used again soon.
    fn take(&mut self) -> VecDeque<Entry> {
        self.first = self.first.wrapping_add(self.entries.len() as u32);
        let room = VecDeque::with_capacity(self.entries.capacity());
        std::mem::replace(&mut self.entries, room)
    }

    /// Takes back the `count` newest entries, which were not posted.
    pub(crate) fn unpost(&mut self, count: usize) {
        self.entries.truncate(self.entries.len().saturating_sub(count));
    }

    /// The work request `number` has ended with `status`, and those before it, that made no
    /// completion, well. Its id, or `None` if it was one of the library's own.
    pub(crate) fn end(&mut self, number: u32, status: WcStatus, ended: &mut Ended) -> Option<u64> {
        let before = number.wrapping_sub(self.first) as usize;
        if before >= self.entries.len() {
            return None;
        }
        for _ in 0..before {
            ended.extend(self.entries.pop_front().map(|entry| (entry, WcStatus::Success)));
        }
        self.first = number.wrapping_add(1);
        let entry = self.entries.pop_front()?;
        let id = entry.own.is_none().then_some(entry.id);
        ended.push((entry, status));
        id
    }
}

/// The work in flight of a queue pair.
#[derive(Debug)]
pub(crate) struct InFlight {
    send: Mutex<Queue>,
    recv: Mutex<Queue>,
}

impl InFlight {
    pub(crate) fn new(max_send_wr: u32, max_recv_wr: u32) -> Self {
        let queue = |depth| Mutex::new(Queue::new(depth));
        Self { send: queue(max_send_wr), recv: queue(max_recv_wr) }
    }

    /// Whoever posts holds it over the device's call, so that both have one order.
    pub(crate) fn send(&self) -> MutexGuard<'_, Queue> {
        lock(&self.send)
    }

    pub(crate) fn recv(&self) -> MutexGuard<'_, Queue> {
        lock(&self.recv)
    }

    /// The queue pair is gone: nothing is in flight any more, and completions of before are
    /// nobody's.
    pub(crate) fn flush(&self) {
        // It is gone already, whatever this would say.
        let _ = self.flush_after(|| Ok(()));
    }

    /// The queue pair begins anew, once `reset` has said so: what was in flight is not any more,
    /// and completions of before are nobody's. Nothing is posted meanwhile: what comes after the
    /// reset is not taken for what came before.
    ///
    /// # Errors
    /// That of `reset`; nothing has changed then.
    pub(crate) fn flush_after(&self, reset: impl FnOnce() -> Result<()>) -> Result<()> {
        let (mut send, mut recv) = (self.send(), self.recv());
        reset()?;
        let entries = send.take().into_iter().chain(recv.take());
        drop((send, recv));
        tell(&mut entries.map(|entry| (entry, WcStatus::WrFlushErr)).collect());
        Ok(())
    }
}
