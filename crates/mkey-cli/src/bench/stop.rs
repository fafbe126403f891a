//! Ctrl-C and its like: asked for at safe points, so that huge pages are given back first.

use super::error::{Result, RowError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether a signal asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// Takes SIGINT, SIGTERM and SIGHUP from now on: the first one asks to stop.
    ///
    /// # Errors
    /// As the operating system refuses a handler.
    pub fn on_signals() -> std::io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.0), number)?;
        }
        Ok(stop)
    }

    /// As if this signal had come.
    #[cfg(test)]
    pub fn by(signal: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(signal)))
    }

    /// As if this signal came now.
    #[cfg(test)]
    pub fn ask(&self, signal: usize) {
        self.0.store(signal, Ordering::Relaxed);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// `Stopped` once a signal came.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(RowError::Stopped(i32::try_from(signal).unwrap_or(SIGINT))),
        }
    }
}
