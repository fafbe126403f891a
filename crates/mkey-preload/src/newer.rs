//! Functions of libibverbs that are newer than the bindings. They are given an object, and the real ones
//! take it for one of a driver's; so they are ours, wherever the real library has them.

use crate::boundary::{Answer, EOPNOTSUPP, Errno, NOT_HERE, OrMinusOne, Verb, plain, verb};
use crate::dm::Dm;
use crate::objects::{Whose, readable, whose};
use crate::pd::Pd;
use crate::structs::put;
use crate::{attributes, real};
use mkey_sys::types::*;
use std::ffi::{CStr, c_int, c_void};

/// Functions as in `exports`; all may be called as their manual pages say.
macro_rules! functions {
    ($(
        $symbol:literal fn $name:ident(
            $first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)*
        ) -> $ret:ty as $answer:ty = $whose:path, |$found:ident| $body:expr;
    )*) => {$(
        pub(crate) unsafe extern "C" fn $name($first: $first_ty $(, $arg: $ty)*) -> $ret {
            let unknown = Whose::Nobodys(Errno(libc::EIO));
            // SAFETY: the caller's.
            let whose = plain(unknown, || unsafe { $whose($first) });
            if let Whose::Real = whose {
                const SYMBOL: &CStr = $symbol;
                let found = plain(std::ptr::null_mut(), || real::by_name(SYMBOL));
                // SAFETY: null or the function, of the type that its manual page gives it.
                let function = unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        Option<unsafe extern "C" fn($first_ty $(, $ty)*) -> $ret>,
                    >(found)
                };
                return match function {
                    // SAFETY: the caller's: the real function is called as ours was.
                    Some(function) => unsafe { function($first $(, $arg)*) },
                    None => <$answer as Answer<_>>::failed(EOPNOTSUPP),
                };
            }
            verb::<$ret, $answer>(|| match whose {
                Whose::Ours($found) => $body,
                Whose::Parents => Err(NOT_HERE),
                Whose::Nobodys(errno) => Err(errno),
                Whose::Real => Err(EOPNOTSUPP),
            })
        }
    )*};
}

functions! {
    c"ibv_query_port_speed" fn ibv_query_port_speed(
        context: *mut ibv_context, port: u32, speed: *mut u64
    ) -> c_int as Verb<()> = readable, |open| {
        let known = attributes::speed(&open, port)?;
        // SAFETY: the caller's.
        unsafe { put(speed, known) }
    };
    c"ibv_dm_export_dmabuf_fd" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm)
        -> c_int as Verb<OrMinusOne> = whose::<Dm, _>, |_dm| Err(EOPNOTSUPP);
    c"ibv_reg_mr_ex" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut c_void)
        -> *mut ibv_mr as Verb<*mut ibv_mr> = whose::<Pd, _>, |_pd| Err(EOPNOTSUPP);
}
