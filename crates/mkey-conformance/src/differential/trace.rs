//! What running a program showed, and in what two such traces differ.

use super::program::{End, Kind};
use super::traits::Traits;
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
    /// What is special about that.
    pub traits: Traits,
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
    /// What is special about it.
    pub traits: Traits,
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
    /// Status of a work request, if it completed or what is behind it tells that it succeeded.
    Status(Kind, Traits, Option<WcStatus>, Option<WcStatus>),
    /// The status of a work request which the other device has flushed, in a queue in which the
    /// software RNIC showed an error, and the other device nothing but success and flushing.
    Untold(Kind, Option<WcStatus>),
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
    // What a work request ended with that has completed on the other device. An unsignaled one has
    // succeeded if one behind it has completed (R-ORD-05).
    let ended = |done: Option<Done>, other: &Done, list: &[Done]| {
        let unsignaled = other.traits.contains(Traits::UNSIGNALED);
        let passed = unsignaled && list.iter().any(|done| done.wr > other.wr);
        done.map(|done| done.status).or(passed.then_some(WcStatus::Success))
    };
    let fails = |done: &Done| !matches!(done.status, WcStatus::Success | WcStatus::WrFlushErr);
    let untold = ours.iter().any(fails) && !theirs.iter().any(fails);
    let mut differ = |of: &Done, ours: Option<WcStatus>, theirs: Option<WcStatus>| {
        found.push(match theirs {
            Some(WcStatus::WrFlushErr) if untold && of.kind != Kind::Receive => {
                Difference::Untold(of.kind, ours)
            }
            _ => Difference::Status(of.kind, of.traits, ours, theirs),
        });
    };
    let mut details = Vec::new();
    for done in ours {
        let other = of(done.wr, theirs);
        let (status, theirs) = (Some(done.status), ended(other, done, theirs));
        if status != theirs {
            differ(done, status, theirs);
        } else if let (Some(ours), Some(theirs)) = (done.detail, other.and_then(|o| o.detail))
            && ours != theirs
        {
            details.push(Difference::Detail(done.kind, ours, theirs));
        }
    }
    for other in theirs.iter().filter(|other| of(other.wr, ours).is_none()) {
        let ours = ended(None, other, ours);
        if ours != Some(other.status) {
            differ(other, ours, Some(other.status));
        }
    }
    found.append(&mut details);
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

/// An errno by its name.
pub(crate) fn errno_name(errno: i32) -> String {
    use mkey_core::error::errno::*;
    const NAMES: [(i32, &str); 9] = [
        (0, "success"),
        (EPERM, "EPERM"),
        (ENOENT, "ENOENT"),
        (ENOMEM, "ENOMEM"),
        (EACCES, "EACCES"),
        (EFAULT, "EFAULT"),
        (EBUSY, "EBUSY"),
        (EINVAL, "EINVAL"),
        (EOPNOTSUPP, "EOPNOTSUPP"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == errno).map(|(_, name)| *name);
    name.map_or_else(|| std::io::Error::from_raw_os_error(errno).to_string(), str::to_owned)
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
            Self::Status(kind, _, ours, theirs) => {
                write!(f, "{kind:?} ends with {}, {}", said(*ours), said(*theirs))
            }
            Self::Untold(kind, ours) => {
                write!(f, "{kind:?} ends with {}, flushed without a reason", said(*ours))
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
        let answer = Answer { kind: Kind::Write, traits: Traits::empty(), errno: 0, posted: 2 };
        let detail = Some(Detail {
            opcode: WcOpcode::Recv,
            byte_len: Some(8),
            imm: None,
            invalidated: None,
        });
        let (kind, traits) = (Kind::Write, Traits::empty());
        let done = |wr, status| Done { wr, kind, traits, status, detail };
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

    #[test]
    fn an_unsignaled_request_has_succeeded_if_one_behind_it_completed() {
        let mut ours = outcome();
        ours.completions[0][0].traits = Traits::UNSIGNALED;
        let mut theirs = ours.clone();
        theirs.completions[0].remove(0);
        assert_eq!(differences(&ours, &theirs), []);
        ours.completions[0][0].status = WcStatus::RemAccessErr;
        let (ended, succeeded) = (Some(WcStatus::RemAccessErr), Some(WcStatus::Success));
        let status = Difference::Status(Kind::Write, Traits::UNSIGNALED, ended, succeeded);
        assert_eq!(differences(&ours, &theirs), [status]);
        // Nothing tells of it.
        theirs.completions[0].clear();
        let status = Difference::Status(Kind::Write, Traits::UNSIGNALED, ended, None);
        assert!(differences(&ours, &theirs).contains(&status));
    }

    #[test]
    fn what_is_flushed_without_a_reason_is_told_apart() {
        let mut ours = outcome();
        ours.completions[0][1].status = WcStatus::LocProtErr;
        let mut theirs = ours.clone();
        theirs.completions[0][1].status = WcStatus::WrFlushErr;
        let failed = Some(WcStatus::LocProtErr);
        assert_eq!(differences(&ours, &theirs), [Difference::Untold(Kind::Write, failed)]);
        // There is a reason.
        theirs.completions[0][0].status = WcStatus::RemAccessErr;
        let found = differences(&ours, &theirs);
        assert!(!found.iter().any(|found| matches!(found, Difference::Untold(..))), "{found:?}");
    }
}
