//! R-LOC: local protection, on both sides.

use crate::expect::Expect;
use crate::fixture::{ALL, Config, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{device_offers, rule_tests};
use mkey_core::address::IoAddr;
use mkey_core::device::{Capability, Device};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{
    LocLenErr, LocProtErr, RemAccessErr, RemInvReqErr, RemOpErr, Success, WrFlushErr,
};
use mkey_core::work::SendOp::{CompareSwap, FetchAdd, Read, Send, Write};
use mkey_core::work::{Payload, RemoteAddr, SendOp, SendWr, Sge};

rule_tests! {
    r_loc_01_bad_lkey_of_a_source,
    r_loc_01_bad_lkey_of_a_datagram,
    r_loc_02_source_exceeds_its_region,
    r_loc_03_lkey_of_another_domain,
    r_loc_04_bad_landing_of_a_read,
    r_loc_04_bad_landing_of_an_atomic needs [Atomics],
    r_loc_05_source_needs_no_right,
    r_loc_05_datagram_source_needs_no_right,
    r_loc_06_receive_buffer_without_local_write,
    r_loc_06_receive_buffer_with_bad_lkey,
    r_loc_06_receive_buffer_of_another_domain,
    r_loc_06_receive_buffer_outside_its_region,
    r_loc_06_shared_receives_are_of_their_queues_domain needs [Srq],
    r_loc_07_receive_entry_longer_than_its_region,
    r_loc_08_receive_too_short,
    r_loc_09_zero_length_looks_at_no_region,
    r_loc_09_empty_list,
    r_loc_10_inline_looks_at_no_lkey,
    r_loc_10_inline_datagram,
    r_loc_11_write_with_both_keys_bad,
    r_loc_12_read_with_both_keys_bad,
    r_loc_12_atomic_with_both_keys_bad needs [Atomics],
    r_loc_13_an_error_always_completes,
    r_loc_14_later_work_is_flushed_in_order,
    r_loc_15_one_bad_entry_of_many,
    r_loc_15_entry_that_wraps,
}

/// Keys that name nothing, or not this.
fn bad_keys(mr: &Mr) -> [Key; 5] {
    [mr.lkey().next(), Key(mr.lkey().0 ^ 0x8000_0000), Key(0), Key(255), Key(u32::MAX)]
}

fn r_loc_01_bad_lkey_of_a_source<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let dead = p.a.mr(PAGE, ALL);
    p.a.device().dereg_mr(dead.info.handle).expect("dereg_mr");
    let mut bad: Vec<Sge> = bad_keys(&own).map(|key| own.sge_by(key, 0, 64)).to_vec();
    bad.push(dead.sge(0, 64));
    for sge in bad {
        for op in [Send, Write(target.remote(0))] {
            p.fails_locally(LocProtErr, op, &[sge]);
            p.restate();
        }
    }
    target.untouched();
    p.works();
}

fn r_loc_01_bad_lkey_of_a_datagram<S: Subject>(s: &S) {
    let p = Pair::ud(s);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.b.recv(&[sink.sge(0, 200)]);
    p.a.run(Send, &[own.sge_by(own.lkey().next(), 0, 64)]).is(LocProtErr);
    p.a.station.wait_for("SQE or ERR", || {
        matches!(p.a.state(), QpState::Sqe | QpState::Err).then_some(())
    });
    p.b.quiet();
    assert_eq!(p.b.state(), QpState::Rts);
    sink.untouched();
}

fn r_loc_02_source_exceeds_its_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(1000, ALL), p.b.mr(PAGE, ALL));
    for sge in [own.sge(-1, 64), own.sge(937, 64), own.sge(1000, 1), own.sge(0, 1001)] {
        for op in [Send, Write(target.remote(0))] {
            p.fails_locally(LocProtErr, op, &[sge]);
            p.restate();
        }
    }
    target.untouched();
    // Negative control: up to the last byte.
    p.a.run(Write(target.remote(0)), &[own.sge(0, 1000)]).ok();
    target.holds(0, &own.bytes(0, 1000));
}

fn r_loc_03_lkey_of_another_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (foreign, target) = (p.a.mr_in(p.a.new_pd(), PAGE, ALL, None), p.b.mr(PAGE, ALL));
    for op in [Send, Write(target.remote(0)), Read(target.remote(0))] {
        p.fails_locally(LocProtErr, op, &[foreign.sge(0, 64)]);
        foreign.untouched();
        target.untouched();
        p.restate();
    }
}

/// Entries that are no landing place, each with the region whose bytes have to stay.
fn bad_landings<S: Subject>(p: &Pair<'_, S>, length: u32) -> Vec<(Sge, Mr)> {
    let good = p.a.mr(PAGE, ALL);
    let read_only = p.a.mr(PAGE, Rights::REMOTE_READ);
    let foreign = p.a.mr_in(p.a.new_pd(), PAGE, ALL, None);
    let past = good.sge(PAGE as i64 - 4, length);
    let before = good.sge(-1, length);
    vec![
        (good.sge_by(good.lkey().next(), 0, length), good.clone()),
        (good.sge_by(Key(0), 0, length), good.clone()),
        (past, good.clone()),
        (before, good),
        (read_only.sge(0, length), read_only),
        (foreign.sge(0, length), foreign),
    ]
}

fn r_loc_04_bad_landing_of_a_read<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    for (sge, mr) in bad_landings(&p, 64) {
        p.fails_locally(LocProtErr, Read(target.remote(0)), &[sge]);
        mr.untouched();
        p.restate();
    }
    target.untouched();
    p.works();
}

fn r_loc_04_bad_landing_of_an_atomic<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    for (sge, mr) in bad_landings(&p, 8) {
        let before = target.word(0);
        p.fails_locally(LocProtErr, FetchAdd { remote: target.remote(0), add: 5 }, &[sge]);
        mr.untouched();
        // The peer has done it: its side is not undone.
        target.holds(0, &before.wrapping_add(5).to_ne_bytes());
        p.restate();
        let op = CompareSwap { remote: target.remote(0), compare: target.word(0), swap: 77 };
        p.fails_locally(LocProtErr, op, &[sge]);
        mr.untouched();
        target.holds(0, &77u64.to_ne_bytes());
        p.restate();
    }
}

fn r_loc_05_source_needs_no_right<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s)] {
        let (own, target) = (p.a.mr(PAGE, Rights::empty()), p.b.mr(PAGE, ALL));
        p.b.recv(&[target.sge(0, 64)]);
        p.a.run(Send, &[own.sge(0, 64)]).ok();
        p.b.received().ok();
        target.holds(0, &own.bytes(0, 64));
        p.a.run(Write(target.remote(64)), &[own.sge(64, 64)]).ok();
        p.b.lands(&target, 64, &own.bytes(64, 64));
    }
}

fn r_loc_05_datagram_source_needs_no_right<S: Subject>(s: &S) {
    let p = Pair::ud(s);
    let (own, sink) = (p.a.mr(PAGE, Rights::empty()), p.b.mr(PAGE, Rights::LOCAL_WRITE));
    p.b.recv(&[sink.sge(0, 104)]);
    p.a.run(Send, &[own.sge(0, 64)]).ok();
    let received = p.b.received().ok();
    assert!(received.has_grh);
    assert_eq!((received.byte_len, received.src_qp), (104, p.a.qp.qp_num));
    assert_eq!(sink.bytes(40, 64), own.bytes(0, 64));
}

/// A SEND meets a receive over `sge`: the receive has a protection error and nothing is written.
#[track_caller]
fn no_receive_buffer<S: Subject>(p: &Pair<'_, S>, sge: Sge, mr: &Mr) {
    let own = p.a.mr(PAGE, ALL);
    let recv = p.b.recv(&[sge]);
    p.refused_receive(recv, LocProtErr, Send, &[own.sge(0, 64)]);
    mr.untouched();
    p.restate();
}

fn r_loc_06_receive_buffer_without_local_write<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for rights in [Rights::empty(), Rights::REMOTE_READ] {
        let sink = p.b.mr(PAGE, rights);
        no_receive_buffer(&p, sink.sge(0, 64), &sink);
    }
    p.works();
}

fn r_loc_06_receive_buffer_with_bad_lkey<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let sink = p.b.mr(PAGE, ALL);
    for key in bad_keys(&sink) {
        no_receive_buffer(&p, sink.sge_by(key, 0, 64), &sink);
    }
    p.works();
}

fn r_loc_06_receive_buffer_of_another_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let sink = p.b.mr_in(p.b.new_pd(), PAGE, ALL, None);
    no_receive_buffer(&p, sink.sge(0, 64), &sink);
    p.works();
}

fn r_loc_06_receive_buffer_outside_its_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let sink = p.b.mr(1000, ALL);
    for sge in [sink.sge(-1, 64), sink.sge(937, 64), sink.sge(1000, 64), sink.sge(-4096, 64)] {
        no_receive_buffer(&p, sge, &sink);
    }
    p.works();
}

fn r_loc_06_shared_receives_are_of_their_queues_domain<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| (c.srq, c.srq_apart) = (true, true));
    let Some(shared) = &p.b.shared else { unreachable!("asked for") };
    let (own, of_pair) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let of_queue = p.b.mr_in(shared.pd, PAGE, ALL, None);
    p.b.recv(&[of_queue.sge(0, 64)]);
    p.a.run(Send, &[own.sge(0, 64)]).ok();
    p.b.received().ok();
    of_queue.holds(0, &own.bytes(0, 64));
    no_receive_buffer(&p, of_pair.sge(0, 64), &of_pair);
}

fn r_loc_07_receive_entry_longer_than_its_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(1000, ALL));
    p.b.recv(&[sink.sge(900, 500)]);
    // The payload fits the region, the entry does not: both answers are allowed.
    let (sent, received) = (p.a.run(Send, &[own.sge(0, 64)]), p.b.received());
    if sent.status == Success {
        received.ok();
        sink.holds(900, &own.bytes(0, 64));
    } else {
        sent.is(RemOpErr);
        received.is(LocProtErr);
        sink.untouched();
    }
    p.restate();
    // A payload that does not fit may never be placed past the region.
    let recv = p.b.recv(&[sink.sge(900, 500)]);
    p.refused_receive(recv, LocProtErr, Send, &[own.sge(0, 101)]);
    let placed = sink.bytes(900, 100);
    sink.holds(900, &placed);
}

fn r_loc_08_receive_too_short<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, sink) = (p.a.mr(2 * PAGE, ALL), p.b.mr(2 * PAGE, ALL));
    for (room, length) in [(0, 1), (63, 64), (PAGE as u32, PAGE as u32 + 1)] {
        let recv = p.b.recv(&[sink.sge(0, room / 2), sink.sge(100, room - room / 2)]);
        p.a.run(Send, &[own.sge(0, length)]).is(RemInvReqErr);
        assert_eq!(p.b.received().is(LocLenErr).wr_id, recv);
        p.are(QpState::Err, QpState::Err);
        // What was placed is not defined within the receive's entries, but nowhere else.
        let placed = sink.bytes(0, 100 + PAGE);
        sink.holds(0, &placed);
        p.restate();
    }
    p.works();
}

fn r_loc_09_zero_length_looks_at_no_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let nothing = Sge { address: IoAddr(u64::MAX), length: 0, lkey: Lkey(Key(0xdead_beef)) };
    p.b.recv(&[nothing, sink.sge(0, 64)]);
    p.a.run(Send, &[nothing, own.sge(0, 64), nothing]).ok();
    assert_eq!(p.b.received().ok().byte_len, 64);
    sink.holds(0, &own.bytes(0, 64));
    p.a.run(Write(sink.remote(64)), &[own.sge(64, 64), nothing]).ok();
    sink.holds(64, &own.bytes(64, 64));
    p.a.run(Read(sink.remote(0)), &[nothing, own.sge(200, 64)]).ok();
    own.holds(200, &sink.bytes(0, 64));
    p.b.recv(&[nothing]);
    p.a.run(Send, &[nothing]).ok();
    assert_eq!(p.b.received().ok().byte_len, 0);
}

fn r_loc_09_empty_list<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let sink = p.b.mr(PAGE, ALL);
        let grh = if p.b.config.kind == QpKind::Ud { 40 } else { 0 };
        for room in [0, 64] {
            p.b.recv(&[sink.sge(0, room + grh)]);
            p.a.run(Send, &[]).ok();
            assert_eq!(p.b.received().ok().byte_len, grh);
        }
    }
}

fn r_loc_10_inline_looks_at_no_lkey<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s)] {
        let sink = p.b.mr(PAGE, ALL);
        p.b.recv(&[sink.sge(0, 64)]);
        let mut bytes = *b"inline bytes of a message";
        let wr = SendWr { payload: Payload::Inline(&bytes), ..p.a.wr(1, Send, &[]) };
        p.a.chain(&[wr]).expect("post_send");
        // The caller's bytes are its own again as soon as they are posted.
        bytes.fill(0);
        p.a.sent().ok();
        p.b.received().ok();
        sink.holds(0, b"inline bytes of a message");
        p.a.run_inline(Write(sink.remote(100)), b"and of a write").ok();
        p.b.lands(&sink, 100, b"and of a write");
    }
}

fn r_loc_10_inline_datagram<S: Subject>(s: &S) {
    let p = Pair::ud(s);
    let sink = p.b.mr(PAGE, ALL);
    p.b.recv(&[sink.sge(0, 100)]);
    p.a.run_inline(Send, b"inline bytes of a datagram").ok();
    assert_eq!(p.b.received().ok().byte_len, 40 + 26);
    assert_eq!(sink.bytes(40, 26), b"inline bytes of a datagram");
}

fn r_loc_11_write_with_both_keys_bad<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let remote = target.remote_by(target.rkey().next(), 0);
    p.fails_locally(LocProtErr, Write(remote), &[own.sge_by(own.lkey().next(), 0, 64)]);
    target.untouched();
}

fn both_bad<S: Subject>(s: &S, op: impl Fn(RemoteAddr) -> SendOp<'static>) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let remote = target.remote_by(target.rkey().next(), 0);
    let failed = p.refused_access(op(remote), &[own.sge_by(own.lkey().next(), 0, 8)]);
    assert_eq!(failed.status, RemAccessErr);
    own.untouched();
    target.untouched();
}

fn r_loc_12_read_with_both_keys_bad<S: Subject>(s: &S) {
    both_bad(s, Read);
}

fn r_loc_12_atomic_with_both_keys_bad<S: Subject>(s: &S) {
    both_bad(s, |remote| FetchAdd { remote, add: 1 });
    both_bad(s, |remote| CompareSwap { remote, compare: 0, swap: 1 });
}

fn r_loc_13_an_error_always_completes<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad_local = own.sge_by(own.lkey().next(), 0, 8);
    let bad_remote = RemoteAddr { rkey: Rkey(target.rkey().next()), ..target.remote(0) };
    let mut cases = vec![
        (Send, bad_local, LocProtErr),
        (Write(target.remote(0)), bad_local, LocProtErr),
        (Read(target.remote(0)), bad_local, LocProtErr),
        (Write(bad_remote), own.sge(0, 8), RemAccessErr),
        (Read(bad_remote), own.sge(0, 8), RemAccessErr),
    ];
    if device_offers(p.b.device(), Capability::Atomics) {
        let op = FetchAdd { remote: bad_remote, add: 1 };
        cases.push((op, own.sge(0, 8), RemAccessErr));
    }
    for (op, sge, status) in cases {
        // A good one before it, unsignaled, stays silent.
        p.a.post_unsignaled(Write(target.remote(64)), &[own.sge(0, 8)]);
        let wr_id = p.a.post_unsignaled(op, &[sge]);
        let failed = p.a.sent().is(status);
        assert_eq!((failed.wr_id, failed.qp_num), (wr_id, p.a.qp.qp_num));
        p.a.quiet();
        p.restate();
    }
}

fn r_loc_14_later_work_is_flushed_in_order<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad = [own.sge_by(own.lkey().next(), 0, 8)];
    let good = [own.sge(0, 8)];
    let ids: Vec<u64> = (0..6).map(|_| p.a.wr_id()).collect();
    p.a.chain(&[
        p.a.wr(ids[0], Write(target.remote(0)), &good),
        p.a.wr(ids[1], Write(target.remote(8)), &bad),
        p.a.wr(ids[2], Write(target.remote(16)), &good).unsignaled(),
        p.a.wr(ids[3], Read(target.remote(0)), &good),
        p.a.wr(ids[4], Send, &good),
        p.a.wr(ids[5], Write(target.remote(24)), &good),
    ])
    .expect("post_send");
    for (id, status) in
        ids.iter().zip([Success, LocProtErr, WrFlushErr, WrFlushErr, WrFlushErr, WrFlushErr])
    {
        assert_eq!(p.a.sent().is(status).wr_id, *id);
    }
    target.holds(0, &own.bytes(0, 8));
    own.untouched();
    p.are(QpState::Err, QpState::Rts);
    // Posted to a queue pair in ERR: flushed as well.
    p.a.run(Write(target.remote(0)), &good).is(WrFlushErr);
}

fn r_loc_15_one_bad_entry_of_many<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad = own.sge_by(own.lkey().next(), 0, 8);
    for sges in [[bad, own.sge(0, 8), own.sge(8, 8)], [own.sge(0, 8), own.sge(8, 8), bad]] {
        p.fails_locally(LocProtErr, Write(target.remote(0)), &sges);
        target.untouched();
        p.restate();
        p.fails_locally(LocProtErr, Send, &sges);
        p.restate();
    }
    p.works();
}

fn r_loc_15_entry_that_wraps<S: Subject>(s: &S) {
    let p = Pair::new(s, &Config::new(QpKind::Rc));
    let target = p.b.mr(PAGE, ALL);
    let high = p.a.mr_at(PAGE, ALL, u64::MAX - PAGE as u64 + 1);
    for (offset, length) in [(PAGE as i64 - 4, 8), (PAGE as i64 - 1, 2)] {
        p.fails_locally(LocProtErr, Write(target.remote(0)), &[high.sge(offset, length)]);
        p.restate();
    }
    // A longer message than the target: the peer may have seen of it before it fails here.
    let long = p.a.run(Write(target.remote(0)), &[high.sge(8, 1 << 30)]);
    long.one_of(&[LocProtErr, RemAccessErr]);
    p.restate();
    target.untouched();
    p.a.run(Write(target.remote(0)), &[high.sge(PAGE as i64 - 8, 8)]).ok();
    target.holds(0, &high.bytes(PAGE - 8, 8));
}
