//! Unmap, discard and move events of memory that is registered.
//!
//! A [`Watcher`] hears from the kernel (userfaultfd in write-protect mode, user-mode-only, so no
//! privilege is needed and page faults stay as fast as ever) when the program unmaps, discards
//! (`MADV_DONTNEED` and the like) or moves (`mremap`) memory it watches. The thread that does so
//! waits in its system call until the event has been read. Each event goes to every *sink*, called
//! on the watcher's one thread, which sleeps otherwise.
//!
//! # One watcher
//! The kernel lets one watcher only have a mapping. So a process has one, [`process`], and who wants
//! to hear adds a sink of its own ([`Watcher::add_sink`]). Guards are counted: a mapping is watched
//! while anybody has one. All sinks hear of all that is watched, whoever asked for it.
//!
//! # The event in hand
//! The kernel lets the unmapping thread go when the event is *read*, not when the sink has dealt
//! with it. So the watcher raises a word before it reads and clears it after the sink has returned
//! ([`InHand`]). Who accesses watched memory looks at the word first and waits while it is raised,
//! and a sink can stop accesses and let the running ones end before the read ([`Sink`]):
//! whatever a thread does after its `munmap` returned, no access slips in between. A reading begins
//! for all sinks before an event is read, and ends for all after each has heard of every event.
//!
//! # What a sink must not do
//! Allocate, free, map, unmap, panic, or wait for a lock under which others do: those calls may
//! unmap watched memory, and would wait for the very thread they run on, for ever.
//!
//! # What is watched
//! Whole mappings, because a part would split the mapping in two and mappings are limited
//! (`vm.max_map_count`). So events also come for neighbours of what was asked for. A mapping stays
//! watched for some time after its last [`WatchGuard`], as registrations come and go: watching
//! again costs little then.
//!
//! # What is not seen
//! Memory that userfaultfd does not take (private mappings of files, mappings of devices):
//! [`WatchError::Kind`]. Swapping out, migration and copy-on-write. Children: events are not inherited
//! over `fork`: in a child the parent's watcher refuses to watch, and guards dropped there do nothing.
//! A child whose parent had started none has one of its own.

mod sinks;
mod uffd;

pub use sinks::Sink;

use crate::error::{Errno, OsError};
use crate::fork::Birthplace;
use crate::gone::Gone;
use crate::proc::Maps;
use crate::spans::{Ids, Probe, SpanId, Spans};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sinks::Sinks;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// What the program did to watched memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Where, in whole pages.
    pub range: Range<usize>,
    /// When the event was read.
    pub when: Instant,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// `munmap`, or a new mapping over the old one.
    Unmapped,
    /// The contents were given up (`MADV_DONTNEED`, `MADV_REMOVE`, a hole punched); the event
    /// comes just before it happens.
    Discarded,
    /// `mremap` to another address.
    Moved {
        /// The first address there.
        to: usize,
    },
}

/// Events are not to be had in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no unmap events: {source}")]
pub struct Unavailable {
    /// The call that was refused.
    #[source]
    pub source: OsError,
}

impl Unavailable {
    /// The command that would allow it, in words.
    pub fn mend(&self) -> &'static str {
        match self.source.errno {
            Errno::PERM | Errno::ACCESS | Errno::NOSYS if self.source.call == "clone" => {
                "container: docker run --security-opt seccomp=unconfined (or a profile that allows \
                 clone and clone3)"
            }
            Errno::PERM | Errno::ACCESS => {
                "sudo sysctl vm.unprivileged_userfaultfd=1   # before Linux 5.11; container: \
                 docker run --security-opt seccomp=unconfined (or a profile that allows \
                 userfaultfd, or --device /dev/userfaultfd)"
            }
            Errno::NOSYS | Errno::INVAL => {
                "use a kernel with CONFIG_USERFAULTFD and write-protect mode (5.7 or later)"
            }
            Errno::MFILE => "ulimit -n 1024",
            Errno::NOENT if self.source.call.starts_with("/proc") => {
                "sudo mount -t proc proc /proc   # container: let it have /proc"
            }
            Errno::AGAIN => "ulimit -u unlimited   # container: a higher --pids-limit",
            Errno::NOMEM => "free memory, or raise memory.max of the control group",
            _ => "let the process make the call that is named above; no command is known for it",
        }
    }

    /// What is then not guaranteed, in words.
    pub fn not_guaranteed(&self) -> &'static str {
        "stale registrations are not detected here: after munmap and mmap at the same address an \
         access reaches the new memory; on-demand paging does not notice discarded pages"
    }
}

/// A range cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// Some of the range is not mapped.
    #[error("nothing is mapped at {addr:#x}")]
    Unmapped {
        /// The first such address.
        addr: usize,
    },
    /// The kind of memory does not report events.
    #[error(
        "the mapping {:#x}..{:#x} {} reports no events ({errno})",
        .range.start, .range.end, if *.file { "of a file" } else { "" }
    )]
    Kind {
        /// The mapping.
        range: Range<usize>,
        /// Whether a file backs it.
        file: bool,
        /// What the kernel answered; `EBUSY` if somebody else watches it.
        errno: Errno,
    },
    /// The watcher was made by the parent process.
    #[error("the watcher was made before fork, by the parent process")]
    Forked,
    /// The kernel does not tell about mappings.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// The word that is raised while an event has been taken from the kernel and not yet been dealt
/// with.
#[derive(Clone, Debug)]
pub struct InHand(Arc<AtomicU64>);

impl InHand {
    /// Whether an event is in hand: one load.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) & 1 == 1
    }

    /// Waits until the event in hand, if any, has been dealt with. Not to be called by a sink.
    #[inline]
    pub fn wait(&self) {
        if self.is_raised() {
            self.wait_long();
        }
    }

    /// How many times events have been read and dealt with.
    pub fn reads(&self) -> u64 {
        self.0.load(Ordering::Acquire) / 2
    }

    #[cold]
    fn wait_long(&self) {
        let mine = self.0.load(Ordering::Acquire);
        let mut spins = 0u32;
        // Later events are for those who come later.
        while mine & 1 == 1 && self.0.load(Ordering::Acquire) == mine {
            spins = spins.saturating_add(1);
            if spins < 200 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// The watcher of the process, started by the first that asks.
///
/// # Errors
/// [`Unavailable`] with what that means and the command that would allow it.
pub fn process() -> Result<&'static Watcher, &'static Unavailable> {
    static PROCESS: OnceLock<Result<Watcher, Unavailable>> = OnceLock::new();
    PROCESS.get_or_init(Watcher::new).as_ref()
}

/// Hears what happens to watched memory, and tells its sinks. Dropping it ends the thread and the
/// events.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<Inner>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// Keeps the mappings of a range watched.
#[derive(Debug)]
pub struct WatchGuard {
    inner: Arc<Inner>,
    mappings: Ids,
}

#[derive(Debug)]
struct Inner {
    birthplace: Birthplace,
    in_hand: InHand,
    /// Unmapped and moved away, to be taken off the mappings.
    gone: Gone,
    sinks: Sinks,
    state: Mutex<State>,
}

/// Not locked by the event thread: who holds it may be inside an allocator that unmaps.
#[derive(Debug)]
struct State {
    /// The userfaultfd while the watcher lives.
    fd: Option<i32>,
    maps: Maps,
    mappings: Spans<()>,
    /// Mappings kept watched for the next registration, oldest first; each counts as a user.
    kept: VecDeque<SpanId>,
}

/// Mappings that stay watched without a guard.
const KEPT: usize = 256;

impl Watcher {
    /// Starts a watcher apart from that of the process ([`process`]), which can not have the
    /// mappings that this one watches.
    ///
    /// # Errors
    /// [`Unavailable`] with what that means and the command that would allow it.
    pub fn new() -> Result<Self, Unavailable> {
        let unavailable = |source| Unavailable { source };
        let fd = uffd::open().map_err(unavailable)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| unavailable(OsError::new("eventfd", errno)))?;
        let stop_there =
            stop.try_clone().map_err(|error| unavailable(OsError::from_io("dup", &error)))?;
        let inner = Arc::new(Inner {
            birthplace: Birthplace::here(),
            in_hand: InHand(Arc::new(AtomicU64::new(0))),
            gone: Gone::default(),
            sinks: Sinks::default(),
            state: Mutex::new(State {
                fd: Some(fd.as_raw_fd()),
                maps: Maps::open().map_err(unavailable)?,
                mappings: Spans::new(),
                kept: VecDeque::new(),
            }),
        });
        let for_thread = Arc::clone(&inner);
        let thread =
            crate::quiet_thread::spawn("mkey-events", move || listen(&for_thread, fd, &stop_there))
                .map_err(|error| unavailable(OsError::from_io("clone", &error)))?;
        Ok(Self { inner, stop, thread: Some(thread) })
    }

    /// Whether this process made it, not the one that it was forked from: else it hears nothing.
    pub fn is_here(&self) -> bool {
        self.inner.birthplace.is_here()
    }

    /// Tells `sink`, too, of every event that is read after this call has returned: it waits for the
    /// event in hand. So not to be called by a sink. There is no way to take a sink away again. In
    /// a forked child, where nothing is heard ([`Watcher::is_here`]), nothing is done.
    pub fn add_sink(&self, sink: &'static dyn Sink) {
        if self.is_here() {
            self.inner.sinks.add(sink);
            self.inner.in_hand.wait();
        }
    }

    /// The word that accesses to watched memory look at.
    pub fn in_hand(&self) -> InHand {
        self.inner.in_hand.clone()
    }

    /// Waits until the sinks have been told of every change that has begun: of a mapping that has
    /// gone already although the thread that unmapped it waits still for its event to be read. Who
    /// has just mapped something may have got its place. Not to be called by a sink.
    pub fn wait_for_changes(&self) {
        if !self.is_here() {
            return;
        }
        let fd = self.inner.lock().fd;
        while fd.is_some_and(uffd::change_under_way) {
            std::thread::yield_now();
        }
        self.inner.in_hand.wait();
    }

    /// Watches the whole mappings that a range touches. An empty range watches nothing. Costs one
    /// system call at least: another mapping may have been at the place until a moment ago, and
    /// the thread that unmapped it may wait still for its event to be read. That event must not
    /// be taken for one about this mapping, so this call waits for it.
    ///
    /// # Errors
    /// [`WatchError`]; nothing is watched for this call then.
    pub fn watch(&self, range: Range<usize>) -> Result<WatchGuard, WatchError> {
        if !self.inner.birthplace.is_here() {
            return Err(WatchError::Forked);
        }
        if !range.is_empty() {
            self.wait_for_changes();
        }
        let mut state = self.inner.lock();
        let mappings = match state.watched(&range) {
            Some(id) => Ids::One(id),
            None => state.watch_each(&range)?.into(),
        };
        drop(state);
        Ok(WatchGuard { inner: Arc::clone(&self.inner), mappings })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(gone) = self.gone.take() {
            for range in gone.iter() {
                state.mappings.detach(&range);
            }
        }
        state
    }
}

impl State {
    /// Counts on the mapping that covers all of the range, if it is watched.
    fn watched(&mut self, range: &Range<usize>) -> Option<SpanId> {
        let Probe::Covered(id) = self.mappings.probe(range) else { return None };
        self.mappings.get_mut(id)?.users += 1;
        Some(id)
    }

    /// Counts on all mappings the range touches, watching those that are not; on none after an
    /// error.
    fn watch_each(&mut self, range: &Range<usize>) -> Result<Vec<SpanId>, WatchError> {
        let mut ids = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match self.watch_one(at) {
                Ok((id, end)) => {
                    ids.push(id);
                    at = end;
                }
                Err(error) => {
                    ids.into_iter().for_each(|id| self.release(id));
                    return Err(error);
                }
            }
        }
        Ok(ids)
    }

    /// Counts on the mapping that covers `at`; returns it and where it ends.
    fn watch_one(&mut self, at: usize) -> Result<(SpanId, usize), WatchError> {
        if let Some(id) = self.watched(&(at..at.saturating_add(1)))
            && let Some(mapping) = self.mappings.get(id)
        {
            return Ok((id, mapping.range.end));
        }
        let vma = self.maps.vma_at(at)?.ok_or(WatchError::Unmapped { addr: at })?;
        let fd = self.fd.ok_or(OsError::new("userfaultfd", Errno::BADF))?;
        uffd::register(fd, &vma.range).map_err(|error| WatchError::Kind {
            range: vma.range.clone(),
            file: vma.inode != 0,
            errno: error.errno,
        })?;
        // The mapping has grown or merged since parts of it were noted.
        self.mappings.detach(&vma.range);
        let end = vma.range.end;
        let id = self.mappings.insert(vma.range, Some(()));
        if let Some(mapping) = self.mappings.get_mut(id) {
            mapping.users += 1;
        }
        self.kept.push_back(id);
        if self.kept.len() > KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.release(oldest);
        }
        Ok((id, end))
    }

    fn release(&mut self, id: SpanId) {
        if let Some(mapping) = self.mappings.release(id)
            && mapping.gone.is_none()
            // Guards from before part of the mapping went, or before it grew, count on the rest.
            && !self.mappings.any_gone_in(&mapping.range)
            && let Some(fd) = self.fd
        {
            uffd::unregister(fd, &mapping.range);
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mappings = self.mappings.as_slice();
        if mappings.is_empty() || !self.inner.birthplace.is_here() {
            return;
        }
        let mut state = self.inner.lock();
        for &id in mappings {
            state.release(id);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if !self.inner.birthplace.is_here() {
            // The thread is the parent's.
            if let Some(thread) = self.thread.take() {
                std::mem::forget(thread);
            }
            return;
        }
        // From here on no guard uses the descriptor, which the thread is about to close.
        self.inner.lock().fd = None;
        // A full counter would wake the thread as well.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A sink that panicked has ended the thread already.
            let _ = thread.join();
        }
    }
}

/// The event thread. Allocates nothing while it listens.
fn listen(inner: &Inner, fd: OwnedFd, stop: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
        let [events, ended] = fds.map(|fd| !fd.revents().is_empty());
        if events {
            let _raised = Raised::new(&inner.in_hand.0);
            let reading = inner.sinks.begin();
            uffd::read_events(fd.as_raw_fd(), |event| {
                if event.kind != EventKind::Discarded {
                    inner.gone.leave(&event.range);
                }
                reading.event(event);
            });
        }
        if ended {
            break;
        }
    }
    // Closing ends the watch on all mappings and lets waiting threads go: before anything here
    // is freed, as freeing may unmap.
    drop(fd);
}

/// Keeps the word raised; lowers it also when the sink panics, so that nobody waits for ever.
struct Raised<'a>(&'a AtomicU64);

impl<'a> Raised<'a> {
    fn new(word: &'a AtomicU64) -> Self {
        word.fetch_add(1, Ordering::SeqCst);
        Self(word)
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_mend() {
        let mend = |call, errno| Unavailable { source: OsError { call, errno } }.mend();
        assert!(mend("userfaultfd", Errno::PERM).contains("unprivileged_userfaultfd"));
        assert!(mend("clone", Errno::PERM).contains("allows clone"));
        assert!(mend("clone", Errno::AGAIN).contains("ulimit -u"));
        assert!(mend("/proc/self/maps", Errno::NOENT).contains("mount -t proc"));
        assert!(mend("eventfd", Errno::MFILE).contains("ulimit -n"));
    }
}
