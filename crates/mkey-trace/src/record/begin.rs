//! How the recorder begins and ends, in a process and in its forked children.

use super::{
    CURRENT, Called, Entry, FOLDER, LIMIT, QueueInit, Recorder, Work, clock, finding, lock, log,
    maps, memory, now, queue, received, regions, remotes, stack, table, thread, windows,
};
use crate::raw::{Header, Mr, Op, Verb};
use rustix::fs::{CWD, Mode, OFlags, open, readlinkat_raw};
use rustix::io::{Errno, read};
use rustix::time::ClockId;
use std::ffi::{CStr, OsStr};
use std::mem::offset_of;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Bytes that a file may have, if the environment does not say.
const USUAL: u64 = 256 << 20;
/// Rounds of measuring what following one work request takes, and requests of each.
const ROUNDS: u32 = 8;
const REQUESTS: u32 = 32;

/// Whether it was begun, or tried.
static TRIED: AtomicBool = AtomicBool::new(false);
static BEGINNING: lock::Spin<()> = lock::Spin::new(());

impl Recorder {
    /// The recorder, which begins now if it has not. `None`: nothing is to be recorded, or could be.
    /// Cheap once it has begun.
    pub fn begin() -> Option<&'static Self> {
        if !TRIED.load(Acquire) {
            let _beginning = BEGINNING.lock();
            if !TRIED.load(Acquire) {
                if let Some(folder) = std::env::var_os(FOLDER) {
                    let limit = limit(std::env::var_os(LIMIT).as_deref());
                    if let Ok(recorder) = Self::create(Path::new(&folder), limit) {
                        CURRENT.store(std::ptr::from_ref(recorder).cast_mut(), Release);
                    }
                }
                TRIED.store(true, Release);
            }
        }
        Self::current()
    }

    /// The process ends by `exit`.
    pub fn end(&self) {
        let Some(_inside) = thread::Inside::enter() else { return };
        self.looks.again(&self.log);
        let header = self.log.header();
        header.word::<{ offset_of!(Header, cpu) }>().store(clock(ClockId::ProcessCPUTime), Relaxed);
        header.word::<{ offset_of!(Header, ended) }>().store(now(), Release);
    }

    /// The calling thread is about to fork: until [`Recorder::has_forked`], or in the child
    /// [`Recorder::forked`], what it gives back is not the program's doing.
    pub fn forks() {
        thread::forks();
    }

    /// The calling thread has forked, or failed to.
    pub fn has_forked() {
        thread::has_forked();
    }

    /// In a forked child, at once: it has recorded nothing.
    pub fn forked() {
        let before = CURRENT.swap(null_mut(), Relaxed);
        TRIED.store(false, Relaxed);
        thread::forked();
        // SAFETY: a forked child has one thread, which comes straight from `fork`, and so is amid nothing
        // of the recorder's; what other threads of the parent were amid is set anew here, or never reached
        // again: all of it but this belongs to the recorder that is no longer the current one.
        unsafe {
            BEGINNING.break_open();
            memory::forked();
            if let Some(before) = before.as_ref() {
                before.log.forked();
            }
        }
    }

    /// A recorder with its own file.
    ///
    /// # Errors
    /// As of [`log::Log::create`]; `NOMEM`.
    pub(super) fn create(folder: &Path, limit: u64) -> Result<&'static Self, Errno> {
        let log = log::Log::create(folder, limit)?;
        log.begin(header);
        let recorder: &'static Self = memory::keep(Self {
            log,
            stacks: stack::Stacks::new(),
            regions: regions::Regions::new().ok_or(Errno::NOMEM)?,
            windows: windows::Windows::new(),
            queues: queue::Queues::new(),
            findings: finding::Findings::new(),
            received: received::Received::new(),
            remotes: table::Table::new(remotes::MOST),
            making_remote: lock::Spin::new(()),
            looks: maps::Looks::new(),
            no_thread: log::Placed::nowhere().ok_or(Errno::NOMEM)?,
            entering: AtomicU64::new(0),
            searched: AtomicU64::new(0),
        })
        .ok_or(Errno::NOMEM)?;
        recorder.measure();
        Ok(recorder)
    }

    /// Measures what recording takes, on a queue and a region that are then taken away.
    fn measure(&'static self) {
        let least = (0..ROUNDS).map(|_| {
            let begin = now();
            (0..8).for_each(|_| _ = std::hint::black_box(self.enter()));
            now().saturating_sub(begin) / 8
        });
        self.entering.store(least.min().unwrap_or(0), Relaxed);
        let init = QueueInit {
            device: u32::MAX,
            pd: 0,
            object: 0,
            number: 1,
            kind: 0,
            sends: REQUESTS,
            recvs: 0,
            send_entries: 1,
            recv_entries: 0,
        };
        let call = Called {
            verb: Verb::NullMr,
            errno: 0,
            device: u32::MAX,
            object: 1,
            parent: 0,
            addr: 0,
            len: 4096,
            iova: 0,
            access: 0,
            lkey: 0,
            rkey: 0,
            detail: 0,
        };
        let mr = self.registered(&call, 0, None);
        let (Some(queue), Some(mr)) = (self.queue(&init), self.log.placed::<Mr>(mr)) else {
            return;
        };
        let entries = [Entry { addr: 0, len: 1, lkey: 0 }];
        let work = |id| Work {
            id,
            op: Op::Write,
            signaled: true,
            inlined: false,
            invalidates: false,
            entries: &entries,
            remote: None,
        };
        let least = (0..ROUNDS).map(|_| {
            let begin = now();
            for id in 0..REQUESTS.into() {
                queue.post(self, std::hint::black_box(&work(id)));
            }
            for id in 0..REQUESTS.into() {
                queue.completed(self, std::hint::black_box(id), false, 0, 0);
            }
            now().saturating_sub(begin) * 1000 / u64::from(REQUESTS)
        });
        let least = least.min().unwrap_or(0);
        self.log.header().word::<{ offset_of!(Header, post_overhead) }>().store(least, Relaxed);
        let posted = u64::from(ROUNDS * REQUESTS);
        thread::bump(thread::posts(thread::here(self)), posted.wrapping_neg());
        queue.record().withdraw();
        queue.end(self);
        self.regions.forget(&call, mr);
        mr.withdraw();
    }
}

fn limit(text: Option<&OsStr>) -> u64 {
    text.and_then(OsStr::to_str).and_then(|text| text.parse().ok()).unwrap_or(USUAL)
}

fn header(header: &mut Header) {
    header.pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    header.parent =
        rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    header.began = now();
    header.began_real = clock(ClockId::Realtime);
    // One byte less than there is: a zero ends each.
    if let Some(room) = header.program.get_mut(..511) {
        let _ = readlinkat_raw(CWD, c"/proc/self/exe", room);
    }
    if let Some(room) = header.arguments.get_mut(..2047) {
        fill(c"/proc/self/cmdline", room);
    }
}

/// Reads a file as far as there is room.
fn fill(path: &CStr, mut room: &mut [u8]) {
    let Ok(file) = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
    while !room.is_empty() {
        match read(&file, &mut *room) {
            Ok(0) | Err(_) => return,
            Ok(got) => room = room.get_mut(got..).unwrap_or_default(),
        }
    }
}
