//! Pinned spans: what is held, shared, split, refused as the verbs refuse, and let go.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::{Ended, PAGE, Pages, in_child};
use mkey_os::error::Errno;
use mkey_os::limits;
use mkey_os::mapping::{Mapping, PageKind};
use mkey_os::pin::{PinError, PinMode, PinRequest, PinnedAccessError, Pinner};

fn request(addr: *mut u8, len: usize) -> PinRequest {
    PinRequest { addr: addr as usize, len, write: true, page: None }
}

fn read_only(addr: *mut u8, len: usize) -> PinRequest {
    PinRequest { write: false, ..request(addr, len) }
}

/// A pinner by the kernel; a machine that denies io_uring cannot run the test.
fn kernel() -> Pinner {
    let pinner = Pinner::new(PinMode::Kernel);
    let pages = Pages::new(1);
    let guard = pinner.pin(&request(pages.addr, 1)).unwrap();
    assert_eq!(guard.mode(), PinMode::Kernel, "SKIP: {:?}", pinner.stats().refusals);
    pinner
}

#[test]
fn a_span_lives_as_long_as_its_last_user() {
    let pinner = kernel();
    let pages = Pages::new(8);
    let first = pinner.pin(&request(pages.page(1), 3 * PAGE)).unwrap();
    let stats = pinner.stats();
    assert_eq!((stats.kernel.spans, stats.kernel.bytes), (1, 3 * PAGE as u64));
    let second = pinner.pin(&request(pages.page(2).wrapping_add(5), 10)).unwrap();
    assert_eq!(pinner.stats().kernel.spans, 1);
    assert_eq!(pinner.stats().shared, stats.shared + 1);
    drop(first);
    assert_eq!(pinner.stats().kernel.spans, 1);
    drop(second);
    assert_eq!(pinner.stats().kernel, Default::default());
}

#[test]
fn only_what_is_not_pinned_yet_is_pinned() {
    let pinner = kernel();
    let pages = Pages::new(10);
    let islands: Vec<_> =
        [1, 4, 7].map(|i| pinner.pin(&request(pages.page(i), PAGE)).unwrap()).into();
    let all = pinner.pin(&request(pages.addr, 10 * PAGE)).unwrap();
    let stats = pinner.stats();
    // Three islands and the four gaps around them; no page twice.
    assert_eq!((stats.kernel.spans, stats.kernel.bytes), (7, 10 * PAGE as u64));
    drop(islands);
    assert_eq!(pinner.stats().kernel.bytes, 10 * PAGE as u64);
    drop(all);
    assert_eq!(pinner.stats().kernel.bytes, 0);
}

#[test]
fn the_kernel_says_that_the_pages_are_pinned() {
    let ended = in_child(|| {
        let before = limits::held().unwrap().pinned;
        let pinner = kernel();
        let pages = Pages::new(100);
        let guard = pinner.pin(&request(pages.addr, 100 * PAGE)).unwrap();
        let held = limits::held().unwrap().pinned;
        assert!(held >= before + 100 * PAGE as u64, "{before} {held}");
        drop(guard);
        assert!(limits::held().unwrap().pinned < held);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn r_reg_06_length_zero_pins_nothing() {
    let pinner = Pinner::new(PinMode::Kernel);
    for addr in [0, 1, PAGE, usize::MAX - PAGE] {
        let zero = PinRequest { addr, len: 0, write: true, page: None };
        let guard = pinner.pin(&zero).unwrap();
        assert_eq!(guard.mode(), PinMode::Kernel);
    }
    assert_eq!(pinner.stats().kernel.spans, 0);
}

#[test]
fn r_reg_07_wrapping_is_einval() {
    for mode in PinMode::ALL {
        let pinner = Pinner::new(mode);
        for (addr, len) in
            [(usize::MAX, 1), (usize::MAX, usize::MAX), (1, usize::MAX), (0, usize::MAX)]
        {
            let error =
                pinner.pin(&PinRequest { addr, len, write: false, page: None }).unwrap_err();
            assert_eq!(error, PinError::Wraps { addr, len });
            assert_eq!(error.errno(), Errno::INVAL);
        }
        let huge = PinRequest { addr: 0, len: usize::MAX - PAGE, write: true, page: None };
        assert_eq!(pinner.pin(&huge).unwrap_err().errno(), Errno::FAULT);
    }
}

#[test]
fn r_reg_08_unmapped_memory_is_efault_in_every_mode() {
    // In a child: no other thread may map something into the hole.
    let ended = in_child(|| {
        for mode in PinMode::ALL {
            let pinner = Pinner::new(mode);
            let pages = Pages::new(4);
            // The ring's own mappings must exist before there is a hole they could fall into.
            drop(pinner.pin(&request(pages.addr, 1)).unwrap());
            pages.unmap(2, 1);
            for write in [false, true] {
                let at = |addr: *mut u8, len| PinRequest { write, ..request(addr, len) };
                let error = pinner.pin(&at(pages.addr, 4 * PAGE)).unwrap_err();
                let (addr, len) = (pages.addr as usize, 4 * PAGE);
                assert_eq!(error, PinError::Fault { addr, len, write }, "{mode}");
                assert_eq!(error.errno(), Errno::FAULT);
                assert!(pinner.pin(&at(pages.page(2), 1)).is_err(), "{mode}");
                assert!(pinner.pin(&at(std::ptr::null_mut(), 1)).is_err(), "{mode}");
                assert!(pinner.pin(&at(pages.addr, 2 * PAGE)).is_ok(), "{mode}");
            }
            let stats = pinner.stats();
            let held = [stats.kernel, stats.mlock, stats.none];
            assert_eq!(held, [Default::default(); 3], "a failed pin must leave nothing");
            pages.replace(2, 1);
        }
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn r_reg_08_a_hole_beside_a_live_span_leaves_that_span_alone() {
    // In a child: no other thread may map something into the hole.
    let ended = in_child(|| {
        let pinner = kernel();
        let pages = Pages::new(4);
        let live = pinner.pin(&request(pages.addr, PAGE)).unwrap();
        pages.unmap(3, 1);
        assert!(pinner.pin(&request(pages.addr, 4 * PAGE)).is_err());
        assert_eq!(pinner.stats().kernel.spans, 1);
        drop(live);
        assert_eq!(pinner.stats().kernel.spans, 0);
        pages.replace(3, 1);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn r_reg_10_read_only_memory_is_efault_for_writing_only() {
    for mode in PinMode::ALL {
        let pinner = Pinner::new(mode);
        let pages = Pages::new(3);
        pages.fill(1);
        pages.protect(1, 1, libc::PROT_READ);
        let error = pinner.pin(&request(pages.page(1), PAGE)).unwrap_err();
        assert_eq!(error.errno(), Errno::FAULT, "{mode}");
        let guard = pinner.pin(&read_only(pages.page(1), PAGE)).unwrap();
        // The kernel's pin wants writable pages: held by the next mode, and reported.
        assert_eq!(guard.mode(), mode.max(PinMode::Mlock));
        if mode == PinMode::Kernel {
            let stats = pinner.stats();
            let refused = stats.refusals.iter().find(|r| r.mode == PinMode::Kernel).unwrap();
            assert!(refused.spans >= 1);
            assert_eq!(stats.weakest(), PinMode::Mlock);
        }
        // Its span being live does not make the memory writable.
        let error = pinner.pin(&request(pages.page(1), PAGE)).unwrap_err();
        assert_eq!(error.errno(), Errno::FAULT, "{mode}");
        let error = pinner.pin(&request(pages.page(0), 3 * PAGE)).unwrap_err();
        assert_eq!(error.errno(), Errno::FAULT, "{mode}");
        drop(guard);
        pages.protect(1, 1, libc::PROT_NONE);
        assert!(pinner.pin(&read_only(pages.page(1), 1)).is_err(), "{mode}");
    }
}

#[test]
fn sixteen_thousand_spans_and_more_take_another_ring() {
    let pinner = kernel();
    let count = 17_000;
    let pages = Pages::new(2 * count);
    let guards: Vec<_> =
        (0..count).map(|i| pinner.pin(&request(pages.page(2 * i), PAGE)).unwrap()).collect();
    let stats = pinner.stats();
    assert_eq!(stats.kernel.spans, count as u64);
    assert_eq!(stats.refusals, []);
    for (i, guard) in guards.iter().enumerate().skip(16_000).step_by(100) {
        guard.write_pinned(pages.page(2 * i) as usize, &[i as u8]).unwrap();
        assert_eq!(pages.bytes(2 * i * PAGE, 1), [i as u8]);
    }
    drop(guards);
    assert_eq!(pinner.stats().kernel.spans, 0);
}

#[test]
fn more_than_a_gibibyte_is_split() {
    let pinner = kernel();
    // The pages are one page of a file over and over: a large range, little memory.
    let file = rustix::fs::memfd_create("mkey", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 2 << 20).unwrap();
    let len = (1usize << 30) + (4 << 20);
    let mapping = Mapping::new(len, PageKind::Base).unwrap();
    for at in (0..len).step_by(2 << 20) {
        let got = unsafe {
            rustix::mm::mmap(
                mapping.as_ptr().wrapping_add(at).cast(),
                2 << 20,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED,
                &file,
                0,
            )
        };
        assert!(got.is_ok());
    }
    let guard = pinner.pin(&request(mapping.as_ptr(), len)).unwrap();
    assert_eq!(guard.mode(), PinMode::Kernel, "{:?}", pinner.stats());
    let stats = pinner.stats();
    assert_eq!((stats.kernel.spans, stats.kernel.bytes), (2, len as u64));
    // Across the border between the two spans.
    let border = mapping.addr() + (1 << 30);
    guard.write_pinned(border - 3, b"across").unwrap();
    let mut read = [0u8; 6];
    guard.read_pinned(border - 3, &mut read).unwrap();
    assert_eq!(&read, b"across");
    drop(guard);
    assert_eq!(pinner.stats().kernel.spans, 0);
}

#[test]
fn a_huge_page_is_pinned_once() {
    let Ok(_reservation) = mkey_os::hugepages::reserve(2 << 20, 2) else {
        assert!(!rustix::process::geteuid().is_root());
        eprintln!("SKIPPED: huge pages cannot be reserved here");
        return;
    };
    let mapping = Mapping::new(4 << 20, PageKind::Huge2M).unwrap();
    let pinner = kernel();
    let before = pinner.stats();
    let guards: Vec<_> = (0..100)
        .map(|i| pinner.pin(&request(mapping.as_ptr().wrapping_add(i * 8192), 4096)).unwrap())
        .collect();
    let stats = pinner.stats();
    assert_eq!((stats.kernel.spans, stats.kernel.bytes), (1, 2 << 20));
    assert_eq!(stats.shared - before.shared, 99);
    drop(guards);
    assert_eq!(pinner.stats().kernel.spans, 0);
}

#[test]
fn a_wrong_page_size_costs_time_only() {
    // In a child: no other thread may map something into the hole.
    let ended = in_child(|| {
        let pinner = kernel();
        let pages = Pages::new(3);
        pages.unmap(2, 1);
        for page in [0, 1, 3, 100, PAGE, 2 << 20, 1 << 30, 1 << 40, usize::MAX] {
            let wrong = PinRequest { page: Some(page), ..request(pages.addr, PAGE) };
            let guard = pinner.pin(&wrong).unwrap();
            assert_eq!(guard.mode(), PinMode::Kernel, "{page}");
            assert_eq!(pinner.stats().kernel.bytes, PAGE as u64, "{page}");
        }
        pages.replace(2, 1);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

/// What a NIC does with a registration whose memory was unmapped: it writes the old pages.
#[test]
fn pinned_pages_outlive_their_mapping_and_a_detached_range_is_pinned_anew() {
    // In a child: no other thread may map something into the hole.
    let ended = in_child(|| {
        let pinner = kernel();
        let pages = Pages::new(4);
        pages.fill(b'o');
        let addr = pages.page(1) as usize;
        let stale = pinner.pin(&request(pages.addr, 4 * PAGE)).unwrap();
        pages.unmap(0, 4);
        pages.replace(0, 4);
        pages.fill(b'n');
        pinner.detach(addr..addr + PAGE);
        let fresh = pinner.pin(&request(pages.addr, 4 * PAGE)).unwrap();
        stale.write_pinned(addr, b"stale").unwrap();
        assert_eq!(pages.bytes(PAGE, 5), *b"nnnnn", "the new mapping must not see it");
        let mut read = [0u8; 6];
        stale.read_pinned(addr, &mut read).unwrap();
        assert_eq!(&read, b"staleo");
        fresh.write_pinned(addr, b"fresh").unwrap();
        assert_eq!(pages.bytes(PAGE, 5), *b"fresh");
        drop(stale);
        assert_eq!(pinner.stats().kernel.spans, 1);
        fresh.write_pinned(addr, b"still").unwrap();
        assert_eq!(pages.bytes(PAGE, 5), *b"still");
        drop(fresh);
        assert_eq!(pinner.stats().kernel.spans, 0);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn large_transfers_through_pinned_pages_and_their_refusals() {
    let pinner = kernel();
    let pages = Pages::new(1000);
    let guard = pinner.pin(&request(pages.addr, 1000 * PAGE)).unwrap();
    let bytes: Vec<u8> = (0..3 << 20).map(|i| (i % 251) as u8).collect();
    guard.write_pinned(pages.addr as usize + 77, &bytes).unwrap();
    assert_eq!(pages.bytes(77, bytes.len()), bytes);
    let mut read = vec![0u8; bytes.len()];
    guard.read_pinned(pages.addr as usize + 77, &mut read).unwrap();
    assert_eq!(read, bytes);
    let end = pages.addr as usize + 1000 * PAGE;
    assert_eq!(guard.write_pinned(end - 1, b"ab"), Err(PinnedAccessError::Outside { addr: end }));
    let locked = Pinner::new(PinMode::Mlock);
    let guard = locked.pin(&request(pages.addr, PAGE)).unwrap();
    assert_eq!(
        guard.read_pinned(pages.addr as usize, &mut [0]),
        Err(PinnedAccessError::NotKernel { addr: pages.addr as usize, mode: PinMode::Mlock })
    );
}

#[test]
fn mlock_spans_lock_and_unlock_and_leave_the_programs_own_locks() {
    let ended = in_child(|| {
        let locked = || limits::held().unwrap().locked;
        let before = locked();
        let pinner = Pinner::new(PinMode::Mlock);
        let pages = Pages::new(20);
        let guards: Vec<_> =
            (0..10).map(|i| pinner.pin(&request(pages.page(i), PAGE)).unwrap()).collect();
        assert_eq!(guards[0].mode(), PinMode::Mlock);
        assert_eq!(locked(), before + 10 * PAGE as u64);
        drop(guards);
        assert_eq!(locked(), before);
        // The program locks some pages itself.
        assert_eq!(unsafe { libc::mlock(pages.page(2).cast(), 3 * PAGE) }, 0);
        let guard = pinner.pin(&request(pages.page(0), 10 * PAGE)).unwrap();
        drop(guard);
        assert!(locked() >= before + 3 * PAGE as u64, "the program's lock must survive");
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn a_hint_of_transparent_huge_pages_does_not_keep_pages_locked() {
    let ended = in_child(|| {
        let before = limits::held().unwrap().locked;
        let pinner = Pinner::new(PinMode::Mlock);
        let memory = Mapping::new(4 << 20, PageKind::Thp).unwrap();
        let hinted = PinRequest { page: Some(2 << 20), ..request(memory.as_ptr(), 4096) };
        let guard = pinner.pin(&hinted).unwrap();
        assert_eq!(limits::held().unwrap().locked, before + (2 << 20));
        drop(guard);
        assert_eq!(limits::held().unwrap().locked, before);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn mlock_spans_leave_the_program_mappings_of_its_own() {
    let ended = in_child(|| {
        let most = limits::max_map_count().unwrap();
        assert!(most <= 70_000, "SKIP: vm.max_map_count is {most}; the test would take too long");
        let pinner = Pinner::new(PinMode::Mlock);
        let count = most as usize / 2;
        let pages = Pages::new(2 * count);
        let guards: Vec<_> =
            (0..count).map(|i| pinner.pin(&request(pages.page(2 * i), 1)).unwrap()).collect();
        let stats = pinner.stats();
        assert!(stats.mlock.spans > most / 4 && stats.none.spans > 0, "{stats:?}");
        assert_eq!(stats.refusals.len(), 1);
        assert_eq!(stats.refusals[0].errno, Errno::NOMEM);
        assert!(stats.refusals[0].mend().unwrap().contains("max_map_count"));
        let maps = limits::map_count().unwrap();
        assert!(maps <= most / 4 * 3 + 10, "{maps} of {most} mappings used");
        drop(guards);
        assert!(limits::map_count().unwrap() < 200);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn an_mlock_span_whose_mapping_has_gone_does_not_unlock_the_new_one() {
    let ended = in_child(|| {
        let locked = || limits::held().unwrap().locked;
        let before = locked();
        let pinner = Pinner::new(PinMode::Mlock);
        let pages = Pages::new(4);
        let stale = pinner.pin(&request(pages.addr, 4 * PAGE)).unwrap();
        pages.unmap(1, 1);
        pages.replace(1, 1);
        pinner.detach(pages.page(1) as usize..pages.page(2) as usize);
        let fresh = pinner.pin(&request(pages.page(1), PAGE)).unwrap();
        assert_eq!(locked(), before + 4 * PAGE as u64);
        drop(stale);
        assert_eq!(locked(), before + PAGE as u64);
        drop(fresh);
        assert_eq!(locked(), before);
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn a_forked_child_neither_pins_nor_lets_go() {
    let pinner = kernel();
    let pages = Pages::new(2);
    let guard = pinner.pin(&request(pages.addr, PAGE)).unwrap();
    let ended = in_child(|| {
        assert_eq!(pinner.pin(&request(pages.addr, PAGE)).unwrap_err(), PinError::Forked);
        assert_eq!(
            guard.read_pinned(pages.addr as usize, &mut [0]),
            Err(PinnedAccessError::Forked)
        );
        // Dropping the parent's guard here must not clear the parent's slot.
        drop(unsafe { std::ptr::read(&guard) });
        0
    });
    assert_eq!(ended, Ended::Exit(0));
    guard.write_pinned(pages.addr as usize, b"alive").unwrap();
    assert_eq!(pages.bytes(0, 5), *b"alive");
}

#[test]
fn threads_share_spans_of_every_size() {
    let pinner = kernel();
    let pages = Pages::new(512);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (pinner, pages) = (&pinner, &pages);
            let base = pages.addr as usize;
            scope.spawn(move || {
                let mut seed = thread + 1;
                let mut random = |below: usize| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                    ((seed >> 33) as usize) % below
                };
                for _ in 0..1500 {
                    let first = random(500);
                    let most = if random(4) == 0 { 512 - first } else { 3 };
                    let len = 1 + random(most) * PAGE;
                    let addr = base + first * PAGE;
                    let wanted = PinRequest { addr, len, write: true, page: None };
                    let guard = pinner.pin(&wanted).unwrap();
                    assert_eq!(guard.mode(), PinMode::Kernel);
                    let mut byte = [1u8];
                    guard.read_pinned(addr + len - 1, &mut byte).unwrap();
                    assert_eq!(byte, [0]);
                }
            });
        }
    });
    let _ = pages.addr;
    let stats = pinner.stats();
    assert_eq!((stats.kernel, stats.refusals), (Default::default(), vec![]));
}

#[test]
fn names_of_modes() {
    for mode in PinMode::ALL {
        assert_eq!(mode.name().parse::<PinMode>().unwrap(), mode);
    }
    assert_eq!(PinMode::ALL.map(PinMode::name), ["kernel", "mlock", "none"]);
    assert!("Kernel".parse::<PinMode>().is_err());
}
