//! Windows of type 1.

use mkey::testing::Pair;
use mkey::{Completion, Mr, Mw, PeerAccess, Reason, Region, Slice, WcStatus, Work};

fn memory(pair: &Pair) -> Slice {
    let region = Region::new(8192).expect("memory");
    Mr::builder(&pair.b.pd).windows().register(region).expect("mr").into_slice()
}

fn settle(pair: &Pair, window: &Mw) {
    while window.is_pending() {
        let mut none = [Completion::BLANK];
        assert_eq!(pair.b.cq.poll(&mut none), Ok(0), "bindings are not shown");
    }
}

/// What comes of a write by the peer.
fn write(pair: &Pair, to: mkey::RemoteKey) -> WcStatus {
    pair.a.qp.post(&[Work::write_inline(b"peer", to)]).expect("posted");
    pair.next(&pair.a).status
}

#[test]
fn r_mw_26_a_window_moves_and_its_former_key_is_refused() {
    let pair = Pair::new().expect("a pair");
    let memory = memory(&pair);
    let window = Mw::new(&pair.b.pd).expect("window");
    let first = memory.part(0..4).expect("within");
    let old = window.bind(&pair.b.qp, &first, PeerAccess::WRITE).expect("bound");
    settle(&pair, &window);
    assert_eq!(write(&pair, old), WcStatus::Success);
    assert_eq!(first.to_vec().expect("bytes"), b"peer");
    let second = memory.part(4096..4100).expect("within");
    let new = window.bind(&pair.b.qp, &second, PeerAccess::WRITE).expect("bound");
    settle(&pair, &window);
    assert_eq!(new.key.0.index(), old.key.0.index());
    assert_eq!(write(&pair, new), WcStatus::Success);
    assert_eq!(write(&pair, old), WcStatus::RemAccessErr);
}

#[test]
fn r_mw_25_unbinding_lets_the_slice_go_and_refuses_the_key() {
    let pair = Pair::new().expect("a pair");
    let memory = memory(&pair);
    let window = Mw::new(&pair.b.pd).expect("window");
    let key = window.bind(&pair.b.qp, &memory, PeerAccess::WRITE).expect("bound");
    settle(&pair, &window);
    let (memory, error) = memory.into_local().expect_err("a window is bound to it");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    window.unbind(&pair.b.qp).expect("posted");
    settle(&pair, &window);
    memory.into_local().expect("let go of");
    assert_eq!(write(&pair, key.part(0, 4).expect("within")), WcStatus::RemAccessErr);
}

#[test]
fn dropping_a_window_ends_what_it_grants_before_the_slice_is_let_go() {
    let pair = Pair::new().expect("a pair");
    let memory = memory(&pair);
    let window = Mw::new(&pair.b.pd).expect("window");
    let key = window.bind(&pair.b.qp, &memory, PeerAccess::WRITE).expect("bound");
    settle(&pair, &window);
    drop(window);
    let local = memory.into_local().expect("let go of");
    assert_eq!(write(&pair, key.part(0, 4).expect("within")), WcStatus::RemAccessErr);
    assert_eq!(&local[..4], [0; 4]);
}

#[test]
fn a_binding_that_failed_keeps_its_slices_until_the_window_is_freed() {
    let pair = Pair::new().expect("a pair");
    let memory = memory(&pair);
    let window = Mw::new(&pair.b.pd).expect("window");
    pair.b.qp.fail().expect("to ERR");
    window.bind(&pair.b.qp, &memory, PeerAccess::WRITE).expect("posted, to be flushed");
    let mut none = [Completion::BLANK];
    assert_eq!(pair.b.cq.poll(&mut none), Ok(0));
    let (memory, _) = memory.into_local().expect_err("kept");
    let error = window.bind(&pair.b.qp, &memory, PeerAccess::WRITE).expect_err("failed");
    assert_eq!(error.reason, Reason::Ended { what: "window" });
    drop(window);
    memory.into_local().expect("let go of");
}

#[test]
fn r_mw_13_what_a_device_would_refuse_is_refused_before() {
    let pair = Pair::new().expect("a pair");
    let window = Mw::new(&pair.b.pd).expect("window");
    let plain = Mr::new(&pair.b.pd, Region::new(4096).expect("memory")).expect("mr").into_slice();
    let error = window.bind(&pair.b.qp, &plain, PeerAccess::READ).expect_err("no MW_BIND");
    assert!(matches!(error.reason, Reason::RightMissing { .. }), "{error}");
    let memory = memory(&pair);
    let other = Mr::builder(&pair.a.pd).windows();
    let other = other.register(Region::new(4096).expect("memory")).expect("mr").into_slice();
    let error = window.bind(&pair.b.qp, &other, PeerAccess::READ).expect_err("other domain");
    assert_eq!(error.reason, Reason::OtherPd);
    let none = memory.part(0..0).expect("within");
    let error = window.bind(&pair.b.qp, &none, PeerAccess::READ).expect_err("empty");
    assert!(matches!(error.reason, Reason::Argument { what: "length", .. }), "{error}");
    assert!(!window.is_pending());
}
