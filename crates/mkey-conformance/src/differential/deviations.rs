//! In what devices are known to differ from the software RNIC, as data.

use super::program::Kind;
use super::trace::errno_name;
use super::traits::Traits;
use crate::deviations::{EVERY, NEW, OLD, Version};
use mkey_core::error::errno::*;
use mkey_core::status::WcStatus::{self, *};
use mkey_os::kernel::version;
use std::fmt::{self, Write};
use std::ops::Range;

/// A known difference.
#[derive(Clone, Debug)]
pub struct Deviation {
    /// Versions of the kernel whose driver does so.
    pub kernels: Range<Version>,
    /// The rule that it is about, which the software RNIC keeps.
    pub rule: &'static str,
    /// What is seen: of any of these verbs or work requests...
    pub of: &'static [Kind],
    /// ... that have all of these traits...
    pub with: Traits,
    /// ... this on the software RNIC and that on the device.
    pub seen: Seen,
    /// Whether the devices then differ in more, as in states or memory: the rest of the program can
    /// not be compared.
    pub parts: bool,
    /// Why the device differs, and where that can be read.
    pub why: &'static str,
}

/// What is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Errnos; 0 for success.
    Errno(i32, i32),
    /// Statuses.
    Status(WcStatus, WcStatus),
    /// This status on one device, and not yet on the other, or already in a step before.
    Late(WcStatus),
    /// One of these fails with this status; it has come to the peer in part, which fails, too.
    Partly(WcStatus),
    /// One of these statuses; nothing, where something is behind it.
    Lost(&'static [WcStatus]),
    /// This status; nothing, by chance.
    Never(WcStatus),
    /// One of these statuses, or any if there is none; flushed, with the rest of the queue, and no
    /// word of the reason.
    Untold(&'static [WcStatus]),
    /// Other bytes of memory, where one of these has failed.
    Placed,
    /// Other bytes of memory, a peer that fails or one that has received, where one of these ended
    /// with this status and others are behind it.
    Behind(WcStatus),
}

/// The deviations of a driver in a kernel with this release, as `uname -r` has it.
pub fn of(driver: &str, release: &str) -> Vec<Deviation> {
    let table: &[Deviation] = if driver == "rxe" { RXE } else { &[] };
    let kernel = version(release).unwrap_or_default();
    table.iter().filter(|deviation| deviation.kernels.contains(&kernel)).cloned().collect()
}

impl Deviation {
    /// What it is about, in words.
    pub fn about(&self) -> String {
        let kinds: Vec<_> = self.of.iter().map(|kind| format!("{kind:?}")).collect();
        let mut text = if self.of == SENDS { "all sends".to_owned() } else { kinds.join(", ") };
        if !self.with.is_empty() {
            let _ = write!(text, " {}", self.with);
        }
        text
    }

    /// Whether it depends on what comes first, so that it may not be met.
    pub fn by_chance(&self) -> bool {
        matches!(self.seen, Seen::Behind(_) | Seen::Never(_))
    }

    /// A name of its own.
    pub fn name(&self) -> String {
        format!("{}, {}: {}", self.rule, self.about(), self.seen)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Errno(ours, theirs) => {
                write!(f, "{}; {}", errno_name(ours), errno_name(theirs))
            }
            Self::Status(ours, theirs) => write!(f, "{ours}; {theirs}"),
            Self::Late(status) => write!(f, "{status}; the same in another step, or never"),
            Self::Partly(status) => write!(f, "{status}; the peer fails, too"),
            Self::Lost(statuses) => write!(f, "{}; never", words(statuses)),
            Self::Never(status) => write!(f, "{status}; by chance never"),
            Self::Untold([]) => f.write_str("anything; flushed with the rest, no reason told"),
            Self::Untold(statuses) => write!(f, "{}; flushed, no reason told", words(statuses)),
            Self::Placed => f.write_str("an error, no byte placed; an error, bytes placed"),
            Self::Behind(status) => {
                write!(f, "{status}, what is behind not done; {status}, and done")
            }
        }
    }
}

fn words(statuses: &[WcStatus]) -> String {
    statuses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

const NONE: Traits = Traits::empty();
/// Messages whose bytes are read here.
const SOURCES: &[Kind] = &[Kind::Send, Kind::SendInv, Kind::Write, Kind::WriteImm];
/// All work requests of a send queue.
const SENDS: &[Kind] = &[
    Kind::Send,
    Kind::SendInv,
    Kind::Write,
    Kind::WriteImm,
    Kind::Read,
    Kind::Atomic,
    Kind::Bind1,
    Kind::Bind2,
    Kind::LocalInv,
];

/// The known differences of soft-RoCE (rxe) with the libraries of rdma-core 44. The first one that
/// fits is taken.
pub const RXE: &[Deviation] = &[
    Deviation {
        kernels: EVERY,
        rule: "R-MW-23",
        of: &[Kind::Bind1, Kind::Bind2],
        with: Traits::NAMELESS,
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "refused at posting by `mkey-ibverbs`: there is no object to hand over",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-REG-06",
        of: &[Kind::Register],
        with: Traits::NO_PAGE,
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "the kernel registers no less than a page (`ib_umem_get`: `npages`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        with: Traits::NOT_EIGHT,
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "a landing of less than 8 bytes is refused at posting by the library \
              (`validate_send_wr` of librxe)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-02",
        of: &[Kind::Atomic],
        with: Traits::MISALIGNED,
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "refused at posting by the library (`validate_send_wr` of librxe)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        with: Traits::PARTS,
        seen: Seen::Errno(EINVAL, 0),
        parts: true,
        why: "a landing of several entries is taken",
    },
    Deviation {
        kernels: OLD,
        rule: "R-LOC-01",
        of: SOURCES,
        with: NONE,
        seen: Seen::Status(LocProtErr, LocQpOpErr),
        parts: false,
        why: "only EFAULT makes a protection error, and `copy_data` answers EINVAL (`rxe_req.c`)",
    },
    Deviation {
        kernels: OLD,
        rule: "R-ORD-06, R-ORD-07",
        of: SENDS,
        with: NONE,
        seen: Seen::Lost(&[RetryExcErr, RnrRetryExcErr]),
        parts: true,
        why: "a work request that fails locally stops the requester, so that nothing before it is \
              sent again or given up (`rxe_requester`: `req.state`)",
    },
    Deviation {
        kernels: OLD,
        rule: "R-ORD-07",
        of: &[Kind::Send, Kind::SendInv, Kind::WriteImm],
        with: Traits::PARTS,
        seen: Seen::Never(LocProtErr),
        parts: true,
        why: "the same for itself, if its first packet has met no receive before the one that can \
              not be read: what is to be sent again is waited for (`rxe_completer`: `need_retry`)",
    },
    Deviation {
        kernels: NEW,
        rule: "R-LOC-14",
        of: SENDS,
        with: NONE,
        seen: Seen::Untold(&[LocProtErr, LocQpOpErr, LocLenErr, MwBindErr]),
        parts: false,
        why: "the requester puts the queue pair into ERR before the failed request is completed, \
              so that it is flushed, too (`rxe_requester`, `flush_send_queue`)",
    },
    Deviation {
        kernels: NEW,
        rule: "R-LOC-14",
        of: SENDS,
        with: NONE,
        seen: Seen::Untold(&[]),
        parts: true,
        why: "the same for what is still under way when something behind it fails",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-06",
        of: &[Kind::Receive],
        with: NONE,
        seen: Seen::Status(LocProtErr, LocQpOpErr),
        parts: false,
        why: "one status for whatever is wrong with a receive (`RESPST_ERR_MALFORMED_WQE`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-08",
        of: &[Kind::Receive],
        with: NONE,
        seen: Seen::Status(LocLenErr, LocQpOpErr),
        parts: false,
        why: "that a receive is too short shows while data is copied, as EINVAL (`send_data_in`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-08",
        of: &[Kind::Send, Kind::SendInv],
        with: NONE,
        seen: Seen::Status(RemInvReqErr, RemOpErr),
        parts: false,
        why: "the same, at the sender",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-RA-15",
        of: &[Kind::Receive],
        with: NONE,
        seen: Seen::Status(LocAccessErr, RemAccessErr),
        parts: false,
        why: "the receive completes with what the sender is told (`do_class_ac_error`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-RA-15",
        of: &[Kind::Receive],
        with: NONE,
        seen: Seen::Status(LocAccessErr, WrFlushErr),
        parts: false,
        why: "of several packets the last one takes the receive, and the first one fails",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-ORD-12",
        of: &[Kind::Receive],
        with: NONE,
        seen: Seen::Late(WrFlushErr),
        parts: false,
        why: "posting a receive enters no kernel: one posted in ERR waits until something else \
              runs the responder",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-INV-14",
        of: &[Kind::SendInv],
        with: NONE,
        seen: Seen::Status(RetryExcErr, Success),
        parts: true,
        why: "what could not be invalidated is acknowledged (`RESPST_ERR_INVALIDATE_RKEY`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-MWU-05",
        of: &[Kind::Write, Kind::WriteImm, Kind::Read, Kind::Atomic],
        with: Traits::WINDOW,
        seen: Seen::Status(RemAccessErr, Success),
        parts: true,
        why: "the range is compared with that of the region behind the window (`check_rkey`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-MW-19",
        of: &[Kind::Bind1, Kind::Bind2],
        with: Traits::RIGHTS,
        seen: Seen::Status(MwBindErr, Success),
        parts: true,
        why: "all rights that a region may have are taken (`RXE_ACCESS_SUPPORTED_MW`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-MW-20",
        of: &[Kind::Bind2],
        with: Traits::BEYOND,
        seen: Seen::Status(MwBindErr, Success),
        parts: true,
        why: "of a zero-based window only the length is compared with the region's \
              (`rxe_check_bind_mw`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        with: Traits::NOT_EIGHT,
        seen: Seen::Status(LocLenErr, Success),
        parts: true,
        why: "the landing may be longer than 8 bytes (`do_atomic`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        with: Traits::NOT_EIGHT,
        seen: Seen::Status(LocLenErr, LocProtErr),
        parts: true,
        why: "the same, where the landing is not registered",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        with: Traits::NOT_EIGHT,
        seen: Seen::Status(LocLenErr, RemAccessErr),
        parts: true,
        why: "the same, where the peer refuses what it would have to do",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-15",
        of: SOURCES,
        with: Traits::PARTS,
        seen: Seen::Partly(LocProtErr),
        parts: true,
        why: "packets go out before all entries are looked at, and the peer can not place one",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-RA-01",
        of: &[Kind::WriteImm],
        with: Traits::PARTS,
        seen: Seen::Status(RnrRetryExcErr, RemAccessErr),
        parts: true,
        why: "of several packets the first has the key and the last one needs the receive",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-INV-03",
        of: &[Kind::LocalInv],
        with: Traits::OTHERS,
        seen: Seen::Status(MwBindErr, Success),
        parts: true,
        why: "which queue pair has bound the window is not looked at (`rxe_invalidate_mw`)",
    },
    Deviation {
        kernels: OLD,
        rule: "R-INV-05",
        of: &[Kind::LocalInv],
        with: NONE,
        seen: Seen::Status(MwBindErr, LocQpOpErr),
        parts: false,
        why: "one status for all that can not be invalidated (`rxe_do_local_ops`)",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-04",
        of: &[Kind::Read, Kind::Atomic],
        with: NONE,
        seen: Seen::Behind(LocProtErr),
        parts: true,
        why: "that an answer can not be placed shows when it comes, and what is behind has been \
              sent by then; the software RNIC does one after the other",
    },
    Deviation {
        kernels: EVERY,
        rule: "R-LOC-15",
        of: &[Kind::Send, Kind::SendInv, Kind::Write, Kind::WriteImm, Kind::Read, Kind::Receive],
        with: Traits::PARTS,
        seen: Seen::Placed,
        parts: true,
        why: "packets and entries are placed one by one, up to the one that fails; the software \
              RNIC looks at all of a message first",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_kernel_has_a_table_of_its_own() {
        let (old, new) = (of("rxe", "6.1.0-50-amd64"), of("rxe", "7.3.4+deb13-amd64"));
        let only = |table: &[Deviation], kernels| table.iter().any(|of| of.kernels == kernels);
        assert!(only(&old, OLD) && !only(&old, NEW));
        assert!(only(&new, NEW) && !only(&new, OLD));
        assert!(of("mlx5", "7.3").is_empty());
        for table in [old, new] {
            let names: HashSet<_> = table.iter().map(Deviation::name).collect();
            assert_eq!(names.len(), table.len(), "{names:?}");
        }
    }
}
