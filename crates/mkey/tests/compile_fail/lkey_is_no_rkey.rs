//! Promise 5: a local key is not given to a peer.
fn f(mr: &mkey::Mr, address: mkey::IoAddr) -> mkey::RemoteKey {
    mkey::RemoteKey { key: mr.info().lkey, address, length: 8 } //~ E0308
}

fn main() {}
