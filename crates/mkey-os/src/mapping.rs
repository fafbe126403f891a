//! Memory of one's own: an anonymous mapping on pages of a chosen kind.
//!
//! A [`Mapping`] is one rung of the page ladder; [`crate::ladder`] climbs it.

use crate::error::{Errno, OsError};
use crate::{limits, proc};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ops::Range;
use std::ptr::NonNull;

/// The kinds of pages memory can be mapped by, smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// Base pages (4 KiB on x86-64), kept from becoming transparent huge ones.
    Base,
    /// Transparent huge pages of 2 MiB: asked for, and granted by the kernel as it can.
    Thp,
    /// Hugetlb pages of 2 MiB from the pool.
    Huge2M,
    /// Hugetlb pages of 1 GiB from the pool.
    Huge1G,
}

impl PageKind {
    /// All kinds, largest first: the ladder downwards.
    pub const LADDER: [Self; 4] = [Self::Huge1G, Self::Huge2M, Self::Thp, Self::Base];

    /// The size of such a page in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::Base => limits::page_size(),
            Self::Thp | Self::Huge2M => 2 << 20,
            Self::Huge1G => 1 << 30,
        }
    }

    /// Whether the pages come from a hugetlb pool.
    pub fn is_hugetlb(self) -> bool {
        matches!(self, Self::Huge2M | Self::Huge1G)
    }
}

impl std::fmt::Display for PageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Base => "4 KiB",
            Self::Thp => "THP",
            Self::Huge2M => "2 MiB",
            Self::Huge1G => "1 GiB",
        })
    }
}

/// An anonymous, private, readable and writable mapping; unmapped on drop.
///
/// Shared memory in spirit: peers may write to it at any time, so it hands out raw pointers only.
#[derive(Debug)]
pub struct Mapping {
    addr: NonNull<u8>,
    len: usize,
    kind: PageKind,
}

// SAFETY: a mapping is an address range of the process; no thread owns it more than another.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods only read the fields.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, rounded up to pages of `kind`, touching none of them. Hugetlb pages are
    /// promised by the pool at once; whether transparent ones are granted shows when touched
    /// ([`Mapping::huge_bytes`]).
    ///
    /// # Errors
    /// [`OsError`]: `EINVAL` for a length of 0 or one that rounds beyond the address space,
    /// `ENOMEM` if the pool or the address space has not enough.
    pub fn new(len: usize, kind: PageKind) -> Result<Self, OsError> {
        let size = kind.size();
        let len = match len.checked_next_multiple_of(size) {
            Some(0) | None => return Err(OsError::new("mmap", Errno::INVAL)),
            Some(len) => len,
        };
        let mapping = match kind {
            PageKind::Huge2M => Self::map(len, kind, MapFlags::HUGETLB | MapFlags::HUGE_2MB)?,
            PageKind::Huge1G => Self::map(len, kind, MapFlags::HUGETLB | MapFlags::HUGE_1GB)?,
            PageKind::Base => Self::map(len, kind, MapFlags::empty())?,
            PageKind::Thp => Self::map_aligned(len)?,
        };
        match kind {
            PageKind::Thp => mapping.advise(Advice::LinuxHugepage)?,
            // EINVAL: a kernel without transparent huge pages needs no advice against them.
            PageKind::Base => match mapping.advise(Advice::LinuxNoHugepage) {
                Err(OsError { errno: Errno::INVAL, .. }) => {}
                other => other?,
            },
            PageKind::Huge2M | PageKind::Huge1G => {}
        }
        Ok(mapping)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.addr.as_ptr()
    }

    /// The first address.
    pub fn addr(&self) -> usize {
        self.addr.as_ptr() as usize
    }

    /// Bytes mapped, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The addresses mapped.
    pub fn range(&self) -> Range<usize> {
        self.addr()..self.addr().saturating_add(self.len)
    }

    /// The kind of pages asked for.
    pub fn page_kind(&self) -> PageKind {
        self.kind
    }

    /// Bytes mapped by huge pages at this moment, as the page tables say.
    ///
    /// # Errors
    /// [`OsError`] if the kernel does not tell.
    pub fn huge_bytes(&self) -> Result<usize, OsError> {
        proc::huge_bytes(self.range())
    }

    fn map(len: usize, kind: PageKind, flags: MapFlags) -> Result<Self, OsError> {
        // SAFETY: a new anonymous mapping at an address the kernel chooses touches no other.
        let addr = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | flags,
            )
        }
        .map_err(|errno| OsError::new("mmap", errno))?;
        let addr = NonNull::new(addr.cast()).ok_or(OsError::new("mmap", Errno::NOMEM))?;
        Ok(Self { addr, len, kind })
    }

    /// A mapping that starts on a huge page's border: maps one huge page more and returns the
    /// ends.
    fn map_aligned(len: usize) -> Result<Self, OsError> {
        let size = PageKind::Thp.size();
        let wide = len.checked_add(size).ok_or(OsError::new("mmap", Errno::NOMEM))?;
        let mut mapping = Self::map(wide, PageKind::Thp, MapFlags::empty())?;
        let head = mapping.addr().next_multiple_of(size) - mapping.addr();
        let tail = size - head;
        let unmap = |addr: *mut u8, len: usize| {
            if len > 0 {
                // SAFETY: both ends lie within the mapping just made, and nobody uses it yet.
                // Refused (at the limit of mappings), the end stays mapped and untouched.
                let _ = unsafe { rustix::mm::munmap(addr.cast(), len) };
            }
        };
        let start = mapping.as_ptr();
        unmap(start, head);
        unmap(start.wrapping_add(head).wrapping_add(len), tail);
        mapping.addr =
            NonNull::new(start.wrapping_add(head)).ok_or(OsError::new("mmap", Errno::NOMEM))?;
        mapping.len = len;
        Ok(mapping)
    }

    fn advise(&self, advice: Advice) -> Result<(), OsError> {
        // SAFETY: advice about huge pages changes no contents.
        unsafe { rustix::mm::madvise(self.as_ptr().cast(), self.len, advice) }
            .map_err(|errno| OsError::new("madvise", errno))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours; who still uses its addresses has broken the contract of the
        // raw pointer. A refusal leaves the memory mapped, which is safe.
        let _ = unsafe { rustix::mm::munmap(self.as_ptr().cast(), self.len) };
    }
}
