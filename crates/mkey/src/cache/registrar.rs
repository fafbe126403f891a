//! What a cache registers with.

use super::span::Span;
use mkey_core::error::Error;
use mkey_core::key::{Lkey, Rkey};

/// Registers memory for a cache.
pub(super) trait Registrar: Send + Sync + 'static {
    /// A registration. Dropping it deregisters, which is slow and may take locks.
    type Registration: Send + Sync;

    /// Registers exactly a span.
    ///
    /// # Safety
    /// As [`mkey_core::device::Device::reg_mr`].
    unsafe fn register(&self, span: &Span) -> Result<Self::Registration, Error>;

    /// Waits until the gate has been told of every change of memory that has begun. Who asks for
    /// what was just mapped may have got the place of what another thread is unmapping still. Not
    /// with a lock of the cache.
    fn hear_changes(&self);

    /// The keys of a registration.
    fn keys(registration: &Self::Registration) -> (Lkey, Rkey);

    /// Whether the registration may serve later requests: not if nobody would tell that its memory
    /// has gone.
    fn may_stay(registration: &Self::Registration) -> bool;
}
