//! R-AT: atomics.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::registry::{keeps, rule_tests};
use mkey_core::device::MwKind;
use mkey_core::error::errno::EINVAL;
use mkey_core::key::Key;
use mkey_core::queue_pair::QpState;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocLenErr, RemInvReqErr};
use mkey_core::work::SendOp::{CompareSwap, FetchAdd};
use mkey_core::work::{RemoteAddr, SendOp};

rule_tests! {
    r_at_01_fetch_and_add_returns_what_was_there needs [Atomics],
    r_at_01_compare_and_swap_returns_what_was_there needs [Atomics],
    r_at_02_misaligned_address needs [Atomics],
    r_at_03_misalignment_comes_before_the_keys needs [Atomics],
    r_at_04_landing_of_another_length_than_8 needs [Atomics],
    r_at_04_landing_in_several_entries needs [Atomics],
    r_at_05_region_without_remote_atomic needs [Atomics],
    r_at_05_remote_write_is_not_needed needs [Atomics],
    r_at_06_atomics_of_one_device_exclude_each_other needs [Atomics],
    r_at_08_atomic_through_a_window needs [Atomics, Window1, Window2],
}

fn both(remote: RemoteAddr) -> [SendOp<'static>; 2] {
    [FetchAdd { remote, add: 1 }, CompareSwap { remote, compare: 0, swap: 1 }]
}

fn r_at_01_fetch_and_add_returns_what_was_there<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for (before, add) in [(5u64, 7u64), (u64::MAX, 1), (0x0102_0304_0506_0708, u64::MAX), (0, 0)] {
        target.set(64, &before.to_ne_bytes());
        let op = FetchAdd { remote: target.remote(64), add };
        p.a.run(op, &[own.sge(8, 8)]).ok();
        own.holds(8, &before.to_ne_bytes());
        target.holds(64, &before.wrapping_add(add).to_ne_bytes());
    }
    assert_eq!(p.b.events(), []);
}

fn r_at_01_compare_and_swap_returns_what_was_there<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let before = 0x0102_0304_0506_0708u64;
    target.set(64, &before.to_ne_bytes());
    // Not equal, in the lowest and the highest bit: nothing is swapped.
    for compare in [before ^ 1, before ^ 1 << 63, 0] {
        let op = CompareSwap { remote: target.remote(64), compare, swap: 99 };
        p.a.run(op, &[own.sge(8, 8)]).ok();
        own.holds(8, &before.to_ne_bytes());
        target.untouched();
    }
    let op = CompareSwap { remote: target.remote(64), compare: before, swap: 99 };
    p.a.run(op, &[own.sge(16, 8)]).ok();
    own.holds(16, &before.to_ne_bytes());
    target.holds(64, &99u64.to_ne_bytes());
}

fn r_at_02_misaligned_address<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for offset in [1, 4, 7, 60] {
        for op in both(target.remote(offset)) {
            p.refused_form(op, &[own.sge(0, 8)]);
            own.untouched();
            target.untouched();
            p.restate();
        }
    }
}

fn r_at_03_misalignment_comes_before_the_keys<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad_remote = target.remote_by(target.rkey().next(), 4);
    let bad_local = own.sge_by(own.lkey().next(), 0, 8);
    for (remote, sge) in [
        (bad_remote, own.sge(0, 8)),
        (target.remote(4), bad_local),
        (bad_remote, bad_local),
        (target.remote_by(Key(0), 1), own.sge(0, 8)),
    ] {
        for op in both(remote) {
            p.refused_form(op, &[sge]);
            own.untouched();
            target.untouched();
            p.restate();
        }
    }
}

fn r_at_04_landing_of_another_length_than_8<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for length in [0, 4, 7, 9, 16] {
        for op in both(target.remote(0)) {
            p.fails_locally(LocLenErr, op, &[own.sge(0, length)]);
            own.untouched();
            target.untouched();
            p.restate();
        }
    }
    p.works();
}

fn r_at_04_landing_in_several_entries<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let before = target.word(0);
    let sges = [own.sge(0, 4), own.sge(100, 4)];
    let op = FetchAdd { remote: target.remote(0), add: 1 };
    match p.a.post_errno(op, &sges) {
        Err(errno) => {
            assert_eq!(errno, EINVAL);
            own.untouched();
            target.untouched();
        }
        Ok(()) => {
            p.a.sent().ok();
            let before = before.to_ne_bytes();
            own.memory.expect(own.offset, &before[..4]);
            own.holds(100, &before[4..]);
            target.holds(0, &(u64::from_ne_bytes(before).wrapping_add(1)).to_ne_bytes());
        }
    }
    p.works();
}

fn r_at_05_region_without_remote_atomic<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL - Rights::REMOTE_ATOMIC));
    for op in both(target.remote(0)) {
        p.refused_access(op, &[own.sge(0, 8)]);
        own.untouched();
        target.untouched();
        p.restate();
    }
}

fn r_at_05_remote_write_is_not_needed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_ATOMIC;
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, rights));
    let before = target.word(0);
    p.a.run(FetchAdd { remote: target.remote(0), add: 9 }, &[own.sge(0, 8)]).ok();
    target.holds(0, &before.wrapping_add(9).to_ne_bytes());
}

fn r_at_06_atomics_of_one_device_exclude_each_other<S: Subject>(s: &S) {
    const EACH: u64 = 2_000;
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    target.set(0, &0u64.to_ne_bytes());
    let pairs = [p.beside(), p.beside()];
    std::thread::scope(|scope| {
        for pair in &pairs {
            let remote = target.remote(0);
            scope.spawn(move || {
                let own = pair.a.mr(PAGE, ALL);
                for _ in 0..EACH / 2 {
                    pair.a.run(FetchAdd { remote, add: 1 }, &[own.sge(0, 8)]).ok();
                    // One more by compare and swap, until it hits.
                    loop {
                        let compare = own.word(0);
                        let swap = compare.wrapping_add(1);
                        let op = CompareSwap { remote, compare, swap };
                        pair.a.run(op, &[own.sge(0, 8)]).ok();
                        if own.word(0) == compare {
                            break;
                        }
                    }
                }
            });
        }
    });
    target.holds(0, &(2 * EACH).to_ne_bytes());
}

fn r_at_08_atomic_through_a_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
        let before = target.word(8);
        let with = p.b.bound(kind, &target, 0, 64, Rights::REMOTE_ATOMIC);
        p.a.run(FetchAdd { remote: with.remote(&target, 8), add: 4 }, &[own.sge(0, 8)]).ok();
        target.holds(8, &before.wrapping_add(4).to_ne_bytes());
        own.holds(0, &before.to_ne_bytes());
        let others = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let without = p.b.bound(kind, &target, 0, 64, others);
        for op in both(without.remote(&target, 8)) {
            p.refused_access(op, &[own.sge(0, 8)]);
            target.untouched();
            p.restate();
        }
        // Misaligned through a window is misaligned.
        if keeps("R-AT-02") {
            let op = FetchAdd { remote: with.remote(&target, 4), add: 4 };
            p.a.run(op, &[own.sge(0, 8)]).is(RemInvReqErr);
            p.are(QpState::Err, QpState::Err);
            p.restate();
        }
    }
}
