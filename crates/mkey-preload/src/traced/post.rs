//! Work requests as lists: noted before the device may complete them, and what it did not take told of
//! afterwards.

use crate::boundary::plain;
use crate::traced::contexts;
use crate::traced::queues::{PAIRS, Pair, SHARED};
use crate::traced::table::Place;
use mkey_sys::types::*;
use mkey_trace::raw::{Op, Slot};
use mkey_trace::record::{Entries, Entry, Queue, Recorder, Work};
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;
use std::slice;
use std::sync::atomic::Ordering;

// A list of C's entries is read as one of the recorder's.
const _: () = assert!(
    size_of::<Entry>() == size_of::<ibv_sge>()
        && align_of::<Entry>() == align_of::<ibv_sge>()
        && offset_of!(Entry, addr) == offset_of!(ibv_sge, addr)
        && offset_of!(Entry, len) == offset_of!(ibv_sge, length)
        && offset_of!(Entry, lkey) == offset_of!(ibv_sge, lkey)
);

/// What an operation is answered with whose context is not known: one that another thread closes.
pub(super) const CLOSED: c_int = libc::EINVAL;

/// Work requests of a list that are looked at, of a queue that takes `depth`: it does not take more of
/// them than that, and a list may have no end.
fn bound(depth: u32) -> u32 {
    depth.saturating_mul(2).max(64)
}

/// The entries of a work request, none where it has more than the queue takes: it is not taken then.
///
/// # Safety
/// `list` has `count` entries if that is from 1 to `most`, unchanged while the answer is used.
unsafe fn entries<'a>(list: *const ibv_sge, count: c_int, most: u32) -> Entries<'a> {
    match u32::try_from(count) {
        Ok(count @ 1..) if count <= most && !list.is_null() => {
            // SAFETY: the caller's; the layouts are the same, as asserted above.
            unsafe { slice::from_raw_parts(list.cast(), count as usize) }
        }
        _ => &[],
    }
}

/// A list that was noted.
struct Noted {
    recorder: &'static Recorder,
    queue: &'static Queue,
    device: Slot,
    count: u32,
    /// Whether it goes on beyond what was looked at.
    cut: bool,
    /// Whether any of it changes keys.
    keys: bool,
}

/// What has a next one.
trait Listed: Sized {
    fn next(&self) -> *mut Self;
}

impl Listed for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

impl Listed for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// Calls the operation, and tells of what it did not take; how many of the list it took.
///
/// # Safety
/// `wr` is a list as the verbs have it, of which `noted` was noted; `bad` is null or may be written.
unsafe fn call<T: Listed>(
    noted: &Noted,
    recv: bool,
    wr: *mut T,
    bad: *mut *mut T,
    original: impl FnOnce(*mut *mut T) -> c_int,
) -> (c_int, u32) {
    let mut own = ptr::null_mut();
    let bad = if bad.is_null() { &raw mut own } else { bad };
    let result = original(bad);
    if result == 0 {
        return (0, noted.count);
    }
    // SAFETY: the caller's: written to by the operation, as it failed; the list is there still.
    let taken = unsafe { steps(wr, *bad, noted) };
    if taken < noted.count {
        noted.queue.not_posted(noted.recorder, noted.count - taken, recv);
    }
    (result, taken)
}

/// How many of a list come before `bad`.
///
/// # Safety
/// As for [`call`].
unsafe fn steps<T: Listed>(mut wr: *mut T, bad: *mut T, noted: &Noted) -> u32 {
    for step in 0..noted.count {
        if wr == bad {
            return step;
        }
        // SAFETY: an element of the list, which has at least so many.
        wr = unsafe { (*wr).next() };
    }
    // Beyond what was noted; or none of the list, and then nothing is in flight for sure.
    if noted.cut { noted.count } else { 0 }
}

/// `ibv_post_send`.
pub(super) unsafe extern "C" fn send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the operation of a queue pair is called with one.
    let place = unsafe { PAIRS.get((*qp).context, (*qp).qp_num) };
    let opened = match place {
        Some(place) => place.value.opened.get(),
        // SAFETY: as above.
        None => unsafe { contexts::of(qp) },
    };
    let Some(original) = opened.and_then(|opened| opened.ops().post_send) else { return CLOSED };
    // SAFETY: as above, and with a list as the verbs have it.
    let Some(noted) = plain(None, || unsafe { note_sends(place?, wr) }) else {
        // SAFETY: the caller's.
        return unsafe { original(qp, wr, bad) };
    };
    // SAFETY: as above; `call` goes on with the same list.
    unsafe {
        let (result, taken) = call(&noted, false, wr, bad, |bad| original(qp, wr, bad));
        if noted.keys {
            plain((), || note_keys(&noted, wr, taken));
        }
        result
    }
}

/// # Safety
/// `wr` is a list as the verbs have it.
unsafe fn note_sends(place: &Place<Pair>, mut wr: *mut ibv_send_wr) -> Option<Noted> {
    let recorder = Recorder::current()?;
    let pair = &place.value;
    let queue = pair.queue().filter(|_| place.is_own())?;
    if is_binding(pair) {
        return None;
    }
    let device = pair.device.load(Ordering::Relaxed);
    let most = bound(pair.most.sends.load(Ordering::Relaxed));
    let most_entries = pair.most.send_entries.load(Ordering::Relaxed);
    let signal_all = pair.signal_all.load(Ordering::Relaxed);
    let (mut count, mut keys) = (0, false);
    while count < most
        // SAFETY: an element of the list, or its end.
        && let Some(request) = unsafe { wr.as_ref() }
    {
        // SAFETY: its parts are as its opcode says.
        let work = unsafe { work(request, most_entries, signal_all) };
        keys |= matches!(work.op, Op::Bind | Op::LocalInv);
        queue.post(recorder, &work);
        (count, wr) = (count + 1, request.next);
    }
    Some(Noted { recorder, queue, device, count, cut: !wr.is_null(), keys })
}

/// Whether this thread is within a bind on the queue pair, which was noted.
fn is_binding(pair: &Pair) -> bool {
    let thread = pair.binding.load(Ordering::Relaxed);
    thread != 0 && thread == this_thread()
}

/// What a thread is told from others by; never 0.
pub(super) fn this_thread() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::pthread_self() as usize }
}

/// A work request of C's as the recorder knows them.
///
/// # Safety
/// `request` is as the verbs have it; its entries are there while the answer is used.
unsafe fn work(request: &ibv_send_wr, most_entries: u32, signal_all: bool) -> Work<'_> {
    // SAFETY: plain numbers, whatever is in their places.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let rdma = Some((rdma.rkey, rdma.remote_addr));
    let (op, remote) = match request.opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV | IBV_WR_TSO => (Op::Send, None),
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM | IBV_WR_ATOMIC_WRITE => (Op::Write, rdma),
        IBV_WR_RDMA_READ => (Op::Read, rdma),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            (Op::Atomic, Some((atomic.rkey, atomic.remote_addr)))
        }
        IBV_WR_LOCAL_INV => (Op::LocalInv, None),
        IBV_WR_BIND_MW => (Op::Bind, None),
        _ => (Op::Other, None),
    };
    let entries = match op {
        Op::LocalInv | Op::Bind | Op::Other => &[],
        // SAFETY: the caller's.
        _ => unsafe { entries(request.sg_list, request.num_sge, most_entries) },
    };
    Work {
        id: request.wr_id,
        op,
        signaled: signal_all || request.send_flags & IBV_SEND_SIGNALED != 0,
        inlined: request.send_flags & IBV_SEND_INLINE != 0,
        invalidates: request.opcode == IBV_WR_SEND_WITH_INV,
        entries,
        remote,
    }
}

/// Keys that the first `count` of a list have changed.
///
/// # Safety
/// The list has so many elements, which were posted.
unsafe fn note_keys(noted: &Noted, mut wr: *mut ibv_send_wr, count: u32) {
    for _ in 0..count {
        // SAFETY: the caller's; the windows and regions are live, as the device took them.
        unsafe {
            let request = &*wr;
            match request.opcode {
                IBV_WR_LOCAL_INV => noted.recorder.invalidated(noted.device, request.imm_data),
                IBV_WR_BIND_MW => {
                    let bind = request.bind_mw;
                    bound_to(noted.recorder, noted.device, bind.mw, bind.rkey, &bind.bind_info);
                }
                _ => {}
            }
            wr = request.next;
        }
    }
}

/// A window was bound.
///
/// # Safety
/// The region is null or live.
pub(super) unsafe fn bound_to(
    recorder: &Recorder,
    device: Slot,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) {
    // SAFETY: the caller's.
    let lkey = unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey);
    recorder.bound(device, mw.addr() as u64, rkey, lkey, info.length);
}

/// `ibv_post_recv`.
pub(super) unsafe extern "C" fn recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the operation of a queue pair is called with one.
    let place = unsafe { PAIRS.get((*qp).context, (*qp).qp_num) };
    let opened = match place {
        Some(place) => place.value.opened.get(),
        // SAFETY: as above.
        None => unsafe { contexts::of(qp) },
    };
    let Some(original) = opened.and_then(|opened| opened.ops().post_recv) else { return CLOSED };
    let noted = plain(None, || {
        let recorder = Recorder::current()?;
        let place = place?;
        let pair = &place.value;
        let queue = pair.queue().filter(|_| place.is_own())?;
        let most = &pair.most;
        let (depth, entries) =
            (most.recvs.load(Ordering::Relaxed), most.recv_entries.load(Ordering::Relaxed));
        // SAFETY: a list as the verbs have it.
        Some(unsafe { note_receives(recorder, queue, depth, entries, wr) })
    });
    match noted {
        // SAFETY: as above; `call` goes on with the same list.
        Some(noted) => unsafe { call(&noted, true, wr, bad, |bad| original(qp, wr, bad)).0 },
        // SAFETY: the caller's.
        None => unsafe { original(qp, wr, bad) },
    }
}

/// `ibv_post_srq_recv`.
pub(super) unsafe extern "C" fn srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let place = SHARED.get(srq, 0);
    let opened = match place {
        Some(place) => place.value.opened.get(),
        // SAFETY: the operation of a queue is called with one.
        None => unsafe { contexts::of(srq) },
    };
    let Some(original) = opened.and_then(|opened| opened.ops().post_srq_recv) else {
        return CLOSED;
    };
    let noted = plain(None, || {
        let recorder = Recorder::current()?;
        let place = place?;
        let shared = &place.value;
        let queue = shared.queue().filter(|_| place.is_own())?;
        let (depth, entries) =
            (shared.recvs.load(Ordering::Relaxed), shared.entries.load(Ordering::Relaxed));
        // SAFETY: a list as the verbs have it.
        Some(unsafe { note_receives(recorder, queue, depth, entries, wr) })
    });
    match noted {
        // SAFETY: as above; `call` goes on with the same list.
        Some(noted) => unsafe { call(&noted, true, wr, bad, |bad| original(srq, wr, bad)).0 },
        // SAFETY: the caller's.
        None => unsafe { original(srq, wr, bad) },
    }
}

/// # Safety
/// `wr` is a list as the verbs have it.
unsafe fn note_receives(
    recorder: &'static Recorder,
    queue: &'static Queue,
    depth: u32,
    most_entries: u32,
    mut wr: *mut ibv_recv_wr,
) -> Noted {
    let (mut count, most) = (0, bound(depth));
    while count < most
        // SAFETY: an element of the list, or its end.
        && let Some(request) = unsafe { wr.as_ref() }
    {
        // SAFETY: as above.
        let entries = unsafe { entries(request.sg_list, request.num_sge, most_entries) };
        let work = Work {
            id: request.wr_id,
            op: Op::Recv,
            signaled: true,
            inlined: false,
            invalidates: false,
            entries,
            remote: None,
        };
        queue.post(recorder, &work);
        (count, wr) = (count + 1, request.next);
    }
    Noted { recorder, queue, device: 0, count, cut: !wr.is_null(), keys: false }
}
