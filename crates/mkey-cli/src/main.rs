//! `mkey`.
fn main() {}
