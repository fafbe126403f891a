//! Recordings made by hand.

use mkey_trace::format::{Call, Device, Frame, Job, Pages, Process, Recording, Region, Stack};

/// `LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ`.
pub const OPEN: u32 = 7;

/// A recording in the making: one process, one software RNIC, one domain.
pub struct Recorder {
    pub recording: Recording,
    now: u64,
}

impl Recorder {
    pub fn new() -> Self {
        let mut recorder = Self { recording: Recording::default(), now: 1000 };
        let command = vec!["./server".to_owned()];
        recorder.recording.job = Job { version: 1, command, ..Job::default() };
        recorder.process();
        let function = Some("register_one".to_owned());
        let frame = Frame { module: "server".to_owned(), offset: 64, function, ..Frame::default() };
        let stack = Stack { id: 1, frames: vec![frame], cut: false };
        recorder.recording.stacks.push(stack);
        recorder
    }

    /// Another process, whose registrations come next.
    pub fn process(&mut self) {
        let id = self.recording.processes.len() as u32 + 1;
        let process = Process { id, pid: 4000 + id, cpu: Some(0), ..Process::default() };
        self.recording.processes.push(process);
        let name = "mkey0".to_owned();
        self.recording.devices.push(Device {
            id,
            process: id,
            name,
            soft: true,
            ..Device::default()
        });
    }

    /// Something else is done for so long.
    pub fn pause(&mut self, ns: u64) {
        self.now += ns;
    }

    /// Registers local and open for `ns`; the number of the region.
    pub fn register(&mut self, addr: u64, len: u64, ns: u64) -> u32 {
        self.register_with(addr, len, OPEN, Pages::Small, ns)
    }

    pub fn register_with(
        &mut self,
        addr: u64,
        len: u64,
        access: u32,
        pages: Pages,
        ns: u64,
    ) -> u32 {
        let id = self.recording.regions.len() as u32 + 1;
        let process = self.recording.processes.len() as u32;
        let call = self.call("ibv_reg_mr", id, ns);
        let from = call.end;
        self.recording.calls.push(Call { addr, len, access, ..call });
        self.recording.regions.push(Region {
            id,
            process,
            device: process,
            pd: 1,
            addr,
            len,
            access,
            pages,
            from,
            ..Region::default()
        });
        id
    }

    pub fn deregister(&mut self, id: u32, ns: u64) {
        let call = self.call("ibv_dereg_mr", id, ns);
        self.recording.regions[id as usize - 1].to = Some(call.begin);
        self.recording.calls.push(call);
    }

    fn call(&mut self, verb: &str, region: u32, ns: u64) -> Call {
        let process = self.recording.processes.len() as u32;
        let (begin, end) = (self.now, self.now + ns);
        self.now = end + 10;
        self.recording.processes.last_mut().unwrap().cpu.as_mut().map(|cpu| *cpu += ns).unwrap();
        Call {
            process,
            device: process,
            verb: verb.to_owned(),
            begin,
            end,
            region: Some(region),
            stack: 1,
            ..Call::default()
        }
    }

    pub fn finish(mut self) -> Recording {
        self.recording.job.wall = self.now;
        self.recording
    }
}

/// `rounds` times over `buffers` buffers of `len` bytes: registered, used, deregistered.
pub fn per_io(rounds: u64, buffers: u64, len: u64) -> Recording {
    let mut recorder = Recorder::new();
    for round in 0..rounds {
        let stride = len.next_multiple_of(4096) + 8192;
        let id = recorder.register(0x10_0000 + round % buffers * stride, len, 2000);
        recorder.pause(5000);
        recorder.deregister(id, 1000);
    }
    recorder.finish()
}

/// `buffers` buffers next to each other, all registered, then all deregistered.
pub fn small(buffers: u64, len: u64) -> Recording {
    let mut recorder = Recorder::new();
    let ids: Vec<u32> =
        (0..buffers).map(|n| recorder.register(0x20_0000 + n * len, len, 1500)).collect();
    recorder.pause(1000);
    ids.into_iter().for_each(|id| recorder.deregister(id, 500));
    recorder.finish()
}
