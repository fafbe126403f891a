//! What peers and work requests may access, and how fast.

use crate::memory::{Mapped, PAGE};
use mkey::testing::{Pair, Refusal};
use mkey::{
    Access, Advice, Key, Mr, Pd, PeerAccess, QpState, Reason, Region, RemoteKey, Rkey, WcStatus,
    Work,
};
use mkey_core::device::{AhAttr, Gid};
use mkey_core::queue_pair::QpModify;
use mkey_core::work::Sge;
use std::sync::Arc;

fn region(len: usize) -> Region {
    Region::new(len).expect("memory")
}

/// A pair whose requester takes the first "not ready" or silence for an error.
fn without_retries() -> Pair {
    let pair = Pair::new().expect("connected");
    for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        let (own, peer) = (side.qp.endpoint(), peer.qp.endpoint());
        let ah = AhAttr { gid: Gid(peer.gid), port: 1, hop_limit: 64, ..AhAttr::default() };
        let steps = [
            QpModify { state: Some(QpState::Reset), ..QpModify::default() },
            QpModify::init(PeerAccess::ALL.rights()),
            QpModify::rtr(ah, peer.qp_num, peer.mtu, peer.psn),
            QpModify { rnr_retry: Some(0), retry_cnt: Some(0), ..QpModify::rts(own.psn) },
        ];
        for step in &steps {
            side.qp.modify(step).expect("in order");
        }
    }
    pair
}

#[test]
fn uccl_1040_a_key_of_the_wrong_role_is_refused_as_that() {
    let pair = Pair::new().expect("connected");
    let mr = Mr::builder(&pair.b.pd).remote_write().register(region(PAGE)).expect("mr");
    let (lkey, rkey) = (mr.info().lkey, mr.info().rkey);
    assert_ne!(lkey.0, rkey.0, "so that a mistake is noticed");
    let key = RemoteKey { key: Rkey(lkey.0), ..mr.remote_key(..).expect("exposed") };
    let refused = pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"x", key)]));
    assert_eq!(refused.access(), Some(Refusal::LkeyAsRkey { key: lkey.0 }));
    assert!(refused.to_string().contains("is a local key; a peer needs the rkey"), "{refused}");
}

#[test]
fn rdma_core_834_page_faults_need_no_retries() {
    let pair = without_retries();
    let builder = Mr::builder(&pair.b.pd).remote_write().on_demand();
    let mr = builder.register(region(64 * PAGE)).expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    for page in 0..32 {
        let there = key.part(page * PAGE as u64, 8).expect("within");
        pair.a.qp.post(&[Work::write_inline(&[1; 8], there)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success, "page {page}");
    }
    let faulted = mr.odp_stats().expect("on-demand");
    assert!((1..=32).contains(&faulted.faults), "{faulted:?}");
    // Pages that are brought in before cost no fault.
    mr.advise(Advice::PrefetchWrite, 32 * PAGE..).expect("brought in");
    let brought = mr.odp_stats().expect("on-demand");
    assert!(brought.prefetches >= 32, "{brought:?}");
    for page in 32..64 {
        let there = key.part(page * PAGE as u64, 8).expect("within");
        pair.a.qp.post(&[Work::write_inline(&[1; 8], there)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success, "page {page}");
    }
    assert_eq!(mr.odp_stats().expect("on-demand").faults, faulted.faults);
    assert_eq!(pair.now(), std::time::Duration::ZERO, "nothing waited for a retry");
}

#[test]
fn ucx_11914_read_only_pages_fail_at_once() {
    let pair = without_retries();
    let memory = Arc::new(Mapped::anonymous(2 * PAGE, libc::PROT_READ));
    let builder = Mr::builder(&pair.b.pd).access(Access::local().remote_write()).on_demand();
    let mr = match builder.register(memory.foreign()) {
        Ok(mr) => mr,
        Err(error) => panic!("on-demand memory is looked at when it is used: {error}"),
    };
    let key = mr.remote_key(..).expect("exposed");
    let refused = pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"x", key)]));
    assert!(matches!(refused.access(), Some(Refusal::NotPresent { .. })), "{refused}");
    assert!(refused.to_string().contains("is not mapped for this access"), "{refused}");
    assert_eq!(pair.now(), std::time::Duration::ZERO, "it is not tried again and again");
}

#[test]
fn rdma_core_1413_relaxed_ordering_is_a_wish() {
    let pair = Pair::new().expect("connected");
    let mr = Mr::builder(&pair.b.pd).remote_write().relaxed_ordering().register(region(PAGE));
    let mr = mr.expect("a device that can not reorder takes it all the same");
    let key = mr.remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::write_inline(&[7; 64], key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    assert_eq!(mr.whole().to_vec().expect("mapped")[..64], [7; 64]);
}

#[test]
fn irdma_1107_advice_is_validated() {
    let pair = Pair::new().expect("connected");
    let pinned = Mr::new(&pair.a.pd, region(PAGE)).expect("mr");
    let error = pinned.advise(Advice::Prefetch, ..).expect_err("not on-demand");
    assert_eq!(error.reason, Reason::UnknownLkey { key: pinned.info().lkey.0 });
    let mr = Mr::builder(&pair.a.pd).on_demand().register(region(PAGE)).expect("mr");
    let error = mr.advise(Advice::Prefetch, ..PAGE + 1).expect_err("beyond its end");
    assert!(matches!(error.reason, Reason::OutOfRange { .. }), "{error}");
    // By the verb itself: another domain, a length past the end, a key of nothing.
    let control = pair.a.device.control();
    let sge = mr.whole();
    let (address, lkey) = (sge.iova(), sge.lkey());
    let advise = |pd, sge| control.advise_mr(pd, Advice::Prefetch, true, &[sge]);
    let other = Pd::new(&pair.a.device).expect("pd");
    let whole = Sge { address, length: PAGE as u32, lkey };
    let error = advise(other.handle(), whole).expect_err("another domain");
    assert_eq!(error.reason, Reason::OtherPd);
    let own = pair.a.pd.handle();
    let long = Sge { length: PAGE as u32 + 1, ..whole };
    assert!(matches!(advise(own, long).expect_err("long").reason, Reason::OutOfRange { .. }));
    let nothing = Sge { lkey: mkey::Lkey(Key(0)), ..whole };
    let error = advise(own, nothing).expect_err("a key of nothing");
    assert_eq!(error.reason, Reason::UnknownLkey { key: Key(0) });
    advise(own, whole).expect("right");
}
