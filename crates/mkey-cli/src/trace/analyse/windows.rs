//! Memory windows: what was bound and what was taken back.

use super::ground::Ground;
use super::list::List;
use super::tally::{SiteCost, Tally};
use mkey_trace::format::Recording;
use serde::Serialize;

/// What became of memory windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Windows {
    /// Windows of type 1, of type 2.
    pub type_1: u64,
    /// See `type_1`.
    pub type_2: u64,
    /// Binds; those of zero length, which take a grant back, are not among them.
    pub binds: u64,
    /// Binds of zero length.
    pub unbinds: u64,
    /// Invalidations by the windows' own processes.
    pub invalidations: u64,
    /// Invalidations asked of peers, by SEND with invalidate.
    pub remote_invalidations: u64,
    /// Windows that were never bound.
    pub never_bound: u64,
    /// Where these were allocated.
    pub never_bound_sites: List<SiteCost>,
    /// Windows that were bound, and neither invalidated by their process nor freed.
    pub never_taken_back: u64,
    /// Where these were allocated.
    pub never_taken_back_sites: List<SiteCost>,
    /// Windows of processes that were killed, crashed, or ran on, which had not freed them: nothing is held
    /// against these.
    pub open: u64,
    /// Whether a traced peer may have taken some of them back, by SEND with invalidate.
    pub maybe_by_peer: bool,
}

impl Windows {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let mut all = Self::default();
        let mut idle = Tally::new(&ground.places);
        let mut kept = Tally::new(&ground.places);
        for window in &ground.recording.windows {
            match window.kind {
                1 => all.type_1 += 1,
                _ => all.type_2 += 1,
            }
            // A bind of zero length is among the binds that were counted.
            let binds = window.binds.saturating_sub(window.unbinds);
            all.binds = all.binds.saturating_add(binds);
            all.unbinds = all.unbinds.saturating_add(window.unbinds);
            all.invalidations = all.invalidations.saturating_add(window.invalidations);
            let place = ground.places.number(window.alloc_stack);
            // What a process that was killed, or runs on, would have done is not known.
            let process = Recording::by_id(&ground.recording.processes, window.process);
            if window.to.is_none() && !process.is_some_and(|process| process.exited) {
                all.open += 1;
            } else if binds == 0 {
                idle.add(place, 0, 0);
            } else if window.unbinds == 0 && window.invalidations == 0 && window.to.is_none() {
                kept.add(place, 0, 0);
            }
        }
        for queue in &ground.recording.queues {
            all.remote_invalidations = all.remote_invalidations.saturating_add(queue.invalidations);
        }
        (all.never_bound, all.never_taken_back) = (idle.total().0, kept.total().0);
        all.never_bound_sites = idle.costliest(&ground.places, ground.lived);
        all.never_taken_back_sites = kept.costliest(&ground.places, ground.lived);
        all.maybe_by_peer = all.remote_invalidations > 0;
        all
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.type_1 + self.type_2
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use mkey_trace::format::{Queue, Window};

    #[test]
    fn each_window_is_bound_and_taken_back_or_told_of() {
        let mut builder = Builder::new();
        let place = builder.place("grant", 8);
        let window = |kind, binds, unbinds, invalidations, to| Window {
            process: 1,
            kind,
            binds,
            unbinds,
            invalidations,
            to,
            alloc_stack: place,
            ..Window::default()
        };
        builder.recording.windows = vec![
            window(2, 5, 0, 5, None),
            window(2, 3, 0, 0, None),
            window(2, 3, 0, 0, Some(9)),
            window(1, 4, 2, 0, None),
            window(1, 0, 0, 0, Some(9)),
        ];
        let all = Windows::of(&Ground::new(&builder.recording));
        assert_eq!((all.type_1, all.type_2, all.count()), (2, 3, 5));
        assert_eq!((all.binds, all.unbinds, all.invalidations), (13, 2, 5));
        assert_eq!((all.never_bound, all.never_taken_back, all.maybe_by_peer), (1, 1, false));
        assert_eq!(all.never_taken_back_sites.first[0].place.at, "grant main.c:8");
        // Of a process that did not end by itself it is not known what it would have done.
        builder.recording.processes[0].exited = false;
        let all = Windows::of(&Ground::new(&builder.recording));
        assert_eq!((all.never_bound, all.never_taken_back, all.open), (1, 0, 3));
        builder.recording.queues.push(Queue { invalidations: 3, ..Queue::default() });
        assert!(Windows::of(&Ground::new(&builder.recording)).maybe_by_peer);
    }
}
