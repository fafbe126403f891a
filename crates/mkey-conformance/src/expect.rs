//! The sets of consequences that rules name: D-ACC, D-INV, D-OP, D-LOC, D-BIND.

use crate::fixture::{Side, Subject};
use crate::memory::PAGE;
use crate::objects::Mw;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{keeps, known_for};
use mkey_core::device::Device;
use mkey_core::error::errno::EINVAL;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::QpState;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, SendOp, Sge};

/// Looks at the status of a completion.
pub trait Expect {
    /// Fails unless the status is `status`.
    #[track_caller]
    fn is(self, status: WcStatus) -> Completion;
    /// Fails unless the status is one of `statuses`.
    #[track_caller]
    fn one_of(self, statuses: &[WcStatus]) -> Completion;
    /// Fails unless the work request succeeded.
    #[track_caller]
    fn ok(self) -> Completion;
}

impl Expect for Completion {
    #[track_caller]
    fn is(self, status: WcStatus) -> Completion {
        self.one_of(&[status])
    }

    #[track_caller]
    fn one_of(self, statuses: &[WcStatus]) -> Completion {
        let right = |&status: &WcStatus| self.status == status || known_for(self.status, status);
        assert!(statuses.iter().any(right), "{self:?}, which has to be {statuses:?}");
        self
    }

    #[track_caller]
    fn ok(self) -> Completion {
        self.is(WcStatus::Success)
    }
}

/// Posts `op` and a SEND after it, both on `from`; `op` has to end with `status` and the SEND to be
/// flushed.
#[track_caller]
fn fails_and_flushes<S: Subject>(
    from: &Side<'_, S>,
    status: WcStatus,
    op: SendOp<'_>,
    sges: &[Sge],
) -> Completion {
    let (first, second) = (from.wr_id(), from.wr_id());
    // The failing one is not signaled: an error completes all the same (R-LOC-13).
    from.chain(&[from.wr(first, op, sges).unsignaled(), from.wr(second, SendOp::Send, &[])])
        .expect("post_send");
    let failed = from.sent().is(status);
    assert_eq!((failed.wr_id, failed.qp_num), (first, from.qp.qp_num));
    let flushed = from.sent().is(WcStatus::WrFlushErr);
    assert_eq!(flushed.wr_id, second);
    from.is_in(QpState::Err);
    // The end of a shared receive queue's use is told in any case (R-ORD-12).
    let mut events = from.events();
    events.retain(|event| !matches!(event, AsyncEvent::QpLastWqeReached(_)));
    assert_eq!(events, [], "the completion tells it to the requester (R-ERR-06)");
    failed
}

impl<S: Subject> Pair<'_, S> {
    /// D-ACC: the peer refuses `op` of `a` for its key; both sides end in ERR, the responder is
    /// told by an event.
    #[track_caller]
    pub fn refused_access(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        let failed = self.refused(WcStatus::RemAccessErr, op, sges);
        if keeps("R-ERR-02") {
            self.b.event(AsyncEvent::QpAccessErr);
        }
        failed
    }

    /// D-INV: the peer refuses the form of `op` of `a`; both sides end in ERR.
    #[track_caller]
    pub fn refused_form(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        self.refused(WcStatus::RemInvReqErr, op, sges)
    }

    #[track_caller]
    fn refused(&self, status: WcStatus, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        let sink = self.b.mr(PAGE, Rights::LOCAL_WRITE);
        let waiting = self.b.recv(&[sink.sge(0, 64)]);
        let failed = fails_and_flushes(&self.a, status, op, sges);
        let flushed = self.b.received().is(WcStatus::WrFlushErr);
        assert_eq!(flushed.wr_id, waiting, "the receive that waited is flushed");
        self.b.is_in(QpState::Err);
        sink.untouched();
        failed
    }

    /// D-OP: `op` of `a` meets a receive (posted by the caller) that can not take it, which
    /// completes with `status`; the requester gets REM_OP_ERR; both sides end in ERR.
    #[track_caller]
    pub fn refused_receive(&self, recv: u64, status: WcStatus, op: SendOp<'_>, sges: &[Sge]) {
        fails_and_flushes(&self.a, WcStatus::RemOpErr, op, sges);
        assert_eq!(self.b.received().is(status).wr_id, recv);
        self.b.is_in(QpState::Err);
    }

    /// D-LOC: `op` of `a` fails on its own side with `status`; the peer never hears of it.
    #[track_caller]
    pub fn fails_locally(&self, status: WcStatus, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        fails_here(&self.a, &self.b, status, op, sges)
    }

    /// D-LOC on the side `b`, which owns the memory in most tests.
    #[track_caller]
    pub fn fails_at_b(&self, status: WcStatus, op: SendOp<'_>) -> Completion {
        fails_here(&self.b, &self.a, status, op, &[])
    }

    /// The bind `op` of `b` names an object that does not exist: a bind error, or EINVAL at once by
    /// a verb that takes objects where the work request has keys.
    #[track_caller]
    pub fn refused_name(&self, op: SendOp<'_>) {
        match self.b.post_errno(op, &[]) {
            Err(errno) => assert_eq!((errno, self.b.state()), (EINVAL, QpState::Rts)),
            Ok(()) => {
                self.b.sent().is(WcStatus::MwBindErr);
                self.are(QpState::Rts, QpState::Err);
                self.restate();
            }
        }
    }

    /// D-BIND: the bind `op` of `mw` fails at `b` and leaves the window unbound as it was; it can
    /// be bound to `good` afterwards. Ends with the window deallocated.
    #[track_caller]
    pub fn refused_bind(&self, mw: Mw, op: SendOp<'_>, good: &Mr) {
        self.fails_at_b(WcStatus::MwBindErr, op);
        self.restate();
        self.is_unbound(mw, good);
    }

    /// `mw` is not bound, and can be bound to `good`. Ends with the window deallocated.
    #[track_caller]
    pub fn is_unbound(&self, mut mw: Mw, good: &Mr) {
        let own = self.a.mr(PAGE, Rights::LOCAL_WRITE);
        for key in [mw.key, mw.key.next()] {
            self.refused_access(SendOp::Read(good.remote_by(key, 0)), &[own.sge(0, 8)]);
            self.restate();
        }
        self.b.bind(&mut mw, good, 0, 64, Rights::REMOTE_READ);
        self.a.run(SendOp::Read(mw.remote(good, 0)), &[own.sge(0, 8)]).ok();
        own.holds(0, &good.bytes(0, 8));
        self.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw");
    }
}

#[track_caller]
fn fails_here<S: Subject>(
    here: &Side<'_, S>,
    peer: &Side<'_, S>,
    status: WcStatus,
    op: SendOp<'_>,
    sges: &[Sge],
) -> Completion {
    let failed = fails_and_flushes(here, status, op, sges);
    peer.quiet();
    assert_eq!(peer.state(), QpState::Rts, "a local error leaves the peer alone");
    assert_eq!(peer.events(), []);
    failed
}
