//! Which thread of the borrower copies, in a word of the memory that both share.
//!
//! A thread may go in the middle of a copy while its process stays: another thread starts a new program.
//! The kernel then marks the word: it is what the thread's list of robust futexes says that it is just
//! about to take or give back. That is a field of the list's head, which the C library has registered for
//! each thread and uses itself only within calls for robust mutexes, so nothing of the list is in shared
//! memory, and the peer can do no harm to it.

use crate::core::generation;
use crate::link::shm::atomic::{AtomicU32, Ordering};
use std::cell::Cell;
use std::ffi::c_long;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, compiler_fence};

/// The thread's number, marked once the thread has gone; 0: nobody.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Copier(AtomicU32);

/// As `struct robust_list_head` of the kernel.
#[repr(C)]
struct Head {
    list: usize,
    futex_offset: c_long,
    pending: AtomicUsize,
}

/// What is to be known of a thread, and of which generation of the process it is.
#[derive(Clone, Copy)]
struct Own {
    head: NonNull<Head>,
    thread: u32,
    generation: u32,
}

thread_local! {
    static OWN: Cell<Option<Own>> = const { Cell::new(None) };
}

impl Copier {
    /// Runs `copy` while the word says that it is this thread. `None` where the kernel could not mark it
    /// if the thread went, or in a signal handler that has come in the middle of another copy.
    pub(super) fn during<T>(&self, copy: impl FnOnce() -> T) -> Option<T> {
        let Own { head, thread, .. } = own()?;
        // SAFETY: this thread's own, which is there for as long as the thread. Others do not touch it, and
        // the kernel only once the thread goes.
        let head = unsafe { head.as_ref() };
        if head.pending.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let entry = ptr::from_ref(self).addr().wrapping_sub(head.futex_offset as usize);
        head.pending.store(entry, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.0.store(thread, Ordering::Release);
        let done = copy();
        self.0.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        head.pending.store(0, Ordering::Relaxed);
        Some(done)
    }

    /// Whether there is a thread, as far as the kernel has not said that it has gone.
    pub(super) fn is_there(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & libc::FUTEX_TID_MASK != 0 && word & libc::FUTEX_OWNER_DIED == 0
    }
}

fn own() -> Option<Own> {
    let known = OWN.get().filter(|own| own.generation == generation());
    known.or_else(|| {
        let own = ask()?;
        OWN.set(Some(own));
        Some(own)
    })
}

#[cold]
fn ask() -> Option<Own> {
    let mut head: *mut Head = ptr::null_mut();
    let mut size = 0usize;
    // SAFETY: of the calling thread (0); it writes an address and a size.
    let asked =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut size) };
    // SAFETY: a number.
    let thread = u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).ok()?;
    let head = NonNull::new(head).filter(|_| asked == 0 && size == size_of::<Head>())?;
    Some(Own { head, thread, generation: generation() })
}
