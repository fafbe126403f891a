//! The C library's types inside the verbs' own. Wrapped, so that they can be made of zeros.

use std::fmt;

macro_rules! wrapped {
    ($($name:ident),*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the C library.")]
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        pub struct $name(pub libc::$name);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        // SAFETY: the C library's type consists of integers (and, for alignment, arrays of them),
        // for which zero is a value.
        unsafe impl bytemuck::Zeroable for $name {}
    )*};
}

wrapped!(pthread_cond_t, pthread_mutex_t, timespec);
