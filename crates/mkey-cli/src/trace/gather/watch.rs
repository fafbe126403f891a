//! Watching the processes of a job from outside, while they run: what they have pinned, what they use, and
//! which pages the memory is on that they register. Nothing of it runs within them.

use super::mappings::{self, Mapping};
use super::on_demand::OnDemand;
use super::{nanoseconds, now};
use crate::process::kib_of;
use mkey_trace::format::Counter;
use mkey_trace::raw::access::ON_DEMAND;
use mkey_trace::raw::{self, ALIGN, Device, HEADER, Head, Header, Mr, Slot, Thread, Verb, kind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks, where nothing new is to be looked at.
const SLOW: Duration = Duration::from_millis(100);
/// While there are regions whose pages are not known.
const FAST: Duration = Duration::from_millis(10);
/// Looking takes at most the fiftieth part of a processor.
const SHARE: u32 = 50;
/// Samples of a process; then every second one is given up, and they come half as often.
const MOST_SAMPLES: usize = 4096;
/// Mappings that are noted of a process.
const MOST_MAPPINGS: usize = 1 << 20;
/// Looks after which a record that is not whole is passed over, and room that nothing is written to.
const MOST_LOOKS: u32 = 20;
/// See [`MOST_LOOKS`].
const FEW_LOOKS: u32 = 3;
/// Threads of a process that are asked for their time.
const MOST_THREADS: usize = 64;
/// Bytes that are read at a time: many records, but of a stack no more than its beginning.
const PIECE: usize = 2048;
/// Bytes of a record that are looked at.
const RECORD: usize = size_of::<Mr>();

/// What was seen of a process.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// In the order of time.
    pub scans: Vec<Scan>,
    /// When it was gone.
    pub gone: Option<u64>,
}

/// What it had at a time. Times are CLOCK_MONOTONIC's, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: u64,
    /// VmPin and VmRSS, bytes.
    pub pinned: u64,
    /// See `pinned`.
    pub resident: u64,
    /// User and system time so far, ns; 0: not known.
    pub cpu: u64,
    /// Work requests posted so far.
    pub posts: u64,
}

/// Mappings that memory lies in that was registered shortly before.
#[derive(Clone, Debug)]
pub struct Scan {
    /// When they were so first, and last.
    pub first: u64,
    /// See `first`.
    pub last: u64,
    /// In the order of their addresses.
    pub mappings: Vec<Mapping>,
}

/// Those that are watched, by their files.
#[derive(Debug, Default)]
pub struct Watch {
    processes: BTreeMap<PathBuf, Option<Watched>>,
    on_demand: OnDemand,
}

impl Watch {
    /// Looks at all once; how long to wait until the next look.
    pub fn look(&mut self, files: Vec<PathBuf>) -> Duration {
        let (began, spent) = (now(), spent_so_far());
        for path in files {
            let watched = self.processes.entry(path);
            watched.or_insert_with_key(|path| Watched::open(path));
        }
        // Other files are looked at again: a header may not have been whole.
        for (path, watched) in self.processes.iter_mut().filter(|(_, watched)| watched.is_none()) {
            *watched = Watched::open(path);
        }
        let mut all: Vec<_> = self.processes.values_mut().flatten().collect();
        all.iter_mut().for_each(|watched| watched.look());
        for (device, lkey) in all.iter_mut().flat_map(|watched| watched.on_demand.drain(..)) {
            self.on_demand.add(device, lkey);
        }
        self.on_demand.look(began);
        let hurry = all.iter().any(|watched| watched.hurries());
        let took = Duration::from_nanos(spent_so_far().saturating_sub(spent));
        took.saturating_mul(SHARE).max(if hurry || all.is_empty() { FAST } else { SLOW })
    }

    /// Processes that are there still.
    pub fn running(&self) -> Vec<u32> {
        let all = self.processes.values().flatten();
        all.filter(|one| one.is_there && one.seen.gone.is_none()).map(|one| one.pid).collect()
    }

    /// What was counted of on-demand memory.
    pub fn counters(&self) -> Vec<Counter> {
        self.on_demand.counters()
    }

    /// What was seen, by file.
    pub fn into_seen(self) -> BTreeMap<PathBuf, Seen> {
        let now = now();
        let mut all: BTreeMap<PathBuf, Watched> = self
            .processes
            .into_iter()
            .filter_map(|(path, watched)| Some((path, watched?)))
            .collect();
        // What has ended between the looks, and what was about to when it was first looked at.
        all.values_mut().filter(|one| one.is_there).for_each(|one| one.look_for_end(now));
        let unknown = all.iter().filter(|(_, one)| one.seen.gone.is_none() && !one.is_there);
        let unknown: Vec<PathBuf> = unknown.map(|(path, _)| path.clone()).collect();
        if !unknown.is_empty() {
            let mapped = mapped_by_any(&unknown);
            for path in unknown.iter().filter(|path| !mapped.contains(path.as_path())) {
                let Some(one) = all.get_mut(path) else { continue };
                if !one.is_hidden() {
                    one.seen.gone = Some(one.left.unwrap_or(now));
                }
            }
        }
        all.into_iter().map(|(path, watched)| (path, watched.seen)).collect()
    }
}

/// A process that is watched.
#[derive(Debug)]
struct Watched {
    file: File,
    pid: u32,
    folder: PathBuf,
    /// Held open, it is never that of another process with the same number.
    stat: Option<File>,
    /// How far the file was read.
    at: u64,
    /// How often what comes there was not whole.
    looks: u32,
    /// Whether its number is that of a process of this host that writes this file: in a container it may have
    /// another one.
    is_there: bool,
    /// When the process with its number was gone, if it is not known to be this one.
    left: Option<u64>,
    /// Devices of the kernel's that it opened.
    devices: HashMap<Slot, String>,
    /// On-demand memory that is new: the device and the local key.
    on_demand: Vec<(String, u32)>,
    /// Where threads count.
    threads: Vec<u64>,
    /// Memory whose pages were not looked at.
    fresh: BTreeSet<(u64, u64)>,
    /// When lists of mappings may be read again; `None`: never.
    scan_from: Option<u64>,
    noted: usize,
    sample_from: u64,
    sample_every: u64,
    seen: Seen,
}

impl Watched {
    /// `None` if the file is none of a process, or not yet.
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut magic = [0; raw::MAGIC.len()];
        file.read_exact_at(&mut magic, 0).ok()?;
        if magic != raw::MAGIC {
            return None;
        }
        let pid = u32_at(&file, offset_of!(Header, pid) as u64)?;
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let stat = File::open(folder.join("stat")).ok();
        let is_there = stat.is_none() || has_mapped(&folder, path);
        Some(Self {
            file,
            pid,
            stat,
            folder,
            at: HEADER as u64,
            looks: 0,
            is_there,
            left: None,
            devices: HashMap::new(),
            on_demand: Vec::new(),
            threads: Vec::new(),
            fresh: BTreeSet::new(),
            scan_from: Some(0),
            noted: 0,
            sample_from: 0,
            sample_every: SLOW.as_nanos() as u64,
            seen: Seen::default(),
        })
    }

    fn hurries(&self) -> bool {
        self.is_there
            && self.seen.gone.is_none()
            && !self.fresh.is_empty()
            && self.scan_from.is_some()
    }

    fn look(&mut self) {
        if self.seen.gone.is_some() {
            return;
        }
        if !self.is_there {
            if self.left.is_none() && self.stat().is_none() {
                self.left = Some(now());
            }
            return;
        }
        // As the file has it: what cannot be read now is there when all are put together.
        let _ = self.follow();
        let now = now();
        let Some(cpu) = self.cpu() else {
            self.seen.gone = Some(now);
            return;
        };
        if !self.fresh.is_empty() && self.scan_from.is_some_and(|from| from <= now) {
            self.scan(now);
        }
        if now >= self.sample_from {
            self.sample(now, cpu);
        }
    }

    /// Notes that it has ended, if it has.
    fn look_for_end(&mut self, now: u64) {
        if self.seen.gone.is_none() && self.stat().is_none() {
            self.seen.gone = Some(now);
        }
    }

    /// Whether its mappings may not be read, and it is there since before it began the file: another process
    /// with its number would have begun later.
    fn is_hidden(&self) -> bool {
        let has_maps = File::open(self.folder.join("maps")).is_ok();
        if has_maps || self.left.is_some() {
            return false;
        }
        let began = u64_at(&self.file, offset_of!(Header, began) as u64).unwrap_or(0);
        // Times of processes go on while a machine sleeps.
        let asleep = nanoseconds(rustix::time::ClockId::Boottime).saturating_sub(now());
        let start = self.stat().map(|stat| since_ticks(stat.start));
        start.is_some_and(|start| start <= began.saturating_add(asleep))
    }

    /// Reads on in its file: memory that was registered, threads that began.
    fn follow(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let used = u64_at(&self.file, offset_of!(Header, used) as u64).unwrap_or(0).min(length);
        let mut piece = [0; PIECE];
        while self.at < used {
            let want = usize::try_from(used - self.at).unwrap_or(usize::MAX).min(piece.len());
            let Some(room) = piece.get_mut(..want) else { return Ok(()) };
            let read = self.file.read_at(room, self.at)?;
            let (mut begin, from) = (0, self.at);
            // A record may be cut by the piece's end, but not by that of the file.
            while begin < read && (read - begin >= RECORD || from + read as u64 == used) {
                let bytes = piece.get(begin..read).unwrap_or_default();
                let Some(head) = bytes.get(..size_of::<Head>()) else { return Ok(()) };
                let head: Head = bytemuck::pod_read_unaligned(head);
                if head.kind == 0 {
                    // Room that was taken and is written to just now, or never will be.
                    self.looks += 1;
                    if self.looks < if head.len == 0 { FEW_LOOKS } else { MOST_LOOKS } {
                        self.at = from + begin as u64;
                        return Ok(());
                    }
                }
                if head.len == 0 {
                    begin = begin.saturating_add(zeros(bytes));
                    continue;
                }
                self.looks = 0;
                self.record(head.kind, from + begin as u64, bytes);
                begin = begin.saturating_add((head.len as usize).next_multiple_of(ALIGN));
            }
            if begin == 0 {
                return Ok(());
            }
            self.at = from + begin as u64;
        }
        Ok(())
    }

    fn record(&mut self, of: u16, at: u64, bytes: &[u8]) {
        let whole = |size| bytes.get(..size);
        match of {
            kind::THREAD => self.threads.push(at),
            kind::DEVICE => {
                let Some((device, name)) = bytes.split_at_checked(size_of::<Device>()) else {
                    return;
                };
                let device: Device = bytemuck::pod_read_unaligned(device);
                let name = name.get(..device.name as usize).unwrap_or_default();
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if let Ok(slot) = Slot::try_from(at / ALIGN as u64)
                    && device.soft == 0
                {
                    self.devices.insert(slot, String::from_utf8_lossy(name).into_owned());
                }
            }
            kind::MR => {
                let Some(mr) = whole(size_of::<Mr>()) else { return };
                let mr: Mr = bytemuck::pod_read_unaligned(mr);
                let of_memory = [Verb::RegMr, Verb::RegMrIova, Verb::ReregMr];
                let is_memory = Verb::of(mr.verb).is_some_and(|verb| of_memory.contains(&verb));
                if mr.access & ON_DEMAND != 0
                    && let Some(device) = self.devices.get(&mr.device)
                {
                    self.on_demand.push((device.clone(), mr.lkey));
                }
                // All of the address space has no pages of its own.
                if is_memory && mr.addr.checked_add(mr.len).is_some_and(|end| end < 1 << 63) {
                    self.fresh.insert((mr.addr, mr.len));
                }
            }
            _ => {}
        }
    }

    /// User and system time, ns; `None` if the process is gone.
    fn cpu(&self) -> Option<u64> {
        match self.stat()?.ticks {
            // Less than a tick: to the nanosecond then.
            0 => Some(run_time(&self.folder)),
            ticks => Some(since_ticks(ticks)),
        }
    }

    /// `None` if the process is gone.
    fn stat(&self) -> Option<Stat> {
        let mut text = [0; 1024];
        let read = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        Stat::of(text.get(..read)?)
    }

    fn scan(&mut self, began: u64) {
        let Ok(smaps) = File::open(self.folder.join("smaps")) else {
            self.scan_from = None;
            return;
        };
        let wanted = united(&self.fresh);
        let is_wanted = |start: u64, end: u64| {
            let first = wanted.partition_point(|range| range.end <= start);
            wanted.get(first).is_some_and(|range| range.start < end)
        };
        let spent = spent_so_far();
        let list = mappings::read(BufReader::with_capacity(64 << 10, smaps), is_wanted);
        self.fresh.clear();
        let took = spent_so_far().saturating_sub(spent);
        self.scan_from = Some(began.saturating_add(took.saturating_mul(u64::from(SHARE))));
        match (list, self.seen.scans.last_mut()) {
            (Ok(list), Some(last)) if list == last.mappings => last.last = began,
            (Ok(list), _) if !list.is_empty() && self.noted < MOST_MAPPINGS => {
                self.noted += list.len();
                self.seen.scans.push(Scan { first: began, last: began, mappings: list });
            }
            _ => {}
        }
    }

    fn sample(&mut self, at: u64, cpu: u64) {
        let status = std::fs::read_to_string(self.folder.join("status")).unwrap_or_default();
        let posts = |begin: &u64| u64_at(&self.file, begin + offset_of!(Thread, posts) as u64);
        let posts = self.threads.iter().filter_map(posts).fold(0, u64::saturating_add);
        let size = |name| kib_of(&status, name).unwrap_or(0);
        let sample = Sample { at, pinned: size("VmPin"), resident: size("VmRSS"), cpu, posts };
        self.seen.samples.push(sample);
        if self.seen.samples.len() >= MOST_SAMPLES {
            let mut count = 0;
            self.seen.samples.retain(|_| {
                count += 1;
                count % 2 == 1
            });
            self.sample_every = self.sample_every.saturating_mul(2);
        }
        self.sample_from = at.saturating_add(self.sample_every);
    }
}

/// What `/proc/PID/stat` says of a process that has not ended.
struct Stat {
    /// User and system time, in ticks of the clock.
    ticks: u64,
    /// When it began after the machine did, in ticks.
    start: u64,
}

impl Stat {
    /// `None` if it has ended.
    fn of(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        // The name, in brackets, may hold anything.
        let words: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        // Fields 3, 14, 15, 20 and 22 of proc(5): a first thread may have ended before the others.
        let ended = matches!(*words.first()?, "Z" | "X");
        if ended && number(17).is_none_or(|threads| threads <= 1) {
            return None;
        }
        Some(Self { ticks: number(11)?.saturating_add(number(12)?), start: number(19)? })
    }
}

/// Ticks of the clock in ns.
fn since_ticks(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// CPU time of the threads of a process that are there, ns; 0: not known.
fn run_time(folder: &Path) -> u64 {
    let threads = std::fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    // So little time is not that of many.
    let threads = threads.take(MOST_THREADS);
    let of = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    of.fold(0, u64::saturating_add)
}

/// CPU time of this thread, ns.
fn spent_so_far() -> u64 {
    nanoseconds(rustix::time::ClockId::ThreadCPUTime)
}

/// Bytes of zeros that `bytes` begin with, in whole places for records; one place at least.
fn zeros(bytes: &[u8]) -> usize {
    let places = bytes.chunks(ALIGN).take_while(|place| place.iter().all(|byte| *byte == 0));
    places.count().max(1) * ALIGN
}

/// Ranges that overlap or touch are one; in the order of addresses.
fn united(fresh: &BTreeSet<(u64, u64)>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for (start, len) in fresh {
        let end = start.saturating_add((*len).max(1));
        match all.last_mut() {
            Some(last) if last.end >= *start => last.end = last.end.max(end),
            _ => all.push(*start..end),
        }
    }
    all
}

/// Whether the process of this folder has a file mapped, as all have that write one.
fn has_mapped(folder: &Path, file: &Path) -> bool {
    let Some(end) = end_of(file) else { return false };
    mapped(folder).any(|line| line.ends_with(&end))
}

/// Those of `files` that any process has mapped, whatever its number is.
fn mapped_by_any(files: &[PathBuf]) -> BTreeSet<&Path> {
    let ends = files.iter().filter_map(|file| Some((end_of(file)?, file.as_path())));
    let ends: Vec<_> = ends.collect();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process =
        |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let all = all.filter(|entry| is_process(&entry.file_name()));
    let lines = all.flat_map(|entry| mapped(&entry.path()));
    let found = lines.flat_map(|line| {
        let of_line = ends.iter().filter(move |(end, _)| line.ends_with(end));
        of_line.map(|(_, file)| *file)
    });
    found.collect()
}

/// The lines of a process' mappings; none if they may not be read.
fn mapped(folder: &Path) -> impl Iterator<Item = Vec<u8>> + use<> {
    let maps = File::open(folder.join("maps")).ok();
    let lines = maps.map(|maps| BufReader::with_capacity(64 << 10, maps).split(b'\n'));
    lines.into_iter().flat_map(|lines| lines.map_while(Result::ok))
}

/// What the path of a file ends with at whatever place mount namespaces may have it: its folder's name is no
/// other's.
fn end_of(file: &Path) -> Option<Vec<u8>> {
    let (parent, name) = (file.parent().and_then(Path::file_name)?, file.file_name()?);
    Some([parent.as_encoded_bytes(), name.as_encoded_bytes()].join(&b'/'))
}

fn u64_at(file: &File, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

fn u32_at(file: &File, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    /// A file as a process with this number writes it.
    fn file(folder: &Path, pid: u32) -> PathBuf {
        let mut bytes = vec![0; HEADER];
        bytes[..raw::MAGIC.len()].copy_from_slice(&raw::MAGIC);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Header, pid), &pid.to_ne_bytes());
        put(offset_of!(Header, began), &now().to_ne_bytes());
        put(offset_of!(Header, used), &(HEADER as u64).to_ne_bytes());
        let path = folder.join(pid.to_string());
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        path
    }

    /// A process that has not mapped a file, and goes on until its standard input is closed.
    fn waiting() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// A process is first looked at when its memory is gone already: its mappings are none.
    #[test]
    fn what_was_ending_when_first_seen_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = waiting();
        let path = file(folder.path(), child.id());
        let mut watch = Watch::default();
        watch.look(vec![path.clone()]);
        assert!(watch.running().is_empty());
        drop(child.stdin.take());
        child.wait().unwrap();
        let before = now();
        watch.look(vec![path.clone()]);
        let after = now();
        let gone = watch.into_seen()[&path].gone.unwrap();
        assert!((before..=after).contains(&gone), "when it was seen to be gone");
    }

    /// Its number is another process' by now, which has begun later.
    #[test]
    fn what_nobody_writes_any_more_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = waiting();
        let path = file(folder.path(), other.id());
        let mut watch = Watch::default();
        watch.look(vec![path.clone()]);
        assert!(watch.into_seen()[&path].gone.is_some());
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    /// In a container the number is another one's: who has the file mapped is there.
    #[test]
    fn what_is_written_under_another_number_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = waiting();
        let path = file(folder.path(), other.id());
        let mut watch = Watch::default();
        watch.look(vec![path.clone()]);
        // What is in the file does not matter for who has it mapped: a program has its own.
        let program = folder.path().join("program");
        // By another process: one that begins meanwhile would have the file open for writing.
        assert!(Command::new("cp").arg("/bin/cat").arg(&program).status().unwrap().success());
        std::fs::rename(&program, &path).unwrap();
        let mut writer = Command::new(&path).stdin(Stdio::piped()).spawn().unwrap();
        assert!(watch.into_seen()[&path].gone.is_none());
        drop(writer.stdin.take());
        writer.wait().unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
    }

    /// A tick of the clock is 10 ms: what has run for less has run.
    #[test]
    fn little_cpu_time_is_known() {
        let mut child = waiting();
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let some = run_time(&folder);
        assert!(some > 0 && some < 1_000_000_000, "{some}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(run_time(&folder), 0, "not known");
    }

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state: &str, threads: u64| {
            let text =
                format!("7 (a) b) {state} 1 1 1 0 -1 0 0 0 0 0 3 4 0 0 20 0 {threads} 0 99 0");
            Stat::of(text.as_bytes()).map(|stat| (stat.ticks, stat.start))
        };
        assert_eq!(stat("S", 1), Some((7, 99)));
        assert_eq!(stat("Z", 2), Some((7, 99)));
        assert_eq!(stat("Z", 1), None);
        assert_eq!(stat("X", 0), None);
        assert!(Stat::of(b"").is_none() && Stat::of(b"7 (a) S").is_none());
    }
}
