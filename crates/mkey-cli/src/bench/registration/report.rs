//! What a sweep found, as it is written to JSON and printed.
//!
//! Times are nanoseconds. `None` is "there is no such figure", never zero.

use crate::bench::report::{DeviceFacts, Machine, Missing, Outcome, Summary};
use serde::{Deserialize, Serialize};

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Everything that a sweep found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: String,
    /// The device measured.
    pub device: DeviceFacts,
    /// The machine.
    pub machine: Machine,
    /// The declared device command, nanoseconds; 0: none.
    pub command_cost_ns: u64,
    /// One row a kind of page and size.
    pub rows: Vec<Row>,
    /// What was probed in the kernel; `None`: not asked for.
    pub probes: Option<Probes>,
    /// Through which IOMMU memory was mapped; `None`: not asked for.
    #[serde(default)]
    pub iommu: Option<Iommu>,
    /// What this machine did not allow, and the command that would.
    pub missing: Vec<Missing>,
    /// How long the run took, seconds.
    pub seconds: f64,
}

/// A size on a kind of page and what it cost, or why it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The kind: `4 KiB`, `THP`, `2 MiB`, `1 GiB`.
    pub page: String,
    /// Bytes of such a page.
    pub page_bytes: u64,
    /// Bytes registered.
    pub bytes: u64,
    /// Whether a declared device command is in the figures.
    pub simulated: bool,
    /// The figures, or why there are none.
    pub outcome: Outcome<Figures>,
}

/// The figures of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The verb of registration from call to return.
    pub register: Summary,
    /// The verb of deregistration from call to return.
    pub deregister: Summary,
    /// Registrations during which the kernel ran something else in this thread's place. They are
    /// not in the figures, unless nearly all were.
    pub preempted: u64,
    /// Whether they are: the figures are then those of a busy machine.
    pub disturbed: bool,
    /// The device's own terms; `None`: it can not tell.
    pub terms: Option<Terms>,
    /// The kernel's; `None`: not probed.
    pub stages: Option<Stages>,
    /// The same memory behind an IOMMU; `None`: not mapped.
    #[serde(default)]
    pub dma: Option<Dma>,
}

/// The same memory mapped for DMA through an IOMMU by VFIO, which pins it for that; and only
/// pinned. The device that is measured has no part in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dma {
    /// Pinned and mapped.
    pub map: Summary,
    /// Unmapped and unpinned.
    pub unmap: Summary,
    /// Pinned, as the software RNIC pins.
    pub pin: Summary,
}

impl Dma {
    /// What the IOMMU adds to a pin, nanoseconds: a difference of medians.
    pub fn added_ns(&self) -> f64 {
        self.map.median_ns - self.pin.median_ns
    }
}

/// Through which IOMMU memory was mapped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iommu {
    /// The VFIO group.
    pub group: u32,
    /// Why nothing was mapped.
    pub missing: Option<Missing>,
}

/// What a device says that its registrations consist of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Pinning; `None`: nothing is pinned.
    pub pin: Option<Summary>,
    /// Unpinning, at deregistration; `None`: nothing is pinned.
    pub unpin: Option<Summary>,
    /// The device's own tables, at registration.
    pub table: Summary,
    /// Declared device commands of a registration; `None`: none declared.
    pub command: Option<Summary>,
}

/// Where the time of a registration goes in the kernel, probes and all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// The verb from call to return while it was probed, median.
    pub verb_ns: f64,
    /// Outside of the probed functions: the library, entering the kernel, what is not probed;
    /// median.
    pub outside_ns: f64,
    /// Registrations probed.
    pub samples: u64,
    /// In the order of the call chain; those that did not run are left out.
    pub stages: Vec<Stage>,
}

/// The time in a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name, as in [`Probed::stage`].
    pub stage: String,
    /// The term of the model that it counts to.
    pub term: Term,
    /// From entry to return, median; a function of the stage within another counts once.
    pub total_ns: f64,
    /// The same without the stages that it called, median.
    pub own_ns: f64,
    /// Calls in one registration, median; those from within the stage are not counted.
    pub calls: f64,
}

/// A term of the cost model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// Entering the kernel, and what it does once a call.
    Syscall,
    /// Looking pages up, counting and pinning them.
    Pin,
    /// Mapping pages for DMA: the IOMMU.
    Map,
    /// The device's tables, as the driver writes them.
    Table,
    /// What the device itself is waited for.
    Command,
    /// What is left.
    Rest,
}

impl Term {
    /// All, in the order that they are told in.
    pub const ALL: [Self; 6] =
        [Self::Syscall, Self::Pin, Self::Map, Self::Table, Self::Command, Self::Rest];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syscall => "system call",
            Self::Pin => "pin",
            Self::Map => "IOMMU map",
            Self::Table => "table",
            Self::Command => "device command",
            Self::Rest => "rest",
        }
    }
}

/// What was probed in the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// The call chain: of which driver.
    pub chain: String,
    /// What to know of it: "not run on hardware".
    pub note: Option<String>,
    /// Its functions.
    pub functions: Vec<Probed>,
    /// Terms that such a device does not have, and why.
    pub absent: Vec<(Term, String)>,
    /// Why nothing was probed.
    pub missing: Option<Missing>,
}

/// A stage of the call chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Its name for people.
    pub stage: String,
    /// The term that it counts to.
    pub term: Term,
    /// The functions that were probed.
    pub functions: Vec<String>,
    /// Those that could not be, and why, a sentence each.
    pub not_probed: Vec<String>,
    /// Where the kernel's source has them.
    pub source: String,
}

impl Row {
    /// Pages registered.
    pub fn pages(&self) -> u64 {
        self.bytes.div_ceil(self.page_bytes.max(1))
    }

    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        self.outcome.figures()
    }
}

impl Figures {
    /// The median of the whole verb and of each term that was measured, in nanoseconds; they add up
    /// to the whole, what no term holds being the rest. By the kernel's stages where `kernel`, else
    /// by the device's own terms. `None` where there are none.
    pub fn split(&self, kernel: bool) -> Option<(f64, Vec<(Term, f64)>)> {
        if kernel {
            let stages = self.stages.as_ref()?;
            let mut split: Vec<(Term, f64)> = Vec::new();
            let parts = stages.stages.iter().map(|stage| (stage.term, stage.own_ns));
            for (term, ns) in parts.chain([(Term::Syscall, stages.outside_ns)]) {
                match split.iter_mut().find(|(known, _)| *known == term) {
                    Some((_, sum)) => *sum += ns,
                    None => split.push((term, ns)),
                }
            }
            return Some((stages.verb_ns, with_rest(stages.verb_ns, split)));
        }
        let terms = self.terms?;
        let split = [
            (Term::Pin, terms.pin),
            (Term::Table, Some(terms.table)),
            (Term::Command, terms.command),
        ];
        let split = split.into_iter().filter_map(|(term, ns)| Some((term, ns?.median_ns)));
        let verb = self.register.median_ns;
        Some((verb, with_rest(verb, split.collect())))
    }
}

/// Medians do not add up exactly: what is left or too much is the rest.
fn with_rest(whole: f64, mut split: Vec<(Term, f64)>) -> Vec<(Term, f64)> {
    let sum: f64 = split.iter().map(|(_, ns)| ns).sum();
    split.push((Term::Rest, whole - sum));
    split.sort_unstable_by_key(|(term, _)| *term);
    split
}

#[cfg(test)]
mod tests {
    use crate::bench::registration::sample;

    use super::*;

    #[test]
    fn terms_and_rest_add_up() {
        let sweep = sample::sweep();
        for row in sweep.rows.iter().filter_map(Row::figures) {
            for kernel in [false, true] {
                let Some((whole, split)) = row.split(kernel) else {
                    assert!(kernel && row.stages.is_none());
                    continue;
                };
                let sum: f64 = split.iter().map(|(_, ns)| ns).sum();
                assert!((sum - whole).abs() < 1e-6 * whole, "{split:?} of {whole}");
                assert_eq!(split.last().unwrap().0, Term::Rest);
            }
        }
    }
}
