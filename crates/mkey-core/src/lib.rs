//! What every part of mkey agrees upon, and the protection engine.
//!
//! Pure: no syscalls, no clock, no threads of its own. Time, randomness and memory access come
//! from outside.
//!
//! * [`key`], [`address`], [`rights`]: the values that name memory and what may be done to it.
//! * [`work`]: work requests and completions. [`status`]: how a work request ended.
//! * [`refusal`]: why an access or a memory-management operation was not allowed, exactly.
//! * [`error`]: why a verb failed, with its arguments, errno and a stable code.
//! * [`device`]: the control plane of a device, object-safe. [`data_plane`]: posting and polling,
//!   statically dispatched.
//! * [`engine`]: protection and translation tables, memory regions, memory windows, fast
//!   registration, on-demand paging; the access check; exact revocation.
#![deny(unsafe_code)]

pub mod address;
pub mod data_plane;
pub mod device;
pub mod engine;
pub mod error;
pub mod event;
pub mod key;
pub mod queue_pair;
pub mod refusal;
pub mod rights;
pub mod status;
pub mod work;
