//! Completion queues.

use crate::device::Device;
use crate::in_flight::{Ended, InFlight, tell};
use crate::lease::Lease;
use crate::pd::Pd;
use crate::plane::CqPlane;
use crate::sync::lock;
use event_listener::{Event, Listener, listener};
use mkey_core::device::CqHandle;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::key::Rkey;
use mkey_core::work::Completion;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A completion queue. Polling it is what lets go of the memory that work used. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cq {
    inner: Arc<Inner>,
}

struct Inner {
    plane: CqPlane,
    handle: CqHandle,
    event: Arc<Event>,
    queues: Mutex<Queues>,
    device: Device,
}

/// The queues whose completions come here.
#[derive(Debug, Default)]
struct Queues {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Given back with all their turns used: a completion of long ago could be taken for one of the
    /// next queue's, so they are free again only when there are no completions.
    resting: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    /// Changes when the slot is given to another queue.
    turn: u16,
    queue: Option<Joined>,
}

#[derive(Clone, Debug)]
struct Joined {
    in_flight: Arc<InFlight>,
    recv: bool,
    pd: Pd,
}

/// A queue's place at a completion queue. Completions that come after it is given back are nobody's.
pub(crate) struct Ticket {
    cq: Cq,
    slot: u32,
    turn: u16,
}

/// Slots of a completion queue at a time: what fits into a work request's id with the rest.
const MOST: usize = 1 << 16;

impl Cq {
    /// Creates a completion queue of at least `depth` entries.
    ///
    /// # Errors
    /// As the device refuses: `Argument`, `TableFull`.
    pub fn new(device: &Device, depth: u32) -> Result<Self> {
        let channel = device.events().channel()?;
        let handle = device.control().create_cq(depth, Some(channel))?;
        match device.plane().cq(handle) {
            Ok(plane) => {
                let event = device.events().join(handle);
                #[cfg(feature = "testing")]
                plane.wakes(&event);
                let (queues, device) = (Mutex::default(), device.clone());
                Ok(Self { inner: Arc::new(Inner { plane, handle, event, queues, device }) })
            }
            Err(error) => {
                if let Err(error) = device.control().destroy_cq(handle) {
                    device.failed_drop(&error);
                }
                Err(error)
            }
        }
    }

    /// Its handle, for the control plane.
    pub fn handle(&self) -> CqHandle {
        self.inner.handle
    }

    /// Takes up to `into.len()` completions, oldest first, and lets go of what their work used;
    /// how many were taken. Those of the library's own work requests are not shown.
    ///
    /// # Errors
    /// `CqOverrun`: completions are lost.
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        let mut news = News::take();
        let shown = self.poll_with(&mut news, into);
        news.keep();
        shown
    }

    fn poll_with(&self, news: &mut News, into: &mut [Completion]) -> Result<usize> {
        let mut shown = 0;
        while let Some(room) = into.get_mut(shown..).filter(|room| !room.is_empty()) {
            let asked = room.len();
            let mut queues = lock(&self.inner.queues);
            let polled = match self.inner.plane.poll(room) {
                Ok(polled) => {
                    if polled < asked {
                        queues.rested();
                    }
                    polled
                }
                // What was taken before is shown; the error comes again.
                Err(_) if shown > 0 => 0,
                Err(error) => return Err(error),
            };
            shown += queues.sort_out(room, polled, news);
            drop(queues);
            news.tell();
            // There were no more.
            if polled < asked {
                break;
            }
        }
        Ok(shown)
    }

    /// As [`Cq::poll`], but sleeps until there is a completion, or for `timeout`; 0 if there was
    /// none.
    ///
    /// # Errors
    /// `CqOverrun`; `System` where no thread for events could be started.
    pub fn wait(&self, into: &mut [Completion], timeout: Duration) -> Result<usize> {
        self.wait_or(into, Instant::now().checked_add(timeout), &|| false)
    }

    /// The next completion, if there is one within `timeout`.
    ///
    /// # Errors
    /// As [`Cq::wait`].
    pub fn next(&self, timeout: Duration) -> Result<Option<Completion>> {
        let mut one = [Completion::BLANK];
        let taken = self.wait(&mut one, timeout)?;
        Ok(one.first().copied().filter(|_| taken > 0))
    }

    /// As [`Cq::wait`], until `end`, and not longer than until `over`, which completions that are
    /// not shown may bring about.
    pub(crate) fn wait_or(
        &self,
        into: &mut [Completion],
        end: Option<Instant>,
        over: &dyn Fn() -> bool,
    ) -> Result<usize> {
        loop {
            let taken = self.poll(into)?;
            if taken > 0 || into.is_empty() || over() {
                return Ok(taken);
            }
            listener!(self.inner.event => listener);
            let taken = self.arm(into)?;
            if taken > 0 || over() {
                return Ok(taken);
            }
            match end {
                None => listener.wait(),
                Some(end) if listener.wait_deadline(end).is_some() => {}
                Some(_) => return self.poll(into),
            }
        }
    }

    /// As [`Cq::poll`], but waits until there is a completion. Any async runtime will do. A future
    /// that is dropped loses no completion.
    ///
    /// # Errors
    /// As [`Cq::wait`].
    pub async fn wait_async(&self, into: &mut [Completion]) -> Result<usize> {
        loop {
            let taken = self.poll(into)?;
            if taken > 0 || into.is_empty() {
                return Ok(taken);
            }
            let listener = self.inner.event.listen();
            let taken = self.arm(into)?;
            if taken > 0 {
                return Ok(taken);
            }
            listener.await;
        }
    }

    /// The next completion. Any async runtime will do. A future that is dropped loses none.
    ///
    /// # Errors
    /// As [`Cq::wait`].
    pub async fn next_async(&self) -> Result<Completion> {
        let mut one = [Completion::BLANK];
        self.wait_async(&mut one).await?;
        let [one] = one;
        Ok(one)
    }

    /// Asks for an event, and polls once more: what came before the asking makes none.
    fn arm(&self, into: &mut [Completion]) -> Result<usize> {
        self.inner.device.events().start()?;
        self.inner.plane.request_notify(false)?;
        self.poll(into)
    }

    pub(crate) fn join(&self, in_flight: &Arc<InFlight>, pd: &Pd, recv: bool) -> Result<Ticket> {
        let joined = Joined { in_flight: in_flight.clone(), recv, pd: pd.clone() };
        let mut queues = lock(&self.inner.queues);
        let slot = match queues.free.pop() {
            Some(slot) => slot,
            None if queues.slots.len() < MOST => {
                queues.slots.push(Slot { turn: 0, queue: None });
                queues.slots.len() as u32 - 1
            }
            None => {
                let reason = Reason::TableFull { object: Object::Qp, most: MOST as u64 / 2 };
                return Err(Error::new("create_qp", "on one completion queue", reason));
            }
        };
        let place = queues.slots.get_mut(slot as usize);
        let turn = place.map_or(0, |place| {
            place.queue = Some(joined);
            place.turn
        });
        drop(queues);
        Ok(Ticket { cq: self.clone(), slot, turn })
    }
}

impl Queues {
    /// There are no completions now.
    #[inline]
    fn rested(&mut self) {
        if !self.resting.is_empty() {
            self.free.append(&mut self.resting);
        }
    }

    /// Ends the work that the first `polled` of `room` are about, and moves those to show to its
    /// start; how many these are.
    fn sort_out(&self, room: &mut [Completion], polled: usize, news: &mut News) -> usize {
        let mut shown = 0;
        for index in 0..polled {
            let Some(mut completion) = room.get(index).copied() else { break };
            let Some(joined) = self.find(completion.wr_id) else { continue };
            let number = completion.wr_id as u32;
            let mut queue =
                if joined.recv { joined.in_flight.recv() } else { joined.in_flight.send() };
            let id = queue.end(number, completion.status, &mut news.ended);
            drop(queue);
            if let Some(key) = completion.invalidated {
                news.invalidated.extend(joined.pd.remotes().find(key).map(|lease| (lease, key)));
            }
            if let Some((id, place)) = id.zip(room.get_mut(shown)) {
                completion.wr_id = id;
                *place = completion;
                shown += 1;
            }
        }
        shown
    }

    fn find(&self, wr_id: u64) -> Option<&Joined> {
        let slot = self.slots.get((wr_id >> 32) as usize & (MOST - 1))?;
        (slot.turn == (wr_id >> 48) as u16).then_some(slot.queue.as_ref()).flatten()
    }
}

/// What polling found out, to be told when no lock is held.
#[derive(Debug, Default)]
struct News {
    ended: Ended,
    invalidated: Vec<(Arc<Lease>, Rkey)>,
}

impl News {
    fn tell(&mut self) {
        tell(&mut self.ended);
        for (lease, key) in self.invalidated.drain(..) {
            lease.invalidated(key);
        }
    }

    /// With the room of the thread's earlier polls, so that polling allocates nothing after a
    /// while, however much ends at a time.
    fn take() -> Self {
        // A thread that is ending has none.
        ROOM.try_with(Cell::take).unwrap_or_default()
    }

    /// Leaves the room for the thread's next poll.
    fn keep(self) {
        let _ = ROOM.try_with(|room| room.set(self));
    }
}

thread_local! {
    static ROOM: Cell<News> =
        const { Cell::new(News { ended: Vec::new(), invalidated: Vec::new() }) };
}

impl Ticket {
    /// The id of a work request at the device: where its entry is found.
    pub(crate) fn wr_id(&self, number: u32) -> u64 {
        u64::from(self.turn) << 48 | u64::from(self.slot) << 32 | u64::from(number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = lock(&self.cq.inner.queues);
        let mut left = None;
        if let Some(place) = queues.slots.get_mut(self.slot as usize) {
            place.turn = place.turn.wrapping_add(1);
            left = place.queue.take();
            match place.turn {
                0 => queues.resting.push(self.slot),
                _ => queues.free.push(self.slot),
            }
        }
        drop(queues);
        // What it kept may lead to anything.
        drop(left);
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.events().leave(self.handle);
        if let Err(error) = self.device.control().destroy_cq(self.handle) {
            self.device.failed_drop(&error);
        }
    }
}
