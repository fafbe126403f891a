//! The test kit: pairs on virtual time, refusals, faults, leak checks.

use mkey::testing::{Call, Faults, LeakCheck, Pair, Refusal, Side, When};
use mkey::{
    Access, Completion, FastMrPool, Mr, Object, PeerAccess, QpState, Reason, Recv, Region,
    RemoteKey, WcOpcode, WcStatus, Work,
};
use mkey_core::device::MwKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const NO_MEMORY: Reason = Reason::System { call: "ioctl", errno: 12 };

fn region() -> Region {
    Region::new(4096).expect("memory")
}

/// Memory that the other side may do everything with.
fn target(side: &Side) -> (Mr, RemoteKey) {
    let mr = Mr::builder(&side.pd).remote_write().remote_read().remote_atomic();
    let mr = mr.register(region()).expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    (mr, key)
}

/// What a closure panics with.
fn panic_of(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast_ref::<&str>().expect("a sentence").to_string(),
    }
}

fn brief(completion: Completion) -> (u64, WcStatus) {
    (completion.wr_id, completion.status)
}

#[test]
fn both_sides_reach_each_other_on_one_device_and_on_two() {
    for builder in [Pair::builder(), Pair::builder().two_devices()] {
        let pair = builder.connect().expect("connected");
        let leaks = [LeakCheck::new(&pair.a.device), LeakCheck::new(&pair.b.device)];
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let (mr, key) = target(to);
            from.qp.post(&[Work::write_inline(b"there", key).id(5)]).expect("posted");
            assert_eq!(brief(pair.next(from)), (5, WcStatus::Success));
            assert_eq!(mr.whole().to_vec().expect("mapped")[..5], *b"there");
        }
        for leaks in leaks {
            leaks.finish();
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_keys_and_numbers() {
    let run = |seed| {
        let pair = Pair::builder().seed(seed).connect().expect("connected");
        (target(&pair.b).0.info().lkey, target(&pair.b).0.info().rkey, pair.a.qp.info().qp_num)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn time_passes_in_steps_so_that_no_retry_is_missed() {
    let pair = Pair::new().expect("connected");
    let mr = Mr::new(&pair.b.pd, region()).expect("mr");
    pair.a.qp.post(&[Work::send_inline(b"early").id(1)]).expect("posted");
    pair.advance(Duration::from_secs(10));
    assert_eq!(pair.now(), Duration::from_secs(10));
    assert_eq!(pair.done(&pair.a), [], "the receiver is not ready");
    pair.b.qp.post_recv(&[Recv::new(&[mr.whole()]).id(2)]).expect("posted");
    let before = pair.now();
    assert_eq!(brief(pair.next(&pair.a)), (1, WcStatus::Success));
    let took = pair.now() - before;
    assert!(took > Duration::ZERO && took <= Duration::from_millis(1), "{took:?}");
    assert_eq!(brief(pair.next(&pair.b)), (2, WcStatus::Success));
}

#[test]
fn waiting_for_what_never_comes_ends_with_a_sentence() {
    let pair = Pair::new().expect("connected");
    let text = panic_of(|| _ = pair.next(&pair.a));
    assert_eq!(text, "no completion comes: nothing is due on either side any more");
    pair.a.qp.post(&[Work::send_inline(b"no receive is posted")]).expect("posted");
    let text = panic_of(|| _ = pair.next(&pair.a));
    assert_eq!(text, "no completion comes: it is tried again and again, for 60s so far");
}

#[test]
fn a_refusal_is_told_typed_and_in_words_and_the_pair_goes_on() {
    for builder in [Pair::builder(), Pair::builder().two_devices()] {
        let pair = builder.connect().expect("connected");
        let (mr, key) = target(&pair.b);
        let past = RemoteKey { length: key.length + 8, ..key };
        let past = past.part(4090, 14).expect("as the wrong length says");
        let refused = pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(&[1; 14], past)]));
        assert_eq!(refused.completion.status, WcStatus::RemAccessErr);
        assert!(
            matches!(refused.access(), Some(Refusal::PastEnd { by: 8, length: 4096, .. })),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("ends 8 bytes past the range"), "{refused}");
        assert_eq!(refused.manage(), None);
        pair.reconnect().expect("connected again");
        pair.a.qp.post(&[Work::write_inline(b"well", key)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
        assert_eq!(mr.whole().to_vec().expect("mapped")[..4], *b"well");
    }
}

#[test]
fn expecting_a_refusal_fails_where_there_is_none() {
    let pair = Pair::builder().qp(|qp| qp.max_inline(16)).connect().expect("connected");
    let (_mr, key) = target(&pair.b);
    let text = panic_of(|| {
        pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"allowed", key)]));
    });
    let said = "nothing was refused: 1 completed well; nothing is due on either side any more";
    assert_eq!(text, said);
    let text = panic_of(|| {
        pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(&[0; 17], key)]));
    });
    assert!(text.contains("posting failed") && text.contains("17 inline bytes"), "{text}");
    let text = panic_of(|| {
        pair.expect_refusal(|a, _| {
            a.qp.fail().expect("to ERR");
            a.qp.post(&[Work::write_inline(b"flushed", key)])
        });
    });
    assert_eq!(text, "the work failed, but nothing refused it: work request flushed");
}

#[test]
fn a_leak_check_names_what_is_left() {
    let pair = Pair::new().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let mr = Mr::new(&pair.a.pd, region()).expect("mr");
    let left = leaks.leaks();
    assert_eq!(left.len(), 1);
    assert!(left[0].starts_with("1 memory region is more registered"), "{left:?}");
    assert!(left[0].contains("4096 bytes"), "{left:?}");
    let text = panic_of(|| leaks.finish());
    assert!(text.starts_with("left behind on a: 1 memory region is more"), "{text}");
    let leaks = LeakCheck::new(&pair.a.device);
    drop(mr);
    leaks.finish();
    // Dropping one checks as well.
    let leaks = LeakCheck::new(&pair.a.device);
    let _mr = Mr::new(&pair.a.pd, region()).expect("mr");
    assert!(panic_of(|| drop(leaks)).contains("1 memory region"));
}

#[test]
fn a_verb_that_is_refused_has_done_nothing() {
    let faults = Faults::new(1);
    faults.refuse(Call::RegMr, NO_MEMORY, When::Nth(3));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let outcome: Vec<_> =
        (0..4).map(|_| Mr::new(&pair.a.pd, region()).map(drop).map_err(|e| e.reason)).collect();
    assert_eq!(outcome, [Ok(()), Ok(()), Err(NO_MEMORY), Ok(())]);
    leaks.finish();
    let injected = faults.injected();
    assert_eq!((injected.len(), injected[0].rule, injected[0].number), (1, 0, 3));
    assert_eq!(injected[0].to_string(), "reg_mr: ioctl failed (rule 0, number 3)");
    assert!(pair.a.device.notes().iter().any(|note| note.contains("faults are injected")));
}

#[test]
fn promise_6_a_deregistration_that_fails_keeps_the_memory_and_names_the_holder() {
    let faults = Faults::new(1);
    let held = Reason::InUse { object: Object::Mr, by: "1 window is bound to it".into() };
    faults.refuse(Call::DeregMr, held, When::Nth(1));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let device = &pair.a.device;
    let leaks = LeakCheck::new(device);
    let mr = Mr::builder(&pair.a.pd).remote_write().register(region()).expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    drop(mr);
    let stats = device.stats();
    assert_eq!((stats.failed_drops, stats.kept, stats.kept_bytes), (1, 1, 4096));
    assert!(device.kept()[0].contains("1 window is bound to it"), "{:?}", device.kept());
    assert!(leaks.leaks()[0].contains("1 window is bound to it"), "{:?}", leaks.leaks());
    // It is registered still, and so it is mapped still.
    pair.b.qp.post(&[Work::write_inline(b"still there", key)]).expect("posted");
    assert_eq!(pair.next(&pair.b).status, WcStatus::Success);
    assert_eq!(device.retry_kept(), 1);
    assert_eq!((device.stats().kept, device.stats().registered_bytes), (0, 0));
    assert_eq!(leaks.leaks().len(), 1, "the failed drop itself is told: {:?}", leaks.leaks());
    assert!(panic_of(|| leaks.finish()).contains("would not free 1 object"));
}

#[test]
fn promise_4_a_chain_refused_half_way_by_the_device_keeps_only_what_was_posted() {
    let faults = Faults::new(1);
    faults.refuse(Call::PostSend, Reason::QueueFull { depth: 256 }, When::Nth(3));
    faults.refuse(Call::PostRecv, Reason::QueueFull { depth: 256 }, When::Nth(2));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let (_mr, key) = target(&pair.b);
    let source = Mr::new(&pair.a.pd, region()).expect("mr");
    let from = [source.whole()];
    let chain: Vec<_> = (0..5).map(|id| Work::write(&from, key).id(id)).collect();
    let error = pair.a.qp.post(&chain).expect_err("the third");
    assert_eq!((error.posted, error.error.reason), (2, Reason::QueueFull { depth: 256 }));
    let into = [source.whole()];
    let error = pair.b.qp.post_recv(&[Recv::new(&into), Recv::new(&into)]).expect_err("no room");
    assert_eq!(error.posted, 1);
    drop((from, into));
    let ids: Vec<_> = pair.done(&pair.a).into_iter().map(brief).collect();
    assert_eq!(ids, [(0, WcStatus::Success), (1, WcStatus::Success)]);
    let (slice, _) = source.into_slice().into_local().expect_err("the receive has it");
    pair.b.qp.fail().expect("to ERR");
    assert_eq!(pair.next(&pair.b).status, WcStatus::WrFlushErr);
    drop(slice.into_local().expect("nothing has it any more"));
    drop(_mr);
    leaks.finish();
}

#[test]
fn work_that_is_to_fail_fails_at_the_device_itself() {
    let faults = Faults::new(1);
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let (mr, key) = target(&pair.b);
    let source = Mr::new(&pair.a.pd, region()).expect("mr");
    let old = source.slice(..8).expect("within");
    let from = [source.slice(..4).expect("within")];
    let none: [mkey::Slice; 0] = [];
    faults.fail(None, When::Always);
    let works = [
        (Work::write(&from, key), WcStatus::RemAccessErr),
        (Work::write(&none, key), WcStatus::LocProtErr),
        (Work::read(&from, key), WcStatus::RemAccessErr),
        (Work::fetch_add(&old, key, 1), WcStatus::RemAccessErr),
        (Work::compare_swap(&old, key, 0, 1), WcStatus::RemAccessErr),
        (Work::send(&from), WcStatus::LocProtErr),
        (Work::send_inline(b"x"), WcStatus::LocProtErr),
    ];
    for (work, status) in works {
        let refused = pair.expect_refusal(|a, _| a.qp.post(&[work, work]));
        assert_eq!(refused.completion.status, status, "{work:?}: {refused}");
        assert_eq!(pair.a.qp.query().expect("query").state, QpState::Err);
        pair.reconnect().expect("connected again");
    }
    assert_eq!(mr.whole().to_vec().expect("mapped"), [0; 4096]);
    assert_eq!(faults.injected().len(), 2 * works.len());
}

#[test]
fn a_queue_pair_that_breaks_flushes_what_follows() {
    let faults = Faults::new(1);
    faults.break_qp(WcOpcode::RdmaWrite, When::Nth(2));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let (mr, key) = target(&pair.b);
    let works: Vec<_> = (0..3).map(|id| Work::write_inline(b"w", key).id(id)).collect();
    pair.a.qp.post(&works).expect("posted, to be flushed");
    let done: Vec<_> = pair.done(&pair.a).into_iter().map(brief).collect();
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(done, [(0, WcStatus::Success), (1, flushed), (2, flushed)]);
    drop(mr);
}

#[test]
fn a_delayed_completion_keeps_its_place_and_its_memory() {
    let faults = Faults::new(1);
    faults.delay(WcOpcode::RdmaWrite, Duration::from_millis(5), When::Nth(1));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let (mr, key) = target(&pair.b);
    let source = Mr::new(&pair.a.pd, region()).expect("mr");
    pair.a.qp.post(&[Work::write(&[source.into_slice()], key).id(1)]).expect("posted");
    pair.a.qp.post(&[Work::send_inline(b"after it").id(2)]).expect("posted");
    pair.b.qp.post_recv(&[Recv::new(&[mr.whole()]).id(3)]).expect("posted");
    pair.advance(Duration::from_millis(4));
    assert_eq!(pair.done(&pair.a), []);
    assert_eq!(brief(pair.next(&pair.b)), (3, WcStatus::Success), "other queues go on");
    drop(mr);
    let left = leaks.leaks();
    assert!(left[0].contains("1 memory region") && left[0].contains("4096"), "{left:?}");
    assert_eq!(brief(pair.next(&pair.a)), (1, WcStatus::Success));
    assert_eq!(pair.now(), Duration::from_millis(5));
    assert_eq!(brief(pair.next(&pair.a)), (2, WcStatus::Success));
    leaks.finish();
}

#[test]
fn a_lost_completion_comes_flushed_when_its_queue_pair_ends() {
    let faults = Faults::new(1);
    faults.lose(WcOpcode::RdmaWrite, When::Nth(2));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let (mr, key) = target(&pair.b);
    let source = Mr::new(&pair.a.pd, region()).expect("mr");
    for id in 1..=3 {
        pair.a.qp.post(&[Work::write(&[source.whole()], key).id(id)]).expect("posted");
    }
    drop((mr, source));
    assert_eq!(brief(pair.next(&pair.a)), (1, WcStatus::Success));
    assert_eq!(pair.done(&pair.a), []);
    assert_eq!(leaks.leaks().len(), 1, "its memory stays meanwhile");
    pair.a.qp.fail().expect("to ERR");
    let done: Vec<_> = pair.done(&pair.a).into_iter().map(brief).collect();
    assert_eq!(done, [(2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]);
    leaks.finish();
}

#[test]
fn who_sleeps_for_a_held_completion_is_woken() {
    let faults = Faults::new(1);
    faults.lose(WcOpcode::RdmaWrite, When::Nth(1));
    faults.delay(WcOpcode::RdmaRead, Duration::from_secs(1), When::Nth(1));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let (_mr, key) = target(&pair.b);
    let into = [Mr::new(&pair.a.pd, region()).expect("mr").into_slice()];
    pair.a.qp.post(&[Work::read(&into, key).id(1)]).expect("posted");
    // Whether it sleeps already or polls first: it comes either way, and long before this time.
    let wait = || {
        let cq = pair.a.cq.clone();
        std::thread::spawn(move || {
            let mut one = [Completion::BLANK];
            cq.wait(&mut one, Duration::from_secs(60)).map(|taken| (taken, brief(one[0])))
        })
    };
    let begun = std::time::Instant::now();
    let waiter = wait();
    pair.advance(Duration::from_secs(2));
    assert_eq!(waiter.join().expect("no panic"), Ok((1, (1, WcStatus::Success))));
    pair.a.qp.post(&[Work::write_inline(b"x", key).id(2)]).expect("posted");
    let waiter = wait();
    pair.a.qp.fail().expect("to ERR");
    assert_eq!(waiter.join().expect("no panic"), Ok((1, (2, WcStatus::WrFlushErr))));
    assert!(begun.elapsed() < Duration::from_secs(50));
}

/// A seeded storm of faults over everything the kit can do: whatever goes wrong, nothing is left.
#[test]
fn the_same_seed_gives_the_same_faults_and_nothing_leaks() {
    let run = |seed| {
        let faults = Faults::new(seed);
        faults
            .refuse(Call::RegMr, NO_MEMORY, When::Chance(0.2))
            .refuse(Call::PostSend, Reason::QueueFull { depth: 256 }, When::Chance(0.1))
            .fail(None, When::Chance(0.1))
            .break_qp(None, When::Chance(0.05))
            .lose(None, When::Chance(0.1))
            .delay(None, Duration::from_millis(1), When::Chance(0.2));
        let pair = Pair::builder().faults(&faults).connect().expect("connected");
        let leaks = LeakCheck::new(&pair.a.device);
        let mut seen = Vec::new();
        for id in 0..200 {
            let Ok(source) = Mr::new(&pair.a.pd, region()) else { continue };
            let target = Mr::builder(&pair.b.pd).remote_write().register(region());
            let Ok(target) = target else { continue };
            let key = target.remote_key(..).expect("exposed");
            let from = [source.into_slice()];
            let posted = pair.a.qp.post(&[Work::write(&from, key).id(id)]);
            pair.advance(Duration::from_micros(300));
            let done: Vec<_> = pair.done(&pair.a).into_iter().map(brief).collect();
            seen.push((posted.is_ok(), done));
            if pair.a.qp.query().expect("query").state != QpState::Rts {
                pair.reconnect().expect("connected again");
            }
        }
        pair.reconnect().expect("connected again");
        assert_eq!(pair.a.qp.query().expect("query").state, QpState::Rts);
        leaks.finish();
        assert_eq!(pair.a.device.stats().registered_bytes, 0);
        (seen, faults.injected())
    };
    let first = run(11);
    assert_eq!(first, run(11));
    assert_ne!(first.1, run(12).1);
    for rule in 0..6 {
        assert!(first.1.iter().any(|injected| injected.rule == rule), "rule {rule} never met");
    }
}

#[test]
fn a_device_that_lacks_something_says_so_and_refuses_it() {
    let faults = Faults::new(0);
    faults.lack(|offers| (offers.window2, offers.max_fast_mr_entries) = (false, 0));
    faults.lack(|offers| (offers.odp.explicit, offers.max_mr_size) = (false, 1 << 20));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let (device, pd) = (&pair.a.device, pair.a.pd.handle());
    assert!(!device.capabilities().window2 && device.capabilities().window1);
    let lacks = |error: mkey::Error| match error.reason {
        Reason::Unsupported { capability } => capability.to_string(),
        other => panic!("{other:?}"),
    };
    let error = device.control().alloc_mw(pd, MwKind::Type2).expect_err("none");
    assert_eq!(lacks(error), "type 2 memory windows");
    let window = device.control().alloc_mw(pd, MwKind::Type1).expect("of type 1");
    device.control().dealloc_mw(window.handle).expect("freed");
    let error = device.control().alloc_fast_mr(pd, 4).expect_err("none");
    assert_eq!(lacks(error), "fast registration");
    let error = Mr::builder(&pair.a.pd).on_demand().register(region()).expect_err("none");
    assert_eq!(lacks(error), "on-demand paging");
    Mr::new(&pair.a.pd, Region::new(2 << 20).expect("memory")).expect_err("too long");
}

#[test]
fn fast_mappings_count_from_0_where_the_device_has_no_others() {
    let faults = Faults::new(0);
    faults.lack(|offers| offers.fast_mr_zero_based = true);
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let slices: Vec<_> = (0..2)
        .map(|_| Mr::new(&pair.b.pd, Region::new(4096).expect("memory")).expect("mr").whole())
        .collect();
    let pool = FastMrPool::builder(&pair.b.pd).entries(2).build().expect("pool");
    let mapping = pool.map(&pair.b.qp, &slices, Access::local().remote_write()).expect("mapped");
    let key = mapping.remote_key().expect("exposed");
    assert_eq!((key.address.0, key.length), (0, 8192));
    assert_eq!(mapping.slice().remote_key().expect("exposed"), key);
    // Over the joint, so that the address counts.
    let part = key.part(4094, 5).expect("within");
    pair.a.qp.post(&[Work::write_inline(b"there", part).id(5)]).expect("posted");
    assert_eq!(brief(pair.next(&pair.a)), (5, WcStatus::Success));
    assert_eq!(slices[0].to_vec().expect("mapped")[4094..], *b"th");
    assert_eq!(slices[1].to_vec().expect("mapped")[..3], *b"ere");
}

#[test]
fn faults_can_be_put_around_any_device() {
    let faults = Faults::new(0);
    let device = mkey::Device::soft(mkey::SoftOptions::default()).expect("a software RNIC");
    let faulty = faults.around(&device);
    faults.refuse(Call::CreateQp, NO_MEMORY, When::Always);
    for (device, well) in [(&device, true), (&faulty, false)] {
        let pd = mkey::Pd::new(device).expect("pd");
        let cq = mkey::Cq::new(device, 8).expect("cq");
        let qp = mkey::Qp::builder(&pd, &cq).peer(PeerAccess::READ).create();
        assert_eq!(qp.is_ok(), well);
    }
}
