//! The software RNIC.
//!
//! [`SoftDevice`] is a [`Device`](mkey_core::device::Device) and a
//! [`DataPlane`](mkey_core::data_plane::DataPlane) whose queue pairs, completion queues and
//! registrations live in this process. Posted work is executed inline, on the thread that posts
//! it, where the peer is a queue pair of this process (of this or another device); the protection
//! engine decides every access, next to the memory.
//!
//! Queue pairs of other processes are reached by [`Link`]s, where the device is opened with one.
//!
//! Time is handed to the queue pairs, never read by them: [`Clock`]. With a [`VirtualClock`] and
//! [`SoftDevice::advance`] timeouts and retries are tested without waiting.
//!
//! # What it does as a NIC does, and what not
//! * Work requests of a queue pair execute in order and complete in order. A READ is done when its
//!   completion is there, so a fence has nothing to wait for.
//! * The slots of a send queue are given back when completions are polled, as drivers do; work
//!   without completions keeps its slots until a later completion is polled.
//! * When `destroy_qp`, or `modify_qp` to RESET or ERR, has returned, no access that the queue pair has
//!   let in touches memory any more.
//! * An invalidation, bind or fast registration that meets a running access stalls its send queue
//!   until that access has ended.
//! * RC, UC, UD and XRC. A failed work request puts an RC queue pair into ERR, another one into SQE.
#![deny(unsafe_code)]

mod capabilities;
mod clock;
mod completion;
mod core;
mod data_plane;
mod device;
mod device_memory;
mod drain;
mod driver;
mod events;
mod link;
mod listener;
mod memory;
mod message;
mod nic;
mod not_inherited;
mod notes;
mod object;
mod options;
mod payload;
mod per_process;
mod protocol;
mod qp;
mod receive;
mod refusals;
mod registration;
mod slots;
mod sync;
mod timers;
mod watch;
mod xrc;

pub use clock::{Clock, RealClock, VirtualClock};
pub use data_plane::{SoftCq, SoftQp, SoftSrq, WeakCq, WeakQp, WeakSrq};
pub use device::SoftDevice;
pub use link::{Capture, CaptureFile, Direction, Faults, FaultsError, VirtualNetwork};
pub use listener::Listener;
pub use options::{Link, PinMode, SoftOptions, Stale, gid_of};
