//! Promise 2: there is one that has the bytes, not two.
fn twice<T: Clone>(one: &T) -> T {
    one.clone()
}

fn f(local: mkey::Local) {
    twice(&local); //~ E0277
}

fn main() {}
