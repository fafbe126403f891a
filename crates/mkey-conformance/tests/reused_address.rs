//! An address that one thread has unmapped and another maps anew is new memory: what the device
//! hears late of the old mapping may not be taken for an event of the new region.

use mkey_conformance::expect::Expect;
use mkey_conformance::fixture::ALL;
use mkey_conformance::memory::{Memory, PAGE};
use mkey_conformance::pair::Pair;
use mkey_conformance::soft::Soft;
use mkey_core::device::Device;
use mkey_core::work::SendOp::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn an_address_used_again_is_not_detached_by_what_lay_there() {
    let subject = Soft::new();
    let p = Pair::rc(&subject);
    let own = p.a.mr(PAGE, ALL);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Registered and deregistered properly, then unmapped.
                let pair = p.beside();
                while !done.load(Ordering::Acquire) {
                    let memory = Arc::new(Memory::untouched(3));
                    let mr = pair.b.mr_over(pair.b.pd, &memory, 0, PAGE, ALL, None);
                    pair.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..4_000 {
                let memory = Arc::new(Memory::untouched(3));
                let mr = p.b.mr_over(p.b.pd, &memory, PAGE, PAGE, ALL, None);
                p.a.run(Write(mr.remote(0)), &[own.sge(0, 64)]).ok();
                mr.holds(0, &own.bytes(0, 64));
                p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
            }
        }));
        done.store(true, Ordering::Release);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}
