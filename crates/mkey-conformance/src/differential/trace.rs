//! What running a program showed, and in what two such traces differ.

use super::program::{End, Kind};
use mkey_core::queue_pair::QpState;
use mkey_core::status::{WcOpcode, WcStatus};
use std::fmt;

/// What each step showed, the last one being the freeing of all objects.
pub type Trace = Vec<Outcome>;

/// What one step showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the step's verb answered.
    pub answer: Answer,
    /// Completions: sends of A, sends of B, receives of A, receives of B.
    pub completions: [Vec<Done>; 4],
    /// The states of both queue pairs.
    pub states: [QpState; 2],
    /// A hash of all memory.
    pub memory: u64,
}

/// What a verb answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The verb, or the work request that was refused.
    pub kind: Kind,
    /// 0, or an errno.
    pub errno: i32,
    /// How many work requests of a chain were posted.
    pub posted: usize,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The number of the work request, counted over the program.
    pub wr: u64,
    /// What was posted.
    pub kind: Kind,
    /// Its status.
    pub status: WcStatus,
    /// The rest, as far as it is defined: not after an error (R-LOC-13).
    pub detail: Option<Detail>,
}

/// What a completion without an error tells besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// What it was.
    pub opcode: WcOpcode,
    /// Bytes received, of receives; read, of READs and atomics.
    pub byte_len: Option<u32>,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Whether the peer invalidated a key, and that the key is the one it named.
    pub invalidated: Option<bool>,
}

/// One thing in which two traces differ: what the software RNIC showed, then the other device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Errno of a verb, and how many work requests it posted.
    Answer(Answer, Answer),
    /// Status of a work request, if it completed.
    Status(Kind, Option<WcStatus>, Option<WcStatus>),
    /// What a completion tells besides its status.
    Detail(Kind, Detail, Detail),
    /// Completions of a queue come in another order.
    Order(Kind),
    /// The state of a queue pair.
    State(End, QpState, QpState),
    /// Bytes of memory.
    Memory,
}

impl Difference {
    /// Whether it can only follow from another difference.
    pub fn follows(&self) -> bool {
        matches!(self, Self::State(..) | Self::Memory)
    }
}

/// In what two outcomes of a step differ.
pub fn differences(ours: &Outcome, theirs: &Outcome) -> Vec<Difference> {
    let mut found = Vec::new();
    if ours.answer != theirs.answer {
        found.push(Difference::Answer(ours.answer, theirs.answer));
    }
    for (ours, theirs) in ours.completions.iter().zip(&theirs.completions) {
        completions(ours, theirs, &mut found);
    }
    let states = ours.states.iter().zip(&theirs.states).zip([End::A, End::B]);
    for ((ours, theirs), end) in states.filter(|((ours, theirs), _)| ours != theirs) {
        found.push(Difference::State(end, *ours, *theirs));
    }
    if ours.memory != theirs.memory {
        found.push(Difference::Memory);
    }
    found
}

fn completions(ours: &[Done], theirs: &[Done], found: &mut Vec<Difference>) {
    let of = |wr: u64, list: &[Done]| list.iter().find(|done| done.wr == wr).copied();
    for done in ours {
        match of(done.wr, theirs) {
            Some(other) if other.status != done.status => {
                let statuses = (Some(done.status), Some(other.status));
                found.push(Difference::Status(done.kind, statuses.0, statuses.1));
            }
            Some(other) => {
                if let (Some(ours), Some(theirs)) = (done.detail, other.detail)
                    && ours != theirs
                {
                    found.push(Difference::Detail(done.kind, ours, theirs));
                }
            }
            None => found.push(Difference::Status(done.kind, Some(done.status), None)),
        }
    }
    for other in theirs.iter().filter(|other| of(other.wr, ours).is_none()) {
        found.push(Difference::Status(other.kind, None, Some(other.status)));
    }
    let numbers = |list: &[Done]| list.iter().map(|done| done.wr).collect::<Vec<_>>();
    if ours.len() == theirs.len()
        && numbers(ours) != numbers(theirs)
        && let Some(first) = ours.first()
    {
        found.push(Difference::Order(first.kind));
    }
}

/// A status, or that there was none.
pub(crate) fn said(status: Option<WcStatus>) -> String {
    status.map_or_else(|| "no completion".to_owned(), |status| status.to_string())
}

/// An errno in words.
pub(crate) fn errno_name(errno: i32) -> String {
    match errno {
        0 => "success".to_owned(),
        other => std::io::Error::from_raw_os_error(other).to_string(),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(ours, theirs) => {
                let words = |answer: &Answer| {
                    format!("{} ({} posted)", errno_name(answer.errno), answer.posted)
                };
                let (kind, other) = (ours.kind, theirs.kind);
                write!(f, "{kind:?} answers {}, {other:?} {}", words(ours), words(theirs))
            }
            Self::Status(kind, ours, theirs) => {
                write!(f, "{kind:?} ends with {}, {}", said(*ours), said(*theirs))
            }
            Self::Detail(kind, ours, theirs) => write!(f, "{kind:?} tells {ours:?}, {theirs:?}"),
            Self::Order(kind) => write!(f, "completions of {kind:?} in another order"),
            Self::State(end, ours, theirs) => write!(f, "{end:?} is in {ours}, {theirs}"),
            Self::Memory => f.write_str("memory differs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let answer = Answer { kind: Kind::Write, errno: 0, posted: 2 };
        let detail = Some(Detail {
            opcode: WcOpcode::Recv,
            byte_len: Some(8),
            imm: None,
            invalidated: None,
        });
        let done = |wr, status| Done { wr, kind: Kind::Write, status, detail };
        let sends = vec![done(1, WcStatus::Success), done(2, WcStatus::Success)];
        let completions = [sends, Vec::new(), Vec::new(), Vec::new()];
        Outcome { answer, completions, states: [QpState::Rts; 2], memory: 1 }
    }

    #[test]
    fn every_field_is_compared() {
        let ours = outcome();
        assert_eq!(differences(&ours, &ours), []);
        type Change = fn(&mut Outcome);
        let changes: [(Change, bool); 8] = [
            (|o| o.answer.errno = 22, false),
            (|o| o.answer.posted = 1, false),
            (|o| o.completions[0][0].status = WcStatus::LocProtErr, false),
            (|o| o.completions[0].truncate(1), false),
            (|o| o.completions[0].swap(0, 1), false),
            (|o| o.states[1] = QpState::Err, true),
            (|o| o.memory = 2, true),
            (
                |o| {
                    if let Some(detail) = &mut o.completions[0][0].detail {
                        detail.byte_len = Some(9);
                    }
                },
                false,
            ),
        ];
        for (number, (change, follows)) in changes.into_iter().enumerate() {
            let mut theirs = outcome();
            change(&mut theirs);
            let found = differences(&ours, &theirs);
            assert_eq!(found.len(), 1, "change {number}: {found:?}");
            assert_eq!(found[0].follows(), follows, "{number}");
        }
    }
}
