//! Helpers that several test programs share.
#![allow(dead_code, reason = "each test program uses some of them")]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr;

/// Size of a base page.
pub const PAGE: usize = 4096;

/// Anonymous pages whose protection the test changes; unmapped on drop.
#[derive(Debug)]
pub struct Pages {
    pub addr: *mut u8,
    pub len: usize,
}

impl Pages {
    /// `count` readable and writable pages, never transparent huge ones.
    pub fn new(count: usize) -> Self {
        let len = count * PAGE;
        let addr = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(addr, libc::MAP_FAILED);
        unsafe { libc::madvise(addr, len, libc::MADV_NOHUGEPAGE) };
        Self { addr: addr.cast(), len }
    }

    pub fn page(&self, index: usize) -> *mut u8 {
        assert!(index * PAGE < self.len);
        self.addr.wrapping_add(index * PAGE)
    }

    pub fn protect(&self, index: usize, count: usize, protection: i32) {
        let rc = unsafe { libc::mprotect(self.page(index).cast(), count * PAGE, protection) };
        assert_eq!(rc, 0);
    }

    /// Maps fresh anonymous memory over some of the pages.
    pub fn replace(&self, index: usize, count: usize) {
        let addr = unsafe {
            libc::mmap(
                self.page(index).cast(),
                count * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        assert_eq!(addr.cast(), self.page(index));
    }

    pub fn unmap(&self, index: usize, count: usize) {
        assert_eq!(unsafe { libc::munmap(self.page(index).cast(), count * PAGE) }, 0);
    }

    pub fn fill(&self, byte: u8) {
        unsafe { ptr::write_bytes(self.addr, byte, self.len) };
    }

    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        (0..len).map(|i| unsafe { self.addr.add(offset + i).read_volatile() }).collect()
    }
}

// The tests share the pages between threads as raw memory.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        unsafe { libc::munmap(self.addr.cast(), self.len) };
    }
}

/// A shared mapping of a memfd, `mapped` pages long while the file has `backed` pages.
pub fn memfd_pages(mapped: usize, backed: usize) -> Pages {
    let file = rustix::fs::memfd_create("mkey-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, (backed * PAGE) as u64).unwrap();
    let addr = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mapped * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(addr, libc::MAP_FAILED);
    Pages { addr: addr.cast(), len: mapped * PAGE }
}

/// How a child process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
}

/// Runs `body` in a forked child; a panic there exits with 101 after printing itself.
pub fn in_child(body: impl FnOnce() -> i32) -> Ended {
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let run = std::panic::AssertUnwindSafe(body);
        let code = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            // The harness keeps what the macros print, and goes down with the child.
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            let _ = writeln!(std::io::stderr(), "in the child: {text}");
            101
        });
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Exit(libc::WEXITSTATUS(status))
    }
}
