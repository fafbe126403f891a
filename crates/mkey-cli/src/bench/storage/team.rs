//! The jobs of one strategy: threads that live as long as the measurement, so that what they keep
//! for themselves (magazines, histograms) is warm, and run when they are told to.

use super::args::{Name, Pattern};
use super::disk::Disk;
use super::job::{Done, Job, Until};
use super::strategy::Shape;
use crate::bench::error::{Result, RowError};
use crate::bench::measure;
use crate::bench::stop::Stop;
use hdrhistogram::Histogram;
use mkey::{Device, PageKind, Pd};
use mkey_os::system_calls::{self, Counts};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

/// What all jobs share.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'env> {
    /// The device.
    pub device: &'env Device,
    /// One disk a job, in the protection domain of its target.
    pub disks: &'env [(Pd, Mutex<Disk>)],
    /// The I/O.
    pub shape: Shape,
    /// What it does.
    pub pattern: Pattern,
    /// Asked at safe points.
    pub stop: &'env Stop,
}

/// What all jobs of a strategy did in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    /// I/Os a second, all jobs together.
    pub iops: f64,
    /// Time of a job's thread for one I/O, nanoseconds.
    pub ns_per_io: f64,
    /// CPU time of the process for one I/O, nanoseconds.
    pub cpu_ns_per_io: f64,
    /// I/Os, with those at the end of the round.
    pub all: u64,
    /// I/Os checked to the last word.
    pub whole: u64,
    /// Memory regions registered meanwhile.
    pub registrations: u64,
    /// Heap allocations of the jobs' threads.
    pub allocations: u64,
}

/// The jobs of one strategy.
#[derive(Debug)]
pub struct Team<'scope> {
    workers: Vec<Worker<'scope>>,
    device: Device,
    /// What one I/O needs besides its data, in words.
    pub how: String,
    /// The pages that registered memory lies on.
    pub pages: PageKind,
}

#[derive(Debug)]
struct Worker<'scope> {
    commands: Sender<Command>,
    replies: Receiver<Result<Reply>>,
    thread: ScopedJoinHandle<'scope, Option<Histogram<u64>>>,
}

#[derive(Debug)]
struct Command {
    time: Duration,
    /// Whether its times count.
    counts: bool,
}

#[derive(Debug)]
enum Reply {
    Ready(String, PageKind),
    Done(Done),
}

impl<'scope> Team<'scope> {
    /// Starts a strategy's jobs, one for each disk, and waits until they are set up.
    ///
    /// # Errors
    /// As one of them could not be set up.
    pub fn start<'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        ground: Ground<'env>,
        name: Name,
    ) -> Result<Self> {
        let mut workers = Vec::with_capacity(ground.disks.len());
        for (pd, disk) in ground.disks {
            let (commands, orders) = channel();
            let (answer, replies) = channel();
            let thread = Builder::new()
                .name(name.id().to_owned())
                .spawn_scoped(scope, move || work(ground, pd, disk, name, &orders, &answer))
                .map_err(|error| RowError::Thread(error.to_string()))?;
            workers.push(Worker { commands, replies, thread });
        }
        let (mut how, mut pages) = (String::new(), PageKind::Base);
        for worker in &workers {
            if let Reply::Ready(in_words, kind) = worker.reply()? {
                (how, pages) = (in_words, kind);
            }
        }
        Ok(Self { workers, device: ground.device.clone(), how, pages })
    }

    /// Has all jobs do I/O for a while.
    ///
    /// # Errors
    /// As an I/O fails; `Stopped`.
    pub fn run(&self, time: Duration, counts: bool) -> Result<Round> {
        let registered = self.device.stats().registrations;
        let cpu = measure::cpu_time();
        for worker in &self.workers {
            // One that has gone is found out by its missing answer.
            let _ = worker.commands.send(Command { time, counts });
        }
        let done = self.workers.iter().map(Worker::done).collect::<Vec<_>>();
        let cpu = measure::cpu_time().saturating_sub(cpu);
        let done = done.into_iter().collect::<Result<Vec<_>>>()?;
        let registrations = self.device.stats().registrations.saturating_sub(registered);
        Ok(together(&done, cpu, registrations))
    }

    /// Ends the jobs; the times of all their I/Os.
    pub fn finish(self) -> Option<Histogram<u64>> {
        let mut all: Option<Histogram<u64>> = None;
        for Worker { commands, thread, .. } in self.workers {
            drop(commands);
            let times = thread.join().ok().flatten()?;
            match &mut all {
                None => all = Some(times),
                Some(all) => all.add(times).ok()?,
            }
        }
        all
    }
}

impl Worker<'_> {
    fn reply(&self) -> Result<Reply> {
        let gone = |_| RowError::Thread("it ended before its time".to_owned());
        self.replies.recv().map_err(gone)?
    }

    fn done(&self) -> Result<Done> {
        match self.reply()? {
            Reply::Done(done) => Ok(done),
            Reply::Ready(..) => Ok(Done::default()),
        }
    }
}

/// A job's thread.
fn work(
    ground: Ground<'_>,
    pd: &Pd,
    disk: &Mutex<Disk>,
    name: Name,
    orders: &Receiver<Command>,
    answer: &Sender<Result<Reply>>,
) -> Option<Histogram<u64>> {
    let (mut times, mut unused) = (times()?, times()?);
    let mut job = match Job::new(ground.device, pd, name, ground.shape, ground.pattern) {
        Ok(job) => job,
        Err(error) => {
            // Who has stopped listening has stopped the run.
            let _ = answer.send(Err(error));
            return None;
        }
    };
    let (how, pages) = job.about();
    let _ = answer.send(Ok(Reply::Ready(how, pages)));
    for Command { time, counts } in orders {
        let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
        let into = if counts { &mut times } else { &mut unused };
        let done = job.run(&mut disk, Until::Time(time), into, ground.stop);
        let failed = done.is_err();
        let _ = answer.send(done.map(Reply::Done));
        if failed {
            // I/Os are in flight that nobody will wait for: no further round.
            return None;
        }
    }
    Some(times)
}

/// Times of I/Os, up to a minute, without a need to grow.
fn times() -> Option<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).ok()
}

fn together(done: &[Done], cpu: Duration, registrations: u64) -> Round {
    let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
    let (ios, all) = (sum(|done| done.ios), sum(|done| done.all));
    let time: Duration = done.iter().map(|done| done.time).sum();
    let per = |time: Duration, ios: u64| time.as_secs_f64() * 1e9 / (ios.max(1) as f64);
    let rate = |done: &Done| done.ios as f64 / done.time.as_secs_f64().max(1e-9);
    Round {
        iops: done.iter().map(rate).sum(),
        ns_per_io: per(time, ios),
        cpu_ns_per_io: per(cpu, all),
        all,
        whole: sum(|done| done.whole),
        registrations,
        allocations: sum(|done| done.allocations),
    }
}

/// What a job of its own does in a number of I/Os, system calls included.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// I/Os.
    pub ios: u64,
    /// System calls of the job's thread meanwhile.
    pub calls: Counts,
}

/// Counts the system calls of I/Os, apart from all timing: a job of its own is set up, warmed up
/// and then watched.
///
/// # Errors
/// As an I/O fails; `Os` where the kernel does not let system calls be counted.
pub fn count(ground: Ground<'_>, name: Name) -> Result<Counted> {
    let Some((pd, disk)) = ground.disks.first() else {
        return Err(RowError::Protocol("no disk"));
    };
    let ios = (ground.shape.depth as u64).saturating_mul(4).max(256);
    let (counted, calls) = system_calls::count(|counting| {
        let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut job = Job::new(ground.device, pd, name, ground.shape, ground.pattern)?;
        let mut unused = times().ok_or(RowError::Protocol("no histogram"))?;
        job.run(&mut disk, Until::Count(ios), &mut unused, ground.stop)?;
        counting.start();
        let done = job.run(&mut disk, Until::Count(ios), &mut unused, ground.stop);
        counting.stop();
        done
    })?;
    Ok(Counted { ios: counted?.all, calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_add_up_and_times_are_those_of_a_thread() {
        let done = |ios| Done {
            ios,
            all: ios + 10,
            time: Duration::from_secs(1),
            whole: 1,
            allocations: 3,
        };
        let round = together(&[done(1000), done(3000)], Duration::from_millis(1), 7);
        assert_eq!(round.iops, 4000.0);
        assert_eq!(round.ns_per_io, 2e9 / 4000.0);
        assert!((round.cpu_ns_per_io - 1e6 / 4020.0).abs() < 1e-6, "{round:?}");
        assert_eq!((round.all, round.whole), (4020, 2));
        assert_eq!((round.registrations, round.allocations), (7, 6));
        assert_eq!(together(&[], Duration::ZERO, 0).iops, 0.0);
    }
}
