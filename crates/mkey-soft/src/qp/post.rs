//! What is refused at posting, before a work request has any effect (R-ORD-08 to 11, R-MW-04 to
//! 07, R-MW-30, R-FR-11).

use super::Qp;
use mkey_core::device::MwKind;
use mkey_core::engine::{Access, Executor};
use mkey_core::error::Reason;
use mkey_core::key::Key;
use mkey_core::queue_pair::QpKind;
use mkey_core::refusal::{KeyKind, ManageRefusal, PdId, QpId, Refusal};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, Payload, SendOp, SendWr};

impl Qp {
    /// Looks at the form of a work request.
    #[inline]
    pub(super) fn check_form(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
    ) -> Result<(), Reason> {
        let given = match wr.payload {
            Payload::Sges(sges) if sges.len() > self.limits.max_send_sge as usize => {
                let most = self.limits.max_send_sge;
                return Err(Reason::TooManySges { given: sges.len(), most });
            }
            Payload::Sges(sges) => sges.len(),
            Payload::Inline(bytes) => return self.check_inline(wr, bytes.len()),
        };
        match wr.op {
            SendOp::Write(_) | SendOp::WriteImm(..) if self.kind != QpKind::Ud => Ok(()),
            SendOp::Send | SendOp::SendImm(_) => self.check_dest(wr),
            SendOp::SendInv(_) | SendOp::Read(_) | SendOp::AtomicWrite(_)
                if self.kind == QpKind::Rc =>
            {
                Ok(())
            }
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } if self.kind == QpKind::Rc => {
                exactly(
                    given,
                    1,
                    "the number of entries of an atomic",
                    "1: where the old value lands",
                )
            }
            SendOp::BindMw(_) if self.kind != QpKind::Ud => no_entries(given),
            SendOp::BindMw1(bind) if self.kind != QpKind::Ud => {
                no_entries(given)?;
                self.check_bind1(executor, &bind)
            }
            SendOp::LocalInv(_) | SendOp::RegMr(_) if self.kind != QpKind::Ud => no_entries(given),
            op => Err(Reason::NotHere { operation: name(&op), on: self.kind_name() }),
        }
    }

    fn check_inline(&self, wr: &SendWr<'_>, given: usize) -> Result<(), Reason> {
        match wr.op {
            SendOp::Write(_) | SendOp::WriteImm(..) if self.kind != QpKind::Ud => {}
            SendOp::Send | SendOp::SendImm(_) => self.check_dest(wr)?,
            SendOp::SendInv(_) | SendOp::AtomicWrite(_) if self.kind == QpKind::Rc => {}
            SendOp::Write(_)
            | SendOp::WriteImm(..)
            | SendOp::SendInv(_)
            | SendOp::AtomicWrite(_) => {
                return Err(Reason::NotHere { operation: name(&wr.op), on: self.kind_name() });
            }
            _ => {
                return Err(Reason::Argument {
                    what: "the inline data of an operation that sends none",
                    value: given as u64,
                    allowed: "only SEND and RDMA WRITE take inline data",
                });
            }
        }
        // The word of an atomic write is part of the work request itself.
        let most = match wr.op {
            SendOp::AtomicWrite(_) => self.limits.max_inline.max(8),
            _ => self.limits.max_inline,
        };
        if given > most as usize { Err(Reason::TooMuchInline { given, most }) } else { Ok(()) }
    }

    #[inline]
    fn check_dest(&self, wr: &SendWr<'_>) -> Result<(), Reason> {
        if self.kind != QpKind::Ud {
            return Ok(());
        }
        let Some(dest) = wr.dest else {
            return Err(Reason::Argument {
                what: "the destination of a datagram",
                value: 0,
                allowed: "an address handle, a queue pair number and a queue key",
            });
        };
        self.core.ah(dest.ah).map(|_| ()).ok_or(Reason::UnknownHandle {
            object: mkey_core::error::Object::Ah,
            handle: dest.ah.0,
        })
    }

    /// What `ibv_bind_mw` refuses by itself.
    fn check_bind1(&self, executor: &mut Executor, bind: &BindMw) -> Result<(), Reason> {
        if bind.rights.contains(Rights::ZERO_BASED) {
            return Err(Reason::Refused(ManageRefusal::Rights { rights: bind.rights }));
        }
        if bind.mr.0 == Key(0) && (bind.address.0 != 0 || bind.length != 0) {
            return Err(Reason::Argument {
                what: "the range of a bind without a region",
                value: bind.length,
                allowed: "0, which unbinds",
            });
        }
        match self.core.registrations.window(bind.mw.0) {
            Some((MwKind::Type2, _)) => {
                let refusal = ManageRefusal::WrongKind { key: bind.mw.0, kind: KeyKind::Window2 };
                Err(Reason::Refused(refusal))
            }
            Some((MwKind::Type1, pd)) if bind.length > 0 => {
                // No domain has number 0, so a live region answers with its own.
                let access = Access {
                    key: bind.mr.0,
                    pd: PdId(0),
                    qp: QpId(0),
                    address: bind.address,
                    length: 1,
                    want: Want::LocalRead,
                };
                match self.core.engine.check(&mut executor.source, &access) {
                    Err(Refusal::OtherPd { key_pd, .. }) if key_pd != pd => Err(Reason::OtherPd),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            QpKind::Rc => "an RC queue pair",
            QpKind::Uc => "a UC queue pair",
            _ => "a UD queue pair",
        }
    }
}

fn no_entries(given: usize) -> Result<(), Reason> {
    exactly(given, 0, "the number of entries of a memory-management operation", "0")
}

#[inline]
fn exactly(
    given: usize,
    wanted: usize,
    what: &'static str,
    allowed: &'static str,
) -> Result<(), Reason> {
    if given == wanted {
        Ok(())
    } else {
        Err(Reason::Argument { what, value: given as u64, allowed })
    }
}

/// The operation by its name.
pub(crate) fn name(op: &SendOp<'_>) -> &'static str {
    match op {
        SendOp::Send => "SEND",
        SendOp::SendImm(_) => "SEND with immediate",
        SendOp::SendInv(_) => "SEND with invalidate",
        SendOp::Write(_) => "RDMA WRITE",
        SendOp::WriteImm(..) => "RDMA WRITE with immediate",
        SendOp::AtomicWrite(_) => "atomic write",
        SendOp::Read(_) => "RDMA READ",
        SendOp::FetchAdd { .. } => "fetch and add",
        SendOp::CompareSwap { .. } => "compare and swap",
        SendOp::BindMw(_) => "bind of a type 2 memory window",
        SendOp::BindMw1(_) => "bind of a type 1 memory window",
        SendOp::LocalInv(_) => "local invalidate",
        SendOp::RegMr(_) => "fast registration",
        _ => "an unknown operation",
    }
}
