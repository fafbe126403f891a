//! Registrations on the data path: by a thread that had posted work before and posted more after.
//!
//! What a thread posted is recorded as one number, receives with the rest; so processes that posted nothing but
//! receives are left out.

use super::ground::{Ground, Kind, took};
use super::list::List;
use super::tally::{SiteCost, Tally};
use super::times::{Times, share};
use mkey_trace::format::Recording;
use serde::Serialize;
use std::collections::HashSet;

/// Registrations on the data path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DataPath {
    /// Registrations (changes of them with them) and deregistrations.
    pub registrations: u64,
    /// See `registrations`.
    pub deregistrations: u64,
    /// These as a share of all such calls.
    pub share_of_calls: f64,
    /// Threads that made them, and the work requests that these posted, receives with them.
    pub threads: u64,
    /// See `threads`.
    pub posts: u64,
    /// How long the calls took: this is what work waited for.
    pub times: Times,
    /// Where, the costliest first.
    pub sites: List<SiteCost>,
}

impl DataPath {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let threads = &ground.recording.threads;
        let mut all = Self::default();
        let mut touched = vec![false; threads.len()];
        let mut times = Vec::new();
        let mut tally = Tally::new(&ground.places);
        let mut calls = 0;
        let queues = ground.recording.queues.iter();
        let sends = queues
            .filter(|queue| queue.posted.iter().any(|(op, count)| op != "recv" && *count > 0));
        let sending: HashSet<u32> = sends.map(|queue| queue.process).collect();
        for (call, kind) in ground.registration() {
            calls += 1;
            let Some(thread) = Recording::by_id(threads, call.thread) else { continue };
            let between = call.posts > 0 && thread.posts > call.posts;
            if !between || !sending.contains(&thread.process) {
                continue;
            }
            match kind {
                Kind::Register | Kind::Reregister => all.registrations += 1,
                Kind::Deregister => all.deregistrations += 1,
            }
            times.push(took(call));
            tally.add(ground.places.number(call.stack), took(call), call.len);
            if let Some(touched) = touched.get_mut(call.thread as usize - 1) {
                *touched = true;
            }
        }
        for (thread, _) in threads.iter().zip(touched).filter(|(_, touched)| *touched) {
            all.threads += 1;
            all.posts = all.posts.saturating_add(thread.posts);
        }
        all.times = Times::of(&mut times);
        all.share_of_calls = share(all.times.calls, calls);
        all.sites = tally.costliest(&ground.places, ground.lived);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;

    #[test]
    fn between_posts_is_on_the_data_path_and_before_or_after_all_is_not() {
        let mut builder = Builder::new();
        let io = builder.place("io", 5);
        builder.recording.threads[0].posts = 10;
        builder.queue(1, "RC", &[("recv", 5), ("send", 5)]);
        for (posts, ns) in [(0, 1), (1, 10), (9, 20), (10, 40)] {
            builder.region(0, 4096, 100, ns, io);
            builder.recording.calls.last_mut().unwrap().posts = posts;
            builder.dereg(200, 5, io).posts = posts;
        }
        let found = DataPath::of(&Ground::new(&builder.recording));
        assert_eq!((found.registrations, found.deregistrations), (2, 2));
        assert_eq!((found.times.ns, found.times.max_ns, found.share_of_calls), (40, 20, 0.5));
        assert_eq!((found.threads, found.posts), (1, 10));
        assert_eq!(found.sites.first[0].place.at, "io main.c:5");
        // Who only receives sends nothing that waits.
        builder.recording.queues[0].posted.remove("send");
        assert_eq!(DataPath::of(&Ground::new(&builder.recording)).times.calls, 0);
    }

    #[test]
    fn a_thread_that_is_not_known_has_no_data_path() {
        let mut builder = Builder::new();
        builder.region(0, 4096, 0, 1, 0);
        let call = builder.recording.calls.last_mut().unwrap();
        (call.thread, call.posts) = (0, 5);
        builder.queue(1, "RC", &[("send", 5)]);
        assert_eq!(DataPath::of(&Ground::new(&builder.recording)).times.calls, 0);
    }
}
