//! Promise 2: memory that work or peers may write is not lent, byte by byte neither.
fn f(slice: &mkey::Slice) -> u8 {
    slice[0] //~ E0608
}

fn main() {}
