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

    /// The keys of a registration.
    fn keys(registration: &Self::Registration) -> (Lkey, Rkey);

    /// Whether the registration may serve later requests: not if nobody would tell that its memory
    /// has gone.
    fn may_stay(registration: &Self::Registration) -> bool;
}
