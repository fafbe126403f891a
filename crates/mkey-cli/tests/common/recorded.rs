//! What processes wrote that were recorded.
#![allow(dead_code)] // Each test target uses part of it.

use mkey_trace::raw::{self, File, Op, Record, Verb};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tempfile::TempDir;

/// What the processes of a job wrote.
pub struct Job {
    folder: TempDir,
}

/// The records of a process.
#[derive(Default)]
pub struct Process {
    pub ended: bool,
    pub lost: u64,
    pub calls: Vec<raw::Call>,
    pub mrs: Vec<raw::Mr>,
    pub queues: Vec<raw::Queue>,
    pub threads: Vec<raw::Thread>,
    pub windows: Vec<raw::Window>,
    pub failures: Vec<(raw::Failure, raw::Queue)>,
    pub findings: Vec<raw::Finding>,
    pub devices: Vec<(raw::Device, String)>,
}

impl Job {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// What `MKEY_TRACE` is to name.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What was recorded, of the processes that opened a device: the first one first.
    pub fn processes(&self) -> Vec<Process> {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let mut processes: Vec<(u64, Process)> = files
            .map(|file| {
                let bytes = written(&file.unwrap().path());
                let file = File::parse(&bytes).unwrap();
                (file.header().began, process(&file))
            })
            .collect();
        processes.sort_by_key(|(began, _)| *began);
        processes.into_iter().map(|(_, process)| process).collect()
    }

    pub fn process(&self) -> Process {
        let mut processes = self.processes();
        assert_eq!(processes.len(), 1);
        processes.pop().unwrap()
    }
}

/// The part of a file that was written to; the rest is room.
fn written(path: &Path) -> Vec<u8> {
    let mut file = std::fs::File::open(path).unwrap();
    let mut bytes = vec![0; raw::HEADER];
    file.read_exact(&mut bytes).unwrap();
    let used = File::parse(&bytes).unwrap().header().used;
    file.take(used - raw::HEADER as u64).read_to_end(&mut bytes).unwrap();
    bytes
}

fn process(file: &File<'_>) -> Process {
    let header = file.header();
    let mut process = Process { ended: header.ended != 0, lost: header.lost, ..Process::default() };
    for (_, record) in file.records() {
        match record {
            Record::Call(call) => process.calls.push(call),
            Record::Mr(mr) => process.mrs.push(mr),
            Record::Queue(queue) => process.queues.push(queue),
            Record::Thread(thread) => process.threads.push(thread),
            Record::Window(window) => process.windows.push(window),
            Record::Failure(failure) => {
                let queue = file.get::<raw::Queue>(failure.queue).unwrap();
                process.failures.push((failure, queue));
            }
            Record::Finding(finding) => process.findings.push(finding),
            Record::Device(device, name) => {
                process.devices.push((device, String::from_utf8(name.to_vec()).unwrap()));
            }
            Record::Stack(..) | Record::Module(..) | Record::Maps(..) | Record::Remote(_) => {}
        }
    }
    process
}

impl Process {
    /// How many calls there were of each verb, and how many of them failed.
    pub fn verbs(&self) -> BTreeMap<&'static str, (usize, usize)> {
        let mut verbs = BTreeMap::<_, (usize, usize)>::new();
        for call in &self.calls {
            let (calls, failed) = verbs.entry(Verb::of(call.verb).unwrap().name()).or_default();
            *calls += 1;
            *failed += usize::from(call.errno != 0);
        }
        verbs
    }

    pub fn calls_of(&self, verb: Verb) -> Vec<&raw::Call> {
        self.calls.iter().filter(|call| call.verb == verb as u16).collect()
    }
}

/// What a queue did: posted by operation, inline, completed, failed.
pub fn work(queue: &raw::Queue) -> (Vec<(Op, u64)>, u64, u64, u64) {
    use Op::{Atomic, Bind, LocalInv, Other, Read, Recv, Send, Write};
    let all = [Send, Write, Read, Atomic, Bind, LocalInv, Recv, Other];
    let posted = all.map(|op| (op, queue.posted[op as usize]));
    let posted = posted.into_iter().filter(|(_, posted)| *posted > 0).collect();
    (posted, queue.inlined, queue.completed, queue.failed)
}
