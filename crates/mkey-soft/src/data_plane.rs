//! Posting and polling.

use crate::completion::Cq;
use crate::core::Core;
use crate::qp::Qp;
use crate::receive::Srq;
use mkey_core::data_plane::{CompletionQueue, PostError, QueuePair, SharedReceive};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::work::{Completion, RecvWr, SendWr};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The data plane of a queue pair. It may outlive the queue pair; then it answers that.
#[derive(Clone, Debug)]
pub struct SoftQp {
    qp: Arc<Qp>,
}

impl SoftQp {
    pub(crate) fn new(qp: Arc<Qp>) -> Self {
        Self { qp }
    }

    /// The same without keeping the queue pair, nor the device, which go when they are ended.
    pub fn downgrade(&self) -> WeakQp {
        WeakQp { qp: self.qp.weak() }
    }

    /// Posts all of a chain, or nothing: what is refused at posting is refused before the first work
    /// request has any effect.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`], with none posted.
    pub fn post_send_all<'a>(
        &self,
        chain: impl Iterator<Item = SendWr<'a>> + Clone,
    ) -> std::result::Result<(), PostError> {
        self.qp.post_send_all(chain)
    }
}

/// A [`SoftQp`] that keeps nothing.
#[derive(Clone, Debug)]
pub struct WeakQp {
    qp: Weak<Qp>,
}

impl WeakQp {
    /// The queue pair, if it is still there.
    #[inline]
    pub fn upgrade(&self) -> Option<SoftQp> {
        self.qp.upgrade().map(SoftQp::new)
    }
}

impl QueuePair for SoftQp {
    #[inline]
    fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        self.qp.post_send(chain)
    }

    fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.qp.post_recv(chain)
    }

    fn qp_num(&self) -> u32 {
        self.qp.num
    }
}

/// The data plane of a completion queue. It may outlive the queue; then it answers that.
#[derive(Clone, Debug)]
pub struct SoftCq {
    core: Arc<Core>,
    cq: Arc<Cq>,
}

impl SoftCq {
    pub(crate) fn new(core: Arc<Core>, cq: Arc<Cq>) -> Self {
        Self { core, cq }
    }

    /// The same without keeping the device, which goes when it is closed.
    pub fn downgrade(&self) -> WeakCq {
        WeakCq { core: Arc::downgrade(&self.core), cq: self.cq.clone() }
    }

    /// Has completions stamped with the device's time from now on.
    pub fn stamp(&self) {
        self.cq.stamp(self.core.options.clock.clone());
    }

    /// Takes the oldest completion, with the device's time when it came: 0 without
    /// [`SoftCq::stamp`].
    ///
    /// # Errors
    /// As polling.
    pub fn poll_stamped(&self) -> Result<Option<(Completion, Duration)>> {
        self.core.pump();
        self.cq.poll_stamped().map_err(|reason| cq_error(&self.cq, "poll_cq", reason))
    }
}

/// A [`SoftCq`] that keeps no device.
#[derive(Clone, Debug)]
pub struct WeakCq {
    core: Weak<Core>,
    cq: Arc<Cq>,
}

impl WeakCq {
    /// The queue, if its device is still there.
    #[inline]
    pub fn upgrade(&self) -> Option<SoftCq> {
        Some(SoftCq::new(self.core.upgrade()?, self.cq.clone()))
    }
}

impl CompletionQueue for SoftCq {
    #[inline]
    fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        self.core.pump();
        self.cq.poll(into).map_err(|reason| cq_error(&self.cq, "poll_cq", reason))
    }

    fn request_notify(&self, solicited_only: bool) -> Result<()> {
        self.core.pump();
        let armed = self.cq.arm(solicited_only);
        if let Some(port) = &self.core.port {
            port.rest();
        }
        armed.map_err(|reason| cq_error(&self.cq, "req_notify_cq", reason))
    }
}

#[cold]
fn cq_error(cq: &Cq, verb: &'static str, reason: Reason) -> Error {
    Error::new(verb, format_args!("cq {:#x}", cq.handle.0), reason)
}

/// The data plane of a shared receive queue. It may outlive the queue; then it answers that.
#[derive(Clone, Debug)]
pub struct SoftSrq {
    core: Arc<Core>,
    srq: Arc<Srq>,
}

impl SoftSrq {
    pub(crate) fn new(core: Arc<Core>, srq: Arc<Srq>) -> Self {
        Self { core, srq }
    }

    /// The same without keeping the device, which goes when it is closed.
    pub fn downgrade(&self) -> WeakSrq {
        WeakSrq { core: Arc::downgrade(&self.core), srq: self.srq.clone() }
    }
}

/// A [`SoftSrq`] that keeps no device.
#[derive(Clone, Debug)]
pub struct WeakSrq {
    core: Weak<Core>,
    srq: Arc<Srq>,
}

impl WeakSrq {
    /// The queue, if its device is still there.
    #[inline]
    pub fn upgrade(&self) -> Option<SoftSrq> {
        Some(SoftSrq { core: self.core.upgrade()?, srq: self.srq.clone() })
    }
}

impl SharedReceive for SoftSrq {
    fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        self.core.pump_now_and_then();
        for (posted, wr) in chain.iter().enumerate() {
            if let Err(reason) = self.srq.push(wr) {
                let handle = self.srq.handle.0;
                let arguments = format_args!("srq {handle:#x}, wr_id {:#x}", wr.wr_id);
                let error = Error::new("post_srq_recv", arguments, reason);
                return Err(PostError { posted, error });
            }
        }
        Ok(())
    }
}
