//! Promise 2: the bytes are given back before the memory can be posted again.
fn f(local: mkey::Local) -> u8 {
    let bytes: &[u8] = &local;
    let slice = local.into_slice(); //~ E0505
    drop(slice);
    bytes[0]
}

fn main() {}
