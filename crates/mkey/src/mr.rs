//! Memory regions.

use crate::access::Access;
use crate::keep::{Hold, Shared};
use crate::memory::Memory;
use crate::pd::Pd;
use crate::remote::RemoteKey;
use crate::slice::{Slice, bounds};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{Advice, DmaBufSpec, MrInfo, MrSpec, OdpStats};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::rights::Rights;
use std::ops::RangeBounds;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A memory region: memory, registered, with its owner. Cheap to clone; deregistered, and then the
/// memory given back, when the last clone and the last [`Slice`] of it are gone, also those that
/// posted work holds.
///
/// Forgetting a handle leaks the registration and the memory together. A deregistration that the
/// device refuses keeps both ([`Device::kept`](crate::Device::kept)).
#[derive(Clone, Debug)]
pub struct Mr {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: MrInfo,
    access: Access,
    iova: IoAddr,
    start: NonNull<u8>,
    len: usize,
    memory: Arc<dyn Memory>,
    pd: Pd,
    /// It has no place in the process: memory of a file descriptor.
    elsewhere: bool,
    /// Deregistered before its time.
    ended: AtomicBool,
}

// SAFETY: the pointer is into `memory`, which is `Send + Sync`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Mr {
    /// How to register memory: local-only unless told otherwise.
    pub fn builder(pd: &Pd) -> MrBuilder<'_> {
        MrBuilder { pd, access: Access::local(), iova: None }
    }

    /// Registers memory for this process's work requests only.
    ///
    /// # Errors
    /// As [`MrBuilder::register`].
    pub fn new(pd: &Pd, memory: impl Memory) -> Result<Self> {
        Self::builder(pd).register(memory)
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Its rights.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Its protection domain.
    pub fn pd(&self) -> &Pd {
        &self.inner.pd
    }

    /// What the device calls it.
    pub fn info(&self) -> MrInfo {
        self.inner.info
    }

    /// All of it.
    pub fn whole(&self) -> Slice {
        self.clone().into_slice()
    }

    /// Part of it, counted from its start.
    ///
    /// # Errors
    /// `OutOfRange` beyond its end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice> {
        self.whole().part(range)
    }

    /// All of it, giving up this handle.
    pub fn into_slice(self) -> Slice {
        let inner = &*self.inner;
        let (start, len, iova, lkey) = (inner.start, inner.len, inner.iova, inner.info.lkey);
        let rkey = inner.access.is_exposed().then_some(inner.info.rkey);
        let private = inner.memory.is_private();
        let (rights, pd, mapped) = (inner.access.rights(), inner.pd.tag(), inner.elsewhere);
        let hold = Hold::shared(self.inner);
        Slice { start, len, iova, lkey, rkey, rights, pd, private, mapped, hold }
    }

    /// What a peer needs to access part of it: the step by which memory is given away.
    ///
    /// # Errors
    /// `RightMissing` if the region was registered local-only, `OutOfRange` beyond its end.
    pub fn remote_key(&self, range: impl RangeBounds<usize>) -> Result<RemoteKey> {
        let inner = &*self.inner;
        if !inner.access.is_exposed() {
            let reason = Reason::RightMissing { missing: Rights::REMOTE };
            return Err(Error::new("remote_key", format_args!("{}", inner.access), reason));
        }
        let (from, to) = bounds(&range, inner.len);
        let Some(len) = to.checked_sub(from) else {
            let address = IoAddr(inner.iova.0.wrapping_add(from as u64));
            let reason = Reason::OutOfRange { address, length: 0 };
            return Err(Error::new("remote_key", format_args!("{from}..{to}"), reason));
        };
        let whole =
            RemoteKey { key: inner.info.rkey, address: inner.iova, length: inner.len as u64 };
        whole.part(from as u64, len as u64)
    }

    /// Advice on part of an on-demand region: brings pages in before work needs them.
    ///
    /// # Errors
    /// `OutOfRange`; `Unsupported`; as the device refuses (R-ODP-09 to R-ODP-15).
    pub fn advise(&self, advice: Advice, range: impl RangeBounds<usize>) -> Result<()> {
        let sge = self.slice(range)?.sge()?;
        let pd = self.inner.pd.handle();
        self.inner.pd.device().control().advise_mr(pd, advice, true, &[sge])
    }

    /// Counters of an on-demand region.
    ///
    /// # Errors
    /// `Unsupported`; `UnknownHandle` where it is not on-demand.
    pub fn odp_stats(&self) -> Result<OdpStats> {
        self.inner.pd.device().control().odp_stats(self.inner.info.handle)
    }

    /// Deregisters now, and tells how that went; the memory is given back to its owner's hands.
    ///
    /// # Errors
    /// The region, and `StillUsed` while slices, clones or posted work exist, or as the device
    /// refuses: `InUse` names what holds it.
    pub fn close(self) -> std::result::Result<Arc<dyn Memory>, (Self, Error)> {
        if Arc::strong_count(&self.inner) != 1 {
            let what = format_args!("{} bytes at {}", self.inner.len, self.inner.iova);
            let error = Error::new("close", what, Reason::StillUsed { what: "memory region" });
            return Err((self, error));
        }
        let inner = &*self.inner;
        if let Err(error) = inner.pd.device().dereg_mr(inner.info.handle, inner.len as u64) {
            return Err((self, error));
        }
        inner.ended.store(true, Ordering::Relaxed);
        Ok(inner.memory.clone())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            let device = self.pd.device();
            device.end_mr(self.info.handle, self.len as u64, &self.memory, &self.pd);
        }
    }
}

impl Shared for Inner {
    fn is_sole(&mut self) -> bool {
        // Nor a weak pointer, that could be made one to register the memory again.
        Arc::get_mut(&mut self.memory).is_some()
    }
}

/// How to register memory.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MrBuilder<'a> {
    pd: &'a Pd,
    access: Access,
    iova: Option<IoAddr>,
}

impl MrBuilder<'_> {
    /// These rights, instead of those so far.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Peers that have the key may RDMA READ.
    pub fn remote_read(self) -> Self {
        let access = self.access.remote_read();
        self.access(access)
    }

    /// Peers that have the key may RDMA WRITE.
    pub fn remote_write(self) -> Self {
        let access = self.access.remote_write();
        self.access(access)
    }

    /// Peers that have the key may perform atomics.
    pub fn remote_atomic(self) -> Self {
        let access = self.access.remote_atomic();
        self.access(access)
    }

    /// Windows may be bound to parts of it.
    pub fn windows(self) -> Self {
        let access = self.access.windows();
        self.access(access)
    }

    /// Pages are not pinned: they fault in when touched.
    pub fn on_demand(self) -> Self {
        let access = self.access.on_demand();
        self.access(access)
    }

    /// The device may reorder its writes.
    pub fn relaxed_ordering(self) -> Self {
        let access = self.access.relaxed_ordering();
        self.access(access)
    }

    /// The address of its first byte in work requests; its offset within a page must be that of
    /// the memory (R-REG-11).
    pub fn iova(mut self, iova: IoAddr) -> Self {
        self.iova = Some(iova);
        self
    }

    /// Registers `memory`, all of it.
    ///
    /// # Errors
    /// `MemlockLimit`, `MemlockForbidden`, `NotMapped`, `NotWritable`, `PageOffset`,
    /// `TableFull`, `Unsupported`: as the device refuses, each with its mend. Never clipped to
    /// the device's limit: `Argument` if it is longer.
    pub fn register(self, memory: impl Memory) -> Result<Mr> {
        self.register_shared(Arc::new(memory))
    }

    /// Registers memory that may be registered more than once, as in several protection domains.
    ///
    /// # Errors
    /// As [`MrBuilder::register`].
    pub fn register_shared(self, memory: Arc<dyn Memory>) -> Result<Mr> {
        let (start, len) = memory.range();
        let device = self.pd.device();
        let spec = MrSpec {
            address: HostAddr(start.as_ptr().expose_provenance() as u64),
            length: len as u64,
            iova: self.iova,
            rights: self.access.rights(),
        };
        let fail = |reason| {
            let what = format_args!("{len} bytes at {}, {}", spec.address, self.access);
            Error::new("reg_mr", what, reason)
        };
        spec.rights.validate().map_err(fail)?;
        let most = device.capabilities().max_mr_size;
        if spec.length > most {
            let (value, allowed) = (spec.length, "at most the device's max_mr_size");
            return Err(fail(Reason::Argument { what: "length", value, allowed }));
        }
        // SAFETY: `Inner` keeps the memory until it has been deregistered; `Memory` promises that
        // it stays mapped and that no references to it exist meanwhile.
        let info = unsafe { device.control().reg_mr(self.pd.handle(), &spec) }?;
        device.registered(spec.length);
        let iova = self.iova.unwrap_or(IoAddr(spec.address.0));
        Ok(self.region(info, iova, (start, len), memory, false))
    }

    /// Registers `len` bytes from `offset` of a file descriptor's memory: a dma-buf, as of a GPU
    /// (`ibv_reg_dmabuf_mr`); on the software RNIC also a memory file. It need not be mapped, so
    /// its slices can be named by work requests, but not read or written here. Work requests count
    /// from [`MrBuilder::iova`], or from `offset`; within a page the two must agree (R-REG-24).
    ///
    /// # Errors
    /// `Unsupported` where the device takes none; `UnfitRights` for rights other than local write
    /// and the remote ones (R-REG-23), `FileOffset` (R-REG-24), `OutsideFile` (R-REG-25); as the
    /// device refuses.
    pub fn register_dma_buf(self, fd: OwnedFd, offset: u64, len: usize) -> Result<Mr> {
        let iova = self.iova.unwrap_or(IoAddr(offset));
        let (length, rights) = (len as u64, self.access.rights());
        let spec = DmaBufSpec { fd: fd.as_fd(), offset, length, iova, rights };
        let device = self.pd.device();
        // SAFETY: no process memory is named: the device maps or reaches the file's own memory,
        // which stays for as long as it is registered, and no reference to it is ever made here.
        let info = unsafe { device.control().reg_dmabuf_mr(self.pd.handle(), &spec) }?;
        device.registered(length);
        Ok(self.region(info, iova, (NonNull::dangling(), len), Arc::new(DmaBuf(fd)), true))
    }

    fn region(
        self,
        info: MrInfo,
        iova: IoAddr,
        (start, len): (NonNull<u8>, usize),
        memory: Arc<dyn Memory>,
        elsewhere: bool,
    ) -> Mr {
        let (access, pd, ended) = (self.access, self.pd.clone(), AtomicBool::new(false));
        let inner = Inner { info, access, iova, start, len, memory, pd, elsewhere, ended };
        Mr { inner: Arc::new(inner) }
    }
}

/// A file descriptor whose memory is registered.
#[derive(Debug)]
struct DmaBuf(#[expect(dead_code, reason = "kept open, and given back by `close`")] OwnedFd);

// SAFETY: it has no bytes in the process.
unsafe impl Memory for DmaBuf {
    fn range(&self) -> (NonNull<u8>, usize) {
        (NonNull::dangling(), 0)
    }
}
