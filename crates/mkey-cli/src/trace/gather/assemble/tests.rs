//! Files as the recorder writes them, made by hand.

use super::*;
use crate::trace::gather::mappings::Mapping;
use crate::trace::gather::watch::{Sample, Scan};
use bytemuck::{Pod, Zeroable, bytes_of};
use mkey_trace::format::{Origin, Pages, Wrong};
use mkey_trace::raw::{self, ALIGN, Head, Kind, Slot, Verb};
use std::fs;
use tempfile::TempDir;

/// A file of a process.
struct Raw {
    header: Header,
    bytes: Vec<u8>,
}

const BEGAN: u64 = 1_000_000;

impl Raw {
    fn new(pid: u32, began: u64) -> Self {
        let mut header = Header { magic: MAGIC, pid, parent: 1, began, ..Header::zeroed() };
        header.program[..6].copy_from_slice(b"/bin/x");
        header.arguments[..8].copy_from_slice(b"x\0--now\0");
        Self { header, bytes: vec![0; HEADER] }
    }

    /// Adds a record and what comes after it.
    fn put<T: Kind>(&mut self, record: T, tail: &[u8]) -> Slot {
        let slot = self.bytes.len() / ALIGN;
        let mut bytes = bytes_of(&record).to_vec();
        bytes.extend_from_slice(tail);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        let head = Head { len: bytes.len() as u32, kind: T::KIND, zero: 0 };
        bytes[..size_of::<Head>()].copy_from_slice(bytes_of(&head));
        self.bytes.extend(bytes);
        slot as Slot
    }

    /// What a record is now.
    fn change<T: Kind + Pod>(&mut self, slot: Slot, change: impl FnOnce(&mut T)) {
        let at = slot as usize * ALIGN;
        let room = &mut self.bytes[at..at + size_of::<T>()];
        let mut record: T = bytemuck::pod_read_unaligned(room);
        change(&mut record);
        room.copy_from_slice(bytes_of(&record));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let header = Header { used: bytes.len() as u64, ..self.header };
        bytes[..HEADER].copy_from_slice(bytes_of(&header));
        bytes
    }

    fn mr(
        &mut self,
        device: Slot,
        addr: u64,
        len: u64,
        rkey: u32,
        times: (u64, Option<u64>),
    ) -> Slot {
        let call = raw::Call { device, addr, len, rkey, cpu: u64::MAX, ..raw::Call::zeroed() };
        let reg = self.put(
            raw::Call { verb: Verb::RegMr as u16, begin: times.0 - 10, end: times.0, ..call },
            &[],
        );
        let of = raw::Mr {
            addr,
            len,
            device,
            reg,
            rkey,
            verb: Verb::RegMr as u16,
            ..Zeroable::zeroed()
        };
        let mr = self.put(raw::Mr { iova: addr, pd: 77, ..of }, &[]);
        self.change::<raw::Call>(reg, |call| call.mr = mr);
        if let Some(begin) = times.1 {
            let verb = Verb::DeregMr as u16;
            let dereg = self.put(raw::Call { verb, begin, end: begin + 5, mr, ..call }, &[]);
            self.change::<raw::Mr>(mr, |mr| mr.dereg = dereg);
        }
        mr
    }
}

fn assembled(files: &[(&[u8], Seen)]) -> Assembled {
    let folder = TempDir::new().unwrap();
    let mut all = BTreeMap::new();
    let mut paths = Vec::new();
    for (number, (bytes, seen)) in files.iter().enumerate() {
        let path = folder.path().join(format!("{number}.raw"));
        fs::write(&path, bytes).unwrap();
        paths.push(path.clone());
        all.insert(path, seen.clone());
    }
    let job = Job { version: mkey_trace::format::VERSION, ..Job::default() };
    let assembled = assemble(job, BEGAN, &paths, all, Vec::new());
    // Whatever it is, it can be written, and read as the same.
    let mut bytes = Vec::new();
    assembled.recording.write(&mut bytes).unwrap();
    assert_eq!(Recording::read(&*bytes).unwrap(), assembled.recording);
    assembled
}

/// A process with a device, a thread, a queue, three regions, and what happened to them.
fn example() -> Raw {
    let mut file = Raw::new(100, BEGAN + 500);
    let guid = u64::from_ne_bytes([0x50, 0x6b, 0x4b, 3, 0, 0xc0, 0x12, 0x34]);
    let device = file.put(raw::Device { guid, soft: 1, name: 5, ..Zeroable::zeroed() }, b"mkey0");
    let thread = file.put(
        raw::Thread {
            tid: 101,
            posts: 9,
            name: *b"worker\0\0\0\0\0\0\0\0\0\0",
            ..Zeroable::zeroed()
        },
        &[],
    );
    let verb = Verb::AllocPd as u16;
    file.put(
        raw::Call { verb, end: BEGAN + 600, object: 77, thread, device, ..Zeroable::zeroed() },
        &[],
    );
    let first = file.mr(device, 0x7f12_4010_2000, 0x3000, 5, (BEGAN + 1000, Some(BEGAN + 5000)));
    file.change::<raw::Mr>(first, |mr| {
        mr.uses = [1, 2, 3, 4, 5];
        // Binds are never among them.
        mr.done = 9;
        mr.outside = 2;
    });
    let queue = file.put(
        raw::Queue {
            number: 0x123,
            kind: 2,
            device,
            posted: [1, 0, 0, 0, 0, 0, 7, 0],
            ..Zeroable::zeroed()
        },
        &[],
    );
    file.put(
        raw::Finding {
            wrong: raw::Wrong::KeyAfterDereg as u16,
            at: BEGAN + 5100,
            addr: 0x7f12_4010_2100,
            mr: first,
            queue,
            times: 3,
            ..Zeroable::zeroed()
        },
        &[],
    );
    file.put(
        raw::Failure { at: BEGAN + 6000, status: 4, queue, times: 1, ..Zeroable::zeroed() },
        &[],
    );
    file
}

#[test]
fn records_become_lines_with_relative_addresses_and_times() {
    let file = example();
    let scan = |first, pages, start, end| Scan {
        first: BEGAN + first,
        last: BEGAN + first,
        mappings: vec![Mapping { start, end, pages }],
    };
    let seen = Seen {
        samples: vec![Sample { at: BEGAN + 700, pinned: 1, resident: 2, cpu: 3, posts: 4 }],
        scans: vec![
            scan(100, Pages::Huge2M, 0x7f12_4000_0000, 0x7f12_4020_0000),
            scan(2000, Pages::Thp, 0x7f12_4010_0000, 0x7f12_4020_0000),
            scan(9000, Pages::File, 0x7f12_4010_0000, 0x7f12_4020_0000),
        ],
        gone: Some(BEGAN + 7000),
    };
    let Assembled { recording, untold } = assembled(&[(&file.bytes(), seen)]);
    assert_eq!(untold, [""; 0]);
    let process = &recording.processes[0];
    assert_eq!((process.pid, process.began, process.ended), (100, 500, Some(7000)));
    assert!(!process.exited && process.cpu == Some(3) && process.arguments == ["x", "--now"]);
    assert_eq!(recording.devices[0].guid, "506b:4b03:00c0:1234");
    assert!(recording.devices[0].name == "mkey0" && recording.devices[0].soft);
    assert!(recording.threads[0].name == "worker" && recording.threads[0].posts == 9);
    let region = &recording.regions[0];
    // 0x7f1240000000 is a multiple of 1 GiB.
    assert_eq!((region.addr, region.len), (0x10_2000, 0x3000));
    assert_eq!(region.mapping, Some((0x10_0000, 0x20_0000)));
    assert_eq!(region.pages, Pages::Thp, "as seen while it was registered");
    assert_eq!((region.from, region.to, region.pd), (1000, Some(5000), 1));
    assert_eq!((region.sends, region.writes, region.reads), (1, 2, 3));
    assert_eq!((region.recvs, region.binds, region.outside, region.in_flight), (4, 5, 2, 1));
    let calls: Vec<_> =
        recording.calls.iter().map(|c| (&*c.verb, c.begin, c.region, c.addr)).collect();
    let expected = [
        ("ibv_alloc_pd", 0, None, 0),
        ("ibv_reg_mr", 990, Some(1), 0x10_2000),
        ("ibv_dereg_mr", 5000, Some(1), 0x10_2000),
    ];
    assert_eq!(calls, expected);
    assert!(recording.calls[1].cpu.is_none() && recording.calls[0].cpu == Some(0));
    let queue = &recording.queues[0];
    assert_eq!((queue.number, &*queue.kind, queue.followed), (0x123, "RC", true));
    let posted: Vec<_> = queue.posted.iter().map(|(name, count)| (&**name, *count)).collect();
    assert_eq!(posted, [("recv", 7), ("send", 1)]);
    let finding = &recording.findings[0];
    assert_eq!((finding.wrong, finding.addr, finding.times), (Wrong::KeyAfterDereg, 0x10_2100, 3));
    assert_eq!((finding.region, finding.queue), (Some(1), Some(1)));
    assert_eq!((recording.failures[0].queue, recording.failures[0].at), (1, 6000));
    assert_eq!(recording.samples[0].at, 700);
}

#[test]
fn what_a_process_says_of_its_mappings_tells_of_pages_too() {
    let mut file = example();
    let text =
        b"7f1240100000-7f1240200000 rw-p 00000000 00:00 0 \nRss: 8 kB\nKernelPageSize: 4 kB\n";
    let maps = raw::Maps { at: BEGAN + 8000, bytes: text.len() as u64, ..Zeroable::zeroed() };
    file.put(maps, text);
    let Assembled { recording, .. } = assembled(&[(&file.bytes(), Seen::default())]);
    assert_eq!(recording.regions[0].pages, Pages::Small);
    let without = assembled(&[(&example().bytes(), Seen::default())]);
    assert_eq!(without.recording.regions[0].pages, Pages::Unknown);
}

#[test]
fn addresses_of_calls_that_failed_are_told_apart() {
    let mut file = example();
    let call = raw::Call { verb: Verb::RegMr as u16, errno: 14, len: 64, ..Zeroable::zeroed() };
    for addr in [0x5555_5555_1000, 0x5555_5555_2000, 0, 4096] {
        file.put(raw::Call { addr, ..call }, &[]);
    }
    let Assembled { recording, .. } = assembled(&[(&file.bytes(), Seen::default())]);
    let failed = recording.calls.iter().filter(|call| call.errno == 14);
    let addresses: Vec<_> = failed.map(|call| call.addr).collect();
    // The base is 0x555540000000.
    assert_eq!(addresses, [0x1555_1000, 0x1555_2000, 0, 4096]);
    assert_eq!(recording.regions[0].addr, 0x7f12_4010_2000 - 0x5555_4000_0000);
}

#[test]
fn a_process_of_the_same_number_ends_another_only_where_exec_made_it_of_that() {
    let ends = |change: &dyn Fn(&mut Raw, &mut Raw), gone: Option<u64>| {
        let (mut first, mut second) = (Raw::new(7, BEGAN), Raw::new(7, BEGAN + 1000));
        change(&mut first, &mut second);
        let seen = Seen { gone: gone.map(|at| BEGAN + at), ..Seen::default() };
        let files = [(&*first.bytes(), seen), (&*second.bytes(), Seen::default())];
        assembled(&files).recording.processes[0].ended
    };
    let nothing = |_: &mut Raw, _: &mut Raw| ();
    assert_eq!(ends(&nothing, None), Some(1000));
    assert_eq!(ends(&nothing, Some(5000)), Some(1000), "the number is that of the second");
    // Its number was given away again.
    assert_eq!(ends(&nothing, Some(900)), Some(900));
    assert_eq!(ends(&|first, _| first.header.ended = BEGAN + 800, None), Some(800));
    // Of another PID namespace.
    assert_eq!(ends(&|_, second| second.header.parent = 2, None), None);
    let calls = |first: &mut Raw, _: &mut Raw| {
        first.mr(0, 0x10_0000, 0x1000, 5, (BEGAN + 2000, None));
    };
    assert_eq!(ends(&calls, None), None);
}

#[test]
fn a_domain_s_address_may_be_that_of_another_later() {
    let mut file = example();
    let verb = Verb::AllocPd as u16;
    file.put(raw::Call { verb, end: BEGAN + 2000, object: 77, ..Zeroable::zeroed() }, &[]);
    file.mr(0, 0x7f12_4010_2000, 64, 6, (BEGAN + 3000, None));
    let Assembled { recording, .. } = assembled(&[(&file.bytes(), Seen::default())]);
    let domains: Vec<_> = recording.regions.iter().map(|region| region.pd).collect();
    assert_eq!(domains, [1, 2]);
    // Its device is not known, which is no harm.
    assert_eq!(recording.regions[1].device, 0);
}

#[test]
fn a_remote_key_is_that_of_the_one_region_that_fits() {
    let mut granting = Raw::new(100, BEGAN);
    granting.mr(0, 0x10_0000, 0x1000, 5, (BEGAN + 100, None));
    granting.mr(0, 0x20_0000, 0x1000, 6, (BEGAN + 200, Some(BEGAN + 300)));
    granting.mr(0, 0x20_0000, 0x1000, 6, (BEGAN + 400, None));
    let mut naming = Raw::new(200, BEGAN + 50);
    for (rkey, low, high) in [
        (5, 0x10_0000, 0x10_0fff),
        (5, 0x10_0800, 0x10_1800),
        (6, 0x20_0000, 0x20_0010),
        (7, 0x10_0000, 0x10_0010),
    ] {
        naming.put(raw::Remote { rkey, low, high, writes: 1, ..Zeroable::zeroed() }, &[]);
    }
    let files = [(&*naming.bytes(), Seen::default()), (&*granting.bytes(), Seen::default())];
    let Assembled { recording, .. } = assembled(&files);
    // Processes are in the order of time.
    assert_eq!(recording.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [100, 200]);
    let told: Vec<_> = recording.remotes.iter().map(|r| (r.process, r.region)).collect();
    // One reaches beyond it, one may be that of two, one is unknown.
    assert_eq!(told, [(2, Some(1)), (2, None), (2, None), (2, None)]);
}

#[test]
fn a_program_that_another_took_the_place_of_ended_then() {
    let (first, second) = (Raw::new(7, BEGAN + 10), Raw::new(7, BEGAN + 90));
    let seen = Seen { gone: Some(BEGAN + 200), ..Seen::default() };
    let files = [(&*first.bytes(), seen.clone()), (&*second.bytes(), seen)];
    let Assembled { recording, .. } = assembled(&files);
    let ended: Vec<_> = recording.processes.iter().map(|p| (p.id, p.ended)).collect();
    assert_eq!(ended, [(1, Some(90)), (2, Some(200))]);
}

#[test]
fn origins_are_told_by_verb_and_rights() {
    let mut file = Raw::new(7, BEGAN);
    let one = |verb: Verb, access, addr, len| raw::Mr {
        verb: verb as u16,
        access,
        addr,
        len,
        ..Zeroable::zeroed()
    };
    file.put(one(Verb::RegMr, 1 << 6, 0, u64::MAX), &[]);
    file.put(one(Verb::RegMr, 1 << 6, 0x8000_0000, 4096), &[]);
    file.put(one(Verb::RegDmabufMr, 1, 4096, 4096), &[]);
    file.put(one(Verb::RegDmMr, 1, 64, 64), &[]);
    file.put(one(Verb::NullMr, 1, 0, 0), &[]);
    let Assembled { recording, .. } = assembled(&[(&file.bytes(), Seen::default())]);
    let told: Vec<_> = recording.regions.iter().map(|r| (r.origin, r.pages, r.addr)).collect();
    let expected = [
        (Origin::Implicit, Pages::None, 0),
        (Origin::OnDemand, Pages::Unknown, 0),
        (Origin::Dmabuf, Pages::Device, 4096),
        (Origin::DeviceMemory, Pages::None, 64),
        (Origin::Null, Pages::None, 0),
    ];
    assert_eq!(told, expected);
}

#[test]
fn what_is_readable_of_a_damaged_file_is_used_and_the_rest_is_told() {
    let file = example();
    let whole = file.bytes();
    // Cut: what comes before is there.
    let Assembled { recording, untold } =
        assembled(&[(&whole[..whole.len() - 128], Seen::default())]);
    assert_eq!((recording.regions.len(), recording.queues.len()), (1, 1));
    let why = "what process 100 wrote: it was cut: 128 bytes of its end are missing";
    assert_eq!(untold, [why]);
    // Of another kind, too short, or empty: passed over.
    for bytes in [&b""[..], &whole[..100], &[7; 8192][..]] {
        let Assembled { recording, .. } = assembled(&[(bytes, Seen::default())]);
        assert!(recording.processes.is_empty());
    }
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..3_000 {
        let mut bytes = whole.clone();
        for _ in 0..random.usize(1..20) {
            let at = random.usize(8..bytes.len());
            let odd = [0, 1, 0x7f, 0x80, 0xff, random.u8(..)];
            bytes[at] = odd[random.usize(0..odd.len())];
        }
        bytes.truncate(random.usize(HEADER..=bytes.len()));
        assembled(&[(&bytes, Seen::default())]);
    }
    for _ in 0..200 {
        let mut bytes = whole[..HEADER].to_vec();
        let more = random.usize(0..4096);
        bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(more));
        let used = bytes.len() as u64;
        let header = Header { used, ..file.header };
        bytes[..HEADER].copy_from_slice(bytes_of(&header));
        assembled(&[(&bytes, Seen::default())]);
    }
}

/// The corpus of the fuzz target has such files.
#[test]
fn the_corpus_has_this_example() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace_assembly/example");
    if std::env::var_os("MKEY_WRITE_CORPUS").is_some() {
        fs::write(&path, example().bytes()).unwrap();
    }
    let corpus = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(
        corpus,
        example().bytes(),
        "run this with MKEY_WRITE_CORPUS=1 where the format changed"
    );
}
