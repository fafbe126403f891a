//! Memory that the program takes away under a live registration: refused with the reason, or
//! served as a NIC does. Needs userfaultfd (and io_uring for the NIC's way); without them a test
//! fails and says what is missing.

mod common;

use common::*;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{Device, MrInfo, MrSpec, RefusedBy};
use mkey_core::key::Rkey;
use mkey_core::queue_pair::QpKind;
use mkey_core::refusal::{DetachCause, Refusal};
use mkey_core::status::WcStatus::{LocProtErr, RemAccessErr, Success};
use mkey_core::work::{RemoteAddr, SendOp, Sge};
use mkey_os::events::Event;
use mkey_soft::{PinMode, SoftOptions, Stale};
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 16;

/// Pages at an address of the kernel's choice. The place is never given back: tests run side by
/// side in one process, and another's memory could come to lie there.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Self {
        Self(map(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE))
    }

    fn set(&self, offset: usize, value: u8) {
        // SAFETY: tests touch only what is mapped at that moment.
        unsafe { self.0.add(offset).write_volatile(value) }
    }

    fn get(&self, offset: usize) -> u8 {
        // SAFETY: as above.
        unsafe { self.0.add(offset).read_volatile() }
    }

    /// Takes pages away; the place stays taken.
    fn unmap(&self, first: usize, count: usize) {
        self.replace(first, count, libc::PROT_NONE);
    }

    fn map_anew(&self, first: usize, count: usize) {
        self.replace(first, count, libc::PROT_READ | libc::PROT_WRITE);
    }

    fn replace(&self, first: usize, count: usize, protection: i32) {
        let at = self.0.wrapping_add(first * PAGE);
        assert_eq!(map(at, count * PAGE, protection), at);
    }

    fn discard(&self, first: usize, count: usize) {
        // SAFETY: pages of this mapping, to which there are no references.
        let answer = unsafe {
            libc::madvise(self.0.add(first * PAGE).cast(), count * PAGE, libc::MADV_DONTNEED)
        };
        assert_eq!(answer, 0);
    }

    fn register(&self, side: &Side) -> MrInfo {
        let (address, length) = (HostAddr(self.0 as u64), (PAGES * PAGE) as u64);
        let spec = MrSpec { address, length, iova: None, rights: ALL };
        // SAFETY: the memory is only touched through volatile accesses; that it goes away is what
        // the test is about.
        unsafe { side.device.reg_mr(side.pd, &spec) }.unwrap()
    }

    fn remote(&self, offset: usize, rkey: Rkey) -> RemoteAddr {
        RemoteAddr { address: IoAddr(self.0 as u64 + offset as u64), rkey }
    }
}

fn map(at: *mut u8, len: usize, protection: i32) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: a new mapping, in a place of the kernel's choice or over one of ours to which there
    // are no references.
    let start = unsafe { libc::mmap(at.cast(), len, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

#[track_caller]
fn needs_events(side: &Side) {
    let lacking: Vec<_> =
        side.device.notes().into_iter().filter(|n| n.contains("unmap events")).collect();
    assert!(lacking.is_empty(), "this test needs unmap events: {lacking:?}");
}

/// Takes pages 4 to 7 away in a way, and sees that only accesses that meet them are refused.
fn refused(take: impl Fn(&Pages), cause: DetachCause) {
    let (a, b) = pair(QpKind::Rc);
    needs_events(&a);
    let own = a.buffer(ALL);
    own.set(0, 7);
    let pages = Pages::new();
    let mr = pages.register(&b);
    take(&pages);
    let write = |offset: usize| {
        a.post(1, SendOp::Write(pages.remote(offset, mr.rkey)), &[own.sge(0, 64)]);
        a.done()[0].1
    };
    assert_eq!(write(4 * PAGE - 64), Success);
    assert_eq!(write(8 * PAGE), Success);
    assert_eq!(write(5 * PAGE + 3), RemAccessErr);
    let reports = a.device.refusals().unwrap();
    let RefusedBy::Access(Refusal::Detached { range, cause: found, .. }) =
        reports.last().unwrap().refusal
    else {
        panic!("{reports:?}")
    };
    assert_eq!((range.start.0, range.len), (pages.0 as u64 + 5 * PAGE as u64 + 3, 64));
    assert_eq!(found, cause);
    assert_eq!(pages.get(5 * PAGE + 3), 0, "the new page was not touched");
    // A new registration of the same place knows nothing of the old one's fate.
    for side in [&a, &b] {
        side.go(mkey_core::queue_pair::QpState::Reset);
    }
    connect(&a, &b);
    let anew = pages.register(&b);
    a.post(2, SendOp::Write(pages.remote(5 * PAGE, anew.rkey)), &[own.sge(0, 64)]);
    assert_eq!(a.done(), [(2, Success)]);
    assert_eq!(pages.get(5 * PAGE), 7);
    b.device.dereg_mr(mr.handle).unwrap();
    b.device.dereg_mr(anew.handle).unwrap();
}

#[test]
fn unmapped_and_mapped_anew_is_refused() {
    refused(|pages| pages.map_anew(4, 4), DetachCause::Unmapped);
}

/// A mapping has one watcher, and the process one for all who want to know of it.
#[test]
fn others_hear_of_the_same_memory_and_the_device_does_so_still() {
    static HEARD: AtomicU64 = AtomicU64::new(0);
    static PLACE: AtomicU64 = AtomicU64::new(0);
    fn hear(event: &Event) {
        if event.range.start as u64 == PLACE.load(Ordering::SeqCst) {
            HEARD.fetch_add(1, Ordering::SeqCst);
        }
    }
    let watcher = mkey_os::events::process().expect("unmap events");
    watcher.add_sink(&(hear as fn(&Event)));
    let guards = std::cell::RefCell::new(Vec::new());
    let take = |pages: &Pages| {
        let start = pages.0 as usize;
        guards.borrow_mut().push(watcher.watch(start..start + PAGES * PAGE).unwrap());
        PLACE.store((start + 4 * PAGE) as u64, Ordering::SeqCst);
        pages.map_anew(4, 4);
        watcher.in_hand().wait();
        assert_eq!(HEARD.load(Ordering::SeqCst), 1);
    };
    refused(take, DetachCause::Unmapped);
}

#[test]
fn discarded_is_refused() {
    refused(|pages| pages.discard(4, 4), DetachCause::Discarded);
}

#[test]
fn unmapped_as_a_source_is_a_local_error() {
    let (a, b) = pair(QpKind::Rc);
    needs_events(&a);
    let target = b.buffer(ALL);
    let pages = Pages::new();
    let mr = pages.register(&a);
    pages.unmap(0, PAGES);
    let sge = Sge { address: IoAddr(pages.0 as u64), length: 8, lkey: mr.lkey };
    a.post(1, SendOp::Write(target.remote(0)), &[sge]);
    assert_eq!(a.done(), [(1, LocProtErr)]);
}

#[test]
fn without_events_unmapped_memory_is_refused_by_the_mmu() {
    let (a, b) = pair_on(SoftOptions { watch: false, ..options() }, QpKind::Rc);
    let own = a.buffer(ALL);
    let pages = Pages::new();
    let mr = pages.register(&b);
    pages.unmap(4, 4);
    a.post(1, SendOp::Write(pages.remote(5 * PAGE, mr.rkey)), &[own.sge(0, 64)]);
    assert_eq!(a.done(), [(1, RemAccessErr)]);
    let reports = a.device.refusals().unwrap();
    let refusal = reports.last().unwrap().refusal;
    assert!(matches!(refusal, RefusedBy::Access(Refusal::NotPresent { .. })), "{refusal:?}");
}

#[test]
fn a_nic_goes_on_with_the_pages_it_has_pinned() {
    let options = SoftOptions { stale: Stale::Nic, pin: PinMode::Kernel, ..options() };
    let (a, b) = pair_on(options, QpKind::Rc);
    needs_events(&a);
    let own = a.buffer(ALL);
    let pages = Pages::new();
    pages.set(5 * PAGE, 1);
    let mr = pages.register(&b);
    let notes = b.device.notes();
    assert!(
        !notes.iter().any(|note| note.contains("pinning fell back")),
        "this test needs io_uring: {notes:?}"
    );
    pages.map_anew(4, 4);
    pages.set(5 * PAGE, 2);
    // It reads what was there.
    a.post(1, SendOp::Read(pages.remote(5 * PAGE, mr.rkey)), &[own.sge(0, 8)]);
    assert_eq!(a.done(), [(1, Success)]);
    assert_eq!(own.get(0), 1);
    // It writes, says success, and the program does not see it. The access meets both kinds of
    // pages.
    own.set(0, 3);
    own.set(PAGE, 4);
    let at = 3 * PAGE;
    a.post(2, SendOp::Write(pages.remote(at, mr.rkey)), &[own.sge(0, 2 * PAGE as u32)]);
    assert_eq!(a.done(), [(2, Success)]);
    assert_eq!((pages.get(at), pages.get(at + PAGE)), (3, 0));
    a.post(3, SendOp::Read(pages.remote(at + PAGE, mr.rkey)), &[own.sge(8, 8)]);
    assert_eq!(a.done(), [(3, Success)]);
    assert_eq!(own.get(8), 4);
    let remote = pages.remote(6 * PAGE, mr.rkey);
    for before in [0, 5] {
        a.post(4, SendOp::FetchAdd { remote, add: 5 }, &[own.sge(16, 8)]);
        assert_eq!((a.done(), own.get(16)), (vec![(4, Success)], before));
    }
    assert_eq!(pages.get(6 * PAGE), 0);
}
