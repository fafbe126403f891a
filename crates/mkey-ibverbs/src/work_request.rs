//! Work requests as libibverbs takes them.

use crate::objects::Qp;
use mkey_core::error::{Object, Reason};
use mkey_core::queue_pair::QpKind;
use mkey_core::work::{Payload, RecvWr, RemoteAddr, SendOp, SendWr, Sge, UdDest};
use mkey_sys::types::*;
use smallvec::SmallVec;
use std::ffi::c_int;
use std::ptr;

/// A chain of work requests of one kind, with their entries. The pointers between them are set by
/// [`Batch::link`], when nothing moves any more.
pub(crate) struct Batch<W> {
    wrs: SmallVec<[W; 4]>,
    sges: SmallVec<[ibv_sge; 8]>,
}

/// A work request that is linked to others.
pub(crate) trait Linked {
    /// How many entries it has.
    fn entries(&self) -> usize;
    /// Sets where its entries are and what comes after it.
    fn set(&mut self, entries: *mut ibv_sge, next: *mut Self);
}

impl Linked for ibv_send_wr {
    fn entries(&self) -> usize {
        usize::try_from(self.num_sge).unwrap_or(0)
    }

    fn set(&mut self, entries: *mut ibv_sge, next: *mut Self) {
        (self.sg_list, self.next) = (entries, next);
    }
}

impl Linked for ibv_recv_wr {
    fn entries(&self) -> usize {
        usize::try_from(self.num_sge).unwrap_or(0)
    }

    fn set(&mut self, entries: *mut ibv_sge, next: *mut Self) {
        (self.sg_list, self.next) = (entries, next);
    }
}

impl<W: Linked> Batch<W> {
    pub(crate) fn new() -> Self {
        Self { wrs: SmallVec::new(), sges: SmallVec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.wrs.len()
    }

    /// Sets all pointers; the first work request, null without any.
    pub(crate) fn link(&mut self) -> *mut W {
        let (mut entries, count) = (self.sges.as_mut_ptr(), self.wrs.len());
        if count == 0 {
            return ptr::null_mut();
        }
        // All pointers come from this one, and no reference to the array is made after it: it stays
        // good for whoever follows the chain.
        let first = self.wrs.as_mut_ptr();
        for index in 0..count {
            // SAFETY: within the array, as is what is one past, unless this is the last.
            let (wr, next) = unsafe {
                let wr = first.add(index);
                (wr, if index + 1 < count { wr.add(1) } else { ptr::null_mut() })
            };
            // SAFETY: a work request of this array, to which nothing else refers now.
            let own = unsafe {
                (*wr).set(entries, next);
                (*wr).entries()
            };
            // SAFETY: the entries of all work requests lie one after the other.
            entries = unsafe { entries.add(own) };
        }
        first
    }

    /// How many come before `wr`; all if it is none of them.
    fn before(&self, wr: *const W) -> usize {
        let offset = wr.addr().wrapping_sub(self.wrs.as_ptr().addr());
        let index = offset / size_of::<W>();
        if index < self.wrs.len() { index } else { self.wrs.len() }
    }

    /// How many were posted when the driver refused `bad`. Where it names none of them it refused
    /// the call, and took nothing.
    pub(crate) fn refused(&self, bad: *const W) -> usize {
        Some(self.before(bad)).filter(|before| *before < self.wrs.len()).unwrap_or(0)
    }
}

/// Appends entries; how many.
fn push_sges(into: &mut SmallVec<[ibv_sge; 8]>, sges: &[Sge]) -> Result<c_int, Reason> {
    let too_many = || Reason::TooManySges { given: sges.len(), most: c_int::MAX.cast_unsigned() };
    let count = c_int::try_from(sges.len()).map_err(|_| too_many())?;
    into.extend(sges.iter().map(|sge| ibv_sge {
        addr: sge.address.0,
        length: sge.length,
        lkey: sge.lkey.0.0,
    }));
    Ok(count)
}

impl Batch<ibv_recv_wr> {
    /// Appends a receive.
    pub(crate) fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), Reason> {
        let num_sge = push_sges(&mut self.sges, wr.sges)?;
        self.wrs.push(ibv_recv_wr {
            wr_id: wr.wr_id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge,
        });
        Ok(())
    }
}

/// What a work request names besides memory: looked up by the caller, who keeps it alive.
pub(crate) enum Named {
    /// Nothing.
    Nothing,
    /// Where a datagram goes.
    Address(*mut ibv_ah),
    /// A window, its new key, and what it is bound to.
    Window { mw: *mut ibv_mw, rkey: u32, mr: *mut ibv_mr },
}

impl Batch<ibv_send_wr> {
    /// Appends a work request that `ibv_post_send` takes.
    pub(crate) fn push(&mut self, qp: &Qp, wr: &SendWr<'_>, named: &Named) -> Result<(), Reason> {
        let mut raw: ibv_send_wr = bytemuck::Zeroable::zeroed();
        raw.wr_id = wr.wr_id;
        raw.send_flags = wr.flags.bits();
        operation(&mut raw, &wr.op, named)?;
        if let (QpKind::Ud, Named::Address(ah)) = (qp.kind, named) {
            let (ah, UdDest { qp_num, qkey, .. }) = (*ah, wr.dest.ok_or(NO_DESTINATION)?);
            raw.wr.ud = ibv_send_wr_ud { ah, remote_qpn: qp_num, remote_qkey: qkey };
        }
        raw.num_sge = match wr.payload {
            Payload::Sges(sges) => push_sges(&mut self.sges, sges)?,
            Payload::Inline(bytes) => {
                let most = qp.cap.max_inline_data;
                let too_much = || Reason::TooMuchInline { given: bytes.len(), most };
                let length = u32::try_from(bytes.len()).map_err(|_| too_much())?;
                raw.send_flags |= IBV_SEND_INLINE;
                self.sges.push(ibv_sge { addr: bytes.as_ptr().addr() as u64, length, lkey: 0 });
                1
            }
        };
        self.wrs.push(raw);
        Ok(())
    }
}

/// A datagram without a destination.
pub(crate) const NO_DESTINATION: Reason = Reason::UnknownHandle { object: Object::Ah, handle: 0 };

fn operation(raw: &mut ibv_send_wr, op: &SendOp<'_>, named: &Named) -> Result<(), Reason> {
    let rdma = |remote: &RemoteAddr| ibv_send_wr_wr {
        rdma: ibv_send_wr_rdma { remote_addr: remote.address.0, rkey: remote.rkey.0.0 },
    };
    let atomic = |remote: &RemoteAddr, compare_add, swap| ibv_send_wr_wr {
        atomic: ibv_send_wr_atomic {
            remote_addr: remote.address.0,
            compare_add,
            swap,
            rkey: remote.rkey.0.0,
        },
    };
    raw.opcode = match op {
        SendOp::Send => IBV_WR_SEND,
        SendOp::SendImm(imm) => {
            raw.imm_data = imm.to_be();
            IBV_WR_SEND_WITH_IMM
        }
        // A key to invalidate shares its place with the immediate, in the order of this machine.
        SendOp::SendInv(key) => {
            raw.imm_data = key.0.0;
            IBV_WR_SEND_WITH_INV
        }
        SendOp::LocalInv(key) => {
            raw.imm_data = key.0;
            IBV_WR_LOCAL_INV
        }
        SendOp::Write(remote) => {
            raw.wr = rdma(remote);
            IBV_WR_RDMA_WRITE
        }
        SendOp::WriteImm(remote, imm) => {
            raw.wr = rdma(remote);
            raw.imm_data = imm.to_be();
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
        SendOp::Read(remote) => {
            raw.wr = rdma(remote);
            IBV_WR_RDMA_READ
        }
        SendOp::FetchAdd { remote, add } => {
            raw.wr = atomic(remote, *add, 0);
            IBV_WR_ATOMIC_FETCH_AND_ADD
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            raw.wr = atomic(remote, *compare, *swap);
            IBV_WR_ATOMIC_CMP_AND_SWP
        }
        SendOp::BindMw(bind) => {
            if let Named::Window { mw, rkey, mr } = *named {
                let bind_info = bind_info(bind, mr);
                raw.bind_mw = ibv_send_wr_bind_mw { mw, rkey, bind_info };
            }
            IBV_WR_BIND_MW
        }
        other => return Err(Reason::NotHere { operation: name(other), on: "ibv_post_send" }),
    };
    Ok(())
}

/// What a window is bound to, as libibverbs takes it.
pub(crate) fn bind_info(bind: &mkey_core::work::BindMw, mr: *mut ibv_mr) -> ibv_mw_bind_info {
    // Accepted and granting nothing (R-MW-18), which not every driver knows.
    let rights = bind.rights - mkey_core::rights::Rights::LOCAL_WRITE;
    ibv_mw_bind_info {
        mr,
        addr: bind.address.0,
        length: bind.length,
        mw_access_flags: rights.bits(),
    }
}

/// An operation's name.
pub(crate) fn name(op: &SendOp<'_>) -> &'static str {
    match op {
        SendOp::Send | SendOp::SendImm(_) => "SEND",
        SendOp::SendInv(_) => "SEND_WITH_INV",
        SendOp::Write(_) | SendOp::WriteImm(..) => "RDMA WRITE",
        SendOp::Read(_) => "RDMA READ",
        SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => "atomics",
        SendOp::BindMw(_) | SendOp::BindMw1(_) => "BIND_MW",
        SendOp::LocalInv(_) => "LOCAL_INV",
        SendOp::RegMr(_) => "REG_MR",
        _ => "this operation",
    }
}

/// Whether a queue pair of this kind has the operation (R-INV-01, R-INV-15).
pub(crate) fn exists_on(op: &SendOp<'_>, kind: QpKind) -> bool {
    match op {
        SendOp::Send | SendOp::SendImm(_) => true,
        SendOp::Write(_) | SendOp::WriteImm(..) | SendOp::BindMw(_) | SendOp::BindMw1(_) => {
            kind != QpKind::Ud
        }
        SendOp::LocalInv(_) => kind != QpKind::Ud,
        _ => kind == QpKind::Rc,
    }
}

/// The words for a queue pair of this kind.
pub(crate) fn on(kind: QpKind) -> &'static str {
    match kind {
        QpKind::Rc => "an RC queue pair",
        QpKind::Uc => "a UC queue pair",
        QpKind::Ud => "a UD queue pair",
        _ => "this queue pair",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey_core::address::IoAddr;
    use mkey_core::key::{Key, Lkey};

    #[test]
    fn a_batch_is_linked_over_all_its_entries() {
        let sge = |n: u32| Sge { address: IoAddr(u64::from(n)), length: n, lkey: Lkey(Key(n)) };
        let (one, two) = ([sge(1)], [sge(2), sge(3)]);
        let mut batch = Batch::<ibv_recv_wr>::new();
        for (wr_id, sges) in [(10, &one[..]), (11, &[]), (12, &two[..])] {
            batch.push(&RecvWr { wr_id, sges }).unwrap();
        }
        let mut at = batch.link();
        let mut seen = Vec::new();
        while !at.is_null() {
            // SAFETY: linked above, and the batch lives.
            let wr = unsafe { &*at };
            let entries = (0..wr.entries()).map(|i| unsafe {
                // SAFETY: as above.
                (*wr.sg_list.add(i)).length
            });
            seen.push((wr.wr_id, entries.collect::<Vec<_>>()));
            assert_eq!(batch.before(at), seen.len() - 1);
            at = wr.next;
        }
        assert_eq!(seen, [(10, vec![1]), (11, vec![]), (12, vec![2, 3])]);
        assert_eq!(batch.before(ptr::null()), 3);
        assert!(Batch::<ibv_recv_wr>::new().link().is_null());
    }
}
