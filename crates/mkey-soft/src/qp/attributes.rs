//! Attributes and states: `modify_qp`, `query_qp`, destruction.

use super::packets::peer;
use super::requester::Sq;
use super::{After, Listening, Qp};
use crate::core::{forget_qp, with_executor};
use crate::drain::drain_ended;
use crate::sync::lock;
use mkey_core::error::{Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;

/// The attributes of a queue pair in RESET.
pub(super) fn fresh() -> QpAttr {
    QpAttr {
        state: QpState::Reset,
        rights: Rights::empty(),
        port: 0,
        pkey_index: 0,
        qkey: 0,
        path_mtu: 0,
        dest_qp_num: 0,
        rq_psn: 0,
        sq_psn: 0,
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: 0,
        timeout: 0,
        retry_cnt: 0,
        rnr_retry: 0,
        ah: None,
    }
}

impl Qp {
    /// Changes attributes and state; all or nothing.
    pub(crate) fn modify(&self, change: &QpModify) -> Result<(), Reason> {
        check_values(change, crate::capabilities::MAX_RD_ATOMIC)?;
        if change.state == Some(QpState::Rtr)
            && let Some(port) = &self.core.port
        {
            let peer = change.ah.map(|ah| (ah.gid, change.dest_qp_num.unwrap_or_default()));
            port.expect(&self.core, peer);
        }
        if change.state == Some(QpState::Reset) {
            self.last_replies();
        }
        let mut after = After::default();
        let rights = self.gate.view().rights();
        let result = self.modify_locked(change, &mut after);
        after.run();
        let ends = matches!(change.state, Some(QpState::Reset | QpState::Err));
        // Also rights that were taken away: a peer's own WRITE may have begun before.
        let less = change.rights.is_some_and(|now| !now.contains(rights));
        if result.is_ok() && (ends || less) {
            drain_ended(&self.core);
        }
        result
    }

    fn modify_locked(&self, change: &QpModify, after: &mut After) -> Result<(), Reason> {
        let mut listening = lock(&self.listening);
        let mut sq = lock(&self.sq);
        let mut rq = lock(&self.rq);
        let view = self.gate.view();
        if view.destroyed() {
            return Err(Reason::UnknownHandle { object: Object::Qp, handle: self.handle.0 });
        }
        let from = view.state();
        let to = change.state.unwrap_or(from);
        if change.state.is_some() {
            let ends = self.xrc.as_ref().map(|end| end.is_send());
            check_transition(Form { kind: self.kind, ends }, from, to, change)?;
        }
        if to == QpState::Reset {
            rq.ring.clear();
            rq.begun = None;
            *listening = None;
            self.drop_sends(&mut sq);
            sq.attr = fresh();
            self.gate.change(|view| {
                let view = view.with_state(QpState::Reset).with_rights(Rights::empty());
                view.with_reads(false).anew()
            });
            self.forget_completions();
            return Ok(());
        }
        apply(&mut sq.attr, change);
        rq.peer = peer(&sq.attr);
        (rq.qkey, rq.min_rnr_timer) = (sq.attr.qkey, sq.attr.min_rnr_timer);
        let (rights, reads) = (sq.attr.rights, sq.attr.max_dest_rd_atomic > 0);
        let connects = from == QpState::Init && to == QpState::Rtr;
        if connects && self.core.port.is_some() {
            *listening = Some(Box::new(Listening::new(self.kind, &sq.attr)));
        } else if let Some(listening) = &mut *listening
            && change.ah.is_some()
        {
            listening.set(&sq.attr);
        }
        let Sq { attr, flight, .. } = &mut *sq;
        if let Some(flight) = flight {
            flight.set(attr);
        }
        self.gate.change(|view| {
            let view = view.with_rights(rights).with_reads(reads);
            if connects { view.anew() } else { view }
        });
        match to {
            QpState::Err => {
                self.fail_receives(&mut rq, after);
                drop(rq);
                self.flush_sends(&mut sq, after);
            }
            _ => {
                self.gate.change(|view| view.with_state(to));
                drop(rq);
                sq.draining = from == QpState::Rts && to == QpState::Sqd;
                if matches!(to, QpState::Rts | QpState::Sqd) {
                    let now = self.core.timers.now();
                    with_executor(|executor| self.resume(&mut sq, executor, now, after));
                }
            }
        }
        Ok(())
    }

    /// The attributes as they are.
    pub(crate) fn query(&self) -> QpAttr {
        let sq = lock(&self.sq);
        let view = self.gate.view();
        QpAttr { state: view.state(), rights: sq.attr.rights, ..sq.attr.clone() }
    }

    /// As drivers do when a queue pair's life ends: who polls on is not told of it.
    fn forget_completions(&self) {
        self.send_cq.purge(self.num);
        if !std::sync::Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.purge(self.num);
        }
    }

    /// Ends the queue pair: what is queued is dropped, and nothing reaches it any more.
    pub(crate) fn destroy(&self) {
        self.last_replies();
        forget_qp(self.core.options.gid, self.num);
        {
            let mut listening = lock(&self.listening);
            let mut sq = lock(&self.sq);
            let mut rq = lock(&self.rq);
            self.gate.change(|view| view.with_state(QpState::Reset).anew().dead());
            *listening = None;
            rq.ring.clear();
            rq.begun = None;
            drop(rq);
            self.close_sends(&mut sq);
            self.forget_completions();
        }
        drain_ended(&self.core);
        let ties = lock(&self.ties).take();
        drop(ties);
        self.core.events.forget(|event| {
            matches!(event,
                AsyncEvent::QpFatal(qp)
                | AsyncEvent::QpReqErr(qp)
                | AsyncEvent::QpAccessErr(qp)
                | AsyncEvent::CommEst(qp)
                | AsyncEvent::SqDrained(qp)
                | AsyncEvent::QpLastWqeReached(qp) if *qp == self.handle)
        });
    }
}

fn apply(attr: &mut QpAttr, change: &QpModify) {
    fn set<T: Copy>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    set(&mut attr.rights, change.rights);
    set(&mut attr.port, change.port);
    set(&mut attr.pkey_index, change.pkey_index);
    set(&mut attr.qkey, change.qkey);
    set(&mut attr.path_mtu, change.path_mtu);
    set(&mut attr.dest_qp_num, change.dest_qp_num);
    set(&mut attr.rq_psn, change.rq_psn);
    set(&mut attr.sq_psn, change.sq_psn);
    set(&mut attr.max_rd_atomic, change.max_rd_atomic);
    set(&mut attr.max_dest_rd_atomic, change.max_dest_rd_atomic);
    set(&mut attr.min_rnr_timer, change.min_rnr_timer);
    set(&mut attr.timeout, change.timeout);
    set(&mut attr.retry_cnt, change.retry_cnt);
    set(&mut attr.rnr_retry, change.rnr_retry);
    if change.ah.is_some() {
        attr.ah = change.ah;
    }
}

/// Refuses values that no attribute may have.
fn check_values(change: &QpModify, max_rd_atomic: u8) -> Result<(), Reason> {
    let most = |what, value: Option<u64>, most: u64, allowed| match value {
        Some(value) if value > most => Err(Reason::Argument { what, value, allowed }),
        _ => Ok(()),
    };
    let bits24 = (1 << 24) - 1;
    most("dest_qp_num", change.dest_qp_num.map(u64::from), bits24, "24 bits")?;
    most("rq_psn", change.rq_psn.map(u64::from), bits24, "24 bits")?;
    most("sq_psn", change.sq_psn.map(u64::from), bits24, "24 bits")?;
    most("min_rnr_timer", change.min_rnr_timer.map(u64::from), 31, "0 to 31")?;
    most("timeout", change.timeout.map(u64::from), 31, "0 to 31")?;
    most("retry_cnt", change.retry_cnt.map(u64::from), 7, "0 to 7")?;
    most("rnr_retry", change.rnr_retry.map(u64::from), 7, "0 to 7")?;
    most("pkey_index", change.pkey_index.map(u64::from), 0, "0, the only one")?;
    let (reads, allowed) = (u64::from(max_rd_atomic), "at most the device's max_rd_atomic");
    most("max_rd_atomic", change.max_rd_atomic.map(u64::from), reads, allowed)?;
    most("max_dest_rd_atomic", change.max_dest_rd_atomic.map(u64::from), reads, allowed)?;
    if let Some(port) = change.port.filter(|&port| port != 1) {
        let (what, value, allowed) = ("port", u64::from(port), "1, the only one");
        return Err(Reason::Argument { what, value, allowed });
    }
    if let Some(mtu) = change.path_mtu
        && !crate::link::mtu::SIZES.contains(&mtu)
    {
        let (what, allowed) = ("path_mtu", "256, 512, 1024, 2048 or 4096");
        return Err(Reason::Argument { what, value: u64::from(mtu), allowed });
    }
    Ok(())
}

/// What the attributes that a queue pair needs depend on.
#[derive(Clone, Copy)]
struct Form {
    kind: QpKind,
    /// Of an extended connection: whether it is the sending end.
    ends: Option<bool>,
}

impl Form {
    /// Whether it takes a peer's READs and atomics, and answers.
    fn answers(self) -> bool {
        self.kind == QpKind::Rc && self.ends != Some(true)
    }

    /// Whether it sends and waits for answers.
    fn asks(self) -> bool {
        self.kind == QpKind::Rc && self.ends != Some(false)
    }
}

/// The transitions of a queue pair and what each needs (`ibv_modify_qp`). ERR is reached from all
/// states but RESET (R-ERR-11), RESET from all.
fn check_transition(
    form: Form,
    from: QpState,
    to: QpState,
    change: &QpModify,
) -> Result<(), Reason> {
    use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let refuse = |missing| Err(Reason::QpTransition { from, to, missing });
    let (rc, ud) = (form.kind == QpKind::Rc, form.kind == QpKind::Ud);
    let (asks, answers) = (form.asks(), form.answers());
    let needed: &[(&'static str, bool)] = match (from, to) {
        (Reset, Error) => return refuse(None),
        (_, Reset | Error) | (Init, Init) | (Rts, Rts | Sqd) | (Sqd, Sqd | Rts) => &[],
        (Sqe, Rts) if !rc => &[],
        (Reset, Init) => &[
            ("pkey_index", change.pkey_index.is_none()),
            ("port", change.port.is_none()),
            ("rights", !ud && change.rights.is_none()),
            ("qkey", ud && change.qkey.is_none()),
        ],
        (Init, Rtr) => &[
            ("ah", !ud && change.ah.is_none()),
            ("path_mtu", !ud && change.path_mtu.is_none()),
            ("dest_qp_num", !ud && change.dest_qp_num.is_none()),
            ("rq_psn", !ud && change.rq_psn.is_none()),
            ("max_dest_rd_atomic", answers && change.max_dest_rd_atomic.is_none()),
            ("min_rnr_timer", answers && change.min_rnr_timer.is_none()),
        ],
        (Rtr, Rts) => &[
            ("sq_psn", change.sq_psn.is_none()),
            ("timeout", rc && change.timeout.is_none()),
            ("retry_cnt", asks && change.retry_cnt.is_none()),
            ("rnr_retry", asks && change.rnr_retry.is_none()),
            ("max_rd_atomic", asks && change.max_rd_atomic.is_none()),
        ],
        _ => return refuse(None),
    };
    match needed.iter().find(|(_, missing)| *missing) {
        Some(&(name, _)) => refuse(Some(name)),
        None => check_surplus(form, from, to, change),
    }
}

/// Refuses attributes that can not be set in this transition, as the kernel's table has it.
fn check_surplus(form: Form, from: QpState, to: QpState, change: &QpModify) -> Result<(), Reason> {
    use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd};
    let (rc, ud) = (form.kind == QpKind::Rc, form.kind == QpKind::Ud);
    let (asks, answers) = (form.asks(), form.answers());
    let ends = matches!(to, Reset | Error) || (from, to) == (Rts, Sqd);
    let (resets, inits) = ((from, to) == (Reset, Init), (from, to) == (Init, Init));
    let (connects, starts) = ((from, to) == (Init, Rtr), (from, to) == (Rtr, Rts));
    let drained = (from, to) == (Sqd, Sqd);
    let places = resets || inits;
    let path = connects && !ud;
    let given = [
        ("rights", change.rights.is_some(), !ud),
        ("port", change.port.is_some(), places || drained && rc),
        ("pkey_index", change.pkey_index.is_some(), places || connects || drained),
        ("qkey", change.qkey.is_some(), ud),
        ("path_mtu", change.path_mtu.is_some(), path),
        ("dest_qp_num", change.dest_qp_num.is_some(), path),
        ("rq_psn", change.rq_psn.is_some(), path),
        ("sq_psn", change.sq_psn.is_some(), starts),
        ("max_rd_atomic", change.max_rd_atomic.is_some(), asks && (starts || drained)),
        (
            "max_dest_rd_atomic",
            change.max_dest_rd_atomic.is_some(),
            answers && (connects || drained),
        ),
        ("min_rnr_timer", change.min_rnr_timer.is_some(), answers && !places),
        ("timeout", change.timeout.is_some(), rc && (starts || drained)),
        ("retry_cnt", change.retry_cnt.is_some(), asks && (starts || drained)),
        ("rnr_retry", change.rnr_retry.is_some(), asks && (starts || drained)),
        ("ah", change.ah.is_some(), !ud && (connects || drained)),
    ];
    match given.iter().find(|(_, given, fits)| *given && (ends || !fits)) {
        Some(&(what, ..)) => {
            let allowed = "no attribute of this change of state";
            Err(Reason::Argument { what, value: to as u64, allowed })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_that_does_not_go_with_the_change_of_state_is_refused() {
        use QpState::{Init, Reset, Rtr, Rts, Sqd};
        let check = |kind, from, to, change: &QpModify| {
            let form = Form { kind, ends: None };
            check_transition(form, from, to, change).map_err(|reason| reason.errno())
        };
        let plain = QpModify::default();
        let timer = QpModify { min_rnr_timer: Some(1), ..plain.clone() };
        let timeout = QpModify { timeout: Some(1), ..plain.clone() };
        let port = QpModify { port: Some(1), ..plain.clone() };
        let rights = QpModify { rights: Some(Rights::empty()), ..plain.clone() };
        assert_eq!(check(QpKind::Rc, Rts, Rts, &plain), Ok(()));
        assert_eq!(check(QpKind::Rc, Rts, Rts, &timer), Ok(()));
        assert_eq!(check(QpKind::Uc, Rts, Rts, &timer), Err(22));
        assert_eq!(check(QpKind::Rc, Rts, Rts, &timeout), Err(22));
        assert_eq!(check(QpKind::Rc, Sqd, Sqd, &timeout), Ok(()));
        assert_eq!(check(QpKind::Rc, Rts, Rts, &QpModify::rts(1)), Err(22));
        assert_eq!(check(QpKind::Rc, Rtr, Rts, &QpModify::rts(1)), Ok(()));
        assert_eq!(check(QpKind::Rc, Init, Init, &port), Ok(()));
        assert_eq!(check(QpKind::Rc, Rts, Rts, &port), Err(22));
        assert_eq!(check(QpKind::Rc, Rts, Rts, &rights), Ok(()));
        assert_eq!(check(QpKind::Ud, Rts, Rts, &rights), Err(22));
        assert_eq!(check(QpKind::Rc, Rts, QpState::Err, &rights), Err(22));
        assert_eq!(check(QpKind::Rc, Reset, Init, &QpModify::init(Rights::empty())), Ok(()));
    }
}
