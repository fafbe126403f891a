//! The page ladder: what it gives is what it says, and each refusal has its reason.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use mkey_os::hugepages;
use mkey_os::ladder::{Pages, Reason, Request, obtain, obtain_prefaulted, thp_mode};
use mkey_os::mapping::{Mapping, PageKind};
use mkey_os::numa::Binding;
use mkey_os::proc::Maps;
use std::sync::Mutex;

/// The pools are the machine's: tests that change them take turns.
static POOLS: Mutex<()> = Mutex::new(());

fn request(len: usize, pages: Pages) -> Request {
    Request { len, pages, numa_node: None }
}

#[test]
fn base_pages_are_base_pages() {
    let got =
        obtain_prefaulted(&request((4 << 20) + 1, Pages::Exactly(PageKind::Base)), 2, |_, _| {})
            .unwrap();
    assert_eq!(got.mapping.page_kind(), PageKind::Base);
    assert_eq!(got.mapping.len(), (4 << 20) + 4096);
    assert_eq!(got.mapping.huge_bytes().unwrap(), 0);
    assert_eq!(got.numa, Binding::NotAsked);
    assert!(got.refused.is_empty());
}

#[test]
fn transparent_huge_pages_are_verified() {
    let wanted = request(16 << 20, Pages::Exactly(PageKind::Thp));
    match (thp_mode().as_deref(), obtain_prefaulted(&wanted, 2, |_, _| {})) {
        (Some("never"), Err(error)) => {
            assert!(matches!(error.refused[0].reason, Reason::ThpOff { .. }));
            assert!(error.refused[0].reason.mend().unwrap().contains("transparent_hugepage"));
        }
        (Some(_), Ok(got)) => {
            assert_eq!(got.mapping.addr() % (2 << 20), 0);
            assert_eq!(got.mapping.huge_bytes().unwrap(), 16 << 20);
        }
        (_, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_small_request_does_not_take_a_huge_page() {
    let got = obtain(&request(5000, Pages::Best)).unwrap();
    assert_eq!(got.mapping.page_kind(), PageKind::Base);
    assert_eq!(got.refused.len(), 3);
    for refused in &got.refused {
        assert!(matches!(refused.reason, Reason::Waste { len: 5000, .. }), "{refused}");
    }
}

#[test]
fn zero_and_maximal_lengths_are_refused_with_a_reason_per_rung() {
    for len in [0, usize::MAX, usize::MAX - 4096, 1 << 62] {
        let error = obtain(&request(len, Pages::Best)).unwrap_err();
        assert_eq!((error.len, error.refused.len()), (len, 4), "{error}");
        for kind in PageKind::LADDER {
            let error = obtain(&request(len, Pages::Exactly(kind))).unwrap_err();
            assert_eq!(error.refused[0].kind, kind);
        }
    }
}

#[test]
fn an_empty_pool_is_reported_with_its_figures_and_the_command() {
    let _turn = POOLS.lock().unwrap_or_else(|e| e.into_inner());
    let Some(pool) = hugepages::pool(2 << 20) else {
        panic!("SKIP: no 2 MiB hugetlb pages in this kernel");
    };
    let needed = pool.available() + 100;
    let len = needed as usize * (2 << 20);
    let error = obtain(&request(len, Pages::Exactly(PageKind::Huge2M))).unwrap_err();
    let Reason::Pool { needed: n, total, .. } = &error.refused[0].reason else {
        panic!("{error}");
    };
    assert_eq!((*n, *total), (needed, pool.total));
    let mend = error.refused[0].reason.mend().unwrap();
    assert!(mend.contains("hugepages-2048kB/nr_hugepages"), "{mend}");
}

#[test]
fn reserved_pages_are_used_and_given_back() {
    let _turn = POOLS.lock().unwrap_or_else(|e| e.into_inner());
    let before = hugepages::pool(2 << 20).map(|pool| pool.total);
    let reservation = match hugepages::reserve(2 << 20, 4) {
        Ok(reservation) => reservation,
        Err(error) => {
            assert!(!rustix::process::geteuid().is_root(), "root could not reserve: {error}");
            assert!(error.mend().contains("nr_hugepages"), "{}", error.mend());
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    assert_eq!(reservation.pages(), 4);
    {
        let got = obtain_prefaulted(&request(8 << 20, Pages::Best), 2, |_, _| {}).unwrap();
        assert_eq!(got.mapping.page_kind(), PageKind::Huge2M);
        assert_eq!(got.mapping.huge_bytes().unwrap(), 8 << 20);
        let vma = Maps::open().unwrap().vma_at(got.mapping.addr()).unwrap().unwrap();
        assert_eq!(vma.page_size, 2 << 20);
        assert_eq!(got.refused.len(), 1);
        assert_eq!(got.refused[0].kind, PageKind::Huge1G);
    }
    let handle = reservation.restore_handle();
    handle.restore().unwrap();
    assert_eq!(reservation.pages(), 0);
    assert_eq!(hugepages::pool(2 << 20).map(|pool| pool.total), before);
    drop(reservation);
    assert_eq!(hugepages::pool(2 << 20).map(|pool| pool.total), before);
}

#[test]
fn node_0_can_be_asked_for() {
    let got = obtain(&Request { len: 1 << 20, pages: Pages::Best, numa_node: Some(0) }).unwrap();
    assert!(matches!(got.numa, Binding::Bound(0) | Binding::Refused { node: 0, .. }));
}

#[test]
fn a_dropped_mapping_is_gone() {
    // In a child: no other thread may map something at the address meanwhile.
    let ended = common::in_child(|| {
        let mapping = Mapping::new(1 << 20, PageKind::Thp).unwrap();
        let addr = mapping.addr();
        drop(mapping);
        let mut vec = [0u8; 1];
        unsafe { libc::mincore(addr as *mut _, 4096, vec.as_mut_ptr()) }
    });
    assert_eq!(ended, common::Ended::Exit(255));
}
