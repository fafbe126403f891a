//! What is known of a device: what trying showed, and what that makes of what it says of itself.
//!
//! A trial that was refused for want of room (a small memory lock, a full table) shows nothing. So
//! it is tried again when somebody asks later, and what was said before stays valid for those who
//! hold it.

use crate::trial::Tried;
use mkey_core::device::Capabilities;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The first time between two looks; doubled by each, six times.
const REST: Duration = Duration::from_secs(1);

/// What is known at one time.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) tried: Tried,
    pub(crate) capabilities: Capabilities,
    later: OnceLock<Box<Finding>>,
}

/// Findings, the newest last. There are few: each settles a trial that was not.
#[derive(Debug, Default)]
pub(crate) struct Known {
    first: OnceLock<Box<Finding>>,
    /// Nothing is left to find.
    settled: AtomicBool,
    last: Mutex<Looked>,
}

#[derive(Debug, Default)]
struct Looked {
    at: Option<Instant>,
    times: u32,
}

impl Known {
    /// What is known now, without a look.
    pub(crate) fn newest(&self) -> Option<&Finding> {
        let mut newest = self.first.get()?;
        while let Some(later) = newest.later.get() {
            newest = later;
        }
        Some(newest)
    }

    /// What is known, after a look if none was taken yet, or if one is due that may show more.
    pub(crate) fn get(
        &self,
        look: impl FnOnce() -> Tried,
        judge: impl FnOnce(&Tried) -> Capabilities,
    ) -> &Finding {
        match self.newest() {
            Some(newest) if self.settled.load(Ordering::Acquire) => newest,
            Some(newest) => match self.last.try_lock() {
                Ok(looked) if looked.is_due() => self.look(looked, look, judge),
                Err(TryLockError::Poisoned(looked)) => self.look(looked.into_inner(), look, judge),
                // Somebody is looking.
                Ok(_) | Err(TryLockError::WouldBlock) => newest,
            },
            None => self.now(look, judge),
        }
    }

    /// What is known, after a look if that may show more.
    pub(crate) fn now(
        &self,
        look: impl FnOnce() -> Tried,
        judge: impl FnOnce(&Tried) -> Capabilities,
    ) -> &Finding {
        let looked = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match self.newest() {
            Some(newest) if self.settled.load(Ordering::Acquire) => newest,
            _ => self.look(looked, look, judge),
        }
    }

    fn look(
        &self,
        mut looked: std::sync::MutexGuard<'_, Looked>,
        look: impl FnOnce() -> Tried,
        judge: impl FnOnce(&Tried) -> Capabilities,
    ) -> &Finding {
        let newest = self.newest();
        let found = look();
        let tried = match newest {
            None => found,
            Some(before) => before.tried.clone().settled_by(found),
        };
        (looked.at, looked.times) = (Some(Instant::now()), looked.times.saturating_add(1));
        self.settled.store(tried.is_settled(), Ordering::Release);
        let place = match newest {
            Some(before) if before.tried == tried => return before,
            Some(before) => &before.later,
            None => &self.first,
        };
        let capabilities = judge(&tried);
        place.get_or_init(|| Box::new(Finding { tried, capabilities, later: OnceLock::new() }))
    }
}

impl Looked {
    fn is_due(&self) -> bool {
        let rest = REST * (1 << self.times.saturating_sub(1).min(6));
        self.at.is_none_or(|at| at.elapsed() >= rest)
    }
}
