//! Grants: one slice, one queue pair, one request.

mod peers;

use mkey::{
    Ended, GrantOptions, Mr, PeerAccess, QpState, Reason, Region, RemoteKey, Rights, Slice,
    WcStatus, Work,
};
use mkey_core::queue_pair::QpModify;
use peers::{LONG, SHORT, Side, connect, device, pair, pair_on};
use std::collections::HashSet;

/// Blocks the send queue of `side` until its peer posts a receive.
fn stall(side: &Side) {
    side.qp.post(&[Work::send_inline(b"stalled").id(99)]).expect("posted");
}

const CHANGES: PeerAccess = PeerAccess::WRITE;

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
    let _grants = client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
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
    type Try<'a> = (&'a dyn Fn(&Side, RemoteKey) -> WcStatus, PeerAccess);
    let all: [Try<'_>; 3] =
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
    let next = grant.remote_key();
    // Who was told of the first key can not use it for the second.
    assert_eq!(next.key.0, key.key.0.next());
    assert_eq!(server.writes(next, 1), WcStatus::Success);

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
fn what_becomes_of_its_past_does_not_touch_a_window_in_use_again() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let grants = client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
    let slice = client.memory(64);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    client.expects(1);
    let work = Work::send_inline(b"").invalidating(grant.remote_key().key).unsignaled();
    server.qp.post(&[work]).expect("posted");
    assert_eq!(client.done(1), WcStatus::Success);
    // Its binding is still in flight, for all that is known.
    drop(grant);
    let (client2, server2) = (Side::new(&client.pd, 64), Side::new(&server.pd, 64));
    connect(&client2.qp, &server2.qp);
    let next = slice.grant(&client2.qp, CHANGES).expect("the same window");
    let Side { qp, cq, pd } = client;
    drop((qp, cq, pd));
    assert_eq!(next.ended(), Ok(None), "the flush was the first one's");
    assert_eq!(server2.writes(next.remote_key(), 1), WcStatus::Success);
    assert_eq!(revoke(next, &client2), Ended::Revoked);
    assert_eq!((grants.stats().lost, grants.stats().allocated), (0, 1));
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
fn a_queue_pair_that_is_reset_confirms_nothing() {
    let (client, server) = pair();
    let slice = client.memory(64);
    let grant = slice.grant(&client.qp, CHANGES).expect("grant");
    let key = grant.remote_key();
    stall(&client);
    let ending = grant.revoke();
    // R-MWU-15: the window stays bound, and the invalidation will not be done.
    let reset = QpModify { state: Some(QpState::Reset), ..QpModify::default() };
    for qp in [&client.qp, &server.qp] {
        qp.modify(&reset).expect("to RESET");
    }
    let status = Some(WcStatus::WrFlushErr);
    assert_eq!(ending.ended(), Ok(Some(Ended::Dropped { status })));
    drop(is_free(slice));
    connect(&client.qp, &server.qp);
    server.expects(1);
    client.qp.post(&[Work::send_inline(b"").id(2)]).expect("posted");
    assert_eq!(client.done(2), WcStatus::Success, "the first of the new life");
    assert_eq!(server.done(1), WcStatus::Success);
    assert_eq!(server.writes(key, 1), WcStatus::RemAccessErr);
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
