//! The data plane of the devices that are compiled in, statically dispatched.

#[cfg(not(any(feature = "soft", feature = "ibverbs")))]
compile_error!("mkey needs a device: enable the feature `soft` or `ibverbs`");

use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair};
use mkey_core::device::{CqHandle, QpHandle};
use mkey_core::error::Result;
use mkey_core::work::{Completion, RecvWr, SendWr};
#[cfg(feature = "ibverbs")]
use mkey_ibverbs::{IbvCq, IbvDevice, IbvQp};
#[cfg(feature = "soft")]
use mkey_soft::{SoftCq, SoftDevice, SoftQp};
use std::sync::Arc;

/// A device.
#[derive(Clone, Debug)]
pub(crate) enum Plane {
    #[cfg(feature = "soft")]
    Soft(Arc<SoftDevice>),
    #[cfg(feature = "ibverbs")]
    Ibv(Arc<IbvDevice>),
}

/// A queue pair of it.
#[derive(Debug)]
pub(crate) enum QpPlane {
    #[cfg(feature = "soft")]
    Soft(SoftQp),
    #[cfg(feature = "ibverbs")]
    Ibv(IbvQp),
}

/// A completion queue of it.
#[derive(Debug)]
pub(crate) enum CqPlane {
    #[cfg(feature = "soft")]
    Soft(SoftCq),
    #[cfg(feature = "ibverbs")]
    Ibv(IbvCq),
}

impl Plane {
    pub(crate) fn qp(&self, qp: QpHandle) -> Result<QpPlane> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(device) => device.qp(qp).map(QpPlane::Soft),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(device) => device.qp(qp).map(QpPlane::Ibv),
        }
    }

    pub(crate) fn cq(&self, cq: CqHandle) -> Result<CqPlane> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(device) => device.cq(cq).map(CqPlane::Soft),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(device) => device.cq(cq).map(CqPlane::Ibv),
        }
    }
}

impl QpPlane {
    #[inline]
    pub(crate) fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(qp) => qp.post_send(chain),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(qp) => qp.post_send(chain),
        }
    }

    #[inline]
    pub(crate) fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(qp) => qp.post_recv(chain),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(qp) => qp.post_recv(chain),
        }
    }
}

impl CqPlane {
    #[inline]
    pub(crate) fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(cq) => cq.poll(into),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(cq) => cq.poll(into),
        }
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) -> Result<()> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(cq) => cq.request_notify(solicited_only),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(cq) => cq.request_notify(solicited_only),
        }
    }
}
