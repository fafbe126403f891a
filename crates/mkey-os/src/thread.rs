//! Threads that work behind a program's back.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Signals that a fault raises on the very thread: blocked, they would end the process, and the
/// tolerant [`copy`](crate::copy) lives on two of them.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread on which no signal is delivered that is meant for the process: the program's own
/// threads get them, as if there were no other.
///
/// # Errors
/// If there can be no more threads.
pub fn spawn_behind(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // A new thread inherits the mask of the one that starts it.
    let before = block_all_but_faults();
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    if let Some(before) = before {
        // SAFETY: the mask was filled by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    }
    thread
}

/// The mask that the calling thread had before.
fn block_all_but_faults() -> Option<libc::sigset_t> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` makes a set of the first place, which `sigdelset` and `pthread_sigmask`
    // take then; the latter fills the second place unless it fails.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        let set = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        (set == 0).then(|| before.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> Vec<i32> {
        let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: only reads the mask, into the place.
        let mask = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            mask.assume_init()
        };
        // SAFETY: the mask was filled by the kernel.
        (1..32).filter(|&signal| unsafe { libc::sigismember(&mask, signal) } == 1).collect()
    }

    #[test]
    fn a_thread_behind_takes_faults_only() {
        let before = blocked();
        let thread = spawn_behind("test", || {
            let blocked = blocked();
            assert!(
                [libc::SIGTERM, libc::SIGINT, libc::SIGALRM, libc::SIGCHLD]
                    .iter()
                    .all(|signal| blocked.contains(signal))
            );
            assert!(FAULTS.iter().all(|fault| !blocked.contains(fault)));
        });
        thread.expect("a thread").join().expect("what it checks holds");
        assert_eq!(blocked(), before, "the caller's mask is as it was");
    }
}
