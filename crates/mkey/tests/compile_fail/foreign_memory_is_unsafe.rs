//! Promise 1: that memory of somebody else stays is promised by who says so.
fn f(start: std::ptr::NonNull<u8>, guard: Vec<u8>) -> mkey::Foreign {
    mkey::Foreign::new(start, 16, guard) //~ E0133
}

fn main() {}
