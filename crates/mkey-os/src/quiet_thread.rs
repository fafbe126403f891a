//! Threads beside a program that knows nothing of them: they take none of its signals.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// Starts a thread on which every signal is blocked that can be, so that no handler of the program
/// runs there and none is taken from a thread that waits for it.
///
/// # Errors
/// Where the system refuses a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_owned());
    // A new thread begins with the mask of the one that starts it.
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set, `pthread_sigmask` reads it and writes the other;
    // both are of the type the call takes.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // Faults of tolerant copies come here.
        for fault in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let started = builder.spawn(work);
    if blocked {
        // SAFETY: the call above has written the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    started
}

/// Has the calling thread ask for the processor in short turns, as one that mostly sleeps: when it is
/// woken it goes before a thread that computes without end, instead of after that one's turn (Linux
/// 6.12 and later; before, it changes nothing). Whether that was taken note of. It gets no more of the
/// processor by it, and needs no privilege.
pub fn wake_promptly() -> bool {
    /// The shortest turn that the kernel grants, in nanoseconds.
    const TURN: u64 = 100_000;
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: a structure of plain numbers, for which all zeros are a value.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: of the calling thread (0); it writes no more than `size` bytes there.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, 0) } == 0;
    // Others have priorities.
    if !known || now.sched_policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    (now.size, now.sched_runtime) = (size, TURN);
    // SAFETY: it reads the structure, whose size it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_ask_for_short_turns() {
        assert!(std::thread::spawn(wake_promptly).join().unwrap());
    }

    fn blocked(signal: i32) -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: asks for the mask only; it is written then.
        unsafe {
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()), 0);
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn no_signal_comes_to_such_a_thread_and_the_others_keep_theirs() {
        let there = spawn("quiet", || [libc::SIGUSR1, libc::SIGALRM, libc::SIGSEGV].map(blocked));
        assert_eq!(there.unwrap().join().unwrap(), [true, true, false]);
        assert!(!blocked(libc::SIGUSR1));
    }
}
