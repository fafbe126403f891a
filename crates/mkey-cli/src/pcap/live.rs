//! Standard input as it comes, until it ends or SIGINT does. In `tcpdump -w - | mkey pcap -` both are sent
//! Ctrl-C, and what tcpdump still has to say comes after it.

use mkey_os::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGINT;
use signal_hook::{flag, low_level};
use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long it is read on after the signal.
const LONGER: Duration = Duration::from_millis(300);

/// Standard input.
#[derive(Debug)]
pub struct Live {
    input: File,
    /// A byte comes here with the signal.
    signal: PipeReader,
    until: Option<Instant>,
    stopped: Arc<AtomicBool>,
}

impl Live {
    /// Takes SIGINT from now on, unless whoever started this process had it ignore it: the first ends the
    /// input and sets `stopped`, the second the process.
    ///
    /// # Errors
    /// As the operating system refuses a handler or a descriptor.
    pub fn new(stopped: Arc<AtomicBool>) -> io::Result<Self> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (signal, writer) = io::pipe()?;
        if signals::is_ignored(SIGINT) {
            // Kept open: a pipe without a writer would be ready.
            std::mem::forget(writer);
        } else {
            // In this order none is lost that comes meanwhile.
            low_level::pipe::register(SIGINT, writer)?;
            let came = Arc::new(AtomicBool::new(false));
            flag::register_conditional_default(SIGINT, Arc::clone(&came))?;
            flag::register(SIGINT, came)?;
        }
        Ok(Self { input, signal, until: None, stopped })
    }
}

impl Read for Live {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.map(Timespec::try_from).transpose().unwrap_or_default();
            let mut ready =
                [PollFd::new(&self.input, PollFlags::IN), PollFd::new(&self.signal, PollFlags::IN)];
            // Once it came, the signal is not waited for again.
            let both = if self.until.is_some() { &mut ready[..1] } else { &mut ready[..] };
            match poll(both, timeout.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            let [input, signal] = ready.map(|one| !one.revents().is_empty());
            if signal && self.until.is_none() {
                self.until = Some(Instant::now() + LONGER);
            }
            if left.is_some_and(|left| left.is_zero() || !input) {
                self.stopped.store(true, Ordering::Relaxed);
                return Ok(0);
            }
            if input {
                let read = self.input.read(into)?;
                if read == 0 && self.until.is_some() {
                    self.stopped.store(true, Ordering::Relaxed);
                }
                return Ok(read);
            }
        }
    }
}
