//! Queue pairs.

use crate::access::PeerAccess;
use crate::cq::{Cq, Ticket};
use crate::grant::Grants;
use crate::in_flight::{Entry, InFlight, Owner};
use crate::lease::Posting;
use crate::pd::Pd;
use crate::plane::QpPlane;
use crate::work::{Data, Own, Recv, Work};
use mkey_core::data_plane::PostError;
use mkey_core::device::{AhAttr, Gid, QpInfo};
use mkey_core::error::Result;
use mkey_core::queue_pair::{QpAttr, QpInit, QpKind, QpModify, QpState};
use mkey_core::work::{Payload, RecvWr, SendWr, Sge};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// A queue pair. Cheap to clone; destroyed when the last clone is gone, and what its work used is
/// kept until then.
#[derive(Clone, Debug)]
pub struct Qp {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    plane: QpPlane,
    info: QpInfo,
    peer: PeerAccess,
    in_flight: Arc<InFlight>,
    // Given back after the queue pair is destroyed.
    send: Ticket,
    recv: Ticket,
    pd: Pd,
    /// What grants on it are made of, once there has been one.
    grants: OnceLock<Grants>,
}

/// Where a queue pair is: what its peer needs to connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    /// The identifier of its port.
    pub gid: [u8; 16],
    /// Its number, 24 bits.
    pub qp_num: u32,
    /// Where its send queue begins to count packets, 24 bits.
    pub psn: u32,
    /// Bytes that a packet of its port carries at most.
    pub mtu: u32,
}

impl Qp {
    /// How to create a queue pair whose completions go to `cq`: reliable connected unless told
    /// otherwise.
    pub fn builder<'a>(pd: &'a Pd, cq: &'a Cq) -> QpBuilder<'a> {
        let init =
            QpInit { max_send_wr: 256, max_recv_wr: 256, ..QpInit::new(QpKind::Rc, cq.handle()) };
        QpBuilder { pd, send: cq, recv: cq, init, peer: PeerAccess::ALL }
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// What the device calls it.
    pub fn info(&self) -> QpInfo {
        self.inner.info
    }

    /// Where it is, for its peer.
    pub fn endpoint(&self) -> Endpoint {
        let port = self.inner.pd.device().port();
        let qp_num = self.inner.info.qp_num;
        Endpoint { gid: port.gid.0, qp_num, psn: first_psn(qp_num), mtu: port.active_mtu }
    }

    /// Connects it to its peer, to RTS. One that was connected before begins anew: what it had in
    /// flight is never heard of again, its memory is let go of, and its grants are lost.
    ///
    /// # Errors
    /// As the device refuses a step.
    pub fn connect(&self, peer: &Endpoint) -> Result<()> {
        if self.query()?.state != QpState::Reset {
            self.modify(&QpModify { state: Some(QpState::Reset), ..QpModify::default() })?;
        }
        let mtu = self.endpoint().mtu.min(peer.mtu).clamp(256, 4096);
        let path_mtu = 1 << mtu.ilog2();
        let gid_index = self.inner.pd.device().port().gid_index;
        let ah = AhAttr { gid: Gid(peer.gid), gid_index, port: 1, traffic_class: 0, hop_limit: 64 };
        let init = QpModify::init(self.inner.peer.rights());
        for step in [
            &init,
            &QpModify::rtr(ah, peer.qp_num, path_mtu, peer.psn),
            &QpModify::rts(first_psn(self.inner.info.qp_num)),
        ] {
            self.modify(step)?;
        }
        Ok(())
    }

    /// Changes attributes and state, by the verb. What is in flight when it goes to RESET is never
    /// heard of again: its memory is let go of, and its grants are lost.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn modify(&self, change: &QpModify) -> Result<()> {
        let modify = || self.inner.pd.device().control().modify_qp(self.inner.info.handle, change);
        match change.state {
            Some(QpState::Reset) => self.inner.in_flight.flush_after(modify),
            _ => modify(),
        }
    }

    /// Its attributes.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn query(&self) -> Result<QpAttr> {
        self.inner.pd.device().control().query_qp(self.inner.info.handle)
    }

    /// Puts it into ERR: all its work completes, flushed.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn fail(&self) -> Result<()> {
        self.modify(&QpModify { state: Some(QpState::Err), ..QpModify::default() })
    }

    /// Posts a chain to the send queue. What it names is kept until its completions have been
    /// polled, or one of later work.
    ///
    /// # Errors
    /// How many were posted, and why the next was not: `QueueFull`, `QpState`, `TooManySges`,
    /// `TooMuchInline`, `OutOfRange` beyond the peer's memory.
    pub fn post(&self, chain: &[Work<'_>]) -> std::result::Result<(), PostError> {
        self.inner.post(chain)
    }

    /// Posts a chain to the receive queue.
    ///
    /// # Errors
    /// How many were posted, and why the next was not: `QueueFull`, `QpState`, `TooManySges`.
    pub fn post_recv(&self, chain: &[Recv<'_>]) -> std::result::Result<(), PostError> {
        self.inner.post_recv(chain)
    }
}

impl Inner {
    /// What grants on it are made of.
    pub(crate) fn grants(&self) -> Result<&Grants> {
        match self.grants.get() {
            Some(grants) => Ok(grants),
            None => {
                let grants = self.pd.grants()?;
                Ok(self.grants.get_or_init(|| grants))
            }
        }
    }

    pub(crate) fn post(&self, chain: &[Work<'_>]) -> std::result::Result<(), PostError> {
        let mut sges: SmallVec<[Sge; 16]> = SmallVec::new();
        // Whether each is to be posted, as far as they are sound.
        let mut sound: SmallVec<[bool; 16]> = SmallVec::new();
        let mut refused = None;
        for work in chain {
            match self.check(work, &mut sges) {
                Ok(posting) => sound.push(posting == Posting::Post),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let works = || chain.iter().zip(&sound).filter_map(|(work, post)| post.then_some(work));
        let mut queue = self.in_flight.send();
        let mut wrs: SmallVec<[SendWr<'_>; 8]> = SmallVec::new();
        let mut rest = &sges[..];
        for work in works() {
            let number = queue.push(Entry {
                id: work.id,
                holds: holds(work.data),
                own: work.own.map(owner),
            });
            let payload = match work.data {
                Data::Inline(bytes) => Payload::Inline(bytes),
                Data::Slices(slices) => {
                    let (these, after) = rest.split_at_checked(slices.len()).unwrap_or((rest, &[]));
                    rest = after;
                    Payload::Sges(these)
                }
            };
            let (op, flags, dest) = (work.op, work.flags, work.dest);
            let wr_id = self.send.wr_id(number);
            wrs.push(SendWr { wr_id, op, payload, flags, dest, srq: None });
        }
        let posted = if wrs.is_empty() { Ok(()) } else { self.plane.post_send(&wrs) };
        let Err(error) = posted else {
            drop(queue);
            let posted = sound.len();
            return refused.map_or(Ok(()), |error| Err(PostError { posted, error }));
        };
        let done = error.posted.min(wrs.len());
        queue.unpost(wrs.len() - done);
        drop(queue);
        let own: SmallVec<[_; 8]> = works().skip(done).filter_map(|work| work.own).collect();
        // Each from the state that the one before it left.
        for own in own.iter().rev() {
            if let Own::Lease(hook) = own {
                hook.lease.unposted(hook);
            }
        }
        let posted =
            sound.iter().enumerate().filter(|(_, post)| **post).map(|(at, _)| at).nth(done);
        Err(PostError { posted: posted.unwrap_or(sound.len()), error: error.error })
    }

    /// Whether it is to be posted, and with what.
    fn check(&self, work: &Work<'_>, sges: &mut SmallVec<[Sge; 16]>) -> Result<Posting> {
        match &work.own {
            Some(Own::Lease(hook)) if !hook.claimed => return hook.lease.posting(hook, self),
            Some(_) => return Ok(Posting::Post),
            None => {}
        }
        if work.idle {
            return Ok(Posting::Skip);
        }
        work.fits()?;
        if let Data::Slices(slices) = work.data {
            gather(slices, sges)?;
        }
        Ok(Posting::Post)
    }

    fn post_recv(&self, chain: &[Recv<'_>]) -> std::result::Result<(), PostError> {
        let mut sges: SmallVec<[Sge; 16]> = SmallVec::new();
        let mut sound = chain.len();
        let mut refused = None;
        for (index, recv) in chain.iter().enumerate() {
            if let Err(error) = gather(recv.into, &mut sges) {
                (sound, refused) = (index, Some(error));
                break;
            }
        }
        let mut queue = self.in_flight.recv();
        let mut wrs: SmallVec<[RecvWr<'_>; 8]> = SmallVec::new();
        let mut rest = &sges[..];
        for recv in chain.iter().take(sound) {
            let holds = holds(Data::Slices(recv.into));
            let number = queue.push(Entry { id: recv.id, holds, own: None });
            let (these, after) = rest.split_at_checked(recv.into.len()).unwrap_or((rest, &[]));
            rest = after;
            wrs.push(RecvWr { wr_id: self.recv.wr_id(number), sges: these });
        }
        let posted = self.plane.post_recv(&wrs);
        let done = match &posted {
            Ok(()) => sound,
            Err(error) => error.posted.min(sound),
        };
        queue.unpost(sound - done);
        drop(queue);
        posted?;
        refused.map_or(Ok(()), |error| Err(PostError { posted: done, error }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = self.pd.device();
        if let Err(error) = device.control().destroy_qp(self.info.handle) {
            device.failed_drop(&error);
            // Its work may still run: what that uses must stay.
            std::mem::forget(self.in_flight.clone());
            return;
        }
        self.in_flight.flush();
    }
}

fn gather(slices: &[crate::slice::Slice], sges: &mut SmallVec<[Sge; 16]>) -> Result<()> {
    for slice in slices {
        sges.push(slice.sge()?);
    }
    Ok(())
}

fn owner(own: Own<'_>) -> Owner {
    match own {
        Own::Lease(hook) => Owner::Lease(hook.lease.clone(), hook.turn, hook.step),
        Own::Window(window) => Owner::Window(window.clone()),
    }
}

fn holds(data: Data<'_>) -> SmallVec<[crate::keep::Hold; 2]> {
    match data {
        // Taken out, for the tests that must notice.
        _ if cfg!(mkey_break_holds) => SmallVec::new(),
        Data::Inline(_) => SmallVec::new(),
        Data::Slices(slices) => slices.iter().map(|slice| slice.hold.clone()).collect(),
    }
}

/// Packets are counted from a place of the queue pair's own, so that those of a former one with
/// the same peer are not taken for its.
fn first_psn(qp_num: u32) -> u32 {
    qp_num.wrapping_mul(0x9e37_79b1) >> 8
}

/// How to create a queue pair.
#[derive(Clone, Debug)]
#[must_use]
pub struct QpBuilder<'a> {
    pd: &'a Pd,
    send: &'a Cq,
    recv: &'a Cq,
    init: QpInit,
    peer: PeerAccess,
}

impl<'a> QpBuilder<'a> {
    /// Its transport.
    pub fn kind(mut self, kind: QpKind) -> Self {
        self.init.kind = kind;
        self
    }

    /// Completions of receives go here.
    pub fn recv_cq(mut self, cq: &'a Cq) -> Self {
        self.recv = cq;
        self
    }

    /// Work requests that its queues hold: 256 each unless told otherwise.
    pub fn depth(mut self, send: u32, recv: u32) -> Self {
        (self.init.max_send_wr, self.init.max_recv_wr) = (send, recv);
        self
    }

    /// Slices of one work request, to send and to receive: 4 each unless told otherwise.
    pub fn max_slices(mut self, send: u32, recv: u32) -> Self {
        (self.init.max_send_sge, self.init.max_recv_sge) = (send, recv);
        self
    }

    /// Bytes of inline data of one work request: 64 unless told otherwise.
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.init.max_inline = bytes;
        self
    }

    /// What the peer may do by this queue pair, whatever keys it has: all unless told otherwise.
    pub fn peer(mut self, access: PeerAccess) -> Self {
        self.peer = access;
        self
    }

    /// Creates it, in RESET.
    ///
    /// # Errors
    /// As the device refuses: `Argument` beyond its limits, `TableFull`.
    pub fn create(self) -> Result<Qp> {
        let device = self.pd.device();
        let init = QpInit { send_cq: self.send.handle(), recv_cq: self.recv.handle(), ..self.init };
        // Room for no more than the device takes: it refuses what is deeper.
        let most = device.capabilities().max_qp_wr;
        let (deep_send, deep_recv) = (init.max_send_wr.min(most), init.max_recv_wr.min(most));
        let in_flight = Arc::new(InFlight::new(deep_send, deep_recv));
        let send = self.send.join(&in_flight, self.pd, false)?;
        let recv = self.recv.join(&in_flight, self.pd, true)?;
        let info = device.control().create_qp(self.pd.handle(), &init)?;
        let plane = match device.plane().qp(info.handle) {
            Ok(plane) => plane,
            Err(error) => {
                destroy(device, info);
                return Err(error);
            }
        };
        let (pd, peer) = (self.pd.clone(), self.peer);
        let grants = OnceLock::new();
        let inner = Inner { plane, info, peer, in_flight, send, recv, pd, grants };
        Ok(Qp { inner: Arc::new(inner) })
    }
}

fn destroy(device: &crate::device::Device, info: QpInfo) {
    if let Err(error) = device.control().destroy_qp(info.handle) {
        device.failed_drop(&error);
    }
}
