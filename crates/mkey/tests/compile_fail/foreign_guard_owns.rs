//! Promise 1: a guard of registered memory owns it; a borrow would end before the registration.
fn f(start: std::ptr::NonNull<u8>) -> mkey::Foreign {
    let bytes = [0u8; 16];
    // SAFETY: none: it is not to compile.
    unsafe { mkey::Foreign::new(start, 16, &bytes) } //~ E0597
}

fn main() {}
