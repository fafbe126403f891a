//! Regions that were held for nothing: never used, or left behind at exit.

use super::ground::{Ground, Known, has_bytes, is_idle, rights};
use super::list::List;
use super::tally::{SiteCost, Tally};
use mkey_core::rights::Rights;
use serde::Serialize;

/// Regions that were held for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Held {
    /// Regions that were made.
    pub regions: u64,
    /// No work request named them, and no peer may use them or all peers that may were traced and did not.
    pub unused: Regions,
    /// No work request named them, and a peer may use them that was not traced: not held against anybody.
    pub maybe_used_by_peer: Regions,
    /// No work request named them, and work may have been posted past libibverbs: not held against anybody.
    pub posts_not_seen: Regions,
    /// Left registered by processes that ended by `exit`.
    pub leaked: Regions,
    /// Registered still in processes that were killed, crashed, or ran on: not held against anybody.
    pub open: Regions,
}

/// Regions, and where they were registered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Regions {
    /// How many.
    pub regions: u64,
    /// Their bytes; without those of all of the address space.
    pub bytes: u64,
    /// What registering and deregistering them took, ns.
    pub ns: u64,
    /// Where, those with the most bytes first.
    pub sites: List<SiteCost>,
}

impl Held {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let mut tallies: [Tally; 5] = std::array::from_fn(|_| Tally::new(&ground.places));
        let [unused, maybe, unseen, leaked, open] = &mut tallies;
        let mut count = 0;
        for (region, cost, by) in ground.regions() {
            count += 1;
            let bytes = if has_bytes(region) { region.len } else { 0 };
            let place = ground.places.number(region.reg_stack);
            if is_idle(region, by) {
                let remote = rights(region.access).intersects(Rights::REMOTE);
                let tally = match ground.known(region, remote) {
                    Known::Yes => &mut *unused,
                    Known::PeerNotTraced => &mut *maybe,
                    Known::PostsNotSeen => &mut *unseen,
                };
                tally.add(place, cost.ns(), bytes);
            }
            if region.to.is_none() {
                let tally = if ground.exited(region) { &mut *leaked } else { &mut *open };
                tally.add(place, cost.ns(), bytes);
            }
        }
        let regions = |tally: &Tally| {
            let (regions, ns, bytes) = tally.total();
            let sites = tally.largest(&ground.places, ground.lived);
            Regions { regions, bytes, ns, sites }
        };
        let [unused, maybe, unseen, leaked, open] = &tallies;
        Self {
            regions: count,
            unused: regions(unused),
            maybe_used_by_peer: regions(maybe),
            posts_not_seen: regions(unseen),
            leaked: regions(leaked),
            open: regions(open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Builder, REMOTE_WRITE};
    use super::*;
    use mkey_trace::format::Remote;

    fn counts(builder: &Builder) -> [u64; 5] {
        let held = Held::of(&Ground::new(&builder.recording));
        [held.unused, held.maybe_used_by_peer, held.posts_not_seen, held.leaked, held.open]
            .map(|regions| regions.regions)
    }

    #[test]
    fn used_unused_and_left() {
        let mut builder = Builder::new();
        let place = builder.place("setup", 3);
        builder.region(0, 4096, 0, 1, place).sends = 1;
        builder.dereg(5, 1, place);
        builder.region(0x10000, 8192, 10, 1, place);
        let held = Held::of(&Ground::new(&builder.recording));
        assert_eq!(counts(&builder), [1, 0, 0, 1, 0]);
        assert_eq!((held.unused.bytes, held.leaked.bytes), (8192, 8192));
        assert_eq!(held.leaked.sites.first[0].place.at, "setup main.c:3");
    }

    #[test]
    fn what_a_killed_process_had_is_no_leak() {
        let mut builder = Builder::new();
        builder.recording.processes[0].exited = false;
        builder.region(0, 4096, 0, 1, 0).sends = 1;
        assert_eq!(counts(&builder), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn remote_rights_are_judged_only_where_the_peer_was_traced() {
        let mut builder = Builder::new();
        builder.region(0, 4096, 0, 1, 0).access = REMOTE_WRITE;
        builder.dereg(5, 1, 0);
        builder.region(0x10000, 4096, 10, 1, 0).access = REMOTE_WRITE;
        builder.dereg(15, 1, 0);
        builder.queue(1, "RC", &[]);
        assert_eq!(counts(&builder), [0, 2, 0, 0, 0]);
        // A traced peer wrote to the first: the second is known to be unused.
        let client = builder.process(true);
        let remote =
            Remote { process: client, rkey: 3, region: Some(1), writes: 7, ..Remote::default() };
        builder.recording.remotes.push(remote.clone());
        builder.queue(client, "RC", &[("write", 7)]);
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0]);
        // A request named the key of the second, and it is not sure that it was for it.
        builder.recording.remotes.push(Remote { rkey: 5, region: None, ..remote });
        assert_eq!(counts(&builder), [0, 1, 0, 0, 0]);
        // There is another connection, whose other end nobody knows.
        builder.recording.remotes.pop();
        builder.queue(1, "RC", &[]);
        assert_eq!(counts(&builder), [0, 1, 0, 0, 0]);
    }

    #[test]
    fn whose_requests_a_traced_process_meets_has_a_traced_peer() {
        let mut builder = Builder::new();
        let client = builder.process(true);
        builder.region(0, 4096, 0, 1, 0).access = REMOTE_WRITE;
        builder.region(0x10000, 4096, 10, 1, 0).process = client;
        builder.recording.regions[1].access = REMOTE_WRITE;
        for region in &mut builder.recording.regions {
            region.to = Some(900);
        }
        let remote =
            Remote { process: client, rkey: 3, region: Some(1), writes: 7, ..Remote::default() };
        builder.recording.remotes.push(remote);
        builder.queue(1, "RC", &[]);
        builder.queue(client, "RC", &[("write", 7)]);
        assert_eq!(
            counts(&builder),
            [1, 0, 0, 0, 0],
            "the server would have written to the client's"
        );
    }

    #[test]
    fn nothing_is_held_against_who_posts_past_libibverbs() {
        let mut builder = Builder::new();
        builder.region(0, 4096, 0, 1, 0);
        builder.dereg(5, 1, 0);
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0], "a software RNIC has no other way");
        builder.recording.devices[0].soft = false;
        assert_eq!(
            counts(&builder),
            [0, 0, 1, 0, 0],
            "its queue pairs may all be the driver's own"
        );
        let ready = |builder: &mut Builder| {
            builder.queue(1, "RC", &[]);
            builder.call("ibv_modify_qp", 0, 1, 0).detail = 3;
        };
        ready(&mut builder);
        assert_eq!(counts(&builder), [0, 0, 1, 0, 0]);
        let queue = builder.recording.queues.last_mut().unwrap();
        queue.posted.insert("send".to_owned(), 5);
        assert_eq!(counts(&builder), [0, 0, 1, 0, 0], "and its completions are not seen");
        builder.recording.queues.last_mut().unwrap().completed = 5;
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0]);
        // Another is ready and does nothing that is seen.
        ready(&mut builder);
        assert_eq!(counts(&builder), [0, 0, 1, 0, 0]);
        builder.queue(1, "SRQ", &[("recv", 9)]);
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0], "it receives from a shared queue");
        // Another device of the process is another matter.
        let device = mkey_trace::format::Device { id: 2, process: 1, ..Default::default() };
        builder.recording.devices.push(device);
        builder.recording.regions[0].device = 2;
        assert_eq!(counts(&builder), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn nothing_is_said_of_remote_rights_where_a_peer_may_post_past_libibverbs() {
        let mut builder = Builder::new();
        let client = builder.process(true);
        for addr in [0, 0x10000] {
            builder.region(addr, 4096, 0, 1, 0).access = REMOTE_WRITE;
            builder.dereg(5, 1, 0);
        }
        let remote = Remote { process: client, region: Some(1), writes: 7, ..Remote::default() };
        builder.recording.remotes.push(remote);
        builder.queue(1, "RC", &[("send", 1)]);
        builder.queue(client, "RC", &[("write", 7)]);
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0]);
        builder.recording.devices[1].soft = false;
        assert_eq!(counts(&builder), [1, 0, 0, 0, 0]);
        for _ in 0..2 {
            let call = builder.call("ibv_modify_qp", 0, 1, 0);
            (call.process, call.device, call.detail) = (client, client, 3);
        }
        assert_eq!(counts(&builder), [0, 0, 1, 0, 0]);
    }
}
