//! How a strategy plays a script: one file a way.

mod cached;
mod granted;
mod plain;
mod pooled;

use super::stage::Stage;
use super::strategy::Strategy;
use crate::bench::error::{Result, RowError};
use mkey::{Access, PeerAccess, Rights};

/// Plays registrations by a strategy. What it holds is given back when it is dropped.
pub trait Player {
    /// Registers what the strategy has registered before the first step.
    ///
    /// # Errors
    /// As the device refuses.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// What becomes of the registration of a range.
    ///
    /// # Errors
    /// As the device refuses.
    fn register(&mut self, range: usize) -> Result<()>;

    /// What becomes of its end. Nothing if it was refused.
    ///
    /// # Errors
    /// As the device refuses.
    fn deregister(&mut self, range: usize) -> Result<()>;

    /// Ends what is registered still, and all that was kept.
    ///
    /// # Errors
    /// As the device refuses.
    fn finish(&mut self) -> Result<()>;

    /// Memory regions that were registered so far.
    fn made(&self) -> u64;

    /// The most bytes that were registered at a time so far.
    fn most_bytes(&self) -> u64;
}

/// Makes everything ready for a script; nothing is registered yet.
///
/// # Errors
/// As the device refuses.
pub fn start<'a>(strategy: Strategy, stage: &'a Stage) -> Result<Box<dyn Player + 'a>> {
    Ok(match strategy {
        Strategy::AsRecorded | Strategy::Huge => Box::new(plain::Plain::new(strategy, stage)),
        Strategy::Once => Box::new(plain::Once::new(stage)),
        Strategy::Cache => Box::new(cached::Cached::new(stage)?),
        Strategy::Pool => Box::new(pooled::Pooled::new(stage, false)),
        Strategy::Bounce => Box::new(pooled::Pooled::new(stage, true)),
        Strategy::Mw => Box::new(granted::Granted::windows(stage)?),
        Strategy::Frmr => Box::new(granted::Granted::fast(stage)?),
    })
}

/// A range that is not there: a fault of this program.
fn no_range() -> RowError {
    RowError::Protocol("a range that is not played")
}

/// What a peer may do by rights; `None`: nothing.
fn peer_access(rights: Rights) -> Option<PeerAccess> {
    let parts = [
        (Rights::REMOTE_READ, PeerAccess::READ),
        (Rights::REMOTE_WRITE, PeerAccess::WRITE),
        (Rights::REMOTE_ATOMIC, PeerAccess::ATOMIC),
    ];
    let parts = parts.into_iter().filter(|(right, _)| rights.contains(*right));
    parts.map(|(_, access)| access).reduce(|a, b| a | b)
}

/// All rights that the ranges of a domain have together.
fn rights_of(stage: &Stage, domain: usize) -> Rights {
    let ranges = stage.script.ranges.iter().filter(|range| range.domain == domain);
    ranges.fold(Rights::empty(), |rights, range| rights | range.rights)
}

/// The rights as the library takes them.
fn access(rights: Rights) -> Result<Access> {
    Ok(Access::from_rights(rights)?)
}
