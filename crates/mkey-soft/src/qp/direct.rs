//! WRITEs into memory that the peer lends, and lending it: with `direct` of the options.
//!
//! Both sides do so only between a message that is done and the next: the sender while nothing of its
//! queue is on its way, so that a WRITE by itself comes after all that was asked before.
#![allow(unsafe_code)]

use super::flight::Flight;
use super::{Connection, Qp};
use crate::link::{Borrow, Inbound, Lend, Lent, Path};
use crate::memory::{self, CHUNK, Site};
use crate::options::Stale;
use mkey_core::address::IoAddr;
use mkey_core::engine::{Access, Executor};
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Want;
use mkey_core::work::{Payload, RemoteAddr, SendOp, SendWr};

impl Qp {
    fn is_direct(&self) -> bool {
        let options = &self.core.options;
        options.direct
            && self.kind == QpKind::Rc
            && self.xrc.is_none()
            && options.stale == Stale::Refuse
            && options.faults.is_none()
            && options.capture.is_none()
    }

    /// The sender: carries out a WRITE by itself, if the peer lends what it is to. Nothing of the queue
    /// may be on its way. If it answers false, the WRITE is to be sent.
    pub(super) fn write_direct(
        &self,
        flight: &Flight,
        executor: &mut Executor,
        wr: &SendWr<'_>,
    ) -> bool {
        let SendOp::Write(remote) = wr.op else { return false };
        if !self.is_direct() || flight.busy() {
            return false;
        }
        let (path, to_qp, connection) = flight.leads();
        let Some(connection) = connection else { return false };
        let lend = Lend { from_qp: self.num, connection, to_qp, rkey: remote.rkey.0.0 };
        let borrow = |length| Borrow { lend, address: remote.address.0, length };
        match wr.payload {
            Payload::Inline(bytes) if !bytes.is_empty() => {
                let borrow = borrow(bytes.len() as u64);
                // SAFETY: the bytes themselves.
                path.is_lent(&borrow) && unsafe { path.write_direct(&borrow, bytes.as_ptr()) }
            }
            Payload::Sges(&[sge]) if (1..=CHUNK).contains(&u64::from(sge.length)) => {
                let borrow = borrow(u64::from(sge.length));
                if !path.is_lent(&borrow) {
                    return false;
                }
                let access = Access {
                    key: sge.lkey.0,
                    pd: self.pd,
                    qp: self.id,
                    address: sge.address,
                    length: borrow.length,
                    want: Want::LocalRead,
                };
                let source = Site { core: &self.core, access, through: None };
                memory::in_one_place(&mut executor.source, &source, |host| {
                    // SAFETY: memory that was opened for reading so many bytes, and is guarded.
                    unsafe { path.write_direct(&borrow, host.0 as *const u8) }
                })
                .unwrap_or(false)
            }
            _ => false,
        }
    }

    /// The target: lends the region of a WRITE that was just carried out.
    pub(super) fn lend(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        inbound: &Inbound<'_>,
        (from_qp, connection): (u32, Option<u32>),
        remote: RemoteAddr,
        path: &dyn Path,
    ) {
        let length = inbound.payload.len() as u64;
        let Some(connection) = connection else { return };
        if !self.is_direct() || length == 0 {
            return;
        }
        let lend = Lend { from_qp, connection, to_qp: self.num, rkey: remote.rkey.0.0 };
        path.lend(&lend, remote.address.0, length, &mut || {
            if !self.gate.view().allows(Want::RemoteWrite) {
                return None;
            }
            let region = self.core.registrations.lendable(remote.rkey)?;
            let access = Access {
                key: remote.rkey.0,
                pd: self.domain(),
                qp: self.id,
                address: remote.address,
                length,
                want: Want::RemoteWrite,
            };
            let mut place = |access| {
                let site = Site { core: &self.core, access, through: Some(through) };
                memory::in_one_place(&mut executor.target, &site, |host| host.0)
            };
            let offset = place(access)?.checked_sub(region.start.0)?;
            // All of it has to be as the engine knows it: no page of it may have gone.
            let address = IoAddr(remote.address.0.checked_sub(offset)?);
            let host = place(Access { address, length: region.len, ..access })?;
            Some(Lent { address: address.0, length: region.len, host })
        });
    }
}
