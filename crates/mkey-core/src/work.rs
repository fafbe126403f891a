//! Work requests and completions.

use crate::address::IoAddr;
use crate::device::AhHandle;
use crate::error::{Error, Reason, Result};
use crate::key::{Key, Lkey, Rkey};
use crate::rights::Rights;
use crate::status::{WcOpcode, WcStatus};

/// A scatter/gather entry: local memory, by its lkey. Laid out as `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// First byte, counted as the lkey's region counts.
    pub address: IoAddr,
    /// Length in bytes.
    pub length: u32,
    /// The region's local key.
    pub lkey: Lkey,
}

/// Memory of the peer, by its rkey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// First byte, counted as the rkey's object counts.
    pub address: IoAddr,
    /// The remote key.
    pub rkey: Rkey,
}

/// Where the data of a send work request lies, or lands.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Registered memory.
    Sges(&'a [Sge]),
    /// Bytes copied at posting; no lkey is looked at (R-LOC-10). Only for SEND and WRITE.
    Inline(&'a [u8]),
}

/// Binding of a window to part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindMw {
    /// The window's current remote key.
    pub mw: Rkey,
    /// Type 2: the low 8 bits become the new key's variant, the rest is not looked at (R-MW-11).
    /// Type 1: not looked at; the variant grows by one (R-MW-09).
    pub new_key: Rkey,
    /// The region's local key.
    pub mr: Lkey,
    /// First byte in the region, counted as the region counts.
    pub address: IoAddr,
    /// Length in bytes. 0 unbinds a window of type 1 (R-MW-25).
    pub length: u64,
    /// REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED (type 2); LOCAL_WRITE is accepted and
    /// grants nothing (R-MW-18).
    pub rights: Rights,
}

/// Fast registration: writes the scatter list of an FRMR and makes it valid.
#[derive(Clone, Copy, Debug)]
pub struct RegMr<'a> {
    /// The FRMR's index with the new variant, for lkey and rkey alike (R-FR-09, R-FR-10).
    pub key: Key,
    /// Address of its first byte in work requests.
    pub iova: IoAddr,
    /// Rights of the registration.
    pub rights: Rights,
    /// Registered memory, entries of any start and length.
    pub entries: &'a [Sge],
}

/// What a send work request does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SendOp<'a> {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates a key of the receiver (RC only).
    SendInv(Rkey),
    /// RDMA WRITE.
    Write(RemoteAddr),
    /// RDMA WRITE with immediate data.
    WriteImm(RemoteAddr, u32),
    /// RDMA WRITE of 8 bytes that are never seen in part; the address is a multiple of 8 (RC only).
    AtomicWrite(RemoteAddr),
    /// RDMA READ.
    Read(RemoteAddr),
    /// 8 bytes: add, return what was there.
    FetchAdd {
        /// The peer's 8 bytes.
        remote: RemoteAddr,
        /// What to add, modulo 2^64.
        add: u64,
    },
    /// 8 bytes: swap if equal, return what was there.
    CompareSwap {
        /// The peer's 8 bytes.
        remote: RemoteAddr,
        /// The value that must be there.
        compare: u64,
        /// The value to put there.
        swap: u64,
    },
    /// Bind a type 2 memory window.
    BindMw(BindMw),
    /// Bind a type 1 memory window: what the verb `ibv_bind_mw` posts.
    BindMw1(BindMw),
    /// Invalidate a type 2 window or an FRMR.
    LocalInv(Key),
    /// Fast registration.
    RegMr(RegMr<'a>),
}

impl SendOp<'_> {
    /// What its completion says it was.
    #[inline]
    pub const fn opcode(&self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => WcOpcode::Send,
            Self::Write(_) | Self::WriteImm(..) => WcOpcode::RdmaWrite,
            Self::AtomicWrite(_) => WcOpcode::AtomicWrite,
            Self::Read(_) => WcOpcode::RdmaRead,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::CompareSwap { .. } => WcOpcode::CompSwap,
            Self::BindMw(_) | Self::BindMw1(_) => WcOpcode::BindMw,
            Self::LocalInv(_) => WcOpcode::LocalInv,
            Self::RegMr(_) => WcOpcode::RegMr,
        }
    }
}

bitflags::bitflags! {
    /// Flags of a send work request (values of `enum ibv_send_flags`; inline is a [`Payload`]).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Starts after all earlier READs and atomics are done (R-ORD-01).
        const FENCE = 1;
        /// Makes a completion.
        const SIGNALED = 1 << 1;
        /// The receiver's completion is a solicited event.
        const SOLICITED = 1 << 2;
    }
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdDest {
    /// The address handle.
    pub ah: AhHandle,
    /// The receiver's queue pair number.
    pub qp_num: u32,
    /// The receiver's queue key.
    pub qkey: u32,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp<'a>,
    /// The local side of the data.
    pub payload: Payload<'a>,
    /// Flags.
    pub flags: SendFlags,
    /// Unreliable datagrams only.
    pub dest: Option<UdDest>,
    /// Extended reliable connections only: the number of the peer's shared receive queue.
    pub srq: Option<u32>,
}

impl<'a> SendWr<'a> {
    /// A signaled work request over registered memory.
    pub fn new(wr_id: u64, op: SendOp<'a>, sges: &'a [Sge]) -> Self {
        let (payload, flags) = (Payload::Sges(sges), SendFlags::SIGNALED);
        Self { wr_id, op, payload, flags, dest: None, srq: None }
    }

    /// The same without a completion when it succeeds.
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message lands, in this order.
    pub sges: &'a [Sge],
}

/// A finished work request (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// How it ended. Of an error only this, `wr_id`, `qp_num` and `vendor_err` are defined.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data that came along.
    pub imm: Option<u32>,
    /// The key that the peer's SEND_WITH_INV invalidated (R-INV-12).
    pub invalidated: Option<Rkey>,
    /// The queue pair.
    pub qp_num: u32,
    /// Unreliable datagrams: who sent it.
    pub src_qp: u32,
    /// Unreliable datagrams: the first 40 bytes of the buffer hold the routing header.
    pub has_grh: bool,
    /// 0, or the number of the entry in the device's log of refusals that tells why; of a device
    /// without a log, its maker's own code.
    pub vendor_err: u32,
}

impl Completion {
    /// A completion of nothing: what an array that is polled into holds before. Its status is an
    /// error, so that one which was never polled is not taken for a success.
    pub const BLANK: Self = Self {
        wr_id: u64::MAX,
        status: WcStatus::GeneralErr,
        opcode: WcOpcode::Send,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        has_grh: false,
        vendor_err: 0,
    };

    /// The completion, if the work request did what it asked.
    ///
    /// # Errors
    /// `WorkFailed` with its status.
    pub fn succeeded(self) -> Result<Self> {
        match self.status {
            WcStatus::Success => Ok(self),
            status => {
                let reason = Reason::WorkFailed { what: "work request", status };
                Err(Error::new("poll_cq", format_args!("work request {}", self.wr_id), reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_that_was_never_polled_is_no_success() {
        let error = Completion::BLANK.succeeded().expect_err("blank");
        let status = WcStatus::GeneralErr;
        assert_eq!(error.reason, Reason::WorkFailed { what: "work request", status });
        let done = Completion { status: WcStatus::Success, wr_id: 7, ..Completion::BLANK };
        assert_eq!(done.succeeded(), Ok(done));
    }
}
