//! R-REG: registration and deregistration.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Side, Subject};
use crate::memory::{Memory, PAGE};
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{device_offers, keeps, rule_tests};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{Capability, Device, MrHandle, MrSpec, MwKind, PdHandle, SrqHandle};
use mkey_core::error::errno::{EBUSY, EFAULT, EINVAL, ENOENT, ENOMEM, EOPNOTSUPP, EPERM};
use mkey_core::queue_pair::{QpInit, QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocProtErr, RemAccessErr, RetryExcErr, Success, WrFlushErr};
use mkey_core::work::SendOp::{Read, Send, Write};
use mkey_core::work::Sge;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

rule_tests! {
    r_reg_01_remote_change_needs_local_write,
    r_reg_02_unknown_rights_are_refused,
    r_reg_03_unknown_optional_rights_are_dropped,
    r_reg_04_rights_that_need_a_capability,
    r_reg_05_no_rights_allow_local_reading,
    r_reg_06_zero_length_registers,
    r_reg_07_a_range_that_wraps_is_refused,
    r_reg_08_unmapped_memory_is_refused,
    r_reg_09_more_than_may_be_locked,
    r_reg_10_read_only_memory_can_not_be_made_writable,
    r_reg_11_page_offsets_have_to_agree,
    r_reg_12_chosen_io_address,
    r_reg_13_zero_based_counts_from_zero needs [ZeroBased],
    r_reg_13_io_address_zero_counts_from_zero,
    r_reg_14_regions_are_distinct,
    r_reg_15_stale_handles_name_nothing,
    r_reg_16_domain_in_use_can_not_be_freed,
    r_reg_17_dereg_under_a_posted_receive,
    r_reg_18_dereg_of_the_landing_region_under_reads,
    r_reg_18_dereg_of_the_source_region_under_writes,
    r_reg_19_dereg_of_the_remote_region_under_reads,
    r_reg_20_two_regions_over_the_same_memory,
    r_reg_21_region_and_queue_pair_share_a_domain,
    r_reg_27_null_region_reads_zero_and_swallows_writes needs [NullMr],
    r_reg_27_null_region_gives_a_peer_nothing needs [NullMr],
}

/// Work requests after which another thread must have had its turn.
const MOST: u32 = 1_000_000;

fn spec(memory: &Memory, rights: Rights) -> MrSpec {
    MrSpec { address: HostAddr(memory.address()), length: memory.len() as u64, iova: None, rights }
}

/// The errno of a registration that has to be refused.
#[track_caller]
fn refused<S: Subject>(side: &Side<'_, S>, spec: &MrSpec) -> i32 {
    match side.try_reg(side.pd, spec) {
        Ok(_) => panic!("has to be refused: {spec:?}"),
        Err(refused) => refused.errno(),
    }
}

fn r_reg_01_remote_change_needs_local_write<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(1));
    for right in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
        assert_eq!(refused(&p.a, &spec(&memory, right | Rights::REMOTE_READ)), EINVAL);
        let with = spec(&memory, right | Rights::LOCAL_WRITE);
        p.a.try_reg(p.a.pd, &with).expect("with local write");
    }
}

fn r_reg_02_unknown_rights_are_refused<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(1));
    for bit in [10, 15, 19, 30, 31] {
        let made_up = Rights::from_bits_retain(1 << bit) | Rights::LOCAL_WRITE;
        assert_eq!(refused(&p.a, &spec(&memory, made_up)), EINVAL, "bit {bit}");
    }
}

fn r_reg_03_unknown_optional_rights_are_dropped<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for bit in 20..30 {
        let mr = p.b.mr(PAGE, ALL | Rights::from_bits_retain(1 << bit));
        let source = p.a.mr(PAGE, Rights::empty());
        p.a.run(Write(mr.remote(0)), &[source.sge(0, 64)]).ok();
        mr.holds(0, &source.bytes(0, 64));
    }
}

fn r_reg_04_rights_that_need_a_capability<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(1));
    for right in [Rights::FLUSH_GLOBAL, Rights::FLUSH_PERSISTENT] {
        let flushed = p.a.try_reg(p.a.pd, &spec(&memory, right | ALL)).map_err(|e| e.errno());
        match device_offers(p.a.device(), Capability::Flush) {
            // This memory does not persist.
            true if right == Rights::FLUSH_PERSISTENT && flushed == Err(EINVAL) => {}
            true => drop(flushed.expect("the device offers flush operations")),
            // To a kernel from before flush operations the right is an unknown one (R-REG-02).
            false => assert!(matches!(flushed, Err(EOPNOTSUPP | EINVAL)), "{flushed:?}"),
        }
    }
    let on_demand = p.a.try_reg(p.a.pd, &spec(&memory, Rights::ON_DEMAND | ALL));
    match p.a.device().capabilities().odp.explicit {
        true => drop(on_demand.expect("the device offers on-demand paging")),
        false => assert_eq!(on_demand.map_err(|e| e.errno()), Err(EOPNOTSUPP)),
    }
}

fn r_reg_05_no_rights_allow_local_reading<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (source, sink) = (p.a.mr(PAGE, Rights::empty()), p.b.mr(PAGE, ALL));
    p.a.run(Write(sink.remote(9)), &[source.sge(5, 100)]).ok();
    sink.holds(9, &source.bytes(5, 100));
    // And nothing else: it is no landing place.
    p.a.run(Read(sink.remote(0)), &[source.sge(0, 8)]).is(LocProtErr);
    source.untouched();
}

fn r_reg_06_zero_length_registers<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let sink = p.a.mr(PAGE, ALL);
    let memory = p.b.keep(Memory::filled(2));
    for offset in [0, 100] {
        let nothing = MrSpec {
            address: HostAddr(memory.address() + offset as u64),
            length: 0,
            iova: None,
            rights: ALL,
        };
        // Where a page begins there is no page to pin, which the kernel refuses for any device.
        if offset == 0 && p.b.try_reg(p.b.pd, &nothing).is_err_and(|e| e.errno() == EINVAL) {
            continue;
        }
        let mr = p.b.mr_over(p.b.pd, &memory, offset, 0, ALL, None);
        p.a.run(Read(mr.remote(0)), &[]).ok();
        p.refused_access(Read(mr.remote(0)), &[sink.sge(0, 1)]);
        p.restate();
        p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
    }
    sink.untouched();
}

fn r_reg_07_a_range_that_wraps_is_refused<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(1));
    let address = memory.address();
    for (address, length) in [
        (address, u64::MAX),
        (address, u64::MAX - address + 1),
        (u64::MAX, 2),
        (u64::MAX - 4095, 4097),
        (1 << 63, (1 << 63) + 1),
    ] {
        let spec = MrSpec { address: HostAddr(address), length, iova: None, rights: ALL };
        assert_eq!(refused(&p.a, &spec), EINVAL, "{length:#x} bytes from {address:#x}");
    }
}

fn r_reg_08_unmapped_memory_is_refused<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(4));
    memory.unmap(2 * PAGE..3 * PAGE);
    // Below the lowest address that can be mapped; past the end of user space; a hole.
    for (address, length) in
        [(PAGE as u64, 64), (1 << 60, 4096), (memory.address(), memory.len() as u64)]
    {
        for rights in [ALL, Rights::empty()] {
            let spec = MrSpec { address: HostAddr(address), length, iova: None, rights };
            assert_eq!(refused(&p.a, &spec), EFAULT, "{length:#x} bytes from {address:#x}");
        }
    }
    p.a.mr_over(p.a.pd, &memory, 0, 2 * PAGE, ALL, None);
    p.a.mr_over(p.a.pd, &memory, 3 * PAGE, PAGE, ALL, None);
}

fn r_reg_09_more_than_may_be_locked<S: Subject>(s: &S) {
    let memory = Memory::filled(8);
    let reg = |device: &S::Device, pd, pages: usize| {
        let length = (pages * PAGE) as u64;
        let address = HostAddr(memory.address());
        let spec = MrSpec { address, length, iova: None, rights: ALL };
        // SAFETY: the memory outlives the devices below, and is only accessed volatile.
        unsafe { device.reg_mr(pd, &spec) }.map_err(|e| e.errno())
    };
    let device = s.open_limited(4 * PAGE as u64);
    let pd = device.alloc_pd().expect("alloc_pd");
    assert_eq!(reg(&device, pd, 5), Err(ENOMEM));
    let first = reg(&device, pd, 3).expect("within the limit");
    // Each registration counts by itself, although the pages are the same.
    assert_eq!(reg(&device, pd, 2), Err(ENOMEM));
    reg(&device, pd, 1).expect("up to the limit");
    assert_eq!(reg(&device, pd, 1), Err(ENOMEM));
    device.dereg_mr(first.handle).expect("dereg_mr");
    reg(&device, pd, 3).expect("what was given back");
    let device = s.open_limited(0);
    let pd = device.alloc_pd().expect("alloc_pd");
    assert_eq!(reg(&device, pd, 1), Err(EPERM), "nothing may be locked at all");
}

fn r_reg_10_read_only_memory_can_not_be_made_writable<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(2));
    memory.make_read_only(PAGE..2 * PAGE);
    for right in [Rights::LOCAL_WRITE, ALL, BIND, Rights::MW_BIND] {
        assert_eq!(refused(&p.b, &spec(&memory, right)), EFAULT, "{right}");
    }
    let readable = p.b.mr_over(p.b.pd, &memory, 0, 2 * PAGE, Rights::REMOTE_READ, None);
    let sink = p.a.mr(PAGE, ALL);
    p.a.run(Read(readable.remote(PAGE as i64)), &[sink.sge(0, 64)]).ok();
    sink.holds(0, &readable.bytes(PAGE, 64));
}

fn r_reg_11_page_offsets_have_to_agree<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(2));
    let at = |offset: u64, iova: u64| MrSpec {
        address: HostAddr(memory.address() + offset),
        length: 64,
        iova: Some(IoAddr(iova)),
        rights: ALL,
    };
    for (offset, iova) in [(0, 1), (1, 0), (64, 0x10_0000), (4095, 0x1000)] {
        assert_eq!(refused(&p.a, &at(offset, iova)), EINVAL, "{offset:#x}, {iova:#x}");
    }
    p.a.try_reg(p.a.pd, &at(64, 0x10_0040)).expect("the same offset in another page");
}

fn r_reg_12_chosen_io_address<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for iova in [0x7000_0000_0000, PAGE as u64, u64::MAX - 0x1fff] {
        let (sink, source) = (p.b.mr_at(PAGE, ALL, iova), p.a.mr(PAGE, Rights::empty()));
        p.a.run(Write(sink.remote(0x123)), &[source.sge(0, 64)]).ok();
        sink.holds(0x123, &source.bytes(0, 64));
        // The host address means nothing any more.
        let host = p.b.mr(PAGE, ALL);
        p.refused_access(Write(host.remote_by(sink.rkey(), 0)), &[source.sge(0, 8)]);
        p.restate();
        // The same on the local side.
        p.b.run(Read(p.a.mr(PAGE, ALL).remote(0)), &[host.sge(0, 8)]).ok();
        let from = p.b.mr_at(PAGE, ALL, iova);
        let to = p.a.mr(PAGE, ALL);
        p.b.run(Write(to.remote(0)), &[from.sge(0x321, 77)]).ok();
        to.holds(0, &from.bytes(0x321, 77));
    }
}

#[track_caller]
fn counts_from_zero<S: Subject>(p: &Pair<'_, S>, mr: &Mr) {
    let source = p.a.mr(PAGE, Rights::empty());
    assert_eq!(mr.at(17), IoAddr(17));
    p.a.run(Write(mr.remote(17)), &[source.sge(0, 64)]).ok();
    mr.holds(17, &source.bytes(0, 64));
    p.a.run(Write(mr.remote(PAGE as i64 - 8)), &[source.sge(64, 8)]).ok();
    mr.holds(PAGE - 8, &source.bytes(64, 8));
    for outside in [PAGE as i64 - 7, -1] {
        p.refused_access(Write(mr.remote(outside)), &[source.sge(0, 8)]);
        p.restate();
    }
    mr.untouched();
}

fn r_reg_13_zero_based_counts_from_zero<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(3));
    // Not page aligned: the offset counts from the region, not from its page.
    let rights = ALL | Rights::ZERO_BASED;
    counts_from_zero(&p, &p.b.mr_over(p.b.pd, &memory, 0x230, PAGE, rights, None));
}

fn r_reg_13_io_address_zero_counts_from_zero<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    counts_from_zero(&p, &p.b.mr_at(PAGE, ALL, 0));
}

fn r_reg_14_regions_are_distinct<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mut handles, mut keys) = (HashSet::new(), HashSet::new());
    for _ in 0..100 {
        let mr = p.b.mr(64, ALL);
        assert!(handles.insert(mr.info.handle), "a handle came twice");
        assert!(keys.insert(mr.rkey().index()), "an index came twice");
        // Address and length as asked: the first and the last byte are in reach.
        p.a.run(Write(mr.remote(0)), &[p.a.mr(64, Rights::empty()).sge(0, 64)]).ok();
    }
}

fn r_reg_15_stale_handles_name_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.a.mr(PAGE, ALL);
    let dereg = |handle| p.a.device().dereg_mr(handle).map_err(|e| e.errno());
    assert_eq!(dereg(mr.info.handle), Ok(()));
    for handle in [mr.info.handle, MrHandle(0), MrHandle(u64::MAX), MrHandle(0xdead_beef_0bad)] {
        assert_eq!(dereg(handle), Err(ENOENT), "{handle:?}");
    }
    p.works();
}

fn r_reg_16_domain_in_use_can_not_be_freed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.a.keep(Memory::filled(1));
    let d = p.a.device();
    let busy = |pd: PdHandle, what: &str| {
        assert_eq!(d.dealloc_pd(pd).map_err(|e| e.errno()), Err(EBUSY), "with a {what}");
        let mr = p.a.try_reg(pd, &spec(&memory, ALL)).expect("the domain is usable");
        d.dereg_mr(mr.handle).expect("dereg_mr");
    };
    let free = |pd: PdHandle, what: &str| {
        d.dealloc_pd(pd).unwrap_or_else(|e| panic!("after the {what} is gone: {e}"));
    };
    let pd = p.a.new_pd();
    let mr = p.a.try_reg(pd, &spec(&memory, ALL)).expect("reg_mr");
    busy(pd, "memory region");
    d.dereg_mr(mr.handle).expect("dereg_mr");

    let caps = d.capabilities();
    for (kind, offered) in [(MwKind::Type1, caps.window1), (MwKind::Type2, caps.window2)] {
        if offered {
            let mw = d.alloc_mw(pd, kind).expect("alloc_mw");
            busy(pd, "memory window");
            d.dealloc_mw(mw.handle).expect("dealloc_mw");
        }
    }
    let qp = d.create_qp(pd, &QpInit::new(QpKind::Rc, p.a.sends.handle)).expect("create_qp");
    busy(pd, "queue pair");
    d.destroy_qp(qp.handle).expect("destroy_qp");
    if caps.srq {
        let srq: SrqHandle = d.create_srq(pd, 4, 1).expect("create_srq");
        busy(pd, "shared receive queue");
        d.destroy_srq(srq).expect("destroy_srq");
    }
    let ah = d.create_ah(pd, &p.b.address()).expect("create_ah");
    busy(pd, "address handle");
    d.destroy_ah(ah).expect("destroy_ah");
    free(pd, "last holder");
    assert_eq!(d.dealloc_pd(pd).map_err(|e| e.errno()), Err(ENOENT), "freed twice");
}

fn r_reg_17_dereg_under_a_posted_receive<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (source, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let recv = p.b.recv(&[sink.sge(0, 256)]);
    p.b.device().dereg_mr(sink.info.handle).expect("dereg_mr");
    p.b.quiet();
    p.refused_receive(recv, LocProtErr, Send, &[source.sge(0, 256)]);
    sink.untouched();
    p.restate();
    p.works();
}

/// Keeps work requests of `op` over `local` in flight while another thread deregisters `local`:
/// some succeed, then one has a protection error, the rest is flushed.
#[track_caller]
fn dereg_under_load<S: Subject>(
    p: &Pair<'_, S>,
    local: &Mr,
    op: &(dyn Fn() -> mkey_core::work::SendOp<'static> + Sync),
) {
    let (started, device) = (AtomicBool::new(false), p.a.device());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !started.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            device.dereg_mr(local.info.handle).expect("dereg_mr under load");
        });
        let (mut succeeded, mut failed, mut outstanding) = (0, 0, 0);
        for _ in 0..MOST {
            if failed == 0 && outstanding < 8 {
                p.a.post(op(), &[local.sge(0, PAGE as u32)]);
                outstanding += 1;
                continue;
            }
            if outstanding == 0 {
                break;
            }
            outstanding -= 1;
            let done = p.a.sent();
            started.store(true, Ordering::Release);
            match done.status {
                Success if failed == 0 => succeeded += 1,
                _ if failed == 0 => {
                    done.is(LocProtErr);
                    failed = 1;
                }
                WrFlushErr => {}
                other => panic!("{other} after {succeeded} successes and a failure"),
            }
        }
        assert!(succeeded > 0 && failed == 1, "{succeeded} successes, {failed} failures");
    });
    p.are(QpState::Err, QpState::Rts);
    // Nothing touches the memory any more: what the test writes now stays.
    local.set(0, &[0xa5; PAGE]);
    p.beside().works();
    local.untouched();
}

fn r_reg_18_dereg_of_the_landing_region_under_reads<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (local, remote) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let from = remote.remote(0);
    dereg_under_load(&p, &local, &move || Read(from));
    remote.untouched();
}

fn r_reg_18_dereg_of_the_source_region_under_writes<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (local, remote) = (p.a.mr(PAGE, Rights::LOCAL_WRITE), p.b.mr(PAGE, ALL));
    let to = remote.remote(0);
    dereg_under_load(&p, &local, &move || Write(to));
}

fn r_reg_19_dereg_of_the_remote_region_under_reads<S: Subject>(s: &S) {
    // Of many packets, so that the region ends in the midst of one; more often than once, as it can
    // end between two.
    const LENGTH: usize = 128 * PAGE;
    for _ in 0..3 {
        let p = Pair::rc(s);
        let (local, remote) = (p.a.mr(LENGTH, ALL), p.b.mr(LENGTH, ALL));
        let (started, device) = (AtomicBool::new(false), p.b.device());
        let heard = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !started.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                device.dereg_mr(remote.info.handle).expect("dereg_mr under load");
            });
            let mut succeeded = 0;
            let last = loop {
                let status = p.a.run(Read(remote.remote(0)), &[local.sge(0, LENGTH as u32)]).status;
                started.store(true, Ordering::Release);
                match status {
                    Success if succeeded < MOST => succeeded += 1,
                    other => break other,
                }
            };
            assert!(succeeded > 0);
            let unheard = !keeps("R-REG-19") && last == RetryExcErr;
            assert!(last == RemAccessErr || unheard, "{last:?} after {succeeded} successes");
            !unheard
        });
        p.are(QpState::Err, QpState::Err);
        remote.untouched();
        if heard {
            p.restate();
            p.works();
        }
    }
}

fn r_reg_20_two_regions_over_the_same_memory<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(2));
    let open = p.b.mr_over(p.b.pd, &memory, 0, 2 * PAGE, ALL, None);
    let closed = p.b.mr_over(p.b.pd, &memory, 64, PAGE, Rights::LOCAL_WRITE, None);
    assert_ne!(open.rkey(), closed.rkey());
    let source = p.a.mr(PAGE, Rights::empty());
    p.refused_access(Write(closed.remote(0)), &[source.sge(0, 64)]);
    p.restate();
    p.a.run(Write(open.remote(64)), &[source.sge(0, 64)]).ok();
    closed.holds(0, &source.bytes(0, 64));
    // One ends, the other stays.
    p.b.device().dereg_mr(closed.info.handle).expect("dereg_mr");
    p.a.run(Write(open.remote(64)), &[source.sge(64, 64)]).ok();
    open.holds(64, &source.bytes(64, 64));
    p.refused_access(Write(closed.remote(0)), &[source.sge(0, 64)]);
    open.untouched();
}

fn r_reg_21_region_and_queue_pair_share_a_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, foreign) = (p.a.mr(PAGE, ALL), p.a.mr_in(p.a.new_pd(), PAGE, ALL, None));
    let (sink, elsewhere) = (p.b.mr(PAGE, ALL), p.b.mr_in(p.b.new_pd(), PAGE, ALL, None));
    p.fails_locally(LocProtErr, Write(sink.remote(0)), &[foreign.sge(0, 8)]);
    p.restate();
    p.refused_access(Write(elsewhere.remote(0)), &[own.sge(0, 8)]);
    p.restate();
    elsewhere.untouched();
    sink.untouched();
    p.a.run(Write(sink.remote(0)), &[own.sge(0, 8)]).ok();
    sink.holds(0, &own.bytes(0, 8));
}

fn r_reg_27_null_region_reads_zero_and_swallows_writes<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let null = p.a.device().alloc_null_mr(p.a.pd).expect("alloc_null_mr");
    let sge = |address, length| Sge { address: IoAddr(address), length, lkey: null.lkey };
    let far = p.b.mr(PAGE, ALL);
    // Any address will do; in the middle of a list, the others are served as usual.
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Write(far.remote(0)), &[own.sge(0, 16), sge(u64::MAX - 20, 16), own.sge(16, 16)]).ok();
    far.holds(0, &[own.bytes(0, 16), vec![0; 16], own.bytes(16, 16)].concat());
    p.a.run(Read(far.remote(0)), &[sge(0, 16), own.sge(100, 16), sge(7, 16)]).ok();
    own.holds(100, &[0; 16]);
    far.untouched();
}

fn r_reg_27_null_region_gives_a_peer_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let null = p.b.device().alloc_null_mr(p.b.pd).expect("alloc_null_mr");
    let own = p.a.mr(PAGE, ALL);
    for key in [null.rkey.0, null.lkey.0] {
        p.refused_access(Read(own.remote_by(key, 0)), &[own.sge(0, 8)]);
        p.restate();
    }
    own.untouched();
    let change = mkey_core::device::MrChange { rights: Some(ALL), ..Default::default() };
    // SAFETY: no memory is named.
    let rereg = unsafe { p.b.device().rereg_mr(null.handle, &change) };
    assert!(rereg.is_err(), "a null region can not be re-registered");
    p.b.device().dereg_mr(null.handle).expect("dereg_mr");
}
