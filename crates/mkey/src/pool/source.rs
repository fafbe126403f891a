//! Where a pool gets registered memory from.

use crate::access::Access;
use crate::memory::Region;
use crate::mr::Mr;
use crate::pd::Pd;
use crate::slice::Slice;
use mkey_core::error::Result;
use mkey_os::ladder::Refused;
use mkey_os::mapping::PageKind;
use mkey_os::numa::Binding;

/// Registers memory for a pool.
pub(super) trait Source: Send + Sync {
    /// At least `len` bytes from the start of a page, registered, and no more than `most` where
    /// that can be had: whole huge pages may be more.
    ///
    /// # Errors
    /// Memory can not be had, or can not be registered.
    fn obtain(&self, len: usize, most: usize) -> Result<Obtained>;
}

/// Registered memory: when the slice goes, it is deregistered, then unmapped.
pub(super) struct Obtained {
    pub(super) memory: Slice,
    pub(super) report: SlabReport,
}

/// What a slab of a pool lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlabReport {
    /// Bytes registered.
    pub bytes: usize,
    /// The pages it lies on.
    pub page_kind: PageKind,
    /// The larger kinds of pages that were tried, largest first, and why they did not serve.
    pub refused: Vec<Refused>,
    /// What became of the wish for a NUMA node.
    pub numa: Binding,
}

/// Memory by the page ladder, registered in a protection domain.
pub(super) struct Registrar {
    pub(super) pd: Pd,
    pub(super) access: Access,
    pub(super) pages: Option<PageKind>,
    pub(super) numa_node: Option<u32>,
}

impl Registrar {
    fn map(&self, len: usize, pages: Option<PageKind>) -> Result<Region> {
        let mut region = Region::builder(len);
        if let Some(kind) = pages {
            region = region.pages(kind);
        }
        if let Some(node) = self.numa_node {
            region = region.numa_node(node);
        }
        region.map()
    }
}

impl Source for Registrar {
    fn obtain(&self, len: usize, most: usize) -> Result<Obtained> {
        let mut region = self.map(len, self.pages)?;
        if region.len() > most && self.pages.is_none() {
            // Whole pages of this kind are too much: smaller ones.
            let fits = |kind: &PageKind| {
                let whole = len.checked_next_multiple_of(kind.size());
                whole.is_some_and(|whole| whole <= most)
            };
            let mut kinds = PageKind::LADDER.into_iter().filter(fits);
            if let Some(smaller) = kinds.find_map(|kind| self.map(len, Some(kind)).ok()) {
                region = smaller;
            }
        }
        let report = SlabReport {
            bytes: region.len(),
            page_kind: region.page_kind(),
            refused: region.refused().to_vec(),
            numa: *region.numa(),
        };
        let memory = Mr::builder(&self.pd).access(self.access).register(region)?.into_slice();
        Ok(Obtained { memory, report })
    }
}
