//! A child that is forked while the parent's threads are in the middle of things opens a device of
//! its own. Alone in its program: other tests' threads would hold locks that the child needs.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::*;
use mkey_core::address::HostAddr;
use mkey_core::device::{Device, MrSpec};
use mkey_core::queue_pair::QpKind;
use mkey_core::status::WcStatus::Success;
use mkey_core::work::SendOp;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;

fn child() -> i32 {
    // Ends it if it hangs.
    unsafe { libc::alarm(5) };
    let (a, b) = pair(QpKind::Rc);
    let (own, target) = (a.buffer(ALL), b.buffer(ALL));
    a.post(1, SendOp::Write(target.remote(0)), &[own.sge(0, 64)]);
    i32::from(a.done() != [(1, Success)])
}

#[test]
fn r_fork_08_a_child_forked_while_an_event_is_in_hand_has_a_device_of_its_own() {
    let (_a, b) = pair(QpKind::Rc);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4 * PAGE, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let address = HostAddr(at as u64);
    let spec = MrSpec { address, length: 4 * PAGE as u64, iova: None, rights: ALL };
    let mr = unsafe { b.device.reg_mr(b.pd, &spec) }.unwrap();
    let stop = AtomicBool::new(false);
    let ends: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                for page in [0, 2] {
                    let page = (address.0 as usize + page * PAGE) as *mut libc::c_void;
                    unsafe { libc::madvise(page, PAGE, libc::MADV_DONTNEED) };
                }
            }
        });
        let ends = (0..40).map(|_| {
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let code = std::panic::catch_unwind(child).unwrap_or(101);
                unsafe { libc::_exit(code) };
            }
            let mut status = -1;
            unsafe { libc::waitpid(pid, &mut status, 0) };
            status
        });
        // The first that hangs is enough.
        let mut hung = false;
        let ends = ends.take_while(|&end| !std::mem::replace(&mut hung, end != 0)).collect();
        stop.store(true, Ordering::Release);
        ends
    });
    assert_eq!(ends, [0; 40]);
    b.device.dereg_mr(mr.handle).unwrap();
}
