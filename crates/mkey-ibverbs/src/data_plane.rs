//! Posting and polling.

use crate::device::Core;
use crate::failure::errno_of;
use crate::objects::{Cq, Qp, Srq};
use mkey_core::data_plane::{CompletionQueue, PostError, QueuePair, SharedReceive};
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::key::{Key, Rkey};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::{Completion, RecvWr, SendWr};
use mkey_sys::inline;
use mkey_sys::mlx5dv::MLX5DV_WC_UMR;
use mkey_sys::types::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Completions that are taken from libibverbs at a time.
const BATCH: usize = 16;

/// The data plane of a queue pair. It may outlive the queue pair; then it answers that.
#[derive(Clone, Debug)]
pub struct IbvQp {
    pub(crate) core: Arc<Core>,
    pub(crate) qp: Arc<Qp>,
}

impl QueuePair for IbvQp {
    fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        self.core.post_send(&self.qp, chain)
    }

    fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.core.post_recv(&self.qp, chain)
    }

    fn qp_num(&self) -> u32 {
        self.qp.num
    }
}

/// The data plane of a completion queue. It may outlive the queue; then it answers that.
#[derive(Clone, Debug)]
pub struct IbvCq {
    pub(crate) core: Arc<Core>,
    pub(crate) cq: Arc<Cq>,
}

impl IbvCq {
    #[cold]
    fn error(&self, verb: &'static str, reason: Reason) -> Error {
        Error::new(verb, format_args!("cq {:#x}", self.cq.handle), reason)
    }

    fn is_datagram(&self, qp_num: u32) -> bool {
        let datagrams = self.core.datagrams.read();
        datagrams.unwrap_or_else(PoisonError::into_inner).contains(&qp_num)
    }

    fn ended(&self, verb: &'static str) -> Error {
        self.error(verb, Reason::UnknownHandle { object: Object::Cq, handle: self.cq.handle })
    }
}

impl CompletionQueue for IbvCq {
    /// A queue that is empty answers `DeviceGone` once the device has failed: nothing more comes.
    fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        let mut taken = 0;
        while let Some(room) = into.get_mut(taken..).filter(|room| !room.is_empty()) {
            let mut raw: [ibv_wc; BATCH] = bytemuck::Zeroable::zeroed();
            let asked = room.len().min(BATCH);
            let polled = self.cq.live.with(|cq| {
                // SAFETY: a live queue, and at least so many completions may be written.
                unsafe { inline::ibv_poll_cq(cq, asked as c_int, raw.as_mut_ptr()) }
            });
            let polled = polled.ok_or_else(|| self.ended("poll_cq"))?;
            let Ok(count) = usize::try_from(polled) else {
                // Shown with the next call, after what was taken.
                if taken > 0 {
                    break;
                }
                // Some negative number, by the manual page: no errno.
                let (call, errno) = ("ibv_poll_cq", libc::EIO);
                let gone = self.core.context.means_gone(errno);
                let reason = if gone { Reason::DeviceGone } else { Reason::System { call, errno } };
                let arguments = format_args!("cq {:#x}, answer {polled}", self.cq.handle);
                return Err(Error::new("poll_cq", arguments, reason));
            };
            for (place, wc) in room.iter_mut().zip(raw.iter().take(count)) {
                *place = completion(wc, self.core.invalidated);
                // Some drivers say so of all that came with one, also where it is not in the buffer.
                place.has_grh = place.has_grh && self.is_datagram(wc.qp_num);
                taken += 1;
            }
            if count < asked {
                break;
            }
        }
        if taken == 0 && !into.is_empty() {
            if self.cq.overrun.load(Ordering::Acquire) {
                let depth = self.cq.depth;
                return Err(self.error("poll_cq", Reason::CqOverrun { depth }));
            }
            if self.core.context.is_gone() {
                return Err(self.error("poll_cq", Reason::DeviceGone));
            }
        }
        Ok(taken)
    }

    fn request_notify(&self, solicited_only: bool) -> Result<()> {
        let verb = "req_notify_cq";
        let answer = self.cq.live.with(|cq| {
            // SAFETY: a live queue.
            unsafe { inline::ibv_req_notify_cq(cq, c_int::from(solicited_only)) }
        });
        match answer.ok_or_else(|| self.ended(verb))? {
            0 => Ok(()),
            errno => {
                let (call, errno) = ("ibv_req_notify_cq", errno_of(errno));
                let gone = self.core.context.means_gone(errno);
                let reason = if gone { Reason::DeviceGone } else { Reason::System { call, errno } };
                Err(self.error(verb, reason))
            }
        }
    }
}

/// A completion in our words.
fn completion(wc: &ibv_wc, invalidated: u32) -> Completion {
    let status = WcStatus::from_u32(wc.status.0).unwrap_or(WcStatus::GeneralErr);
    let opcode = match wc.opcode.0 {
        MLX5DV_WC_UMR => WcOpcode::RegMr,
        other => WcOpcode::from_u32(other).unwrap_or(WcOpcode::Send),
    };
    let ok = status == WcStatus::Success;
    let has = |flag| ok && wc.wc_flags & flag != 0;
    Completion {
        wr_id: wc.wr_id,
        status,
        opcode,
        byte_len: if ok { wc.byte_len } else { 0 },
        imm: has(IBV_WC_WITH_IMM).then(|| u32::from_be(wc.imm_data)),
        // It shares its place with the immediate, in the order of this machine.
        invalidated: has(invalidated).then_some(Rkey(Key(wc.imm_data))),
        qp_num: wc.qp_num,
        src_qp: if ok { wc.src_qp } else { 0 },
        has_grh: has(IBV_WC_GRH),
        vendor_err: wc.vendor_err,
    }
}

/// The data plane of a shared receive queue. It may outlive the queue; then it answers that.
#[derive(Clone, Debug)]
pub struct IbvSrq {
    pub(crate) core: Arc<Core>,
    pub(crate) srq: Arc<Srq>,
}

impl SharedReceive for IbvSrq {
    fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.core.post_srq_recv(&self.srq, chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_inv_12_an_invalidated_key_is_in_the_order_of_the_machine_and_an_immediate_is_not() {
        let mut wc: ibv_wc = bytemuck::Zeroable::zeroed();
        (wc.imm_data, wc.opcode, wc.wc_flags) = (0x0102_0304, IBV_WC_RECV, IBV_WC_WITH_INV);
        let taken = completion(&wc, IBV_WC_WITH_INV);
        assert_eq!((taken.invalidated, taken.imm), (Some(Rkey(Key(0x0102_0304))), None));
        wc.wc_flags = IBV_WC_WITH_IMM;
        let taken = completion(&wc, IBV_WC_WITH_INV);
        assert_eq!((taken.invalidated, taken.imm), (None, Some(u32::from_be(0x0102_0304))));
    }

    #[test]
    fn of_an_error_only_what_is_defined_is_told() {
        let mut wc: ibv_wc = bytemuck::Zeroable::zeroed();
        (wc.status, wc.wc_flags, wc.byte_len) = (ibv_wc_status(99), IBV_WC_WITH_IMM, 77);
        let taken = completion(&wc, IBV_WC_WITH_INV);
        assert_eq!(taken.status, WcStatus::GeneralErr);
        assert_eq!((taken.imm, taken.byte_len), (None, 0));
    }
}
