//! A work request that waits in its send queue, with what it points to.

use mkey_core::work::{Payload, RegMr, SendOp, SendWr, Sge};

/// A work request of its own.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The work request without its lists.
    bare: SendWr<'static>,
    payload: OwnPayload,
    entries: Box<[Sge]>,
}

#[derive(Debug)]
enum OwnPayload {
    Sges(Box<[Sge]>),
    Inline(Box<[u8]>),
}

impl Stored {
    pub(crate) fn new(wr: &SendWr<'_>) -> Self {
        let mut entries: Box<[Sge]> = Box::default();
        let op = match wr.op {
            SendOp::RegMr(RegMr { key, iova, rights, entries: list }) => {
                entries = list.into();
                SendOp::RegMr(RegMr { key, iova, rights, entries: &[] })
            }
            SendOp::Send => SendOp::Send,
            SendOp::SendImm(imm) => SendOp::SendImm(imm),
            SendOp::SendInv(key) => SendOp::SendInv(key),
            SendOp::Write(remote) => SendOp::Write(remote),
            SendOp::WriteImm(remote, imm) => SendOp::WriteImm(remote, imm),
            SendOp::AtomicWrite(remote) => SendOp::AtomicWrite(remote),
            SendOp::Read(remote) => SendOp::Read(remote),
            SendOp::FetchAdd { remote, add } => SendOp::FetchAdd { remote, add },
            SendOp::CompareSwap { remote, compare, swap } => {
                SendOp::CompareSwap { remote, compare, swap }
            }
            SendOp::BindMw(bind) => SendOp::BindMw(bind),
            SendOp::BindMw1(bind) => SendOp::BindMw1(bind),
            SendOp::LocalInv(key) => SendOp::LocalInv(key),
            // An operation that is new to this crate is refused at posting and never comes here.
            _ => SendOp::Send,
        };
        let payload = match wr.payload {
            Payload::Sges(sges) => OwnPayload::Sges(sges.into()),
            Payload::Inline(bytes) => OwnPayload::Inline(bytes.into()),
        };
        let (wr_id, flags, dest, srq) = (wr.wr_id, wr.flags, wr.dest, wr.srq);
        let bare = SendWr { wr_id, op, payload: Payload::Sges(&[]), flags, dest, srq };
        Self { bare, payload, entries }
    }

    /// As it was posted.
    pub(crate) fn wr(&self) -> SendWr<'_> {
        let op = match self.bare.op {
            SendOp::RegMr(reg) => SendOp::RegMr(RegMr { entries: &self.entries, ..reg }),
            op => op,
        };
        let payload = match &self.payload {
            OwnPayload::Sges(sges) => Payload::Sges(sges),
            OwnPayload::Inline(bytes) => Payload::Inline(bytes),
        };
        SendWr { op, payload, ..self.bare }
    }
}
