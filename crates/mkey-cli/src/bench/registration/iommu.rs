//! The same memory behind an IOMMU: mapped for DMA by VFIO, which pins it for that, and only pinned.
//!
//! What the one takes longer than the other is what an IOMMU adds to a registration. It is close to
//! what a NIC's driver pays and not the same: that goes through the kernel's DMA API, which looks
//! for free addresses, and VFIO keeps accounts of its own.

use super::report::{Dma, Iommu};
use crate::bench::error::{Result, RowError};
use crate::bench::measure::{Samples, nanoseconds};
use crate::bench::report::Missing;
use mkey_core::address::HostAddr;
use mkey_os::mapping::PageKind;
use mkey_os::pin::{PinMode, PinRequest, Pinner};
use mkey_os::usage;
use mkey_os::vfio::Container;
use std::time::Instant;

/// Maps memory through the IOMMU of a group, and pins it.
#[derive(Debug)]
pub struct Mapper {
    container: Container,
    pinner: Pinner,
}

impl Mapper {
    /// Takes the group, and says what to know of it; without it: why not.
    pub fn open(group: u32) -> (Option<Self>, Iommu) {
        match Container::open(group) {
            Ok(container) => {
                let pinner = Pinner::new(PinMode::Kernel);
                (Some(Self { container, pinner }), Iommu { group, missing: None })
            }
            Err(error) => {
                let what = format!("nothing mapped through an IOMMU: {error}");
                let missing = match error.mend() {
                    Some(command) => Missing::with(what, command),
                    None => Missing::plain(what),
                };
                (None, Iommu { group, missing: Some(missing) })
            }
        }
    }

    /// Maps and pins memory on pages of `kind` once, one after the other.
    ///
    /// # Errors
    /// `Missing` as the kernel refuses either.
    pub fn map(
        &self,
        address: HostAddr,
        bytes: u64,
        kind: PageKind,
        into: &mut MapSet,
    ) -> Result<()> {
        let missing =
            |what: String| RowError::Missing(Missing::plain(format!("nothing mapped: {what}")));
        let (Ok(addr), Ok(len)) = (usize::try_from(address.0), usize::try_from(bytes)) else {
            return Err(missing(format!("{bytes} bytes")));
        };
        let before = usage::preemptions();
        let start = Instant::now();
        let mapped = self.container.map(addr, bytes).map_err(|error| missing(error.to_string()))?;
        let map = nanoseconds(start.elapsed());
        let start = Instant::now();
        mapped.unmap().map_err(|error| missing(error.to_string()))?;
        let unmap = nanoseconds(start.elapsed());
        let start = Instant::now();
        let pinned =
            self.pinner.pin(&PinRequest { addr, len, write: true, page: Some(kind.size()) });
        let pin = nanoseconds(start.elapsed());
        let pinned = pinned.map_err(|error| missing(error.to_string()))?;
        if pinned.mode() != PinMode::Kernel {
            let mode = pinned.mode();
            return Err(missing(format!("pages are held by {mode} here, and not by the kernel")));
        }
        drop(pinned);
        into.add([map, unmap, pin], usage::preemptions() == before);
        Ok(())
    }
}

/// What mapping a size took.
#[derive(Debug)]
pub struct MapSet {
    all: [Samples; 3],
    undisturbed: [Samples; 3],
}

impl MapSet {
    /// Nothing yet.
    pub fn new() -> Self {
        let three = || [Samples::new(1), Samples::new(1), Samples::new(1)];
        Self { all: three(), undisturbed: three() }
    }

    fn add(&mut self, ns: [u64; 3], undisturbed: bool) {
        let add = |set: &mut [Samples; 3]| {
            set.iter_mut().zip(ns).for_each(|(samples, ns)| samples.record_ns(ns));
        };
        add(&mut self.all);
        if undisturbed {
            add(&mut self.undisturbed);
        }
    }

    /// Medians of those during which nothing else ran in this thread's place; of all, where there
    /// are none.
    pub fn summary(&self) -> Option<Dma> {
        let of = |[map, unmap, pin]: &[Samples; 3]| {
            Some(Dma { map: map.summary()?, unmap: unmap.summary()?, pin: pin.summary()? })
        };
        of(&self.undisturbed).or_else(|| of(&self.all))
    }
}

impl Default for MapSet {
    fn default() -> Self {
        Self::new()
    }
}
