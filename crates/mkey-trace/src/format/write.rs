//! Writing recordings.

use super::{Line, Recording};
use serde::Serialize;
use std::io::{self, Write};

impl Recording {
    /// Writes it: kinds in the order of [`Line`], so that what is named comes first.
    ///
    /// # Errors
    /// As of `to`.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        /// A line by reference, as [`Line`] has it.
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case")]
        enum Borrowed<'a> {
            Job(&'a super::Job),
            Process(&'a super::Process),
            Device(&'a super::Device),
            Thread(&'a super::Thread),
            Stack(&'a super::Stack),
            Region(&'a super::Region),
            Queue(&'a super::Queue),
            Window(&'a super::Window),
            Remote(&'a super::Remote),
            Call(&'a super::Call),
            Sample(&'a super::Sample),
            Failure(&'a super::Failure),
            Finding(&'a super::Finding),
            Counter(&'a super::Counter),
        }
        let mut put = |line: Borrowed<'_>| -> io::Result<()> {
            serde_json::to_writer(&mut to, &line)?;
            to.write_all(b"\n")
        };
        put(Borrowed::Job(&self.job))?;
        self.processes.iter().try_for_each(|one| put(Borrowed::Process(one)))?;
        self.devices.iter().try_for_each(|one| put(Borrowed::Device(one)))?;
        self.threads.iter().try_for_each(|one| put(Borrowed::Thread(one)))?;
        self.stacks.iter().try_for_each(|one| put(Borrowed::Stack(one)))?;
        self.regions.iter().try_for_each(|one| put(Borrowed::Region(one)))?;
        self.queues.iter().try_for_each(|one| put(Borrowed::Queue(one)))?;
        self.windows.iter().try_for_each(|one| put(Borrowed::Window(one)))?;
        self.remotes.iter().try_for_each(|one| put(Borrowed::Remote(one)))?;
        self.calls.iter().try_for_each(|one| put(Borrowed::Call(one)))?;
        self.samples.iter().try_for_each(|one| put(Borrowed::Sample(one)))?;
        self.failures.iter().try_for_each(|one| put(Borrowed::Failure(one)))?;
        self.findings.iter().try_for_each(|one| put(Borrowed::Finding(one)))?;
        self.counters.iter().try_for_each(|one| put(Borrowed::Counter(one)))?;
        to.flush()
    }
}

impl Line {
    /// Its kind, as the format names it; `None` of something of a later release.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Job(_) => "job",
            Self::Process(_) => "process",
            Self::Device(_) => "device",
            Self::Thread(_) => "thread",
            Self::Stack(_) => "stack",
            Self::Region(_) => "region",
            Self::Queue(_) => "queue",
            Self::Window(_) => "window",
            Self::Remote(_) => "remote",
            Self::Call(_) => "call",
            Self::Sample(_) => "sample",
            Self::Failure(_) => "failure",
            Self::Finding(_) => "finding",
            Self::Counter(_) => "counter",
            Self::Other(_) => return None,
        })
    }
}
