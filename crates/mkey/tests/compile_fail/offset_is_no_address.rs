//! Promise 5: an offset is not an address.
fn f(slice: &mkey::Slice) {
    let _: usize = slice.iova();
    let _: mkey::IoAddr = slice.len();
}

fn main() {}
