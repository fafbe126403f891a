//! Work that was refused, and why.

use mkey_core::device::{RefusalReport, RefusedBy};
use mkey_core::refusal::{ManageRefusal, Refusal};
use mkey_core::work::Completion;
use std::fmt;

/// Work that was refused, as its requester saw it, with the device's own reason.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refused {
    /// The completion that told it.
    pub completion: Completion,
    /// What was asked, and why not.
    pub report: RefusalReport,
}

impl Refused {
    pub(crate) fn new(completion: Completion, report: RefusalReport) -> Self {
        Self { completion, report }
    }

    /// The reason, if an access was refused.
    pub fn access(&self) -> Option<Refusal> {
        match self.report.refusal {
            RefusedBy::Access(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The reason, if a bind, an invalidation or a fast registration was refused.
    pub fn manage(&self) -> Option<ManageRefusal> {
        match self.report.refusal {
            RefusedBy::Manage(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { completion, report } = self;
        write!(f, "{}: {}: {}", completion.status, report.request, report.refusal)
    }
}
