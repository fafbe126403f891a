//! The software RNIC as a subject: both sides are queue pairs of one device, or of two that talk by
//! packets. Time is virtual.

use crate::fixture::Subject;
use mkey_core::device::Device;
use mkey_os::accounting::{Accountant, Allowance};
use mkey_soft::{Clock, Link, SoftDevice, SoftOptions, VirtualClock, VirtualNetwork};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Opens software RNICs. Each test has one of its own, since time goes on for all devices of one.
#[derive(Debug, Default)]
pub struct Soft {
    clock: Arc<VirtualClock>,
    /// What keys and queue pair numbers are made of.
    seed: Option<u64>,
    /// Where the sides talk by packets, their network.
    network: Option<Arc<VirtualNetwork>>,
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

    /// Time begins, and the two sides are devices that reach each other only by packets.
    pub fn by_packets() -> Self {
        Self { network: Some(VirtualNetwork::new()), ..Self::default() }
    }

    fn options(&self, side: u8) -> SoftOptions {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let (link, side) = match &self.network {
            None => (Link::None, 0),
            Some(network) => (Link::Virtual(network.clone()), side),
        };
        let options = SoftOptions::new("soft0", Ipv4Addr::new(127, 0, 0, 1 + side).into());
        SoftOptions { clock, link, seed: self.seed, ..options }
    }
}

impl Subject for Soft {
    type Device = SoftDevice;

    fn open(&self) -> (Arc<SoftDevice>, Arc<SoftDevice>) {
        let open = |side| SoftDevice::open(self.options(side)).expect("the software RNIC opens");
        match self.network {
            Some(_) => (open(0), open(1)),
            None => {
                let device = open(0);
                (Arc::clone(&device), device)
            }
        }
    }

    fn open_limited(&self, memlock: u64) -> Arc<SoftDevice> {
        let allowance = Allowance { memlock: Some(memlock), ipc_lock: false };
        let accountant = Some(Accountant::with_allowance(allowance));
        SoftDevice::open(SoftOptions { accountant, ..self.options(0) }).expect("it opens")
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
