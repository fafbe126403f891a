//! The software RNIC.
//!
//! [`SoftDevice`] is a [`Device`](mkey_core::device::Device) and a
//! [`DataPlane`](mkey_core::data_plane::DataPlane) whose queue pairs, completion queues and
//! registrations live in this process.
#![deny(unsafe_code)]

mod clock;
mod device;
mod options;

pub use clock::{Clock, RealClock, VirtualClock};
pub use device::{SoftCq, SoftDevice, SoftQp, SoftSrq};
pub use options::{PinMode, SoftOptions, Stale, gid_of};
