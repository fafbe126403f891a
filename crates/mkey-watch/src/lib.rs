//! Tells of memory that a traced program gives back, before it does or, of what may fail and stays the
//! program's, once it has.
//!
//! The library is loaded before the C library (`LD_PRELOAD`, as `mkey trace` sets it, beside
//! `libmkey_preload.so`) and has the functions by which memory is freed and unmapped. Each calls the next
//! one of its name, that of the C library or of an allocator of the program's; if a hook was set
//! (`mkey_watch_set`), that is told.
//!
//! * What `mmap` replaces at a fixed address, and what `madvise` takes out, is told of once that is done; a
//!   block that `realloc` moves or frees, and a mapping that `mremap` moves, once they have moved.
//! * `shmdt` is not seen.
//! * What the C library does within itself is not seen: of blocks with mappings of their own, `free` is.
//!   `reallocarray` calls `realloc`.
//! * A program that brings an allocator of its own in its executable does not call these functions, nor
//!   does one of AddressSanitizer's, whose runtime stands before this library.
//!
//! Nothing here allocates, takes a lock or stores anything for a thread: it is called within allocators,
//! and from before the first constructor on.
//!
//! # Safety
//! The functions are called as C has them, with what the next ones of their names take.

use libc::{c_int, c_void, off_t, size_t};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What is told: address, length, whether it is a block of the heap (else a mapping).
type Hook = extern "C" fn(usize, usize, c_int);

static HOOK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets what is told of memory from now on; null ends it.
///
/// # Safety
/// The function may be called at any time, on any thread, and within allocators. It does not allocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkey_watch_set(hook: Option<Hook>) {
    let hook = hook.map_or(ptr::null_mut(), |hook| hook as *mut c_void);
    HOOK.store(hook, Ordering::Release);
}

#[inline]
fn hook() -> Option<Hook> {
    // SAFETY: null or what was set.
    unsafe { transmute::<*mut c_void, Option<Hook>>(HOOK.load(Ordering::Acquire)) }
}

#[inline]
fn unmapped(address: *const c_void, length: usize) {
    if let Some(hook) = hook().filter(|_| length > 0) {
        hook(address.addr(), length, 0);
    }
}

/// A function of the C library's, or of an allocator's.
struct Next {
    name: &'static core::ffi::CStr,
    found: AtomicPtr<c_void>,
    /// The thread that looks for it: what is called meanwhile on it can not wait.
    looking: AtomicUsize,
}

impl Next {
    const fn of(name: &'static core::ffi::CStr) -> Self {
        let found = AtomicPtr::new(ptr::null_mut());
        Self { name, found, looking: AtomicUsize::new(0) }
    }

    /// Null: there is none, or this thread is looking for it.
    #[inline]
    fn get(&self) -> *mut c_void {
        match self.found.load(Ordering::Acquire) {
            found if found.is_null() => self.find(),
            found => found,
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: it takes nothing.
        let thread = unsafe { libc::pthread_self() } as usize;
        if self.looking.swap(thread, Ordering::AcqRel) == thread {
            return ptr::null_mut();
        }
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Release);
        self.looking.store(0, Ordering::Release);
        found
    }
}

static FREE: Next = Next::of(c"free");
static REALLOC: Next = Next::of(c"realloc");
static MUNMAP: Next = Next::of(c"munmap");
static MMAP: Next = Next::of(c"mmap");
static MREMAP: Next = Next::of(c"mremap");
static MADVISE: Next = Next::of(c"madvise");

/// Called when the library is loaded, before any thread is started.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_BEGIN: extern "C" fn() = at_begin;

extern "C" fn at_begin() {
    for next in [&FREE, &REALLOC, &MUNMAP, &MMAP, &MREMAP, &MADVISE] {
        next.get();
    }
}

/// Makes functions known by their names. Each is only a jump, so that the compiler does not take what is
/// behind it for what it knows by that name. There is room behind the jump: communication libraries that
/// watch mappings themselves write a longer one over the beginning of such functions.
macro_rules! exported {
    ($($name:ident = $function:ident;)*) => {$(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {}", ".space 27, 0xcc", sym $function);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {}", ".space 28, 0", sym $function);
        }
    )*};
}

exported! {
    free = gives_free;
    realloc = gives_realloc;
    munmap = gives_munmap;
    mmap = gives_mmap;
    mmap64 = gives_mmap;
    mremap = gives_mremap;
    madvise = gives_madvise;
}

unsafe extern "C" {
    /// Of the program's allocator, whichever that is.
    safe fn malloc_usable_size(block: *mut c_void) -> size_t;
}

unsafe extern "C" fn gives_free(block: *mut c_void) {
    if let Some(hook) = hook()
        && !block.is_null()
    {
        hook(block.addr(), malloc_usable_size(block), 1);
    }
    // SAFETY: null or the function, which is of this type.
    let next =
        unsafe { transmute::<*mut c_void, Option<unsafe extern "C" fn(*mut c_void)>>(FREE.get()) };
    // Within the search for it a block is better lost than freed by another allocator.
    if let Some(next) = next {
        // SAFETY: the caller's.
        unsafe { next(block) };
    }
}

/// Tells of a block that has moved.
fn moved(before: usize, length: usize, now: *mut c_void) {
    if before != 0
        && !now.is_null()
        && now.addr() != before
        && let Some(hook) = hook()
    {
        hook(before, length, 1);
    }
}

/// How long a block is, as far as somebody asks.
fn length(block: *mut c_void) -> usize {
    match hook() {
        Some(_) if !block.is_null() => malloc_usable_size(block),
        _ => 0,
    }
}

unsafe extern "C" fn gives_realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    type Function = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
    let (before, length) = (block.addr(), length(block));
    // SAFETY: null or the function, which is of this type.
    let Some(next) = (unsafe { transmute::<*mut c_void, Option<Function>>(REALLOC.get()) }) else {
        return none();
    };
    // SAFETY: the caller's.
    let now = unsafe { next(block, size) };
    moved(before, length, now);
    // To nothing: C libraries free it.
    if size == 0
        && now.is_null()
        && before != 0
        && let Some(hook) = hook()
    {
        hook(before, length, 1);
    }
    now
}

/// The answer of one that finds no memory.
#[cold]
fn none() -> *mut c_void {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

/// Whether a range is one that calls on mappings take: else they fail and give nothing back.
fn is_range(address: *const c_void, length: usize) -> bool {
    const LEAST_PAGE: usize = 4096;
    address.addr().is_multiple_of(LEAST_PAGE) && length > 0
}

unsafe extern "C" fn gives_munmap(address: *mut c_void, length: size_t) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_void, size_t) -> c_int;
    if is_range(address, length) {
        unmapped(address, length);
    }
    // SAFETY: null or the function, which is of this type; the caller's.
    unsafe {
        match transmute::<*mut c_void, Option<Function>>(MUNMAP.get()) {
            Some(next) => next(address, length),
            None => libc::syscall(libc::SYS_munmap, address, length) as c_int,
        }
    }
}

unsafe extern "C" fn gives_mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    type Function =
        unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    // SAFETY: null or the function, which is of this type; the caller's.
    let mapped = unsafe {
        match transmute::<*mut c_void, Option<Function>>(MMAP.get()) {
            Some(next) => next(address, length, protection, flags, fd, offset),
            None => {
                let mapped =
                    libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset);
                mapped as *mut c_void
            }
        }
    };
    // The bit that asks for nothing to be replaced has the other one with it, or not. Nobody else has the
    // range before this returns: it is told of when it is known to be replaced.
    if flags & libc::MAP_FIXED != 0
        && flags & libc::MAP_FIXED_NOREPLACE != libc::MAP_FIXED_NOREPLACE
        && mapped != libc::MAP_FAILED
        && is_range(address, length)
    {
        unmapped(address, length);
    }
    mapped
}

/// The last argument is there with some flags only; in the calling conventions here it is in a register
/// either way, and handed on as it is.
unsafe extern "C" fn gives_mremap(
    address: *mut c_void,
    length: size_t,
    new_length: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    type Function =
        unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, *mut c_void) -> *mut c_void;
    if is_range(address, length) && new_length > 0 {
        if flags & libc::MREMAP_FIXED != 0 && is_range(new_address, new_length) {
            unmapped(new_address, new_length);
        }
        if new_length < length {
            unmapped(address.wrapping_byte_add(new_length), length - new_length);
        }
    }
    // SAFETY: null or the function, which is of this type; the caller's.
    let now = unsafe {
        match transmute::<*mut c_void, Option<Function>>(MREMAP.get()) {
            Some(next) => next(address, length, new_length, flags, new_address),
            None => {
                let moved = libc::syscall(
                    libc::SYS_mremap,
                    address,
                    length,
                    new_length,
                    flags,
                    new_address,
                );
                moved as *mut c_void
            }
        }
    };
    if now != libc::MAP_FAILED && now != address {
        unmapped(address, length);
    }
    now
}

unsafe extern "C" fn gives_madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;
    // SAFETY: null or the function, which is of this type; the caller's.
    let result = unsafe {
        match transmute::<*mut c_void, Option<Function>>(MADVISE.get()) {
            Some(next) => next(address, length, advice),
            None => libc::syscall(libc::SYS_madvise, address, length, advice) as c_int,
        }
    };
    // Of `MADV_FREE` pages that a device has pinned stay as they are.
    if result == 0
        && [libc::MADV_DONTNEED, libc::MADV_REMOVE].contains(&advice)
        && is_range(address, length)
    {
        unmapped(address, length);
    }
    result
}
