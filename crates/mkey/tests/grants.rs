//! Grants: one slice, one queue pair, one request.

mod peers;

use mkey::{
    Ended, GrantOptions, GrantPolicy, Mr, Pd, PeerAccess, QpState, Reason, Region, RemoteKey,
    Rights, Slice, WcStatus, Work,
};
use peers::{CHANGES, LONG, SHORT, Side, connect, device, pair, pair_on, stall};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn other(side: &Side) -> impl FnMut(mkey::Completion) + use<'_> {
    move |completion| panic!("unasked: {completion:?} of {:?}", side.qp.info())
}

/// Ends a grant in the usual way.
fn revoke(grant: mkey::Grant, side: &Side) -> Ended {
    grant.revoke().wait_polling(&side.cq, LONG, other(side)).expect("ended")
}

fn is_free(slice: Slice) -> Slice {
    slice.into_local().map(mkey::Local::into_slice).expect("nobody else has it")
}

#[test]
fn a_request_in_one_post_and_its_answer() {
    let (client, server) = pair();
    let slice = client.memory(4096).part(100..200).expect("within");
    slice.write(0, &[7; 100]).expect("within");
    server.expects(1);
    let grant = slice.prepare_grant(&client.qp, PeerAccess::READ).expect("grant");
    let key = grant.remote_key();
    assert_eq!((key.address, key.length), (slice.iova(), 100));
    let request = key.to_bytes();
    client.qp.post(&[grant.bind(), Work::send_inline(&request).unsignaled()]).expect("posted");
    assert_eq!(server.one().byte_len as usize, RemoteKey::BYTES);
    // R-ORD-02: who has the message can use the key.
    assert_eq!(server.reads(key), WcStatus::Success);
    assert_eq!(revoke(grant, &client), Ended::Revoked);
    assert_eq!(server.reads(key), WcStatus::RemAccessErr, "R-INV-02");
    let stats = client.pd.grants().expect("pool").stats();
    assert_eq!((stats.allocated, stats.in_use, stats.binds, stats.revoked), (1, 0, 1, 1));
    drop(is_free(slice));
}

#[test]
fn nbs_5708_buffer_is_not_reused_before_the_grant_ended() {
    let (client, server) = pair();
    let slice = client.memory(4096);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    let late = grant.remote_key();
    // The request timed out.
    let ending = grant.revoke();
    let (slice, error) = slice.into_local().expect_err("the end is not confirmed");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    assert_eq!(ending.ended(), Ok(None), "only a polled completion tells");
    assert_eq!(ending.wait_polling(&client.cq, LONG, other(&client)), Ok(Ended::Revoked));
    let slice = is_free(slice);
    slice.write(0, &[1; 4096]).expect("the next request's data");
    assert_eq!(server.writes(late, 0xee), WcStatus::RemAccessErr);
    assert_eq!(slice.to_vec().expect("mapped"), [1; 4096]);
}

#[test]
fn nbs_5729_a_window_whose_end_is_not_confirmed_is_freed_and_not_reused() {
    let (client, server) = pair();
    let slice = client.memory(64);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    let key = grant.remote_key();
    assert_eq!(server.writes(key, 5), WcStatus::Success);
    // No receive is posted for it, so that the invalidation waits (R-INV-11, R-ORD-06).
    stall(&client);
    let ending = grant.revoke();
    assert_eq!(server.writes(key, 6), WcStatus::Success, "not invalidated yet");
    let ended = ending.wait_polling(&client.cq, SHORT, other(&client));
    assert_eq!(ended, Ok(Ended::Dropped { status: None }));
    assert_eq!(slice.to_vec().expect("mapped"), [6; 64]);
    drop(is_free(slice));
    assert_eq!(server.writes(key, 7), WcStatus::RemAccessErr, "R-MWU-11");
    let stats = client.pd.grants().expect("pool").stats();
    assert_eq!((stats.timed_out, stats.lost, stats.allocated, stats.in_use), (1, 1, 0, 0));
}

#[test]
fn nbs_6542_no_key_comes_round() {
    let (client, server) = pair();
    let grants = client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
    let slice = client.memory(64);
    let mut keys = HashSet::new();
    let mut first = None;
    for _ in 0..1000 {
        let grant = slice.grant(&client.qp, CHANGES).expect("grant");
        let key = grant.remote_key();
        assert!(keys.insert(key.key), "{} came round after {} grants", key.key, keys.len());
        first.get_or_insert(key);
        assert_eq!(revoke(grant, &client), Ended::Revoked);
    }
    let stats = grants.stats();
    assert_eq!((stats.binds, stats.renewed, stats.allocated, stats.in_use), (1000, 3, 1, 0));
    let live = slice.grant(&client.qp, CHANGES).expect("grant");
    assert_eq!(server.writes(live.remote_key(), 1), WcStatus::Success);
    let oldest = first.expect("one");
    assert_eq!(server.writes(oldest, 1), WcStatus::RemAccessErr);
}

#[test]
fn pyverbs_1777_bind_returns_the_new_key() {
    let (client, server) = pair();
    client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
    let slice = client.memory(64);
    let first = slice.grant(&client.qp, CHANGES).expect("grant");
    let old = first.remote_key();
    assert_eq!(server.writes(old, 1), WcStatus::Success);
    revoke(first, &client);
    let second = slice.grant(&client.qp, CHANGES).expect("grant");
    let new = second.remote_key();
    // R-MW-11: the same window, so the same index, and another variant.
    assert_eq!(new.key.0.index(), old.key.0.index());
    assert_eq!(new.key.0, old.key.0.next());
    assert_eq!(server.writes(new, 2), WcStatus::Success);
    assert_eq!(server.writes(old, 3), WcStatus::RemAccessErr, "R-KEY-05");
    assert_eq!(slice.to_vec().expect("mapped"), [2; 64]);
}

#[test]
fn async_rdma_47_a_grant_dropped_in_flight_keeps_the_memory_until_its_end() {
    let (client, server) = pair();
    let device = client.pd.device().clone();
    let slice = client.memory(4096);
    let key = {
        let grant = slice.grant(&client.qp, CHANGES).expect("grant");
        stall(&client);
        drop(slice);
        grant.remote_key()
    };
    let with_it = device.stats().registered_bytes;
    assert_eq!(with_it, 4096, "kept by the grant alone, whose handle is gone");
    assert_eq!(server.writes(key, 1), WcStatus::Success, "its end waits in the queue");
    server.expects(1);
    assert_eq!(client.done(99), WcStatus::Success);
    // Its completion comes behind that of the SEND.
    let mut none = [mkey::Completion::BLANK];
    assert_eq!(client.cq.poll(&mut none), Ok(0));
    assert_eq!(client.pd.grants().expect("pool").stats().in_use, 0);
    assert_eq!(device.stats().failed_drops, 0);
}

/// A grant of the middle of a slice, its peer, and the device's opinion of an access through it.
fn attempt(access: PeerAccess, work: impl FnOnce(&Side, RemoteKey) -> WcStatus) -> WcStatus {
    let (client, server) = pair();
    let whole = client.memory(4096);
    let grant = whole.part(1000..1064).expect("within").grant(&client.qp, access).expect("grant");
    let status = work(&server, grant.remote_key());
    // What the device refuses ends the queue pair, and leaves the grant to be ended all the same.
    let mut lost = 0;
    let ended = grant.revoke().wait_polling(&client.cq, LONG, |_| lost += 1);
    assert!(matches!(ended, Ok(Ended::Revoked | Ended::Dropped { .. })), "{ended:?}");
    assert_eq!(client.pd.grants().expect("pool").stats().in_use, 0);
    drop(is_free(whole));
    status
}

fn moved(key: RemoteKey, by: i64, length: u64) -> RemoteKey {
    let address = mkey::IoAddr(key.address.0.wrapping_add_signed(by));
    RemoteKey { address, length, ..key }
}

#[test]
fn the_range_is_exact_to_the_byte() {
    for access in [PeerAccess::READ, PeerAccess::WRITE] {
        let tries = |by: i64, length: u64| {
            attempt(access, |server, key| match access {
                PeerAccess::READ => server.reads(moved(key, by, length)),
                _ => server.writes(moved(key, by, length), 1),
            })
        };
        for (by, length) in [(0, 64), (0, 1), (63, 1), (10, 20)] {
            assert_eq!(tries(by, length), WcStatus::Success, "{access} {by} {length}");
        }
        // R-MWU-05, though the region goes on.
        for (by, length) in [(-1, 1), (64, 1), (0, 65), (-1, 65), (63, 2)] {
            assert_eq!(tries(by, length), WcStatus::RemAccessErr, "{access} {by} {length}");
        }
    }
}

#[test]
fn the_rights_are_those_asked_for() {
    let read = |server: &Side, key| server.reads(key);
    let write = |server: &Side, key| server.writes(key, 1);
    let add = |server: &Side, key: RemoteKey| {
        let old = server.memory(64).part(..8).expect("within");
        server.qp.post(&[Work::fetch_add(&old, key, 1).id(5)]).expect("posted");
        server.done(5)
    };
    let all: [(&dyn Fn(&Side, RemoteKey) -> WcStatus, PeerAccess); 3] =
        [(&read, PeerAccess::READ), (&write, PeerAccess::WRITE), (&add, PeerAccess::ATOMIC)];
    for (work, wanted) in all {
        for access in [PeerAccess::READ, PeerAccess::WRITE, PeerAccess::ATOMIC] {
            let well = if access == wanted { WcStatus::Success } else { WcStatus::RemAccessErr };
            assert_eq!(attempt(access, work), well, "{wanted} by a grant of {access}");
        }
        assert_eq!(attempt(PeerAccess::ALL, work), WcStatus::Success);
    }
}

#[test]
fn another_queue_pair_can_not_use_the_key() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    // Another connection of the same two domains.
    let (client2, server2) = (Side::new(&client.pd, 64), Side::new(&server.pd, 64));
    connect(&client2.qp, &server2.qp);
    let grant = client.memory(64).grant(&client.qp, CHANGES).expect("grant");
    assert_eq!(server2.writes(grant.remote_key(), 1), WcStatus::RemAccessErr, "R-MWU-03");
    assert_eq!(server.writes(grant.remote_key(), 1), WcStatus::Success);
}

#[test]
fn a_grant_is_posted_on_its_own_queue_pair_and_once() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let (client2, server2) = (Side::new(&client.pd, 64), Side::new(&server.pd, 64));
    connect(&client2.qp, &server2.qp);
    let grant = client.memory(64).prepare_grant(&client.qp, CHANGES).expect("grant");
    let error = client2.qp.post(&[grant.bind()]).expect_err("made for another");
    assert!(matches!(error.error.reason, Reason::NotHere { .. }), "{error:?}");
    let error = client.qp.post(&[grant.invalidate()]).expect_err("nothing to end");
    assert!(matches!(error.error.reason, Reason::NotHere { .. }), "{error:?}");
    client.qp.post(&[grant.bind()]).expect("posted");
    let error = client.qp.post(&[grant.bind()]).expect_err("bound already");
    assert!(matches!(error.error.reason, Reason::Ended { .. }), "{error:?}");
    assert_eq!(server.writes(grant.remote_key(), 1), WcStatus::Success);
    // Ending twice is ending once.
    client.qp.post(&[grant.invalidate(), grant.invalidate()]).expect("posted");
    assert_eq!(revoke(grant, &client), Ended::Revoked);
    assert_eq!(client.qp.query().expect("query").state, QpState::Rts);
}

#[test]
fn one_that_was_never_posted_is_given_back_unharmed() {
    let (client, server) = pair();
    let slice = client.memory(64);
    let grant = slice.prepare_grant(&client.qp, CHANGES).expect("grant");
    let key = grant.remote_key();
    assert_eq!(grant.ended(), Ok(None));
    drop(grant);
    let slice = is_free(slice);
    let grants = client.pd.grants().expect("pool");
    let stats = grants.stats();
    assert_eq!((stats.binds, stats.lost, stats.allocated, stats.in_use), (0, 0, 1, 0));
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    assert_eq!(grant.remote_key(), key, "its variant was not used");
    assert_eq!(server.writes(key, 1), WcStatus::Success);

    // Nor is one whose posting is refused: the chain's state is as before.
    let idle = Side::new(&client.pd, 16);
    let before = grants.stats();
    let error = slice.grant(&idle.qp, CHANGES).expect_err("in RESET");
    assert!(matches!(error.reason, Reason::QpState { .. }), "{error}");
    let stats = grants.stats();
    assert_eq!((stats.in_use, stats.lost, stats.binds), (before.in_use, 0, before.binds));
    let grant2 = slice.prepare_grant(&idle.qp, CHANGES).expect("grant");
    let chain = [grant2.bind(), grant2.invalidate()];
    assert_eq!(idle.qp.post(&chain).expect_err("in RESET").posted, 0);
    assert_eq!(idle.qp.post(&chain).expect_err("in RESET").posted, 0, "as before");
    drop(grant2);
    let after = grants.stats();
    assert_eq!((after.in_use, after.lost, after.binds), (stats.in_use, 0, stats.binds));
}

#[test]
fn the_peer_ends_it_by_send_with_invalidate() {
    let (client, server) = pair();
    let slice = client.memory(64);
    for asked in [true, false] {
        client.expects(1);
        let grant = slice.grant(&client.qp, CHANGES).expect("grant");
        let key = grant.remote_key();
        assert_eq!(server.writes(key, 9), WcStatus::Success);
        server.qp.post(&[Work::send_inline(b"done").invalidating(key.key).id(2)]).expect("posted");
        assert_eq!(server.done(2), WcStatus::Success);
        if asked {
            let mut seen = Vec::new();
            let ended =
                grant.await_peer().wait_polling(&client.cq, LONG, |done| seen.push(done.wr_id));
            assert_eq!((ended, seen), (Ok(Ended::ByPeer), vec![1]));
        } else {
            assert_eq!(grant.ended(), Ok(None), "not seen yet");
            let done = client.one();
            assert_eq!((done.status, done.invalidated), (WcStatus::Success, Some(key.key)));
            assert_eq!(grant.ended(), Ok(Some(Ended::ByPeer)));
            // Nothing is left to be posted.
            assert_eq!(grant.revoke().ended(), Ok(Some(Ended::ByPeer)));
        }
    }
    drop(is_free(slice));
    assert_eq!(client.qp.query().expect("query").state, QpState::Rts);
    let stats = client.pd.grants().expect("pool").stats();
    assert_eq!((stats.revoked_by_peer, stats.revoked, stats.in_use), (2, 0, 0));
}

#[test]
fn a_peer_that_does_not_end_it_is_not_waited_for() {
    let (client, server) = pair();
    let slice = client.memory(64);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    let key = grant.remote_key();
    assert_eq!(grant.await_peer().wait(SHORT), Ok(Ended::Dropped { status: None }));
    let slice = is_free(slice);
    // The connection lives, and the next grant is another window's.
    let next = slice.grant(&client.qp, CHANGES).expect("grant");
    assert_eq!(server.writes(next.remote_key(), 1), WcStatus::Success);
    drop(next.await_peer());
    assert_eq!(server.writes(key, 2), WcStatus::RemAccessErr);
    let stats = client.pd.grants().expect("pool").stats();
    assert_eq!((stats.timed_out, stats.lost, stats.in_use), (1, 2, 0));
    drop(is_free(slice));
}

#[test]
fn a_queue_pair_that_fails_loses_its_grants_and_no_memory() {
    let (client, _server) = pair();
    let slice = client.memory(4096);
    let parts: Vec<_> =
        (0..8).map(|at| slice.part(at * 64..(at + 1) * 64).expect("within")).collect();
    let grants: Vec<_> =
        parts.iter().map(|part| part.grant(&client.qp, CHANGES).expect("grant")).collect();
    drop(parts);
    client.qp.fail().expect("to ERR");
    for grant in grants {
        let ended = grant.revoke().wait_polling(&client.cq, LONG, other(&client));
        assert_eq!(ended, Ok(Ended::Dropped { status: Some(WcStatus::WrFlushErr) }));
    }
    drop(is_free(slice));
    let stats = client.pd.grants().expect("pool").stats();
    assert_eq!((stats.lost, stats.allocated, stats.in_use, stats.kept), (8, 0, 0, 0));
}

#[test]
fn promise_1_a_queue_pair_may_go_before_its_grants() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let Side { qp, cq, pd } = client;
    let client = Side { qp: qp.clone(), cq, pd };
    let slice = client.memory(4096);
    let confirmed = slice.grant(&qp, CHANGES).expect("grant");
    qp.post(&[Work::send_inline(b"").id(1)]).expect("posted");
    server.expects(1);
    assert_eq!(client.done(1), WcStatus::Success);
    let (posted, ending) = (slice.grant(&qp, CHANGES), slice.grant(&qp, CHANGES));
    let (posted, ending) = (posted.expect("grant"), ending.expect("grant").revoke());
    let prepared = slice.prepare_grant(&qp, CHANGES).expect("grant");
    let Side { qp: last, cq, pd } = client;
    drop((qp, last, cq, pd));
    assert_eq!(confirmed.ended(), Ok(Some(Ended::Dropped { status: None })));
    let flushed = Ok(Some(Ended::Dropped { status: Some(WcStatus::WrFlushErr) }));
    assert_eq!((posted.ended(), ending.ended()), (flushed.clone(), flushed));
    assert_eq!(prepared.ended(), Ok(None));
    drop((confirmed, posted, ending, prepared));
    drop(is_free(slice));
    drop(server);
    assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
}

#[test]
fn vccl_36_memory_with_a_grant_on_it_is_not_deregistered() {
    let (client, _server) = pair();
    let mr = Mr::builder(&client.pd).windows();
    let mr = mr.register(Region::new(4096).expect("memory")).expect("mr");
    let grant = mr.whole().grant(&client.qp, CHANGES).expect("grant");
    let (mr, error) = mr.close().expect_err("granted");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory region" });
    revoke(grant, &client);
    mr.close().expect("free");
}

#[test]
fn irdma_1107_everything_is_checked_before_the_device_is_asked() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let grants = client.pd.grants().expect("pool");
    let register = |mr: mkey::MrBuilder<'_>| {
        mr.register(Region::new(4096).expect("memory")).expect("mr").into_slice()
    };
    let refused = |slice: &Slice, access| {
        slice.prepare_grant(&client.qp, access).expect_err("refused").reason
    };
    let plain = register(Mr::builder(&client.pd));
    assert_eq!(
        refused(&plain, PeerAccess::READ),
        Reason::RightMissing { missing: Rights::MW_BIND },
        "R-MW-13"
    );
    let read_only = mkey::Access::local_read().windows();
    let read_only = register(Mr::builder(&client.pd).access(read_only));
    assert_eq!(
        refused(&read_only, CHANGES),
        Reason::RightMissing { missing: Rights::LOCAL_WRITE },
        "R-MW-14"
    );
    drop(read_only.prepare_grant(&client.qp, PeerAccess::READ).expect("R-MW-15"));
    assert_eq!(refused(&server.memory(64), CHANGES), Reason::OtherPd, "R-MW-22");
    let empty = client.memory(64).part(5..5).expect("within");
    assert!(matches!(refused(&empty, CHANGES), Reason::Argument { value: 0, .. }), "R-MW-28");
    assert_eq!(client.qp.query().expect("query").state, QpState::Rts);
    assert_eq!((grants.stats().binds, grants.stats().lost), (0, 0));
}

#[test]
fn one_completion_confirms_a_chain_of_ends() {
    let (client, server) = pair();
    let slice = client.memory(4096);
    let grants: Vec<_> = (0..8)
        .map(|at| slice.part(at * 8..(at + 1) * 8).expect("within"))
        .map(|part| part.grant(&client.qp, CHANGES).expect("grant"))
        .collect();
    for grant in &grants {
        assert_eq!(server.writes(grant.remote_key(), 3), WcStatus::Success);
    }
    let mut chain: Vec<_> = grants.iter().map(|grant| grant.invalidate().unsignaled()).collect();
    chain[7] = grants[7].invalidate();
    client.qp.post(&chain).expect("posted");
    let mut into = [mkey::Completion::BLANK; 16];
    assert_eq!(client.cq.poll(&mut into), Ok(0), "the library's own");
    for grant in &grants {
        assert_eq!(grant.ended(), Ok(Some(Ended::Revoked)));
    }
    drop(grants);
    assert_eq!(client.pd.grants().expect("pool").stats().revoked, 8);
    drop(is_free(slice));
}

#[test]
fn an_end_that_finds_the_queue_full_comes_when_there_is_room() {
    let device = device();
    let (client, server) = pair_on(&device, 2);
    let slice = client.memory(64);
    stall(&client);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    // The binding waits in a queue that is full: freeing the window would fail it.
    let ending = grant.revoke();
    assert_eq!(ending.ended(), Ok(None));
    server.expects(1);
    let mut others = Vec::new();
    let mut nudged = false;
    let ended = ending.wait_polling(&client.cq, LONG, |done| {
        others.push(done.wr_id);
        // What comes behind an unsignaled binding confirms it.
        if !std::mem::replace(&mut nudged, true) {
            server.expects(2);
            client.qp.post(&[Work::send_inline(b"").id(3)]).expect("room");
        }
    });
    assert_eq!((ended, others), (Ok(Ended::Revoked), vec![99, 3]));
    assert_eq!(client.qp.query().expect("query").state, QpState::Rts);
    drop(is_free(slice));
}

#[test]
fn the_pool_has_its_limit_and_serves_in_turn() {
    let (client, _server) = pair();
    let grants = client.pd.set_grants(GrantOptions::default().max(2).ready(2)).expect("pool");
    assert_eq!((grants.stats().allocated, grants.stats().most_in_use), (2, 0));
    let slice = client.memory(64);
    let take = || slice.grant(&client.qp, CHANGES);
    let (first, second) = (take().expect("one"), take().expect("two"));
    let error = take().expect_err("both are in use");
    let reason = Reason::Exhausted { what: "pool of windows", asked: 1, free: 0, limit: 2 };
    assert_eq!(error.reason, reason);
    let error = slice.prepare_grant_within(&client.qp, CHANGES, SHORT).expect_err("and stay so");
    assert_eq!(error.reason, Reason::TimedOut { after: SHORT });
    let order = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (order, slice, qp) = (&order, &slice, &client.qp);
        let mut waiting = Vec::new();
        for at in 0..4 {
            let before = grants.stats().waits;
            waiting.push(scope.spawn(move || {
                let grant = match at % 2 {
                    0 => slice.prepare_grant_within(qp, CHANGES, LONG),
                    _ => block_on(slice.prepare_grant_async(qp, CHANGES)),
                };
                let turn = order.fetch_add(1, Ordering::SeqCst);
                drop(grant.expect("in turn"));
                turn
            }));
            while grants.stats().waits == before {
                std::thread::yield_now();
            }
        }
        // One window serves all four, one after the other.
        assert_eq!(revoke(first, &client), Ended::Revoked);
        let turns: Vec<_> =
            waiting.into_iter().map(|thread| thread.join().expect("served")).collect();
        let mut sorted = turns.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3]);
    });
    drop(second);
    assert_eq!((grants.stats().waits, grants.stats().exhausted), (5, 2));
    assert_eq!(grants.stats().most_in_use, 2);
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue() {
    let (client, _server) = pair();
    client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
    let slice = client.memory(64);
    let first = slice.grant(&client.qp, CHANGES).expect("one");
    let mut waiting = Box::pin(slice.prepare_grant_async(&client.qp, CHANGES));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    revoke(first, &client);
    // It is the other's turn, who does not come.
    let error = slice.prepare_grant(&client.qp, CHANGES).expect_err("first come");
    assert!(matches!(error.reason, Reason::Exhausted { .. }));
    drop(waiting);
    drop(slice.prepare_grant(&client.qp, CHANGES).expect("free"));
}

#[test]
fn the_end_is_told_to_a_task_while_another_thread_polls() {
    let (client, _server) = pair();
    let slice = client.memory(64);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = [mkey::Completion::BLANK; 4];
            while !over.load(Ordering::Acquire) {
                assert_eq!(client.cq.poll(&mut into), Ok(0));
                std::thread::yield_now();
            }
        });
        let ending = slice.grant(&client.qp, CHANGES).expect("grant").revoke();
        let by_task = block_on(ending.wait_async());
        let by_thread = slice.grant(&client.qp, CHANGES).expect("grant").revoke().wait(LONG);
        over.store(true, Ordering::Release);
        assert_eq!((by_task, by_thread), (Ok(Ended::Revoked), Ok(Ended::Revoked)));
    });
    drop(is_free(slice));
}

#[test]
fn policies_where_there_are_no_windows() {
    for policy in [GrantPolicy::FastMr, GrantPolicy::MrPerGrant] {
        let device = device();
        let (client, server) = pair_on(&device, 256);
        let grants = client.pd.set_grants(GrantOptions::default().policy(policy)).expect("pool");
        assert_eq!(grants.policy(), policy);
        // No right to bind windows is needed.
        let mr = Mr::new(&client.pd, Region::new(4096).expect("memory")).expect("mr");
        let slice = mr.into_slice().part(10..74).expect("within");
        let grant = slice.prepare_grant(&client.qp, CHANGES).expect("grant");
        let request = grant.remote_key().to_bytes();
        server.expects(1);
        client.qp.post(&[grant.bind(), Work::send_inline(&request).id(4)]).expect("posted");
        assert_eq!(client.done(4), WcStatus::Success);
        let key = grant.remote_key();
        assert_eq!(server.one().status, WcStatus::Success);
        assert_eq!(server.writes(key, 8), WcStatus::Success, "{policy}");
        assert_eq!(slice.to_vec().expect("mapped"), [8; 64]);
        client.qp.post(&[grant.invalidate()]).expect("posted");
        assert_eq!(revoke(grant, &client), Ended::Revoked, "{policy}");
        assert_eq!(server.writes(key, 9), WcStatus::RemAccessErr, "{policy}");
        let stats = grants.stats();
        assert_eq!((stats.binds, stats.revoked, stats.in_use, stats.most_in_use), (1, 1, 0, 1));
        drop(is_free(slice));
        drop((client, grants, server));
        assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
    }
    let (client, _server) = pair();
    let options = GrantOptions::default().policy(GrantPolicy::Refuse);
    let grants = client.pd.set_grants(options).expect("named");
    assert_eq!(grants.policy().to_string(), "no grants");
    let error = client.memory(64).grant(&client.qp, CHANGES).expect_err("refused");
    assert!(matches!(error.reason, Reason::Unsupported { .. }), "{error}");
    let error = client.pd.set_grants(GrantOptions::default()).expect_err("in use");
    assert!(matches!(error.reason, Reason::StillUsed { .. }), "{error}");
}

#[test]
fn many_threads_share_the_windows() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let grants = pd.set_grants(GrantOptions::default().max(3)).expect("pool");
    let serving = Pd::new(&device).expect("pd");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pd, serving) = (&pd, &serving);
            scope.spawn(move || {
                let (client, server) = (Side::new(pd, 64), Side::new(serving, 64));
                connect(&client.qp, &server.qp);
                let mut slice = client.memory(64);
                let from = [server.memory(64)];
                for round in 0..ROUNDS {
                    let value = (thread * ROUNDS + round) as u8;
                    let grant = slice.prepare_grant_within(&client.qp, CHANGES, LONG);
                    let grant = grant.expect("a window");
                    let key = grant.remote_key();
                    client.qp.post(&[grant.bind()]).expect("posted");
                    from[0].write(0, &[value; 64]).expect("within");
                    if round % 3 == 0 {
                        client.expects(1);
                        let answer = Work::send_inline(b"").invalidating(key.key).unsignaled();
                        server.qp.post(&[Work::write(&from, key), answer]).expect("posted");
                        let ending = grant.await_peer();
                        let ended = ending.wait_polling(&client.cq, LONG, |_| ());
                        assert_eq!(ended, Ok(Ended::ByPeer));
                    } else {
                        server.qp.post(&[Work::write(&from, key)]).expect("posted");
                        assert_eq!(revoke(grant, &client), Ended::Revoked);
                    }
                    assert_eq!(server.one().status, WcStatus::Success);
                    slice = is_free(slice);
                    assert_eq!(slice.to_vec().expect("mapped"), [value; 64]);
                }
            });
        }
    });
    let stats = grants.stats();
    assert_eq!((stats.in_use, stats.lost), (0, 0));
    assert_eq!(stats.binds as usize, THREADS * ROUNDS);
    assert_eq!(stats.revoked + stats.revoked_by_peer, stats.binds);
    assert!(stats.most_in_use <= 3);
    drop((grants, pd, serving));
    assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
}
