//! The software RNIC as a subject: both sides are queue pairs of one device, time is virtual.

use crate::fixture::Subject;
use mkey_core::device::Device;
use mkey_os::accounting::{Accountant, Allowance};
use mkey_soft::{Clock, SoftDevice, SoftOptions, VirtualClock};
use std::sync::Arc;
use std::time::Duration;

/// Opens software RNICs. Each test has one of its own, since time goes on for all devices of one.
#[derive(Debug, Default)]
pub struct Soft {
    clock: Arc<VirtualClock>,
    /// What keys and queue pair numbers are made of.
    seed: Option<u64>,
}

impl Soft {
    /// Time begins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Time begins, and keys and numbers are such as `seed` makes.
    pub fn with_seed(seed: u64) -> Self {
        Self { seed: Some(seed), ..Self::default() }
    }

    fn options(&self) -> SoftOptions {
        let clock: Arc<dyn Clock> = self.clock.clone();
        SoftOptions { clock, seed: self.seed, ..SoftOptions::default() }
    }
}

impl Subject for Soft {
    type Device = SoftDevice;

    fn open(&self) -> (Arc<SoftDevice>, Arc<SoftDevice>) {
        let device = SoftDevice::open(self.options()).expect("the software RNIC opens");
        (Arc::clone(&device), device)
    }

    fn open_limited(&self, memlock: u64) -> Arc<SoftDevice> {
        let allowance = Allowance { memlock: Some(memlock), ipc_lock: false };
        let accountant = Some(Accountant::with_allowance(allowance));
        SoftDevice::open(SoftOptions { accountant, ..self.options() }).expect("it opens")
    }

    fn pass(&self, device: &SoftDevice, time: Duration) {
        device.advance(self.clock.now() + time);
    }
}

/// What the page of results calls it.
pub fn name() -> String {
    let (device, _) = Soft::new().open();
    device.capabilities().driver.clone()
}
