//! Completion queues.

use crate::clock::Clock;
use crate::events::Channel;
use crate::object::{Use, Used};
use crate::sync::lock;
use mkey_core::device::CqHandle;
use mkey_core::error::{Object, Reason};
use mkey_core::work::Completion;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) handle: CqHandle,
    /// Queue pairs on it, each counted once per side.
    users: AtomicU32,
    /// Nothing is in the queue, nor wrong with it: for a look without the lock.
    quiet: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    depth: u32,
    entries: VecDeque<Entry>,
    overrun: bool,
    /// Destroyed.
    retired: bool,
    armed: Armed,
    /// Whether a completion is more than an entry: the queue is armed or stamped.
    attentive: bool,
    channel: Option<Use<Channel>>,
    credits: Vec<Credit>,
    /// When each entry came, if they are stamped.
    stamps: Option<Stamps>,
}

/// The times of the entries, in the same order. Of entries that were taken some may be left.
#[derive(Debug)]
struct Stamps {
    clock: Arc<dyn Clock>,
    times: VecDeque<Duration>,
}

impl Stamps {
    /// Drops those of entries that were taken: of the oldest, until `held` are left.
    fn align(&mut self, held: usize) {
        let taken = self.times.len().saturating_sub(held);
        self.times.drain(..taken);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
struct Entry {
    completion: Completion,
    credit: Option<CreditOf>,
}

/// Whose send queue slots a completion gives back when it is polled, and up to which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditOf {
    pub(crate) account: CreditAccount,
    pub(crate) done: u32,
}

/// A send queue's place in the list of its completion queue. The generation tells completions of
/// a former life (before RESET or destruction) from those of the present one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditAccount {
    place: u32,
    generation: u32,
}

#[derive(Debug)]
struct Credit {
    generation: u32,
    done: Option<Arc<AtomicU32>>,
}

/// The completion had no room: it is lost.
#[derive(Debug)]
pub(crate) struct Overrun;

impl Cq {
    pub(crate) fn new(handle: CqHandle, depth: u32, channel: Option<Use<Channel>>) -> Self {
        let entries = VecDeque::with_capacity(depth.min(1024) as usize);
        let state = Mutex::new(State { depth, entries, channel, ..State::default() });
        Self { handle, users: AtomicU32::new(0), quiet: AtomicBool::new(true), state }
    }

    /// Gives it another depth.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.overrun || state.retired {
            return Err(self.unusable(&state));
        }
        if state.entries.len() > depth as usize {
            return Err(Reason::Argument {
                what: "the new depth of a completion queue",
                value: u64::from(depth),
                allowed: "at least the completions that it holds",
            });
        }
        state.depth = depth;
        Ok(())
    }

    /// Drops the completions of a queue pair that begins anew or ends: nobody is to take them for
    /// those of its next life.
    pub(crate) fn purge(&self, qp_num: u32) {
        let mut state = lock(&self.state);
        let State { entries, stamps, .. } = &mut *state;
        if let Some(stamps) = stamps {
            stamps.align(entries.len());
            let mut of = entries.iter().map(|entry| entry.completion.qp_num);
            stamps.times.retain(|_| of.next() != Some(qp_num));
        }
        entries.retain(|entry| entry.completion.qp_num != qp_num);
    }

    /// Opens an account: `done` is set to the count of finished send work requests as their
    /// completions are polled.
    pub(crate) fn open_account(&self, done: Arc<AtomicU32>) -> CreditAccount {
        let mut state = lock(&self.state);
        let place = match state.credits.iter().position(|credit| credit.done.is_none()) {
            Some(place) => place,
            None => {
                state.credits.push(Credit { generation: 0, done: None });
                state.credits.len() - 1
            }
        };
        let mut generation = 0;
        if let Some(credit) = state.credits.get_mut(place) {
            credit.generation = credit.generation.wrapping_add(1);
            credit.done = Some(done);
            generation = credit.generation;
        }
        CreditAccount { place: place as u32, generation }
    }

    /// Closes an account; completions that are still queued credit nobody.
    pub(crate) fn close_account(&self, account: CreditAccount) {
        if let Some(credit) = lock(&self.state).credits.get_mut(account.place as usize)
            && credit.generation == account.generation
        {
            credit.done = None;
        }
    }

    /// Adds a completion.
    #[inline]
    pub(crate) fn push(
        &self,
        completion: &Completion,
        credit: Option<CreditOf>,
        solicited: bool,
    ) -> Result<(), Overrun> {
        let mut state = lock(&self.state);
        // Whoever polls after this sees it.
        self.quiet.store(false, Ordering::Release);
        if state.entries.len() >= state.depth as usize || state.overrun {
            let first = !state.overrun;
            state.overrun = true;
            return if first { Err(Overrun) } else { Ok(()) };
        }
        state.entries.push_back(Entry { completion: *completion, credit });
        if state.attentive {
            self.pushed(&mut state, solicited);
        }
        Ok(())
    }

    /// What follows where the queue is armed or stamped.
    #[cold]
    fn pushed(&self, state: &mut State, solicited: bool) {
        let before = state.entries.len() - 1;
        if let Some(stamps) = &mut state.stamps {
            stamps.align(before);
            stamps.times.push_back(stamps.clock.now());
        }
        if state.armed != Armed::No {
            self.notify(state, solicited);
        }
        state.attentive = state.armed != Armed::No || state.stamps.is_some();
    }

    fn notify(&self, state: &mut State, solicited: bool) {
        if (state.armed == Armed::Any || solicited)
            && let Some(channel) = &state.channel
        {
            channel.object().events.push(self.handle);
            state.armed = Armed::No;
        }
    }

    /// Takes up to `into.len()` completions.
    #[inline]
    pub(crate) fn poll(&self, into: &mut [Completion]) -> Result<usize, Reason> {
        if self.quiet.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.take(&mut lock(&self.state), into)
    }

    /// Takes one, with the time it came at: 0 if it was not stamped.
    pub(crate) fn poll_stamped(&self) -> Result<Option<(Completion, Duration)>, Reason> {
        let mut state = lock(&self.state);
        let held = state.entries.len();
        let when = state.stamps.as_mut().and_then(|stamps| {
            stamps.align(held);
            stamps.times.front().copied()
        });
        let mut into = [Completion::BLANK];
        let taken = self.take(&mut state, &mut into)?;
        let [completion] = into;
        Ok((taken > 0).then(|| (completion, when.unwrap_or_default())))
    }

    /// Has completions stamped from now on.
    pub(crate) fn stamp(&self, clock: Arc<dyn Clock>) {
        let mut state = lock(&self.state);
        let times = state.entries.iter().map(|_| Duration::ZERO).collect();
        state.stamps = Some(Stamps { clock, times });
        state.attentive = true;
    }

    #[inline(always)]
    fn take(&self, state: &mut State, into: &mut [Completion]) -> Result<usize, Reason> {
        if state.overrun || state.retired {
            return Err(self.unusable(state));
        }
        let mut taken = 0;
        for place in into {
            let Some(entry) = state.entries.pop_front() else {
                self.quiet.store(true, Ordering::Release);
                break;
            };
            *place = entry.completion;
            taken += 1;
            if let Some(CreditOf { account, done }) = entry.credit
                && let Some(credit) = state.credits.get(account.place as usize)
                && credit.generation == account.generation
                && let Some(finished) = &credit.done
            {
                finished.store(done, Ordering::Release);
            }
        }
        Ok(taken)
    }

    /// Arms the queue for one event. Arming for any completion is not weakened to solicited ones.
    pub(crate) fn arm(&self, solicited_only: bool) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.retired {
            return Err(self.unusable(&state));
        }
        if !solicited_only {
            state.armed = Armed::Any;
        } else if state.armed == Armed::No {
            state.armed = Armed::Solicited;
        }
        state.attentive = true;
        Ok(())
    }

    #[cold]
    fn unusable(&self, state: &State) -> Reason {
        match state.retired {
            true => Reason::UnknownHandle { object: Object::Cq, handle: self.handle.0 },
            false => Reason::CqOverrun { depth: state.depth },
        }
    }

    /// Ends the queue, whoever holds it still; lets go of its channel.
    pub(crate) fn retire(&self) {
        let mut state = lock(&self.state);
        self.quiet.store(false, Ordering::Release);
        state.retired = true;
        if let Some(channel) = state.channel.take() {
            channel.object().events.forget(|&cq| cq == self.handle);
        }
    }
}

impl Used for Cq {
    fn users(&self) -> &AtomicU32 {
        &self.users
    }
}
