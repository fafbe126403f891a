//! Promise 5: an offset is not an address.
fn f(slice: &mkey::Slice) {
    let _: usize = slice.iova(); //~ E0308
    let _: mkey::IoAddr = slice.len(); //~ E0308
}

fn main() {}
