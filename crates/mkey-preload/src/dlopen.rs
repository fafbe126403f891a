//! Programs that load libibverbs themselves, and plug-ins that would look past a preloaded library.
//!
//! `dlopen` is ours. It changes what it is asked for and jumps on to the real one, so that the real one
//! sees the caller itself, on whose own search paths it depends.
//!
//! * For `libibverbs.so` and its versions it loads this library again, which has the real one behind
//!   it: a name that is not here is found there, by the handle, too.
//! * RTLD_DEEPBIND is taken away: a plug-in loaded so would call the real functions with our objects.
//!
//! `dlmopen` is not: what is in another namespace sees real devices only.

use crate::boundary::plain;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What the real function is called with.
#[repr(C)]
struct Call {
    path: *const c_char,
    flags: usize,
}

/// The real function.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "call {prepare}",
        "add rsp, 8",
        "mov rdi, rax",
        "mov esi, edx",
        "jmp qword ptr [rip + {real}]",
        prepare = sym prepare,
        real = sym REAL,
    )
}

#[cfg(all(not(test), target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "bl {prepare}",
        "ldp x29, x30, [sp], #16",
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "br x9",
        prepare = sym prepare,
        real = sym REAL,
    )
}

/// What to call the real function with.
#[cfg_attr(test, allow(dead_code, reason = "called by `dlopen`, which tests keep the real one of"))]
extern "C" fn prepare(path: *const c_char, flags: c_int) -> Call {
    if REAL.load(Ordering::Acquire).is_null() {
        // SAFETY: the name is a C string.
        let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
        REAL.store(real, Ordering::Release);
    }
    let path = plain(path, || {
        // SAFETY: null or a C string, as its caller says.
        let asked = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
        match asked.is_some_and(is_libibverbs).then(own_path).flatten() {
            Some(own) => own.as_ptr(),
            None => path,
        }
    });
    Call { path, flags: (flags & !libc::RTLD_DEEPBIND) as u32 as usize }
}

/// Whether a library is libibverbs, of any version and in any folder.
fn is_libibverbs(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    match name.strip_prefix(b"libibverbs.so") {
        Some(rest) => rest.is_empty() || rest.starts_with(b"."),
        None => false,
    }
}

/// The file that this library was loaded from.
fn own_path() -> Option<&'static CStr> {
    static PATH: OnceLock<Option<CString>> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut info = MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: it writes the structure if it finds the address, and then the name is a C string.
        unsafe {
            if libc::dladdr((&raw const REAL).cast(), info.as_mut_ptr()) == 0 {
                return None;
            }
            let name = info.assume_init().dli_fname;
            (!name.is_null()).then(|| CStr::from_ptr(name).to_owned())
        }
    })
    .as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libibverbs_is_known_by_its_file_name() {
        for name in [c"libibverbs.so", c"libibverbs.so.1", c"/usr/lib/libibverbs.so.1.14.44.0"] {
            assert!(is_libibverbs(name), "{name:?}");
        }
        for name in [c"libmlx5.so.1", c"libibverbs.so1", c"/libibverbs.so/x", c"", c"librdmacm.so"]
        {
            assert!(!is_libibverbs(name), "{name:?}");
        }
    }
}
