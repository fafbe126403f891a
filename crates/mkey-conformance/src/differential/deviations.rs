//! In what devices are known to differ from the software RNIC, as data, and the judgement of what
//! two traces differ in.

use super::program::Kind;
use super::trace::{Difference, Outcome, differences, errno_name, said};
use mkey_core::error::errno::*;
use mkey_core::status::WcStatus;
use std::fmt;

/// A known difference.
#[derive(Debug)]
pub struct Deviation {
    /// The rule that it is about, which the software RNIC keeps.
    pub rule: &'static str,
    /// What is seen: of any of these verbs or work requests...
    pub of: &'static [Kind],
    /// ... this on the software RNIC and that on the device.
    pub seen: Seen,
    /// Whether the devices then differ in more, as in states or memory: the rest of the program can
    /// not be compared.
    pub parts: bool,
    /// Why the device differs.
    pub why: &'static str,
}

/// What is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Errnos; 0 for success.
    Errno(i32, i32),
    /// Statuses; none where there is no completion.
    Status(Option<WcStatus>, Option<WcStatus>),
    /// Any status or none; flushed.
    Flushed,
    /// Other bytes of memory, where one of these ended with this on the software RNIC.
    Memory(WcStatus),
}

/// What becomes of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both devices showed the same.
    Same,
    /// What differs is known: the numbers of the deviations. If the devices have parted, the rest
    /// of the program can not be compared.
    Known {
        /// Indices into the table.
        deviations: Vec<usize>,
        /// Whether the devices have parted.
        parted: bool,
    },
    /// Something is not known.
    Unknown(Vec<Difference>),
}

impl Deviation {
    fn explains(&self, difference: &Difference, ours: &Outcome) -> bool {
        match (difference, self.seen) {
            (Difference::Answer(ours, theirs), Seen::Errno(one, other)) => {
                let kind = if ours.errno == 0 { theirs.kind } else { ours.kind };
                self.of.contains(&kind) && (ours.errno, theirs.errno) == (one, other)
            }
            (Difference::Status(kind, ours, theirs), Seen::Status(one, other)) => {
                self.of.contains(kind) && (*ours, *theirs) == (one, other)
            }
            (Difference::Status(kind, ours, theirs), Seen::Flushed) => {
                let flushed = Some(WcStatus::WrFlushErr);
                self.of.contains(kind) && *theirs == flushed && *ours != flushed
            }
            (Difference::Memory, Seen::Memory(status)) => {
                let mut all = ours.completions.iter().flatten();
                all.any(|done| done.status == status && self.of.contains(&done.kind))
            }
            _ => false,
        }
    }
}

/// Judges what a step showed on the software RNIC and on another device.
pub fn judge(table: &[Deviation], ours: &Outcome, theirs: &Outcome) -> Verdict {
    let found = differences(ours, theirs);
    if found.is_empty() {
        return Verdict::Same;
    }
    let first: Vec<_> = found.iter().filter(|difference| !difference.follows()).collect();
    let explained = |difference: &Difference| {
        table.iter().position(|deviation| deviation.explains(difference, ours))
    };
    let mut deviations: Vec<_> = found.iter().filter_map(explained).collect();
    deviations.sort_unstable();
    deviations.dedup();
    let parted = deviations.iter().any(|&at| table.get(at).is_some_and(|known| known.parts));
    let all = first.iter().all(|found| explained(found).is_some());
    // Where the devices have parted, the rest of what differs in the step follows from that.
    if parted || all && first.len() == found.len() {
        return Verdict::Known { deviations, parted };
    }
    Verdict::Unknown(found)
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Errno(ours, theirs) => {
                write!(f, "{}; {}", errno_name(ours), errno_name(theirs))
            }
            Self::Status(ours, theirs) => write!(f, "{}; {}", said(ours), said(theirs)),
            Self::Flushed => f.write_str("any status or none; work request flushed"),
            Self::Memory(status) => write!(f, "other bytes after {status}"),
        }
    }
}

const fn status(ours: WcStatus, theirs: WcStatus) -> Seen {
    Seen::Status(Some(ours), Some(theirs))
}

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

/// The known differences of soft-RoCE (rxe) in Linux.
pub const RXE: &[Deviation] = &[
    Deviation {
        rule: "R-RRG-05",
        of: &[Kind::Reregister],
        seen: Seen::Errno(0, EOPNOTSUPP),
        parts: true,
        why: "its library has no rereg_mr",
    },
    Deviation {
        rule: "R-RRG-05",
        of: &[Kind::Reregister],
        seen: Seen::Errno(EINVAL, EOPNOTSUPP),
        parts: false,
        why: "its library has no rereg_mr",
    },
    Deviation {
        rule: "R-LOC-01",
        of: &[Kind::Send, Kind::SendInv, Kind::Write, Kind::WriteImm],
        seen: status(WcStatus::LocProtErr, WcStatus::LocQpOpErr),
        parts: false,
        why: "the requester tells a bad source from other errors by EFAULT only (rxe_req.c)",
    },
    Deviation {
        rule: "R-LOC-06",
        of: &[Kind::Receive],
        seen: status(WcStatus::LocProtErr, WcStatus::LocQpOpErr),
        parts: false,
        why: "the responder has one error for all that is wrong with a receive (rxe_resp.c)",
    },
    Deviation {
        rule: "R-LOC-08",
        of: &[Kind::Receive],
        seen: status(WcStatus::LocLenErr, WcStatus::RemInvReqErr),
        parts: false,
        why: "the responder completes a receive that is too short with what it tells the peer",
    },
    Deviation {
        rule: "R-RA-15",
        of: &[Kind::Receive],
        seen: status(WcStatus::LocAccessErr, WcStatus::RemAccessErr),
        parts: false,
        why: "the responder completes the receive with what it tells the peer",
    },
    Deviation {
        rule: "R-ORD-12",
        of: &[Kind::Receive],
        seen: Seen::Status(Some(WcStatus::WrFlushErr), None),
        parts: false,
        why: "posting a receive enters no kernel, so one posted in ERR waits for the next event",
    },
    Deviation {
        rule: "R-ORD-12",
        of: &[Kind::Receive],
        seen: Seen::Status(None, Some(WcStatus::WrFlushErr)),
        parts: false,
        why: "the next event",
    },
    Deviation {
        rule: "R-MW-23",
        of: &[Kind::Bind1, Kind::Bind2],
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "libibverbs binds objects, not keys: a key that names none is refused at posting",
    },
    Deviation {
        rule: "R-AT-02",
        of: &[Kind::Atomic],
        seen: Seen::Errno(0, EINVAL),
        parts: true,
        why: "its library refuses a misaligned atomic at posting",
    },
    Deviation {
        rule: "R-INV-14",
        of: &[Kind::SendInv],
        seen: status(WcStatus::RetryExcErr, WcStatus::Success),
        parts: true,
        why: "the responder acknowledges what it could not invalidate (rxe_resp.c)",
    },
    Deviation {
        rule: "R-LOC-15",
        of: &[Kind::Write, Kind::WriteImm],
        seen: status(WcStatus::LocProtErr, WcStatus::RemAccessErr),
        parts: true,
        why: "packets of a message go out before all of its entries are looked at",
    },
    Deviation {
        rule: "R-MWU-05",
        of: &[Kind::Write, Kind::WriteImm, Kind::Read, Kind::Atomic],
        seen: status(WcStatus::RemAccessErr, WcStatus::Success),
        parts: true,
        why: "the range is compared with that of the region behind the window (rxe_resp.c)",
    },
    Deviation {
        rule: "R-LOC-15",
        of: &[Kind::Send, Kind::SendInv, Kind::Write, Kind::WriteImm, Kind::Read],
        seen: Seen::Memory(WcStatus::LocProtErr),
        parts: true,
        why: "packets of a message are taken before all of its entries are looked at",
    },
    Deviation {
        rule: "R-LOC-08",
        of: &[Kind::Receive],
        seen: status(WcStatus::LocLenErr, WcStatus::LocQpOpErr),
        parts: false,
        why: "a receive that is too short is found while data is copied, as one of bad memory is",
    },
    Deviation {
        rule: "R-LOC-08",
        of: &[Kind::Send, Kind::SendInv],
        seen: status(WcStatus::RemInvReqErr, WcStatus::RemOpErr),
        parts: false,
        why: "a receive that is too short is found while data is copied, as one of bad memory is",
    },
    Deviation {
        rule: "R-MW-19",
        of: &[Kind::Bind1, Kind::Bind2],
        seen: status(WcStatus::MwBindErr, WcStatus::Success),
        parts: true,
        why: "rights that a window can not have are taken (rxe_mw.c)",
    },
    Deviation {
        rule: "R-RRG-05",
        of: &[Kind::Reregister],
        seen: Seen::Errno(EBUSY, EOPNOTSUPP),
        parts: false,
        why: "its library has no rereg_mr",
    },
    Deviation {
        rule: "R-RRG-03",
        of: &[Kind::Reregister],
        seen: Seen::Errno(ENOENT, EINVAL),
        parts: false,
        why: "rights are looked at before the region is",
    },
    Deviation {
        rule: "R-LOC-01",
        of: &[Kind::Send, Kind::SendInv, Kind::Write, Kind::WriteImm],
        seen: status(WcStatus::LocProtErr, WcStatus::WrFlushErr),
        parts: false,
        why: "newer kernels flush the work request that failed with those after it",
    },
    Deviation {
        rule: "R-MW-23",
        of: &[Kind::Bind1, Kind::Bind2],
        seen: status(WcStatus::MwBindErr, WcStatus::WrFlushErr),
        parts: false,
        why: "newer kernels flush the work request that failed with those after it",
    },
    Deviation {
        rule: "R-INV-04",
        of: &[Kind::LocalInv],
        seen: status(WcStatus::LocQpOpErr, WcStatus::WrFlushErr),
        parts: false,
        why: "newer kernels flush the work request that failed with those after it",
    },
    Deviation {
        rule: "R-INV-05",
        of: &[Kind::LocalInv],
        seen: status(WcStatus::MwBindErr, WcStatus::WrFlushErr),
        parts: false,
        why: "newer kernels flush the work request that failed with those after it",
    },
    Deviation {
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        seen: status(WcStatus::LocLenErr, WcStatus::Success),
        parts: true,
        why: "an entry longer than 8 bytes is taken, too",
    },
    Deviation {
        rule: "R-MW-19",
        of: &[Kind::Bind1, Kind::Bind2],
        seen: Seen::Status(Some(WcStatus::MwBindErr), None),
        parts: true,
        why: "the same, unsignaled",
    },
    Deviation {
        rule: "R-MWU-05",
        of: &[Kind::Write, Kind::WriteImm, Kind::Read, Kind::Atomic],
        seen: Seen::Status(Some(WcStatus::RemAccessErr), None),
        parts: true,
        why: "the same, unsignaled",
    },
    Deviation {
        rule: "R-AT-04",
        of: &[Kind::Atomic],
        seen: Seen::Status(Some(WcStatus::LocLenErr), None),
        parts: true,
        why: "the same, unsignaled",
    },
    Deviation {
        rule: "R-LOC-08",
        of: &[Kind::Receive],
        seen: Seen::Memory(WcStatus::LocLenErr),
        parts: true,
        why: "what fits is placed before it is found that the rest does not",
    },
    Deviation {
        rule: "R-LOC-06",
        of: &[Kind::Receive],
        seen: Seen::Memory(WcStatus::LocProtErr),
        parts: true,
        why: "what comes before the bad entry is placed",
    },
    Deviation {
        rule: "R-RA-15",
        of: &[Kind::Receive],
        seen: status(WcStatus::LocAccessErr, WcStatus::WrFlushErr),
        parts: false,
        why: "the receive is taken with the last packet only, which does not come",
    },
    Deviation {
        rule: "R-LOC-15",
        of: &[Kind::Send, Kind::SendInv],
        seen: status(WcStatus::LocProtErr, WcStatus::RemInvReqErr),
        parts: true,
        why: "packets of a message go out before all of its entries are looked at",
    },
    Deviation {
        rule: "R-LOC-15",
        of: &[Kind::Send, Kind::SendInv],
        seen: status(WcStatus::LocProtErr, WcStatus::RemOpErr),
        parts: true,
        why: "packets of a message go out before all of its entries are looked at",
    },
    Deviation {
        rule: "R-ORD-06",
        of: SENDS,
        seen: Seen::Status(Some(WcStatus::RnrRetryExcErr), None),
        parts: true,
        why: "Linux 6.1: with a fenced work request behind it, it is not sent again after an RNR NAK",
    },
    Deviation {
        rule: "R-LOC-14",
        of: SENDS,
        seen: Seen::Flushed,
        parts: true,
        why: "newer kernels flush what is under way with what fails after it",
    },
];

/// Drivers over which programs use no on-demand regions, and why.
pub const WITHOUT_ON_DEMAND: &[(&str, &str)] = &[(
    "rxe",
    "what it writes to an on-demand region does not always come to be in the memory of the \
     program, and one with an address chosen for work requests can not be accessed (R-ODP-02, \
     R-REG-12)",
)];
