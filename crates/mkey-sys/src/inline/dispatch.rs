//! Calling an operation that may not be there.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use crate::types::{ibv_context, verbs_context};

/// What a verb answers that the device does not have.
pub(super) trait Unsupported {
    fn unsupported() -> Self;
}

impl Unsupported for c_int {
    fn unsupported() -> Self {
        libc::EOPNOTSUPP
    }
}

impl<T> Unsupported for *mut T {
    fn unsupported() -> Self {
        // SAFETY: the C library's own pointer to this thread's errno.
        unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
        ptr::null_mut()
    }
}

/// The extended context around a context; `None` if it is of a provider before there were any.
///
/// Of the structure only the part is there that [`verbs_context::sz`] says, counted from its end.
///
/// # Safety
/// `context` is an open device's.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the caller's.
    let extended = unsafe { (*context).abi_compat }.addr() == usize::MAX;
    // SAFETY: the mark says that the context is the last field of an extended one.
    extended.then(|| unsafe { context.byte_sub(offset_of!(verbs_context, context)).cast() })
}

/// The operation `$op` of an extended context, if the provider's structure has it. To be used where
/// unsafe code may stand: the context is an open device's.
macro_rules! extended {
    ($context:expr, $op:ident) => {
        match $crate::inline::verbs_get_ctx($context) {
            Some(extended)
                if (*extended).sz
                    >= size_of::<$crate::types::verbs_context>()
                        - std::mem::offset_of!($crate::types::verbs_context, $op) =>
            {
                (*extended).$op
            }
            _ => None,
        }
    };
}

/// Verbs that are calls of one operation and answer an errno or a pointer.
macro_rules! verbs {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $op:expr;
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The arguments are as the manual page asks: pointers to live objects of one library and
        /// to memory of the size that the call reads or writes.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the objects are live, by the caller; an extended context is read only where
            // its own size says that it reaches.
            let op = unsafe { $op };
            match op {
                // SAFETY: the provider's own function, with the arguments the caller vouches for.
                Some(op) => unsafe { op($($arg),*) },
                None => <$ret as $crate::inline::dispatch::Unsupported>::unsupported(),
            }
        }
    )*};
}

/// Operations of a queue object, which are there if the queue was made with them.
macro_rules! offered {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($queue:ident: $queue_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            = $op:ident;
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The arguments are as the manual page asks: pointers to live objects of one library and
        /// to memory of the size that the call reads or writes.
        #[inline]
        pub unsafe fn $name(
            $queue: $queue_ty $(, $arg: $ty)*
        ) -> Result<$ret, $crate::error::NotOffered> {
            // SAFETY: the queue is live, by the caller.
            match unsafe { (*$queue).$op } {
                // SAFETY: the provider's own function, with the arguments the caller vouches for.
                Some(op) => Ok(unsafe { op($queue $(, $arg)*) }),
                None => Err($crate::error::NotOffered { operation: stringify!($op) }),
            }
        }
    )*};
}

pub(super) use extended;
pub(crate) use offered;
pub(super) use verbs;
