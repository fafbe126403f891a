//! R-ODP: on-demand paging.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Side, Subject};
use crate::memory::{Memory, PAGE};
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{device_offers, keeps, rule_tests};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{
    Advice, Capability, Device, MrInfo, MrSpec, MwKind, OdpCaps, OdpOps, OdpStats,
};
use mkey_core::error::errno::{EFAULT, EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use mkey_core::error::{Error, Reason};
use mkey_core::key::{Key, Lkey};
use mkey_core::queue_pair::QpState;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocProtErr, RemOpErr, WrFlushErr};
use mkey_core::work::SendOp::{FetchAdd, Read, Send, Write};
use mkey_core::work::{RemoteAddr, Sge};
use std::sync::Arc;

rule_tests! {
    r_odp_01_capabilities_are_what_works,
    r_odp_02_pages_come_with_the_first_access needs [OnDemand],
    r_odp_02_every_operation_finds_its_pages needs [OnDemand],
    r_odp_03_discarded_pages_are_never_served needs [OnDemand],
    r_odp_03_remapped_pages_are_never_served needs [OnDemand],
    r_odp_04_unmapped_for_a_peer needs [OnDemand],
    r_odp_04_unmapped_for_the_owner needs [OnDemand],
    r_odp_04_read_only_for_a_write needs [OnDemand],
    r_odp_05_implicit_region_is_the_address_space needs [OnDemandImplicit],
    r_odp_05_implicit_region_is_asked_for_whole needs [OnDemandImplicit],
    r_odp_06_implicit_access_to_unmapped_memory needs [OnDemandImplicit],
    r_odp_07_advice_where_there_is_none,
    r_odp_09_advice_on_an_unknown_key needs [Advise],
    r_odp_10_advice_on_a_window needs [Advise, Window1],
    r_odp_11_advice_on_another_domain needs [Advise],
    r_odp_12_prefetch_for_writing_without_the_right needs [Advise],
    r_odp_13_advice_outside_the_region needs [Advise],
    r_odp_14_prefetch_with_flush_is_done_on_return needs [Advise],
    r_odp_14_prefetch_without_flush_may_be_later needs [Advise],
    r_odp_15_prefetch_no_fault_faults_nothing needs [Advise],
    r_odp_16_advice_on_nothing needs [Advise],
    r_odp_17_advice_on_a_pinned_region needs [Advise],
    r_odp_19_windows_on_on_demand_memory needs [OnDemand, Window1, Window2],
}

const ODP: Rights = ALL.union(Rights::ON_DEMAND);

/// An on-demand region over all of `pages` new pages, none of them touched yet.
#[track_caller]
fn untouched<S: Subject>(side: &Side<'_, S>, pages: usize, rights: Rights) -> Mr {
    let memory = side.keep(Memory::untouched(pages));
    side.mr_over(side.pd, &memory, 0, pages * PAGE, rights, None)
}

/// The same over pages with content.
#[track_caller]
fn filled<S: Subject>(side: &Side<'_, S>, pages: usize, rights: Rights) -> Mr {
    let memory = side.keep(Memory::filled(pages));
    side.mr_over(side.pd, &memory, 0, pages * PAGE, rights, None)
}

/// What the device counts for the region, if it does.
#[track_caller]
fn stats<S: Subject>(side: &Side<'_, S>, mr: &Mr) -> Option<OdpStats> {
    match side.device().odp_stats(mr.info.handle) {
        Err(Error { reason: Reason::Unsupported { .. }, .. }) => None,
        stats => Some(stats.expect("odp_stats")),
    }
}

/// Looks at the faults that the device has counted for the region, if it does.
#[track_caller]
fn faulted<S: Subject>(side: &Side<'_, S>, mr: &Mr, faults: u64, what: &str) {
    if let Some(stats) = stats(side, mr) {
        assert_eq!(stats.faults, faults, "{what}");
    }
}

fn r_odp_01_capabilities_are_what_works<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let odp: OdpCaps = p.b.device().capabilities().odp;
    if !odp.explicit {
        assert_eq!(odp, OdpCaps::default(), "nothing without explicit on-demand paging");
        return;
    }
    let (own, mr) = (p.a.mr(PAGE, ALL), filled(&p.b, 4, ODP));
    if odp.rc.contains(OdpOps::WRITE) {
        p.a.run(Write(mr.remote(0)), &[own.sge(0, 64)]).ok();
        mr.holds(0, &own.bytes(0, 64));
    }
    if odp.rc.contains(OdpOps::READ) {
        p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 64)]).ok();
        own.holds(0, &mr.bytes(PAGE, 64));
    }
    if odp.rc.contains(OdpOps::RECV) {
        p.b.recv(&[mr.sge(2 * PAGE as i64, 64)]);
        p.a.run(Send, &[own.sge(0, 64)]).ok();
        p.b.received().ok();
        mr.holds(2 * PAGE, &own.bytes(0, 64));
    }
    if odp.rc.contains(OdpOps::SEND) {
        p.a.recv(&[own.sge(64, 64)]);
        p.b.run(Send, &[mr.sge(3 * PAGE as i64, 64)]).ok();
        p.a.received().ok();
        own.holds(64, &mr.bytes(3 * PAGE, 64));
    }
    assert!(!(odp.rc & (OdpOps::WRITE | OdpOps::READ)).is_empty(), "of no use to RC");
}

fn r_odp_02_pages_come_with_the_first_access<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(2 * PAGE, ALL), untouched(&p.b, 8, ODP));
    faulted(&p.b, &mr, 0, "registered without touching pages");
    // Across the border of two pages.
    p.a.run(Write(mr.remote(PAGE as i64 - 8)), &[own.sge(0, 16)]).ok();
    mr.holds(PAGE - 8, &own.bytes(0, 16));
    faulted(&p.b, &mr, 2, "both pages");
    // Present now.
    p.a.run(Write(mr.remote(0)), &[own.sge(0, 2 * PAGE as u32)]).ok();
    mr.holds(0, &own.bytes(0, 2 * PAGE));
    faulted(&p.b, &mr, 2, "they are present");
    // A page never written reads as zeros.
    p.a.run(Read(mr.remote(5 * PAGE as i64)), &[own.sge(0, 64)]).ok();
    own.holds(0, &[0; 64]);
    faulted(&p.b, &mr, 3, "one more");
}

fn r_odp_02_every_operation_finds_its_pages<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (source, sink) = (filled(&p.a, 8, ODP), untouched(&p.b, 8, ODP));
    let page = PAGE as i64;
    p.b.recv(&[sink.sge(0, 64), sink.sge(page, 64)]);
    p.a.run(Send, &[source.sge(0, 64), source.sge(page, 64)]).ok();
    p.b.received().ok();
    sink.memory.expect(0, &source.bytes(0, 64));
    sink.holds(PAGE, &source.bytes(PAGE, 64));
    p.a.run(Write(sink.remote(2 * page)), &[source.sge(2 * page, 5000)]).ok();
    sink.holds(2 * PAGE, &source.bytes(2 * PAGE, 5000));
    p.a.run(Read(sink.remote(2 * page)), &[source.sge(5 * page, 5000)]).ok();
    source.holds(5 * PAGE, &sink.bytes(2 * PAGE, 5000));
    if device_offers(p.b.device(), Capability::Atomics) {
        let op = FetchAdd { remote: sink.remote(5 * page), add: 7 };
        p.a.run(op, &[source.sge(7 * page, 8)]).ok();
        source.holds(7 * PAGE, &[0; 8]);
        sink.holds(5 * PAGE, &7u64.to_ne_bytes());
    }
    let ud = Pair::ud(s);
    if ud.a.device().capabilities().odp.ud.contains(OdpOps::SEND | OdpOps::RECV) {
        let (source, sink) = (filled(&ud.a, 1, ODP), untouched(&ud.b, 1, ODP));
        ud.b.recv(&[sink.sge(0, 200)]);
        ud.a.run(Send, &[source.sge(0, 64)]).ok();
        ud.b.received().ok();
        assert_eq!(sink.bytes(40, 64), source.bytes(0, 64));
    }
}

fn r_odp_03_discarded_pages_are_never_served<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), filled(&p.b, 4, ODP));
    let page = PAGE as i64;
    // The beginning of each page.
    let all_are_read = || {
        for at in 0..4 {
            p.a.run(Read(mr.remote(at * page)), &[own.sge(0, 64)]).ok();
            own.holds(0, &mr.bytes(at as usize * PAGE, 64));
        }
    };
    all_are_read();
    for _ in 0..3 {
        mr.memory.discard(PAGE..3 * PAGE);
        all_are_read();
        assert_eq!(mr.bytes(PAGE, 2 * PAGE), vec![0; 2 * PAGE]);
        // What the program writes there, a peer reads; what a peer writes, the program reads.
        mr.set(PAGE, b"written anew");
        p.a.run(Read(mr.remote(page)), &[own.sge(0, 12)]).ok();
        own.holds(0, b"written anew");
        mr.memory.discard(PAGE..2 * PAGE);
        p.a.run(Write(mr.remote(page)), &[own.sge(0, 12)]).ok();
        mr.holds(PAGE, b"written anew");
    }
    if let Some(stats) = stats(&p.b, &mr) {
        assert!(stats.faults >= 4, "{stats:?}");
    }
}

fn r_odp_03_remapped_pages_are_never_served<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), filled(&p.b, 4, ODP));
    p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 64)]).ok();
    for _ in 0..3 {
        mr.memory.remap(PAGE..2 * PAGE);
        p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 64)]).ok();
        own.holds(0, &[0; 64]);
        mr.set(PAGE, b"another mapping");
        p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 15)]).ok();
        own.holds(0, b"another mapping");
    }
}

fn r_odp_04_unmapped_for_a_peer<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(2 * PAGE, ALL), filled(&p.b, 4, ODP));
    p.a.run(Write(mr.remote(PAGE as i64)), &[own.sge(0, 8)]).ok();
    mr.holds(PAGE, &own.bytes(0, 8));
    mr.memory.unmap(PAGE..2 * PAGE);
    let page = PAGE as i64;
    for remote in [mr.remote(page), mr.remote(2 * page - 4)] {
        for op in [Write(remote), Read(remote)] {
            p.refused_access(op, &[own.sge(0, 8)]);
            own.untouched();
            mr.untouched();
            p.restate();
        }
    }
    // Its neighbours are served, and the page itself once it is back.
    p.a.run(Write(mr.remote(0)), &[own.sge(0, 8)]).ok();
    mr.holds(0, &own.bytes(0, 8));
    mr.memory.remap(PAGE..2 * PAGE);
    p.a.run(Write(mr.remote(page)), &[own.sge(0, 8)]).ok();
    mr.holds(PAGE, &own.bytes(0, 8));
}

fn r_odp_04_unmapped_for_the_owner<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (target, mr) = (p.b.mr(PAGE, ALL), filled(&p.a, 2, ODP));
    mr.memory.unmap(PAGE..2 * PAGE);
    let gone = mr.sge(PAGE as i64, 8);
    for op in [Write(target.remote(0)), Read(target.remote(0))] {
        p.fails_locally(LocProtErr, op, &[gone]);
        target.untouched();
        p.restate();
    }
    // The peer is ready for it: it is not told, and its receive serves the next message.
    let sink = p.b.mr(PAGE, ALL);
    let ready = p.b.recv(&[sink.sge(0, 64)]);
    p.a.run(Send, &[mr.sge(0, 32), gone]).is(LocProtErr);
    p.b.quiet();
    assert_eq!(p.b.state(), QpState::Rts);
    p.b.go(QpState::Err);
    assert_eq!(p.b.received().is(WrFlushErr).wr_id, ready);
    p.restate();
    // And as a place to receive into.
    let recv = p.a.recv(&[gone]);
    let other = p.b.mr(PAGE, ALL);
    p.b.run(Send, &[other.sge(0, 8)]).is(RemOpErr);
    assert_eq!(p.a.received().is(LocProtErr).wr_id, recv);
    mr.untouched();
}

fn r_odp_04_read_only_for_a_write<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), filled(&p.b, 2, ODP));
    mr.memory.make_read_only(PAGE..2 * PAGE);
    p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 64)]).ok();
    own.holds(0, &mr.bytes(PAGE, 64));
    p.refused_access(Write(mr.remote(PAGE as i64)), &[own.sge(0, 64)]);
    mr.untouched();
}

/// Registers the whole address space.
#[track_caller]
fn implicit<S: Subject>(side: &Side<'_, S>) -> MrInfo {
    let spec = MrSpec { address: HostAddr(0), length: u64::MAX, iova: None, rights: ODP };
    side.try_reg(side.pd, &spec).expect("reg_mr of the whole address space")
}

/// The byte at `offset` of `memory`, by an implicit region.
fn by(info: &MrInfo, memory: &Arc<Memory>, offset: usize) -> RemoteAddr {
    RemoteAddr { address: IoAddr(memory.address() + offset as u64), rkey: info.rkey }
}

fn r_odp_05_implicit_region_is_the_address_space<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (near, far) = (implicit(&p.a), implicit(&p.b));
    // Memory that came to be only later.
    let (own, mine) = (p.a.keep(Memory::filled(2)), p.b.keep(Memory::untouched(4)));
    let sge = |offset: usize, length| Sge {
        address: IoAddr(own.address() + offset as u64),
        length,
        lkey: near.lkey,
    };
    p.a.run(Write(by(&far, &mine, 4000)), &[sge(100, 200)]).ok();
    mine.expect(4000, &own.bytes(100..300));
    mine.check();
    p.a.run(Read(by(&far, &mine, 4050)), &[sge(4090, 20)]).ok();
    own.expect(4090, &mine.bytes(4050..4070));
    own.check();
}

fn r_odp_05_implicit_region_is_asked_for_whole<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let whole = MrSpec { address: HostAddr(0), length: u64::MAX, iova: None, rights: ODP };
    let address = p.b.keep(Memory::filled(1)).address();
    for spec in [
        MrSpec { address: HostAddr(address), ..whole },
        MrSpec { iova: Some(IoAddr(0x1000)), ..whole },
        MrSpec { rights: ODP | Rights::HUGETLB, ..whole },
        MrSpec { rights: ALL, ..whole },
    ] {
        let refused = p.b.try_reg(p.b.pd, &spec).map_err(|e| e.errno());
        // Without ON_DEMAND it is a pinned region of memory that is not all there.
        let pinned = !spec.rights.contains(Rights::ON_DEMAND);
        let allowed: &[i32] = if pinned { &[EINVAL, EFAULT] } else { &[EINVAL] };
        match refused {
            Err(errno) if allowed.contains(&errno) => {}
            other => panic!("{spec:?}: {other:?}"),
        }
    }
}

fn r_odp_06_implicit_access_to_unmapped_memory<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (near, far) = (implicit(&p.a), implicit(&p.b));
    let (own, memory) = (p.a.mr(PAGE, ALL), p.b.keep(Memory::filled(2)));
    memory.unmap(PAGE..2 * PAGE);
    let low = RemoteAddr { address: IoAddr(8), rkey: far.rkey };
    let high = RemoteAddr { address: IoAddr(u64::MAX - 7), rkey: far.rkey };
    for remote in [by(&far, &memory, PAGE), by(&far, &memory, PAGE - 4), low, high] {
        for op in [Write(remote), Read(remote)] {
            p.refused_access(op, &[own.sge(0, 8)]);
            own.untouched();
            p.restate();
        }
    }
    memory.check();
    let target = p.b.mr(PAGE, ALL);
    let sge = Sge { address: IoAddr(8), length: 8, lkey: near.lkey };
    p.fails_locally(LocProtErr, Write(target.remote(0)), &[sge]);
    target.untouched();
}

/// The errno of advice, 0 if it was taken.
fn advise<S: Subject>(side: &Side<'_, S>, advice: Advice, flush: bool, sges: &[Sge]) -> i32 {
    side.device().advise_mr(side.pd, advice, flush, sges).map_or_else(|e| e.errno(), |()| 0)
}

fn r_odp_07_advice_where_there_is_none<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(1));
    let offered = device_offers(p.b.device(), Capability::Advise);
    let rights = if offered { ODP } else { ALL };
    let mr = p.b.mr_over(p.b.pd, &memory, 0, PAGE, rights, None);
    let errno = advise(&p.b, Advice::Prefetch, true, &[mr.sge(0, 64)]);
    assert_eq!(errno, if offered { 0 } else { EOPNOTSUPP });
}

fn r_odp_09_advice_on_an_unknown_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, gone) = (filled(&p.b, 1, ODP), filled(&p.b, 1, ODP));
    p.b.device().dereg_mr(gone.info.handle).expect("dereg_mr");
    for key in [Key(0), Key(u32::MAX), mr.lkey().next(), gone.lkey()] {
        let sges = [mr.sge_by(key, 0, 64)];
        assert_eq!(advise(&p.b, Advice::Prefetch, true, &sges), ENOENT, "key {key}");
    }
}

fn r_odp_10_advice_on_a_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = filled(&p.b, 1, BIND | Rights::ON_DEMAND);
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, Rights::REMOTE_READ);
    let sges = [mr.sge_by(mw.key, 0, 64)];
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &sges), EINVAL);
}

fn r_odp_11_advice_on_another_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(1));
    let mr = p.b.mr_over(p.b.new_pd(), &memory, 0, PAGE, ODP, None);
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &[mr.sge(0, 64)]), EPERM);
}

fn r_odp_12_prefetch_for_writing_without_the_right<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = filled(&p.b, 1, Rights::REMOTE_READ | Rights::ON_DEMAND);
    assert_eq!(advise(&p.b, Advice::PrefetchWrite, true, &[mr.sge(0, 64)]), EPERM);
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &[mr.sge(0, 64)]), 0);
    let writable = filled(&p.b, 1, ODP);
    assert_eq!(advise(&p.b, Advice::PrefetchWrite, true, &[writable.sge(0, 64)]), 0);
}

fn r_odp_13_advice_outside_the_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(3));
    let mr = p.b.mr_over(p.b.pd, &memory, PAGE, PAGE, ODP, None);
    let far = Sge { address: IoAddr(u64::MAX - 3), length: 8, lkey: Lkey(mr.lkey()) };
    let past = mr.sge(PAGE as i64 - 63, 64);
    for sge in [mr.sge(-1, 64), past, mr.sge(0, PAGE as u32 + 1), far] {
        assert_eq!(advise(&p.b, Advice::Prefetch, true, &[sge]), EFAULT, "{sge:?}");
    }
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &[mr.sge(0, PAGE as u32)]), 0);
}

fn r_odp_14_prefetch_with_flush_is_done_on_return<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let own = p.a.mr(4 * PAGE, ALL);
    for advice in [Advice::Prefetch, Advice::PrefetchWrite] {
        let mr = untouched(&p.b, 4, ODP);
        let page = PAGE as i64;
        let sges = [mr.sge(0, 2 * PAGE as u32), mr.sge(3 * page, 1)];
        assert_eq!(advise(&p.b, advice, true, &sges), 0);
        if let Some(stats) = stats(&p.b, &mr) {
            assert_eq!(stats, OdpStats { prefetches: 3, ..OdpStats::default() });
        }
        p.a.run(Read(mr.remote(0)), &[own.sge(0, 2 * PAGE as u32)]).ok();
        p.a.run(Read(mr.remote(3 * page)), &[own.sge(0, 64)]).ok();
        faulted(&p.b, &mr, 0, "all of it was there");
        // What can not be brought in is reported.
        mr.memory.unmap(2 * PAGE..3 * PAGE);
        assert_eq!(advise(&p.b, advice, true, &[mr.sge(2 * page, 64)]), EFAULT);
    }
}

fn r_odp_14_prefetch_without_flush_may_be_later<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = untouched(&p.b, 4, ODP);
    assert_eq!(advise(&p.b, Advice::Prefetch, false, &[mr.sge(0, 4 * PAGE as u32)]), 0);
    let own = p.a.mr(4 * PAGE, ALL);
    for at in (0..4 * PAGE).step_by(PAGE) {
        p.a.run(Write(mr.remote(at as i64)), &[own.sge(at as i64, 64)]).ok();
        mr.holds(at, &own.bytes(at, 64));
    }
    if let Some(stats) = stats(&p.b, &mr) {
        assert!(stats.faults + stats.prefetches >= 4, "{stats:?}");
    }
}

fn r_odp_15_prefetch_no_fault_faults_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), untouched(&p.b, 4, ODP));
    // One page the program has touched itself, the others it has not.
    mr.set(PAGE, b"present");
    let all = [mr.sge(0, 4 * PAGE as u32)];
    assert_eq!(advise(&p.b, Advice::PrefetchNoFault, true, &all), 0);
    if let Some(after) = stats(&p.b, &mr) {
        assert_eq!((after.faults, after.prefetches), (0, 1), "only what was present");
    }
    p.a.run(Read(mr.remote(PAGE as i64)), &[own.sge(0, 7)]).ok();
    own.holds(0, b"present");
    faulted(&p.b, &mr, 0, "what was present");
    p.a.run(Read(mr.remote(2 * PAGE as i64)), &[own.sge(0, 7)]).ok();
    faulted(&p.b, &mr, 1, "this page was not");
}

fn r_odp_16_advice_on_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for advice in [Advice::Prefetch, Advice::PrefetchWrite, Advice::PrefetchNoFault] {
        assert!([0, EINVAL].contains(&advise(&p.b, advice, true, &[])), "{advice:?}");
    }
    p.works();
}

fn r_odp_17_advice_on_a_pinned_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (pinned, mr) = (p.b.mr(PAGE, ALL), untouched(&p.b, 1, ODP));
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &[pinned.sge(0, 64)]), ENOENT);
    let mixed = [mr.sge(0, 64), pinned.sge(0, 64)];
    assert_eq!(advise(&p.b, Advice::Prefetch, true, &mixed), ENOENT);
}

fn r_odp_19_windows_on_on_demand_memory<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let (own, mr) = (p.a.mr(PAGE, ALL), untouched(&p.b, 3, BIND | Rights::ON_DEMAND));
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let mw = p.b.bound(kind, &mr, PAGE as i64, PAGE as u64, rights);
        p.a.run(Write(mw.remote(&mr, PAGE as i64)), &[own.sge(0, 64)]).ok();
        mr.holds(PAGE, &own.bytes(0, 64));
        mr.memory.discard(PAGE..2 * PAGE);
        p.a.run(Read(mw.remote(&mr, PAGE as i64)), &[own.sge(0, 64)]).ok();
        own.holds(0, &[0; 64]);
        if keeps("R-MWU-05") {
            p.refused_access(Read(mw.remote(&mr, 0)), &[own.sge(0, 64)]);
            p.restate();
        }
    }
}
