//! The data plane: posting and polling, statically dispatched.

use crate::device::{CqHandle, Device, QpHandle, SrqHandle};
use crate::error::{Error, Result};
use crate::work::{Completion, RecvWr, SendWr};

/// A chain of work requests of which some were posted and one was refused (R-ORD-10): those before
/// it stay posted, those after it were not looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}, after {posted} of the chain were posted")]
pub struct PostError {
    /// How many of the chain were posted.
    pub posted: usize,
    /// Why the next one was not.
    pub error: Error,
}

/// Why, without how many: for who posts one, or gives up.
impl From<PostError> for Error {
    fn from(refused: PostError) -> Self {
        refused.error
    }
}

/// A queue pair's data plane. Any thread may post; one post is one critical section.
pub trait QueuePair: Send + Sync {
    /// Posts a chain to the send queue.
    fn post_send(&self, chain: &[SendWr<'_>]) -> core::result::Result<(), PostError>;
    /// Posts a chain to the receive queue.
    fn post_recv(&self, chain: &[RecvWr<'_>]) -> core::result::Result<(), PostError>;
    /// Its number, 24 bits.
    fn qp_num(&self) -> u32;
}

/// A shared receive queue's data plane.
pub trait SharedReceive: Send + Sync {
    /// Posts a chain.
    fn post_recv(&self, chain: &[RecvWr<'_>]) -> core::result::Result<(), PostError>;
}

/// A completion queue's data plane.
pub trait CompletionQueue: Send + Sync {
    /// Takes up to `into.len()` completions, oldest first; the number taken. An overrun queue
    /// answers `CqOverrun`.
    fn poll(&self, into: &mut [Completion]) -> Result<usize>;
    /// The next completion (the next solicited one, if so asked) makes an event on the queue's
    /// channel, once.
    fn request_notify(&self, solicited_only: bool) -> Result<()>;
}

/// A device with its data plane.
pub trait DataPlane: Device {
    /// Its queue pairs.
    type Qp: QueuePair;
    /// Its completion queues.
    type Cq: CompletionQueue;
    /// Its shared receive queues.
    type Srq: SharedReceive;

    /// The data plane of a queue pair.
    fn qp(&self, qp: QpHandle) -> Result<Self::Qp>;
    /// The data plane of a completion queue.
    fn cq(&self, cq: CqHandle) -> Result<Self::Cq>;
    /// The data plane of a shared receive queue.
    fn srq(&self, srq: SrqHandle) -> Result<Self::Srq>;
}
