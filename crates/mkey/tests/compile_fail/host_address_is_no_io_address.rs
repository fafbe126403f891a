//! Promise 5: an address in the process is not one in work requests.
fn f(key: mkey::Rkey, address: mkey::HostAddr) -> mkey::RemoteKey {
    mkey::RemoteKey { key, address, length: 8 } //~ E0308
}

fn main() {}
