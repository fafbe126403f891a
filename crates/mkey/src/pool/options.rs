//! How large a pool is, and in what steps.

use super::error::PoolError;
use super::source::Registrar;
use crate::access::Access;
use crate::pd::Pd;
use mkey_os::mapping::PageKind;

/// What mapped memory is aligned to at least.
pub(super) const PAGE: usize = 4096;
/// Whole ones are taken where possible, and nothing is aligned to more.
pub(super) const HUGE_PAGE: usize = 2 << 20;

/// The options of a pool; sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct PoolOptions {
    slab: usize,
    floor: Option<usize>,
    ceiling: usize,
    min_block: usize,
    resting: usize,
    access: Access,
    pages: Option<PageKind>,
    numa_node: Option<u32>,
}

impl Default for PoolOptions {
    /// Slabs of 64 MiB, one of them registered from the start, no ceiling but that of the system,
    /// blocks from 4 KiB, 256 KiB resting per thread and size; registered local-only, on the largest
    /// pages that can be had.
    fn default() -> Self {
        Self {
            slab: 64 << 20,
            floor: None,
            ceiling: usize::MAX,
            min_block: 4096,
            resting: 256 << 10,
            access: Access::local(),
            pages: None,
            numa_node: None,
        }
    }
}

impl PoolOptions {
    /// How much is registered at a time, 64 MiB unless set. No more than the device registers in
    /// one region (`max_mr_size`), and no more than the ceiling; a larger allocation gets a slab of
    /// its own.
    pub fn slab(mut self, bytes: usize) -> Self {
        self.slab = bytes;
        self
    }

    /// What is registered at once and never given back, one slab unless set. Below it no allocation
    /// waits for a registration.
    pub fn floor(mut self, bytes: usize) -> Self {
        self.floor = Some(bytes);
        self
    }

    /// The most that is registered at a time; no bound unless set.
    pub fn ceiling(mut self, bytes: usize) -> Self {
        self.ceiling = bytes;
        self
    }

    /// The smallest block, and what all blocks are multiples of and aligned to: a power of two from
    /// 64 bytes to 2 MiB, 4 KiB unless set.
    pub fn min_block(mut self, bytes: usize) -> Self {
        self.min_block = bytes;
        self
    }

    /// How much of each block size may rest with each thread after it was freed, 256 KiB unless
    /// set. Only such blocks are handed out without a lock; 0 switches that off. What rests is
    /// fetched back before an allocation fails or waits.
    pub fn resting(mut self, bytes: usize) -> Self {
        self.resting = bytes;
        self
    }

    /// The rights that the slabs are registered with. Rights of peers are rights to the whole pool:
    /// grants, which open one block for one queue pair, need
    /// [`Access::windows`](crate::Access::windows) only.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Exactly this kind of pages, or an error.
    pub fn pages(mut self, kind: PageKind) -> Self {
        self.pages = Some(kind);
        self
    }

    /// Memory of this NUMA node, where that can be had ([`Pool::slabs`](crate::Pool::slabs)
    /// tells).
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    pub(super) fn registrar(&self, pd: &Pd) -> Registrar {
        let Self { access, pages, numa_node, .. } = *self;
        Registrar { pd: pd.clone(), access, pages, numa_node }
    }
}

/// Options that have been checked, with the device's limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) granule: usize,
    pub(super) slab: usize,
    pub(super) floor: usize,
    pub(super) ceiling: usize,
    /// The largest memory region of the device.
    pub(super) region: usize,
    pub(super) resting: usize,
}

impl PoolOptions {
    /// Checks them. `region` is the largest memory region of the device.
    pub(super) fn check(&self, region: usize) -> Result<Limits, PoolError> {
        let wrong = |option, value, allowed| Err(PoolError::Option { option, value, allowed });
        let Self { slab, floor, ceiling, min_block: granule, resting, .. } = *self;
        if !granule.is_power_of_two() || !(64..=HUGE_PAGE).contains(&granule) {
            return wrong("min_block", granule, "a power of two from 64 bytes to 2 MiB");
        }
        if ceiling < granule {
            return wrong("ceiling", ceiling, "at least min_block");
        }
        if slab < granule {
            return wrong("slab", slab, "at least min_block");
        }
        // Memory comes in pages.
        let region = region - region % PAGE;
        let slab = slab.min(region).min(ceiling);
        if slab < granule {
            return wrong("min_block", granule, "at most the device's largest memory region");
        }
        let floor = floor.unwrap_or(slab);
        if floor > ceiling {
            return wrong("floor", floor, "at most the ceiling");
        }
        Ok(Limits { granule, slab, floor, ceiling, region, resting })
    }
}
