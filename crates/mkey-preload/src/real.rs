//! The real libibverbs, which is loaded behind us.

use crate::boundary::plain;
use mkey_sys::Verbs;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

/// Its functions; `None` if it is not one.
pub(crate) fn verbs() -> Option<&'static Verbs> {
    static REAL: OnceLock<Option<Verbs>> = OnceLock::new();
    let found = plain(None, || {
        Some(REAL.get_or_init(|| {
            // SAFETY: what is loaded behind us under these names and versions is libibverbs, which is
            // never unloaded as we need it.
            unsafe { Verbs::from_symbols(Path::new("libibverbs.so.1"), next) }.ok()
        }))
    });
    found?.as_ref()
}

/// `ibv_query_gid_type`, which is none of its public functions.
pub(crate) type QueryGidType = unsafe extern "C" fn(
    *mut mkey_sys::types::ibv_context,
    u8,
    std::ffi::c_uint,
    *mut std::ffi::c_uint,
) -> std::ffi::c_int;

/// Its own, if it has one. The version of the name changes with releases.
pub(crate) fn query_gid_type() -> Option<QueryGidType> {
    let found = plain(ptr::null_mut(), || by_name(c"ibv_query_gid_type"));
    // SAFETY: null or the function, of the type that its source gives it.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<QueryGidType>>(found) }
}

/// The next definition of a symbol after ours, of whatever version.
pub(crate) fn by_name(name: &CStr) -> *mut libc::c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The same of one version.
fn next(name: &str, version: &str) -> *mut libc::c_void {
    let (Ok(name), Ok(version)) = (CString::new(name), CString::new(version)) else {
        return ptr::null_mut();
    };
    // SAFETY: both are C strings.
    unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) }
}
