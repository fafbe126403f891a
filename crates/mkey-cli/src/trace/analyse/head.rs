//! Whose recording it is, and what taking it cost.

use super::ground::{Ground, life};
use super::list::List;
use mkey_trace::format::{Process, Recording};
use serde::Serialize;
use std::collections::BTreeMap;

/// Whose recording it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Head {
    /// The command line.
    pub command: Vec<String>,
    /// What wrote the recording.
    pub by: String,
    /// The host, its CPU, its processors, its kernel.
    pub host: String,
    /// See `host`.
    pub cpu: String,
    /// See `host`.
    pub processors: u32,
    /// See `host`.
    pub kernel: String,
    /// When it began, seconds since 1970.
    pub began: u64,
    /// How long it was watched, ns.
    pub wall_ns: u64,
    /// How it ended, in words: `exit 0`.
    pub end: String,
    /// How many processes opened a device, and threads called verbs.
    pub processes: u64,
    /// See `processes`.
    pub threads: u64,
    /// How long these processes lived while they were watched, all together, ns.
    pub lived_ns: u64,
    /// CPU time of those of them where it is known, ns.
    pub cpu_ns: Option<u64>,
    /// Work requests posted.
    pub posts: u64,
    /// The devices, by name.
    pub devices: Vec<DeviceHead>,
    /// What recording cost.
    pub overhead: Overhead,
    /// Processes that did not end by `exit`: what they left is not held against them.
    pub not_exited: List<NotExited>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceHead {
    /// Its name.
    pub name: String,
    /// Declared time of one of its commands, ns, by which it was slowed down: its figures are simulated.
    pub command_cost_ns: Option<u64>,
    /// Whether it is a software RNIC of mkey's: its registrations are cheaper than a NIC's.
    pub soft: bool,
    /// Processes that opened it.
    pub processes: u64,
}

/// What recording cost the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Overhead {
    /// Calls recorded.
    pub calls: u64,
    /// What each took beyond itself, ns, on average; nothing if there was none.
    pub ns_per_call: Option<f64>,
    /// What each work request took more, ns, in the process where it took most.
    pub ns_per_post: f64,
    /// Records that found no room: where there are any, counts are too low.
    pub lost: u64,
}

/// A process that did not end by `exit` while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NotExited {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub arguments: Vec<String>,
    /// Whether it had not ended when the recording did; else it was killed, crashed, or became another program.
    pub running: bool,
}

/// The CPU time of each process, as it told itself, or as it was seen last.
pub fn cpu(recording: &Recording) -> Vec<Option<u64>> {
    let mut cpu: Vec<Option<u64>> = recording.processes.iter().map(|process| process.cpu).collect();
    for sample in &recording.samples {
        let n = (sample.process as usize).checked_sub(1);
        let Some(n) = n.filter(|n| recording.processes.get(*n).is_some_and(|p| p.cpu.is_none()))
        else {
            continue;
        };
        if let Some(known) = cpu.get_mut(n) {
            *known = Some(known.unwrap_or(0).max(sample.cpu));
        }
    }
    cpu
}

impl Head {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let recording = ground.recording;
        let job = &recording.job;
        let mut devices: BTreeMap<&str, DeviceHead> = BTreeMap::new();
        for device in &recording.devices {
            let head = devices.entry(&device.name).or_insert_with(|| DeviceHead {
                command_cost_ns: recording.job.command_cost.filter(|_| device.soft),
                name: device.name.clone(),
                ..DeviceHead::default()
            });
            head.soft |= device.soft;
            head.processes += 1;
        }
        let processes = &recording.processes;
        let sum = |of: &dyn Fn(&Process) -> u64| -> u64 {
            processes.iter().map(of).fold(0, u64::saturating_add)
        };
        let calls = sum(&|process| process.calls);
        let overhead = sum(&|process| process.calls_overhead);
        let not_exited = processes.iter().filter(|process| !process.exited);
        Self {
            command: job.command.clone(),
            by: job.by.clone(),
            host: job.host.clone(),
            cpu: job.cpu.clone(),
            processors: job.processors,
            kernel: job.kernel.clone(),
            began: job.began,
            wall_ns: job.wall,
            end: job.end.clone(),
            processes: processes.len() as u64,
            threads: recording.threads.len() as u64,
            lived_ns: ground.lived,
            cpu_ns: cpu(recording).into_iter().flatten().reduce(u64::saturating_add),
            posts: recording.threads.iter().fold(0, |sum: u64, t| sum.saturating_add(t.posts)),
            devices: devices.into_values().collect(),
            overhead: Overhead {
                calls,
                ns_per_call: (calls > 0).then(|| overhead as f64 / calls as f64),
                ns_per_post: processes.iter().map(|p| p.post_overhead).fold(0.0, f64::max),
                lost: sum(&|process| process.lost),
            },
            not_exited: List::of(not_exited.collect()).map(|process| NotExited {
                pid: process.pid,
                arguments: process.arguments.clone(),
                running: process.ended.is_none(),
            }),
        }
    }
}

/// What registration took in a process, as a share of its life.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessCost {
    /// Its number.
    pub pid: u32,
    /// Its command line.
    pub arguments: Vec<String>,
    /// How long it lived while it was watched, ns.
    pub lived_ns: u64,
    /// Its CPU time, ns, if known.
    pub cpu_ns: Option<u64>,
    /// Calls that were about registrations.
    pub calls: u64,
    /// Their time, of all threads.
    pub ns: u64,
    /// The time in which at least one thread was in one.
    pub busy_ns: u64,
    /// That as a share of its life.
    pub share: f64,
}

impl ProcessCost {
    /// Of one process, without its calls.
    pub fn new(recording: &Recording, n: usize, cpu: Option<u64>) -> Self {
        let Some(process) = recording.processes.get(n) else { return Self::default() };
        Self {
            pid: process.pid,
            arguments: process.arguments.clone(),
            lived_ns: life(recording, process),
            cpu_ns: cpu,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use mkey_trace::format::Sample;

    #[test]
    fn cpu_is_what_the_process_told_or_what_was_seen_last() {
        let mut builder = Builder::new();
        builder.process(false);
        builder.process(false);
        builder.recording.processes[1].cpu = None;
        builder.recording.processes[2].cpu = None;
        for (process, cpu) in [(1, 9), (2, 5), (2, 7), (0, 1), (9, 1)] {
            builder.recording.samples.push(Sample { process, cpu, ..Sample::default() });
        }
        assert_eq!(cpu(&builder.recording), [Some(500_000_000), Some(7), None]);
        let head = Head::of(&Ground::new(&builder.recording));
        assert_eq!(head.cpu_ns, Some(500_000_007));
    }

    #[test]
    fn overhead_is_by_call_and_by_post() {
        let mut builder = Builder::new();
        builder.process(false);
        for (process, (calls, ns, post)) in
            builder.recording.processes.iter_mut().zip([(30, 600, 12.5), (10, 600, 4.0)])
        {
            (process.calls, process.calls_overhead, process.post_overhead) = (calls, ns, post);
            process.lost = 2;
        }
        builder.recording.processes[1].ended = None;
        let head = Head::of(&Ground::new(&builder.recording));
        let expected = Overhead { calls: 40, ns_per_call: Some(30.0), ns_per_post: 12.5, lost: 4 };
        assert_eq!(head.overhead, expected);
        assert_eq!((head.processes, head.lived_ns), (2, 2_000_000_000));
        assert_eq!(
            head.not_exited.first[0],
            NotExited { pid: 1002, arguments: vec!["./server".to_owned()], running: true }
        );
        assert_eq!(head.devices.len(), 1);
    }

    #[test]
    fn an_empty_recording_has_an_empty_head() {
        let recording = Recording::default();
        assert_eq!(Head::of(&Ground::new(&recording)), Head::default());
    }
}
