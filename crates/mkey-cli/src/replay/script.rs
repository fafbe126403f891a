//! What a process of a recording registered, as a script that can be played again.

use super::left::{Left, Why};
use mkey_core::rights::Rights;
use mkey_os::mapping::PageKind;
use mkey_trace::format::{Call, Origin, Pages, Process, Recording, Region};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Base pages, which registrations are rounded to.
pub const PAGE: u64 = 4096;

/// The registrations of one process in the order of their beginning, whatever thread did them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The process' number in the recording.
    pub process: u32,
    /// What it registered.
    pub ranges: Vec<Registered>,
    /// When.
    pub steps: Vec<Step>,
    /// How many protection domains it did so in.
    pub domains: usize,
    /// What can not be played.
    pub left: Left,
    /// Registrations of shared memory and files, which are played on memory of one's own.
    pub substituted: u64,
    /// Those of [`Script::ranges`] that no work is known to have used, and that are open to peers: what peers
    /// did with them is not recorded, and their rights stand for it.
    pub by_rights: BTreeSet<usize>,
}

/// One registration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registered {
    /// The domain, from 0.
    pub domain: usize,
    /// First byte, relative to the process' base.
    pub addr: u64,
    /// Bytes; `addr + len` does not wrap, nor do the pages around.
    pub len: u64,
    /// Its rights, without `ON_DEMAND`.
    pub rights: Rights,
    /// Whether it was on-demand.
    pub on_demand: bool,
    /// The pages that it lay on.
    pub pages: PageKind,
    /// What the two verbs took, nanoseconds; `None`: not recorded, or it never ended.
    pub register_ns: Option<u64>,
    /// As `register_ns`.
    pub deregister_ns: Option<u64>,
    /// Whether its bytes were the source of work.
    pub is_source: bool,
    /// Whether work brought bytes into it.
    pub is_target: bool,
}

impl Registered {
    /// The pages around, relative.
    pub fn around(&self) -> Range<u64> {
        let end = self.addr.saturating_add(self.len);
        self.addr - self.addr % PAGE..end.saturating_next_multiple_of(PAGE)
    }

    /// Bytes of the pages around.
    pub fn bytes(&self) -> u64 {
        let Range { start, end } = self.around();
        end - start
    }

    /// Whether peers may reach it.
    pub fn is_exposed(&self) -> bool {
        self.rights.intersects(Rights::REMOTE)
    }
}

/// Rounding up that stays below the end of numbers.
trait Saturating {
    fn saturating_next_multiple_of(self, of: u64) -> u64;
}

impl Saturating for u64 {
    fn saturating_next_multiple_of(self, of: u64) -> u64 {
        self.checked_next_multiple_of(of).unwrap_or(u64::MAX - u64::MAX % of.max(1))
    }
}

/// A call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it began, nanoseconds since the job began.
    pub at: u64,
    /// Which of [`Script::ranges`].
    pub range: usize,
    /// What is done.
    pub act: Act,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    /// The range is registered.
    Register,
    /// Its registration ends.
    Deregister,
}

/// The calls that made a region and ended it.
#[derive(Clone, Copy, Default)]
struct Calls<'a> {
    made: Option<&'a Call>,
    ended: Option<&'a Call>,
}

impl Script {
    /// Of a process.
    pub fn of(recording: &Recording, process: &Process) -> Self {
        let mut script = Self { process: process.id, ..Self::default() };
        let calls = script.calls(recording);
        let named = named(recording);
        let mut domains: HashMap<(u32, u32), usize> = HashMap::new();
        for region in recording.regions.iter().filter(|region| region.process == process.id) {
            let calls = calls.get(&region.id).copied().unwrap_or_default();
            let ns = [calls.made, calls.ended].into_iter().flatten().map(took).sum();
            let next = domains.len();
            let domain = *domains.entry((region.device, region.pd)).or_insert(next);
            let named = named.get(&region.id).copied().unwrap_or_default();
            match registered(region, domain, calls, named) {
                Ok(range) => {
                    if !is_used(region, named) && range.is_exposed() {
                        script.by_rights.insert(script.ranges.len());
                    }
                    script.play(region, range, calls);
                }
                Err(why) => script.left.add(why, 1, ns),
            }
        }
        script.domains = domains.len();
        script.steps.sort_by_key(|step| (step.at, step.range, step.act));
        script
    }

    /// Of all processes that registered anything, in the order of the recording.
    pub fn all(recording: &Recording) -> Vec<Self> {
        let scripts = recording.processes.iter().map(|process| Self::of(recording, process));
        scripts.filter(|script| !script.ranges.is_empty() || !script.left.is_empty()).collect()
    }

    /// The calls by region; those that failed are left out, and counted.
    fn calls<'a>(&mut self, recording: &'a Recording) -> HashMap<u32, Calls<'a>> {
        let mut by_region: HashMap<u32, Calls<'a>> = HashMap::new();
        for call in recording.calls.iter().filter(|call| call.process == self.process) {
            let ends = call.verb.contains("dereg");
            let changes = call.verb.contains("rereg");
            if !ends && !call.verb.contains("reg_") && call.region.is_none() {
                continue;
            }
            match call.region {
                _ if call.errno != 0 => self.left.add(Why::Failed, 1, took(call)),
                _ if changes => self.left.add(Why::Changed, 1, took(call)),
                None => self.left.add(Why::Unknown, 1, took(call)),
                Some(id) if ends => by_region.entry(id).or_default().ended = Some(call),
                Some(id) => by_region.entry(id).or_default().made = Some(call),
            }
        }
        by_region
    }

    fn play(&mut self, region: &Region, range: Registered, calls: Calls<'_>) {
        let index = self.ranges.len();
        self.ranges.push(range);
        self.substituted += u64::from(matches!(region.pages, Pages::Shared | Pages::File));
        let begin = calls.made.map_or(region.from, |call| call.begin);
        self.steps.push(Step { at: begin, range: index, act: Act::Register });
        let end = calls.ended.map(|call| call.begin).or(region.to);
        if let Some(end) = end {
            let at = end.max(begin);
            self.steps.push(Step { at, range: index, act: Act::Deregister });
        }
    }

    /// The most bytes that were registered at a time: pages around, each registration for itself.
    pub fn most_bytes(&self) -> u64 {
        let (mut now, mut most) = (0u64, 0u64);
        for step in &self.steps {
            let bytes = self.ranges.get(step.range).map_or(0, Registered::bytes);
            now = match step.act {
                Act::Register => now.saturating_add(bytes),
                Act::Deregister => now.saturating_sub(bytes),
            };
            most = most.max(now);
        }
        most
    }

    /// What the two verbs took over the whole run, nanoseconds, where it was recorded.
    pub fn spent_ns(&self) -> u64 {
        let both = |range: &Registered| {
            range.register_ns.unwrap_or(0).saturating_add(range.deregister_ns.unwrap_or(0))
        };
        self.ranges.iter().map(both).fold(0, u64::saturating_add)
    }

    /// For each registration the number of its range and rights in its domain, counted from 0 in
    /// the order of their first use; and how many there are.
    pub fn distinct(&self) -> (Vec<usize>, usize) {
        let mut known = HashMap::new();
        let numbers = self.ranges.iter().map(|range| {
            let key = (range.domain, range.addr, range.len, range.rights, range.on_demand);
            let next = known.len();
            *known.entry(key).or_insert(next)
        });
        let numbers = numbers.collect();
        (numbers, known.len())
    }

    /// The first registration of each of them.
    pub fn firsts(&self) -> impl Iterator<Item = &Registered> {
        self.by_turn().filter(|(_, is_first)| *is_first).map(|(range, _)| range)
    }

    /// All others.
    pub fn again(&self) -> impl Iterator<Item = &Registered> {
        self.by_turn().filter(|(_, is_first)| !is_first).map(|(range, _)| range)
    }

    /// The registrations, and whether each is the first of its range.
    fn by_turn(&self) -> impl Iterator<Item = (&Registered, bool)> {
        let (numbers, _) = self.distinct();
        // They are counted in the order of their first use.
        let turns = numbers.into_iter().scan(0, |next, number| {
            let is_first = number == *next;
            *next += usize::from(is_first);
            Some(is_first)
        });
        self.ranges.iter().zip(turns)
    }
}

/// How long a call took, nanoseconds.
fn took(call: &Call) -> u64 {
    call.end.saturating_sub(call.begin)
}

/// Requests of the recorded processes that named a region as the peer's.
#[derive(Clone, Copy, Default)]
struct Named {
    reads: u64,
    /// Writes and atomics.
    changes: u64,
}

/// By region.
fn named(recording: &Recording) -> HashMap<u32, Named> {
    let mut by_region: HashMap<u32, Named> = HashMap::new();
    for remote in &recording.remotes {
        let Some(region) = remote.region else { continue };
        let of = by_region.entry(region).or_default();
        of.reads = of.reads.saturating_add(remote.reads);
        of.changes = of.changes.saturating_add(remote.writes).saturating_add(remote.atomics);
    }
    by_region
}

/// Whether work is known to have used a region.
fn is_used(region: &Region, named: Named) -> bool {
    let uses =
        [region.sends, region.writes, region.reads, region.recvs, named.reads, named.changes];
    uses.iter().any(|times| *times > 0)
}

fn registered(
    region: &Region,
    domain: usize,
    calls: Calls<'_>,
    named: Named,
) -> Result<Registered, Why> {
    match region.origin {
        Origin::Memory | Origin::OnDemand => {}
        Origin::Implicit => return Err(Why::Implicit),
        Origin::Dmabuf => return Err(Why::DmaBuf),
        Origin::DeviceMemory => return Err(Why::DeviceMemory),
        Origin::Null => return Err(Why::Null),
    }
    let pages = match region.pages {
        Pages::Unknown | Pages::Small | Pages::Shared | Pages::File => PageKind::Base,
        Pages::Thp => PageKind::Thp,
        Pages::Huge2M => PageKind::Huge2M,
        Pages::Huge1G => PageKind::Huge1G,
        Pages::Device | Pages::None => return Err(Why::NoMemory),
    };
    // Nothing is mapped in the last page of numbers, and pages around it would wrap.
    let end = region.addr.checked_add(region.len).filter(|end| *end < MOST);
    if region.len == 0 || end.is_none() {
        return Err(Why::Range);
    }
    let rights = Rights::from_verbs(region.access).and_then(Rights::validate);
    let rights = rights.map_err(|_| Why::Rights)?;
    let is_used = is_used(region, named);
    let peers = |what| !is_used && rights.intersects(what);
    let any = |uses: [u64; 3]| uses.iter().any(|times| *times > 0);
    Ok(Registered {
        domain,
        addr: region.addr,
        len: region.len,
        // What the device decides about is given again where it is played.
        rights: rights - Rights::ON_DEMAND - Rights::ZERO_BASED - Rights::HUGETLB,
        on_demand: region.origin == Origin::OnDemand || rights.contains(Rights::ON_DEMAND),
        pages,
        register_ns: calls.made.map(took),
        deregister_ns: calls.ended.map(took),
        is_source: any([region.sends, region.writes, named.reads]) || peers(Rights::REMOTE_READ),
        is_target: any([region.reads, region.recvs, named.changes])
            || peers(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC),
    })
}

/// No process has memory from here on, in 57 bits of addresses.
const MOST: u64 = 1 << 57;
