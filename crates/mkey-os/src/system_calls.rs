//! System calls of a piece of work, counted one by one.
//!
//! The work runs on a thread of its own under a seccomp filter that reports every system call to
//! the calling thread, which counts it and lets it go on. Exact, needs no privilege and no tracer,
//! and works wherever the process may install a filter; each call takes some microseconds longer.

use crate::error::OsError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

/// System calls by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<i64, u64>);

impl Counts {
    /// All together.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Number of the system call and how often it was made, by number.
    pub fn iter(&self) -> impl Iterator<Item = (i64, u64)> {
        self.0.iter().map(|(&number, &count)| (number, count))
    }
}

/// Says which part of the work counts.
#[derive(Debug)]
pub struct Counting<'a>(&'a AtomicBool);

impl Counting<'_> {
    /// System calls count from here on.
    pub fn start(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// And no more.
    pub fn stop(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Runs `work` on a new thread and counts the system calls that it makes, and the threads that it
/// starts make, between [`Counting::start`] and [`Counting::stop`]. Calls that other threads make
/// for it are not seen, nor are those to end a thread.
///
/// # Errors
/// Where the kernel takes no such filter (Linux 5.5 and later do), or another one is in the way.
///
/// # Panics
/// As `work` does.
pub fn count<T: Send>(
    work: impl FnOnce(&Counting<'_>) -> T + Send,
) -> Result<(T, Counts), OsError> {
    let counting = AtomicBool::new(false);
    // The filtered thread can tell nothing by a system call before somebody listens.
    let listener = AtomicI32::new(UNKNOWN);
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("counted".to_owned());
        let filtered = || match install() {
            Ok(fd) => {
                listener.store(fd, Ordering::Release);
                Ok(work(&Counting(&counting)))
            }
            Err(error) => {
                listener.store(REFUSED, Ordering::Release);
                Err(error)
            }
        };
        let thread = thread
            .spawn_scoped(scope, filtered)
            .map_err(|error| OsError::from_io("clone", &error))?;
        let fd = loop {
            match listener.load(Ordering::Acquire) {
                UNKNOWN => thread::yield_now(),
                fd => break fd,
            }
        };
        let counts = match fd {
            REFUSED => Counts::default(),
            // SAFETY: the filter's installation made it, and nobody else has it.
            fd => listen(&unsafe { OwnedFd::from_raw_fd(fd) }, &counting, || thread.is_finished()),
        };
        match thread.join() {
            Ok(done) => done.map(|done| (done, counts)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The name of a system call that memory, locks or devices need; `None` for others.
pub fn name(number: i64) -> Option<&'static str> {
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| *name)
}

const NAMES: &[(i64, &str)] = &[
    (libc::SYS_clock_gettime, "clock_gettime"),
    (libc::SYS_futex, "futex"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_io_uring_register, "io_uring_register"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_membarrier, "membarrier"),
    (libc::SYS_mincore, "mincore"),
    (libc::SYS_mlock, "mlock"),
    (libc::SYS_mlock2, "mlock2"),
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_munlock, "munlock"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_read, "read"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_write, "write"),
];

const UNKNOWN: RawFd = -1;
const REFUSED: RawFd = -2;

/// Puts the calling thread under the filter; who listens to its descriptor gets all calls but those
/// that end a thread, which could not be let go once nobody listens.
fn install() -> Result<RawFd, OsError> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD, 0, 0, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
        step(EQUAL, 2, 0, libc::SYS_exit as u32),
        step(EQUAL, 1, 0, libc::SYS_exit_group as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes plain values; concerns this thread only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(OsError::last("prctl(PR_SET_NO_NEW_PRIVS)"));
    }
    // SAFETY: the program lives until the call returns, which copies it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(|| OsError::last("seccomp"))
}

/// Lets calls go on and counts them, until no thread is under the filter any more.
fn listen(fd: &OwnedFd, counting: &AtomicBool, is_finished: impl Fn() -> bool) -> Counts {
    let mut counts = Counts::default();
    loop {
        let mut wait = [PollFd::new(fd, PollFlags::IN)];
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut wait, Some(&patience)) {
            // Kernels before 5.9 do not tell that the filter's last thread has gone.
            Ok(0) if is_finished() => return counts,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return counts,
            Ok(_) => {}
        }
        let [wait] = wait;
        if !wait.revents().contains(PollFlags::IN) {
            return counts;
        }
        if let Some((id, number)) = receive(fd) {
            if counting.load(Ordering::SeqCst) {
                *counts.0.entry(number).or_default() += 1;
            }
            go_on(fd, id);
        }
    }
}

/// The next call's id and number; `None` if a signal has taken it back.
fn receive(fd: &OwnedFd) -> Option<(u64, i64)> {
    // SAFETY: plain integers, for which zeroes are valid, and which the kernel asks to be zero.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is a listener's, and the kernel fills one `seccomp_notif`.
    let done =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
    (done == 0).then_some((call.id, i64::from(call.data.nr)))
}

/// Lets a call be made.
fn go_on(fd: &OwnedFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the descriptor is a listener's, and the kernel reads one `seccomp_notif_resp`. That
    // it refuses means that the call has been taken back.
    let _ = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system call that the C library does not answer by itself.
    fn call() {
        std::hint::black_box(rustix::process::getppid());
    }

    #[test]
    fn calls_between_start_and_stop_are_counted_exactly() {
        let work = |counting: &Counting<'_>| {
            call();
            counting.start();
            (0..7).for_each(|_| call());
            counting.stop();
            call();
            "done"
        };
        let (done, counts) = count(work).expect("seccomp with a listener");
        assert_eq!(done, "done");
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(libc::SYS_getppid, 7)]);
        assert_eq!(counts.total(), 7);
    }

    #[test]
    fn work_without_calls_counts_none() {
        let work = |counting: &Counting<'_>| {
            counting.start();
            let sum = (0..1000u64).fold(0, |sum, n| std::hint::black_box(sum + n));
            counting.stop();
            sum
        };
        let (sum, counts) = count(work).expect("seccomp with a listener");
        assert_eq!((sum, counts.total()), (499_500, 0));
    }

    #[test]
    fn other_threads_are_neither_filtered_nor_counted() {
        let ((), counts) = count(|counting| {
            counting.start();
            counting.stop();
        })
        .expect("seccomp with a listener");
        call();
        assert_eq!(counts.total(), 0);
        let again = count(|_| ()).expect("this thread may install another");
        assert_eq!(again.1.total(), 0);
    }

    #[test]
    #[should_panic(expected = "the work failed")]
    fn a_panic_of_the_work_is_the_callers() {
        let _ = count(|_| panic!("the work failed"));
    }
}
