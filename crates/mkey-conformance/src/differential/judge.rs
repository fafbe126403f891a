//! Whether two outcomes of a step differ in more than is known.

use super::deviations::{Deviation, Seen};
use super::program::Kind;
use super::trace::{Difference, Done, Outcome, differences};
use super::traits::Traits;
use mkey_core::queue_pair::QpState;
use mkey_core::status::WcStatus;

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

/// Judges what a step showed on the software RNIC and on another device.
pub fn judge(table: &[Deviation], ours: &Outcome, theirs: &Outcome) -> Verdict {
    let found = differences(ours, theirs);
    if found.is_empty() {
        return Verdict::Same;
    }
    let explained = |difference: &Difference| {
        table.iter().position(|deviation| explains(deviation, difference, ours))
    };
    let mut deviations: Vec<_> = found.iter().filter_map(explained).collect();
    deviations.sort_unstable();
    deviations.dedup();
    // Where the devices have parted, the rest of what differs in the step follows from that.
    let parted = deviations.iter().any(|&at| table.get(at).is_some_and(|known| known.parts));
    if parted || found.iter().all(|difference| explained(difference).is_some()) {
        return Verdict::Known { deviations, parted };
    }
    Verdict::Unknown(found)
}

fn explains(deviation: &Deviation, difference: &Difference, ours: &Outcome) -> bool {
    let with = |traits: Traits| traits.contains(deviation.with);
    let of = |kind| deviation.of.contains(&kind);
    match (difference, deviation.seen) {
        (Difference::Answer(ours, theirs), Seen::Errno(one, other)) => {
            let refused = if ours.errno == 0 { theirs } else { ours };
            of(refused.kind) && with(refused.traits) && (ours.errno, theirs.errno) == (one, other)
        }
        (Difference::Status(kind, traits, ours, theirs), Seen::Status(one, other)) => {
            of(*kind) && with(*traits) && (*ours, *theirs) == (Some(one), Some(other))
        }
        (Difference::Status(kind, _, ours, theirs), Seen::Late(status)) => {
            let (come, none) = (Some(status), None);
            of(*kind) && ((*ours, *theirs) == (come, none) || (*ours, *theirs) == (none, come))
        }
        (difference, Seen::Partly(status)) => {
            let failed = |done: &Done| of(done.kind) && with(done.traits) && done.status == status;
            peer_fails(difference) && ours.completions.iter().flatten().any(failed)
        }
        (Difference::Status(kind, _, Some(status), None), Seen::Lost(statuses)) => {
            of(*kind) && statuses.contains(status) && something_behind(deviation, *status, ours)
        }
        (Difference::Status(kind, traits, ours, None), Seen::Never(status)) => {
            of(*kind) && with(*traits) && *ours == Some(status)
        }
        (Difference::Untold(kind, ours), Seen::Untold(statuses)) => {
            let listed = ours.is_some_and(|ours| statuses.contains(&ours));
            of(*kind) && (listed || statuses.is_empty())
        }
        (Difference::Memory, Seen::Placed) => {
            let mut all = ours.completions.iter().flatten();
            let failed = |status| !matches!(status, WcStatus::Success | WcStatus::WrFlushErr);
            all.any(|done| of(done.kind) && with(done.traits) && failed(done.status))
        }
        (difference, Seen::Behind(status)) => {
            was_done(difference) && something_behind(deviation, status, ours)
        }
        _ => false,
    }
}

/// Whether a peer shows an error on the other device only, or is told of as showing one.
fn peer_fails(difference: &Difference) -> bool {
    match difference {
        Difference::State(_, ours, theirs) => (*ours, *theirs) == (QpState::Rts, QpState::Err),
        Difference::Status(Kind::Receive, _, None, Some(theirs)) => *theirs != WcStatus::Success,
        Difference::Status(_, _, Some(WcStatus::LocProtErr), Some(theirs)) => {
            matches!(theirs, WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr)
        }
        _ => false,
    }
}

/// Whether a difference shows at a peer that something was done on the other device only.
fn was_done(difference: &Difference) -> bool {
    match difference {
        Difference::Memory => true,
        Difference::State(_, ours, theirs) => (*ours, *theirs) == (QpState::Rts, QpState::Err),
        Difference::Status(Kind::Receive, _, ours, _) => ours.is_none(),
        _ => false,
    }
}

/// Whether a work request of the deviation's kinds ended with this, and another is behind it.
fn something_behind(deviation: &Deviation, status: WcStatus, ours: &Outcome) -> bool {
    let failed = |done: &Done| deviation.of.contains(&done.kind) && done.status == status;
    ours.completions
        .iter()
        .any(|queue| queue.iter().position(failed).is_some_and(|at| at + 1 < queue.len()))
}

#[cfg(test)]
mod tests {
    use super::super::trace::Answer;
    use super::*;
    use crate::deviations::EVERY;
    use mkey_core::error::errno::EINVAL;

    fn deviation(of: &'static [Kind], with: Traits, seen: Seen, parts: bool) -> Deviation {
        Deviation { kernels: EVERY, rule: "R", of, with, seen, parts, why: "" }
    }

    fn outcome(status: WcStatus, traits: Traits) -> Outcome {
        let answer = Answer { kind: Kind::Write, traits, errno: 0, posted: 1 };
        let done = Done { wr: 1, kind: Kind::Write, traits, status, detail: None };
        let completions = [vec![done], Vec::new(), Vec::new(), Vec::new()];
        Outcome { answer, completions, states: [QpState::Rts; 2], memory: 1 }
    }

    #[test]
    fn a_deviation_is_about_its_kinds_traits_and_statuses_only() {
        use WcStatus::{LocProtErr, LocQpOpErr, RemAccessErr, RemOpErr, Success};
        let seen = Seen::Status(LocProtErr, LocQpOpErr);
        let judged = |of, with, ours, theirs| {
            let table = [deviation(of, with, seen, false)];
            let (ours, theirs) = (outcome(ours, Traits::PARTS), outcome(theirs, Traits::PARTS));
            matches!(judge(&table, &ours, &theirs), Verdict::Known { .. })
        };
        let (write, none, parts) = (&[Kind::Write], Traits::empty(), Traits::PARTS);
        assert!(judged(write, none, LocProtErr, LocQpOpErr));
        assert!(judged(write, parts, LocProtErr, LocQpOpErr));
        assert!(!judged(write, Traits::WINDOW, LocProtErr, LocQpOpErr));
        assert!(!judged(&[Kind::Read], none, LocProtErr, LocQpOpErr));
        assert!(!judged(write, none, LocProtErr, Success));
        assert!(!judged(write, none, RemAccessErr, LocQpOpErr));
        assert!(!judged(write, none, LocProtErr, RemOpErr));
    }

    #[test]
    fn what_else_differs_is_known_only_where_the_devices_have_parted() {
        let (ours, mut theirs) = (
            outcome(WcStatus::RemAccessErr, Traits::WINDOW),
            outcome(WcStatus::Success, Traits::WINDOW),
        );
        theirs.memory = 2;
        theirs.states[1] = QpState::Err;
        let seen = Seen::Status(WcStatus::RemAccessErr, WcStatus::Success);
        let table = |parts| [deviation(&[Kind::Write], Traits::WINDOW, seen, parts)];
        let known = Verdict::Known { deviations: vec![0], parted: true };
        assert_eq!(judge(&table(true), &ours, &theirs), known);
        assert!(matches!(judge(&table(false), &ours, &theirs), Verdict::Unknown(_)));
        theirs.memory = 1;
        theirs.states[1] = QpState::Rts;
        let known = Verdict::Known { deviations: vec![0], parted: false };
        assert_eq!(judge(&table(false), &ours, &theirs), known);
    }

    #[test]
    fn bytes_may_differ_only_behind_something_that_failed_in_parts() {
        let table = [deviation(&[Kind::Write], Traits::PARTS, Seen::Placed, true)];
        for (status, traits, known) in [
            (WcStatus::LocProtErr, Traits::PARTS, true),
            (WcStatus::LocProtErr, Traits::empty(), false),
            (WcStatus::Success, Traits::PARTS, false),
            (WcStatus::WrFlushErr, Traits::PARTS, false),
        ] {
            let ours = outcome(status, traits);
            let theirs = Outcome { memory: 2, ..ours.clone() };
            let verdict = judge(&table, &ours, &theirs);
            assert_eq!(matches!(verdict, Verdict::Known { .. }), known, "{status}");
        }
    }

    #[test]
    fn bytes_may_differ_only_where_something_is_behind_what_failed() {
        let failed = WcStatus::LocProtErr;
        let table = [deviation(&[Kind::Write], Traits::empty(), Seen::Behind(failed), true)];
        let known = |ours: &Outcome| {
            let theirs = Outcome { memory: 2, ..ours.clone() };
            matches!(judge(&table, ours, &theirs), Verdict::Known { .. })
        };
        let mut ours = outcome(failed, Traits::empty());
        assert!(!known(&ours));
        let behind = Done { wr: 2, status: WcStatus::WrFlushErr, ..ours.completions[0][0] };
        ours.completions[0].push(behind);
        assert!(known(&ours));
        let fails = |end: usize| {
            let mut theirs = ours.clone();
            theirs.states[end] = QpState::Err;
            matches!(judge(&table, &ours, &theirs), Verdict::Known { .. })
        };
        assert!(fails(0) && fails(1));
        let receives = |one: Option<WcStatus>, other: Option<WcStatus>| {
            let (mut ours, mut theirs) = (ours.clone(), ours.clone());
            let done = |status| Done { wr: 9, kind: Kind::Receive, status, ..behind };
            ours.completions[3].extend(one.map(done));
            theirs.completions[3].extend(other.map(done));
            matches!(judge(&table, &ours, &theirs), Verdict::Known { .. })
        };
        assert!(receives(None, Some(WcStatus::Success)));
        assert!(!receives(Some(WcStatus::Success), None));
        ours.completions[0][0].status = WcStatus::RemAccessErr;
        assert!(!known(&ours));
    }

    #[test]
    fn what_never_comes_is_of_the_kinds_traits_and_status_only() {
        known_only_in_parts(Seen::Never, |theirs| theirs.completions[0].clear());
    }

    #[test]
    fn a_peer_may_fail_only_where_something_failed_in_parts() {
        known_only_in_parts(Seen::Partly, |theirs| theirs.states[1] = QpState::Err);
    }

    /// What `differs` makes of an outcome is known only of that status, and only in parts.
    fn known_only_in_parts(seen: fn(WcStatus) -> Seen, differs: fn(&mut Outcome)) {
        let seen = seen(WcStatus::LocProtErr);
        let table = [deviation(&[Kind::Write], Traits::PARTS, seen, true)];
        for (status, traits, known) in [
            (WcStatus::LocProtErr, Traits::PARTS, true),
            (WcStatus::LocProtErr, Traits::empty(), false),
            (WcStatus::RemAccessErr, Traits::PARTS, false),
        ] {
            let ours = outcome(status, traits);
            let mut theirs = ours.clone();
            differs(&mut theirs);
            let verdict = judge(&table, &ours, &theirs);
            assert_eq!(matches!(verdict, Verdict::Known { .. }), known, "{status}");
        }
    }

    #[test]
    fn an_answer_is_known_by_what_was_refused() {
        let table = [deviation(&[Kind::Atomic], Traits::MISALIGNED, Seen::Errno(0, EINVAL), true)];
        let ours = outcome(WcStatus::Success, Traits::empty());
        let mut theirs = ours.clone();
        theirs.completions[0].clear();
        let refused = |kind, traits| Answer { kind, traits, errno: EINVAL, posted: 0 };
        for (answer, known) in [
            (refused(Kind::Atomic, Traits::MISALIGNED), true),
            (refused(Kind::Atomic, Traits::empty()), false),
            (refused(Kind::Write, Traits::MISALIGNED), false),
        ] {
            theirs.answer = answer;
            let verdict = judge(&table, &ours, &theirs);
            assert_eq!(matches!(verdict, Verdict::Known { .. }), known, "{answer:?}");
        }
    }
}
