//! Forked children: telling one from the process that made something, and setting right there what
//! other threads of the parent were in the middle of.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicU32, Ordering};

/// Has `child` called in every forked child, before `fork` returns there. It runs while the locks
/// of other threads may be held for ever: it may do no more than write atomics. False if there was
/// no memory to note it.
pub fn in_children(child: extern "C" fn()) -> bool {
    // SAFETY: only notes the function, which lives as long as the program.
    unsafe { libc::pthread_atfork(None, None, Some(child)) == 0 }
}

/// Has `before` called on the thread that forks, before it does, and `after` on it in the parent and in
/// the child: what is locked in between is whole in the child. False if there was no memory to note it.
pub fn around(before: extern "C" fn(), after: extern "C" fn()) -> bool {
    // SAFETY: only notes the functions, which live as long as the program.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) == 0 }
}

/// Remembers the process it was made in, at the cost of a load per question: a page the kernel
/// wipes in a forked child.
#[derive(Debug)]
pub(crate) struct Birthplace {
    /// 1 in the process of birth, 0 in its children; null where the kernel cannot wipe.
    mark: *mut AtomicU32,
    pid: Option<rustix::process::Pid>,
}

// SAFETY: the mark is an atomic that lives until drop.
unsafe impl Send for Birthplace {}
// SAFETY: as above.
unsafe impl Sync for Birthplace {}

impl Birthplace {
    pub(crate) fn here() -> Self {
        let pid = Some(rustix::process::getpid());
        Self { mark: marked_page().unwrap_or(std::ptr::null_mut()), pid }
    }

    /// Whether the caller is the process (not a forked child) that made this.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        if self.mark.is_null() {
            return self.pid == Some(rustix::process::getpid());
        }
        // SAFETY: not null, so it is the page mapped by `here`, which lives until drop.
        unsafe { (*self.mark).load(Ordering::Relaxed) == 1 }
    }
}

impl Drop for Birthplace {
    fn drop(&mut self) {
        if !self.mark.is_null() {
            // SAFETY: the page was mapped by `here` and nobody else knows it.
            let _ = unsafe { rustix::mm::munmap(self.mark.cast(), crate::limits::page_size()) };
        }
    }
}

fn marked_page() -> Option<*mut AtomicU32> {
    let len = crate::limits::page_size();
    // SAFETY: a new private page at an address the kernel chooses; wiped in children only.
    unsafe {
        let page = rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
        .ok()?;
        if rustix::mm::madvise(page, len, Advice::LinuxWipeOnFork).is_err() {
            let _ = rustix::mm::munmap(page, len);
            return None;
        }
        let mark = page.cast::<AtomicU32>();
        (*mark).store(1, Ordering::Relaxed);
        Some(mark)
    }
}
