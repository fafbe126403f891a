//! What all handles of the library have in common.

mod peers;

use mkey::*;
use peers::pair;
use std::fmt::Debug;
use std::ops::Range;

/// A handle may be used by several threads, go to another, and be printed.
fn shared<T: Send + Sync + Debug>() {}

#[test]
fn handles_are_shared_by_threads_and_printed() {
    shared::<Device>();
    shared::<Pd>();
    shared::<Cq>();
    shared::<Qp>();
    shared::<Region>();
    shared::<SharedMemory>();
    shared::<Foreign>();
    shared::<Mr>();
    shared::<Mw>();
    shared::<Slice>();
    shared::<Local>();
    shared::<Pool>();
    shared::<PoolError>();
    shared::<Cache>();
    shared::<Cached>();
    shared::<CacheError>();
    shared::<FastMrPool>();
    shared::<FastMapping>();
    shared::<Grants>();
    shared::<Grant>();
    shared::<Ending>();
    shared::<Work<'_>>();
    shared::<Recv<'_>>();
    shared::<Stats>();
    shared::<Error>();
}

#[test]
fn futures_go_to_other_threads() {
    fn sent<T: Send>(_: T) {}
    let (client, _server) = pair();
    let pool = Pool::new(&client.pd, &PoolOptions::default().slab(1 << 20)).expect("a pool");
    let slice = client.memory(64);
    sent(pool.alloc_async(64));
    sent(client.cq.next_async());
    sent(slice.prepare_grant_async(&client.qp, PeerAccess::READ));
    let mappings = FastMrPool::builder(&client.pd).build().expect("a pool");
    sent(mappings.prepare_async(&client.qp, std::slice::from_ref(&slice), Access::local()));
    let ending = slice.grant(&client.qp, PeerAccess::READ).expect("grant").revoke();
    sent(ending.wait_async());
}

#[test]
fn a_range_that_ends_before_it_begins_is_nowhere() {
    let (client, _server) = pair();
    let mr = Mr::builder(&client.pd).remote_read().register(Region::new(4096).expect("memory"));
    let mr = mr.expect("mr");
    let range = Range { start: 10, end: 5 };
    for error in [
        mr.slice(range.clone()).map(drop),
        mr.whole().part(range.clone()).map(drop),
        mr.remote_key(range).map(drop),
    ] {
        let reason = error.expect_err("of no use").reason;
        assert!(matches!(reason, Reason::OutOfRange { length: 0, .. }), "{reason}");
    }
}
