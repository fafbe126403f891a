//! Recordings for tests, made by hand.

use mkey_trace::format::*;
use std::collections::HashMap;

/// `LOCAL_WRITE`.
pub const LOCAL: u32 = 1;
/// `LOCAL_WRITE | REMOTE_WRITE`.
pub const REMOTE_WRITE: u32 = 3;

/// Makes a recording, line by line. What it begins with is one process with one software RNIC and one thread.
pub struct Builder {
    pub recording: Recording,
    stacks: HashMap<Vec<Frame>, u32>,
}

/// A frame; an empty name or file, or line 0, is none.
pub fn frame(module: &str, function: &str, file: &str, line: u32) -> Frame {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Frame {
        module: module.to_owned(),
        offset: 1,
        function: some(function),
        file: some(file),
        line: (line > 0).then_some(line),
    }
}

impl Builder {
    /// One process, its device, its thread; they live for 1 s.
    pub fn new() -> Self {
        let job = Job {
            version: VERSION,
            by: "mkey 0.1.0".to_owned(),
            command: vec!["./server".to_owned(), "--port".to_owned(), "1".to_owned()],
            host: "host".to_owned(),
            cpu: "A CPU".to_owned(),
            processors: 2,
            kernel: "6.18".to_owned(),
            wall: 1_000_000_000,
            end: "exit 0".to_owned(),
            ..Job::default()
        };
        let mut builder =
            Self { recording: Recording { job, ..Recording::default() }, stacks: HashMap::new() };
        builder.process(true);
        builder
    }

    /// Another process with a device and a thread; it lives to the end.
    pub fn process(&mut self, exited: bool) -> u32 {
        let id = self.recording.processes.len() as u32 + 1;
        self.recording.processes.push(Process {
            id,
            pid: 1000 + id,
            arguments: vec!["./server".to_owned()],
            ended: Some(1_000_000_000),
            exited,
            cpu: Some(500_000_000),
            ..Process::default()
        });
        self.recording.devices.push(Device {
            id,
            process: id,
            name: "mkey0".to_owned(),
            soft: true,
            ..Device::default()
        });
        self.recording.threads.push(Thread {
            id,
            process: id,
            tid: 1000 + id,
            ..Thread::default()
        });
        id
    }

    /// A queue pair on the first device of a process: its work, all of which completed.
    pub fn queue(&mut self, process: u32, kind: &str, posted: &[(&str, u64)]) -> &mut Queue {
        let id = self.recording.queues.len() as u32 + 1;
        self.recording.queues.push(Queue {
            id,
            process,
            device: process,
            number: 0x10 + id,
            kind: kind.to_owned(),
            posted: posted.iter().map(|(op, count)| ((*op).to_owned(), *count)).collect(),
            completed: posted.iter().map(|(_, count)| count).sum(),
            ..Queue::default()
        });
        self.recording.queues.last_mut().expect("it was pushed")
    }

    /// A stack of (module, function, file, line).
    pub fn stack(&mut self, frames: &[(&str, &str, &str, u32)]) -> u32 {
        self.frames(frames.iter().map(|(m, f, file, line)| frame(m, f, file, *line)).collect())
    }

    /// A stack.
    pub fn frames(&mut self, frames: Vec<Frame>) -> u32 {
        let id = self.recording.stacks.len() as u32 + 1;
        *self.stacks.entry(frames.clone()).or_insert_with(|| {
            self.recording.stacks.push(Stack { id, frames, cut: false });
            id
        })
    }

    /// A stack with one own frame: `function main.c:line`.
    pub fn place(&mut self, function: &str, line: u32) -> u32 {
        self.stack(&[("server", function, "main.c", line), ("server", "main", "main.c", 1)])
    }

    /// A call of the first process.
    pub fn call(&mut self, verb: &str, begin: u64, ns: u64, stack: u32) -> &mut Call {
        self.recording.calls.push(Call {
            process: 1,
            device: 1,
            thread: 1,
            verb: verb.to_owned(),
            begin,
            end: begin + ns,
            cpu: Some(ns),
            stack,
            ..Call::default()
        });
        self.recording.calls.last_mut().expect("it was pushed")
    }

    /// A region of the first process that is registered for `ns`.
    pub fn region(&mut self, addr: u64, len: u64, begin: u64, ns: u64, stack: u32) -> &mut Region {
        let id = self.recording.regions.len() as u32 + 1;
        let call = self.call("ibv_reg_mr", begin, ns, stack);
        (call.region, call.addr, call.len, call.access) = (Some(id), addr, len, LOCAL);
        self.recording.regions.push(Region {
            id,
            process: 1,
            device: 1,
            pd: 1,
            addr,
            len,
            access: LOCAL,
            pages: Pages::Small,
            lkey: 2 * id,
            rkey: 2 * id + 1,
            from: begin + ns,
            reg_stack: stack,
            ..Region::default()
        });
        self.recording.regions.last_mut().expect("it was pushed")
    }

    /// The last region is deregistered.
    pub fn dereg(&mut self, begin: u64, ns: u64, stack: u32) -> &mut Call {
        let region = self.recording.regions.last_mut().expect("a region");
        (region.to, region.dereg_stack) = (Some(begin), stack);
        let (id, len) = (region.id, region.len);
        let call = self.call("ibv_dereg_mr", begin, ns, stack);
        (call.region, call.len) = (Some(id), len);
        call
    }
}
