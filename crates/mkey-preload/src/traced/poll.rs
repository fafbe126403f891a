//! Completions, taken in batches or entry by entry.

use crate::boundary::plain;
use crate::traced::contexts::{self, give_back as put_back, take};
use crate::traced::post::CLOSED;
use crate::traced::queues::{COMPLETIONS, PAIRS, Polled};
use mkey_sys::types::*;
use mkey_trace::record::Recorder;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::slice;
use std::sync::atomic::Ordering;

/// A completion.
struct Done {
    id: u64,
    status: u32,
    vendor: u32,
    qp_num: u32,
    /// What it says of what was done; of a failure nothing.
    opcode: Option<ibv_wc_opcode>,
    /// The key of this side that the peer has invalidated by it.
    invalidated: Option<u32>,
}

/// Completions of receives, of which the numbers above are none.
fn is_receive(opcode: ibv_wc_opcode) -> bool {
    opcode.0 & IBV_WC_RECV.0 != 0 && opcode.0 < IBV_WC_DRIVER1.0
}

/// Tells the queue that the work was posted to.
fn tell(recorder: &Recorder, context: *const ibv_context, cq: *const ibv_cq, done: &Done) {
    let Done { id, status, vendor, qp_num, opcode, invalidated } = *done;
    let pair = PAIRS.get(context, qp_num).filter(|pair| pair.is_own()).map(|pair| &pair.value);
    let Some((pair, queue)) = pair.and_then(|pair| Some((pair, pair.queue()?))) else { return };
    let receives = match pair.receives_only.load(Ordering::Relaxed) {
        true => COMPLETIONS.get(cq, 0).and_then(|polled| polled.value.shared()),
        false => pair.receives(),
    };
    let receives = receives.unwrap_or(queue);
    let recv = opcode.map(is_receive).or_else(|| pair.is_receive(cq)).unwrap_or_else(|| {
        match (queue.awaits(id, false), receives.awaits(id, true)) {
            (Some(sends), Some(recvs)) => recvs < sends,
            (None, recvs) => recvs.is_some(),
            (Some(_), None) => false,
        }
    });
    if recv { receives } else { queue }.completed(recorder, id, recv, status, vendor);
    if let Some(rkey) = invalidated {
        recorder.invalidated(pair.device.load(Ordering::Relaxed), rkey);
    }
}

/// `ibv_poll_cq`.
pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the operation of a queue is called with one.
    let original = unsafe { contexts::of(cq) }.and_then(|opened| opened.ops().poll_cq);
    // A positive answer is a number of completions.
    let Some(original) = original else { return -CLOSED };
    // SAFETY: the caller's.
    let found = unsafe { original(cq, most, wc) };
    if let Some(recorder) = Recorder::current()
        && let Ok(count) = u32::try_from(found)
    {
        plain((), || {
            recorder.polled(count);
            if count > 0 {
                // SAFETY: so many were written, into room of the program's.
                unsafe { tell_all(recorder, cq, slice::from_raw_parts(wc, count as usize)) };
            }
        });
    }
    found
}

/// # Safety
/// A live queue.
#[inline(never)]
unsafe fn tell_all(recorder: &Recorder, cq: *const ibv_cq, done: &[ibv_wc]) {
    // SAFETY: the caller's.
    let context = unsafe { (*cq).context };
    for wc in done {
        tell(recorder, context, cq, &done_of(wc));
    }
}

fn done_of(wc: &ibv_wc) -> Done {
    Done {
        id: wc.wr_id,
        status: wc.status.0,
        vendor: wc.vendor_err,
        qp_num: wc.qp_num,
        opcode: (wc.status == IBV_WC_SUCCESS).then_some(wc.opcode),
        // The key has the place of the immediate.
        invalidated: (wc.status == IBV_WC_SUCCESS && wc.wc_flags & IBV_WC_WITH_INV != 0)
            .then_some(wc.imm_data),
    }
}

/// What the pointers of an extended completion queue led to.
pub(super) struct Kept(UnsafeCell<ibv_cq_ex>);

// SAFETY: written while the queue is known to nobody but the thread that makes it; who uses a queue that
// another thread destroys breaks the verbs' own rule.
unsafe impl Sync for Kept {}

impl Default for Kept {
    fn default() -> Self {
        Self(UnsafeCell::new(bytemuck::Zeroable::zeroed()))
    }
}

impl Kept {
    fn get(&self) -> &ibv_cq_ex {
        // SAFETY: as for `Sync`.
        unsafe { &*self.0.get() }
    }
}

/// The pointers of an extended queue are taken.
///
/// # Safety
/// It is live, and nobody else knows it yet.
pub(super) unsafe fn take_over(cq: *mut ibv_cq_ex, polled: &Polled) {
    // SAFETY: the caller's; the memory is written by its maker as well.
    unsafe {
        let kept = &mut *polled.kept.0.get();
        take!((*cq).start_poll, kept.start_poll, start);
        take!((*cq).next_poll, kept.next_poll, next);
    }
}

/// They are taken again.
///
/// # Safety
/// As for [`take_over`], of a queue whose pointers were given back.
pub(super) unsafe fn take_back(polled: &Polled) {
    let cq = polled.object.load(Ordering::Relaxed);
    if !cq.is_null() {
        // SAFETY: the caller's.
        unsafe { take_over(cq, polled) };
    }
}

/// They are given back.
///
/// # Safety
/// The queue's memory is there.
pub(super) unsafe fn give_back(polled: &Polled) {
    let cq = polled.object.load(Ordering::Relaxed);
    if cq.is_null() {
        return;
    }
    // SAFETY: the caller's.
    unsafe {
        put_back!((*cq).start_poll, polled.kept.get().start_poll);
        put_back!((*cq).next_poll, polled.kept.get().next_poll);
    }
}

fn kept(cq: *const ibv_cq_ex) -> Option<&'static ibv_cq_ex> {
    Some(COMPLETIONS.get(cq, 0)?.value.kept.get())
}

unsafe extern "C" fn start(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(original) = kept(cq).and_then(|kept| kept.start_poll) else { return CLOSED };
    // SAFETY: the caller's.
    let result = unsafe { original(cq, attr) };
    if let Some(recorder) = Recorder::current() {
        match result {
            // SAFETY: there is a completion in hand.
            0 => plain((), || unsafe {
                recorder.polled(1);
                tell_current(recorder, cq);
            }),
            libc::ENOENT => plain((), || recorder.polled(0)),
            _ => {}
        }
    }
    result
}

unsafe extern "C" fn next(cq: *mut ibv_cq_ex) -> c_int {
    let Some(original) = kept(cq).and_then(|kept| kept.next_poll) else { return CLOSED };
    // SAFETY: the caller's.
    let result = unsafe { original(cq) };
    // Where there is no further one, the poll was not one that found nothing.
    if let Some(recorder) = Recorder::current().filter(|_| result == 0) {
        // SAFETY: there is a completion in hand.
        plain((), || unsafe {
            recorder.polled_further();
            tell_current(recorder, cq);
        });
    }
    result
}

/// Tells of the completion in hand.
///
/// # Safety
/// There is one.
unsafe fn tell_current(recorder: &Recorder, cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's; the functions are those that the queue was made with.
    unsafe {
        let good = (*cq).status == IBV_WC_SUCCESS;
        // Queues were made with it where that can be.
        let Some(read_qp_num) = (*cq).read_qp_num else { return };
        let done = Done {
            id: (*cq).wr_id,
            status: (*cq).status.0,
            vendor: match (*cq).read_vendor_err {
                Some(read) if !good => read(cq),
                _ => 0,
            },
            qp_num: read_qp_num(cq),
            opcode: match (*cq).read_opcode {
                Some(read) if good => Some(read(cq)),
                _ => None,
            },
            invalidated: match ((*cq).read_wc_flags, (*cq).read_imm_data) {
                (Some(flags), Some(read)) if good && flags(cq) & IBV_WC_WITH_INV != 0 => {
                    Some(read(cq))
                }
                _ => None,
            },
        };
        tell(recorder, (*cq).context, cq.cast(), &done);
    }
}
