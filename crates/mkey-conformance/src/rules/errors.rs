//! R-ERR: statuses, opcodes, asynchronous events, recovery.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::registry::{device_offers, rule_tests};
use mkey_core::address::HostAddr;
use mkey_core::device::{
    AhHandle, Capability, ChannelHandle, CqHandle, Device, MrChange, MrHandle, MrSpec, MwHandle,
    MwKind, PdHandle, QpHandle, SrqHandle,
};
use mkey_core::error::Result;
use mkey_core::error::errno::{EINVAL, ENOENT};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{
    LocAccessErr, LocProtErr, RemAccessErr, RemInvReqErr, WrFlushErr,
};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::SendOp::{CompareSwap, FetchAdd, Read, Send, Write, WriteImm};
use std::time::Duration;

rule_tests! {
    r_err_01_status_numbers,
    r_err_02_write_violation_is_an_event,
    r_err_02_read_violation_is_an_event,
    r_err_02_atomic_violation_is_an_event needs [Atomics],
    r_err_03_violation_told_by_a_receive_is_no_event,
    r_err_05_misaligned_atomic_is_an_event needs [Atomics],
    r_err_06_requester_gets_no_event,
    r_err_07_completion_opcodes,
    r_err_07_memory_management_opcodes needs [Window1, Window2, FastMr],
    r_err_08_recovery,
    r_err_08_regions_and_windows_outlive_an_error needs [Window1],
    r_err_09_send_queue_drained,
    r_err_10_unknown_handles,
    r_err_11_err_is_not_reached_from_reset,
}

fn r_err_01_status_numbers<S: Subject>(s: &S) {
    use WcStatus::*;
    let numbers = [
        (Success, 0),
        (LocLenErr, 1),
        (LocQpOpErr, 2),
        (LocProtErr, 4),
        (WrFlushErr, 5),
        (MwBindErr, 6),
        (BadRespErr, 7),
        (LocAccessErr, 8),
        (RemInvReqErr, 9),
        (RemAccessErr, 10),
        (RemOpErr, 11),
        (RetryExcErr, 12),
        (RnrRetryExcErr, 13),
    ];
    for (status, number) in numbers {
        assert_eq!(status as u32, number);
        assert_eq!(WcStatus::from_u32(number), Some(status));
    }
    // Programs match these words.
    assert_eq!(RemAccessErr.to_string(), "remote access error");
    assert_eq!(RemOpErr.to_string(), "remote operation error");
    // And a device answers with them.
    let p = Pair::rc(s);
    let own = p.a.mr(PAGE, ALL);
    let target = p.b.mr(PAGE, Rights::empty());
    let failed = p.a.run(Write(target.remote(0)), &[own.sge(0, 8)]);
    assert_eq!(failed.status as u32, 10);
}

/// A key violation by `op` is an event for exactly this queue pair.
#[track_caller]
fn violation_is_an_event<S: Subject>(
    s: &S,
    op: impl Fn(mkey_core::work::RemoteAddr) -> mkey_core::work::SendOp<'static>,
) {
    let p = Pair::rc(s);
    let bystander = p.beside();
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    assert_eq!(p.b.events(), []);
    p.a.run(op(target.remote_by(target.rkey().next(), 0)), &[own.sge(0, 8)]).is(RemAccessErr);
    p.b.event(AsyncEvent::QpAccessErr);
    p.b.quiet();
    assert_eq!(p.b.events(), [AsyncEvent::QpAccessErr(p.b.qp.handle)], "once");
    p.b.is_in(QpState::Err);
    assert_eq!(p.a.events(), []);
    assert_eq!((bystander.a.events(), bystander.b.events()), (vec![], vec![]));
    bystander.works();
    target.untouched();
}

fn r_err_02_write_violation_is_an_event<S: Subject>(s: &S) {
    violation_is_an_event(s, Write);
}

fn r_err_02_read_violation_is_an_event<S: Subject>(s: &S) {
    violation_is_an_event(s, Read);
}

fn r_err_02_atomic_violation_is_an_event<S: Subject>(s: &S) {
    violation_is_an_event(s, |remote| FetchAdd { remote, add: 1 });
    violation_is_an_event(s, |remote| CompareSwap { remote, compare: 0, swap: 1 });
}

fn r_err_03_violation_told_by_a_receive_is_no_event<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(1000, ALL));
    let (first, second) = (p.b.recv(&[]), p.b.recv(&[]));
    p.a.run(WriteImm(target.remote(993), 7), &[own.sge(0, 8)]).is(RemAccessErr);
    let received = p.b.received();
    assert_eq!(received.wr_id, first);
    received.one_of(&[LocAccessErr, LocProtErr]);
    assert_eq!(p.b.received().is(WrFlushErr).wr_id, second);
    p.b.quiet();
    p.b.is_in(QpState::Err);
    assert_eq!(p.b.events(), []);
    target.untouched();
}

fn r_err_05_misaligned_atomic_is_an_event<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.a.run(FetchAdd { remote: target.remote(4), add: 1 }, &[own.sge(0, 8)]).is(RemInvReqErr);
    p.b.event(AsyncEvent::QpAccessErr);
    assert_eq!(p.a.events(), []);
}

fn r_err_06_requester_gets_no_event<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad = target.remote_by(target.rkey().next(), 0);
    for (op, sge, status) in [
        (Write(bad), own.sge(0, 8), RemAccessErr),
        (Read(bad), own.sge(0, 8), RemAccessErr),
        (Send, own.sge_by(own.lkey().next(), 0, 8), LocProtErr),
        (Read(target.remote(0)), own.sge(-1, 8), LocProtErr),
    ] {
        p.a.run(op, &[sge]).is(status);
        p.a.quiet();
        p.a.is_in(QpState::Err);
        assert_eq!(p.a.events(), []);
        p.restate();
    }
}

fn r_err_07_completion_opcodes<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let remote = target.remote(0);
    p.b.recv(&[target.sge(0, 8)]);
    assert_eq!(p.a.run(Send, &[own.sge(0, 8)]).ok().opcode as u32, 0);
    assert_eq!(p.b.received().ok().opcode as u32, 128);
    assert_eq!(p.a.run(Write(remote), &[own.sge(0, 8)]).ok().opcode as u32, 1);
    p.b.recv(&[]);
    assert_eq!(p.a.run(WriteImm(remote, 1), &[own.sge(0, 8)]).ok().opcode as u32, 1);
    assert_eq!(p.b.received().ok().opcode as u32, 129);
    let read = p.a.run(Read(remote), &[own.sge(0, 8)]).ok();
    assert_eq!(read.opcode as u32, 2);
    if device_offers(p.b.device(), Capability::Atomics) {
        let op = CompareSwap { remote, compare: 0, swap: 0 };
        assert_eq!(p.a.run(op, &[own.sge(0, 8)]).ok().opcode as u32, 3);
        let op = FetchAdd { remote, add: 0 };
        assert_eq!(p.a.run(op, &[own.sge(0, 8)]).ok().opcode as u32, 4);
    }
}

fn r_err_07_memory_management_opcodes<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let mut mw = p.b.mw(kind);
        let bound = p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
        assert_eq!(bound.opcode as u32, 5);
        if kind == MwKind::Type2 {
            assert_eq!(p.b.invalidate(mw.key).ok().opcode as u32, 6);
        }
    }
    let mut fast = p.b.fast_mr(1);
    let entries = [mr.sge(0, 64)];
    let registered = p.b.reg_fast(&mut fast, 0, Rights::LOCAL_WRITE, &entries);
    assert_eq!(registered.opcode, WcOpcode::RegMr);
    assert_eq!(p.b.invalidate(fast.key).ok().opcode as u32, 6);
}

fn r_err_08_recovery<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let own = p.a.mr(PAGE, ALL);
        for _ in 0..3 {
            p.a.run(Send, &[own.sge_by(own.lkey().next(), 0, 8)]).is(LocProtErr);
            assert_ne!(p.a.state(), QpState::Rts);
            p.restate();
            p.are(QpState::Rts, QpState::Rts);
            p.works();
        }
    }
}

fn r_err_08_regions_and_windows_outlive_an_error<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL | BIND));
    let mw = p.b.bound(MwKind::Type1, &target, 0, 64, Rights::REMOTE_WRITE);
    for remote in [target.remote(-1), mw.remote(&target, -1)] {
        p.refused_access(Write(remote), &[own.sge(0, 8)]);
        p.restate();
    }
    p.a.run(Write(target.remote(0)), &[own.sge(0, 8)]).ok();
    target.holds(0, &own.bytes(0, 8));
    p.a.run(Write(mw.remote(&target, 8)), &[own.sge(8, 8)]).ok();
    target.holds(8, &own.bytes(8, 8));
    p.a.run(Read(target.remote(0)), &[own.sge(100, 8)]).ok();
    own.holds(100, &target.bytes(0, 8));
}

fn r_err_09_send_queue_drained<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.rnr_retry = 7);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.works();
    assert_eq!(p.a.events(), [], "not without SQD");
    // Work under way is finished first, work posted later waits.
    let before = p.a.post(Send, &[own.sge(0, 8)]);
    p.a.go(QpState::Sqd);
    let after = p.a.post(Write(sink.remote(100)), &[own.sge(8, 8)]);
    p.b.recv(&[sink.sge(0, 8)]);
    p.a.event(AsyncEvent::SqDrained);
    assert_eq!(p.a.sent().ok().wr_id, before);
    p.a.quiet();
    sink.holds(0, &own.bytes(0, 8));
    p.a.go(QpState::Rts);
    assert_eq!(p.a.sent().ok().wr_id, after);
    sink.holds(100, &own.bytes(8, 8));
}

fn r_err_10_unknown_handles<S: Subject>(s: &S) {
    fn errno<T>(result: Result<T>) -> Option<i32> {
        result.err().map(|e| e.errno())
    }
    let p = Pair::rc(s);
    let d = p.a.device();
    let memory = p.a.keep(crate::memory::Memory::filled(1));
    let spec = MrSpec {
        address: HostAddr(memory.address()),
        length: PAGE as u64,
        iova: None,
        rights: ALL,
    };
    for h in [0, u64::MAX, 0x0bad_c0de_dead_beef] {
        let pd = PdHandle(h);
        let init = QpInit::new(QpKind::Rc, CqHandle(h));
        let soon = Some(Duration::ZERO);
        let mut all = vec![
            ("dealloc_pd", errno(d.dealloc_pd(pd))),
            ("reg_mr", errno(p.a.try_reg(pd, &spec))),
            ("dereg_mr", errno(d.dereg_mr(MrHandle(h)))),
            ("destroy_comp_channel", errno(d.destroy_comp_channel(ChannelHandle(h)))),
            ("get_cq_event", errno(d.get_cq_event(ChannelHandle(h), soon))),
            ("create_cq", errno(d.create_cq(1, Some(ChannelHandle(h))))),
            ("destroy_cq", errno(d.destroy_cq(CqHandle(h)))),
            ("create_qp", errno(d.create_qp(p.a.pd, &init))),
            ("create_qp", errno(d.create_qp(pd, &QpInit::new(QpKind::Rc, p.a.sends.handle)))),
            ("modify_qp", errno(d.modify_qp(QpHandle(h), &QpModify::default()))),
            ("query_qp", errno(d.query_qp(QpHandle(h)))),
            ("destroy_qp", errno(d.destroy_qp(QpHandle(h)))),
            ("create_ah", errno(d.create_ah(pd, &p.b.address()))),
            ("destroy_ah", errno(d.destroy_ah(AhHandle(h)))),
            ("qp", errno(mkey_core::data_plane::DataPlane::qp(d, QpHandle(h)))),
            ("cq", errno(mkey_core::data_plane::DataPlane::cq(d, CqHandle(h)))),
        ];
        if device_offers(d, Capability::Rereg) {
            let change = MrChange { rights: Some(ALL), ..MrChange::default() };
            // SAFETY: no region has this handle, so no memory is concerned.
            let rereg = unsafe { d.rereg_mr(MrHandle(h), &change) };
            all.push(("rereg_mr", rereg.err().map(|e| e.error.errno())));
        }
        if device_offers(d, Capability::Window1) {
            all.push(("dealloc_mw", errno(d.dealloc_mw(MwHandle(h)))));
            all.push(("alloc_mw", errno(d.alloc_mw(pd, MwKind::Type1))));
        }
        if device_offers(d, Capability::FastMr) {
            all.push(("alloc_mr", errno(d.alloc_fast_mr(pd, 1))));
        }
        if device_offers(d, Capability::Srq) {
            all.push(("create_srq", errno(d.create_srq(pd, 1, 1))));
            all.push(("modify_srq", errno(d.modify_srq(SrqHandle(h), 1))));
            all.push(("destroy_srq", errno(d.destroy_srq(SrqHandle(h)))));
        }
        for (verb, errno) in all {
            assert_eq!(errno, Some(ENOENT), "{verb} with handle {h:#x}");
        }
    }
    p.works();
}

fn r_err_11_err_is_not_reached_from_reset<S: Subject>(s: &S) {
    let fail = QpModify { state: Some(QpState::Err), ..QpModify::default() };
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let steps: [fn(&Pair<'_, S>); 4] =
            [|_| (), |p| p.a.to_init(), |p| p.a.to_rtr(&p.b), |p| p.a.to_rts()];
        for reached in 0..=steps.len() {
            p.a.go(QpState::Reset);
            steps[..reached].iter().for_each(|step| step(&p));
            let before = p.a.state();
            let failed = p.a.device().modify_qp(p.a.qp.handle, &fail);
            match before {
                QpState::Reset => {
                    assert_eq!(failed.map_err(|e| e.errno()), Err(EINVAL));
                    assert_eq!(p.a.state(), QpState::Reset);
                }
                _ => {
                    failed.unwrap_or_else(|e| panic!("from {before}: {e}"));
                    assert_eq!(p.a.state(), QpState::Err, "from {before}");
                }
            }
        }
        p.restate();
        p.works();
    }
}
