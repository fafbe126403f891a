//! R-FR: fast registration.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::objects::FastMr;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::rule_tests;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, MwKind};
use mkey_core::error::errno::{EBUSY, EINVAL};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_core::status::WcOpcode;
use mkey_core::status::WcStatus::{LocProtErr, LocQpOpErr, RetryExcErr, Success};
use mkey_core::work::SendOp::{LocalInv, Read, Send, SendInv, Write};
use mkey_core::work::{Payload, SendWr, Sge};

rule_tests! {
    r_fr_01_allocated_empty needs [FastMr],
    r_fr_01_number_of_entries_is_limited needs [FastMr],
    r_fr_06_registration_makes_it_valid needs [FastMr],
    r_fr_06_scattered_entries needs [FastMr],
    r_fr_06_bad_entries_are_refused needs [FastMr],
    r_fr_06_entries_hold_their_regions needs [FastMr],
    r_fr_07_valid_region_is_not_registered_again needs [FastMr],
    r_fr_08_region_of_another_domain_than_the_queue_pair needs [FastMr],
    r_fr_09_key_with_another_index needs [FastMr],
    r_fr_10_one_key_for_both_sides needs [FastMr],
    r_fr_11_no_inline_data needs [FastMr],
    r_fr_12_later_work_sees_the_registration needs [FastMr],
    r_fr_13_remote_change_needs_local_write needs [FastMr],
    r_fr_14_old_keys_are_dead_in_every_cycle needs [FastMr],
    r_fr_15_peer_invalidates_it needs [FastMr],
    r_fr_16_the_list_of_a_valid_region_stays needs [FastMr],
    r_fr_17_dereg_free_or_valid needs [FastMr],
}

/// A peer writes and reads `length` bytes by the key of `fast`, which begins at `iova`.
#[track_caller]
fn usable<S: Subject>(p: &Pair<'_, S>, fast: &FastMr, iova: u64, mr: &Mr, offset: usize) {
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Write(fast.remote(iova)), &[own.sge(0, 32)]).ok();
    mr.holds(offset, &own.bytes(0, 32));
    p.a.run(Read(fast.remote(iova)), &[own.sge(64, 32)]).ok();
    own.holds(64, &mr.bytes(offset, 32));
}

/// A peer reaches nothing by `key`.
#[track_caller]
fn dead<S: Subject>(p: &Pair<'_, S>, mr: &Mr, iova: u64, key: Key) {
    let own = p.a.mr(PAGE, ALL);
    let remote = mkey_core::work::RemoteAddr { address: IoAddr(iova), rkey: Rkey(key) };
    for op in [Write(remote), Read(remote)] {
        p.refused_access(op, &[own.sge(0, 32)]);
        own.untouched();
        mr.untouched();
        p.restate();
    }
}

/// REG_MR at `b` fails as an operation error, and the queue pair with it.
#[track_caller]
fn refused<S: Subject>(p: &Pair<'_, S>, fast: &FastMr, key: Key, rights: Rights, list: &[Sge]) {
    p.fails_at_b(LocQpOpErr, fast.reg_as(key, 0, rights, list));
    p.restate();
}

fn r_fr_01_allocated_empty<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, fast) = (p.b.mr(PAGE, ALL), p.b.fast_mr(4));
    for key in [fast.info.rkey.0, fast.info.lkey.0] {
        dead(&p, &mr, 0, key);
        dead(&p, &mr, mr.base, key);
        let target = p.a.mr(PAGE, ALL);
        p.b.run(Write(target.remote(0)), &[mr.sge_by(key, 0, 8)]).is(LocProtErr);
        p.restate();
        target.untouched();
    }
}

fn r_fr_01_number_of_entries_is_limited<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let most = p.b.device().capabilities().max_fast_mr_entries;
    for count in [0, most.saturating_add(1), u32::MAX] {
        if count > 0 && count <= most {
            continue;
        }
        let refused = p.b.device().alloc_fast_mr(p.b.pd, count).map_err(|e| e.errno());
        assert_eq!(refused, Err(EINVAL), "{count} entries");
    }
    p.b.fast_mr(most);
}

fn r_fr_06_registration_makes_it_valid<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(4);
    for iova in [0x1234_5678_9000, 0, u64::MAX - PAGE as u64] {
        let done = p.b.reg_fast(&mut fast, iova, ALL, &[mr.sge(100, 200)]);
        assert_eq!(done.opcode, WcOpcode::RegMr);
        usable(&p, &fast, iova, &mr, 100);
        // Its bounds count, not those of the region behind.
        let own = p.a.mr(PAGE, ALL);
        for address in [iova.wrapping_sub(1), iova + 200 - 7] {
            p.refused_access(Write(fast.remote(address)), &[own.sge(0, 8)]);
            p.restate();
        }
        p.a.run(Write(fast.remote(iova + 192)), &[own.sge(0, 8)]).ok();
        mr.holds(292, &own.bytes(0, 8));
        p.b.invalidate(fast.key).ok();
        fast.key = fast.key.next();
    }
    // Its rights count, too.
    p.b.reg_fast(&mut fast, 0, Rights::REMOTE_READ, &[mr.sge(100, 200)]);
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Read(fast.remote(0)), &[own.sge(0, 8)]).ok();
    p.refused_access(Write(fast.remote(0)), &[own.sge(0, 8)]);
    mr.untouched();
}

fn r_fr_06_scattered_entries<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, first, second) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(4);
    // Any start, any length, any order, two regions.
    let list = [second.sge(1, 3), first.sge(4000, 96), first.sge(0, 1), second.sge(700, 400)];
    let iova = 0x7700_0000_0003;
    p.b.reg_fast(&mut fast, iova, ALL, &list);
    p.a.run(Write(fast.remote(iova)), &[own.sge(0, 500)]).ok();
    let sent = own.bytes(0, 500);
    first.memory.expect(first.offset + 4000, &sent[3..99]);
    first.holds(0, &sent[99..100]);
    second.memory.expect(second.offset + 1, &sent[..3]);
    second.holds(700, &sent[100..500]);
    // From the middle of one entry to the middle of another.
    p.a.run(Read(fast.remote(iova + 2)), &[own.sge(1000, 300)]).ok();
    own.holds(1000, &sent[2..302]);
    p.refused_access(Write(fast.remote(iova + 1)), &[own.sge(0, 500)]);
    first.untouched();
    second.untouched();
}

fn r_fr_06_bad_entries_are_refused<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(1000, ALL);
    let mut fast = p.b.fast_mr(2);
    let read_only = p.b.mr(PAGE, Rights::REMOTE_READ);
    let foreign = p.b.mr_in(p.b.new_pd(), PAGE, ALL, None);
    let gone = p.b.mr(PAGE, ALL);
    p.b.device().dereg_mr(gone.info.handle).expect("dereg_mr");
    let mut other = p.b.fast_mr(2);
    p.b.reg_fast(&mut other, 0, ALL, &[mr.sge(0, 64)]);
    let fine = mr.sge(0, 8);
    let lists: Vec<Vec<Sge>> = vec![
        vec![],
        vec![fine, fine, fine],
        vec![gone.sge(0, 8)],
        vec![fine, mr.sge_by(mr.lkey().next(), 0, 8)],
        vec![mr.sge_by(mr.rkey(), 0, 8)],
        vec![mr.sge_by(Key(0), 0, 8)],
        vec![fine, mr.sge(993, 8)],
        vec![mr.sge(-1, 8)],
        vec![Sge { address: IoAddr(u64::MAX - 3), length: 8, lkey: mr.info.lkey }],
        vec![foreign.sge(0, 8)],
        vec![fine, read_only.sge(0, 8)],
        vec![Sge { lkey: Lkey(fast.key), ..fine }],
        // Lists name plain regions: no lists of lists.
        vec![Sge { address: IoAddr(0), length: 8, lkey: Lkey(other.key) }],
    ];
    for list in lists {
        let op = fast.reg_as(fast.key, 0, ALL, &list);
        match p.b.post_errno(op, &[]) {
            Err(errno) => assert_eq!(errno, EINVAL, "{list:?}"),
            Ok(()) => {
                let failed = p.b.sent();
                assert_eq!(failed.status, LocQpOpErr, "{list:?}");
                p.restate();
            }
        }
        dead(&p, &mr, 0, fast.key);
    }
    // Nothing is held by what failed, and the region is as free as before.
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    usable(&p, &fast, 0, &mr, 0);
    p.b.device().dereg_mr(read_only.info.handle).expect("dereg_mr");
}

fn r_fr_06_entries_hold_their_regions<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, other) = (p.b.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(4);
    let dereg = |mr: &Mr| p.b.device().dereg_mr(mr.info.handle).map_err(|e| e.errno());
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 32), other.sge(0, 32), mr.sge(32, 32)]);
    assert_eq!((dereg(&mr), dereg(&other)), (Err(EBUSY), Err(EBUSY)));
    usable(&p, &fast, 0, &mr, 0);
    p.b.invalidate(fast.key).ok();
    assert_eq!((dereg(&mr), dereg(&other)), (Ok(()), Ok(())));
}

fn r_fr_07_valid_region_is_not_registered_again<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, next) = (p.b.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(4);
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    for key in [fast.key, fast.key.next()] {
        refused(&p, &fast, key, ALL, &[next.sge(0, 64)]);
        usable(&p, &fast, 0, &mr, 0);
        next.untouched();
    }
    dead(&p, &mr, 0, fast.key.next());
}

fn r_fr_08_region_of_another_domain_than_the_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.apart();
    let (mr, foreign) = (p.b.mr(PAGE, ALL), other.b.mr(PAGE, ALL));
    let mut fast = other.b.fast_mr(4);
    for list in [[mr.sge(0, 64)], [foreign.sge(0, 64)]] {
        refused(&p, &fast, fast.key, ALL, &list);
    }
    other.b.reg_fast(&mut fast, 0, ALL, &[foreign.sge(0, 64)]);
    usable(&other, &fast, 0, &foreign, 0);
}

fn r_fr_09_key_with_another_index<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let (mut fast, plain) = (p.b.fast_mr(4), p.b.mr(PAGE, ALL));
    for key in [Key(fast.key.0 ^ 0x8000_0000), Key(fast.key.variant().into()), plain.rkey()] {
        refused(&p, &fast, key, ALL, &[mr.sge(0, 64)]);
    }
    let window = p.b.device().capabilities().window1.then(|| p.b.mw(MwKind::Type1).key);
    if let Some(key) = window {
        refused(&p, &fast, key, ALL, &[mr.sge(0, 64)]);
    }
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    usable(&p, &fast, 0, &mr, 0);
}

fn r_fr_10_one_key_for_both_sides<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, target) = (p.b.mr(PAGE, ALL), p.a.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(4);
    // The low byte is the caller's; it need not be the next one.
    for step in [1, 77, 200] {
        fast.key = fast.key.with_variant(fast.key.variant().wrapping_add(step));
        p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
        usable(&p, &fast, 0, &mr, 0);
        p.b.run(Write(target.remote(0)), &[fast.sge(8, 16)]).ok();
        target.holds(0, &mr.bytes(8, 16));
        p.b.invalidate(fast.key).ok();
    }
}

fn r_fr_11_no_inline_data<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(4);
    let list = [mr.sge(0, 64)];
    let op = fast.reg_as(fast.key, 0, ALL, &list);
    let inline = SendWr { payload: Payload::Inline(b"data"), ..p.b.wr(1, op, &[]) };
    let refused = p.b.chain(&[inline]).map_err(|e| (e.posted, e.error.errno()));
    assert_eq!(refused, Err((0, EINVAL)));
    p.b.quiet();
    p.b.reg_fast(&mut fast, 0, ALL, &list);
}

fn r_fr_12_later_work_sees_the_registration<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, target) = (p.b.mr(PAGE, ALL), p.a.mr(PAGE, ALL));
    let fast = p.b.fast_mr(4);
    let list = [mr.sge(0, 64)];
    let reg = fast.reg_as(fast.key, 0, ALL, &list);
    p.a.recv(&[target.sge(100, 64)]);
    p.b.chain(&[
        p.b.wr(1, reg, &[]).unsignaled(),
        p.b.wr(2, Write(target.remote(0)), &[fast.sge(0, 64)]).unsignaled(),
        p.b.wr(3, Send, &[fast.sge(0, 64)]),
    ])
    .expect("post_send");
    assert_eq!(p.b.sent().ok().wr_id, 3);
    p.a.received().ok();
    target.memory.expect(target.offset, &mr.bytes(0, 64));
    target.holds(100, &mr.bytes(0, 64));
    // The peer that has received it may use the key.
    usable(&p, &fast, 0, &mr, 0);
}

fn r_fr_13_remote_change_needs_local_write<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(4);
    for rights in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC | Rights::REMOTE_READ] {
        refused(&p, &fast, fast.key, rights, &[mr.sge(0, 64)]);
    }
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    usable(&p, &fast, 0, &mr, 0);
}

fn r_fr_14_old_keys_are_dead_in_every_cycle<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(4);
    let mut old = vec![fast.info.rkey.0];
    for _ in 0..6 {
        p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
        usable(&p, &fast, 0, &mr, 0);
        for &key in &old {
            dead(&p, &mr, 0, key);
        }
        p.b.invalidate(fast.key).ok();
        dead(&p, &mr, 0, fast.key);
        old.push(fast.key);
        fast.key = fast.key.next();
    }
}

fn r_fr_15_peer_invalidates_it<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(4);
    for _ in 0..3 {
        p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
        usable(&p, &fast, 0, &mr, 0);
        p.b.recv(&[]);
        p.a.run(SendInv(Rkey(fast.key)), &[]).ok();
        assert_eq!(p.b.received().ok().invalidated, Some(Rkey(fast.key)));
        dead(&p, &mr, 0, fast.key);
        fast.key = fast.key.next();
    }
    // A key that is not this region's invalidates nothing.
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    p.b.recv(&[]);
    p.a.run(SendInv(Rkey(fast.key.next())), &[]).is(RetryExcErr);
    assert_ne!(p.b.received().status, Success);
    p.restate();
    usable(&p, &fast, 0, &mr, 0);
}

fn r_fr_16_the_list_of_a_valid_region_stays<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, next) = (p.b.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.b.fast_mr(1);
    // The list is taken at posting: what the caller does with it later changes nothing.
    let mut list = [mr.sge(0, 64)];
    p.b.reg_fast(&mut fast, 0, ALL, &list);
    list[0] = next.sge(0, 64);
    usable(&p, &fast, 0, &mr, 0);
    // And there is no way to write another one while it is valid.
    refused(&p, &fast, fast.key, ALL, &list);
    usable(&p, &fast, 0, &mr, 0);
    next.untouched();
}

fn r_fr_17_dereg_free_or_valid<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL | BIND);
    let dereg = |fast: &FastMr| p.b.device().dereg_mr(fast.info.handle).map_err(|e| e.errno());
    assert_eq!(dereg(&p.b.fast_mr(4)), Ok(()), "never registered");
    let mut fast = p.b.fast_mr(4);
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    assert_eq!(dereg(&fast), Ok(()), "valid");
    dead(&p, &mr, 0, fast.key);
    let mut fast = p.b.fast_mr(4);
    p.b.reg_fast(&mut fast, 0, ALL, &[mr.sge(0, 64)]);
    p.b.run(LocalInv(fast.key), &[]).ok();
    assert_eq!(dereg(&fast), Ok(()), "free again");
    p.b.device().dereg_mr(mr.info.handle).expect("nothing holds the region behind");
}
