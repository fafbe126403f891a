//! Promises of the library that a run shows.

use mkey::testing::Pair;
use mkey::{Code, Mr, Reason, Region, Rights};

#[test]
fn promise_3_memory_is_local_unless_it_is_given_away_by_name() {
    let pair = Pair::new().expect("connected");
    let mr = Mr::new(&pair.a.pd, Region::new(4096).expect("memory")).expect("mr");
    let error = mr.remote_key(..).expect_err("local-only");
    assert_eq!(error.reason, Reason::RightMissing { missing: Rights::REMOTE });
    assert!(!mr.access().is_exposed() && !mr.whole().is_exposed());
    for wrong in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
        let error = mkey::Access::from_rights(wrong).expect_err("no local write");
        assert_eq!(error.reason, Reason::InvalidRights { rights: wrong });
        let right = mkey::Access::from_rights(wrong | Rights::LOCAL_WRITE).expect("with it");
        assert!(right.is_exposed());
    }
    let written = mkey::Access::local_read().remote_write().rights();
    assert_eq!(written, Rights::REMOTE_WRITE | Rights::LOCAL_WRITE);
}

#[test]
fn promise_9_errors_tell_verb_arguments_errno_and_code() {
    let pair = Pair::new().expect("connected");
    let region = Region::new(4096).expect("memory");
    let (start, _) = mkey::Memory::range(&region);
    let builder = Mr::builder(&pair.a.pd).iova(mkey::IoAddr(0x123));
    let error = builder.register(region).expect_err("another offset within the page");
    assert_eq!((error.verb, error.errno(), error.code()), ("reg_mr_iova", 22, Code(5)));
    let text = error.to_string();
    let address = format!("{:#x}", start.as_ptr().addr());
    assert!(text.starts_with("reg_mr_iova(") && text.ends_with("[MK0005, EINVAL]"), "{text}");
    assert!(text.contains("4096, iova 0x123, LOCAL_WRITE") && text.contains(&address), "{text}");
}
