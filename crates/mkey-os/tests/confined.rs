//! As a container runs it: Docker's seccomp profile, an unprivileged user, small memlock limits.
//! Everything still works, and what it fell back to is reported with the command that mends it.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::{Ended, PAGE, Pages, in_child};
use mkey_os::accounting::{AccountError, Accountant, Allowance};
use mkey_os::confine;
use mkey_os::error::Errno;
use mkey_os::events::Watcher;
use mkey_os::hugepages::{self, ReserveError};
use mkey_os::ladder::{Pages as Rungs, Request, obtain_prefaulted};
use mkey_os::limits;
use mkey_os::mapping::PageKind;
use mkey_os::numa::Binding;
use mkey_os::pin::{PinGuard, PinMode, PinRequest, Pinner};
use mkey_os::{copy, proc};

/// Runs `body` in a child as a user of its own (io_uring's budget is per user), with a memlock
/// limit and, if asked, under Docker's profile.
fn confined(user: u32, memlock: u64, seccomp: bool, body: impl FnOnce()) {
    assert!(
        rustix::process::geteuid().is_root(),
        "SKIP: only root can become another user for this test"
    );
    let ended = in_child(|| {
        confine::limit_memlock(memlock).unwrap();
        confine::become_user(user).unwrap();
        if seccomp {
            confine::docker_seccomp().unwrap();
        }
        body();
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

fn pin(pinner: &Pinner, pages: &Pages, first: usize, count: usize) -> PinGuard {
    let addr = pages.page(first) as usize;
    pinner.pin(&PinRequest { addr, len: count * PAGE, write: true, page: None }).unwrap()
}

#[test]
fn the_profile_denies_what_docker_denies() {
    confined(60_001, 8 << 20, true, || unsafe {
        for call in [
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_mbind,
            libc::SYS_perf_event_open,
            libc::SYS_mount,
        ] {
            assert_eq!(libc::syscall(call, 0, 0, 0, 0, 0), -1);
            assert_eq!(*libc::__errno_location(), libc::EPERM, "{call}");
        }
        assert_eq!(libc::syscall(libc::SYS_clone3, 0, 0), -1);
        assert_eq!(*libc::__errno_location(), libc::ENOSYS);
        assert_eq!(libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0), -1);
        assert_eq!(*libc::__errno_location(), libc::EPERM);
        assert!(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) >= 0);
        std::thread::spawn(|| ()).join().unwrap();
    });
}

#[test]
fn denied_io_uring_falls_to_mlock_and_then_to_none() {
    confined(60_002, 8 << 20, true, || {
        let pinner = Pinner::new(PinMode::Kernel);
        let pages = Pages::new(5000);
        let small = pin(&pinner, &pages, 0, 1);
        assert_eq!(small.mode(), PinMode::Mlock);
        let four_mib = pin(&pinner, &pages, 100, 1024);
        assert_eq!(four_mib.mode(), PinMode::Mlock);
        let beyond = pin(&pinner, &pages, 2000, 3000);
        assert_eq!(beyond.mode(), PinMode::None);
        let stats = pinner.stats();
        assert_eq!((stats.kernel.spans, stats.mlock.spans, stats.none.spans), (0, 2, 1));
        assert_eq!(stats.weakest(), PinMode::None);
        let of = |mode| stats.refusals.iter().find(|r| r.mode == mode).unwrap();
        let kernel = of(PinMode::Kernel);
        assert_eq!((kernel.errno, kernel.spans), (Errno::PERM, 3));
        assert!(kernel.mend().unwrap().contains("seccomp"));
        let mlock = of(PinMode::Mlock);
        assert_eq!((mlock.errno, mlock.spans), (Errno::NOMEM, 1));
        assert!(mlock.mend().unwrap().contains("memlock"));
        assert!(limits::held().unwrap().locked >= 1025 * PAGE as u64);
        drop((small, four_mib, beyond));
        assert_eq!(limits::held().unwrap().locked, 0);
    });
}

#[test]
fn the_kernels_budget_used_up_falls_on() {
    confined(60_003, 8 << 20, false, || {
        let pinner = Pinner::new(PinMode::Kernel);
        let pages = Pages::new(8000);
        let first = pin(&pinner, &pages, 0, 1500);
        assert_eq!(first.mode(), PinMode::Kernel);
        // mlock has a budget of its own.
        let second = pin(&pinner, &pages, 1500, 1500);
        assert_eq!(second.mode(), PinMode::Mlock);
        let third = pin(&pinner, &pages, 3000, 1500);
        assert_eq!(third.mode(), PinMode::None);
        let stats = pinner.stats();
        assert_eq!((stats.kernel.spans, stats.mlock.spans, stats.none.spans), (1, 1, 1));
        for refusal in &stats.refusals {
            assert_eq!(refusal.errno, Errno::NOMEM, "{refusal}");
            assert!(refusal.mend().unwrap().contains("memlock"));
        }
        // Across all three: nothing new to pin.
        let all = pin(&pinner, &pages, 0, 4500);
        assert_eq!(all.mode(), PinMode::None);
        assert_eq!(pinner.stats().none.spans, 1);
        // What is given back can be had again.
        drop((all, first));
        let again = pin(&pinner, &pages, 5000, 1500);
        assert_eq!(again.mode(), PinMode::Kernel);
    });
}

#[test]
fn with_64_kib_a_page_is_pinned_and_a_mebibyte_is_not() {
    for (user, seccomp) in [(60_004, false), (60_005, true)] {
        confined(user, 64 << 10, seccomp, || {
            let pinner = Pinner::new(PinMode::Kernel);
            let pages = Pages::new(300);
            let page = pin(&pinner, &pages, 0, 1);
            assert_eq!(page.mode(), if seccomp { PinMode::Mlock } else { PinMode::Kernel });
            let mebibyte = pin(&pinner, &pages, 20, 256);
            assert_eq!(mebibyte.mode(), PinMode::None);
            assert_eq!(pinner.stats().none.bytes, 1 << 20);
            // Memory that is not there is refused all the same.
            let unmapped = PinRequest { addr: 0, len: 1, write: false, page: None };
            assert_eq!(pinner.pin(&unmapped).unwrap_err().errno(), Errno::FAULT);
        });
    }
}

#[test]
fn a_limit_of_zero_pins_nothing_and_says_so() {
    confined(60_006, 0, false, || {
        let pinner = Pinner::new(PinMode::Kernel);
        let pages = Pages::new(1);
        let guard = pin(&pinner, &pages, 0, 1);
        assert_eq!(guard.mode(), PinMode::None, "{:?}", pinner.stats());
        assert!(pinner.stats().refusals.iter().all(|r| r.mend().is_some()));
        let accountant = Accountant::of_system().unwrap();
        let error = accountant.charge(pages.addr as u64, 1).unwrap_err();
        assert_eq!(error, AccountError::Forbidden);
    });
}

#[test]
fn r_reg_09_accounting_reads_the_limit_and_the_missing_capability() {
    confined(60_007, 8 << 20, true, || {
        let accountant = Accountant::of_system().unwrap();
        let allowance = Allowance { memlock: Some(8 << 20), ipc_lock: false };
        assert_eq!(accountant.allowance(), allowance);
        let charge = accountant.charge(0x10_0000, 8 << 20).unwrap();
        assert_eq!(charge.pages(), 2048);
        let error = accountant.charge(0x10_0000, 1).unwrap_err();
        assert_eq!(error, AccountError::Limit { pages: 1, pinned: 2048, limit: 8 << 20 });
        assert_eq!(error.errno(), Errno::NOMEM);
    });
}

#[test]
fn the_ladder_gives_memory_and_a_reason_for_each_rung() {
    for (user, seccomp) in [(60_008, false), (60_009, true)] {
        confined(user, 64 << 10, seccomp, || {
            let request = Request { len: 1 << 20, pages: Rungs::Best, numa_node: Some(0) };
            let got = obtain_prefaulted(&request, 2, |_, _| {}).unwrap();
            assert_eq!(got.mapping.page_kind(), PageKind::Base);
            assert_eq!(got.refused.len(), 3);
            if seccomp {
                assert_eq!(got.numa, Binding::Refused { node: 0, errno: Errno::PERM });
            }
            // More than any pool holds: both hugetlb rungs are refused, with the command.
            let pool = hugepages::pool(2 << 20).unwrap();
            let len = ((pool.available() + 4) as usize) * (2 << 20);
            let wanted = Request { len, pages: Rungs::Exactly(PageKind::Huge2M), numa_node: None };
            let error = obtain_prefaulted(&wanted, 2, |_, _| {}).unwrap_err();
            let mend = error.refused[0].reason.mend().unwrap();
            assert!(mend.contains("nr_hugepages"), "{error}: {mend}");
            match hugepages::reserve(2 << 20, 1).unwrap_err() {
                error @ ReserveError::Refused { errno: Errno::ACCESS, .. } => {
                    assert!(error.mend().contains(" | sudo tee /"), "{}", error.mend());
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn events_are_had_without_privilege_and_their_lack_is_explained() {
    confined(60_010, 64 << 10, false, || {
        let watcher = Watcher::new().unwrap();
        let pages = Pages::new(2);
        let range = pages.addr as usize..pages.addr as usize + 2 * PAGE;
        let _guard = watcher.watch(range).unwrap();
        let before = watcher.in_hand().reads();
        unsafe { libc::madvise(pages.addr.cast(), PAGE, libc::MADV_DONTNEED) };
        watcher.in_hand().wait();
        assert!(watcher.in_hand().reads() > before);
    });
    confined(60_011, 64 << 10, true, || {
        let error = Watcher::new().unwrap_err();
        assert_eq!(error.source.errno, Errno::PERM);
        assert!(error.mend().contains("userfaultfd"));
        assert!(error.not_guaranteed().contains("stale registrations are not detected"));
    });
}

#[test]
fn the_tolerant_copy_and_the_readers_work() {
    confined(60_012, 64 << 10, true, || {
        let mut byte = 7u8;
        let tolerant = copy::install().unwrap();
        unsafe {
            assert!(tolerant.copy(&mut byte, std::ptr::dangling(), 1).is_err());
            assert!(copy::portable::copy(&mut byte, std::ptr::dangling(), 1).is_err());
            assert!(copy::portable::copy(&mut byte, &5, 1).is_ok());
        }
        assert_eq!(byte, 5);
        let here = &raw const byte as usize;
        assert!(proc::Maps::open().unwrap().vma_at(here).unwrap().unwrap().writable);
        assert!(!limits::has_ipc_lock().unwrap());
        assert_eq!(limits::memlock().soft, Some(64 << 10));
        proc::huge_bytes(here & !(PAGE - 1)..(here & !(PAGE - 1)) + PAGE).unwrap();
    });
}

#[test]
fn the_example_confines_a_command() {
    // cargo builds examples beside the tests' own folder.
    let tests = std::env::current_exe().unwrap();
    let example = tests.parent().unwrap().parent().unwrap().join("examples/under_docker_seccomp");
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(&example).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let script = "id -u; ulimit -l; grep Seccomp: /proc/self/status; exit 7";
    let options = ["--user", "nobody", "--memlock", "65536", "--", "/bin/sh", "-c", script];
    let (status, output) = run(&options);
    assert_eq!(status, Some(7));
    assert_eq!(output.split_whitespace().collect::<Vec<_>>(), ["65534", "64", "Seccomp:", "2"]);
    for wrong in [&["--user"][..], &["--user", "x", "--", "true"], &["true"], &["--"], &[]] {
        assert_eq!(run(wrong).0, Some(125), "{wrong:?}");
    }
    assert_eq!(run(&["--no-seccomp", "--", "/nowhere/at/all"]).0, Some(125));
}
