//! Reading recordings.

use super::{Job, LONGEST, Line, Recording, VERSION};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::fmt;
use std::io::{self, BufRead, Read as _};

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A line of more than [`LONGEST`] bytes.
    #[error("line {line} is longer than {LONGEST} bytes")]
    Long {
        /// Its number, from 1.
        line: usize,
    },
    /// The first line is no job.
    #[error("this is no recording of mkey trace")]
    NotOne,
    /// Another version.
    #[error("its format is version {0}, this mkey reads version {VERSION}")]
    Version(u32),
    /// A second job.
    #[error("line {line}: another job begins; a file holds one")]
    Another {
        /// The line.
        line: usize,
    },
    /// An `id` that is not the next of its kind.
    #[error("line {line}: {kind} {id} comes where {kind} {next} is the next")]
    Order {
        /// The line.
        line: usize,
        /// A kind of line.
        kind: &'static str,
        /// Its `id`.
        id: u32,
        /// What it should have been.
        next: usize,
    },
    /// An `id` that is named and was not told of before.
    #[error("line {line}: there is no {kind} {id}")]
    Unknown {
        /// The line.
        line: usize,
        /// A kind of line.
        kind: &'static str,
        /// What it names.
        id: u32,
    },
}

impl Recording {
    /// Reads one; whatever it holds, what is named is there. Calls are sorted by their beginning.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(mut from: impl BufRead) -> Result<Self, Error> {
        let mut recording = Self::default();
        let (mut bytes, mut number) = (Vec::new(), 0);
        let mut begun = false;
        loop {
            bytes.clear();
            number += 1;
            // Its end, and one byte that is too many.
            let most = LONGEST as u64 + 2;
            if from.by_ref().take(most).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            if line.len() > LONGEST {
                return Err(if begun { Error::Long { line: number } } else { Error::NotOne });
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            if begun {
                let line = serde_json::from_slice(line)
                    .map_err(|error| Error::Line { line: number, error })?;
                recording.add(line, number)?;
            } else {
                recording.job = job(line, number)?;
                begun = true;
            }
        }
        if !begun {
            return Err(Error::NotOne);
        }
        recording.calls.sort_by_key(|call| call.begin);
        Ok(recording)
    }

    /// Adds a line, if what it names is there.
    fn add(&mut self, line: Line, number: usize) -> Result<(), Error> {
        let is = |kind, list: usize, id: u32| match id as usize {
            1.. if id as usize <= list => Ok(()),
            _ => Err(Error::Unknown { line: number, kind, id }),
        };
        let may = |kind, list: usize, id: u32| if id == 0 { Ok(()) } else { is(kind, list, id) };
        let optional =
            |kind, list: usize, id: Option<u32>| id.map_or(Ok(()), |id| is(kind, list, id));
        let next = |kind, list: usize, id: u32| match list.checked_add(1) {
            Some(next) if next == id as usize => Ok(()),
            next => Err(Error::Order { line: number, kind, id, next: next.unwrap_or(list) }),
        };
        let (processes, devices) = (self.processes.len(), self.devices.len());
        let (threads, stacks) = (self.threads.len(), self.stacks.len());
        let (regions, queues) = (self.regions.len(), self.queues.len());
        match line {
            Line::Job(_) => return Err(Error::Another { line: number }),
            Line::Process(process) => {
                next("process", processes, process.id)?;
                self.processes.push(process);
            }
            Line::Device(device) => {
                next("device", devices, device.id)?;
                is("process", processes, device.process)?;
                self.devices.push(device);
            }
            Line::Thread(thread) => {
                next("thread", threads, thread.id)?;
                is("process", processes, thread.process)?;
                self.threads.push(thread);
            }
            Line::Stack(stack) => {
                next("stack", stacks, stack.id)?;
                self.stacks.push(stack);
            }
            Line::Region(region) => {
                next("region", regions, region.id)?;
                is("process", processes, region.process)?;
                may("device", devices, region.device)?;
                may("stack", stacks, region.reg_stack)?;
                may("stack", stacks, region.dereg_stack)?;
                self.regions.push(region);
            }
            Line::Queue(queue) => {
                next("queue", queues, queue.id)?;
                is("process", processes, queue.process)?;
                may("device", devices, queue.device)?;
                self.queues.push(queue);
            }
            Line::Window(window) => {
                next("window", self.windows.len(), window.id)?;
                is("process", processes, window.process)?;
                may("device", devices, window.device)?;
                may("stack", stacks, window.alloc_stack)?;
                self.windows.push(window);
            }
            Line::Remote(remote) => {
                is("process", processes, remote.process)?;
                may("device", devices, remote.device)?;
                optional("region", regions, remote.region)?;
                self.remotes.push(remote);
            }
            Line::Call(call) => {
                is("process", processes, call.process)?;
                may("device", devices, call.device)?;
                may("thread", threads, call.thread)?;
                may("stack", stacks, call.stack)?;
                optional("region", regions, call.region)?;
                self.calls.push(call);
            }
            Line::Sample(sample) => {
                is("process", processes, sample.process)?;
                self.samples.push(sample);
            }
            Line::Failure(failure) => {
                is("process", processes, failure.process)?;
                may("queue", queues, failure.queue)?;
                self.failures.push(failure);
            }
            Line::Finding(finding) => {
                is("process", processes, finding.process)?;
                optional("region", regions, finding.region)?;
                optional("queue", queues, finding.queue)?;
                may("stack", stacks, finding.stack)?;
                may("stack", stacks, finding.before)?;
                self.findings.push(finding);
            }
            Line::Counter(counter) => self.counters.push(counter),
            Line::Other(_) => {}
        }
        Ok(())
    }
}

/// The first line. One of another version may have other fields than this one knows.
fn job(line: &[u8], number: usize) -> Result<Job, Error> {
    #[derive(Deserialize)]
    struct First {
        job: Versioned,
    }
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let first: First = serde_json::from_slice(line).map_err(|_| Error::NotOne)?;
    if first.job.version != VERSION {
        return Err(Error::Version(first.job.version));
    }
    match serde_json::from_slice(line) {
        Ok(Line::Job(job)) => Ok(job),
        Ok(_) => Err(Error::NotOne),
        Err(error) => Err(Error::Line { line: number, error }),
    }
}

/// By its kind, which is the name of its one field. A line of a kind that is known has to be as that
/// kind is; one of another kind is [`Line::Other`].
impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByKind;
        impl<'de> Visitor<'de> for ByKind {
            type Value = Line;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one field, the line's kind")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let Some(kind) = map.next_key::<String>()? else {
                    return Err(serde::de::Error::custom("a line without a kind"));
                };
                let line = match &*kind {
                    "job" => Line::Job(map.next_value()?),
                    "process" => Line::Process(map.next_value()?),
                    "device" => Line::Device(map.next_value()?),
                    "thread" => Line::Thread(map.next_value()?),
                    "stack" => Line::Stack(map.next_value()?),
                    "region" => Line::Region(map.next_value()?),
                    "queue" => Line::Queue(map.next_value()?),
                    "window" => Line::Window(map.next_value()?),
                    "remote" => Line::Remote(map.next_value()?),
                    "call" => Line::Call(map.next_value()?),
                    "sample" => Line::Sample(map.next_value()?),
                    "failure" => Line::Failure(map.next_value()?),
                    "finding" => Line::Finding(map.next_value()?),
                    "counter" => Line::Counter(map.next_value()?),
                    _ => {
                        let value: serde_json::Value = map.next_value()?;
                        Line::Other(serde_json::json!({ kind: value }))
                    }
                };
                // A line of a later release may have more beside it.
                while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
                Ok(line)
            }
        }
        deserializer.deserialize_map(ByKind)
    }
}
