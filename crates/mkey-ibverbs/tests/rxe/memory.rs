//! Registrations.

use crate::side::*;
use crate::{elsewhere, on_demand};
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::*;
use mkey_core::error::Reason;
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::*;
use mkey_ibverbs::IbvDevice;
use mkey_os::confine;
use mkey_os::mapping::{Mapping, PageKind};
use std::os::unix::process::CommandExt;
use std::process::Command;

pub const PAGE: usize = 4096;

pub fn spec(map: &Mapping, rights: Rights) -> MrSpec {
    MrSpec { address: HostAddr(map.addr() as u64), length: map.len() as u64, iova: None, rights }
}

/// Why a registration is refused.
pub fn refused(device: &IbvDevice, pd: PdHandle, spec: &MrSpec) -> Reason {
    // SAFETY: it is refused; if not, the test ends and with it the device, before any work.
    unsafe { device.reg_mr(pd, spec) }.expect_err("it is refused").reason
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_reg_11_to_13_addresses_count_from_where_the_registration_says() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let from = Buffer::new(&device, pd, ALL);
    let map = Mapping::new(4 * PAGE, PageKind::Base).unwrap();
    let base = spec(&map, ALL);
    for (spec, first) in [
        (MrSpec { iova: Some(IoAddr(0x1_0000_0000)), ..base }, 0x1_0000_0000),
        (MrSpec { rights: ALL | Rights::ZERO_BASED, ..base }, 0),
    ] {
        // SAFETY: deregistered below, before the mapping goes.
        let info = unsafe { device.reg_mr(pd, &spec) }.unwrap();
        from.set(0, b"shifted");
        let remote = RemoteAddr { address: IoAddr(first + 5), rkey: info.rkey };
        one.done(SendOp::Write(remote), &from.sge(0, 7));
        let landing = [Sge { address: IoAddr(first + 5), length: 7, lkey: info.lkey }];
        one.done(SendOp::Write(from.remote(100)), &landing);
        assert_eq!(from.get(100, 7), b"shifted");
        device.dereg_mr(info.handle).unwrap();
    }
    let crooked = MrSpec { iova: Some(IoAddr(0x1001)), ..base };
    assert!(matches!(refused(&device, pd, &crooked), Reason::PageOffset { .. }));
    let crooked = MrSpec {
        address: HostAddr(base.address.0 + 1),
        length: 8,
        iova: None,
        rights: ALL | Rights::ZERO_BASED,
    };
    assert!(matches!(refused(&device, pd, &crooked), Reason::PageOffset { .. }));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_reg_08_and_10_bad_memory_is_told_by_its_range() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let map = Mapping::new(4 * PAGE, PageKind::Base).unwrap();
    let range = |page: usize| {
        let start = HostAddr((map.addr() + page * PAGE) as u64);
        HostRange { start, len: (2 * PAGE) as u64 }
    };
    // SAFETY: whole pages of our own mapping, of which no reference exists.
    let rc =
        unsafe { libc::mprotect(map.as_ptr().add(2 * PAGE).cast(), 2 * PAGE, libc::PROT_READ) };
    assert_eq!(rc, 0);
    let writable = spec(&map, Rights::LOCAL_WRITE);
    assert_eq!(refused(&device, pd, &writable), Reason::NotWritable { range: range(2) });
    // SAFETY: as above: the mapping is replaced by one that nothing can be read from, so that no
    // other takes its place.
    let hole = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(map.as_ptr().add(2 * PAGE).cast(), 2 * PAGE, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(hole, libc::MAP_FAILED);
    // With local rights, since kernels before 6.2 let unreadable memory be registered for reading.
    assert_eq!(
        refused(&device, pd, &spec(&map, Rights::LOCAL_WRITE)),
        Reason::NotMapped { range: range(2) }
    );
    let wild = MrSpec { address: HostAddr(u64::MAX - 10), length: 100, ..writable };
    assert!(matches!(refused(&device, pd, &wild), Reason::Wraps { .. }));
    let orphan = MrSpec { rights: Rights::REMOTE_WRITE, ..writable };
    assert!(matches!(refused(&device, pd, &orphan), Reason::InvalidRights { .. }));
    device.dealloc_pd(pd).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_rrg_08_rights_change_in_place_where_the_device_can() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, ALL));
    let rights = Some(Rights::LOCAL_WRITE | Rights::REMOTE_READ);
    let change = MrChange { rights, ..MrChange::default() };
    // SAFETY: the memory stays as it is, and rights are taken away.
    match unsafe { device.rereg_mr(to.info.handle, &change) } {
        Ok(info) => {
            assert!(device.capabilities().rereg);
            let remote = RemoteAddr { address: to.at(0), rkey: info.rkey };
            let completion = one.run(SendOp::Write(remote), &from.sge(0, 1));
            assert_eq!(completion.status, WcStatus::RemAccessErr);
        }
        Err(failed) => {
            assert!(!device.capabilities().rereg, "{failed}");
            assert_eq!(failed.error.reason, Reason::Unsupported { capability: Capability::Rereg });
            assert_ne!(failed.state, ReregState::Lost);
            one.done(SendOp::Write(to.remote(0)), &from.sge(0, 1));
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn what_the_device_does_not_offer_is_unsupported() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let lacks = |capability| Reason::Unsupported { capability };
    assert_eq!(device.alloc_null_mr(pd).unwrap_err().reason, lacks(Capability::NullMr));
    assert_eq!(device.alloc_fast_mr(pd, 4).unwrap_err().reason, lacks(Capability::FastMr));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let fd = std::os::fd::AsFd::as_fd(&file);
    let spec =
        DmaBufSpec { fd, offset: 0, length: 4096, iova: IoAddr(0), rights: Rights::LOCAL_WRITE };
    // SAFETY: it is refused.
    let refused = unsafe { device.reg_dmabuf_mr(pd, &spec) }.unwrap_err();
    assert_eq!(refused.reason, lacks(Capability::DmaBuf));
    device.dealloc_pd(pd).unwrap();
}

const LIMIT_BYTES: u64 = 64 << 10;

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_reg_09_a_small_memory_lock_is_named_with_its_mend() {
    let (_device, _stays) = open();
    let mut child = Command::new(std::env::current_exe().unwrap());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        child.pre_exec(|| {
            let confined = confine::limit_memlock(LIMIT_BYTES)
                .and_then(|()| confine::become_user(confine::NOBODY));
            confined.map_err(|_| std::io::Error::last_os_error())
        });
    }
    elsewhere::run(child, UNPRIVILEGED);
}

const UNPRIVILEGED: &str = "memory::as_an_unprivileged_user";

/// What the test above runs in another process.
#[test]
#[ignore = "run by r_reg_09_a_small_memory_lock_is_named_with_its_mend"]
fn as_an_unprivileged_user() {
    if !elsewhere::is_for(UNPRIVILEGED) {
        return;
    }
    let device = IbvDevice::open(NAME).unwrap_or_else(|error| panic!("{error}"));
    let pd = device.alloc_pd().unwrap();
    let fits = Mapping::new(8 * PAGE, PageKind::Base).unwrap();
    // SAFETY: deregistered below, before the mapping goes.
    let kept = unsafe { device.reg_mr(pd, &spec(&fits, ALL)) }.unwrap();
    let map = Mapping::new(16 * PAGE, PageKind::Base).unwrap();
    // SAFETY: it is refused.
    let refused = unsafe { device.reg_mr(pd, &spec(&map, ALL)) }.unwrap_err();
    let (needed, used) = (16 * PAGE as u64, 8 * PAGE as u64);
    assert_eq!(refused.reason, Reason::MemlockLimit { needed, used, limit: LIMIT_BYTES });
    assert!(refused.to_string().contains("prlimit"), "{refused}");
    device.dereg_mr(kept.handle).unwrap();
    on_demand::as_an_unprivileged_user(&device, pd);
    elsewhere::tried(UNPRIVILEGED, refused);
}
