//! Real RDMA devices as mkey devices, by libibverbs.
//!
//! [`IbvDevice::open`] opens one by its name. It offers what every mkey device offers
//! ([`mkey_core::device::Device`], [`mkey_core::data_plane::DataPlane`]): the same program runs over
//! it and over the software RNIC. libibverbs is loaded when a device is first asked for, so a
//! program with this crate starts on a machine without it.
//!
//! # Chapters
//!
//! **[`IbvDevice`], the device.** Objects are named by handles that are never used twice: a stale
//! one is answered with an error, never with another object. Any thread may call any verb; an
//! object that one thread destroys while another uses it is destroyed after that use.
//!
//! **[`trial`], what the device can do.** A device's attributes promise more, and less, than it
//! keeps. So what can be tried at no cost is tried, once, when the capabilities are first asked
//! for, and [`Tried`] says what came of it.
//!
//! **Errors.** An errno of the verbs tells little: `ENOMEM` stands for a memory limit, a full
//! table and a kernel without memory. Where a registration fails, the limits and the mappings of
//! the process are looked at, and the error says which it was and what mends it.
//!
//! **Fast registration.** Kernel programs write an MR's page list by a work request; programs in
//! user space have that only on mlx5 (memory keys written by UMR work requests), where it is used.
//! **It was not run on hardware**: its logic is tested over a stand-in for libmlx5. Elsewhere
//! fast registration is `Unsupported`, and type 2 windows take its place
//! ([`notes`](mkey_core::device::Device::notes)).
//!
//! # What is not here
//! Ports other than the first, paths through an InfiniBand subnet (they need a LID from a subnet
//! manager; RoCE and a port's way to itself do not), XRC, device memory.
#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod advice;
mod attributes;
mod capabilities;
mod completion;
mod context;
mod data_plane;
mod device;
mod diagnosis;
mod driver;
mod events;
mod failure;
mod fast_mr;
mod known;
mod live;
mod objects;
mod on_demand;
mod port;
mod post;
mod queue_pair;
mod registration;
mod table;
mod transition;
pub mod trial;
mod work_request;

#[cfg(test)]
mod fake;

pub use attributes::Limits;
pub use context::{Listed, list};
pub use data_plane::{IbvCq, IbvQp, IbvSrq};
pub use device::IbvDevice;
pub use mkey_sys::LoadError;
pub use trial::{Trial, Tried};
