//! One process' file.

use super::super::mappings::{self, pages_of};
use super::super::watch::{Scan, Seen};
use super::{Assembly, next};
use mkey_trace::format::{
    self, Call, Device, Failure, Finding, Origin, Pages, Process, Queue, Region, Remote, Sample,
    Thread, Window, Wrong,
};
use mkey_trace::raw::access::{ON_DEMAND, ZERO_BASED};
use mkey_trace::raw::{self, File, Header, Record, Slot, Use, Verb};
use std::collections::{BTreeMap, HashMap};

/// Scans that are asked for a region's pages: those next to its time.
const MOST_SCANS: usize = 64;
/// What bases are multiples of.
const BASE: u64 = 1 << 30;

/// What the records of one file have become, by their names in it.
#[derive(Debug, Default)]
struct Ids {
    process: u32,
    devices: HashMap<Slot, u32>,
    threads: HashMap<Slot, u32>,
    stacks: HashMap<Slot, u32>,
    regions: HashMap<Slot, u32>,
    queues: HashMap<Slot, u32>,
}

fn named(ids: &HashMap<Slot, u32>, slot: Slot) -> u32 {
    ids.get(&slot).copied().unwrap_or(0)
}

impl Assembly {
    /// Adds a process. `replaced`: when another program took its place.
    pub(super) fn process(&mut self, file: &File<'_>, seen: &Seen, replaced: Option<u64>) {
        let header = file.header();
        let mut ids = Ids { process: self.add_process(&header, seen, replaced), ..Ids::default() };
        let program = until_zero(&header.program);
        ids.stacks = self.stacks.add(file, &self.files, program, &mut self.recording);
        // Whatever names another comes after it was told of.
        for (slot, record) in file.records() {
            match record {
                Record::Device(device, name) => self.add_device(&mut ids, slot, &device, name),
                Record::Thread(thread) => self.add_thread(&mut ids, slot, &thread),
                _ => {}
            }
        }
        let first = self.recording.regions.len();
        let domains = Domains::of(file);
        let scans = scans(file, seen);
        for (slot, record) in file.records() {
            match record {
                Record::Mr(mr) => self.add_region(&mut ids, slot, file, &mr, &domains, &scans),
                Record::Queue(queue) => self.add_queue(&mut ids, slot, &queue),
                _ => {}
            }
        }
        let base = self.make_relative(file, first);
        for (_, record) in file.records() {
            match record {
                Record::Call(call) => self.add_call(&ids, &call, base),
                Record::Window(window) => self.add_window(&ids, file, &window),
                Record::Remote(remote) => {
                    let told = Remote {
                        process: ids.process,
                        device: named(&ids.devices, remote.device),
                        rkey: remote.rkey,
                        region: None,
                        writes: remote.writes,
                        reads: remote.reads,
                        atomics: remote.atomics,
                    };
                    self.remotes.name(remote.low..=remote.high.max(remote.low), told);
                }
                Record::Failure(failure) => self.recording.failures.push(Failure {
                    process: ids.process,
                    queue: named(&ids.queues, failure.queue),
                    at: failure.at.saturating_sub(self.began),
                    status: failure.status,
                    vendor: failure.vendor,
                    times: failure.times,
                }),
                Record::Finding(finding) => self.add_finding(&ids, &finding, base),
                _ => {}
            }
        }
        // After that they are of the other program.
        let own = seen.samples.iter().filter(|sample| replaced.is_none_or(|at| sample.at < at));
        for sample in own {
            self.recording.samples.push(Sample {
                process: ids.process,
                at: sample.at.saturating_sub(self.began),
                pinned: sample.pinned,
                resident: sample.resident,
                cpu: sample.cpu,
                posts: sample.posts,
            });
        }
    }

    fn add_process(&mut self, header: &Header, seen: &Seen, replaced: Option<u64>) -> u32 {
        let exited = header.ended != 0;
        let ended = exited.then_some(header.ended).or(replaced).or(seen.gone);
        let mut own =
            seen.samples.iter().rev().filter(|sample| replaced.is_none_or(|at| sample.at < at));
        let sampled = own.next().map(|sample| sample.cpu);
        let mut arguments = strings(&header.arguments);
        if arguments.is_empty() {
            arguments = strings(until_zero(&header.program));
        }
        let id = next(&self.recording.processes);
        let process = Process {
            id,
            pid: header.pid,
            parent: header.parent,
            arguments,
            began: self.since(header.began),
            ended: ended.map(|time| self.since(time)),
            exited,
            cpu: Some(header.cpu).into_iter().chain(sampled).find(|cpu| *cpu > 0),
            calls: header.calls,
            calls_overhead: header.calls_overhead,
            post_overhead: header.post_overhead as f64 / 1000.0,
            lost: header.lost,
        };
        self.recording.processes.push(process);
        id
    }

    fn add_device(&mut self, ids: &mut Ids, slot: Slot, device: &raw::Device, name: &[u8]) {
        let id = next(&self.recording.devices);
        let guid = device.guid.to_ne_bytes();
        let guid: Vec<String> = guid
            .chunks(2)
            .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        self.recording.devices.push(Device {
            id,
            process: ids.process,
            name: text(name),
            guid: guid.join(":"),
            soft: device.soft != 0,
        });
        ids.devices.insert(slot, id);
    }

    fn add_thread(&mut self, ids: &mut Ids, slot: Slot, thread: &raw::Thread) {
        let id = next(&self.recording.threads);
        self.recording.threads.push(Thread {
            id,
            process: ids.process,
            tid: thread.tid,
            name: text(&thread.name),
            posts: thread.posts,
            polls: thread.polls,
            empty: thread.empty,
            completions: thread.completions,
        });
        ids.threads.insert(slot, id);
    }

    fn add_region(
        &mut self,
        ids: &mut Ids,
        slot: Slot,
        file: &File<'_>,
        mr: &raw::Mr,
        domains: &Domains,
        scans: &[Scan],
    ) {
        let id = next(&self.recording.regions);
        let call = |slot| file.get::<raw::Call>(slot);
        let (registered, ended) = (call(mr.reg), call(mr.dereg));
        let began = registered.map_or(file.header().began, |call| call.end);
        let until = ended.map(|call| call.begin);
        let origin = origin(mr);
        let (pages, mapping) = match origin {
            Origin::Memory | Origin::OnDemand => {
                seen_at(scans, mr, began, until.unwrap_or(u64::MAX))
                    .map_or((Pages::Unknown, None), |(pages, around)| (pages, Some(around)))
            }
            Origin::Dmabuf => (Pages::Device, None),
            Origin::Implicit | Origin::DeviceMemory | Origin::Null => (Pages::None, None),
        };
        let used = |of: Use| mr.uses.get(of as usize).copied().unwrap_or(0);
        // Binds are not followed to their completion.
        let followed = mr.uses.iter().take(Use::Bind as usize);
        let followed = followed.fold(0u64, |sum, uses| sum.saturating_add(*uses));
        let stack = |call: Option<raw::Call>| call.map_or(0, |call| named(&ids.stacks, call.stack));
        self.recording.regions.push(Region {
            id,
            process: ids.process,
            device: named(&ids.devices, mr.device),
            pd: domains.number(mr.pd, began),
            origin,
            addr: mr.addr,
            len: mr.len,
            lkey: mr.lkey,
            rkey: mr.rkey,
            access: mr.access,
            pages,
            mapping,
            from: self.since(began),
            to: until.map(|time| self.since(time)),
            reg_stack: stack(registered),
            dereg_stack: stack(ended),
            sends: used(Use::Send),
            writes: used(Use::Write),
            reads: used(Use::Read),
            recvs: used(Use::Recv),
            binds: used(Use::Bind),
            outside: mr.outside,
            in_flight: followed.saturating_sub(mr.done),
        });
        ids.regions.insert(slot, id);
        let iova = match Verb::of(mr.verb) {
            Some(Verb::RegMrIova | Verb::RegDmabufMr) => mr.iova,
            _ if mr.access & ZERO_BASED != 0 => 0,
            _ => mr.addr,
        };
        self.remotes.grant(mr.rkey, iova, mr.len, id);
    }

    /// Takes the base from the addresses of a process' regions, which begin with the one at `first`; gives
    /// the base: below all addresses of calls and findings too, such as of calls that failed. What is below
    /// the first GiB, as null is, makes no base: it is told as it is.
    fn make_relative(&mut self, file: &File<'_>, first: usize) -> u64 {
        let regions = self.recording.regions.get_mut(first..).unwrap_or_default();
        let has_address = |region: &Region| {
            matches!(region.origin, Origin::Memory | Origin::OnDemand) && region.addr != 0
        };
        let lowest = regions
            .iter()
            .filter(|region| has_address(region))
            .map(|region| region.mapping.map_or(region.addr, |(start, _)| start.min(region.addr)));
        let others = file.records().filter_map(|(_, record)| match record {
            Record::Call(call) if has_memory(&call) => Some(call.addr),
            Record::Finding(finding) => Some(finding.addr),
            _ => None,
        });
        let lowest = lowest.chain(others.filter(|addr| *addr >= BASE)).min();
        let base = lowest.unwrap_or(0) / BASE * BASE;
        for region in regions.iter_mut().filter(|region| has_address(region)) {
            region.addr = region.addr.saturating_sub(base);
            let less =
                |(start, end): (u64, u64)| (start.saturating_sub(base), end.saturating_sub(base));
            region.mapping = region.mapping.map(less);
        }
        base
    }

    fn add_queue(&mut self, ids: &mut Ids, slot: Slot, queue: &raw::Queue) {
        const OPERATIONS: [&str; 8] =
            ["send", "write", "read", "atomic", "bind", "local_inv", "recv", "other"];
        let id = next(&self.recording.queues);
        let posted = OPERATIONS.iter().zip(queue.posted).filter(|(_, count)| *count > 0);
        self.recording.queues.push(Queue {
            id,
            process: ids.process,
            device: named(&ids.devices, queue.device),
            number: queue.number,
            kind: kind_of_queue(queue.kind),
            posted: posted.map(|(name, count)| ((*name).to_owned(), count)).collect(),
            inlined: queue.inlined,
            invalidations: queue.invalidations,
            completed: queue.completed,
            failed: queue.failed,
            followed: queue.lost == 0,
        });
        ids.queues.insert(slot, id);
    }

    fn add_call(&mut self, ids: &Ids, call: &raw::Call, base: u64) {
        let Some(verb) = Verb::of(call.verb) else {
            let why = format!("a call of a verb that is not known (number {})", call.verb);
            if !self.untold.contains(&why) {
                self.untold.push(why);
            }
            return;
        };
        let addr = match has_memory(call) {
            true => relative(call.addr, base),
            false => call.addr,
        };
        self.recording.calls.push(Call {
            process: ids.process,
            device: named(&ids.devices, call.device),
            thread: named(&ids.threads, call.thread),
            verb: verb.name().to_owned(),
            begin: self.since(call.begin),
            end: self.since(call.end.max(call.begin)),
            cpu: Some(call.cpu).filter(|cpu| *cpu != u64::MAX),
            errno: call.errno,
            region: ids.regions.get(&call.mr).copied(),
            addr,
            len: call.len,
            access: call.access,
            stack: named(&ids.stacks, call.stack),
            posts: call.posts,
            detail: call.detail,
        });
    }

    fn add_window(&mut self, ids: &Ids, file: &File<'_>, window: &raw::Window) {
        let id = next(&self.recording.windows);
        let (alloc, dealloc) =
            (file.get::<raw::Call>(window.alloc), file.get::<raw::Call>(window.dealloc));
        self.recording.windows.push(Window {
            id,
            process: ids.process,
            device: named(&ids.devices, window.device),
            kind: window.kind,
            binds: window.binds,
            unbinds: window.unbinds,
            invalidations: window.invalidations,
            from: self.since(alloc.map_or(file.header().began, |call| call.end)),
            to: dealloc.map(|call| self.since(call.begin)),
            alloc_stack: alloc.map_or(0, |call| named(&ids.stacks, call.stack)),
        });
    }

    fn add_finding(&mut self, ids: &Ids, finding: &raw::Finding, base: u64) {
        let Some(wrong) = raw::Wrong::of(finding.wrong).map(wrong) else {
            let why = format!("a finding of a kind that is not known (number {})", finding.wrong);
            if !self.untold.contains(&why) {
                self.untold.push(why);
            }
            return;
        };
        self.recording.findings.push(Finding {
            process: ids.process,
            at: self.since(finding.at),
            wrong,
            region: ids.regions.get(&finding.mr).copied(),
            queue: ids.queues.get(&finding.queue).copied(),
            addr: relative(finding.addr, base),
            len: finding.len,
            key: finding.key,
            stack: named(&ids.stacks, finding.stack),
            before: named(&ids.stacks, finding.before),
            times: finding.times,
        });
    }
}

/// Protection domains by number: an address may be that of several, one after the other.
#[derive(Debug, Default)]
struct Domains {
    /// By address: from when on it is which.
    by_address: HashMap<u64, Vec<(u64, u32)>>,
}

impl Domains {
    fn of(file: &File<'_>) -> Self {
        let mut made: Vec<(u64, u64)> = Vec::new();
        let mut named: BTreeMap<u64, ()> = BTreeMap::new();
        for (_, record) in file.records() {
            match record {
                Record::Call(call)
                    if Verb::of(call.verb) == Some(Verb::AllocPd) && call.errno == 0 =>
                {
                    made.push((call.end, call.object));
                }
                Record::Mr(mr) => {
                    named.insert(mr.pd, ());
                }
                _ => {}
            }
        }
        made.sort_unstable();
        let mut domains = Self::default();
        let mut number = 0u32;
        let known: std::collections::HashSet<u64> =
            made.iter().map(|(_, object)| *object).collect();
        // Those whose making is not recorded were there from the beginning.
        let before = named.into_keys().filter(|pd| !known.contains(pd)).map(|pd| (0, pd));
        for (time, object) in before.chain(made.iter().copied()) {
            number = number.saturating_add(1);
            domains.by_address.entry(object).or_default().push((time, number));
        }
        domains
    }

    fn number(&self, pd: u64, at: u64) -> u32 {
        let Some(all) = self.by_address.get(&pd) else { return 0 };
        let after = all.partition_point(|(time, _)| *time <= at);
        let one = all.get(after.saturating_sub(1));
        one.map_or(0, |(_, number)| *number)
    }
}

/// Whether a call's address is one of the process' memory.
fn has_memory(call: &raw::Call) -> bool {
    let with_address = [Verb::RegMr, Verb::RegMrIova, Verb::ReregMr, Verb::DeregMr, Verb::AdviseMr];
    call.len != u64::MAX && Verb::of(call.verb).is_some_and(|verb| with_address.contains(&verb))
}

/// Less the base; what is below it is told as it is.
fn relative(addr: u64, base: u64) -> u64 {
    addr.checked_sub(base).unwrap_or(addr)
}

fn origin(mr: &raw::Mr) -> Origin {
    match Verb::of(mr.verb) {
        Some(Verb::RegDmabufMr) => Origin::Dmabuf,
        Some(Verb::RegDmMr) => Origin::DeviceMemory,
        Some(Verb::NullMr) => Origin::Null,
        _ if mr.access & ON_DEMAND == 0 => Origin::Memory,
        _ if mr.addr == 0 && mr.len == u64::MAX => Origin::Implicit,
        _ => Origin::OnDemand,
    }
}

/// The mappings of a process that were seen, from outside and by itself, in the order of time.
fn scans(file: &File<'_>, seen: &Seen) -> Vec<Scan> {
    let of_its_own = file.records().filter_map(|(_, record)| match record {
        Record::Maps(maps, text) => {
            let mappings = mappings::read(text, |_, _| true).ok()?;
            Some(Scan { first: maps.at, last: maps.at, mappings })
        }
        _ => None,
    });
    let mut scans: Vec<Scan> = seen.scans.iter().cloned().chain(of_its_own).collect();
    scans.sort_by_key(|scan| scan.first);
    scans
}

/// The pages of a region, and the mapping that it lies in: as seen while it was registered, else at the
/// nearest time.
fn seen_at(scans: &[Scan], mr: &raw::Mr, from: u64, to: u64) -> Option<(Pages, (u64, u64))> {
    let after = scans.partition_point(|scan| scan.first <= to);
    let (before, after) = scans.split_at_checked(after)?;
    let (mut before, mut after) = (before.iter().rev().peekable(), after.iter().peekable());
    for _ in 0..MOST_SCANS {
        let since = before.peek().map(|scan| from.saturating_sub(scan.last));
        let until = after.peek().map(|scan| scan.first.saturating_sub(to));
        let scan = match (since, until) {
            (Some(since), Some(until)) if since <= until => before.next(),
            (Some(_), None) => before.next(),
            _ => after.next(),
        };
        if let Some(found) = pages_of(&scan?.mappings, mr.addr, mr.len) {
            return Some(found);
        }
    }
    None
}

fn wrong(wrong: raw::Wrong) -> Wrong {
    match wrong {
        raw::Wrong::DeregInFlight => format::Wrong::DeregInFlight,
        raw::Wrong::KeyAfterDereg => format::Wrong::KeyAfterDereg,
        raw::Wrong::FreedRegistered => format::Wrong::FreedRegistered,
        raw::Wrong::UnmappedRegistered => format::Wrong::UnmappedRegistered,
        raw::Wrong::GoneInFlight => format::Wrong::GoneInFlight,
        raw::Wrong::ReceivedTwice => format::Wrong::ReceivedTwice,
        raw::Wrong::Outside => format::Wrong::Outside,
    }
}

/// `enum ibv_qp_type`.
fn kind_of_queue(kind: u32) -> String {
    let name = match kind {
        0 => "SRQ",
        2 => "RC",
        3 => "UC",
        4 => "UD",
        8 => "RAW_PACKET",
        9 => "XRC_SEND",
        10 => "XRC_RECV",
        0xff => "DRIVER",
        other => return format!("type {other}"),
    };
    name.to_owned()
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A text that a zero may end.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(until_zero(bytes)).into_owned()
}

/// Texts that zeros end, up to where there are only zeros.
fn strings(bytes: &[u8]) -> Vec<String> {
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return Vec::new() };
    let all = bytes.get(..=last).unwrap_or_default().split(|byte| *byte == 0);
    all.map(|one| String::from_utf8_lossy(one).into_owned()).collect()
}
