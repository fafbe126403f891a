//! Fast registration: scattered slices under one key.

mod peers;

use mkey::{
    Access, Completion, Ended, FastMapping, FastMrPool, Mr, Pd, QpState, Reason, Recv, Region,
    Rights, Slice, WcStatus, Work, gather, scatter,
};
use peers::{LONG, SHORT, Side, connect, device, pair, pair_on};
use std::collections::HashSet;
use std::slice::from_ref;

/// Blocks the send queue of `side` until its peer posts a receive.
fn stall(side: &Side) {
    side.qp.post(&[Work::send_inline(b"stalled").id(99)]).expect("posted");
}

fn open() -> Access {
    Access::local().remote_read().remote_write()
}

/// Slices of any start and length, of two regions, with the bytes 0, 1, 2...
fn scattered(side: &Side) -> Vec<Slice> {
    let (a, b) = (side.memory(4096), side.memory(8192));
    let slices = [a.part(1..4), a.part(1000..1100), b.part(0..8), b.part(4090..4100), a.part(7..8)];
    let slices: Vec<_> = slices.into_iter().map(|slice| slice.expect("within")).collect();
    let mut next = 0;
    for slice in &slices {
        let bytes: Vec<u8> = (next..).take(slice.len()).collect();
        slice.write(0, &bytes).expect("within");
        next += slice.len() as u8;
    }
    slices
}

const TOTAL: usize = 3 + 100 + 8 + 10 + 1;

fn counted() -> Vec<u8> {
    (0..TOTAL as u8).collect()
}

fn release(mapping: FastMapping, side: &Side) -> Ended {
    let ending = mapping.release().expect("no slice of it is out");
    ending.wait_polling(&side.cq, LONG, |other| panic!("{other:?}")).expect("ended")
}

fn all_free(slices: Vec<Slice>) {
    // Several are of one region, so that only the last one is alone.
    let mut left = slices;
    while let Some(slice) = left.pop() {
        if left.iter().all(|other| other.lkey() != slice.lkey()) {
            slice.into_local().expect("nobody else has it");
        }
    }
}

#[test]
fn a_peer_reads_and_writes_scattered_slices_by_one_key() {
    let (client, server) = pair();
    let slices = scattered(&client);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let mapping = pool.map(&client.qp, &slices, open()).expect("mapped");
    let key = mapping.remote_key().expect("exposed");
    assert_eq!((key.length, mapping.len()), (TOTAL as u64, TOTAL as u64));

    let into = [server.memory(256).part(..TOTAL).expect("within")];
    server.qp.post(&[Work::read(&into, key).id(1)]).expect("posted");
    assert_eq!(server.done(1), WcStatus::Success);
    assert_eq!(into[0].to_vec().expect("mapped"), counted());
    // Across the border of two slices, and not a byte beside them.
    let part = key.part(2, 4).expect("within");
    assert_eq!(server.writes(part, 0xff), WcStatus::Success);
    let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec().expect("mapped")).collect();
    let mut wanted = counted();
    wanted[2..6].fill(0xff);
    assert_eq!(bytes, wanted);
    assert_eq!(slices[0].part(3..).expect("end").len(), 0);

    assert_eq!(release(mapping, &client), Ended::Revoked);
    assert_eq!(server.reads(part), WcStatus::RemAccessErr, "R-FR-14");
    all_free(slices);
}

#[test]
fn the_range_is_exact_to_the_byte() {
    for (before, more) in [(1u64, 0u64), (0, 1)] {
        let (client, server) = pair();
        let slices = scattered(&client);
        let pool = FastMrPool::builder(&client.pd).build().expect("pool");
        let mapping = pool.map(&client.qp, &slices, open()).expect("mapped");
        let key = mapping.remote_key().expect("exposed");
        let address = mkey::IoAddr(key.address.0 - before);
        let beyond = mkey::RemoteKey { address, length: key.length + more, ..key };
        assert_eq!(server.reads(beyond), WcStatus::RemAccessErr, "{before} {more}");
    }
}

#[test]
fn work_of_this_process_names_it_as_one_slice() {
    let (client, server) = pair();
    let slices = scattered(&client);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let mapping = pool.prepare(&client.qp, &slices, Access::local()).expect("ready");
    assert!(matches!(
        mapping.remote_key().expect_err("local-only").reason,
        Reason::RightMissing { .. }
    ));
    let whole = [mapping.slice()];
    let landing = server.memory(256);
    server.qp.post_recv(&[Recv::new(from_ref(&landing)).id(1)]).expect("posted");
    // R-FR-12: in one post.
    client.qp.post(&[mapping.register(), Work::send(&whole).id(2)]).expect("posted");
    assert_eq!(client.done(2), WcStatus::Success);
    assert_eq!(server.one().byte_len as usize, TOTAL);
    assert_eq!(landing.part(..TOTAL).expect("within").to_vec().expect("mapped"), counted());
    // It is the landing of a receive as well.
    client.qp.post_recv(&[Recv::new(&whole).id(3)]).expect("posted");
    server.qp.post(&[Work::send_inline(&[9; 50]).unsignaled()]).expect("posted");
    assert_eq!(client.done(3), WcStatus::Success);
    assert_eq!(slices[0].to_vec().expect("mapped"), [9; 3]);
    assert_eq!(slices[1].to_vec().expect("mapped")[..48], [[9; 47].as_slice(), &[50]].concat());
}

#[test]
fn a_mapping_has_no_one_place_in_the_process() {
    let (client, _server) = pair();
    let slices = scattered(&client);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let mapping = pool.map(&client.qp, &slices, Access::local()).expect("mapped");
    let whole = mapping.slice().part(1..50).expect("within");
    assert!(mapping.slice().part(1..TOTAL + 1).is_err());
    let not_here = |result: mkey::Result<()>| {
        assert!(matches!(result.expect_err("refused").reason, Reason::NotHere { .. }));
    };
    not_here(whole.read(0, &mut [0]));
    not_here(whole.write(0, &[0]));
    not_here(whole.load(0).map(drop));
    not_here(whole.store(0, 1));
    not_here(whole.copy_from(&client.memory(4)));
    not_here(client.memory(64).copy_from(&whole));
    not_here(pool.map(&client.qp, from_ref(&whole), Access::local()).map(drop));
    not_here(whole.prepare_grant(&client.qp, mkey::PeerAccess::READ).map(drop));
    let (_, error) = whole.into_local().expect_err("others have it");
    assert_eq!(error.reason, Reason::Exposed);
}

#[test]
fn promise_4_a_slice_of_it_keeps_the_mapping_until_its_work_is_done() {
    let (client, server) = pair();
    let slices = scattered(&client);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let mapping = pool.map(&client.qp, &slices, Access::local()).expect("mapped");
    // On another queue pair of the domain, whose peer is not ready.
    let (other, peer) = (Side::new(&client.pd, 16), Side::new(&server.pd, 16));
    connect(&other.qp, &peer.qp);
    other.qp.post(&[Work::send(&[mapping.slice()]).id(1)]).expect("posted");
    let error = client.qp.post(&[mapping.invalidate()]).expect_err("in use").error;
    assert_eq!(error.reason, Reason::StillUsed { what: "fast registration" });
    let (mapping, error) = mapping.release().expect_err("in use");
    assert_eq!(error.reason, Reason::StillUsed { what: "fast mapping" });
    drop(mapping);
    assert_eq!(pool.stats().in_use, 1, "the handle is gone, the work is not");
    let mut none = [Completion::BLANK];
    assert_eq!(client.cq.poll(&mut none), Ok(0));
    assert_eq!(pool.stats().in_use, 1);
    peer.expects(2);
    assert_eq!(other.done(1), WcStatus::Success);
    // Now the end is posted; its completion is the library's own.
    assert_eq!(client.cq.poll(&mut none), Ok(0));
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.released, stats.lost), (0, 1, 0));
    all_free(slices);
}

#[test]
fn one_completion_confirms_the_release_of_several() {
    let (client, server) = pair();
    let pool = FastMrPool::builder(&client.pd).entries(2).build().expect("pool");
    let slice = client.memory(4096);
    let mappings: Vec<_> = (0..8)
        .map(|at| [slice.part(at * 10..at * 10 + 3), slice.part(at * 100..at * 100 + 7)])
        .map(|slices| slices.map(|slice| slice.expect("within")))
        .map(|slices| pool.prepare(&client.qp, &slices, open()).expect("ready"))
        .collect();
    let chain: Vec<_> = mappings.iter().map(FastMapping::register).collect();
    client.qp.post(&chain).expect("posted");
    for mapping in &mappings {
        assert_eq!(server.reads(mapping.remote_key().expect("exposed")), WcStatus::Success);
    }
    let mut chain: Vec<_> = mappings.iter().map(|one| one.invalidate().unsignaled()).collect();
    chain[7] = mappings[7].invalidate();
    client.qp.post(&chain).expect("posted");
    assert!(mappings.iter().all(|mapping| mapping.ended() == Ok(None)));
    assert_eq!(client.cq.poll(&mut [Completion::BLANK]), Ok(0));
    assert!(mappings.iter().all(|mapping| mapping.ended() == Ok(Some(Ended::Revoked))));
    drop(mappings);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.mapped, stats.released, stats.allocated), (0, 8, 8, 8));
    slice.into_local().expect("free");
}

#[test]
fn r_fr_15_the_peer_ends_it() {
    let (client, server) = pair();
    let slices = scattered(&client);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    client.expects(1);
    let mapping = pool.map(&client.qp, &slices, open()).expect("mapped");
    let key = mapping.remote_key().expect("exposed");
    server.qp.post(&[Work::send_inline(b"").invalidating(key.key).id(2)]).expect("posted");
    assert_eq!(server.done(2), WcStatus::Success);
    let ended = mapping.await_peer().wait_polling(&client.cq, LONG, |_| ());
    assert_eq!(ended, Ok(Ended::ByPeer));
    all_free(slices);
    assert_eq!(server.reads(key), WcStatus::RemAccessErr);
    assert_eq!((pool.stats().released_by_peer, pool.stats().in_use), (1, 0));
}

#[test]
fn what_can_not_be_mapped_is_refused_with_the_reason_and_copied_instead() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let pool = FastMrPool::builder(&client.pd).entries(4).build().expect("pool");
    let slices = scattered(&client);
    let refused = |slices: &[Slice], access| {
        pool.prepare(&client.qp, slices, access).expect_err("refused").reason
    };
    assert!(matches!(refused(&slices, open()), Reason::Argument { value: 5, .. }));
    assert!(matches!(refused(&[], open()), Reason::Argument { value: 0, .. }));
    assert!(matches!(refused(&slices[..1], open().windows()), Reason::Argument { .. }));
    assert!(matches!(refused(&slices[..1], open().on_demand()), Reason::Argument { .. }));
    let empty = [slices[0].part(0..0).expect("within")];
    assert!(matches!(refused(&empty, open()), Reason::Argument { value: 0, .. }));
    assert_eq!(refused(&[server.memory(8)], open()), Reason::OtherPd, "R-FR-08");
    let read_only = Mr::builder(&client.pd).access(Access::local_read());
    let read_only =
        read_only.register(Region::new(4096).expect("memory")).expect("mr").into_slice();
    let missing = Rights::LOCAL_WRITE;
    assert_eq!(refused(from_ref(&read_only), open()), Reason::RightMissing { missing });
    assert_eq!(refused(from_ref(&read_only), Access::local()), Reason::RightMissing { missing });
    let access = Access::local_read().remote_read();
    drop(pool.prepare(&client.qp, &[read_only], access).expect("only read"));
    let error = pool.prepare(&server.qp, &slices[..1], open()).expect_err("another domain");
    assert_eq!(error.reason, Reason::OtherPd);
    assert_eq!(client.qp.query().expect("query").state, QpState::Rts);

    // By a copy.
    let bounce = client.memory(4096);
    let together = gather(&slices, &bounce).expect("room");
    assert_eq!(together.to_vec().expect("mapped"), counted());
    let mapping = pool.map(&client.qp, from_ref(&together), open()).expect("mapped");
    assert_eq!(server.writes(mapping.remote_key().expect("exposed"), 7), WcStatus::Success);
    release(mapping, &client);
    scatter(&together, &slices).expect("room");
    for slice in &slices {
        assert_eq!(slice.to_vec().expect("mapped"), vec![7; slice.len()]);
    }
    let short = bounce.part(..TOTAL - 1).expect("within");
    let error = gather(&slices, &short).expect_err("too short");
    assert!(matches!(error.reason, Reason::OutOfRange { .. }), "{error}");
    assert!(scatter(&short, &slices).is_err());
}

#[test]
fn device_limits_are_told() {
    let (client, _server) = pair();
    let most = client.pd.device().capabilities().max_fast_mr_entries;
    for entries in [0, most + 1] {
        let error = FastMrPool::builder(&client.pd).entries(entries).build().expect_err("refused");
        assert!(matches!(error.reason, Reason::Argument { .. }), "{error}");
    }
    let pool = FastMrPool::builder(&client.pd).entries(most).max(2).ready(1).build();
    let pool = pool.expect("what the device takes");
    assert_eq!((pool.entries(), pool.stats().allocated), (most, 1));
    let slice = client.memory(8192);
    let slices: Vec<_> =
        (0..most as usize).map(|at| slice.part(at..at + 2).expect("within")).collect();
    let mapping = pool.map(&client.qp, &slices, open()).expect("mapped");
    assert_eq!(mapping.len(), u64::from(most) * 2);
    assert_eq!(release(mapping, &client), Ended::Revoked);
}

#[test]
fn an_empty_pool_grows_then_waits_or_fails() {
    let (client, _server) = pair();
    let pool = FastMrPool::builder(&client.pd).entries(1).max(2).build().expect("pool");
    let slice = [client.memory(64)];
    let map = || pool.map(&client.qp, &slice, open());
    let (first, second) = (map().expect("grown"), map().expect("grown"));
    let error = map().expect_err("at its limit");
    assert!(matches!(error.reason, Reason::Exhausted { limit: 2, .. }), "{error}");
    let error = pool.prepare_within(&client.qp, &slice, open(), SHORT).expect_err("none comes");
    assert_eq!(error.reason, Reason::TimedOut { after: SHORT });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.prepare_within(&client.qp, &slice, open(), LONG));
        while pool.stats().waits < 2 {
            std::thread::yield_now();
        }
        assert_eq!(release(first, &client), Ended::Revoked);
        drop(waiting.join().expect("no panic").expect("its turn"));
    });
    drop(second);
    let stats = pool.stats();
    assert_eq!((stats.allocated, stats.most_in_use, stats.exhausted), (2, 2, 2));
}

#[test]
fn spdk_3859_memory_comes_back_from_a_queue_pair_that_failed() {
    let device = device();
    let (client, _server) = pair_on(&device, 256);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let slices = scattered(&client);
    let waiting = pool.map(&client.qp, &slices, open()).expect("mapped");
    stall(&client);
    let released = pool.map(&client.qp, &slices, open()).expect("mapped").release();
    let released = released.expect("posted");
    let dropped = pool.map(&client.qp, &slices, open()).expect("mapped");
    drop(dropped);
    let (one, error) = slices[0].clone().into_local().expect_err("in use");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    drop(one);
    client.qp.fail().expect("to ERR");
    let status = Some(WcStatus::WrFlushErr);
    let ended = released.wait_polling(&client.cq, LONG, |other| assert_eq!(other.wr_id, 99));
    assert_eq!(ended, Ok(Ended::Dropped { status }));
    let ended = waiting.release().expect("posted").wait_polling(&client.cq, LONG, |_| ());
    assert_eq!(ended, Ok(Ended::Dropped { status }));
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.allocated, stats.lost, stats.flushed), (0, 0, 3, 3));
    all_free(slices);
}

#[test]
fn promise_1_a_queue_pair_may_go_before_its_mappings() {
    let device = device();
    let (client, server) = pair_on(&device, 256);
    let pool = FastMrPool::builder(&client.pd).entries(8).build().expect("pool");
    let slices = scattered(&client);
    let mapping = pool.map(&client.qp, &slices, open()).expect("mapped");
    client.qp.post(&[Work::send_inline(b"").id(1)]).expect("posted");
    server.expects(1);
    assert_eq!(client.done(1), WcStatus::Success);
    let Side { qp, cq, pd } = client;
    drop((qp, cq, pd));
    // The registration itself is the domain's, and lives.
    assert_eq!(mapping.ended(), Ok(None));
    let ended = mapping.release().expect("nothing is out").ended();
    assert_eq!(ended, Ok(Some(Ended::Dropped { status: None })));
    all_free(slices);
    drop((pool, server));
    assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
}

#[test]
fn nbs_6542_no_key_comes_round() {
    let (client, _server) = pair();
    let pool = FastMrPool::builder(&client.pd).entries(1).max(1).build().expect("pool");
    let slice = [client.memory(64)];
    let mut keys = HashSet::new();
    for _ in 0..600 {
        let mapping = pool.map(&client.qp, &slice, open()).expect("mapped");
        assert!(keys.insert(mapping.remote_key().expect("exposed").key), "{} keys", keys.len());
        release(mapping, &client);
    }
    assert_eq!((pool.stats().renewed, pool.stats().allocated), (2, 1));
}

#[test]
fn many_threads_share_the_pool() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 200;
    let device = device();
    let (pd, serving) = (Pd::new(&device).expect("pd"), Pd::new(&device).expect("pd"));
    let pool = FastMrPool::builder(&pd).entries(3).max(3).build().expect("pool");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pd, serving, pool) = (&pd, &serving, pool.clone());
            scope.spawn(move || {
                let (client, server) = (Side::new(pd, 64), Side::new(serving, 64));
                connect(&client.qp, &server.qp);
                let memory = client.memory(4096);
                let into = [server.memory(48)];
                let at = [3..19, 500..516, 100..116];
                let slices = at.map(|range| memory.part(range).expect("within"));
                for round in 0..ROUNDS {
                    let value = [thread as u8 + 1, round as u8, 3];
                    for (slice, value) in slices.iter().zip(value) {
                        slice.write(0, &[value; 16]).expect("within");
                    }
                    let mapping = pool.prepare_within(&client.qp, &slices, open(), LONG);
                    let mapping = mapping.expect("one");
                    let key = mapping.remote_key().expect("exposed");
                    client.qp.post(&[mapping.register()]).expect("posted");
                    server.qp.post(&[Work::read(&into, key)]).expect("posted");
                    assert_eq!(server.one().status, WcStatus::Success);
                    assert_eq!(release(mapping, &client), Ended::Revoked);
                    assert_eq!(
                        into[0].to_vec().expect("mapped"),
                        value.map(|value| [value; 16]).concat()
                    );
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.lost, stats.released as usize), (0, 0, THREADS * ROUNDS));
    drop((pool, pd, serving));
    assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
}
