//! The library's name for the loader.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libmkey_watch.so");
}
