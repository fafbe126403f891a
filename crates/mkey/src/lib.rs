//! RDMA memory registration, safe by type and cheap by design.
//!
//! Every byte that an RDMA NIC touches is *registered* first: pages are pinned, a table is written,
//! a key is handed out. That is slow, and keys outlive what they were given for. With this crate a
//! program registers once, hands out buffers, and grants a peer exactly one buffer for exactly one
//! request:
//!
//! ```
//! use mkey::{Access, Cq, Device, Mr, Pd, PeerAccess, Pool, PoolOptions, Qp, Region, SoftOptions, Work};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A software RNIC: no NIC, no root. Two queue pairs on it, each in a domain of its own.
//! let device = Device::soft(SoftOptions::default())?;
//! let (server, client) = (Pd::new(&device)?, Pd::new(&device)?);
//! let (server_cq, client_cq) = (Cq::new(&device, 16)?, Cq::new(&device, 16)?);
//! let near = Qp::builder(&server, &server_cq).create()?;
//! let far = Qp::builder(&client, &client_cq).create()?;
//! near.connect(&far.endpoint())?;
//! far.connect(&near.endpoint())?;
//!
//! // The server's memory is registered here, once. No peer has rights to it.
//! let options = PoolOptions::default().slab(1 << 20).access(Access::local().windows());
//! let pool = Pool::new(&server, &options)?;
//! let buffer = pool.alloc(4096)?;
//! buffer.write(0, b"for the client")?;
//!
//! // One buffer is opened, to the peer of one queue pair. A peer gets the key, which is plain data.
//! let grant = buffer.grant(&near, PeerAccess::READ)?;
//! let key = grant.remote_key();
//!
//! // The client reads by it.
//! let into = Mr::new(&client, Region::new(4096)?)?.into_slice();
//! let second = Duration::from_secs(1);
//! far.post(&[Work::read(&into, key)])?;
//! client_cq.next(second)?.ok_or("no completion")?.succeeded()?;
//! assert_eq!(&into.read_array(0)?, b"for the client");
//!
//! // The end. Once it is confirmed, the key is good for nothing, and the device says why.
//! grant.revoke().wait_polling(&server_cq, second, |_other| {})?;
//! far.post(&[Work::read(&into, key)])?;
//! let late = client_cq.next(second)?.ok_or("no completion")?;
//! assert!(late.succeeded().is_err());
//! println!("{}", device.explain(&late).unwrap_or_default());
//! # Ok(())
//! # }
//! ```
//!
//! The [`guide`] says which strategy to take when, and builds a server step by step. Whole programs
//! are in the folder `examples` of this crate.
//!
//! # What there is
//!
//! | | |
//! |---|---|
//! | the objects of the verbs, each keeping what it stands on | [`Device`], [`Pd`], [`Cq`], [`Qp`] |
//! | memory with its owner | [`Region`] on huge pages, [`SharedMemory`], [`Foreign`] |
//! | such memory, registered | [`Mr`] |
//! | part of it, as work requests name it; borrowed as bytes while nobody else can reach it | [`Slice`], [`Local`] |
//! | rights that can not be wrong; what a peer gets | [`Access`], [`PeerAccess`]; [`RemoteKey`] |
//! | work requests, which keep what they name until their completion is seen | [`Work`], [`Recv`] |
//! | registered once, handed out in blocks | [`Pool`] |
//! | registrations of memory that the program owns | [`Cache`] |
//! | scattered slices under one key, without a registration | [`FastMrPool`] |
//! | one slice, open to one peer for a while | [`Grant`] |
//! | counts and gauges of all of them | [`Stats`] |
//!
//! # What it promises
//!
//! * A registration owns its memory, slices keep the registration, posted work keeps the slices.
//!   Dropping in any order is safe.
//! * Memory that a peer or posted work may write is never lent as `&[u8]`.
//! * Registrations are local-only; letting a peer in is a step of its own, with a name.
//! * A grant's buffer is not used again before the end of the grant is confirmed.
//! * No input panics; an [`Error`] has the verb, its arguments, the errno and a stable code.
//!
//! # Features
//!
//! * `soft` (default): the software RNIC, in this process, which pins real memory and checks each
//!   access as a NIC does.
//! * `testing`: what programs test their own use of all this with; a connected pair in one process
//!   on virtual time, seeded faults, a leak check.
//! * `metrics`: [`Stats`] as OpenMetrics text.
//! * `serde`: [`RemoteKey`] and [`Endpoint`] can be serialised.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

#[doc = include_str!("../../../docs/guide.md")]
pub mod guide {}

/// Only so that the code in it is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.zh.md")]
mod guide_zh {}

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
mod mw;
mod pd;
mod plane;
mod pool;
mod qp;
mod remote;
mod slice;
mod stats;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
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
pub use mw::Mw;
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
pub use mkey_core::error::{Code, Error, Object, Reason, Result};
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
