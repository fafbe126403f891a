//! Shared memory between processes of one user on one host and in one network namespace.
//!
//! Processes meet in a folder ([`folder`]), where each holds blocks of queue pair numbers, so that
//! address and number of a queue pair tell its process. Who has something to send connects to that
//! process's socket and hands it a file of memory ([`segment`]): two rings of packets, one for each
//! direction ([`ring`]). Nothing waits for an answer: the first packets may lie in the ring when the
//! other process takes it up. A sleeping process is woken by a doorbell that it was handed with the memory
//! ([`bell`], [`barrier`]), and the end of a process ends the socket. What a process that ended had sent is received still; what is sent to it
//! is lost, as on any network. Where both sides ask for it, a process lends memory to its peer, which then
//! writes there by itself ([`lease`]).

mod barrier;
mod bell;
mod endpoint;
mod folder;
mod greeting;
pub(crate) mod lease;
mod pair;
mod record;
mod ring;
mod segment;
mod unread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic;

pub(crate) use endpoint::Endpoint;
pub(crate) use folder::BLOCK_BITS;

/// Whether a descriptor is ready now for one of these, or has hung up.
fn is_ready(fd: &OwnedFd, flags: PollFlags) -> bool {
    let mut ready = [PollFd::new(fd, flags)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)).is_ok_and(|ready| ready > 0)
}
