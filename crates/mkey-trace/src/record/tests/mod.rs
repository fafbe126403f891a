//! What a recorder writes, read back.

mod findings;
mod limits;
mod processes;
mod works;

use super::*;
use crate::raw::{Call, File, Finding, Mr, Record};
use std::path::PathBuf;
use tempfile::TempDir;

/// A recorder with a file of its own, and a device.
struct Traced {
    recorder: &'static Recorder,
    folder: TempDir,
    device: Slot,
}

const DOMAIN: u64 = 0xD0;

fn traced() -> Traced {
    traced_within(16 << 20)
}

fn traced_within(limit: u64) -> Traced {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(folder.path(), limit).unwrap();
    let device = recorder.device(0xDE, b"mkey0", 0x1234, true);
    Traced { recorder, folder, device }
}

fn files(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

impl Traced {
    fn bytes(&self) -> Vec<u8> {
        let files = files(self.folder.path());
        assert_eq!(files.len(), 1);
        std::fs::read(&files[0]).unwrap()
    }

    fn call(&self, call: Called) {
        let entered = self.recorder.enter();
        let left = self.recorder.leave();
        self.recorder.called(entered, left, &call);
    }

    fn blank(&self, verb: Verb, object: u64) -> Called {
        Called {
            verb,
            errno: 0,
            device: self.device,
            object,
            parent: DOMAIN,
            addr: 0,
            len: 0,
            iova: 0,
            access: 0,
            lkey: 0,
            rkey: 0,
            detail: 0,
        }
    }

    /// Registers memory as the object and with the keys of a number.
    fn reg(&self, number: u32, addr: u64, len: u64) {
        let mut call = self.blank(Verb::RegMr, object(number));
        (call.addr, call.len, call.access) = (addr, len, 7);
        (call.lkey, call.rkey) = (lkey(number), lkey(number) + 1);
        self.call(call);
    }

    fn dereg(&self, number: u32) {
        self.call(self.blank(Verb::DeregMr, object(number)));
    }

    fn queue(&self, sends: u32, recvs: u32) -> &'static Queue {
        self.recorder.queue(&self.init(sends, recvs)).unwrap()
    }

    fn init(&self, sends: u32, recvs: u32) -> QueueInit {
        QueueInit {
            device: self.device,
            pd: DOMAIN,
            object: 0x99,
            number: 17,
            kind: 2,
            sends,
            recvs,
            send_entries: 4,
            recv_entries: 4,
        }
    }

    fn post(&self, queue: &Queue, op: Op, id: u64, entries: &[(u64, u32, u32)]) {
        self.post_as(queue, op, id, true, entries);
    }

    fn post_as(&self, queue: &Queue, op: Op, id: u64, signaled: bool, entries: &[(u64, u32, u32)]) {
        let entries: Vec<_> = entries
            .iter()
            .map(|(addr, len, number)| Entry { addr: *addr, len: *len, lkey: lkey(*number) })
            .collect();
        let work = Work {
            id,
            op,
            signaled,
            inlined: false,
            invalidates: false,
            entries: &entries,
            remote: None,
        };
        queue.post(self.recorder, &work);
    }

    /// The records of one kind.
    fn all<T>(&self, pick: impl Fn(Record<'_>) -> Option<T>) -> Vec<T> {
        let bytes = self.bytes();
        File::parse(&bytes).unwrap().records().filter_map(|(_, record)| pick(record)).collect()
    }

    fn mrs(&self) -> Vec<Mr> {
        self.all(|record| if let Record::Mr(mr) = record { Some(mr) } else { None })
    }

    fn findings(&self) -> Vec<Finding> {
        self.all(|record| if let Record::Finding(found) = record { Some(found) } else { None })
    }

    /// The kinds of all findings and how often each was met.
    fn wrongs(&self) -> Vec<(Wrong, u64)> {
        self.findings().iter().map(|f| (Wrong::of(f.wrong).unwrap(), f.times)).collect()
    }

    fn queues(&self) -> Vec<raw::Queue> {
        self.all(|record| if let Record::Queue(queue) = record { Some(queue) } else { None })
    }
}

fn object(number: u32) -> u64 {
    0x5000_0000 + u64::from(number) * 0x40
}

fn lkey(number: u32) -> u32 {
    number * 0x100 + 0x42
}

/// In flight, as a reader counts it.
fn in_flight(mr: &Mr) -> u64 {
    mr.uses[..4].iter().sum::<u64>() - mr.done
}
