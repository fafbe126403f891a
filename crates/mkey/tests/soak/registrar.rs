//! Regions registered and ended apart, on a device that will not always end them.

use crate::numbers::Random;
use crate::watch::Seen;
use crate::world::World;
use mkey::testing::{Call, Faults, LeakCheck, When};
use mkey::{Device, Mr, PageKind, Pd, Reason, Region, SoftOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Registrar {
    pub faults: Faults,
    device: Device,
    /// Owners of memory that live.
    owners: Arc<AtomicU64>,
    failed: AtomicBool,
}

/// Memory that is counted.
#[derive(Debug)]
struct Owned {
    region: Region,
    owners: Arc<AtomicU64>,
}

// SAFETY: what holds for the region, which stays as long as this.
unsafe impl mkey::Memory for Owned {
    fn range(&self) -> (std::ptr::NonNull<u8>, usize) {
        self.region.range()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.owners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Registrar {
    pub fn new(seed: u64) -> Self {
        let options = SoftOptions { seed: Some(seed), ..SoftOptions::default() };
        let faults = Faults::new(seed);
        let device = faults.around(&Device::soft(options).expect("a software RNIC"));
        let busy = Reason::System { call: "ioctl", errno: 16 };
        faults.refuse(Call::DeregMr, busy, When::Chance(0.1));
        let no_memory = Reason::System { call: "ioctl", errno: 12 };
        faults.refuse(Call::RegMr, no_memory, When::Chance(0.1));
        Self { faults, device, owners: Arc::default(), failed: AtomicBool::new(false) }
    }

    /// What is registered is what lives, and memory lives as long as it is registered.
    fn check(&self, world: &World, live: u64) {
        let stats = self.device.stats();
        let registered = stats.registrations - stats.deregistrations;
        let owners = self.owners.load(Ordering::Relaxed);
        if registered != live + stats.kept || owners != registered {
            let kept = stats.kept;
            world.fail(format!(
                "{registered} regions are registered: {live} live, {kept} kept, {owners} owners"
            ));
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// At the end the device ends what it would not end before.
    pub fn finish(&self) {
        self.device.retry_kept();
        let stats = self.device.stats();
        assert_eq!((stats.kept, stats.registered_bytes), (0, 0), "kept: {:?}", self.device.kept());
        assert_eq!(stats.registrations, stats.deregistrations);
        assert_eq!(self.owners.load(Ordering::Relaxed), 0);
        LeakCheck::new(&self.device).finish();
    }
}

pub fn run(world: &World, with: &Registrar, seen: &Seen) {
    let mut random = Random::new(world.seed, u64::MAX);
    let pd = Pd::new(&with.device).expect("pd");
    let mut live = Vec::new();
    while !world.stopped() {
        seen.step("registering and deregistering");
        match random.below(8) {
            0..4 if live.len() < 16 => {
                let len = (1 + random.below(4)) << 12;
                let region = Region::builder(len).pages(PageKind::Base).map().expect("memory");
                with.owners.fetch_add(1, Ordering::Relaxed);
                let owned = Owned { region, owners: with.owners.clone() };
                live.extend(Mr::new(&pd, owned));
                world.counts.registered.add();
            }
            0..5 => drop(random.take(&mut live)),
            5 | 6 => {
                if let Some(mr) = random.take(&mut live)
                    && let Err((mr, _)) = mr.close()
                {
                    world.counts.not_ended.add();
                    live.push(mr);
                }
            }
            _ => drop(with.device.retry_kept()),
        }
        with.check(world, live.len() as u64);
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    seen.step("done");
}
