//! Waiting for the end of a grant or a fast mapping.

use super::region::RegionGrant;
use crate::cq::Cq;
use crate::lease::{Ended, Leased};
use mkey_core::error::Result;
use mkey_core::work::Completion;
use std::time::Duration;

/// What a grant or a fast mapping is made of.
#[derive(Debug)]
pub(crate) enum Means {
    Leased(Leased),
    Region(RegionGrant),
}

impl Means {
    pub(crate) fn ended(&self) -> Result<Option<Ended>> {
        match self {
            Self::Leased(leased) => leased.ended(),
            Self::Region(region) => region.ended(),
        }
    }
}

/// The end of a grant or a fast mapping, on its way. It may be dropped: the slices are kept until
/// the end is confirmed, and so is the window or registration behind it. One that the peer was to
/// end ([`Grant::await_peer`](crate::Grant::await_peer)) is freed when this is dropped.
#[derive(Debug)]
#[must_use = "who wants to use the memory again waits for the end"]
pub struct Ending(Means);

impl Ending {
    pub(crate) fn new(means: Means) -> Self {
        Self(means)
    }

    /// How it ended, if it has. It has once a completion that says so was polled.
    ///
    /// # Errors
    /// As [`Ending::abandon`].
    pub fn ended(&self) -> Result<Option<Ended>> {
        self.0.ended()
    }

    /// Waits while another thread polls the completion queue. After `timeout` the end is forced, as
    /// by [`Ending::abandon`]: on return it has ended in any case.
    ///
    /// # Errors
    /// As [`Ending::abandon`].
    pub fn wait(self, timeout: Duration) -> Result<Ended> {
        match &self.0 {
            Means::Leased(leased) => leased.wait(timeout),
            Means::Region(region) => region.abandon(),
        }
    }

    /// As [`Ending::wait`], polling `cq` meanwhile: completions of other work go to `others`.
    ///
    /// # Errors
    /// As [`Ending::abandon`]; `CqOverrun`. The grant ends all the same, as it is dropped.
    pub fn wait_polling(
        self,
        cq: &Cq,
        timeout: Duration,
        others: impl FnMut(Completion),
    ) -> Result<Ended> {
        match &self.0 {
            Means::Leased(leased) => leased.wait_polling(cq, timeout, others),
            Means::Region(region) => region.abandon(),
        }
    }

    /// Waits while another task polls the completion queue. For a limit in time, let the runtime
    /// drop the future, then [`Ending::abandon`].
    ///
    /// # Errors
    /// As [`Ending::abandon`].
    pub async fn wait_async(&self) -> Result<Ended> {
        match &self.0 {
            Means::Leased(leased) => leased.until_ended().await,
            Means::Region(region) => region.abandon(),
        }
    }

    /// Does not wait: has the device free the window or registration, which ends the peer's access
    /// (R-MWU-11). It is not used again, and an invalidation that is posted still fails, with its
    /// queue pair.
    ///
    /// # Errors
    /// As the device refuses: the peer may still have access, and the slices are kept for ever.
    pub fn abandon(self) -> Result<Ended> {
        match &self.0 {
            Means::Leased(leased) => leased.abandon(),
            Means::Region(region) => region.abandon(),
        }
    }
}
