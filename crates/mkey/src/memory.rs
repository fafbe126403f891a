//! Memory that can be registered, with its owner.

use mkey_core::error::{Error, Reason, Result};
use mkey_os::ladder::{self, LadderError, Pages, Refused, Request};
use mkey_os::mapping::{Mapping, PageKind};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Memory with its owner: as long as the value lives, so does the memory.
///
/// # Safety
/// The range stays mapped, at the same place, for as long as the value lives, and no Rust reference
/// to its bytes exists while the value is shared (`&self`): peers and work requests read and write
/// them at any time. Bytes are initialised.
pub unsafe trait Memory: Send + Sync + fmt::Debug + 'static {
    /// First byte, and length in bytes.
    fn range(&self) -> (NonNull<u8>, usize);

    /// Whether nobody but this process's holders of the value can reach the bytes, so that who is
    /// the only holder may borrow them ([`Slice::into_local`](crate::Slice::into_local)).
    fn is_private(&self) -> bool {
        false
    }
}

/// Anonymous memory of one's own, on the largest pages that can be had: 1 GiB, 2 MiB, transparent
/// huge pages, base pages.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    refused: Vec<Refused>,
    numa: mkey_os::numa::Binding,
}

impl Region {
    /// Maps `len` bytes, rounded up to whole pages of the kind that serves. Zeroed.
    ///
    /// # Errors
    /// `Argument` for a length of 0 or beyond the address space, `System` with the errno where no
    /// page kind serves.
    pub fn new(len: usize) -> Result<Self> {
        Self::builder(len).map()
    }

    /// The same with a choice of pages or NUMA node.
    pub fn builder(len: usize) -> RegionBuilder {
        RegionBuilder { request: Request { len, pages: Pages::Best, numa_node: None } }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The pages it lies on.
    pub fn page_kind(&self) -> PageKind {
        self.mapping.page_kind()
    }

    /// The larger kinds of pages that were tried, largest first, and why they did not serve.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// What became of the wish for a NUMA node.
    pub fn numa(&self) -> &mkey_os::numa::Binding {
        &self.numa
    }

    /// Its bytes, while nobody else has the region.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable, anonymous memory is initialised, and a
        // registration would hold the region, so that it could not be borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr(), self.mapping.len()) }
    }
}

// SAFETY: a mapping is unmapped when dropped only; `as_mut_slice` needs it exclusively.
unsafe impl Memory for Region {
    fn range(&self) -> (NonNull<u8>, usize) {
        // A mapping is never at address 0.
        let start = NonNull::new(self.mapping.as_ptr()).unwrap_or(NonNull::dangling());
        (start, self.mapping.len())
    }

    fn is_private(&self) -> bool {
        true
    }
}

/// How a [`Region`] is mapped.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RegionBuilder {
    request: Request,
}

impl RegionBuilder {
    /// Exactly this kind of pages, or an error.
    pub fn pages(mut self, kind: PageKind) -> Self {
        self.request.pages = Pages::Exactly(kind);
        self
    }

    /// Memory of this NUMA node, where that can be had ([`Region::numa`] tells).
    pub fn numa_node(mut self, node: u32) -> Self {
        self.request.numa_node = Some(node);
        self
    }

    /// Maps it.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn map(self) -> Result<Region> {
        self.finish(ladder::obtain(&self.request))
    }

    /// Maps it and brings all pages in, on `threads` threads: registering and using it never
    /// meets a missing page.
    ///
    /// # Errors
    /// As [`Region::new`]; a kind of pages that can not be brought in does not serve.
    pub fn map_prefaulted(self, threads: usize) -> Result<Region> {
        self.finish(ladder::obtain_prefaulted(&self.request, threads, |_, _| ()))
    }

    fn finish(
        self,
        obtained: std::result::Result<ladder::Obtained, LadderError>,
    ) -> Result<Region> {
        let len = self.request.len;
        let obtained = obtained.map_err(|error| {
            let reason = match no_room(&error) {
                _ if len == 0 => {
                    Reason::Argument { what: "length", value: 0, allowed: "at least 1" }
                }
                errno => Reason::System { call: "mmap", errno },
            };
            Error::new("map", format_args!("{len} bytes: {error}"), reason)
        })?;
        Ok(Region { mapping: obtained.mapping, refused: obtained.refused, numa: obtained.numa })
    }
}

/// The errno of the last rung.
fn no_room(error: &LadderError) -> i32 {
    let last = error.refused.last().map(|refused| &refused.reason);
    match last {
        Some(ladder::Reason::Os(error)) => error.errno.raw_os_error(),
        Some(ladder::Reason::Pool { errno, .. }) => errno.raw_os_error(),
        _ => mkey_core::error::errno::ENOMEM,
    }
}

/// Memory of a file that processes can share: mapped shared, readable and writable.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range of the process; no thread owns it more than another.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; the methods only read the fields.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// A new memory file (`memfd`) of `len` bytes, sealed against shrinking: nobody who has its
    /// descriptor can take the pages away.
    ///
    /// # Errors
    /// `Argument` for a length of 0, `System` with the errno.
    pub fn new(name: &str, len: usize) -> Result<Self> {
        let fail = |call, errno: rustix::io::Errno| {
            let reason = Reason::System { call, errno: errno.raw_os_error() };
            Error::new("map", format_args!("memory file {name:?} of {len} bytes"), reason)
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(|e| fail("memfd_create", e))?;
        rustix::fs::ftruncate(&file, len as u64).map_err(|e| fail("ftruncate", e))?;
        let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| fail("fcntl", e))?;
        Self::map(file, len)
    }

    /// A memory file made by somebody else, all of it. It must be sealed against shrinking, or
    /// another process could take the pages away.
    ///
    /// # Errors
    /// `Argument` if it is not sealed against shrinking or empty, `System` with the errno.
    pub fn open(file: OwnedFd) -> Result<Self> {
        let fail = |call, errno: rustix::io::Errno| {
            let reason = Reason::System { call, errno: errno.raw_os_error() };
            Error::new("map", "a memory file", reason)
        };
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| fail("fcntl", e))?;
        if !seals.contains(rustix::fs::SealFlags::SHRINK) {
            let value = u64::from(seals.bits());
            let allowed = "a memory file sealed against shrinking (F_SEAL_SHRINK)";
            let reason = Reason::Argument { what: "seals", value, allowed };
            return Err(Error::new("map", "a memory file", reason));
        }
        let len = rustix::fs::fstat(&file).map_err(|e| fail("fstat", e))?.st_size;
        Self::map(file, usize::try_from(len).unwrap_or(0))
    }

    fn map(file: OwnedFd, len: usize) -> Result<Self> {
        let fail = |reason| Error::new("map", format_args!("a memory file of {len} bytes"), reason);
        if len == 0 {
            let reason = Reason::Argument { what: "length", value: 0, allowed: "at least 1" };
            return Err(fail(reason));
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, &file, 0) };
        let start = start
            .map_err(|errno| fail(Reason::System { call: "mmap", errno: errno.raw_os_error() }))?;
        // A mapping is never at address 0.
        let start = NonNull::new(start.cast()).unwrap_or(NonNull::dangling());
        Ok(Self { file, start, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: it has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and what used it is gone. A refusal leaks it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: mapped until dropped; the file can not shrink under it; no reference is ever made.
unsafe impl Memory for SharedMemory {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.len)
    }
}

/// Memory of somebody else, with a guard that keeps it.
pub struct Foreign {
    start: NonNull<u8>,
    len: usize,
    _guard: Box<dyn Any + Send + Sync>,
}

// SAFETY: an address range of the process, kept by a guard that is `Send`.
unsafe impl Send for Foreign {}
// SAFETY: as above; the methods only read the fields.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// `len` bytes from `start`, kept by `guard`.
    ///
    /// # Safety
    /// The bytes stay mapped, initialised and at their place until `guard` is dropped, and until
    /// then no Rust reference to them is live while work requests or peers may write them, and no
    /// exclusive one while they may read them.
    pub unsafe fn new(start: NonNull<u8>, len: usize, guard: impl Any + Send + Sync) -> Self {
        Self { start, len, _guard: Box::new(guard) }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("start", &self.start).field("len", &self.len).finish()
    }
}

// SAFETY: the promise of `new`.
unsafe impl Memory for Foreign {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.len)
    }
}

/// The token of the tolerant copy.
///
/// # Errors
/// `System` where the handler of faults could not be put in place.
pub(crate) fn tolerant() -> Result<mkey_os::copy::Installed> {
    mkey_os::copy::install().map_err(|error| {
        let source = std::error::Error::source(&error);
        let errno = source.and_then(|e| e.downcast_ref::<std::io::Error>()?.raw_os_error());
        let reason = Reason::System { call: "sigaction", errno: errno.unwrap_or(0) };
        Error::new("copy", "fault handler", reason)
    })
}
