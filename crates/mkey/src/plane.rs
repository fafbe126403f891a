//! The data plane of the devices that are compiled in, statically dispatched.

#[cfg(not(feature = "soft"))]
compile_error!("mkey needs a device: enable the feature `soft`");

use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair};
use mkey_core::device::{CqHandle, QpHandle};
use mkey_core::error::Result;
use mkey_core::work::{Completion, RecvWr, SendWr};
use mkey_soft::{SoftCq, SoftDevice, SoftQp};
use std::sync::Arc;

/// A device.
#[derive(Clone, Debug)]
pub(crate) enum Plane {
    Soft(Arc<SoftDevice>),
}

/// A queue pair of it.
#[derive(Debug)]
pub(crate) enum QpPlane {
    Soft(SoftQp),
}

/// A completion queue of it.
#[derive(Debug)]
pub(crate) enum CqPlane {
    Soft(SoftCq),
}

impl Plane {
    pub(crate) fn qp(&self, qp: QpHandle) -> Result<QpPlane> {
        match self {
            Self::Soft(device) => device.qp(qp).map(QpPlane::Soft),
        }
    }

    pub(crate) fn cq(&self, cq: CqHandle) -> Result<CqPlane> {
        match self {
            Self::Soft(device) => device.cq(cq).map(CqPlane::Soft),
        }
    }
}

impl QpPlane {
    #[inline]
    pub(crate) fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        match self {
            Self::Soft(qp) => qp.post_send(chain),
        }
    }

    #[inline]
    pub(crate) fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        match self {
            Self::Soft(qp) => qp.post_recv(chain),
        }
    }
}

impl CqPlane {
    #[inline]
    pub(crate) fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        match self {
            Self::Soft(cq) => cq.poll(into),
        }
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) -> Result<()> {
        match self {
            Self::Soft(cq) => cq.request_notify(solicited_only),
        }
    }
}
