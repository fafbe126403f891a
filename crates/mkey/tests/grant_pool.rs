//! What grants are made of: windows that come and go, their limit, their waiters, and what stands
//! in for them.

mod peers;

use mkey::testing::{Call, Faults, LeakCheck, Pair, When};
use mkey::{
    Ended, Grant, GrantOptions, GrantPolicy, Local, Mr, Pd, PeerAccess, Reason, Region, Slice,
    WcStatus, Work,
};
use peers::{LONG, SHORT, Side, connect, device, pair, pair_on};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHANGES: PeerAccess = PeerAccess::WRITE;

fn revoke(grant: Grant, side: &Side) -> Ended {
    let others = |other| panic!("unasked: {other:?}");
    grant.revoke().wait_polling(&side.cq, LONG, others).expect("ended")
}

fn is_free(slice: Slice) -> Slice {
    slice.into_local().map(Local::into_slice).expect("nobody else has it")
}

/// A window whose key has no variant left is freed, and for now the device has no other: nothing is
/// left behind by that, and the next grant asks again.
#[test]
fn a_window_that_can_not_be_replaced_is_no_leak() {
    let faults = Faults::new(0);
    let no_memory = Reason::System { call: "ioctl", errno: 12 };
    // The first window; after 255 grants the one in its place; the next grant's.
    faults.refuse(Call::AllocMw, no_memory.clone(), When::From(2));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let grants = pair.a.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
    let mr = Mr::builder(&pair.a.pd).windows().register(Region::new(64).expect("memory"));
    let slice = mr.expect("mr").into_slice();
    for _ in 0..255 {
        let grant = slice.grant(&pair.a.qp, PeerAccess::READ).expect("granted");
        let ended = grant.revoke().wait_polling(&pair.a.cq, LONG, |_| ());
        assert_eq!(ended, Ok(Ended::Revoked));
    }
    let stats = grants.stats();
    assert_eq!((stats.allocated, stats.in_use, stats.renewed, stats.kept), (0, 0, 0, 0));
    let error = slice.grant(&pair.a.qp, PeerAccess::READ).expect_err("no window");
    assert_eq!(error.reason, no_memory);
    faults.stop();
    let grant = slice.grant(&pair.a.qp, PeerAccess::READ).expect("granted");
    let ended = grant.revoke().wait_polling(&pair.a.cq, LONG, |_| ());
    assert_eq!(ended, Ok(Ended::Revoked));
    drop(slice);
    leaks.finish();
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
        assert_eq!(turns, [0, 1, 2, 3]);
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
    let _grants = client.pd.set_grants(GrantOptions::default().max(1)).expect("pool");
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
        assert_eq!(server.reads(key), WcStatus::RemAccessErr, "{policy}");
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
