//! Extended completion queues: polled entry by entry, read field by field.

use crate::boundary::{EINVAL, Verb, plain, verb};
use crate::cq::{Cq, extra, opcode, status};
use crate::objects::Object;
use crate::turn::Turn;
use mkey_core::work::Completion;
use mkey_sys::types::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::time::Duration;

/// What completions are told with times for.
pub(crate) const STAMPS: u64 =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
/// What can be read of a completion.
pub(crate) const OFFERED: u64 = IBV_WC_STANDARD_FLAGS | STAMPS;

/// The completion in hand. From `start_poll` to `end_poll` the queue is one thread's.
#[derive(Debug)]
pub(crate) struct Polling {
    turn: Turn,
    current: UnsafeCell<(Completion, Duration)>,
}

// SAFETY: `current` is touched only in a turn, by the thread whose turn it is: the verbs ask that from
// `start_poll` to the end one thread polls, and who has not begun touches nothing.
unsafe impl Sync for Polling {}

impl Default for Polling {
    fn default() -> Self {
        let current = UnsafeCell::new((Completion::BLANK, Duration::ZERO));
        Self { turn: Turn::default(), current }
    }
}

/// Sets the operations of a queue.
pub(crate) fn fill(base: &mut ibv_cq_ex) {
    base.start_poll = Some(start);
    base.next_poll = Some(next);
    base.end_poll = Some(end);
    base.read_opcode = Some(read_opcode);
    base.read_vendor_err = Some(read_vendor_err);
    base.read_byte_len = Some(read_byte_len);
    base.read_imm_data = Some(read_imm_data);
    base.read_qp_num = Some(read_qp_num);
    base.read_src_qp = Some(read_src_qp);
    base.read_wc_flags = Some(read_wc_flags);
    base.read_slid = Some(read_slid);
    base.read_sl = Some(read_sl);
    base.read_dlid_path_bits = Some(read_dlid_path_bits);
    base.read_completion_ts = Some(read_completion_ts);
    base.read_completion_wallclock_ns = Some(read_wallclock);
    // A VLAN, a flow's tag and tags of messages there are none of.
    base.read_cvlan = Some(read_cvlan);
    base.read_flow_tag = Some(read_flow_tag);
    base.read_tm_info = Some(read_tm_info);
}

/// The next completion into the program's hand; ENOENT if there is none.
fn advance(cq: *mut ibv_cq_ex, own: &Cq) -> Verb<()> {
    let taken = own.queue()?.poll_stamped()?;
    let (completion, when) = taken.ok_or(crate::boundary::Errno(libc::ENOENT))?;
    // SAFETY: the queue is this thread's now; the program reads the fields on this thread.
    unsafe {
        *own.polling.current.get() = (completion, when);
        (*cq).wr_id = completion.wr_id;
        (*cq).status = status(&completion);
    }
    Ok(())
}

unsafe extern "C" fn start(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    verb(|| -> Verb<()> {
        // SAFETY: the operation of a queue of ours is called with one of ours, and with attributes.
        let (own, attr) = unsafe { (find(cq).ok_or(EINVAL)?, attr.as_ref()) };
        if attr.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(EINVAL);
        }
        own.polling.turn.begin();
        // If there is nothing, nobody calls `end_poll`.
        advance(cq, own).inspect_err(|_| own.polling.turn.end())
    })
}

unsafe extern "C" fn next(cq: *mut ibv_cq_ex) -> c_int {
    verb(|| -> Verb<()> {
        // SAFETY: as above.
        let own = unsafe { find(cq) }.filter(|own| own.polling.turn.is_taken()).ok_or(EINVAL)?;
        advance(cq, own)
    })
}

unsafe extern "C" fn end(cq: *mut ibv_cq_ex) {
    plain((), || {
        // SAFETY: as above.
        if let Some(own) = unsafe { find(cq) } {
            own.polling.turn.end();
        }
    });
}

unsafe fn find(cq: *mut ibv_cq_ex) -> Option<&'static Cq> {
    // SAFETY: the caller's.
    unsafe { Object::<Cq>::live(cq) }.and_then(Object::own)
}

/// The completion in hand.
unsafe fn current(cq: *mut ibv_cq_ex) -> (Completion, Duration) {
    // SAFETY: the operation of a queue of ours is called with one of ours, by the thread that polls.
    match unsafe { find(cq) }.filter(|own| own.polling.turn.is_taken()) {
        // SAFETY: as above, and it has begun.
        Some(own) => unsafe { *own.polling.current.get() },
        None => (Completion::BLANK, Duration::ZERO),
    }
}

macro_rules! read {
    ($($name:ident -> $ty:ty = |$completion:pat_param| $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $ty {
            plain(Default::default(), || {
                // SAFETY: as `current` asks.
                let $completion = unsafe { current(cq) }.0;
                $value
            })
        }
    )*};
}

read! {
    read_vendor_err -> u32 = |completion| completion.vendor_err;
    read_byte_len -> u32 = |completion| completion.byte_len;
    read_imm_data -> be32 = |completion| extra(&completion).0;
    read_qp_num -> u32 = |completion| completion.qp_num;
    read_src_qp -> u32 = |completion| completion.src_qp;
    read_wc_flags -> u32 = |completion| extra(&completion).1;
    read_slid -> u32 = |_| 0;
    read_sl -> u8 = |_| 0;
    read_dlid_path_bits -> u8 = |_| 0;
    read_cvlan -> u16 = |_| 0;
    read_flow_tag -> u32 = |_| 0;
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode {
    // SAFETY: as `current` asks.
    plain(IBV_WC_SEND, || opcode(&unsafe { current(cq) }.0))
}

unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    // SAFETY: as `current` asks.
    plain(0, || nanos(unsafe { current(cq) }.1))
}

/// The same moment by the system's clock.
unsafe extern "C" fn read_wallclock(cq: *mut ibv_cq_ex) -> u64 {
    plain(0, || {
        // SAFETY: as `current` asks.
        let when = unsafe { current(cq) }.1;
        // SAFETY: a queue of ours.
        let context = unsafe { (*cq).context };
        let Some(open) = crate::context::Context::of(context).open() else { return 0 };
        let ago = open.device.now().saturating_sub(when);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        nanos(now.unwrap_or_default().saturating_sub(ago))
    })
}

unsafe extern "C" fn read_tm_info(_: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the program gives room for one.
    unsafe { info.write(bytemuck::Zeroable::zeroed()) };
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
