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
    fn explains(&self, difference: &Difference) -> bool {
        match (difference, self.seen) {
            (Difference::Answer(ours, theirs), Seen::Errno(one, other)) => {
                let kind = if ours.errno == 0 { theirs.kind } else { ours.kind };
                self.of.contains(&kind) && (ours.errno, theirs.errno) == (one, other)
            }
            (Difference::Status(kind, ours, theirs), Seen::Status(one, other)) => {
                self.of.contains(kind) && (*ours, *theirs) == (one, other)
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
        table.iter().position(|deviation| deviation.explains(difference))
    };
    let mut deviations: Vec<_> = first.iter().filter_map(|found| explained(found)).collect();
    let parted = first.iter().any(|found| found.parts() && explained(found).is_some());
    let all = first.iter().all(|found| explained(found).is_some());
    // Where the devices have parted, the rest of what differs in the step follows from that.
    if parted || all && first.len() == found.len() {
        deviations.sort_unstable();
        deviations.dedup();
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
        }
    }
}

/// The known differences of soft-RoCE (rxe) in Linux.
pub const RXE: &[Deviation] = &[
    Deviation {
        rule: "R-RRG-05",
        of: &[Kind::Reregister],
        seen: Seen::Errno(0, EOPNOTSUPP),
        why: "its library has no rereg_mr",
    },
];
