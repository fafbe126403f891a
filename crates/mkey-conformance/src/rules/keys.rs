//! R-KEY: keys.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::registry::{device_offers, rule_tests};
use mkey_core::address::IoAddr;
use mkey_core::device::{Capability, Device, MwKind};
use mkey_core::key::{Key, Rkey};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocProtErr, MwBindErr, RemAccessErr, Success};
use mkey_core::work::RemoteAddr;
use mkey_core::work::SendOp::{LocalInv, Read, Write};
use std::collections::{HashMap, HashSet};

rule_tests! {
    r_key_01_all_32_bits_are_compared,
    r_key_02_a_key_without_remote_rights,
    r_key_03_index_zero_is_never_handed_out,
    r_key_03_key_zero_matches_nothing,
    r_key_04_one_key_names_one_object,
    r_key_05_wrong_variant_is_unknown,
    r_key_05_wrong_variant_in_a_bind needs [Window1, Window2],
    r_key_05_wrong_variant_in_an_invalidation needs [FastMr],
    r_key_06_next_key,
    r_key_07_an_index_used_again_has_another_key,
    r_key_08_windows_bound_with_the_same_requested_key needs [Window2],
    r_key_09_range_check_does_not_wrap,
    r_key_09_bind_range_check_does_not_wrap needs [Window1, Window2],
}

fn r_key_01_all_32_bits_are_compared<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for bit in 0..32 {
        let key = Key(target.rkey().0 ^ 1 << bit);
        p.refused_access(Write(target.remote_by(key, 0)), &[own.sge(0, 8)]);
        target.untouched();
        p.restate();
        let key = Key(own.lkey().0 ^ 1 << bit);
        p.fails_locally(LocProtErr, Write(target.remote(0)), &[own.sge_by(key, 0, 8)]);
        p.restate();
    }
    p.a.run(Write(target.remote(0)), &[own.sge(0, 8)]).ok();
    target.holds(0, &own.bytes(0, 8));
}

fn r_key_02_a_key_without_remote_rights<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, Rights::LOCAL_WRITE));
    for key in [target.rkey(), target.lkey()] {
        for op in [Write(target.remote_by(key, 0)), Read(target.remote_by(key, 0))] {
            p.refused_access(op, &[own.sge(0, 8)]);
            target.untouched();
            own.untouched();
            p.restate();
        }
    }
    // The lkey is valid.
    p.b.run(Write(own.remote(0)), &[target.sge(0, 8)]).ok();
    own.holds(0, &target.bytes(0, 8));
}

/// Keys of a few hundred objects of all kinds that the device offers.
fn many_keys<S: Subject>(p: &Pair<'_, S>) -> Vec<(&'static str, [Key; 2])> {
    let d = p.b.device();
    let mut keys = Vec::new();
    for _ in 0..100 {
        let mr = p.b.mr(64, ALL);
        keys.push(("memory region", [mr.lkey(), mr.rkey()]));
        for kind in [MwKind::Type1, MwKind::Type2] {
            let capability = match kind {
                MwKind::Type1 => Capability::Window1,
                MwKind::Type2 => Capability::Window2,
            };
            if device_offers(d, capability) {
                let mw = p.b.mw(kind);
                keys.push(("memory window", [mw.key; 2]));
            }
        }
        if device_offers(d, Capability::FastMr) {
            let fast = p.b.fast_mr(1);
            keys.push(("fast region", [fast.info.lkey.0, fast.info.rkey.0]));
        }
    }
    keys
}

fn r_key_03_index_zero_is_never_handed_out<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for (kind, keys) in many_keys(&p) {
        for key in keys {
            assert_ne!(key.index(), 0, "{kind} with key {key}");
        }
    }
}

fn r_key_03_key_zero_matches_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for key in [0, 1, 255] {
        p.refused_access(Read(target.remote_by(Key(key), 0)), &[own.sge(0, 8)]);
        p.restate();
        let sge = own.sge_by(Key(key), 0, 8);
        p.fails_locally(LocProtErr, Write(target.remote(0)), &[sge]);
        p.restate();
    }
    own.untouched();
    target.untouched();
}

fn r_key_04_one_key_names_one_object<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut seen: HashMap<u32, &str> = HashMap::new();
    for (kind, keys) in many_keys(&p) {
        assert_eq!(keys[0].index(), keys[1].index(), "lkey and rkey of one {kind}");
        if let Some(other) = seen.insert(keys[1].index(), kind) {
            panic!("a {kind} and a {other} share the index {:#x}", keys[1].index());
        }
    }
}

fn r_key_05_wrong_variant_is_unknown<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    // All the 255 others.
    for step in 1..=255u8 {
        let variant = target.rkey().variant().wrapping_add(step);
        let key = target.rkey().with_variant(variant);
        p.a.run(Write(target.remote_by(key, 0)), &[own.sge(0, 8)]).is(RemAccessErr);
        p.restate();
        let key = own.lkey().with_variant(own.lkey().variant().wrapping_add(step));
        p.a.run(Write(target.remote(0)), &[own.sge_by(key, 0, 8)]).is(LocProtErr);
        p.restate();
    }
    target.untouched();
}

fn r_key_05_wrong_variant_in_a_bind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let good = p.b.mw(kind);
        let mut stale = good;
        stale.key = stale.key.next();
        p.refused_name(stale.bind_to(&mr, 0, 64, Rights::REMOTE_READ));
        let mut wrong = mr.clone();
        wrong.info.lkey.0 = wrong.lkey().next();
        p.refused_name(good.bind_to(&wrong, 0, 64, Rights::REMOTE_READ));
        // Untouched by it: it can be bound.
        p.b.run(good.bind_to(&mr, 0, 64, Rights::REMOTE_READ), &[]).ok();
    }
}

fn r_key_05_wrong_variant_in_an_invalidation<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(1);
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    let failed = p.b.run(LocalInv(fast.key.next()), &[]);
    assert_ne!(failed.status, Success);
    p.restate();
    p.a.run(Write(fast.remote(0)), &[own.sge(0, 8)]).ok();
    mr.holds(0, &own.bytes(0, 8));
}

fn r_key_06_next_key<S: Subject>(s: &S) {
    for (key, next) in [
        (0x1234_56ff, 0x1234_5600),
        (0xffff_ffff, 0xffff_ff00),
        (0x1234_5600, 0x1234_5601),
        (0x0000_017f, 0x0000_0180),
    ] {
        assert_eq!(Key(key).next(), Key(next));
    }
    // A device's keys are of this form: 256 steps lead back.
    let key = Pair::rc(s).a.mr(PAGE, ALL).rkey();
    let round = (0..256).fold(key, |key, _| key.next());
    assert_eq!(round, key);
}

fn r_key_07_an_index_used_again_has_another_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, memory) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut last: HashMap<u32, [Key; 2]> = HashMap::new();
    let mut again = 0;
    for round in 0..20_000 {
        let mr = p.b.mr_over(p.b.pd, &memory.memory, 0, PAGE, ALL, None);
        if let Some(before) = last.insert(mr.rkey().index(), [mr.lkey(), mr.rkey()]) {
            again += 1;
            assert!(!before.contains(&mr.rkey()), "round {round}: the old key is valid again");
            assert!(!before.contains(&mr.lkey()), "round {round}: the old key is valid again");
            if again < 20 {
                p.a.run(Write(mr.remote_by(before[1], 0)), &[own.sge(0, 8)]).is(RemAccessErr);
                p.restate();
            }
        }
        p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
    }
    memory.untouched();
    // A device may have so many indices that none came again; then the key is dead all the same.
    let dead = *last.values().next().expect("a key");
    p.refused_access(Write(memory.remote_by(dead[1], 0)), &[own.sge(0, 8)]);
}

fn r_key_08_windows_bound_with_the_same_requested_key<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.max_send_wr = 64);
    let mr = p.b.mr(PAGE, BIND);
    // More than there are variants.
    let count = p.b.device().capabilities().max_mw.min(300);
    let requested = Key(0xabcd_ef17);
    let mut keys = HashSet::new();
    for _ in 0..count {
        let mw = p.b.mw(MwKind::Type2);
        let bind = mw.bind_as(requested, &mr, 0, 64, Rights::REMOTE_READ);
        p.b.run(bind, &[]).ok();
        let key = mw.key.with_variant(requested.variant());
        assert!(keys.insert(key), "key {key} came twice");
    }
    let own = p.a.mr(PAGE, ALL);
    for &key in keys.iter().take(50) {
        p.a.run(Read(mr.remote_by(key, 0)), &[own.sge(0, 8)]).ok();
        own.holds(0, &mr.bytes(0, 8));
    }
    // The requested upper bits name nothing of ours.
    if !keys.contains(&requested) {
        p.refused_access(Read(mr.remote_by(requested, 0)), &[own.sge(0, 8)]);
    }
}

fn r_key_09_range_check_does_not_wrap<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let own = p.a.mr(PAGE, ALL);
    // At the very top, at the bottom, in the middle.
    for iova in [u64::MAX - PAGE as u64 + 1, 0, 1 << 63] {
        let mr = p.b.mr_at(PAGE, ALL, iova);
        let at = |address| RemoteAddr { address: IoAddr(address), rkey: Rkey(mr.rkey()) };
        let last = iova + (PAGE as u64 - 4);
        for address in [last, iova.wrapping_sub(4), u64::MAX - 3, u64::MAX - 6, u64::MAX] {
            p.refused_access(Write(at(address)), &[own.sge(0, 8)]);
            p.restate();
            let sge =
                mkey_core::work::Sge { address: IoAddr(address), length: 8, lkey: mr.info.lkey };
            p.b.run(Write(own.remote(0)), &[sge]).is(LocProtErr);
            p.restate();
        }
        mr.untouched();
        p.a.run(Write(at(last - 4)), &[own.sge(0, 8)]).ok();
        mr.holds(PAGE - 8, &own.bytes(0, 8));
    }
}

fn r_key_09_bind_range_check_does_not_wrap<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let mr = p.b.mr(PAGE, BIND);
        let to_the_end = u64::MAX - mr.at(8).0;
        for length in [to_the_end, to_the_end + 1, to_the_end + 9, u64::MAX, u64::MAX - 7] {
            let mw = p.b.mw(kind);
            p.b.run(mw.bind_to(&mr, 8, length, Rights::REMOTE_WRITE), &[]).is(MwBindErr);
            p.restate();
        }
    }
}
