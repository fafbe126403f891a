//! In what devices are known to deviate from the rules, as data.
//!
//! The table is kept true by the tests: one of a rule that is in it has to fail over the device,
//! and one that fails has to be in it. Tests of other rules do not ask again for what is in it.

use mkey_core::status::WcStatus::{self, LocLenErr, LocProtErr, LocQpOpErr, MwBindErr, WrFlushErr};
use std::ops::Range;

/// A version of the kernel: major and minor.
pub type Version = (u32, u32);

/// A known deviation.
#[derive(Debug, PartialEq, Eq)]
pub struct Deviation {
    /// What fails: rules, with all their tests, or tests by the beginning of their name.
    pub of: &'static [&'static str],
    /// Versions of the kernel whose driver does so.
    pub kernels: Range<Version>,
    /// How it shows.
    pub effect: Effect,
    /// What the device does, in words.
    pub does: &'static str,
    /// Where that is to be seen.
    pub source: &'static str,
}

/// How a deviation shows.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// The tests fail.
    Fails,
    /// The tests fail, since the device tells another status than it has to. Wherever else that is
    /// met, it is noted and passes.
    Tells {
        /// The status.
        status: WcStatus,
        /// Any of these would be right.
        for_any: &'static [WcStatus],
    },
    /// It shows by chance. The tests leave room for it and have to hold for the rest.
    ByChance,
    /// The tests are not run: they would harm the machine.
    NotRun,
}

impl Deviation {
    /// Whether a test of this name fails by it.
    pub fn covers(&self, test: &str) -> bool {
        self.of.iter().any(|of| names(of, test))
    }

    /// Whether it is one from this rule.
    pub fn is_from(&self, rule: &str) -> bool {
        self.of.iter().any(|&of| of == rule || rule_of(of) == rule)
    }

    /// The rule that it is named by.
    pub fn rule(&self) -> String {
        self.of.first().map(|of| rule_of(of)).unwrap_or_default()
    }
}

/// Whether a rule or the beginning of a test's name stands for a test.
fn names(of: &str, test: &str) -> bool {
    test.starts_with(of) || of == rule_of(test)
}

/// The rule that a test named `r_mw_07_...` is about: `R-MW-07`.
pub fn rule_of(test: &str) -> String {
    test.split(['_', '-']).take(3).collect::<Vec<_>>().join("-").to_uppercase()
}

/// The deviations of a driver in a kernel.
pub fn of(driver: &str, kernel: Version) -> Vec<&'static Deviation> {
    let table: &[Deviation] = if driver == "rxe" { RXE } else { &[] };
    table.iter().filter(|deviation| deviation.kernels.contains(&kernel)).collect()
}

pub(crate) const EVERY: Range<Version> = (0, 0)..(u32::MAX, 0);
/// Before soft-RoCE had on-demand paging.
pub(crate) const OLD: Range<Version> = (0, 0)..(6, 15);
pub(crate) const NEW: Range<Version> = (6, 15)..(u32::MAX, 0);

/// Soft-RoCE (rxe) and its library.
pub const RXE: &[Deviation] = &[
    // Registration.
    Deviation {
        of: &["R-REG-08"],
        kernels: (0, 0)..(6, 2),
        effect: Effect::Fails,
        does: "a region that nothing writes takes mapped memory that can not even be read",
        source: "umem.c, ib_umem_get: FOLL_FORCE",
    },
    Deviation {
        of: &["R-REG-19"],
        kernels: OLD,
        effect: Effect::ByChance,
        does: "the refusal of a READ that has begun names its first packet, which the requester \
               takes for an old answer: it hears nothing, and retries are exceeded",
        source: "rxe_resp.c, acknowledge; rxe_comp.c, check_psn",
    },
    // Statuses and events.
    Deviation {
        of: &["R-LOC-01", "r_loc_06_receive_buffer"],
        kernels: OLD,
        effect: Effect::Tells { status: LocQpOpErr, for_any: &[LocProtErr] },
        does: "a bad key of the owner's own is told as a queue pair operation error",
        source: "rxe_req.c, where only EFAULT is a protection error; rxe_resp.c, send_data_in",
    },
    Deviation {
        of: &["r_loc_06_receive_buffer"],
        kernels: NEW,
        effect: Effect::Tells { status: LocQpOpErr, for_any: &[LocProtErr] },
        does: "a bad receive buffer is told as a queue pair operation error",
        source: "rxe_resp.c, send_data_in",
    },
    Deviation {
        of: &["R-LOC-13", "R-LOC-14"],
        kernels: NEW,
        effect: Effect::Tells {
            status: WrFlushErr,
            for_any: &[LocLenErr, LocProtErr, LocQpOpErr, MwBindErr],
        },
        does: "work that fails on its own side is flushed like the work behind it, and so is what \
               is under way before it: no status is told",
        source: "rxe_req.c and rxe_comp.c: the queue pair is in ERR before the completion is made",
    },
    Deviation {
        of: &["r_loc_06_shared_receives"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "a shared receive is looked at in the queue pair's domain instead of its queue's",
        source: "rxe_resp.c, send_data_in",
    },
    Deviation {
        of: &["R-LOC-08"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "the receive completes with what the sender is told; one without room is told as a \
               malformed work request",
        source: "rxe_resp.c, send_data_in and do_class_ac_error",
    },
    Deviation {
        of: &["R-RA-15", "R-ERR-03"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "the receive completes with what the requester is told",
        source: "rxe_resp.c, do_class_ac_error",
    },
    Deviation {
        of: &["R-ERR-02"],
        kernels: (0, 0)..(7, 0),
        effect: Effect::Fails,
        does: "no event tells of an access that was refused",
        source: "RDMA/rxe: Generate async error for r_key violations",
    },
    Deviation {
        of: &["R-ERR-09"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "the event comes while work waits for a receive, and that work is not finished",
        source: "rxe_req.c, req_next_wqe: in SQD nothing is sent again",
    },
    Deviation {
        of: &["r_err_08_recovery"],
        kernels: NEW,
        effect: Effect::ByChance,
        does: "RESET of a queue pair that is just failing may end in ERR",
        source: "rxe_qp.c, rxe_qp_from_attr, which waits for the tasks that put it into ERR \
                 after it has set the state",
    },
    // Atomics.
    Deviation {
        of: &["R-AT-02", "R-AT-03", "R-ERR-05"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "the library refuses a misaligned atomic at posting, EINVAL",
        source: "rdma-core, rxe.c, validate_send_wr",
    },
    Deviation {
        of: &["r_at_04_landing_of_another_length"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "a landing of less than 8 bytes is refused at posting, a longer one is taken",
        source: "rdma-core, rxe.c, validate_send_wr",
    },
    // Windows.
    Deviation {
        of: &["r_key_09_bind_range_check"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "a bind adds address and length, and takes a range that wraps",
        source: "rxe_mw.c, rxe_check_bind_mw",
    },
    Deviation {
        of: &["R-MW-19"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "rights that a window can not have are taken",
        source: "rxe_mw.c, rxe_bind_mw",
    },
    Deviation {
        of: &["r_mw_22_region", "r_mw_22_both"],
        kernels: OLD,
        effect: Effect::Fails,
        does: "only the domain of a type 2 window is looked at",
        source: "rxe_mw.c, rxe_check_bind_mw",
    },
    Deviation {
        of: &["R-MW-21"],
        kernels: NEW,
        effect: Effect::Fails,
        does: "an on-demand region of 2 GiB, to show it with, can not be registered",
        source: "rxe_odp.c, rxe_odp_init_pages: the length is an int",
    },
    Deviation {
        of: &["R-MWU-05"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "what is outside the window and inside its region can be accessed",
        source: "rxe_resp.c, check_rkey",
    },
    Deviation {
        of: &["r_mwu_11_dealloc_under_load"],
        kernels: EVERY,
        effect: Effect::ByChance,
        does: "a packet that has passed its check may be placed after the window is gone",
        source: "rxe_resp.c, check_rkey lets go of the window before the packet is placed",
    },
    Deviation {
        of: &["R-MWU-13", "R-MWU-14"],
        kernels: EVERY,
        effect: Effect::NotRun,
        does: "the window holds its queue pair, whose destruction takes 51 s",
        source: "rxe_mw.c, rxe_do_bind_mw; rxe_pool.c, __rxe_cleanup",
    },
    // Invalidation.
    Deviation {
        of: &["R-INV-01"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "there is no LOCAL_INV on UC",
        source: "rxe_opcode.c",
    },
    Deviation {
        of: &["R-INV-03"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "any queue pair invalidates the window",
        source: "rxe_mw.c, rxe_check_invalidate_mw",
    },
    Deviation {
        of: &["R-INV-06"],
        kernels: EVERY,
        effect: Effect::NotRun,
        does: "the kernel follows a null pointer",
        source: "rxe_mw.c, rxe_do_invalidate_mw",
    },
    Deviation {
        of: &["R-INV-14"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "the SEND is acknowledged",
        source: "rxe_resp.c, do_complete",
    },
    // On-demand paging.
    Deviation {
        of: &["R-ODP-02"],
        kernels: NEW,
        effect: Effect::Fails,
        does: "data is copied to and from the beginning of the page, wherever in it the access is",
        source: "rxe_odp.c, __rxe_odp_mr_copy",
    },
    Deviation {
        of: &["r_odp_04_unmapped_for_a_peer"],
        kernels: NEW,
        effect: Effect::Fails,
        does: "no event tells of a READ whose page can not be faulted in",
        source: "rxe_resp.c, read_reply",
    },
    Deviation {
        of: &["R-ODP-12"],
        kernels: NEW,
        effect: Effect::Fails,
        does: "prefetch for reading needs the right to write, too, and without it EINVAL is told",
        source: "rxe_odp.c, rxe_ib_prefetch_sg_list",
    },
    // Queues.
    Deviation {
        of: &["r_ord_06_receiver_not_ready_for_ever"],
        kernels: OLD,
        effect: Effect::ByChance,
        does: "while a SEND waits for a receive the time to wait for an answer goes on, and may \
               end it",
        source: "rxe_comp.c, rxe_completer",
    },
    Deviation {
        of: &["r_ord_12_receive_posted"],
        kernels: EVERY,
        effect: Effect::Fails,
        does: "posting a receive does not enter the kernel: it is flushed at the next occasion",
        source: "rdma-core, rxe.c, rxe_post_recv",
    },
    Deviation {
        of: &["r_ord_12_shared_receives"],
        kernels: OLD,
        effect: Effect::Fails,
        does: "no event tells of the end of the use of a shared receive queue",
        source: "rxe_resp.c",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;
    use crate::soft::Soft;

    #[test]
    fn a_test_is_named_after_its_rule() {
        assert_eq!(rule_of("r_mw_07_zero_based_is_refused"), "R-MW-07");
        assert_eq!(rule_of("r_key_09_range"), "R-KEY-09");
        assert_eq!(rule_of("R-KEY-09"), "R-KEY-09");
    }

    #[test]
    fn every_entry_names_tests_and_no_test_is_in_two_of_one_kernel() {
        let tests = rules::all::<Soft>();
        for deviation in RXE {
            for of in deviation.of {
                assert!(tests.iter().any(|test| names(of, test.name)), "{of} is no test");
            }
        }
        for kernel in [(6, 1), (7, 3)] {
            for test in &tests {
                let known = of("rxe", kernel);
                let covering = known.iter().filter(|deviation| deviation.covers(test.name));
                assert!(covering.count() <= 1, "{} in {kernel:?}", test.name);
            }
        }
    }
}
