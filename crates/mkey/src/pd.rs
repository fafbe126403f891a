//! Protection domains.

use crate::device::Device;
use crate::grant::PdGrants;
use crate::lease::Remotes;
use mkey_core::device::PdHandle;
use mkey_core::error::Result;
use std::sync::{Arc, Mutex};

/// A protection domain: the scope in which keys and queue pairs may meet. Cheap to clone; freed
/// when the last object in it is gone.
#[derive(Clone, Debug)]
pub struct Pd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: PdHandle,
    remotes: Remotes,
    grants: Mutex<PdGrants>,
    device: Device,
}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// As the device refuses: `TableFull`.
    pub fn new(device: &Device) -> Result<Self> {
        let handle = device.control().alloc_pd()?;
        let (device, remotes, grants) = (device.clone(), Remotes::default(), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { handle, remotes, grants, device }) })
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Its handle, for the control plane.
    pub fn handle(&self) -> PdHandle {
        self.inner.handle
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Pd) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Which domain it is, as long as it lives.
    pub(crate) fn tag(&self) -> PdTag {
        PdTag(Arc::as_ptr(&self.inner).addr())
    }

    pub(crate) fn grant_state(&self) -> &Mutex<PdGrants> {
        &self.inner.grants
    }

    /// Who hears that a peer has invalidated a key.
    pub(crate) fn remotes(&self) -> &Remotes {
        &self.inner.remotes
    }
}

/// Tells domains apart without keeping one. The default one is no domain's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PdTag(usize);

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.device.control().dealloc_pd(self.handle) {
            self.device.failed_drop(&error);
        }
    }
}
