//! On-demand memory: the kernel's own words on what the device did with it, beside the bytes.
//!
//! All accesses are from the starts of pages: soft-RoCE of Linux 7.3 copies to and from on-demand
//! memory as if every address were one.

use crate::memory::{PAGE, refused, spec};
use crate::probes::{Paging, Probes};
use crate::side::*;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::*;
use mkey_core::error::Reason;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::*;
use mkey_ibverbs::{IbvDevice, Trial};
use mkey_os::mapping::{Mapping, PageKind};
use std::ops::Range;

const PAGES: usize = 8;
const RIGHTS: Rights = ALL.union(Rights::ON_DEMAND);

/// Memory that parts can be unmapped of, with an on-demand region over it.
struct OnDemand<'a> {
    device: &'a IbvDevice,
    start: *mut u8,
    info: MrInfo,
}

impl<'a> OnDemand<'a> {
    fn new(device: &'a IbvDevice, pd: PdHandle) -> Self {
        let start = map(std::ptr::null_mut(), PAGES);
        let length = (PAGES * PAGE) as u64;
        let address = HostAddr(start as u64);
        let spec = MrSpec { address, length, iova: None, rights: RIGHTS };
        // SAFETY: on-demand memory may be unmapped under its region; the region ends with this.
        let info = unsafe { device.reg_mr(pd, &spec) }.unwrap();
        Self { device, start, info }
    }

    fn address(&self, page: usize) -> IoAddr {
        IoAddr(self.start as u64 + (page * PAGE) as u64)
    }

    fn pages(&self, pages: Range<usize>) -> Range<u64> {
        self.address(pages.start).0..self.address(pages.end).0
    }

    fn remote(&self, page: usize) -> RemoteAddr {
        RemoteAddr { address: self.address(page), rkey: self.info.rkey }
    }

    fn sge(&self, page: usize, length: usize) -> [Sge; 1] {
        let length = u32::try_from(length).unwrap();
        [Sge { address: self.address(page), length, lkey: self.info.lkey }]
    }

    /// The first byte of a page.
    fn first(&self, page: usize) -> u8 {
        assert!(page < PAGES);
        // SAFETY: within the mapping, of which no page is unmapped when this is called.
        unsafe { self.start.add(page * PAGE).read_volatile() }
    }

    fn set(&self, page: usize, byte: u8) {
        assert!(page < PAGES);
        // SAFETY: as for `first`.
        unsafe { self.start.add(page * PAGE).write_volatile(byte) };
    }

    /// Gives the pages back; they read as zeros from then on.
    fn discard(&self, pages: Range<usize>) {
        let (at, length) = self.part(pages);
        // SAFETY: our own pages, of which no reference exists.
        assert_eq!(unsafe { libc::madvise(at.cast(), length, libc::MADV_DONTNEED) }, 0);
    }

    fn unmap(&self, pages: Range<usize>) {
        let (at, length) = self.part(pages);
        // SAFETY: as above; what is mapped there next is `map_again`'s.
        assert_eq!(unsafe { libc::munmap(at.cast(), length) }, 0);
    }

    fn map_again(&self, pages: Range<usize>) {
        let (at, length) = self.part(pages);
        assert_eq!(map(at, length / PAGE), at);
    }

    fn part(&self, pages: Range<usize>) -> (*mut u8, usize) {
        assert!(pages.end <= PAGES);
        (self.start.wrapping_add(pages.start * PAGE), pages.len() * PAGE)
    }
}

impl Drop for OnDemand<'_> {
    fn drop(&mut self) {
        let ended = self.device.dereg_mr(self.info.handle);
        // SAFETY: our own mapping; no region is over it any more, or the test fails.
        unsafe { libc::munmap(self.start.cast(), PAGES * PAGE) };
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Maps pages: anywhere, or where nothing is mapped.
fn map(at: *mut u8, pages: usize) -> *mut u8 {
    let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    if !at.is_null() {
        flags |= libc::MAP_FIXED_NOREPLACE;
    }
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: no mapping is replaced.
    let start = unsafe { libc::mmap(at.cast(), pages * PAGE, rights, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

/// What the kernel did, and the counters that the device should have after it.
struct Watched<'a> {
    probes: Probes,
    memory: &'a OnDemand<'a>,
    counted: OdpStats,
}

impl Watched<'_> {
    /// The pages of the memory that were faulted in and those that were invalidated since the last
    /// call, each as often as it was, in order.
    fn take(&mut self) -> (Vec<usize>, Vec<usize>) {
        let (mut faulted, mut invalidated) = (Vec::new(), Vec::new());
        let whole = self.memory.pages(0..PAGES);
        for paging in self.probes.take(PAGE as u64) {
            let (to, pages) = match paging {
                Paging::Faulted(pages) => (&mut faulted, pages),
                Paging::Invalidated(pages) => (&mut invalidated, pages),
                Paging::LookedUp(_) => continue,
            };
            // Other mappings of this process come and go, too.
            let ours = (pages.start.max(whole.start)..pages.end.min(whole.end)).step_by(PAGE);
            to.extend(ours.map(|at| (at - whole.start) as usize / PAGE));
        }
        faulted.sort_unstable();
        invalidated.sort_unstable();
        self.counted.faults += faulted.len() as u64;
        self.counted.invalidations += invalidated.len() as u64;
        (faulted, invalidated)
    }

    /// Whether the device's own counters say the same.
    fn check(&self, device: &IbvDevice) {
        let driver = &device.capabilities().driver;
        match device.odp_stats(self.memory.info.handle) {
            Ok(stats) => assert_eq!(stats, self.counted, "{driver}"),
            Err(error) => {
                let capability = Capability::OnDemandStats;
                assert_eq!(error.reason, Reason::Unsupported { capability }, "{error}");
                assert_eq!(driver, "rxe", "{error}");
            }
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_odp_01_on_demand_memory_is_refused_where_it_is_not_offered() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let memory = Mapping::new(4 * PAGE, PageKind::Base).unwrap();
    let on_demand = spec(&memory, RIGHTS);
    let whole = MrSpec { address: HostAddr(0), length: u64::MAX, ..on_demand };
    let implicit = Reason::Unsupported { capability: Capability::OnDemandImplicit };
    assert_eq!(refused(&device, pd, &whole), implicit);
    let explicit = device.capabilities().odp.explicit;
    // SAFETY: deregistered below, before the mapping goes.
    match unsafe { device.reg_mr(pd, &on_demand) } {
        Ok(info) => {
            assert!(explicit);
            device.dereg_mr(info.handle).unwrap();
        }
        Err(refused) => {
            assert!(!explicit, "{refused}");
            let capability = Capability::OnDemand;
            assert_eq!(refused.reason, Reason::Unsupported { capability });
            assert!(refused.to_string().contains("on-demand paging"), "{refused}");
            assert!(refused.to_string().contains("which pins it"), "{refused}");
        }
    }
    // SAFETY: as above.
    let pinned = unsafe { device.reg_mr(pd, &spec(&memory, ALL)) }.unwrap();
    let refused = device.odp_stats(pinned.handle).unwrap_err();
    assert!(matches!(refused.reason, Reason::NotHere { .. }), "{refused}");
    device.dereg_mr(pinned.handle).unwrap();
    assert_eq!(device.odp_stats(pinned.handle).unwrap_err().errno(), libc::ENOENT);
    device.dealloc_pd(pd).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_odp_02_to_04_pages_fault_in_once_and_again_when_they_were_taken() {
    // Alone: the probes see the whole machine.
    let (device, _alone) = open_alone();
    if !device.capabilities().odp.explicit {
        // The test above shows that it is refused.
        return;
    }
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let from = Buffer::new(&device, pd, ALL);
    let memory = OnDemand::new(&device, pd);
    let mut watched =
        Watched { probes: Probes::start(), memory: &memory, counted: OdpStats::default() };
    let write = |one: &Side, page: usize, byte: u8| {
        from.set(0, &[byte; 5]);
        one.done(SendOp::Write(memory.remote(page)), &from.sge(0, 5));
        assert_eq!(memory.first(page), byte);
    };
    let none = Vec::<usize>::new();

    // Touched by a WRITE, and there from then on.
    write(&one, 1, b'a');
    assert_eq!(watched.take(), (vec![1], none.clone()));
    write(&one, 1, b'b');
    assert_eq!(watched.take(), (none.clone(), none.clone()));
    // What the program itself has touched since is not known to the device either.
    memory.set(2, b'c');
    one.done(SendOp::Read(memory.remote(2)), &from.sge(0, 5));
    assert_eq!((from.get(0, 1), watched.take()), (b"c".to_vec(), (vec![2], none.clone())));
    // Several pages at once, one of them there.
    one.done(SendOp::Write(memory.remote(2)), &from.sge(0, 3 * PAGE as u32));
    assert_eq!(watched.take(), (vec![3, 4], none.clone()));
    // Gathered from, received into, and changed by an atomic.
    one.done(SendOp::Write(from.remote(0)), &memory.sge(5, 5));
    assert_eq!(watched.take(), (vec![5], none.clone()));
    two.recv(1, &memory.sge(6, PAGE));
    from.set(0, b"r");
    one.done(SendOp::Send, &from.sge(0, 5));
    assert_eq!((two.next().status, memory.first(6)), (WcStatus::Success, b'r'));
    assert_eq!(watched.take(), (vec![6], none.clone()));
    one.done(SendOp::FetchAdd { remote: memory.remote(7), add: 7 }, &from.sge(8, 8));
    assert_eq!((memory.first(7), from.word(8)), (7, 0));
    assert_eq!(watched.take(), (vec![7], none.clone()));
    watched.check(&device);

    // Given back by the program: nothing of the old page is written or read.
    memory.discard(1..3);
    assert_eq!(watched.take(), (none.clone(), vec![1, 2]));
    one.done(SendOp::Read(memory.remote(1)), &from.sge(0, 5));
    assert_eq!((from.get(0, 5), watched.take()), (vec![0; 5], (vec![1], none.clone())));
    write(&one, 2, b'd');
    assert_eq!(watched.take(), (vec![2], none.clone()));
    watched.check(&device);

    // Unmapped: an access is refused, and what is mapped there next is reached by the same key.
    memory.unmap(3..5);
    assert_eq!(watched.take(), (none.clone(), vec![3, 4]));
    let refused = one.run(SendOp::Write(memory.remote(3)), &from.sge(0, 5));
    assert_eq!((refused.status, one.state()), (WcStatus::RemAccessErr, QpState::Err));
    let (again, _other) = pair_in(&device, pd, QpKind::Rc);
    let refused = again.run(SendOp::Write(from.remote(0)), &memory.sge(3, 5));
    // Of itself it is the former; soft-RoCE of Linux 7.3 puts the queue pair into its error state
    // first, and the work is flushed.
    assert!(matches!(refused.status, WcStatus::LocProtErr | WcStatus::WrFlushErr), "{refused:?}");
    assert_eq!(again.state(), QpState::Err);
    let (again, _other) = pair_in(&device, pd, QpKind::Rc);
    memory.map_again(3..5);
    watched.take();
    write(&again, 3, b'e');
    assert_eq!(watched.take(), (vec![3], none.clone()));

    // Advised on, it is there before it is touched: by the kernel's own command where the library's
    // provider does not know it.
    assert_eq!(device.tried().advise, Trial::Works);
    memory.discard(0..PAGES);
    watched.take();
    device.advise_mr(pd, Advice::PrefetchWrite, true, &memory.sge(0, 3 * PAGE)).unwrap();
    assert_eq!(watched.take(), (vec![0, 1, 2], none.clone()));
    watched.counted.faults -= 3;
    watched.counted.prefetches += 3;
    write(&again, 1, b'f');
    assert_eq!(watched.take(), (none.clone(), none.clone()));
    watched.check(&device);
    let outside = [Sge { address: memory.address(PAGES), ..memory.sge(0, 8)[0] }];
    let refused = device.advise_mr(pd, Advice::Prefetch, true, &outside).unwrap_err();
    assert_ne!(refused.errno(), libc::EOPNOTSUPP, "{refused}");
    assert_eq!(watched.take(), (none.clone(), none));
}

/// What becomes of the counters for a user who may not see the keys of regions.
pub fn as_an_unprivileged_user(device: &IbvDevice, pd: PdHandle) {
    if !device.capabilities().odp.explicit {
        return;
    }
    let memory = OnDemand::new(device, pd);
    let refused = device.odp_stats(memory.info.handle).unwrap_err();
    assert_eq!(refused.errno(), libc::EPERM, "{refused}");
    assert!(refused.to_string().contains("CAP_NET_ADMIN"), "{refused}");
}
