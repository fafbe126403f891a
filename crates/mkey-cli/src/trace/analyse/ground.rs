//! What all of the analysis stands on: kinds of calls, costs of regions, lives of processes, and what is
//! known of the peers' requests.

use super::peers::Peers;
use super::places::Places;
use mkey_core::rights::Rights;
use mkey_trace::format::{Call, Origin, Process, Recording, Region};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

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
    /// Work may have been posted past libibverbs (mlx5dv): see [`Ground::known`].
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
    peers: Peers,
    /// By process and device.
    work: HashMap<(u32, u32), Work>,
    /// Whether a process with queues may have posted work that was not seen.
    any_hidden: bool,
    /// Keys that requests named and that are of no region that is known for sure.
    unmatched: HashSet<u32>,
}

/// What was seen of a process' work on a device.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    /// Queue pairs that posted and completed work.
    pairs: u64,
    /// Whether a shared receive queue did.
    shared: bool,
    /// Times that a queue pair was made ready to send.
    ready: u64,
}

impl Work {
    /// Whether there may have been work that was not seen: none was, or there are queue pairs ready to send
    /// that did nothing, and do not receive from a shared queue either.
    fn may_hide(self) -> bool {
        self.pairs == 0 || self.ready > self.pairs && !self.shared
    }
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
            peers: Peers::of(recording),
            work: HashMap::new(),
            any_hidden: false,
            unmatched: HashSet::new(),
        };
        ground.see();
        ground
    }

    fn see(&mut self) {
        for queue in &self.recording.queues {
            let work = self.work.entry((queue.process, queue.device)).or_default();
            let seen = queue.completed > 0 && queue.posted.values().any(|posted| *posted > 0);
            match &*queue.kind {
                "SRQ" => work.shared |= seen,
                _ => work.pairs += u64::from(seen),
            }
        }
        let calls = self.recording.calls.iter();
        for call in calls.filter(|call| call.verb == "ibv_modify_qp" && call.errno == 0) {
            if call.detail == READY_TO_SEND {
                self.work.entry((call.process, call.device)).or_default().ready += 1;
            }
        }
        let hidden = |((_, device), work): (&(u32, u32), &Work)| {
            work.may_hide() && !is_soft(self.recording, *device)
        };
        self.any_hidden = self.work.iter().any(hidden);
        for remote in &self.recording.remotes {
            let Some(by) = at(&mut self.by_peers, remote.region) else {
                self.unmatched.insert(remote.rkey);
                continue;
            };
            by.writes = by.writes.saturating_add(remote.writes);
            by.reads = by.reads.saturating_add(remote.reads);
            by.atomics = by.atomics.saturating_add(remote.atomics);
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
    ///
    /// On other than software RNICs work may be posted past libibverbs. So it is known only where the process
    /// was seen to post and complete work on that device, and no queue pair that was made ready to send did
    /// nothing; of remote rights, where this is so of all processes.
    pub fn known(&self, region: &Region, remote: bool) -> Known {
        let traced = self.peers.were_traced(region.process);
        let work = self.work.get(&(region.process, region.device)).copied().unwrap_or_default();
        let hidden = work.may_hide() && !is_soft(self.recording, region.device);
        if remote && (!traced || self.unmatched.contains(&region.rkey)) {
            Known::PeerNotTraced
        } else if hidden || remote && self.any_hidden {
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

/// `IBV_QPS_RTS`.
const READY_TO_SEND: u32 = 3;

/// Whether a device is a software RNIC of mkey's, to which all work goes by libibverbs.
fn is_soft(recording: &Recording, device: u32) -> bool {
    Recording::by_id(&recording.devices, device).is_some_and(|device| device.soft)
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
