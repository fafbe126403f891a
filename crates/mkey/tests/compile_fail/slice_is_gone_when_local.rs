//! Promise 2: who has borrowed the bytes has no slice of them to post.
fn f(slice: mkey::Slice) {
    let local = slice.into_local();
    slice.len(); //~ E0382
    drop(local);
}

fn main() {}
