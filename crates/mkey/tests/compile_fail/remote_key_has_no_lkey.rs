//! Promise 3: what travels to a peer has no local key.
fn f(key: mkey::RemoteKey) -> mkey::Lkey {
    key.lkey //~ E0609
}

fn main() {}
