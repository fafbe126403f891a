//! Two connected queue pairs.

use crate::fixture::{Config, Side, Station, Subject};
use crate::memory::PAGE;
use crate::registry::keeps;
use mkey_core::device::{Device, PdHandle};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::SendOp;
use std::sync::Arc;

/// Two connected queue pairs. By custom `a` asks and `b` answers.
pub struct Pair<'s, S: Subject> {
    /// The requester.
    pub a: Side<'s, S>,
    /// The responder.
    pub b: Side<'s, S>,
}

impl<'s, S: Subject> Pair<'s, S> {
    /// Reliable connected.
    #[track_caller]
    pub fn rc(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Rc))
    }

    /// Unreliable connected.
    #[track_caller]
    pub fn uc(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Uc))
    }

    /// Unreliable datagram, each the other's destination.
    #[track_caller]
    pub fn ud(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Ud))
    }

    /// Reliable connected, with a change to the usual configuration.
    #[track_caller]
    pub fn rc_with(subject: &'s S, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(QpKind::Rc);
        change(&mut config);
        Self::new(subject, &config)
    }

    /// Opens devices and connects a pair on them.
    #[track_caller]
    pub fn new(subject: &'s S, config: &Config) -> Self {
        let (a, b) = subject.open();
        let same = Arc::ptr_eq(&a, &b);
        let at_a = Arc::new(Station::new(subject, a));
        let at_b = if same { Arc::clone(&at_a) } else { Arc::new(Station::new(subject, b)) };
        let pd_a = at_a.device().alloc_pd().expect("alloc_pd");
        let pd_b = at_b.device().alloc_pd().expect("alloc_pd");
        Self::connected(Side::new(&at_a, pd_a, config), Side::new(&at_b, pd_b, config))
    }

    /// Another pair on the same devices and in the same protection domains.
    #[track_caller]
    pub fn beside(&self) -> Self {
        self.in_domains(self.a.pd, self.b.pd)
    }

    /// Another pair on the same devices, in protection domains of its own.
    #[track_caller]
    pub fn apart(&self) -> Self {
        self.in_domains(self.a.new_pd(), self.b.new_pd())
    }

    #[track_caller]
    fn in_domains(&self, pd_a: PdHandle, pd_b: PdHandle) -> Self {
        Self::connected(
            Side::new(&self.a.station, pd_a, &self.a.config),
            Side::new(&self.b.station, pd_b, &self.b.config),
        )
    }

    #[track_caller]
    fn connected(a: Side<'s, S>, b: Side<'s, S>) -> Self {
        let pair = Self { a, b };
        pair.connect();
        pair
    }

    /// Both from RESET to RTS.
    #[track_caller]
    fn connect(&self) {
        for (side, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            side.to_init();
            side.to_rtr(peer);
        }
        for side in [&self.a, &self.b] {
            side.to_rts();
        }
    }

    /// Waits until both are in these states.
    #[track_caller]
    pub fn are(&self, a: QpState, b: QpState) {
        self.a.is_in(a);
        self.b.is_in(b);
    }

    /// Both through ERR and RESET back to RTS (R-ERR-08); completions not yet taken are dropped, and
    /// the events so far forgotten.
    #[track_caller]
    pub fn restate(&self) {
        // From RESET there is no way to ERR (R-ERR-11).
        for side in [&self.a, &self.b].into_iter().filter(|side| side.state() != QpState::Reset) {
            side.go(QpState::Err);
        }
        for side in [&self.a, &self.b] {
            side.go(QpState::Reset);
            if !keeps("R-ERR-08") && side.state() == QpState::Err {
                side.go(QpState::Reset);
            }
            while side.sends.next().is_some() {}
            while side.recvs.next().is_some() {}
            side.station.forget_events(side.qp.handle);
        }
        self.connect();
    }

    /// A message each way arrives whole: the pair works.
    #[track_caller]
    pub fn works(&self) {
        let grh = if self.a.config.kind == QpKind::Ud { 40 } else { 0 };
        for (from, to) in [(&self.a, &self.b), (&self.b, &self.a)] {
            let source = from.mr(PAGE, Rights::empty());
            let sink = to.mr(PAGE, Rights::LOCAL_WRITE);
            let recv = to.recv(&[sink.sge(0, 100 + grh)]);
            let sent = from.run(SendOp::Send, &[source.sge(7, 100)]);
            assert_eq!(sent.status, WcStatus::Success, "a plain SEND failed");
            let received = to.received();
            assert_eq!((received.wr_id, received.status), (recv, WcStatus::Success));
            assert_eq!(sink.bytes(grh as usize, 100), source.bytes(7, 100));
        }
    }
}
