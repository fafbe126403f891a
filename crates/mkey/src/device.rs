//! A device, opened.

use crate::events::Events;
use crate::memory::Memory;
use crate::pd::Pd;
use crate::plane::Plane;
use crate::sync::lock;
use mkey_core::device::{self as core, Capabilities, MrHandle, PortInfo};
use mkey_core::error::{Error, Result};
use mkey_core::work::Completion;
#[cfg(feature = "ibverbs")]
use mkey_ibverbs::IbvDevice;
#[cfg(feature = "soft")]
use mkey_soft::{SoftDevice, SoftOptions};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A device, opened: cheap to clone, closed when the last object on it is gone.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    // Before the device itself: its thread asks the device.
    events: Events,
    /// What could not be deregistered, with what it needs.
    kept: Mutex<Vec<Kept>>,
    counters: Counters,
    control: Arc<dyn core::Device>,
    plane: Plane,
}

/// Counts of what the library did on a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) registrations: AtomicU64,
    pub(crate) deregistrations: AtomicU64,
    pub(crate) registered_bytes: AtomicU64,
    pub(crate) failed_drops: AtomicU64,
}

/// A registration that the device would not end: its memory stays mapped, and the device open.
struct Kept {
    handle: MrHandle,
    error: Error,
    bytes: u64,
    _pd: Pd,
    _memory: Arc<dyn Memory>,
}

/// What the library did on a device so far, and what it holds.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Memory regions registered.
    pub registrations: u64,
    /// Memory regions deregistered.
    pub deregistrations: u64,
    /// Bytes registered now.
    pub registered_bytes: u64,
    /// Objects that the device refused to free when they were dropped.
    pub failed_drops: u64,
    /// Registrations kept, with their memory, because the device would not end them.
    pub kept: u64,
    /// Bytes of these.
    pub kept_bytes: u64,
}

impl Device {
    /// Opens a software RNIC.
    ///
    /// # Errors
    /// `System` where the operating system refuses what it can not do without, `Argument` for a key
    /// limit that is 0 or above 2^24 - 1.
    #[cfg(feature = "soft")]
    pub fn soft(options: SoftOptions) -> Result<Self> {
        let device = SoftDevice::open(options)?;
        Ok(Self::new(device.clone(), Plane::Soft(device)))
    }

    /// A software RNIC that is open already.
    ///
    /// # Safety
    /// Work that is posted to the device by other means than this library names no memory that
    /// this library registers: it lends such memory, trusting that it knows of all work
    /// ([`Slice::into_local`](crate::Slice::into_local)).
    #[cfg(feature = "soft")]
    pub unsafe fn from_soft(device: Arc<SoftDevice>) -> Self {
        Self::new(device.clone(), Plane::Soft(device))
    }

    /// Opens a real device by its name, as in `mlx5_0`. libibverbs is loaded by the first call.
    ///
    /// # Errors
    /// `NoDevice`: libibverbs can not be loaded, the kernel has no such device, or this process may
    /// not open it; it says which, and what mends it.
    #[cfg(feature = "ibverbs")]
    pub fn open(name: &str) -> Result<Self> {
        let device = IbvDevice::open(name)?;
        Ok(Self::new(device.clone(), Plane::Ibv(device)))
    }

    pub(crate) fn new(control: Arc<dyn core::Device>, plane: Plane) -> Self {
        let events = Events::new(control.clone());
        let (counters, kept) = (Counters::default(), Mutex::default());
        Self { inner: Arc::new(Inner { events, kept, counters, control, plane }) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.control.name()
    }

    /// What it offers, and its limits.
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.control.capabilities()
    }

    /// The state of its port.
    pub fn port(&self) -> PortInfo {
        self.inner.control.port()
    }

    /// What it falls back to and what is not guaranteed then, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        self.inner.control.notes()
    }

    /// The control plane itself, for what the library does not wrap.
    pub fn control(&self) -> &Arc<dyn core::Device> {
        &self.inner.control
    }

    /// Why a work request failed, in words, where the device keeps a log of refusals.
    pub fn explain(&self, completion: &Completion) -> Option<String> {
        let reports = self.inner.control.refusals().ok()?;
        let report = reports.iter().find(|report| report.number == completion.vendor_err)?;
        Some(format!("{}: {}", report.request, report.refusal))
    }

    /// The completion, if its work request did what it asked; else an error that says why, as far
    /// as the device tells.
    ///
    /// # Errors
    /// `WorkFailed` with the status; in its arguments the refusal, in words.
    pub fn check(&self, completion: Completion) -> Result<Completion> {
        completion.succeeded().map_err(|error| match self.explain(&completion) {
            Some(why) => Error { arguments: format!("{}: {why}", error.arguments).into(), ..error },
            None => error,
        })
    }

    /// Counts and gauges.
    pub fn stats(&self) -> DeviceStats {
        let counters = &self.inner.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kept = lock(&self.inner.kept);
        DeviceStats {
            registrations: of(&counters.registrations),
            deregistrations: of(&counters.deregistrations),
            registered_bytes: of(&counters.registered_bytes),
            failed_drops: of(&counters.failed_drops),
            kept: kept.len() as u64,
            kept_bytes: kept.iter().map(|kept| kept.bytes).sum(),
        }
    }

    /// What the device would not end when it was dropped, and why, in words.
    pub fn kept(&self) -> Vec<String> {
        lock(&self.inner.kept).iter().map(|kept| kept.error.to_string()).collect()
    }

    /// Tries again to end what the device would not end before; how many it ended.
    pub fn retry_kept(&self) -> usize {
        let mut kept = std::mem::take(&mut *lock(&self.inner.kept));
        let before = kept.len();
        kept.retain_mut(|kept| match self.dereg_mr(kept.handle, kept.bytes) {
            Ok(()) => false,
            Err(error) => {
                kept.error = error;
                true
            }
        });
        let ended = before - kept.len();
        lock(&self.inner.kept).append(&mut kept);
        ended
    }

    /// Ends a region that is dropped; what the device refuses to end is kept, with its memory.
    pub(crate) fn end_mr(&self, handle: MrHandle, bytes: u64, memory: &Arc<dyn Memory>, pd: &Pd) {
        if let Err(error) = self.dereg_mr(handle, bytes) {
            self.failed_drop(&error);
            let (pd, memory) = (pd.clone(), memory.clone());
            lock(&self.inner.kept).push(Kept { handle, error, bytes, _pd: pd, _memory: memory });
        }
    }

    pub(crate) fn dereg_mr(&self, handle: MrHandle, bytes: u64) -> Result<()> {
        self.inner.control.dereg_mr(handle)?;
        let counters = &self.inner.counters;
        counters.deregistrations.fetch_add(1, Ordering::Relaxed);
        counters.registered_bytes.fetch_sub(bytes, Ordering::Relaxed);
        tracing::debug!(device = self.name(), bytes, "deregistered");
        Ok(())
    }

    pub(crate) fn registered(&self, bytes: u64) {
        let counters = &self.inner.counters;
        counters.registrations.fetch_add(1, Ordering::Relaxed);
        counters.registered_bytes.fetch_add(bytes, Ordering::Relaxed);
        tracing::debug!(device = self.name(), bytes, "registered");
    }

    /// Something was refused when its owner was dropped, who can not be told.
    pub(crate) fn failed_drop(&self, error: &Error) {
        self.inner.counters.failed_drops.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(device = self.name(), %error, "not freed when dropped");
    }

    pub(crate) fn plane(&self) -> &Plane {
        &self.inner.plane
    }

    pub(crate) fn events(&self) -> &Events {
        &self.inner.events
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}
