//! The one thread that works for all devices of the process while the program does not: it fires
//! timers, and takes in packets that come when nobody posts or polls. It sleeps when there is nothing
//! to do, and takes no signals.
//!
//! A program that polls without end needs no such help, and would be slowed down by it: then the
//! thread only looks now and then whether the program still does ([`Attention`]).

mod attention;

use crate::core::{Core, generation};
use crate::per_process::PerProcess;
use crate::sync::lock;
use attention::{Attention, TICK};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// What is due at once is not looked at more often than this: the program's own posts and polls come
/// first.
const PATIENCE: Duration = Duration::from_micros(50);
/// What could not be done for want of something that others have is tried again after this time.
const AGAIN: Duration = Duration::from_millis(20);
/// Rounds of packets before timers have their turn.
const ROUNDS: usize = 64;
/// The thread is awake and looks at all deadlines before it sleeps.
const AWAKE: u64 = 0;
const NEVER: u64 = u64::MAX;
/// The token of the descriptors that only wake, and of those of which nothing is to be read.
const WAKE: u64 = 0;
const BELL: u64 = u64::MAX;

/// Something with a descriptor that the thread waits on.
pub(crate) trait Source: Send + Sync {
    /// The descriptor is ready. Called on the thread.
    fn attend(&self);
}

/// The thread, as others see it.
pub(crate) struct Driver {
    epoll: OwnedFd,
    wake: OwnedFd,
    alarm: OwnedFd,
    origin: Instant,
    /// When it wakes by itself, in nanoseconds since the origin.
    wakes: AtomicU64,
    cores: Mutex<Vec<Weak<Core>>>,
    sources: Mutex<Sources>,
    attention: Attention,
    thread: OnceLock<ThreadId>,
    born: u32,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("attention", &self.attention).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Sources {
    last: u64,
    by_token: HashMap<u64, Weak<dyn Source>>,
    /// Those that are put off, and until when.
    put_off: Vec<(Instant, u64)>,
}

/// Names a descriptor that is waited on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token(u64);

impl Driver {
    /// The driver of this process, which starts with the first call; `None` if there can be none.
    pub(crate) fn get() -> Option<&'static Driver> {
        static DRIVER: PerProcess<&'static Driver> = PerProcess::new();
        // In a forked child there is no thread, and what it waits on is the parent's.
        DRIVER.get_or_make(Self::start_now_and_then).copied()
    }

    /// Each packet may set a timer: where the system refuses a thread, it is not asked for one each time.
    fn start_now_and_then() -> Option<&'static Driver> {
        /// The second in which it was tried last, and by which process.
        static TRIED: AtomicU64 = AtomicU64::new(0);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec as u64 + 1;
        let own = now.wrapping_mul(1 << 20) ^ u64::from(generation());
        match TRIED.swap(own, Ordering::Relaxed) == own {
            true => None,
            false => Self::start(),
        }
    }

    fn start() -> Option<&'static Driver> {
        Self::start_with(|run| mkey_os::quiet_thread::spawn("mkey-soft engine", run).is_ok())
    }

    /// Kept for the process only once its thread is there: without one, the next call starts anew, and
    /// what this one has opened is closed.
    fn start_with(spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> bool) -> Option<&'static Driver> {
        let new = Box::new(Self::new().ok()?);
        let (tell, told) = std::sync::mpsc::channel::<&'static Driver>();
        let run = move || {
            if let Ok(driver) = told.recv() {
                driver.run();
            }
        };
        if !spawn(Box::new(run)) {
            return None;
        }
        let new: &'static Driver = Box::leak(new);
        tell.send(new).ok()?;
        Some(new)
    }

    /// A driver for a test, which nothing drives.
    #[cfg(test)]
    pub(crate) fn without_thread() -> &'static Self {
        Box::leak(Box::new(Self::new().expect("descriptors")))
    }

    /// How many descriptors are waited on.
    #[cfg(test)]
    pub(crate) fn watched(&self) -> usize {
        lock(&self.sources).by_token.len()
    }

    fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let alarm = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            epoll,
            wake,
            alarm,
            origin: Instant::now(),
            wakes: AtomicU64::new(AWAKE),
            cores: Mutex::default(),
            sources: Mutex::default(),
            attention: Attention::default(),
            thread: OnceLock::new(),
            born: generation(),
        })
    }

    /// Works for a device from now on.
    pub(crate) fn join(&self, core: &Arc<Core>) {
        let mut cores = lock(&self.cores);
        cores.retain(|known| known.strong_count() > 0);
        if !cores.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(core))) {
            cores.push(Arc::downgrade(core));
        }
    }

    /// Waits on a descriptor until it is [let go of](Driver::forget).
    pub(crate) fn watch(&self, fd: impl AsFd, source: Weak<dyn Source>) -> io::Result<Token> {
        let mut sources = lock(&self.sources);
        sources.last += 1;
        let token = sources.last;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?;
        sources.by_token.insert(token, source);
        Ok(Token(token))
    }

    /// Is woken by each count that is added to an event descriptor, until [`Driver::wake_no_more_by`].
    pub(crate) fn wake_by(&self, bell: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(
            &self.epoll,
            bell,
            EventData::new_u64(BELL),
            EventFlags::IN | EventFlags::ET,
        )?)
    }

    pub(crate) fn wake_no_more_by(&self, bell: &OwnedFd) {
        if self.born == generation() {
            let _ = epoll::delete(&self.epoll, bell);
        }
    }

    /// Whether a descriptor wakes the thread.
    pub(crate) fn listen(&self, fd: impl AsFd, Token(token): Token, wakes: bool) {
        if self.born != generation() {
            return;
        }
        let flags = if wakes { EventFlags::IN } else { EventFlags::empty() };
        // It may have been closed meanwhile.
        let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags);
    }

    /// What a descriptor is ready for can not be done now: it wakes the thread no more, but its source
    /// is told again after a while, and [listens](Driver::listen) again then.
    pub(crate) fn put_off(&self, fd: impl AsFd, token: Token) {
        self.listen(fd, token, false);
        lock(&self.sources).put_off.push((Instant::now() + AGAIN, token.0));
        self.hurry(AGAIN);
    }

    /// Does not wait on a descriptor any more.
    pub(crate) fn forget(&self, fd: impl AsFd, Token(token): Token) {
        // What it waits on in a forked child is its parent's.
        if self.born != generation() {
            return;
        }
        // It may have been closed meanwhile.
        let _ = epoll::delete(&self.epoll, fd);
        lock(&self.sources).by_token.remove(&token);
    }

    /// A deadline was set that is so far away.
    pub(crate) fn hurry(&self, left: Duration) {
        fence(Ordering::SeqCst);
        let wakes = self.wakes.load(Ordering::Relaxed);
        if wakes != AWAKE && self.after(left) < wakes {
            self.wake();
        }
    }

    /// There may be something to do that nobody is told of. A program that polls looks by itself, and the
    /// thread before it sleeps.
    pub(crate) fn look_again(&self) {
        if !self.attention.is_programs() && self.thread.get() != Some(&thread::current().id()) {
            self.wake();
        }
    }

    /// The program begins to look for packets.
    #[inline]
    pub(crate) fn poll_begins(&self) -> Option<Instant> {
        self.attention.poll_begins()
    }

    /// The program has looked for packets; whether there were any.
    #[inline]
    pub(crate) fn polled(&self, begun: Option<Instant>, any: bool) {
        if self.attention.polled(begun, any) {
            self.let_program_poll();
        }
        if self.attention.is_in_vain(any) {
            thread::yield_now();
        }
    }

    /// The program may sleep from now on: packets are the thread's business at once.
    pub(crate) fn program_rests(&self) {
        if self.attention.rest() && self.hang_bells() {
            self.wake();
        }
    }

    #[cold]
    fn let_program_poll(&self) {
        self.take_bells_down(true);
        self.wake();
    }

    fn wake(&self) {
        // Full means that it is woken already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn after(&self, left: Duration) -> u64 {
        let at = self.origin.elapsed().saturating_add(left);
        u64::try_from(at.as_nanos()).unwrap_or(NEVER).max(AWAKE + 1)
    }

    fn run(&self) {
        // Else it would wait until a program that looks at nothing but its memory has had its turn.
        let _ = mkey_os::quiet_thread::wake_promptly();
        let _ = self.thread.set(thread::current().id());
        let mut ready = Vec::with_capacity(64);
        let mut alarm = NEVER;
        loop {
            let more = self.work();
            let mut tick = self.attention.tick();
            if tick {
                // Those of new peers, too.
                self.take_bells_down(true);
                // If it has begun to rest meanwhile, it has hung them up before.
                tick = self.attention.is_programs();
            }
            if more || !tick && self.hang_bells() {
                // There is something to do, but who waits to be attended to has a turn.
                self.look(&mut ready);
            } else {
                let left = self.time_left(tick.then_some(TICK));
                self.wait(left, &mut alarm, &mut ready);
            }
            self.wakes.store(AWAKE, Ordering::Relaxed);
            if !tick {
                self.take_bells_down(false);
            }
            self.attend(&mut ready);
            self.tell_again();
        }
    }

    /// Takes in packets, then fires what is due; whether there may be more.
    fn work(&self) -> bool {
        let cores = self.living();
        let more = (0..ROUNDS).all(|_| cores.iter().filter(|core| core.turn()).count() > 0);
        for core in &cores {
            let now = core.timers.now();
            if core.next_timer().is_some_and(|next| next <= now) {
                core.fire(now);
            }
        }
        more
    }

    /// How long there is nothing to do. Whoever sets an earlier deadline from now on sees when this
    /// thread would wake, or this thread sees the deadline.
    fn time_left(&self, most: Option<Duration>) -> Option<Duration> {
        let mut left = self.earliest(most);
        loop {
            self.wakes.store(left.map_or(NEVER, |left| self.after(left)), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let again = self.earliest(most);
            let sooner = match (left, again) {
                (None, Some(_)) => true,
                (Some(left), Some(again)) => again + PATIENCE < left,
                _ => false,
            };
            if !sooner {
                return left;
            }
            left = again;
        }
    }

    fn earliest(&self, most: Option<Duration>) -> Option<Duration> {
        let left = |core: Arc<Core>| {
            let next = core.next_timer()?;
            Some(next.saturating_sub(core.timers.now()))
        };
        let all = self.living().into_iter().filter_map(left).chain(most).chain(self.put_off_for());
        // Never 0, which would disarm the alarm.
        all.min().map(|left| left.max(PATIENCE))
    }

    /// How long those are put off still that are put off.
    fn put_off_for(&self) -> Option<Duration> {
        let until = lock(&self.sources).put_off.iter().map(|&(until, _)| until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Tells those again that were put off until now.
    fn tell_again(&self) {
        let now = Instant::now();
        let over = |&mut (until, _): &mut (Instant, u64)| until <= now;
        let mut sources = lock(&self.sources);
        let tokens: Vec<_> = sources.put_off.extract_if(.., over).collect();
        let known = |&(_, token): &(Instant, u64)| sources.by_token.get(&token)?.upgrade();
        let due: Vec<_> = tokens.iter().filter_map(known).collect();
        drop(sources);
        due.into_iter().for_each(|source| source.attend());
    }

    /// `alarm`: when the alarm that was set last goes off.
    fn wait(&self, left: Option<Duration>, alarm: &mut u64, ready: &mut Vec<epoll::Event>) {
        if let Some(left) = left {
            let at = self.after(left);
            // One that goes off before wakes for nothing, which is cheaper than to set it each time.
            if !(self.after(Duration::ZERO)..=at).contains(alarm) {
                *alarm = at;
                self.set_alarm(left);
            }
        }
        ready.clear();
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(ready), None);
    }

    /// As [`Driver::wait`], for no time.
    fn look(&self, ready: &mut Vec<epoll::Event>) {
        ready.clear();
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(ready), Some(&none));
    }

    /// Timeouts of epoll itself are whole milliseconds.
    fn set_alarm(&self, left: Duration) {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let alarm = Itimerspec {
            it_interval: none,
            it_value: Timespec {
                tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        // Fails by wrong arguments only.
        let _ = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &alarm);
    }

    fn attend(&self, ready: &mut Vec<epoll::Event>) {
        for event in ready.drain(..) {
            let token = event.data.u64();
            if token == BELL {
                continue;
            }
            if token == WAKE {
                for fd in [&self.wake, &self.alarm] {
                    let _ = rustix::io::read(fd, &mut [0; 8]);
                }
                continue;
            }
            let source = lock(&self.sources).by_token.get(&token).and_then(Weak::upgrade);
            if let Some(source) = source {
                source.attend();
            }
        }
    }

    /// Has peers ring when they have sent something; whether something is there already, and some
    /// do not.
    fn hang_bells(&self) -> bool {
        self.living().iter().any(|core| core.hang_bells())
    }

    fn take_bells_down(&self, program_polls: bool) {
        for core in self.living() {
            core.take_bells_down(program_polls);
        }
    }

    fn living(&self) -> Vec<Arc<Core>> {
        lock(&self.cores).iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    /// As `EAGAIN` of a limit on processes: the next try begins anew, and nothing of this one is left.
    #[test]
    fn without_a_thread_nothing_is_kept() {
        const TRIES: usize = 400;
        let before = descriptors();
        for _ in 0..TRIES {
            assert!(Driver::start_with(|_| false).is_none());
        }
        // Other tests of this process open some, too.
        assert!(descriptors() < before + TRIES, "each try has left descriptors");
    }

    #[test]
    fn the_thread_gets_the_driver_that_is_kept() {
        let mut run = None;
        let kept = Driver::start_with(|work| {
            run = Some(work);
            true
        });
        assert!(kept.is_some() && run.is_some());
    }

    /// An alarm of 0 would never go off.
    #[test]
    fn what_is_due_already_is_waited_for_a_moment() {
        let driver = Driver::without_thread();
        assert_eq!(driver.earliest(None), None);
        lock(&driver.sources).put_off.push((Instant::now(), 1));
        assert_eq!(driver.earliest(None), Some(PATIENCE));
        assert_eq!(driver.earliest(Some(Duration::ZERO)), Some(PATIENCE));
        assert_eq!(driver.time_left(None), Some(PATIENCE));
    }
}
