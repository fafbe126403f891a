//! Faults that are not ours go to the action that was there before, as the kernel would run it.
//! Every case runs in a child, so that each finds a process without our handler.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::{Ended, PAGE, Pages, in_child, memfd_pages};
use mkey_os::copy;
use std::sync::atomic::{AtomicUsize, Ordering};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn plain(_signal: i32) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    unsafe { libc::_exit(40) };
}

/// Makes the page accessible, so that the instruction succeeds when repeated.
extern "C" fn repairing(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    unsafe {
        let address = (*info).si_addr() as usize;
        ADDRESS.store(address, Ordering::Relaxed);
        libc::mprotect((address & !(PAGE - 1)) as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    }
}

fn set(signal: i32, handler: usize, flags: i32) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn one_tolerant_fault() {
    let tolerant = copy::install().unwrap();
    let mut byte = 0u8;
    let fault = unsafe { tolerant.copy(&mut byte, std::ptr::dangling(), 1) };
    assert_eq!(fault.unwrap_err().side, copy::Side::Source);
    assert_eq!(copy::displaced(), None);
}

#[test]
fn siginfo_handler_gets_the_address_and_may_repair() {
    let ended = in_child(|| {
        set(libc::SIGSEGV, repairing as *const () as usize, libc::SA_SIGINFO);
        one_tolerant_fault();
        assert_eq!(CALLS.load(Ordering::Relaxed), 0, "ours must not reach the program");
        let pages = Pages::new(1);
        pages.protect(0, 1, libc::PROT_NONE);
        unsafe { pages.addr.add(5).write_volatile(1) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        assert_eq!(ADDRESS.load(Ordering::Relaxed), pages.addr as usize + 5);
        one_tolerant_fault();
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}

#[test]
fn plain_handler_is_called_by_its_own_form() {
    let ended = in_child(|| {
        set(libc::SIGBUS, plain as *const () as usize, 0);
        one_tolerant_fault();
        let pages = memfd_pages(1, 0);
        unsafe { pages.addr.write_volatile(1) };
        0
    });
    assert_eq!(ended, Ended::Exit(40));
}

#[test]
fn default_action_kills_by_the_same_signal() {
    for (signal, pages) in [(libc::SIGSEGV, false), (libc::SIGBUS, true)] {
        let ended = in_child(|| {
            set(signal, libc::SIG_DFL, 0);
            one_tolerant_fault();
            let memory = if pages { memfd_pages(1, 0) } else { Pages::new(1) };
            if !pages {
                memory.protect(0, 1, libc::PROT_NONE);
            }
            unsafe { memory.addr.write_volatile(1) };
            0
        });
        assert_eq!(ended, Ended::Signal(signal));
    }
}

#[test]
fn a_sent_signal_under_the_default_action_kills() {
    let ended = in_child(|| {
        set(libc::SIGSEGV, libc::SIG_DFL, 0);
        one_tolerant_fault();
        unsafe { libc::raise(libc::SIGSEGV) };
        0
    });
    assert_eq!(ended, Ended::Signal(libc::SIGSEGV));
}

#[test]
fn ignore_holds_for_a_sent_signal_and_not_for_a_fault() {
    let ended = in_child(|| {
        set(libc::SIGSEGV, libc::SIG_IGN, 0);
        one_tolerant_fault();
        unsafe { libc::raise(libc::SIGSEGV) };
        one_tolerant_fault();
        33
    });
    assert_eq!(ended, Ended::Exit(33));
    let ended = in_child(|| {
        set(libc::SIGSEGV, libc::SIG_IGN, 0);
        one_tolerant_fault();
        let pages = Pages::new(1);
        pages.protect(0, 1, libc::PROT_NONE);
        unsafe { pages.addr.write_volatile(1) };
        0
    });
    assert_eq!(ended, Ended::Signal(libc::SIGSEGV));
}

#[test]
fn reset_hand_runs_the_handler_once() {
    let ended = in_child(|| {
        let flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        set(libc::SIGSEGV, repairing as *const () as usize, flags);
        one_tolerant_fault();
        let pages = Pages::new(2);
        pages.protect(0, 2, libc::PROT_NONE);
        unsafe { pages.addr.write_volatile(1) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        unsafe { pages.page(1).write_volatile(1) };
        0
    });
    assert_eq!(ended, Ended::Signal(libc::SIGSEGV));
}

#[test]
fn a_replaced_handler_is_noticed_and_the_previous_action_can_be_exchanged() {
    let ended = in_child(|| {
        one_tolerant_fault();
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = repairing as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert!(copy::exchange_previous_action(libc::SIGUSR1, action).is_none());
        assert!(copy::exchange_previous_action(libc::SIGSEGV, action).is_some());
        let pages = Pages::new(1);
        pages.protect(0, 1, libc::PROT_NONE);
        unsafe { pages.addr.write_volatile(1) };
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
        set(libc::SIGBUS, libc::SIG_DFL, 0);
        assert_eq!(copy::displaced(), Some(libc::SIGBUS));
        0
    });
    assert_eq!(ended, Ended::Exit(0));
}
