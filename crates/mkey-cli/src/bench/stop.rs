//! Ctrl-C and its like: asked for at safe points, so that huge pages are given back first.

use super::error::{Result, RowError};
use mkey_os::signals;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Signals that end a process unless it takes them, and that others than this process itself send: a
/// terminal, a shell, a service manager, a limit.
const TAKEN: [i32; 9] =
    [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ];

/// Whether a signal asked to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
    said: Arc<AtomicBool>,
}

impl Stop {
    /// Takes the signals that end a process from now on: the first one asks to stop. One that whoever
    /// started this process had it ignore, as `nohup` does, stays ignored.
    ///
    /// # Errors
    /// As the operating system refuses a handler.
    pub fn on_signals() -> std::io::Result<Self> {
        let stop = Self::default();
        for signal in TAKEN.into_iter().filter(|signal| !signals::is_ignored(*signal)) {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), number)?;
        }
        Ok(stop)
    }

    /// As if this signal had come.
    #[cfg(test)]
    pub fn by(signal: usize) -> Self {
        Self { signal: Arc::new(AtomicUsize::new(signal)), ..Self::default() }
    }

    /// As if this signal came now.
    #[cfg(test)]
    pub fn ask(&self, signal: usize) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Whether to go on; the first time that it is not, standard error is told.
    ///
    /// # Errors
    /// `Stopped` once a signal came.
    pub fn check(&self) -> Result<()> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => {
                if !self.said.swap(true, Ordering::Relaxed) {
                    say(&mut io::stderr(), io::stderr().is_terminal());
                }
                Err(RowError::Stopped(i32::try_from(signal).unwrap_or(SIGINT)))
            }
        }
    }
}

/// Giving memory back takes a while. On a terminal the progress bar stands in the line.
fn say(out: &mut impl Write, terminal: bool) {
    let start = if terminal { "\n" } else { "" };
    // If standard error is closed there is nobody to tell.
    let _ = writeln!(out, "{start}mkey: stopping");
}
