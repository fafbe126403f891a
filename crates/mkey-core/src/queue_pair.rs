//! The words of queue pairs: kinds, states, attributes.

use crate::device::{AhAttr, CqHandle, SrqHandle, XrcdHandle};
use crate::rights::Rights;
use core::fmt;

/// The transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QpKind {
    /// Reliable connected.
    Rc,
    /// Unreliable connected.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl fmt::Display for QpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// The state of a queue pair (numbers of `enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of `enum ibv_qp_state`")]
pub enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        })
    }
}

/// Which end of an extended reliable connection (XRC) a reliable queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Xrc {
    /// It sends, and has no receive queue. Each of its work requests names a shared receive queue of
    /// the peer's domain ([`SendWr::srq`](crate::work::SendWr::srq)).
    Send,
    /// It takes messages for the shared receive queues of this domain, and sends nothing.
    Receive(XrcdHandle),
}

/// How a queue pair is created.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Its transport.
    pub kind: QpKind,
    /// Of RC: whether it is one end of an extended connection.
    pub xrc: Option<Xrc>,
    /// Where completions of its send queue go.
    pub send_cq: CqHandle,
    /// Where completions of its receive queue go.
    pub recv_cq: CqHandle,
    /// Takes receives from here instead of a receive queue of its own.
    pub srq: Option<SrqHandle>,
    /// Work requests that its send queue holds.
    pub max_send_wr: u32,
    /// Work requests that its receive queue holds.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of one send work request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of one receive work request.
    pub max_recv_sge: u32,
    /// Bytes of inline data of one send work request.
    pub max_inline: u32,
    /// Every send work request makes a completion, as if signaled.
    pub signal_all: bool,
}

impl QpInit {
    /// A queue pair of `kind` on one completion queue: 128 work requests a side, 4 entries each,
    /// 64 bytes inline, completions only for signaled work requests.
    pub fn new(kind: QpKind, cq: CqHandle) -> Self {
        Self {
            kind,
            xrc: None,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline: 64,
            signal_all: false,
        }
    }
}

/// Attributes to set; `None` leaves one as it is (`ibv_modify_qp` with its mask).
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_qp_attr`")]
pub struct QpModify {
    pub state: Option<QpState>,
    /// What peers may do by this queue pair: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
    pub rights: Option<Rights>,
    pub port: Option<u8>,
    pub pkey_index: Option<u16>,
    pub qkey: Option<u32>,
    /// Bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: Option<u32>,
    pub dest_qp_num: Option<u32>,
    /// 24 bits.
    pub rq_psn: Option<u32>,
    /// 24 bits.
    pub sq_psn: Option<u32>,
    /// READs and atomics that this side may have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding.
    pub max_dest_rd_atomic: Option<u8>,
    /// 5-bit code of the time a peer waits after a receiver-not-ready NAK.
    pub min_rnr_timer: Option<u8>,
    /// 5-bit code of the time to wait for an answer: 4.096 us * 2^code, 0 = for ever.
    pub timeout: Option<u8>,
    /// 3 bits.
    pub retry_cnt: Option<u8>,
    /// 3 bits; 7 = for ever.
    pub rnr_retry: Option<u8>,
    pub ah: Option<AhAttr>,
}

impl QpModify {
    /// RESET to INIT of a connected queue pair on port 1: what peers may do by it.
    pub fn init(rights: Rights) -> Self {
        Self {
            state: Some(QpState::Init),
            port: Some(1),
            pkey_index: Some(0),
            rights: Some(rights),
            ..Self::default()
        }
    }

    /// INIT to RTR of a reliable connection to the queue pair `dest_qp_num` behind `ah`, that
    /// begins at `rq_psn`: 16 READs and atomics of the peer at a time, 0.64 ms to wait after a
    /// receiver-not-ready NAK.
    pub fn rtr(ah: AhAttr, dest_qp_num: u32, path_mtu: u32, rq_psn: u32) -> Self {
        Self {
            state: Some(QpState::Rtr),
            ah: Some(ah),
            dest_qp_num: Some(dest_qp_num),
            path_mtu: Some(path_mtu),
            rq_psn: Some(rq_psn),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..Self::default()
        }
    }

    /// RTR to RTS of a reliable connection that begins at `sq_psn`: 16 READs and atomics at a
    /// time, 67 ms to wait for an answer and 7 retries, for ever where the receiver is not ready.
    pub fn rts(sq_psn: u32) -> Self {
        Self {
            state: Some(QpState::Rts),
            sq_psn: Some(sq_psn),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(16),
            ..Self::default()
        }
    }
}

/// The attributes of a queue pair as they are.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_qp_attr`")]
pub struct QpAttr {
    pub state: QpState,
    pub rights: Rights,
    pub port: u8,
    pub pkey_index: u16,
    pub qkey: u32,
    pub path_mtu: u32,
    pub dest_qp_num: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub ah: Option<AhAttr>,
}
