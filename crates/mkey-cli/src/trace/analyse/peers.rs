//! Whether all who may have used a process' memory from outside were traced.
//!
//! Which queue pair is connected to which is not recorded; whose the keys are that requests named is. So it is
//! counted. A process' peers are taken to be traced if at least as many queue pairs are known to go to traced
//! processes as it ever connected:
//!
//! * its own, that completed one-sided work, if all keys that its requests named are of recorded regions, and
//! * those of other processes, that completed one-sided work, if all keys that these named are of regions of
//!   this process: each goes to another queue pair of it. (The same connection may be of both kinds, so the
//!   larger number counts, but for one-sided work of a process with itself, which is between these alone.)
//!
//! It is not known wherever a queue pair has no fixed peer (of a driver's own kind), was connected more than
//! once, or records were lost. What remains taken for granted: that a key and addresses that fit one recorded
//! region alone are that region's.

use mkey_trace::format::{Queue, Recording};
use std::collections::BTreeSet;

/// `IBV_QPS_RTR`.
const READY_TO_RECEIVE: u32 = 2;

/// Of each process, whether its peers were traced.
#[derive(Debug, Default)]
pub struct Peers {
    traced: Vec<bool>,
}

#[derive(Clone, Debug, Default)]
struct Of {
    /// Queue pairs by which a peer may reach memory, and those by which none may.
    pairs: u64,
    datagrams: u64,
    /// Of the first, those that completed one-sided work.
    active: u64,
    /// Times that a queue pair was connected.
    connected: u64,
    /// Whose keys its requests named.
    named: BTreeSet<u32>,
    /// A key that they named is of no region that is known for sure.
    unmatched: bool,
    /// It can not be counted.
    unknown: bool,
}

impl Peers {
    /// Of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut all = vec![Of::default(); recording.processes.len()];
        let at = |process: u32| (process as usize).checked_sub(1);
        for (of, process) in all.iter_mut().zip(&recording.processes) {
            of.unknown = process.lost > 0;
        }
        for queue in &recording.queues {
            let Some(of) = at(queue.process).and_then(|n| all.get_mut(n)) else { continue };
            match &*queue.kind {
                "RC" | "UC" | "XRC_SEND" | "XRC_RECV" => {
                    of.pairs += 1;
                    of.active += u64::from(is_active(queue));
                }
                "UD" | "RAW_PACKET" => of.datagrams += 1,
                "SRQ" => {}
                _ => of.unknown = true,
            }
        }
        let connects = recording.calls.iter().filter(|call| {
            call.verb == "ibv_modify_qp" && call.detail == READY_TO_RECEIVE && call.errno == 0
        });
        for call in connects {
            if let Some(of) = at(call.process).and_then(|n| all.get_mut(n)) {
                of.connected += 1;
            }
        }
        for remote in &recording.remotes {
            let Some(of) = at(remote.process).and_then(|n| all.get_mut(n)) else { continue };
            match remote.region.and_then(|id| Recording::by_id(&recording.regions, id)) {
                Some(region) => _ = of.named.insert(region.process),
                None => of.unmatched = true,
            }
        }
        // What those that name one process' keys alone have, by that process.
        let mut from_others = vec![0u64; all.len()];
        for (of, process) in all.iter().zip(1u32..) {
            let mut named = of.named.iter();
            if let (Some(one), None, false) = (named.next(), named.next(), of.unmatched)
                && *one != process
                && !of.unknown
                && let Some(count) = at(*one).and_then(|n| from_others.get_mut(n))
            {
                *count += of.active;
            }
        }
        let traced = all.iter().zip(from_others).zip(1u32..).map(|((of, others), process)| {
            let own = if of.unmatched { 0 } else { of.active };
            let with_itself = of.named.len() == 1 && of.named.contains(&process);
            let to_traced = if with_itself { own + others } else { own.max(others) };
            let ever = of.pairs.max(of.connected.saturating_sub(of.datagrams));
            !of.unknown && of.pairs > 0 && to_traced >= ever
        });
        Self { traced: traced.collect() }
    }

    /// Whether all who may have used the memory of a process were traced.
    pub fn were_traced(&self, process: u32) -> bool {
        let at = (process as usize).checked_sub(1);
        at.and_then(|n| self.traced.get(n)).copied().unwrap_or(false)
    }
}

/// Whether one-sided work of a queue pair reached its peer.
fn is_active(queue: &Queue) -> bool {
    let one_sided = ["write", "read", "atomic"];
    let posted = one_sided.iter().filter_map(|of| queue.posted.get(*of)).any(|count| *count > 0);
    posted && queue.completed > queue.failed
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use mkey_trace::format::Remote;

    /// Processes with a region each; `named`: whose keys a process' requests named (0: nobody's).
    fn builder(processes: u32, named: &[(u32, u32)]) -> Builder {
        let mut builder = Builder::new();
        for _ in 1..processes {
            builder.process(true);
        }
        for process in 1..=processes {
            builder.region(u64::from(process) << 30, 4096, 0, 1, 0).process = process;
        }
        for (process, of) in named {
            let region = (*of > 0).then_some(*of);
            let remote = Remote { process: *process, region, writes: 1, ..Remote::default() };
            builder.recording.remotes.push(remote);
        }
        builder
    }

    fn traced(builder: &Builder) -> Vec<bool> {
        let peers = Peers::of(&builder.recording);
        (1..=builder.recording.processes.len() as u32).map(|id| peers.were_traced(id)).collect()
    }

    #[test]
    fn a_client_alone_tells_of_both_ends() {
        let mut builder = builder(2, &[(2, 1)]);
        assert_eq!(traced(&builder), [false, false], "without queue pairs nothing is known");
        builder.queue(1, "RC", &[]);
        builder.queue(2, "RC", &[("write", 7)]);
        assert_eq!(traced(&builder), [true, true]);
        builder.recording.processes[0].lost = 1;
        assert_eq!(traced(&builder), [false, true]);
    }

    #[test]
    fn one_client_of_ten_in_the_job_does_not_tell_of_the_others() {
        let mut builder = builder(2, &[(2, 1)]);
        for _ in 0..10 {
            builder.queue(1, "RC", &[("send", 1)]);
        }
        builder.queue(2, "RC", &[("write", 7)]);
        assert_eq!(traced(&builder), [false, true]);
        // The client has other connections, by which it did nothing.
        builder.queue(2, "RC", &[("send", 1)]);
        assert_eq!(traced(&builder), [false, false]);
    }

    #[test]
    fn a_client_of_two_servers_of_which_one_was_traced_tells_of_none() {
        let mut builder = builder(2, &[(2, 1), (2, 0)]);
        builder.queue(1, "RC", &[]);
        builder.queue(2, "RC", &[("write", 7)]);
        builder.queue(2, "RC", &[("write", 7)]);
        assert_eq!(traced(&builder), [false, false]);
    }

    #[test]
    fn queue_pairs_that_are_used_again_or_have_no_one_peer_are_not_known() {
        let mut builder = builder(2, &[(2, 1)]);
        builder.queue(1, "RC", &[]);
        builder.queue(2, "RC", &[("read", 7)]);
        for process in [1, 2, 1] {
            let call = builder.call("ibv_modify_qp", 0, 1, 0);
            (call.process, call.detail) = (process, READY_TO_RECEIVE);
        }
        assert_eq!(traced(&builder), [false, true]);
        builder.queue(2, "UD", &[("send", 7)]);
        assert_eq!(traced(&builder), [false, true]);
        builder.queue(2, "DRIVER", &[]);
        assert_eq!(traced(&builder), [false, false]);
    }

    #[test]
    fn work_that_all_failed_reached_nobody() {
        let mut builder = builder(2, &[(2, 1)]);
        builder.queue(1, "RC", &[]);
        let queue = builder.queue(2, "RC", &[("write", 7)]);
        (queue.completed, queue.failed) = (7, 7);
        assert_eq!(traced(&builder), [false, false]);
    }

    #[test]
    fn a_process_that_is_its_own_peer_and_another_s() {
        let mut builder = builder(2, &[(1, 1), (2, 1)]);
        builder.queue(1, "RC", &[("write", 1)]);
        builder.queue(1, "RC", &[("read", 1)]);
        builder.queue(2, "RC", &[("write", 1)]);
        assert_eq!(traced(&builder), [true, true]);
        builder.queue(1, "RC", &[]);
        assert_eq!(traced(&builder), [true, true], "it is that of the other's");
        builder.queue(1, "RC", &[]);
        assert_eq!(traced(&builder), [false, true]);
    }
}
