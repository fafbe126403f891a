//! RDMA memory registration, safe by type and cheap by design.
//!
//! Register once, hand out buffers, grant a peer exactly one buffer for exactly one request.
//!
//! * [`Device`], [`Pd`], [`Cq`], [`Qp`]: the objects of the verbs, each keeping what it stands on.
//! * [`Region`], [`SharedMemory`], [`Foreign`]: memory with its owner. [`Mr`]: such memory,
//!   registered. [`Slice`]: part of it, as work requests name it; [`Local`]: a slice borrowed as
//!   bytes, while nobody else can reach it.
//! * [`Access`], [`PeerAccess`]: rights that can not be wrong. [`RemoteKey`]: what a peer gets.
//! * [`Grant`]: one slice, open to one peer for a while. [`FastMrPool`]: scattered slices under one
//!   key, without a registration.
//! * [`Work`], [`Recv`]: work requests, which keep what they name until their completion is seen.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod access;
mod cache;
mod cq;
mod device;
mod events;
mod fast_mr;
mod fences;
mod grant;
mod in_flight;
mod keep;
mod lease;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod mr;
mod pd;
mod plane;
mod pool;
mod qp;
mod remote;
mod slice;
mod stats;
mod sync;
mod work;

pub use access::{Access, PeerAccess};
pub use cache::{Cache, CacheBuilder, CacheError, CacheStats, Cached, Invalidation};
pub use cq::Cq;
pub use device::{Device, DeviceStats};
pub use fast_mr::{FastMapping, FastMrPool, FastMrPoolBuilder, FastMrStats, gather, scatter};
pub use grant::{Ending, Grant, GrantOptions, GrantPolicy, GrantStats, Grants};
pub use lease::Ended;
pub use memory::{Foreign, Memory, Region, RegionBuilder, SharedMemory};
pub use mr::{Mr, MrBuilder};
pub use pd::Pd;
pub use pool::{Limit, Pool, PoolError, PoolOptions, PoolStats, Request, Shortage, SlabReport};
pub use qp::{Endpoint, Qp, QpBuilder};
pub use remote::RemoteKey;
pub use slice::{Local, Slice};
pub use stats::Stats;
pub use work::{Recv, Work};

pub use mkey_core::address::{HostAddr, IoAddr};
pub use mkey_core::data_plane::PostError;
pub use mkey_core::device::{Advice, Capabilities, OdpStats, PortInfo};
pub use mkey_core::error::{Code, Error, Reason, Result};
pub use mkey_core::key::{Key, Lkey, Rkey};
pub use mkey_core::queue_pair::{QpKind, QpState};
pub use mkey_core::rights::Rights;
pub use mkey_core::status::{WcOpcode, WcStatus};
pub use mkey_core::work::Completion;
#[cfg(feature = "ibverbs")]
pub use mkey_ibverbs::{Listed, list as list_devices};
pub use mkey_os::mapping::PageKind;
#[cfg(feature = "soft")]
pub use mkey_soft::{PinMode, SoftDevice, SoftOptions, Stale};
