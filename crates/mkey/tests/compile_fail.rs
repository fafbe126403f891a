//! What must not compile. Which promise of the library each file of `compile_fail/` holds to is its
//! first line; the promises themselves:
//!
//! 1. A registration owns its memory, or holds an owning guard; drops in any order are safe.
//!    Here: `foreign_*`. Run: `promise_1_*` of `verbs.rs`.
//! 2. Memory that a peer or posted work may write is never lent as `&[u8]`. Here: `local_*`,
//!    `slice_*`, `bytes_*`, `region_*`. Run: `promise_2_*` of `verbs.rs`.
//! 3. Rights are local-only unless a named step gives more, and wrong ones can not be written.
//!    Here: `rights_*`, `peer_rights_*`, `slice_is_no_remote_key`, `remote_key_*`. Run:
//!    `promise_3_*` of `reports.rs`.
//! 4. Posted work keeps what it uses until its completion is seen. Here: `open_device_is_unsafe`.
//!    Run: `promise_4_*` of `verbs.rs` and `testing.rs`.
//! 5. Local keys, remote keys, host addresses, I/O addresses and offsets are different types. Here:
//!    `lkey_*`, `keys_*`, `host_address_*`, `offset_*`.
//! 6. Drop never panics, and what could not be deregistered is kept and named. Run: `promise_6_*`
//!    of `verbs.rs` and `testing.rs`.
//! 7. The pool registers once. Run: the tests of the pool.
//! 8. The cache hits only where all fits, and its invalidation is bounded. Run: the tests of the
//!    cache.
//! 9. Errors carry the verb, its arguments, the errno and a stable code. Run: `promise_9_*` of
//!    `reports.rs`.
//!
//! The compiler's messages are compared word for word, so that a file which stops compiling for
//! another reason is noticed. They change with the compiler: with a new one run
//! `TRYBUILD=overwrite cargo test -p mkey --test compile_fail`, read the difference (each file must
//! fail for the reason its first line gives), and set `BLESSED` to that compiler's release.

mod common;

use std::process::Command;

/// The release whose messages the `.stderr` files hold.
const BLESSED: &str = "1.95";

#[test]
fn what_must_not_compile_does_not() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc");
    let version = String::from_utf8(version.stdout).expect("text");
    let release = version.split(' ').nth(1).expect("rustc RELEASE ...");
    if !release.starts_with(&format!("{BLESSED}.")) {
        let why = format!("rustc is {release}; the messages compared with are those of {BLESSED}");
        return common::skip("what_must_not_compile_does_not", &why);
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
