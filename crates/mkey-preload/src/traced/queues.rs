//! Queue pairs, shared receive queues and completion queues that are followed.

use crate::traced::contexts::{self, Opened};
use crate::traced::table::Table;
use crate::traced::{build, poll};
use mkey_sys::types::*;
use mkey_trace::raw::Slot;
use mkey_trace::record::{Queue, QueueInit, Recorder};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Queue pairs, by their contexts and numbers.
pub(super) static PAIRS: Table<Pair, 4096> = Table::new();
/// Shared receive queues, by their addresses and 0.
pub(super) static SHARED: Table<Shared, 256> = Table::new();
/// Completion queues that are extended, or that shared receive queues of XRC have, by their addresses
/// and 0.
pub(super) static COMPLETIONS: Table<Polled, 1024> = Table::new();

/// What the recorder knows a queue by; null: nothing.
#[derive(Default)]
pub(super) struct Followed(AtomicPtr<Queue>);

impl Followed {
    #[inline]
    pub(super) fn get(&self) -> Option<&'static Queue> {
        // SAFETY: null or what was put in, which lives as long as the process.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    fn set(&self, queue: Option<&'static Queue>) {
        let queue = queue.map_or(ptr::null(), ptr::from_ref);
        self.0.store(queue.cast_mut(), Ordering::Relaxed);
    }
}

/// The context of a queue, so that it need not be looked for.
#[derive(Default)]
pub(super) struct Of(AtomicPtr<Opened>);

impl Of {
    #[inline]
    pub(super) fn get(&self) -> Option<&'static Opened> {
        // SAFETY: null or what was put in, which lives as long as the process.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    fn set(&self, opened: Option<&'static Opened>) {
        let opened = opened.map_or(ptr::null(), ptr::from_ref);
        self.0.store(opened.cast_mut(), Ordering::Relaxed);
    }
}

/// A queue pair.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) opened: Of,
    queue: Followed,
    /// That of its receives, if that is not its own.
    shared: Followed,
    pub(super) device: AtomicU32,
    pub(super) object: AtomicPtr<ibv_qp>,
    /// Where its completions go.
    send_cq: AtomicPtr<ibv_cq>,
    recv_cq: AtomicPtr<ibv_cq>,
    /// Whether it is a receiving end of XRC, whose receives are posted to a queue that it does not name.
    pub(super) receives_only: AtomicBool,
    /// Whether all its work makes completions.
    pub(super) signal_all: AtomicBool,
    /// Entries of its work requests, at most.
    pub(super) most: Most,
    /// The thread that is within `ibv_bind_mw`, which some drivers post by; 0: none.
    pub(super) binding: AtomicUsize,
    pub(super) building: build::Building,
}

/// What a list of work requests can hold of what a queue takes.
#[derive(Default)]
pub(super) struct Most {
    pub(super) sends: AtomicU32,
    pub(super) recvs: AtomicU32,
    pub(super) send_entries: AtomicU32,
    pub(super) recv_entries: AtomicU32,
}

impl Pair {
    #[inline]
    pub(super) fn queue(&self) -> Option<&'static Queue> {
        self.queue.get()
    }

    /// The queue that its receives are posted to.
    #[inline]
    pub(super) fn receives(&self) -> Option<&'static Queue> {
        self.shared.get().or_else(|| self.queue.get())
    }

    /// The shared queue that its receives are taken from.
    pub(super) fn shared(&self) -> Option<&'static Queue> {
        self.shared.get()
    }

    /// Whether it is of this device.
    pub(super) fn is_of(&self, device: Slot) -> bool {
        self.device.load(Ordering::Relaxed) == device
    }

    /// Whether this is what is known of a queue pair: one may have the number of another that has ended.
    pub(super) fn is_it(&self, qp: *const ibv_qp) -> bool {
        ptr::eq(self.object.load(Ordering::Relaxed), qp)
    }

    /// Whether a completion of this queue is one of a receive; `None` if it may be either.
    pub(super) fn is_receive(&self, cq: *const ibv_cq) -> Option<bool> {
        let (send, recv) =
            (self.send_cq.load(Ordering::Relaxed), self.recv_cq.load(Ordering::Relaxed));
        (send != recv).then(|| ptr::eq(cq, recv))
    }
}

/// A shared receive queue.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) opened: Of,
    device: AtomicU32,
    queue: Followed,
    pub(super) recvs: AtomicU32,
    pub(super) entries: AtomicU32,
}

impl Shared {
    #[inline]
    pub(super) fn queue(&self) -> Option<&'static Queue> {
        self.queue.get()
    }

    pub(super) fn is_of(&self, device: Slot) -> bool {
        self.device.load(Ordering::Relaxed) == device
    }
}

/// A completion queue.
#[derive(Default)]
pub(super) struct Polled {
    device: AtomicU32,
    pub(super) object: AtomicPtr<ibv_cq_ex>,
    /// What its pointers led to.
    pub(super) kept: poll::Kept,
    /// The shared receive queue of XRC whose completions come here. If there are more, theirs are not
    /// told apart.
    shared: Followed,
}

impl Polled {
    pub(super) fn is_of(&self, device: Slot) -> bool {
        self.device.load(Ordering::Relaxed) == device
    }

    #[inline]
    pub(super) fn shared(&self) -> Option<&'static Queue> {
        self.shared.get()
    }
}

/// A queue is gone, or its device is. Of the parent's nothing is told in a forked child.
pub(super) fn end(own: bool, queue: Option<&'static Queue>) {
    if let Some((recorder, queue)) = Recorder::current().filter(|_| own).zip(queue) {
        queue.end(recorder);
    }
}

/// A queue pair is gone: its own queue, and the shared one that it took receives from.
pub(super) fn pair_ended(
    own: bool,
    (queue, shared): (Option<&'static Queue>, Option<&'static Queue>),
) {
    end(own, queue);
    if let Some(shared) = shared.filter(|_| own) {
        shared.left();
    }
}

/// A queue pair was made.
///
/// # Safety
/// It is one of libibverbs', and nobody else knows it yet.
pub(super) unsafe fn pair_made(
    recorder: &Recorder,
    device: Slot,
    qp: *mut ibv_qp,
    cap: &ibv_qp_cap,
    signal_all: bool,
) {
    // SAFETY: the caller's.
    let made = unsafe { &*qp };
    let receives_only = made.qp_type == IBV_QPT_XRC_RECV;
    let sends_only = made.qp_type == IBV_QPT_XRC_SEND;
    let shared = match made.srq.is_null() || receives_only || sends_only {
        true => None,
        false => SHARED.get(made.srq, 0).and_then(|shared| shared.value.queue()),
    };
    let own_receives = made.srq.is_null() && !receives_only && !sends_only;
    let recvs = if own_receives { cap.max_recv_wr } else { 0 };
    let sends = if receives_only { 0 } else { cap.max_send_wr };
    let queue = recorder.queue(&QueueInit {
        device,
        pd: made.pd.addr() as u64,
        object: qp.addr() as u64,
        number: made.qp_num,
        kind: made.qp_type.0,
        sends,
        recvs,
        send_entries: cap.max_send_sge,
        recv_entries: if own_receives { cap.max_recv_sge } else { 0 },
    });
    if let Some(shared) = shared {
        shared.joined();
    }
    PAIRS.insert(made.context, made.qp_num, |pair| {
        // SAFETY: the caller's.
        pair.opened.set(unsafe { contexts::of(qp) });
        pair.queue.set(queue);
        pair.shared.set(shared);
        pair.device.store(device, Ordering::Relaxed);
        pair.object.store(qp, Ordering::Relaxed);
        pair.send_cq.store(made.send_cq, Ordering::Relaxed);
        pair.recv_cq.store(made.recv_cq, Ordering::Relaxed);
        pair.receives_only.store(receives_only, Ordering::Relaxed);
        pair.signal_all.store(signal_all, Ordering::Relaxed);
        pair.most.sends.store(sends, Ordering::Relaxed);
        pair.most.recvs.store(recvs, Ordering::Relaxed);
        pair.most.send_entries.store(cap.max_send_sge, Ordering::Relaxed);
        pair.most.recv_entries.store(cap.max_recv_sge, Ordering::Relaxed);
        pair.binding.store(0, Ordering::Relaxed);
        pair.building.prepare(cap.max_send_sge);
    });
}

/// A shared receive queue was made; `cq` if it is one of XRC.
///
/// # Safety
/// As for [`pair_made`].
pub(super) unsafe fn shared_made(
    recorder: &Recorder,
    device: Slot,
    srq: *mut ibv_srq,
    attr: &ibv_srq_attr,
    cq: *mut ibv_cq,
) {
    // SAFETY: the caller's.
    let made = unsafe { &*srq };
    let queue = recorder.queue(&QueueInit {
        device,
        pd: made.pd.addr() as u64,
        object: srq.addr() as u64,
        number: 0,
        kind: 0,
        sends: 0,
        recvs: attr.max_wr,
        send_entries: 0,
        recv_entries: attr.max_sge,
    });
    SHARED.insert(srq, 0, |shared| {
        shared.device.store(device, Ordering::Relaxed);
        // SAFETY: the caller's.
        shared.opened.set(unsafe { contexts::of(srq) });
        shared.queue.set(queue);
        shared.recvs.store(attr.max_wr, Ordering::Relaxed);
        shared.entries.store(attr.max_sge, Ordering::Relaxed);
    });
    if !cq.is_null() {
        match COMPLETIONS.get(cq, 0) {
            Some(polled) => polled.value.shared.set(queue),
            None => drop(polled_made(device, cq, ptr::null_mut(), queue)),
        }
    }
}

/// A completion queue was made that is extended, or has a shared receive queue.
pub(super) fn polled_made(
    device: Slot,
    cq: *mut ibv_cq,
    extended: *mut ibv_cq_ex,
    queue: Option<&'static Queue>,
) -> &'static Polled {
    let place = COMPLETIONS.insert(cq, 0, |polled| {
        polled.device.store(device, Ordering::Relaxed);
        polled.object.store(extended, Ordering::Relaxed);
        polled.shared.set(queue);
    });
    &place.value
}
