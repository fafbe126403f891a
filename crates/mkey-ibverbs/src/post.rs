//! Posting.

use crate::device::Core;
use crate::failure::errno_of;
use crate::objects::{Ah, Memory, Mr, Mw, Qp, Srq};
use crate::transition::early;
use crate::work_request::{Batch, NO_DESTINATION, Named, bind_info, exists_on, name, on};
use mkey_core::data_plane::PostError;
use mkey_core::device::{Capability, MwKind};
use mkey_core::error::{Error, Object, Reason};
use mkey_core::key::{Key, Lkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::refusal::{ManageRefusal, Refusal};
use mkey_core::work::{BindMw, Payload, RecvWr, RegMr, SendOp, SendWr};
use mkey_sys::inline;
use mkey_sys::types::*;
use std::collections::HashMap;
use std::ptr;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// The objects that a chain names, which nobody destroys meanwhile.
struct Held<'a> {
    core: &'a Core,
    ahs: Option<RwLockReadGuard<'a, HashMap<u64, Ah>>>,
    mws: Option<RwLockWriteGuard<'a, HashMap<u64, Mw>>>,
    mrs: Option<RwLockWriteGuard<'a, HashMap<u64, Mr>>>,
}

impl<'a> Held<'a> {
    fn of(core: &'a Core, kind: QpKind, chain: &[SendWr<'_>]) -> Self {
        let objects = &core.objects;
        let has = |what: fn(&SendOp<'_>) -> bool| chain.iter().any(|wr| what(&wr.op));
        let binds = has(|op| matches!(op, SendOp::BindMw(_) | SendOp::BindMw1(_)));
        let registers = has(|op| matches!(op, SendOp::RegMr(_)));
        Self {
            core,
            ahs: (kind == QpKind::Ud).then(|| objects.ahs.read()),
            mws: binds.then(|| objects.mws.table.write()),
            mrs: (binds || registers).then(|| objects.mrs.table.write()),
        }
    }

    fn address(&self, wr: &SendWr<'_>) -> Result<Named, Reason> {
        let dest = wr.dest.ok_or(NO_DESTINATION)?;
        let found = self.ahs.as_ref().and_then(|ahs| ahs.get(&dest.ah.0));
        let unknown = || Reason::UnknownHandle { object: Object::Ah, handle: dest.ah.0 };
        found.map(|ah| Named::Address(ah.address.as_ptr())).ok_or_else(unknown)
    }

    fn region(&self, lkey: Lkey) -> Option<&Mr> {
        let mrs = self.mrs.as_ref()?;
        self.core.objects.mrs.find(mrs, u64::from(lkey.0.index()))
    }

    /// What a bind names. libibverbs takes objects, not keys, so a key that names none is refused
    /// here; whether the window's key is its present one is for the device to judge.
    fn window(&mut self, bind: &BindMw, kind: MwKind) -> Result<Named, Reason> {
        let refuse = |key| Reason::Refused(ManageRefusal::Key(Refusal::UnknownIndex { key }));
        let key = bind.mw.0;
        let index = u64::from(key.index());
        let handle = self.core.objects.mws.handles.read().get(&index).copied();
        let mws = self.mws.as_mut().ok_or_else(|| refuse(key))?;
        let mw = handle.and_then(|handle| mws.get_mut(&handle)).ok_or_else(|| refuse(key))?;
        let region = |lkey: Lkey| {
            let index = u64::from(lkey.0.index());
            let mr = self.core.objects.mrs.find(self.mrs.as_deref()?, index)?;
            match &mr.memory {
                Memory::Region(region) if mr.lkey == lkey.0.0 => Some(region.as_ptr()),
                _ => None,
            }
        };
        // An empty bind of type 1 needs no region (R-MW-25). Not all providers can do without, so
        // that of the last bind is named.
        let empty = kind == MwKind::Type1 && bind.length == 0 && bind.address.0 == 0;
        let last = || mw.region.filter(|_| empty).and_then(region);
        let mr = region(bind.mr).or_else(last).ok_or_else(|| refuse(bind.mr.0))?;
        if mw.kind != kind {
            let operation = match kind {
                MwKind::Type1 => "binding by the verb",
                MwKind::Type2 => "binding by a work request",
            };
            let on = match mw.kind {
                MwKind::Type1 => "a type 1 window",
                MwKind::Type2 => "a type 2 window",
            };
            return Err(Reason::NotHere { operation, on });
        }
        let window = mw.window.as_ptr();
        if region(bind.mr).is_some() {
            mw.region = Some(bind.mr);
        }
        // Drivers differ in who keeps this field; what they all take is the present key in it.
        // SAFETY: a live window, and the table is locked for writing.
        unsafe { (*window).rkey = key.0 };
        let rkey = key.with_variant(bind.new_key.0.variant()).0;
        Ok(Named::Window { mw: window, rkey, mr })
    }
}

impl Core {
    /// Posts a chain to a send queue.
    pub(crate) fn post_send(&self, qp: &Qp, chain: &[SendWr<'_>]) -> Result<(), PostError> {
        let posted = qp.live.alone(|raw| self.post_chain(qp, raw, chain));
        let ended = Err((0, Reason::UnknownHandle { object: Object::Qp, handle: qp.handle }));
        posted.unwrap_or(ended).map_err(|(posted, reason)| {
            let wr_id = chain.get(posted).map_or(0, |wr| wr.wr_id);
            let arguments = format_args!("qp {:#08x}, wr_id {wr_id:#x}", qp.num);
            PostError { posted, error: Error::new("post_send", arguments, reason) }
        })
    }

    fn post_chain(
        &self,
        qp: &Qp,
        raw: *mut ibv_qp,
        chain: &[SendWr<'_>],
    ) -> Result<(), (usize, Reason)> {
        if self.context.is_gone() {
            return Err((0, Reason::DeviceGone));
        }
        // Some drivers put the chain into the queue before the kernel refuses it, where it stays and
        // is done once there is a reason to look (rxe), and none need say which request was bad.
        // SAFETY: a live queue pair, used alone.
        if let Some(state) = unsafe { early(raw) } {
            return Err((0, Reason::QpState { state }));
        }
        let mut held = Held::of(self, qp.kind, chain);
        let (mut batch, mut posted) = (Batch::<ibv_send_wr>::new(), 0);
        for wr in chain {
            if let Err(reason) = fits(qp, wr) {
                posted += self.post_batch(qp, raw, &mut batch, chain, posted)?;
                return Err((posted, reason));
            }
            let single = match &wr.op {
                SendOp::BindMw1(bind) => {
                    Some(held.window(bind, MwKind::Type1).map(|named| (named, Some(bind))))
                }
                SendOp::RegMr(_) => Some(Ok((Named::Nothing, None))),
                _ => None,
            };
            let outcome = match single {
                None => self.named(qp, &mut held, wr).and_then(|named| batch.push(qp, wr, &named)),
                Some(single) => {
                    posted += self.post_batch(qp, raw, &mut batch, chain, posted)?;
                    let done = single.and_then(|(named, bind)| match (bind, &wr.op) {
                        (Some(bind), _) => self.post_bind1(qp, raw, wr, bind, &named),
                        (None, SendOp::RegMr(reg)) => self.post_reg(qp, &held, wr, reg),
                        _ => Ok(()),
                    });
                    if done.is_ok() {
                        posted += 1;
                    }
                    done
                }
            };
            if let Err(reason) = outcome {
                posted += self.post_batch(qp, raw, &mut batch, chain, posted)?;
                return Err((posted, reason));
            }
        }
        self.post_batch(qp, raw, &mut batch, chain, posted).map(drop)
    }

    /// What a work request names.
    fn named(&self, qp: &Qp, held: &mut Held<'_>, wr: &SendWr<'_>) -> Result<Named, Reason> {
        match &wr.op {
            SendOp::BindMw(bind) => held.window(bind, MwKind::Type2),
            _ if qp.kind == QpKind::Ud => held.address(wr),
            _ => Ok(Named::Nothing),
        }
    }

    /// Posts what is in the batch, and empties it; how many. `first` of the chain were posted
    /// before.
    fn post_batch(
        &self,
        qp: &Qp,
        raw: *mut ibv_qp,
        batch: &mut Batch<ibv_send_wr>,
        chain: &[SendWr<'_>],
        first: usize,
    ) -> Result<usize, (usize, Reason)> {
        let mut batch = std::mem::replace(batch, Batch::new());
        let count = batch.len();
        if count == 0 {
            return Ok(0);
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair, used alone; the batch lives until the call returns, and what
        // it names is held by the caller.
        let answer = unsafe { inline::ibv_post_send(raw, batch.link(), &raw mut bad) };
        if answer == 0 {
            return Ok(count);
        }
        let posted = first + batch.refused(bad);
        let reason = chain
            .get(posted)
            .map(|wr| self.refused_send(qp, "ibv_post_send", errno_of(answer), wr));
        Err((posted, reason.unwrap_or(Reason::DeviceGone)))
    }

    fn post_bind1(
        &self,
        qp: &Qp,
        raw: *mut ibv_qp,
        wr: &SendWr<'_>,
        bind: &BindMw,
        named: &Named,
    ) -> Result<(), Reason> {
        let Named::Window { mw, mr, .. } = *named else { return Ok(()) };
        let mut bind = ibv_mw_bind {
            wr_id: wr.wr_id,
            send_flags: wr.flags.bits(),
            bind_info: bind_info(bind, mr),
        };
        // SAFETY: a live queue pair, used alone, a live window and a live region or none.
        match unsafe { inline::ibv_bind_mw(raw, mw, &raw mut bind) } {
            0 => Ok(()),
            libc::EPERM => Err(Reason::OtherPd),
            errno => Err(self.refused_send(qp, "ibv_bind_mw", errno_of(errno), wr)),
        }
    }

    fn post_reg(
        &self,
        qp: &Qp,
        held: &Held<'_>,
        wr: &SendWr<'_>,
        reg: &RegMr<'_>,
    ) -> Result<(), Reason> {
        let Some(umr) = &qp.umr else {
            return Err(Reason::Unsupported { capability: Capability::FastMr });
        };
        match held.region(Lkey(reg.key)).map(|mr| &mr.memory) {
            Some(Memory::Fast(key)) => match umr.post(wr.wr_id, wr.flags, key, reg)? {
                0 => Ok(()),
                errno => Err(self.refused_send(qp, "ibv_wr_complete", errno_of(errno), wr)),
            },
            _ => {
                let refusal = Refusal::UnknownIndex { key: reg.key };
                Err(Reason::Refused(ManageRefusal::Key(refusal)))
            }
        }
    }

    /// Why a send was refused.
    #[cold]
    fn refused_send(&self, qp: &Qp, call: &'static str, errno: i32, wr: &SendWr<'_>) -> Reason {
        if errno == libc::ENOMEM {
            return Reason::QueueFull { depth: qp.cap.max_send_wr };
        }
        match wr.payload {
            Payload::Sges(sges) if sges.len() > qp.cap.max_send_sge as usize => {
                return Reason::TooManySges { given: sges.len(), most: qp.cap.max_send_sge };
            }
            Payload::Inline(bytes) if bytes.len() > qp.cap.max_inline_data as usize => {
                let (given, most) = (bytes.len(), qp.cap.max_inline_data);
                return Reason::TooMuchInline { given, most };
            }
            _ => {}
        }
        if self.context.means_gone(errno) {
            return Reason::DeviceGone;
        }
        Reason::System { call, errno }
    }

    /// Posts a chain to a receive queue.
    pub(crate) fn post_recv(&self, qp: &Qp, chain: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = qp.live.alone(|raw| {
            // SAFETY: a live queue pair, used alone.
            if let Some(state @ QpState::Reset) = unsafe { early(raw) } {
                return Err((0, Reason::QpState { state }));
            }
            let post = |wr, bad| {
                // SAFETY: a live queue pair, used alone, and a chain that lives until it returns.
                unsafe { inline::ibv_post_recv(raw, wr, bad) }
            };
            self.receive(chain, qp.cap.max_recv_wr, qp.cap.max_recv_sge, "ibv_post_recv", post)
        });
        let ended = Err((0, Reason::UnknownHandle { object: Object::Qp, handle: qp.handle }));
        posted.unwrap_or(ended).map_err(|(posted, reason)| {
            let wr_id = chain.get(posted).map_or(0, |wr| wr.wr_id);
            let arguments = format_args!("qp {:#08x}, wr_id {wr_id:#x}", qp.num);
            PostError { posted, error: Error::new("post_recv", arguments, reason) }
        })
    }

    /// Posts a chain to a shared receive queue.
    pub(crate) fn post_srq_recv(&self, srq: &Srq, chain: &[RecvWr<'_>]) -> Result<(), PostError> {
        let posted = srq.live.alone(|raw| {
            let post = |wr, bad| {
                // SAFETY: a live queue, used alone, and a chain that lives until it returns.
                unsafe { inline::ibv_post_srq_recv(raw, wr, bad) }
            };
            self.receive(chain, srq.max_wr, srq.max_sge, "ibv_post_srq_recv", post)
        });
        let ended = Err((0, Reason::UnknownHandle { object: Object::Srq, handle: srq.handle }));
        posted.unwrap_or(ended).map_err(|(posted, reason)| {
            let wr_id = chain.get(posted).map_or(0, |wr| wr.wr_id);
            let arguments = format_args!("srq {:#x}, wr_id {wr_id:#x}", srq.handle);
            PostError { posted, error: Error::new("post_srq_recv", arguments, reason) }
        })
    }

    fn receive(
        &self,
        chain: &[RecvWr<'_>],
        depth: u32,
        most: u32,
        call: &'static str,
        post: impl Fn(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    ) -> Result<(), (usize, Reason)> {
        if self.context.is_gone() {
            return Err((0, Reason::DeviceGone));
        }
        let mut batch = Batch::<ibv_recv_wr>::new();
        // Those before one that can not be posted are.
        let unfit = chain
            .iter()
            .enumerate()
            .find_map(|(index, wr)| batch.push(wr).err().map(|reason| (index, reason)));
        let unfit = unfit.map_or(Ok(()), Err);
        if batch.len() == 0 {
            return unfit;
        }
        let mut bad = ptr::null_mut();
        let answer = post(batch.link(), &raw mut bad);
        if answer == 0 {
            return unfit;
        }
        let posted = batch.refused(bad);
        let given = chain.get(posted).map_or(0, |wr| wr.sges.len());
        Err((
            posted,
            match errno_of(answer) {
                libc::ENOMEM => Reason::QueueFull { depth },
                _ if given > most as usize => Reason::TooManySges { given, most },
                errno if self.context.means_gone(errno) => Reason::DeviceGone,
                errno => Reason::System { call, errno },
            },
        ))
    }
}

/// Whether the operation exists here, and may have what it is posted with.
fn fits(qp: &Qp, wr: &SendWr<'_>) -> Result<(), Reason> {
    if !exists_on(&wr.op, qp.kind) {
        return Err(Reason::NotHere { operation: name(&wr.op), on: on(qp.kind) });
    }
    let empty = match wr.payload {
        Payload::Sges(sges) => sges.is_empty(),
        Payload::Inline(bytes) => bytes.is_empty(),
    };
    let moves = !matches!(
        wr.op,
        SendOp::BindMw(_) | SendOp::BindMw1(_) | SendOp::LocalInv(_) | SendOp::RegMr(_)
    );
    if moves || empty {
        return Ok(());
    }
    // Drivers differ in whether they look (R-MW-30).
    Err(Reason::NotHere { operation: "data of one's own", on: name(&wr.op) })
}

/// The part of a key that does not change.
pub(crate) fn index(key: u32) -> u64 {
    u64::from(Key(key).index())
}
