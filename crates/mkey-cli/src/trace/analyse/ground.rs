//! What all of the analysis stands on: kinds of calls, costs of regions, lives of processes, and what is
//! known of the peers' requests.

use super::places::Places;
use mkey_core::rights::Rights;
use mkey_trace::format::{Call, Origin, Process, Recording, Region};
use serde::Serialize;
use std::collections::HashSet;

/// What a call does to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It makes one.
    Register,
    /// It changes one.
    Reregister,
    /// It ends one.
    Deregister,
}

impl Kind {
    /// Of a verb; nothing if it is about something else.
    pub fn of(verb: &str) -> Option<Self> {
        match verb {
            "ibv_reg_mr" | "ibv_reg_mr_iova" | "ibv_reg_mr_iova2" | "ibv_reg_dmabuf_mr"
            | "ibv_reg_dm_mr" | "ibv_alloc_null_mr" | "ibv_reg_mr_ex" => Some(Self::Register),
            "ibv_rereg_mr" => Some(Self::Reregister),
            "ibv_dereg_mr" => Some(Self::Deregister),
            _ => None,
        }
    }
}

/// What registering and deregistering a region took, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// `ibv_reg_mr` and the like, and `ibv_rereg_mr`.
    pub register: u64,
    /// `ibv_dereg_mr`.
    pub deregister: u64,
}

impl Cost {
    /// Both.
    pub fn ns(self) -> u64 {
        self.register.saturating_add(self.deregister)
    }
}

/// Whether something may be said of a region that no work request named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// It may.
    Yes,
    /// A peer may use it, whose requests were not seen.
    PeerNotTraced,
    /// No work request of the process was seen though it has queue pairs: it may post past libibverbs
    /// (mlx5dv).
    PostsNotSeen,
}

/// What a region was used for by peers, requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByPeers {
    /// RDMA WRITE.
    pub writes: u64,
    /// RDMA READ.
    pub reads: u64,
    /// Atomics.
    pub atomics: u64,
}

/// What all of the analysis stands on.
#[derive(Debug)]
pub struct Ground<'r> {
    /// The recording.
    pub recording: &'r Recording,
    /// Places of its stacks.
    pub places: Places,
    /// Of each call.
    pub kinds: Vec<Option<Kind>>,
    /// Of each region.
    pub costs: Vec<Cost>,
    /// Of each region.
    pub by_peers: Vec<ByPeers>,
    /// How long the traced processes lived, all together, ns.
    pub lived: u64,
    /// By process: whether a peer of it was traced, whether it posted, whether it has queues.
    process: Vec<Seen>,
    /// Keys that requests named and that are of no region that is known for sure.
    unmatched: HashSet<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    peer: bool,
    posts: bool,
    queues: bool,
}

impl<'r> Ground<'r> {
    /// Of a recording.
    pub fn new(recording: &'r Recording) -> Self {
        let kinds: Vec<Option<Kind>> =
            recording.calls.iter().map(|call| Kind::of(&call.verb)).collect();
        let mut costs = vec![Cost::default(); recording.regions.len()];
        for (call, kind) in recording.calls.iter().zip(&kinds) {
            let (Some(kind), Some(cost)) = (kind, at(&mut costs, call.region)) else { continue };
            let of = match kind {
                Kind::Register | Kind::Reregister => &mut cost.register,
                Kind::Deregister => &mut cost.deregister,
            };
            *of = of.saturating_add(took(call));
        }
        let mut ground = Self {
            recording,
            places: Places::new(recording),
            kinds,
            costs,
            by_peers: vec![ByPeers::default(); recording.regions.len()],
            lived: recording
                .processes
                .iter()
                .fold(0, |sum: u64, process| sum.saturating_add(life(recording, process))),
            process: vec![Seen::default(); recording.processes.len()],
            unmatched: HashSet::new(),
        };
        ground.see();
        ground
    }

    fn see(&mut self) {
        for thread in &self.recording.threads {
            if let Some(seen) = at(&mut self.process, Some(thread.process)) {
                seen.posts |= thread.posts > 0;
            }
        }
        for queue in &self.recording.queues {
            if let Some(seen) = at(&mut self.process, Some(queue.process)) {
                seen.queues = true;
                seen.posts |= queue.posted.values().any(|posted| *posted > 0);
            }
        }
        for remote in &self.recording.remotes {
            let Some(by) = at(&mut self.by_peers, remote.region) else {
                self.unmatched.insert(remote.rkey);
                continue;
            };
            by.writes = by.writes.saturating_add(remote.writes);
            by.reads = by.reads.saturating_add(remote.reads);
            by.atomics = by.atomics.saturating_add(remote.atomics);
            // Who makes a request of the other is its peer, and the other is his.
            let region = remote.region.and_then(|id| Recording::by_id(&self.recording.regions, id));
            for process in [region.map(|region| region.process), Some(remote.process)] {
                if let Some(seen) = at(&mut self.process, process) {
                    seen.peer = true;
                }
            }
        }
    }

    /// Calls that are about registrations, with their kinds.
    pub fn registration(&self) -> impl Iterator<Item = (&'r Call, Kind)> {
        let calls = self.recording.calls.iter().zip(&self.kinds);
        calls.filter_map(|(call, kind)| Some((call, (*kind)?)))
    }

    /// Regions with what they cost and what peers did with them.
    pub fn regions(&self) -> impl Iterator<Item = (&'r Region, Cost, ByPeers)> {
        let rest = self.costs.iter().zip(&self.by_peers);
        self.recording.regions.iter().zip(rest).map(|(region, (cost, by))| (region, *cost, *by))
    }

    /// Whether it is known what a right of a region was used for: of a remote one, by peers.
    pub fn known(&self, region: &Region, remote: bool) -> Known {
        let seen = (region.process as usize).checked_sub(1).and_then(|n| self.process.get(n));
        let seen = seen.copied().unwrap_or_default();
        let soft = Recording::by_id(&self.recording.devices, region.device).is_some_and(|d| d.soft);
        if remote && (!seen.peer || self.unmatched.contains(&region.rkey)) {
            Known::PeerNotTraced
        } else if seen.queues && !seen.posts && !soft {
            Known::PostsNotSeen
        } else {
            Known::Yes
        }
    }

    /// When a region ended, or was last seen.
    pub fn end(&self, region: &Region) -> u64 {
        let process = Recording::by_id(&self.recording.processes, region.process);
        let ended = process.and_then(|process| process.ended);
        region.to.or(ended).unwrap_or_else(|| self.recording.job.wall.max(region.from))
    }

    /// Whether the process of a region ended by `exit`, so that what it left is known.
    pub fn exited(&self, region: &Region) -> bool {
        let process = Recording::by_id(&self.recording.processes, region.process);
        process.is_some_and(|process| process.exited)
    }
}

/// The entry of an `id`.
fn at<T>(list: &mut [T], id: Option<u32>) -> Option<&mut T> {
    list.get_mut((id? as usize).checked_sub(1)?)
}

/// How long a call took, ns.
pub fn took(call: &Call) -> u64 {
    call.end.saturating_sub(call.begin)
}

/// How long a process lived while it was watched, ns.
pub fn life(recording: &Recording, process: &Process) -> u64 {
    process.ended.unwrap_or(recording.job.wall).saturating_sub(process.began)
}

/// Whether a region is memory with a length of its own: not all of the address space, and not none.
pub fn has_bytes(region: &Region) -> bool {
    !matches!(region.origin, Origin::Implicit | Origin::Null)
}

/// Whether a region's address tells which memory it is: not of a dma-buf or a device's memory, where it is an
/// offset.
pub fn has_address(region: &Region) -> bool {
    matches!(region.origin, Origin::Memory | Origin::OnDemand)
}

/// Whether no work request and no request of a traced peer named a region.
pub fn is_idle(region: &Region, by: ByPeers) -> bool {
    let own =
        [region.sends, region.writes, region.reads, region.recvs, region.binds, region.outside];
    own.iter().all(|uses| *uses == 0) && by == ByPeers::default()
}

/// The rights of a region, those that this release knows.
pub fn rights(access: u32) -> Rights {
    Rights::from_bits_truncate(access)
}

/// The names of rights.
pub fn names(rights: Rights) -> Vec<&'static str> {
    rights.iter_names().map(|(name, _)| name).collect()
}
