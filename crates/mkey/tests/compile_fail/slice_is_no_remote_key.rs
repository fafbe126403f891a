//! Promise 3: giving a peer access is a step of its own: a slice is not what a peer gets.
fn f(from: &[mkey::Slice], to: mkey::Slice) {
    let _ = mkey::Work::write(from, to); //~ E0308
}

fn main() {}
