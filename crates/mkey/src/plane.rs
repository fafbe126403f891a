//! The data plane of the devices that are compiled in, statically dispatched.

#[cfg(not(any(feature = "soft", feature = "ibverbs")))]
compile_error!("mkey needs a device: enable the feature `soft` or `ibverbs`");

#[cfg(feature = "testing")]
use crate::testing::{Faults, FaultyCq, FaultyQp};
use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair};
#[cfg(feature = "testing")]
use mkey_core::device::Device;
use mkey_core::device::{CqHandle, QpHandle};
use mkey_core::error::Result;
use mkey_core::work::{Completion, RecvWr, SendWr};
#[cfg(feature = "ibverbs")]
use mkey_ibverbs::{IbvCq, IbvDevice, IbvQp};
#[cfg(feature = "soft")]
use mkey_soft::{SoftCq, SoftDevice, SoftQp};
use std::sync::Arc;
#[cfg(all(feature = "testing", feature = "ibverbs"))]
use std::{sync::OnceLock, time::Instant};

/// Where the time of devices begins that have none of their own.
#[cfg(all(feature = "testing", feature = "ibverbs"))]
static START: OnceLock<Instant> = OnceLock::new();

/// A device.
#[derive(Clone, Debug)]
pub(crate) enum Plane {
    #[cfg(feature = "soft")]
    Soft(Arc<SoftDevice>),
    #[cfg(feature = "ibverbs")]
    Ibv(Arc<IbvDevice>),
    /// One of the others, its control plane, and what goes wrong on it.
    #[cfg(feature = "testing")]
    Faulty(Box<Plane>, Arc<dyn Device>, Faults),
}

/// A queue pair of it.
#[derive(Debug)]
pub(crate) enum QpPlane {
    #[cfg(feature = "soft")]
    Soft(SoftQp),
    #[cfg(feature = "ibverbs")]
    Ibv(IbvQp),
    #[cfg(feature = "testing")]
    Faulty(Box<FaultyQp>),
}

/// A completion queue of it.
#[derive(Debug)]
pub(crate) enum CqPlane {
    #[cfg(feature = "soft")]
    Soft(SoftCq),
    #[cfg(feature = "ibverbs")]
    Ibv(IbvCq),
    #[cfg(feature = "testing")]
    Faulty(Arc<FaultyCq>),
}

impl Plane {
    pub(crate) fn qp(&self, qp: QpHandle) -> Result<QpPlane> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(device) => device.qp(qp).map(QpPlane::Soft),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(device) => device.qp(qp).map(QpPlane::Ibv),
            #[cfg(feature = "testing")]
            Self::Faulty(plane, control, faults) => {
                let faulty = FaultyQp::new(plane.qp(qp)?, qp, control, faults);
                Ok(QpPlane::Faulty(Box::new(faulty)))
            }
        }
    }

    pub(crate) fn cq(&self, cq: CqHandle) -> Result<CqPlane> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(device) => device.cq(cq).map(CqPlane::Soft),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(device) => device.cq(cq).map(CqPlane::Ibv),
            #[cfg(feature = "testing")]
            Self::Faulty(plane, control, faults) => {
                Ok(CqPlane::Faulty(FaultyCq::new(plane.cq(cq)?, plane, control, faults)))
            }
        }
    }

    /// The device's time.
    #[cfg(feature = "testing")]
    pub(crate) fn now(&self) -> std::time::Duration {
        match self {
            Self::Soft(device) => device.now(),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(_) => START.get_or_init(Instant::now).elapsed(),
            Self::Faulty(plane, ..) => plane.now(),
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
            #[cfg(feature = "testing")]
            Self::Faulty(qp) => qp.post_send(chain),
        }
    }

    #[inline]
    pub(crate) fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(qp) => qp.post_recv(chain),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(qp) => qp.post_recv(chain),
            #[cfg(feature = "testing")]
            Self::Faulty(qp) => qp.post_recv(chain),
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
            #[cfg(feature = "testing")]
            Self::Faulty(cq) => cq.poll(into),
        }
    }

    /// Who waits hears also of completions that the device makes no event for.
    #[cfg(feature = "testing")]
    pub(crate) fn wakes(&self, event: &Arc<event_listener::Event>) {
        if let Self::Faulty(cq) = self {
            cq.wakes(event);
        }
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) -> Result<()> {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft(cq) => cq.request_notify(solicited_only),
            #[cfg(feature = "ibverbs")]
            Self::Ibv(cq) => cq.request_notify(solicited_only),
            #[cfg(feature = "testing")]
            Self::Faulty(cq) => cq.request_notify(solicited_only),
        }
    }
}
