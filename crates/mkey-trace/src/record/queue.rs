//! The queues whose work is followed.

use super::count::{self, By};
use super::finding::Found;
use super::lock::Spin;
use super::log::Placed;
use super::ring::{self, FIRST, Place, Ring, SIZES};
use super::thread::{self, bump};
use super::{Entry, QueueInit, Recorder, Work, key, memory, now};
use crate::raw::{self, Device, Failure, Head, Header, Mr, Op, Slot, Use, Wrong};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

/// Statuses of completions that are told apart; those beyond count as the last.
const STATUSES: usize = 32;

/// Looking through what is in flight, when memory is given back, may take one part in so many of the time of
/// the process; and so much more, ns.
const SHARE: u64 = 100;
const FREE: u64 = 10_000_000;

/// A queue whose work is followed. Never freed; used again for others.
pub struct Queue {
    /// The recorder, by its address, that it is of.
    owner: usize,
    /// It is a queue now, not one to be used again.
    live: AtomicBool,
    send: Spin<Side>,
    recv: Spin<Side>,
    /// Queue pairs whose receives are taken from it, if it is shared.
    pairs: AtomicU32,
    /// The first failure of each status.
    failures: [AtomicU32; STATUSES],
    /// The queue made before.
    next: Option<&'static Self>,
    /// Of those that have ended and have rings of these sizes: the one that ended before.
    spare: AtomicPtr<Self>,
}

/// Work to send, or receives.
struct Side {
    ring: Ring,
    record: Placed<raw::Queue>,
    device: Slot,
    /// Receives of many queue pairs, which complete in any order.
    shared: bool,
    /// Of a device of ours, all of whose completions are polled where they are seen.
    ours: bool,
}

/// All queues, ended ones too.
pub(super) struct Queues {
    last: AtomicPtr<Queue>,
    spares: Spin<Spares>,
}

/// Queues that have ended, the last one first, by the sizes of their two rings.
struct Spares([[*mut Queue; SIZES]; SIZES]);

// SAFETY: the pointers are null or to queues that are kept for ever, which any thread may use.
unsafe impl Send for Spares {}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("live", &self.live).finish_non_exhaustive()
    }
}

impl Queues {
    pub(super) const fn new() -> Self {
        Self { last: AtomicPtr::new(null_mut()), spares: Spin::new(Spares::new()) }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static Queue> {
        // SAFETY: it is null or a queue that was kept for ever.
        let mut next: Option<&'static Queue> = unsafe { self.last.load(Acquire).as_ref() };
        std::iter::from_fn(move || {
            let queue = next?;
            next = queue.next;
            Some(queue)
        })
    }

    fn make(&self, recorder: &Recorder, init: &QueueInit) -> Option<&'static Queue> {
        let record = recorder.log.write(record(init), &[])?;
        let shared = init.number == 0 && init.kind == 0;
        let device = recorder.log.placed::<Device>(init.device);
        let ours = device
            .is_some_and(|device| device.half::<{ offset_of!(Device, soft) }>().load(Relaxed) != 0);
        let sends = ring::size(init.sends, init.send_entries);
        let recvs = ring::size(init.recvs, init.recv_entries);
        let mut spares = self.spares.lock();
        if let Some(queue) = spares.take(sends, recvs) {
            for (side, recv) in [(&queue.send, false), (&queue.recv, true)] {
                let mut side = side.lock();
                side.ring.renew(By::side(record.slot, recv));
                (side.record, side.device) = (record, init.device);
                (side.shared, side.ours) = (shared, ours);
            }
            queue.pairs.store(0, Relaxed);
            queue.failures.iter().for_each(|failure| failure.store(0, Relaxed));
            queue.live.store(true, Release);
            return Some(queue);
        }
        let side = |requests, entries, recv| {
            let ring = Ring::new(requests, entries, By::side(record.slot, recv))?;
            Some(Spin::new(Side { ring, record, device: init.device, shared, ours }))
        };
        let queue: &'static Queue = memory::keep(Queue {
            owner: std::ptr::from_ref(recorder) as usize,
            live: AtomicBool::new(true),
            send: side(init.sends, init.send_entries, false)?,
            recv: side(init.recvs, init.recv_entries, true)?,
            pairs: AtomicU32::new(0),
            failures: [const { AtomicU32::new(0) }; STATUSES],
            next: self.all().next(),
            spare: AtomicPtr::new(null_mut()),
        })?;
        self.last.store(std::ptr::from_ref(queue).cast_mut(), Release);
        Some(queue)
    }
}

impl Spares {
    const fn new() -> Self {
        Self([[null_mut(); SIZES]; SIZES])
    }

    /// One with rings of these sizes, or of up to four times as many places.
    fn take(&mut self, sends: usize, recvs: usize) -> Option<&'static Queue> {
        let near = |size: usize| if size == 0 { 0..1 } else { size..SIZES.min(size + 3) };
        for sends in self.0.get_mut(near(sends))? {
            for first in sends.get_mut(near(recvs))? {
                // SAFETY: null or a queue that is kept for ever.
                if let Some(queue) = unsafe { first.as_ref::<'static>() } {
                    *first = queue.spare.load(Relaxed);
                    return Some(queue);
                }
            }
        }
        None
    }

    /// It has ended.
    fn put(&mut self, queue: &'static Queue) {
        let (sends, recvs) = (queue.send.lock().ring.size(), queue.recv.lock().ring.size());
        if let Some(first) = self.0.get_mut(sends).and_then(|sends| sends.get_mut(recvs)) {
            queue.spare.store(*first, Relaxed);
            *first = std::ptr::from_ref(queue).cast_mut();
        }
    }
}

impl Recorder {
    /// A queue from now on. `None`: there is no room or no memory for it.
    pub fn queue(&self, init: &QueueInit) -> Option<&'static Queue> {
        self.queues.make(self, init)
    }

    /// As [`Recorder::in_flight`], as long as that takes no more than its share of time.
    pub(super) fn in_flight_within(&self, mr: Slot, start: u64, end: u64) -> Option<Slot> {
        let began = self.log.header().word::<{ offset_of!(Header, began) }>().load(Relaxed);
        let begin = now();
        if self.searched.load(Relaxed) > FREE + begin.saturating_sub(began) / SHARE {
            return None;
        }
        let found = self.in_flight(mr, start, end);
        self.searched.fetch_add(now().saturating_sub(begin), Relaxed);
        found
    }

    /// Which queue has work in flight that names memory of a region between two addresses of the process.
    /// Passed over are queues that stay locked (by this very thread, interrupted), those of which no
    /// completion was ever seen unless the device is one of ours (they may be polled where nobody sees it),
    /// and shared ones without a queue pair (nothing takes their receives; those of XRC are among them).
    pub(super) fn in_flight(&self, mr: Slot, start: u64, end: u64) -> Option<Slot> {
        self.queues.all().filter(|queue| queue.live.load(Relaxed)).find_map(|queue| {
            [(&queue.send, false), (&queue.recv, true)].into_iter().find_map(|(side, recv)| {
                let side = side.try_lock()?;
                if !side.ours && side.completed(recv).load(Relaxed) == 0
                    || side.shared && queue.pairs.load(Relaxed) == 0
                {
                    return None;
                }
                let names = |place: &Place| {
                    place.mr == mr
                        && place.addr < end
                        && start < place.addr.saturating_add(place.len.into())
                };
                side.ring.in_flight().any(names).then_some(side.record.slot)
            })
        })
    }
}

impl Queue {
    /// Work is about to be posted: it is noted before the device may complete it. Of a bind only the
    /// operation counts: [`Recorder::bound`] counts what it names.
    #[inline]
    pub fn post(&self, recorder: &Recorder, work: &Work<'_>) {
        if !self.is_of(recorder) {
            return;
        }
        let thread = thread::here(recorder);
        bump(thread::posts(thread), 1);
        let recv = work.op == Op::Recv;
        let mut side = self.side(recv).lock();
        let side = &mut *side;
        ring::posted(side.posted(), work.op, 1);
        if work.inlined {
            bump(side.record.word::<{ offset_of!(raw::Queue, inlined) }>(), 1);
        }
        if work.invalidates {
            bump(side.record.word::<{ offset_of!(raw::Queue, invalidations) }>(), 1);
        }
        let flags = ring::flags(work.op, work.signaled || recv);
        let inlined = if work.inlined { ring::INLINED } else { 0 };
        let invalidates = if work.invalidates { ring::INVALIDATES } else { 0 };
        let mut place = Place {
            id: work.id,
            addr: 0,
            len: 0,
            mr: 0,
            thread: thread.slot,
            flags: flags | FIRST | inlined | invalidates,
        };
        let mut bytes = 0;
        let named = !work.inlined && work.op != Op::Bind;
        for entry in work.entries {
            bytes += u64::from(entry.len);
            if named && entry.len != 0 {
                side.entry(recorder, work.op, entry, &mut place);
                place.flags = flags;
            }
        }
        if place.flags & FIRST != 0 && !side.ring.push(recorder, place) {
            side.lost();
        }
        if let Some((rkey, addr)) = work.remote {
            let by = side.ring.by;
            let (name, end) = (key(side.device, rkey), addr.saturating_add(bytes));
            recorder.named(&mut side.ring.last, by, name, addr..end, work.op);
        }
    }

    /// The last `count` of what this thread has just noted were not taken by the device. `recv`: of the
    /// receive queue.
    pub fn not_posted(&self, recorder: &Recorder, count: u32, recv: bool) {
        if !self.is_of(recorder) {
            return;
        }
        let thread = thread::here(recorder);
        let mut side = self.side(recv).lock();
        let (counters, by, record) = (side.posted(), side.ring.by, side.record);
        // What is followed no more is not told by its operation, nor is the peer's key that a request named.
        let mut taken = if side.ring.lost { u64::from(count) } else { 0 };
        side.ring.take_back(recorder, thread.slot, count, |place| {
            if let Some((mr, used)) = recorder.log.placed::<Mr>(place.mr).zip(used_by(place.flags))
            {
                // Neither named nor, as it is about to be counted, done.
                count::used(mr, by, used, 1_u64.wrapping_neg());
                count::done(mr, by, 1_u64.wrapping_neg());
            }
            if place.flags & FIRST != 0 {
                taken += 1;
                if let Some(counter) = counters.get(ring::op(place.flags) as usize) {
                    bump(counter, 1_u64.wrapping_neg());
                }
                if place.flags & ring::INLINED != 0 {
                    let inlined = record.word::<{ offset_of!(raw::Queue, inlined) }>();
                    bump(inlined, 1_u64.wrapping_neg());
                }
                if place.flags & ring::INVALIDATES != 0 {
                    let counter = record.word::<{ offset_of!(raw::Queue, invalidations) }>();
                    bump(counter, 1_u64.wrapping_neg());
                }
            }
        });
        bump(thread::posts(thread), taken.wrapping_neg());
    }

    /// A completion: of work with this number and all unsignaled work before it. `recv`: it is one of
    /// a receive. Status as in `enum ibv_wc_status`.
    #[inline]
    pub fn completed(&self, recorder: &Recorder, id: u64, recv: bool, status: u32, vendor: u32) {
        if !self.is_of(recorder) {
            return;
        }
        let mut side = self.side(recv).lock();
        bump(side.completed(recv), 1);
        if status == 0 {
            side.ring.succeeds();
        } else if !recv && !side.shared && side.ring.fails_ambiguously(id) {
            // What is still in flight can not be known.
            side.ring.give_up(recorder);
        }
        let op = if side.ring.lost {
            None
        } else if side.shared {
            side.ring.complete_one(recorder, id)
        } else {
            side.ring.complete(recorder, id, recv || status != 0)
        };
        if side.ring.lost {
            side.lost();
        }
        if status != 0 {
            self.failed(recorder, &side, status, vendor, op);
        }
    }

    /// How many in flight come before the oldest that has this number, of the receive queue or of the
    /// send queue. `None`: there is none. A completion in error does not say which of them it is of.
    #[cold]
    pub fn awaits(&self, id: u64, recv: bool) -> Option<usize> {
        let side = self.side(recv).lock();
        side.ring
            .in_flight()
            .filter(|place| place.flags & FIRST != 0)
            .position(|place| place.id == id)
    }

    /// A queue pair takes its receives from this one, which is shared.
    pub fn joined(&self) {
        self.pairs.fetch_add(1, Relaxed);
    }

    /// It does no more.
    pub fn left(&self) {
        // One that is used again has none of its own yet.
        let _ = self.pairs.fetch_update(Relaxed, Relaxed, |pairs| pairs.checked_sub(1));
    }

    /// The queue was reset, or is destroyed: nothing is in flight any more.
    pub fn reset(&self, recorder: &Recorder) {
        if self.is_of(recorder) {
            self.send.lock().ring.clear(recorder);
            self.recv.lock().ring.clear(recorder);
        }
    }

    /// It was destroyed.
    pub fn end(&'static self, recorder: &Recorder) {
        if self.is_of(recorder) && self.live.load(Relaxed) {
            self.reset(recorder);
            let mut spares = recorder.queues.spares.lock();
            if self.live.swap(false, Release) {
                spares.put(self);
            }
        }
    }

    /// Its record.
    pub(super) fn record(&self) -> Placed<raw::Queue> {
        self.send.lock().record
    }

    /// A forked child has a recorder of its own, which knows nothing of its parent's queues.
    #[inline]
    fn is_of(&self, recorder: &Recorder) -> bool {
        self.owner == std::ptr::from_ref(recorder) as usize
    }

    #[inline]
    fn side(&self, recv: bool) -> &Spin<Side> {
        if recv { &self.recv } else { &self.send }
    }

    #[cold]
    fn failed(&self, recorder: &Recorder, side: &Side, status: u32, vendor: u32, op: Option<u32>) {
        side.record.word::<{ offset_of!(raw::Queue, failed) }>().fetch_add(1, Relaxed);
        let Some(first) = self.failures.get((status as usize).min(STATUSES - 1)) else { return };
        if let Some(known) = recorder.log.placed::<Failure>(first.load(Acquire)) {
            known.word::<{ offset_of!(Failure, times) }>().fetch_add(1, Relaxed);
            return;
        }
        let written = recorder.log.write(
            Failure {
                head: Head { len: 0, kind: 0, zero: 0 },
                at: now(),
                status,
                vendor,
                queue: side.record.slot,
                op: op.unwrap_or(u32::MAX),
                times: 1,
                rest: [0; 3],
            },
            &[],
        );
        first.store(written.map_or(0, |failure| failure.slot), Release);
    }
}

impl Side {
    #[inline]
    fn posted(&self) -> &'static [AtomicU64; 8] {
        self.record.words::<{ offset_of!(raw::Queue, posted) }, 8>()
    }

    /// Completions of this side. Each side counts under its own lock.
    #[inline]
    fn completed(&self, recv: bool) -> &'static AtomicU64 {
        if recv {
            self.record.word::<{ offset_of!(raw::Queue, received) }>()
        } else {
            self.record.word::<{ offset_of!(raw::Queue, completed) }>()
        }
    }

    /// An entry of a work request that is being posted; `place` has what its place has besides.
    #[inline]
    fn entry(&mut self, recorder: &Recorder, op: Op, entry: &Entry, place: &mut Place) {
        let name = key(self.device, entry.lkey);
        place.len = entry.len;
        let Some(mr) = recorder.regions.find(&recorder.log, name) else {
            self.no_region(recorder, entry, name);
            (place.addr, place.mr) = (entry.addr, 0);
            self.push(recorder, place, None);
            return;
        };
        let Some(used) = used(op) else { return };
        count::used(mr, self.ring.by, used, 1);
        // What a region's memory is called by work begins at its I/O virtual address.
        let from = entry.addr.wrapping_sub(mr.word::<{ offset_of!(Mr, iova) }>().load(Relaxed));
        let len = mr.word::<{ offset_of!(Mr, len) }>().load(Relaxed);
        place.addr = mr.word::<{ offset_of!(Mr, addr) }>().load(Relaxed).wrapping_add(from);
        place.mr = mr.slot;
        place.flags &= !ring::BEGINS;
        if from > len || u64::from(entry.len) > len - from {
            self.outside(recorder, mr, entry, place);
        } else if op == Op::Recv && recorder.regions.is_memory(mr) {
            let (twice, flag) = ring::begins(&recorder.received, place.addr);
            place.flags |= flag;
            if twice {
                self.twice(recorder, mr, entry, place);
            }
        }
        self.push(recorder, place, Some(mr));
    }

    #[inline]
    fn push(&mut self, recorder: &Recorder, place: &Place, mr: Option<Placed<Mr>>) {
        if !self.ring.push(recorder, *place) {
            self.unfollowed(recorder, place, mr);
        }
    }

    /// What is not followed is not taken to be in flight.
    #[cold]
    fn unfollowed(&self, recorder: &Recorder, place: &Place, mr: Option<Placed<Mr>>) {
        if let Some(mr) = mr {
            count::done(mr, self.ring.by, 1);
        }
        if place.flags & ring::BEGINS != 0 {
            recorder.received.forget(place.addr);
        }
        self.lost();
    }

    #[cold]
    fn lost(&self) {
        self.record.half::<{ offset_of!(raw::Queue, lost) }>().store(1, Relaxed);
    }

    #[cold]
    fn no_region(&self, recorder: &Recorder, entry: &Entry, name: u64) {
        let Some(mr) = recorder.regions.find_ended(&recorder.log, name) else { return };
        let found = Found {
            wrong: Wrong::KeyAfterDereg,
            mr: Some(mr),
            queue: self.record.slot,
            addr: entry.addr,
            len: entry.len.into(),
            key: entry.lkey,
            against: mr.half::<{ offset_of!(Mr, dereg) }>().load(Relaxed),
        };
        recorder.found(&found, true);
    }

    #[cold]
    fn outside(&self, recorder: &Recorder, mr: Placed<Mr>, entry: &Entry, place: &Place) {
        if recorder.regions.is_null(mr) {
            return;
        }
        mr.word::<{ offset_of!(Mr, outside) }>().fetch_add(1, Relaxed);
        self.against_registration(recorder, Wrong::Outside, mr, entry, place.addr);
    }

    #[cold]
    fn twice(&self, recorder: &Recorder, mr: Placed<Mr>, entry: &Entry, place: &Place) {
        self.against_registration(recorder, Wrong::ReceivedTwice, mr, entry, place.addr);
    }

    fn against_registration(
        &self,
        recorder: &Recorder,
        wrong: Wrong,
        mr: Placed<Mr>,
        entry: &Entry,
        addr: u64,
    ) {
        let found = Found {
            wrong,
            mr: Some(mr),
            queue: self.record.slot,
            addr,
            len: entry.len.into(),
            key: entry.lkey,
            against: mr.half::<{ offset_of!(Mr, reg) }>().load(Relaxed),
        };
        recorder.found(&found, true);
    }
}

/// What an operation does with the memory that it names.
#[inline]
fn used(op: Op) -> Option<Use> {
    match op {
        Op::Send => Some(Use::Send),
        Op::Write => Some(Use::Write),
        Op::Read | Op::Atomic => Some(Use::Read),
        Op::Recv => Some(Use::Recv),
        Op::Bind | Op::LocalInv | Op::Other => None,
    }
}

/// The same, of an operation's number in the flags of a place.
fn used_by(flags: u32) -> Option<Use> {
    let ops = [Op::Send, Op::Write, Op::Read, Op::Atomic, Op::Recv];
    ops.into_iter().find(|op| *op as u32 == ring::op(flags)).and_then(used)
}

fn record(init: &QueueInit) -> raw::Queue {
    raw::Queue {
        head: Head { len: 0, kind: 0, zero: 0 },
        object: init.object,
        number: init.number,
        kind: init.kind,
        device: init.device,
        lost: 0,
        posted: [0; 8],
        inlined: 0,
        invalidations: 0,
        completed: 0,
        failed: 0,
        pd: init.pd,
        received: 0,
        rest: [0; 6],
    }
}
