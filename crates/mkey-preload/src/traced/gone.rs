//! Memory that the program gives back, as `libmkey_watch.so` tells of it.

use crate::boundary::plain;
use crate::traced::{errno, set_errno};
use mkey_trace::raw::Wrong;
use mkey_trace::record::Recorder;
use std::ffi::c_int;

/// What is called for memory that is about to be given back: address, length, whether it is a block of
/// the heap (else a mapping).
type Hook = extern "C" fn(usize, usize, c_int);

/// Asks to be told. Without the other library nothing is.
pub(super) fn listen() {
    // SAFETY: a C string.
    let set = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mkey_watch_set".as_ptr()) };
    // SAFETY: null or the function of the other library, which is of this type.
    let set = unsafe {
        std::mem::transmute::<*mut libc::c_void, Option<unsafe extern "C" fn(Option<Hook>)>>(set)
    };
    if let Some(set) = set {
        // SAFETY: the hook may be called at any time, on any thread.
        unsafe { set(Some(hook)) };
    }
}

extern "C" fn hook(address: usize, length: usize, heap: c_int) {
    let Some(recorder) = Recorder::current() else { return };
    let before = errno();
    let how = if heap != 0 { Wrong::FreedRegistered } else { Wrong::UnmappedRegistered };
    plain((), || recorder.gone(address as u64, length as u64, how));
    set_errno(before);
}
