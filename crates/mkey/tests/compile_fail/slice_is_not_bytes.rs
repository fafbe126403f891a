//! Promise 2: memory that work or peers may write is not lent.
fn f(slice: &mkey::Slice) -> &[u8] {
    slice //~ E0308
}

fn main() {}
