//! Queue pairs.
//!
//! A queue pair has two sides, each behind its own lock: the requester (send queue) and the
//! responder (receive queue). Where the peer is reached by a link, both sides are state machines
//! that make and take packets: the send side's is part of it ([`flight`]), the responder's
//! ([`packets`]) is behind a lock of its own. The order of locks over all queue pairs is: one
//! responder of packets, one send side, one receive side, then shared receive queue, completion
//! queue, event queue. Taken under a responder of packets, and alone: who makes a lease, then the tables
//! of registrations. Taking leases back takes no lock. A thread never holds two locks of one rank; what it must do to another send side (flush it) is put off in an
//! [`After`] until it holds none. The part of the state that a peer needs for plain RDMA is in a
//! word of its own, the [`Gate`](gate::Gate).

mod attributes;
mod direct;
mod exchange;
mod flight;
mod gate;
mod packets;
mod post;
mod requester;
mod responder;
mod stored;
mod wait;

pub(crate) use gate::Connection;
pub(crate) use packets::Todo;
pub(crate) use responder::settle;

use crate::completion::Cq;
use crate::core::Core;
use crate::object::{PdUse, Use};
use crate::receive::{Receive, Srq};
use crate::sync::lock;
use crate::xrc::{End, Xrcd};
use gate::Gate;
use mkey_core::device::QpHandle;
use mkey_core::engine::QpScope;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpInit, QpKind, QpState};
use mkey_core::refusal::{PdId, QpId};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::Completion;
use packets::Listening;
use requester::Sq;
use responder::Rq;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) id: QpId,
    pub(crate) num: u32,
    pub(crate) handle: QpHandle,
    pub(crate) kind: QpKind,
    pub(crate) pd: PdId,
    pub(crate) core: Arc<Core>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    /// Which end of an extended connection it is, if it is one.
    xrc: Option<Box<End>>,
    /// Ends with `destroy_qp`, although others may hold the queue pair itself for longer.
    ties: Mutex<Option<Ties>>,
    limits: Limits,
    gate: Gate,
    /// The responder, if the device has a link, from RTR to RESET.
    listening: Mutex<Option<Box<Listening>>>,
    /// The program may see already what the responder has not answered yet.
    owes: AtomicBool,
    sq: Mutex<Sq>,
    rq: Mutex<Rq>,
    me: Weak<Qp>,
}

/// What a queue pair takes.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_send_wr: u32,
    max_send_sge: u32,
    max_inline: u32,
    signal_all: bool,
}

/// What a queue pair keeps from being destroyed before it.
#[derive(Debug)]
pub(crate) struct Ties {
    pub(crate) pd: PdUse,
    pub(crate) send_cq: Use<Cq>,
    pub(crate) recv_cq: Use<Cq>,
    pub(crate) srq: Option<Use<Srq>>,
    pub(crate) xrcd: Option<Use<Xrcd>>,
}

/// What is to be done once no lock is held. Mostly nothing.
#[derive(Debug, Default)]
pub(crate) struct After(Option<Box<Work>>);

#[derive(Debug, Default)]
struct Work {
    /// Queue pairs that failed as responders: their send queues flush.
    flush: Vec<Arc<Qp>>,
    /// Completion queues that overran: their queue pairs fail.
    overrun: Vec<(Arc<Core>, Arc<Cq>)>,
}

impl After {
    /// Does it.
    #[inline]
    pub(crate) fn run(self) {
        if let Some(work) = self.0 {
            Self::work(*work);
        }
    }

    #[cold]
    fn work(mut work: Work) {
        loop {
            let mut more = Self::default();
            for qp in work.flush {
                let mut sq = lock(&qp.sq);
                qp.flush_sends(&mut sq, &mut more);
            }
            for (core, cq) in work.overrun {
                core.events.push(AsyncEvent::CqErr(cq.handle));
                for qp in core.users_of(&cq) {
                    qp.fail(&mut more);
                }
            }
            match more.0 {
                Some(next) => work = *next,
                None => break,
            }
        }
    }

    #[cold]
    fn later(&mut self) -> &mut Work {
        self.0.get_or_insert_default()
    }
}

impl Qp {
    /// A queue pair in RESET.
    pub(crate) fn new(
        handle: QpHandle,
        id: QpId,
        num: u32,
        init: &QpInit,
        core: Arc<Core>,
        ties: Ties,
    ) -> Arc<Self> {
        let (send_cq, recv_cq) = (ties.send_cq.object(), ties.recv_cq.object());
        let srq = ties.srq.as_ref().map(Use::object);
        let recv_depth = if srq.is_some() || init.xrc.is_some() { 0 } else { init.max_recv_wr };
        let xrc = match (init.xrc, &ties.xrcd) {
            (None, _) => None,
            (Some(_), Some(xrcd)) => Some(Box::new(End::receive(xrcd.object()))),
            (Some(_), None) => Some(Box::new(End::Send)),
        };
        Arc::new_cyclic(|me| Self {
            id,
            num,
            handle,
            kind: init.kind,
            pd: ties.pd.id(),
            ties: Mutex::new(Some(ties)),
            limits: Limits {
                // The receiving end of an extended connection sends nothing.
                max_send_wr: match xrc.as_deref() {
                    Some(End::Receive { .. }) => 0,
                    _ => init.max_send_wr,
                },
                max_send_sge: init.max_send_sge,
                max_inline: init.max_inline,
                signal_all: init.signal_all,
            },
            gate: Gate::new(),
            listening: Mutex::default(),
            owes: AtomicBool::new(false),
            sq: Mutex::new(Sq::new(&send_cq)),
            rq: Mutex::new(Rq::new(recv_depth, init.max_recv_sge)),
            core,
            send_cq,
            recv_cq,
            srq,
            xrc,
            me: me.clone(),
        })
    }

    pub(crate) fn weak(&self) -> Weak<Qp> {
        self.me.clone()
    }

    /// For bind, invalidation and fast registration.
    #[inline]
    fn scope(&self) -> QpScope {
        QpScope { pd: self.pd, qp: self.id }
    }

    fn state(&self) -> QpState {
        self.gate.view().state()
    }

    /// Takes note of a lost completion.
    #[cold]
    fn overran(&self, cq: &Arc<Cq>, after: &mut After) {
        after.later().overrun.push((self.core.clone(), cq.clone()));
    }

    /// Adds a completion of the receive queue. Errors count as solicited.
    fn complete_receive(&self, completion: &Completion, solicited: bool, after: &mut After) {
        let solicited = solicited || completion.status != WcStatus::Success;
        let named = self.named();
        let home = named.as_ref().and_then(|srq| srq.xrc.as_ref());
        let cq = home.map_or(&self.recv_cq, |home| &home.cq);
        if cq.push(completion, None, solicited).is_err() {
            self.overran(cq, after);
        }
    }

    /// Of an extended connection: the shared receive queue that the request in hand names.
    #[inline]
    fn named(&self) -> Option<Arc<Srq>> {
        self.xrc.as_ref()?.named()
    }

    /// Takes note of the shared receive queue that a request names. Where its accesses are checked;
    /// `None` if it names none although it must.
    #[inline]
    pub(crate) fn enter(&self, srq: Option<u32>) -> Option<PdId> {
        match &self.xrc {
            None => Some(self.pd),
            Some(end) => end.name(srq),
        }
    }

    /// Where a peer's accesses are checked: of an extended connection in the domain of the queue that
    /// the request names.
    #[inline]
    fn domain(&self) -> PdId {
        self.named().map_or(self.pd, |srq| srq.pd)
    }

    /// Where accesses are checked of a request that names this queue, if there is such a queue.
    fn domain_of(&self, srq: Option<u32>) -> Option<PdId> {
        match &self.xrc {
            None => Some(self.pd),
            Some(end) => end.find(srq).map(|srq| srq.pd),
        }
    }

    /// A completion with nothing but the work request's number and a status.
    fn bare(&self, wr_id: u64, status: WcStatus, opcode: WcOpcode) -> Completion {
        Completion {
            wr_id,
            status,
            opcode,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qp_num: self.num,
            src_qp: 0,
            has_grh: false,
            vendor_err: 0,
        }
    }

    fn receive_error(
        &self,
        receive: &Receive,
        status: WcStatus,
        vendor_err: u32,
        after: &mut After,
    ) {
        let completion =
            Completion { vendor_err, ..self.bare(receive.wr_id, status, WcOpcode::Recv) };
        self.complete_receive(&completion, true, after);
    }

    /// Puts both sides into the error state.
    pub(crate) fn fail(&self, after: &mut After) {
        let mut sq = lock(&self.sq);
        self.fail_receives(&mut lock(&self.rq), after);
        self.flush_sends(&mut sq, after);
    }

    /// Looks at the head of the send queue: a deadline has passed.
    pub(crate) fn on_timer(&self, now: std::time::Duration) {
        let mut after = After::default();
        crate::core::with_executor(|executor| {
            self.resume(&mut lock(&self.sq), executor, now, &mut after);
        });
        after.run();
    }
}
