//! R-REG-23 to 26: registration of a file descriptor's memory.
//!
//! The memory is that of memfds, which no process has mapped: they are read and written by their
//! descriptors.

use crate::expect::Expect;
use crate::fixture::{ALL, Side, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::registry::rule_tests;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, DmaBufSpec, MrChange, MrInfo, ReregState};
use mkey_core::error::errno::EINVAL;
use mkey_core::error::{Reason, Result};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{RemAccessErr, Success};
use mkey_core::work::SendOp::{FetchAdd, Read, Write};
use mkey_core::work::{RemoteAddr, Sge};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsFd, OwnedFd};

rule_tests! {
    r_reg_23_only_plain_rights needs [DmaBuf] also ["R-REG-01"],
    r_reg_24_offset_and_io_address_agree_within_the_page needs [DmaBuf],
    r_reg_25_range_outside_the_memory needs [DmaBuf],
    r_reg_26_accesses_count_from_the_io_address needs [DmaBuf],
    r_reg_26_no_mapping_of_the_program_is_needed needs [DmaBuf],
    r_reg_18_dereg_of_a_descriptors_memory needs [DmaBuf],
    r_rrg_02_a_descriptors_memory_can_not_be_reregistered needs [DmaBuf, Rereg],
}

/// Memory behind a descriptor, every byte another than its neighbours.
struct File(OwnedFd);

impl File {
    #[track_caller]
    fn filled(pages: usize) -> Self {
        let fd = memfd_create("mkey-conformance", MemfdFlags::CLOEXEC).expect("memfd_create");
        let len = pages * PAGE;
        ftruncate(&fd, len as u64).expect("ftruncate");
        let content: Vec<u8> = (0..len).map(|at| (at * 7 + at / PAGE) as u8).collect();
        assert_eq!(rustix::io::pwrite(&fd, &content, 0), Ok(len));
        Self(fd)
    }

    #[track_caller]
    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        assert_eq!(rustix::io::pread(&self.0, &mut bytes, offset as u64), Ok(length));
        bytes
    }

    fn spec(&self, offset: u64, length: u64, iova: u64, rights: Rights) -> DmaBufSpec<'_> {
        DmaBufSpec { fd: self.0.as_fd(), offset, length, iova: IoAddr(iova), rights }
    }
}

fn reg<S: Subject>(side: &Side<'_, S>, spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
    // SAFETY: nobody has the memory mapped, so there are no references to it.
    unsafe { side.device().reg_dmabuf_mr(side.pd, spec) }
}

/// The reason of a registration that has to be refused with EINVAL.
#[track_caller]
fn refused<S: Subject>(side: &Side<'_, S>, spec: &DmaBufSpec<'_>) -> Reason {
    let error = reg(side, spec).expect_err("the registration has to be refused");
    assert_eq!(error.errno(), EINVAL, "{error}");
    error.reason
}

fn at(info: &MrInfo, address: u64) -> RemoteAddr {
    RemoteAddr { address: IoAddr(address), rkey: info.rkey }
}

fn r_reg_23_only_plain_rights<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(1);
    let spec = |rights| file.spec(0, PAGE as u64, 0, rights);
    let plain = ALL | Rights::RELAXED_ORDERING;
    for bit in (0..32).map(|bit| Rights::from_bits_retain(1 << bit)) {
        if !plain.contains(bit) {
            let reason = refused(&p.b, &spec(ALL | bit));
            assert_eq!(reason, Reason::UnfitRights { rights: bit });
        }
    }
    for right in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
        assert_eq!(refused(&p.b, &spec(right)), Reason::InvalidRights { rights: right });
    }
    for rights in [plain, Rights::empty(), Rights::LOCAL_WRITE, Rights::REMOTE_READ] {
        let info = reg(&p.b, &spec(rights)).expect("plain rights");
        // They are the region's rights, and no more than that.
        let (own, readable) = (p.a.mr(PAGE, ALL), rights.contains(Rights::REMOTE_READ));
        let expected = if readable { Success } else { RemAccessErr };
        p.a.run(Read(at(&info, 0)), &[own.sge(0, 64)]).is(expected);
        if !readable {
            p.restate();
        }
        if !rights.contains(Rights::REMOTE_WRITE) {
            p.refused_access(Write(at(&info, 0)), &[own.sge(0, 64)]);
            p.restate();
        }
        p.b.device().dereg_mr(info.handle).expect("dereg_mr");
    }
}

fn r_reg_24_offset_and_io_address_agree_within_the_page<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(3);
    for (offset, iova) in [(0, 1), (1, 0), (0x801, 0x5800), (0x1000, 0x7fff_ffff_f001)] {
        let spec = file.spec(offset, 64, iova, ALL);
        let reason = refused(&p.b, &spec);
        assert_eq!(reason, Reason::FileOffset { offset, iova: IoAddr(iova) });
    }
    for (offset, iova) in [(0, 0), (0, 1 << 40), (0x1801, 0x801), (1, 0x7fff_ffff_f001)] {
        let info = reg(&p.b, &file.spec(offset, 64, iova, ALL)).expect("they agree");
        let own = p.a.mr(PAGE, ALL);
        p.a.run(Read(at(&info, iova)), &[own.sge(0, 64)]).ok();
        own.holds(0, &file.bytes(offset as usize, 64));
    }
}

fn r_reg_25_range_outside_the_memory<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(2);
    let size = 2 * PAGE as u64;
    for (offset, length) in [
        (0, size + 1),
        (PAGE as u64, PAGE as u64 + 1),
        (size, 1),
        (size + PAGE as u64, 0),
        (0, u64::MAX),
        (size - 1, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
    ] {
        let reason = refused(&p.b, &file.spec(offset, length, offset, ALL));
        assert_eq!(reason, Reason::OutsideFile { offset, length, size });
    }
    for (offset, length) in [(0, size), (size - 1, 1), (PAGE as u64, PAGE as u64)] {
        reg(&p.b, &file.spec(offset, length, offset, ALL)).expect("up to the end");
    }
    // What has no memory at all has none of that length.
    let pipe = rustix::pipe::pipe().expect("pipe");
    let spec = DmaBufSpec { fd: pipe.0.as_fd(), ..file.spec(0, 1, 0, ALL) };
    refused(&p.b, &spec);
}

fn r_reg_26_accesses_count_from_the_io_address<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(4);
    let (offset, length, iova) = (PAGE as u64 + 8, 2 * PAGE as u64, (5 << 32) + 8);
    let info = reg(&p.b, &file.spec(offset, length, iova, ALL)).expect("reg_dmabuf_mr");
    let own = p.a.mr(2 * PAGE, ALL);
    let mut expected = file.bytes(0, 4 * PAGE);
    for into in [0, 1, PAGE, 2 * PAGE - 64] {
        p.a.run(Write(at(&info, iova + into as u64)), &[own.sge(into as i64, 64)]).ok();
        let start = offset as usize + into;
        expected[start..start + 64].copy_from_slice(&own.bytes(into, 64));
    }
    // As an entry of the owner's, too.
    let far = p.a.mr(PAGE, ALL);
    let sge = Sge { address: IoAddr(iova + 100), length: 50, lkey: info.lkey };
    p.b.run(Write(far.remote(0)), &[sge]).ok();
    far.holds(0, &expected[offset as usize + 100..][..50]);
    for (address, length) in [
        (iova - 1, 2),
        (iova + length - 1, 2),
        // Offsets are no addresses.
        (offset, 8),
        (0, 8),
    ] {
        p.refused_access(Write(at(&info, address)), &[own.sge(0, length)]);
        p.restate();
    }
    assert!(file.bytes(0, 4 * PAGE) == expected, "a byte changed that may not have");
}

fn r_reg_26_no_mapping_of_the_program_is_needed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(2);
    let also = File(file.0.try_clone().expect("dup"));
    let info = reg(&p.b, &file.spec(0, 2 * PAGE as u64, 0, ALL)).expect("reg_dmabuf_mr");
    // Nor is the descriptor, once it is registered.
    drop(file);
    let own = p.a.mr(2 * PAGE, ALL);
    p.a.run(Write(at(&info, 0)), &[own.sge(0, 2 * PAGE as u32)]).ok();
    assert!(also.bytes(0, 2 * PAGE) == own.bytes(0, 2 * PAGE), "written through");
    if p.b.device().capabilities().atomics {
        let word = u64::from_ne_bytes(also.bytes(PAGE, 8).try_into().expect("8 bytes"));
        let add = FetchAdd { remote: at(&info, PAGE as u64), add: 5 };
        p.a.run(add, &[own.sge(0, 8)]).ok();
        assert_eq!(also.bytes(PAGE, 8), word.wrapping_add(5).to_ne_bytes());
    }
    // What others do to the memory is seen.
    assert_eq!(rustix::io::pwrite(&also.0, b"elsewhere", 77), Ok(9));
    p.a.run(Read(at(&info, 77)), &[own.sge(100, 9)]).ok();
    assert_eq!(own.bytes(100, 9), b"elsewhere");
}

fn r_reg_18_dereg_of_a_descriptors_memory<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(1);
    let own = p.a.mr(PAGE, ALL);
    let before = file.bytes(0, PAGE);
    for _ in 0..3 {
        let info = reg(&p.b, &file.spec(0, PAGE as u64, 0, ALL)).expect("reg_dmabuf_mr");
        p.b.device().dereg_mr(info.handle).expect("dereg_mr");
        p.refused_access(Write(at(&info, 0)), &[own.sge(0, 64)]);
        p.restate();
    }
    assert!(file.bytes(0, PAGE) == before, "written after deregistration");
}

fn r_rrg_02_a_descriptors_memory_can_not_be_reregistered<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let file = File::filled(1);
    let info = reg(&p.b, &file.spec(0, PAGE as u64, 0, ALL)).expect("reg_dmabuf_mr");
    let memory = p.b.mr(PAGE, ALL);
    let to = Some((mkey_core::address::HostAddr(memory.base), PAGE as u64));
    for change in [
        MrChange { rights: Some(Rights::empty()), ..MrChange::default() },
        MrChange { translation: to, ..MrChange::default() },
        MrChange { pd: Some(p.b.new_pd()), ..MrChange::default() },
    ] {
        // SAFETY: the memory named is only accessed volatile, and outlives the device.
        let failed = unsafe { p.b.device().rereg_mr(info.handle, &change) }
            .expect_err("only memory of the process can be re-registered");
        assert_eq!((failed.error.errno(), failed.state), (EINVAL, ReregState::Unchanged));
    }
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Write(at(&info, 0)), &[own.sge(0, 64)]).ok();
    assert_eq!(file.bytes(0, 64), own.bytes(0, 64));
}
