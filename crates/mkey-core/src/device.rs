//! The control plane of a device, object-safe: `Arc<dyn Device>`.
//!
//! A registration costs far more than a dynamic call; posting and polling are in
//! [`data_plane`](crate::data_plane). What a device can not do answers
//! [`Reason::Unsupported`] by default.

use crate::address::{HostAddr, IoAddr};
use crate::error::{Error, Reason, Result};
use crate::event::AsyncEvent;
use crate::key::{Lkey, Rkey};
use crate::queue_pair::{QpAttr, QpInit, QpModify};
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::work::Sge;
use core::fmt;
use core::time::Duration;
use std::os::fd::BorrowedFd;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub u64);
    )*};
}

handles! {
    /// Names a protection domain.
    PdHandle;
    /// Names a memory region.
    MrHandle;
    /// Names a memory window.
    MwHandle;
    /// Names a completion queue.
    CqHandle;
    /// Names a completion channel.
    ChannelHandle;
    /// Names a shared receive queue.
    SrqHandle;
    /// Names a queue pair.
    QpHandle;
    /// Names an address handle.
    AhHandle;
    /// Names memory of the device itself.
    DmHandle;
    /// Names an XRC domain.
    XrcdHandle;
}

/// A global identifier of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

/// Where a queue pair or a datagram goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AhAttr {
    /// The peer's port.
    pub gid: Gid,
    /// Our entry of the table of identifiers.
    pub gid_index: u8,
    /// Our port, from 1.
    pub port: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// Something that a device may or may not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Memory windows of type 1.
    Window1,
    /// Memory windows of type 2B.
    Window2,
    /// Fast registration.
    FastMr,
    /// On-demand paging of a range.
    OnDemand,
    /// On-demand paging of the whole address space.
    OnDemandImplicit,
    /// Prefetch and other advice.
    Advise,
    /// Counters of on-demand paging by region.
    OnDemandStats,
    /// The null memory region.
    NullMr,
    /// Re-registration.
    Rereg,
    /// Atomics.
    Atomics,
    /// Shared receive queues.
    Srq,
    /// A transport that the device lacks.
    Transport,
    /// Zero-based regions.
    ZeroBased,
    /// Flush operations.
    Flush,
    /// A log of refusals.
    Refusals,
    /// Registration of a file descriptor's memory.
    DmaBuf,
    /// Another depth for a completion queue that is there already.
    ResizeCq,
    /// Memory of the device itself.
    DeviceMemory,
    /// Extended reliable connections.
    Xrc,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window1 => "type 1 memory windows",
            Self::Window2 => "type 2 memory windows",
            Self::FastMr => "fast registration",
            Self::OnDemand => "on-demand paging",
            Self::OnDemandImplicit => "implicit on-demand paging",
            Self::Advise => "advice on memory regions",
            Self::OnDemandStats => "counters of on-demand paging by region",
            Self::NullMr => "null memory regions",
            Self::Rereg => "re-registration",
            Self::Atomics => "atomics",
            Self::Srq => "shared receive queues",
            Self::Transport => "this transport",
            Self::ZeroBased => "zero-based memory regions",
            Self::Flush => "flush operations",
            Self::Refusals => "a log of refusals",
            Self::DmaBuf => "registration of dma-buf memory",
            Self::ResizeCq => "resizing of completion queues",
            Self::DeviceMemory => "device memory",
            Self::Xrc => "extended reliable connections (XRC)",
        })
    }
}

/// What on-demand paging serves, by transport (`struct ibv_odp_caps`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_odp_caps`")]
pub struct OdpCaps {
    pub explicit: bool,
    pub implicit: bool,
    pub rc: OdpOps,
    pub uc: OdpOps,
    pub ud: OdpOps,
    pub xrc: OdpOps,
}

bitflags::bitflags! {
    /// Operations that may touch on-demand memory (`enum ibv_odp_transport_cap_bits`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OdpOps: u32 {
        /// Gathering of SEND.
        const SEND = 1;
        /// Scattering of a receive.
        const RECV = 1 << 1;
        /// RDMA WRITE, either side.
        const WRITE = 1 << 2;
        /// RDMA READ, either side.
        const READ = 1 << 3;
        /// Atomics, either side.
        const ATOMIC = 1 << 4;
        /// Scattering of a receive from a shared queue.
        const SRQ_RECV = 1 << 5;
    }
}

/// What a device offers, and its limits.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_device_attr`")]
pub struct Capabilities {
    /// What stands behind it: "mkey software RNIC", "mlx5", "rxe".
    pub driver: String,
    /// Whether figures taken here are those of software.
    pub software: bool,
    pub max_mr: u32,
    /// Bytes.
    pub max_mr_size: u64,
    pub max_mw: u32,
    pub max_qp: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_srq: u32,
    pub max_pd: u32,
    pub max_ah: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub max_rd_atomic: u8,
    /// Scatter entries of one fast registration; 0 = none.
    pub max_fast_mr_entries: u32,
    /// A fast registration counts from 0: its `iova` can be nothing else.
    pub fast_mr_zero_based: bool,
    pub window1: bool,
    /// Type 2B (never 2A at the same time, R-MW-33).
    pub window2: bool,
    pub atomics: bool,
    /// Atomic writes of 8 bytes.
    pub atomic_write: bool,
    pub zero_based: bool,
    pub null_mr: bool,
    pub rereg: bool,
    pub srq: bool,
    /// Extended reliable connections.
    pub xrc: bool,
    /// Registration of a file descriptor's memory.
    pub dma_buf: bool,
    /// Bytes of the device's own memory that programs may have; 0: none.
    pub max_dm_size: u64,
    /// Regions that peers may flush.
    pub flush: bool,
    /// Prefetch and other advice.
    pub advise: bool,
    pub odp: OdpCaps,
    /// Bit n: the device maps pages of 2^n bytes.
    pub page_sizes: u64,
}

/// What to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrSpec {
    /// First byte in the process. With `ON_DEMAND`, address 0 and `u64::MAX` bytes: the whole
    /// address space (R-ODP-05).
    pub address: HostAddr,
    /// Bytes.
    pub length: u64,
    /// Address of the first byte in work requests; `None`: the host address, or 0 if zero-based.
    pub iova: Option<IoAddr>,
    /// Rights.
    pub rights: Rights,
}

/// What to register of a file descriptor's memory (`ibv_reg_dmabuf_mr`).
#[derive(Clone, Copy, Debug)]
pub struct DmaBufSpec<'fd> {
    /// Whose memory. It may be closed once it is registered.
    pub fd: BorrowedFd<'fd>,
    /// First byte, counted from the start of that memory.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Address of the first byte in work requests: there is no other, as no process needs to have
    /// the memory mapped (R-REG-26). Within the page it agrees with `offset` (R-REG-24).
    pub iova: IoAddr,
    /// Rights, of [`Rights::DMA_BUF`] only (R-REG-23).
    pub rights: Rights,
}

impl DmaBufSpec<'_> {
    /// Checks all that can be told without a look at the memory.
    ///
    /// # Errors
    /// `InvalidRights` (R-REG-01), `UnfitRights` (R-REG-23), `FileOffset` (R-REG-24).
    pub fn validate(&self) -> core::result::Result<(), Reason> {
        const PAGE: u64 = 4096;
        let Self { offset, iova, rights, .. } = *self;
        if !Rights::DMA_BUF.contains(rights) {
            return Err(Reason::UnfitRights { rights: rights.difference(Rights::DMA_BUF) });
        }
        rights.validate()?;
        if !(iova.0 ^ offset).is_multiple_of(PAGE) {
            return Err(Reason::FileOffset { offset, iova });
        }
        Ok(())
    }
}

/// A registered memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// Names it in later verbs.
    pub handle: MrHandle,
    /// Its local key.
    pub lkey: Lkey,
    /// Its remote key.
    pub rkey: Rkey,
}

/// What to change of a region (`ibv_rereg_mr`); at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrChange {
    /// Another protection domain.
    pub pd: Option<PdHandle>,
    /// Other memory.
    pub translation: Option<(HostAddr, u64)>,
    /// Other rights.
    pub rights: Option<Rights>,
}

/// How a failed `rereg_mr` left the region (R-RRG-01).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReregState {
    /// Input refused (-1): the region is as it was.
    Unchanged,
    /// The command failed (-4): the region can only be deregistered.
    Lost,
    /// The command was refused (-4), but the region is as it was.
    Refused,
}

/// A failed `rereg_mr`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct ReregError {
    /// What went wrong.
    pub error: Error,
    /// How the region was left.
    pub state: ReregState,
}

/// The two types of memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MwKind {
    /// Bound by a verb, PD-wide.
    Type1,
    /// Type 2B: bound by a work request, tied to one queue pair.
    Type2,
}

/// An allocated memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwInfo {
    /// Names it in later verbs.
    pub handle: MwHandle,
    /// Its remote key until it is bound.
    pub rkey: Rkey,
}

/// Advice on on-demand memory (`ibv_advise_mr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Fault in for reading.
    Prefetch,
    /// Fault in for writing.
    PrefetchWrite,
    /// Take what the process has present; fault nothing in (R-ODP-15).
    PrefetchNoFault,
}

/// Counters of one on-demand region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OdpStats {
    /// Pages that an access had to fault in.
    pub faults: u64,
    /// Pages that the operating system took away.
    pub invalidations: u64,
    /// Pages that advice brought in.
    pub prefetches: u64,
}

/// A created queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// Names it in later verbs.
    pub handle: QpHandle,
    /// Its number, 24 bits.
    pub qp_num: u32,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_port_attr`")]
pub struct PortInfo {
    pub active: bool,
    /// Bytes.
    pub active_mtu: u32,
    /// The identifier by which peers reach it.
    pub gid: Gid,
    /// Its entry of the table of identifiers.
    pub gid_index: u8,
}

/// One refused access or operation, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalReport {
    /// Its number, as in `Completion::vendor_err`; from 1.
    pub number: u32,
    /// When, since the device was opened.
    pub when: Duration,
    /// The queue pair that was asked.
    pub qp_num: u32,
    /// What was asked, in words ("RDMA WRITE of 64 bytes to 0x7f..").
    pub request: String,
    /// Why not.
    pub refusal: RefusedBy,
}

/// What refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedBy {
    /// The access check.
    Access(Refusal),
    /// Binding, invalidation or fast registration.
    Manage(crate::refusal::ManageRefusal),
    /// The queue pair itself does not allow this operation (R-RA-02).
    QpRights {
        /// What its rights are.
        has: Rights,
    },
}

impl fmt::Display for RefusedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(refusal) => refusal.fmt(f),
            Self::Manage(refusal) => refusal.fmt(f),
            Self::QpRights { has } => write!(f, "the queue pair's own rights are {has}"),
        }
    }
}

/// What the registrations of a device cost so far, in nanoseconds, by term. Zero where the device
/// can not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistrationTerms {
    /// Registrations counted here.
    pub registrations: u64,
    /// Deregistrations counted here.
    pub deregistrations: u64,
    /// Time spent pinning.
    pub pin: u64,
    /// Time spent unpinning.
    pub unpin: u64,
    /// Time spent in the device's own tables.
    pub table: u64,
    /// Declared (simulated) device commands.
    pub command: u64,
}

fn unsupported<T>(verb: &'static str, capability: Capability) -> Result<T> {
    Err(Error::new(verb, "", Reason::Unsupported { capability }))
}

/// The control plane of a device. All verbs may be called from any thread.
pub trait Device: Send + Sync + fmt::Debug {
    /// Its name, as in `mkey0` or `mlx5_0`.
    fn name(&self) -> &str;
    /// What it offers.
    fn capabilities(&self) -> &Capabilities;
    /// The state of its only port.
    fn port(&self) -> PortInfo;

    /// Allocates a protection domain.
    fn alloc_pd(&self) -> Result<PdHandle>;
    /// Frees a protection domain; `InUse` while anything belongs to it (R-REG-16).
    fn dealloc_pd(&self, pd: PdHandle) -> Result<()>;

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// From now until `dereg_mr` has returned, work requests and peers may read the range, and
    /// write it where `rights` allow: the caller keeps the memory valid for that (or accepts that
    /// accesses are refused), and holds no reference that such reads and writes would contradict.
    #[allow(unsafe_code)] // A promise asked of the caller; nothing unsafe is done here.
    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo>;
    /// Registers memory of a file descriptor: a dma-buf, or what else a device takes.
    ///
    /// # Safety
    ///
    /// As [`Device::reg_mr`], for the memory wherever it is mapped.
    #[allow(unsafe_code)] // As above.
    unsafe fn reg_dmabuf_mr(&self, _pd: PdHandle, _spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
        unsupported("reg_dmabuf_mr", Capability::DmaBuf)
    }
    /// Changes a region. Keys may change with it.
    ///
    /// # Safety
    ///
    /// As [`Device::reg_mr`], for the memory and rights as they are after the change.
    #[allow(unsafe_code)] // As above.
    unsafe fn rereg_mr(
        &self,
        _mr: MrHandle,
        _change: &MrChange,
    ) -> core::result::Result<MrInfo, ReregError> {
        unsupported("rereg_mr", Capability::Rereg)
            .map_err(|error| ReregError { error, state: ReregState::Unchanged })
    }
    /// Deregisters. Once it has returned, no access through the region's keys touches memory.
    /// `InUse` while windows or fast registrations hold the region (R-MWU-10).
    fn dereg_mr(&self, mr: MrHandle) -> Result<()>;
    /// A region that reads as zeros and swallows writes (R-REG-27); only its lkey is of use.
    fn alloc_null_mr(&self, _pd: PdHandle) -> Result<MrInfo> {
        unsupported("alloc_null_mr", Capability::NullMr)
    }
    /// Allocates memory of the device itself, all zeros (`ibv_alloc_dm`), as long as there
    /// is some left of [`Capabilities::max_dm_size`].
    fn alloc_dm(&self, _length: u64) -> Result<DmHandle> {
        unsupported("alloc_dm", Capability::DeviceMemory)
    }
    /// Frees device memory; `InUse` while regions lie on it.
    fn free_dm(&self, _dm: DmHandle) -> Result<()> {
        unsupported("free_dm", Capability::DeviceMemory)
    }
    /// Registers part of the device's memory: `ZERO_BASED`, its first byte is address 0 in work
    /// requests (`ibv_reg_dm_mr`).
    fn reg_dm_mr(
        &self,
        _pd: PdHandle,
        _dm: DmHandle,
        _offset: u64,
        _length: u64,
        _rights: Rights,
    ) -> Result<MrInfo> {
        unsupported("reg_dm_mr", Capability::DeviceMemory)
    }
    /// Writes device memory from `offset` on.
    fn write_dm(&self, _dm: DmHandle, _offset: u64, _bytes: &[u8]) -> Result<()> {
        unsupported("memcpy_to_dm", Capability::DeviceMemory)
    }
    /// Reads device memory from `offset` on.
    fn read_dm(&self, _dm: DmHandle, _offset: u64, _into: &mut [u8]) -> Result<()> {
        unsupported("memcpy_from_dm", Capability::DeviceMemory)
    }
    /// Advice on on-demand regions named by lkey. With `flush` all is done on return.
    fn advise_mr(&self, _pd: PdHandle, _advice: Advice, _flush: bool, _sges: &[Sge]) -> Result<()> {
        unsupported("advise_mr", Capability::Advise)
    }
    /// Counters of an on-demand region.
    fn odp_stats(&self, _mr: MrHandle) -> Result<OdpStats> {
        unsupported("odp_stats", Capability::OnDemand)
    }

    /// Allocates a memory window, unbound.
    fn alloc_mw(&self, _pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        unsupported(
            "alloc_mw",
            match kind {
                MwKind::Type1 => Capability::Window1,
                MwKind::Type2 => Capability::Window2,
            },
        )
    }
    /// Frees a memory window, ending what it grants (R-MWU-11).
    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        Err(Error::new(
            "dealloc_mw",
            format_args!("{:#x}", mw.0),
            Reason::Unsupported { capability: Capability::Window1 },
        ))
    }
    /// Allocates an empty region for fast registration of up to `max_entries` scatter entries
    /// (R-FR-01). Freed by `dereg_mr`.
    fn alloc_fast_mr(&self, _pd: PdHandle, _max_entries: u32) -> Result<MrInfo> {
        unsupported("alloc_mr", Capability::FastMr)
    }

    /// Creates a completion channel.
    fn create_comp_channel(&self) -> Result<ChannelHandle>;
    /// Destroys a completion channel.
    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()>;
    /// The next completion event: waits at most `timeout` (`None`: for ever).
    fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>>;
    /// Creates a completion queue of at least `depth` entries.
    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle>;
    /// Gives a completion queue another depth; its completions stay. `Argument` if it has more than
    /// that.
    fn resize_cq(&self, _cq: CqHandle, _depth: u32) -> Result<()> {
        unsupported("resize_cq", Capability::ResizeCq)
    }
    /// Destroys a completion queue; `InUse` while queue pairs use it.
    fn destroy_cq(&self, cq: CqHandle) -> Result<()>;

    /// Creates a shared receive queue.
    fn create_srq(&self, _pd: PdHandle, _max_wr: u32, _max_sge: u32) -> Result<SrqHandle> {
        unsupported("create_srq", Capability::Srq)
    }
    /// Arms the limit of a shared receive queue: one `SrqLimitReached` when it falls below.
    fn modify_srq(&self, _srq: SrqHandle, _limit: u32) -> Result<()> {
        unsupported("modify_srq", Capability::Srq)
    }
    /// The limit that a shared receive queue is armed with; 0: it is not.
    fn query_srq(&self, _srq: SrqHandle) -> Result<u32> {
        unsupported("query_srq", Capability::Srq)
    }
    /// Destroys a shared receive queue; `InUse` while queue pairs use it.
    fn destroy_srq(&self, _srq: SrqHandle) -> Result<()> {
        unsupported("destroy_srq", Capability::Srq)
    }

    /// Opens an XRC domain: what XRC queue pairs and the shared receive queues that their messages name
    /// have in common.
    fn open_xrcd(&self) -> Result<XrcdHandle> {
        unsupported("open_xrcd", Capability::Xrc)
    }
    /// Closes an XRC domain; `InUse` while anything belongs to it.
    fn close_xrcd(&self, _xrcd: XrcdHandle) -> Result<()> {
        unsupported("close_xrcd", Capability::Xrc)
    }
    /// Creates a shared receive queue that messages name ([`Device::srq_num`]); completions of its
    /// receives go to `cq`.
    fn create_xrc_srq(
        &self,
        _pd: PdHandle,
        _xrcd: XrcdHandle,
        _cq: CqHandle,
        _max_wr: u32,
        _max_sge: u32,
    ) -> Result<SrqHandle> {
        unsupported("create_srq", Capability::Xrc)
    }
    /// The number by which peers name a shared receive queue, 24 bits.
    fn srq_num(&self, _srq: SrqHandle) -> Result<u32> {
        unsupported("get_srq_num", Capability::Xrc)
    }

    /// Creates a queue pair, in RESET.
    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo>;
    /// Changes attributes and state.
    fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()>;
    /// The attributes as they are.
    fn query_qp(&self, qp: QpHandle) -> Result<QpAttr>;
    /// Destroys a queue pair. Windows bound on it end (R-MWU-13).
    fn destroy_qp(&self, qp: QpHandle) -> Result<()>;

    /// Creates an address handle.
    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle>;
    /// Destroys an address handle.
    fn destroy_ah(&self, ah: AhHandle) -> Result<()>;

    /// The next asynchronous event: waits at most `timeout` (`None`: for ever).
    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>>;

    /// The latest refusals, oldest first, where the device keeps a log.
    fn refusals(&self) -> Result<Vec<RefusalReport>> {
        unsupported("refusals", Capability::Refusals)
    }
    /// What registration has cost so far, by term.
    fn registration_terms(&self) -> RegistrationTerms {
        RegistrationTerms::default()
    }
    /// What the device falls back to and what is not guaranteed then, a sentence each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
