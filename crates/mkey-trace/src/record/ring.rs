//! What is in flight on one side of a queue: a ring of places, one for each entry of each work request.

use super::count::{self, By};
use super::received::{Noted, Received};
use super::remotes::Last;
use super::thread::bump;
use super::{Recorder, memory};
use crate::raw::{Mr, Op, Slot};
use bytemuck::Zeroable;

/// Places of a ring, at least and at most.
const LEAST: usize = 64;
const MOST: usize = 1 << 16;
/// Sizes of rings: none, and each power of two from the least to the most.
pub const SIZES: usize = (MOST / LEAST).ilog2() as usize + 2;
/// Following is given up when so much was spent on completions of work that is not there: two for each, and
/// one more for so many places that were looked at in vain; each of work that is there takes one off.
const STRAYS: usize = 64;
const LOOKED_AT: usize = 1024;
/// Of a shared queue so many are looked at for one that completes.
const SEARCHED: usize = 4096;

/// The first place of a work request; the others belong to the one before.
pub const FIRST: u32 = 1;
/// It makes a completion when it succeeds.
pub const SIGNALED: u32 = 2;
/// It is none any more: it was not posted after all, or completed before others.
const GONE: u32 = 4;
/// [`Noted::New`] was said of its address.
pub const BEGINS: u32 = 8;
/// Of the first place: what else was counted for the request.
pub const INLINED: u32 = 16;
pub const INVALIDATES: u32 = 32;
/// The operation is from this bit on.
const OP: u32 = 8;

/// An entry in flight, or a work request without any.
#[derive(Clone, Copy, Zeroable)]
pub struct Place {
    /// The work request's number.
    pub id: u64,
    /// Where its memory lies in the process, if the region is known.
    pub addr: u64,
    /// Of one that is none any more: how many from here on are none.
    pub len: u32,
    /// 0: it names no memory that is followed.
    pub mr: Slot,
    /// Who posted it.
    pub thread: Slot,
    pub flags: u32,
}

/// One side of a queue.
pub struct Ring {
    places: &'static mut [Place],
    head: usize,
    tail: usize,
    /// Following was given up.
    pub lost: bool,
    strays: usize,
    /// A completion in error was of work here: all that is behind it has one of its own.
    failed: bool,
    /// Whose it is, where it counts.
    pub by: By,
    /// For the queue: the peer's key that was named last.
    pub last: Last,
}

impl Ring {
    /// For so many requests of so many entries. `None`: there is no memory.
    pub fn new(requests: u32, entries: u32, by: By) -> Option<Self> {
        let places = match places(requests, entries) {
            0 => &mut [],
            places => memory::zeros(places)?,
        };
        Some(Self {
            places,
            head: 0,
            tail: 0,
            lost: false,
            strays: 0,
            failed: false,
            by,
            last: Last::default(),
        })
    }

    /// Its size, less than [`SIZES`].
    pub fn size(&self) -> usize {
        size_of_places(self.places.len())
    }

    /// As for another queue.
    pub fn renew(&mut self, by: By) {
        self.by = by;
        (self.head, self.tail, self.lost, self.strays) = (0, 0, false, 0);
        self.failed = false;
        self.last = Last::default();
    }

    #[inline]
    fn at(&mut self, index: usize) -> Option<&mut Place> {
        let mask = self.places.len().wrapping_sub(1);
        self.places.get_mut(index & mask)
    }

    /// Those in flight, from the oldest.
    pub fn in_flight(&self) -> impl Iterator<Item = &Place> {
        let mask = self.places.len().wrapping_sub(1);
        let all = self.head..self.tail;
        all.filter_map(move |index| self.places.get(index & mask)).filter(|p| p.flags & GONE == 0)
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Puts a place behind the others. `false`: more is in flight than was said could be, and following was
    /// given up, here or before.
    #[inline]
    pub fn push(&mut self, recorder: &Recorder, place: Place) -> bool {
        if self.tail - self.head >= self.places.len() && !self.room(recorder) {
            return false;
        }
        if self.lost {
            return false;
        }
        let tail = self.tail;
        let Some(to) = self.at(tail) else { return false };
        *to = place;
        self.tail += 1;
        true
    }

    /// Makes room by moving together what is not gone.
    #[cold]
    fn room(&mut self, recorder: &Recorder) -> bool {
        let (mut to, tail) = (self.head, self.tail);
        for from in self.head..tail {
            let Some(place) = self.at(from).map(|place| *place) else { break };
            if place.flags & GONE == 0 {
                if let Some(moved) = self.at(to) {
                    *moved = place;
                }
                to += 1;
            }
        }
        self.tail = to;
        if (self.tail - self.head) * 4 > self.places.len() * 3 {
            self.give_up(recorder);
            return false;
        }
        true
    }

    /// Nothing is followed any more, and nothing taken to be in flight.
    #[cold]
    pub fn give_up(&mut self, recorder: &Recorder) {
        self.clear(recorder);
        self.lost = true;
    }

    /// Nothing is in flight any more.
    pub fn clear(&mut self, recorder: &Recorder) {
        let tail = self.tail;
        self.retire_to(recorder, tail);
        self.rewind();
        self.strays = 0;
        self.failed = false;
    }

    /// Work succeeded.
    #[inline]
    pub fn succeeds(&mut self) {
        self.failed = false;
    }

    /// Work failed: whether it may be several that this number is of. Unsignaled work in flight may be done
    /// or not, so that it is any up to the first that is signaled; after it each has a completion of its own.
    #[cold]
    pub fn fails_ambiguously(&mut self, id: u64) -> bool {
        if std::mem::replace(&mut self.failed, true) {
            return false;
        }
        let mut many = 0;
        for place in self.in_flight().filter(|place| place.flags & FIRST != 0) {
            many += u32::from(place.id == id);
            if place.flags & SIGNALED != 0 {
                break;
            }
        }
        many > 1
    }

    /// A completion of work with this number, and of all before it. `all`: even of work that makes none when
    /// it succeeds. Says its operation.
    #[inline]
    pub fn complete(&mut self, recorder: &Recorder, id: u64, all: bool) -> Option<u32> {
        let wanted = if all { FIRST } else { FIRST | SIGNALED };
        let (head, tail) = (self.head, self.tail);
        for index in head..tail {
            let place = *self.at(index)?;
            if place.id == id && place.flags & (wanted | GONE) == wanted {
                let mut end = index + 1;
                while end < tail && self.at(end)?.flags & FIRST == 0 {
                    end += 1;
                }
                self.retire_to(recorder, end);
                self.rewind();
                self.strays = self.strays.saturating_sub(1);
                return Some(place.flags >> OP);
            }
        }
        self.stray(recorder, tail - head);
        None
    }

    /// A completion of a receive of a shared queue: those before it stay.
    #[inline]
    pub fn complete_one(&mut self, recorder: &Recorder, id: u64) -> Option<u32> {
        let mut index = self.head;
        for _ in 0..SEARCHED {
            index = self.step_over(index);
            if index >= self.tail {
                break;
            }
            let place = *self.at(index)?;
            if place.id == id && place.flags & FIRST != 0 {
                self.take_out(recorder, index);
                self.rewind();
                self.strays = self.strays.saturating_sub(1);
                return Some(place.flags >> OP);
            }
            index += 1;
        }
        self.stray(recorder, SEARCHED.min(self.tail - self.head));
        None
    }

    /// The first place from this one on that is not gone. The next time the way there is one step.
    #[inline]
    fn step_over(&mut self, from: usize) -> usize {
        let (mut index, tail) = (from, self.tail);
        while index < tail
            && let Some(place) = self.at(index)
            && place.flags & GONE != 0
        {
            index += place.len.max(1) as usize;
        }
        if index > from
            && let Some(place) = self.at(from)
        {
            place.len = (index - from) as u32;
        }
        index
    }

    /// The last `count` work requests of a thread were not posted. `undo` is called for the operation and
    /// the region of each place.
    pub fn take_back(
        &mut self,
        recorder: &Recorder,
        thread: Slot,
        mut count: u32,
        mut undo: impl FnMut(&Place),
    ) {
        let mut index = self.tail;
        while count > 0 && index > self.head {
            index -= 1;
            let Some(place) = self.at(index).map(|place| *place) else { return };
            if place.thread != thread || place.flags & (FIRST | GONE) != FIRST {
                continue;
            }
            count -= 1;
            let (mut each, tail) = (index, self.tail);
            while each < tail {
                match self.at(each) {
                    Some(place) if each == index || place.flags & FIRST == 0 => undo(place),
                    _ => break,
                }
                each += 1;
            }
            self.take_out(recorder, index);
        }
        while self.tail > self.head {
            let last = self.tail - 1;
            match self.at(last) {
                Some(place) if place.flags & GONE != 0 => self.tail = last,
                _ => break,
            }
        }
        self.rewind();
    }

    /// When nothing is in flight the first places are used again: of a ring that is large, since much may
    /// be posted, as much memory is touched as ever was in flight.
    #[inline]
    fn rewind(&mut self) {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Takes a work request out from amid the others.
    fn take_out(&mut self, recorder: &Recorder, first: usize) {
        let (mut index, tail) = (first, self.tail);
        while index < tail {
            let Some(place) = self.at(index) else { return };
            if index != first && place.flags & FIRST != 0 {
                break;
            }
            let was = *place;
            place.flags |= GONE;
            place.len = 1;
            let mut done = Done::of(self.by);
            done.add(recorder, &was);
            done.tell(recorder);
            index += 1;
        }
        while self.head < self.tail {
            let head = self.head;
            match self.at(head) {
                Some(place) if place.flags & GONE != 0 => self.head += 1,
                _ => break,
            }
        }
    }

    /// All before `end` is done.
    #[inline]
    fn retire_to(&mut self, recorder: &Recorder, end: usize) {
        let mut done = Done::of(self.by);
        while self.head < end {
            let head = self.head;
            self.head += 1;
            if let Some(place) = self.at(head)
                && place.flags & GONE == 0
            {
                done.add(recorder, place);
            }
        }
        done.tell(recorder);
    }

    #[cold]
    fn stray(&mut self, recorder: &Recorder, looked_at: usize) {
        self.strays += 2 + looked_at / LOOKED_AT;
        if self.strays > STRAYS && !self.is_empty() {
            self.give_up(recorder);
        }
    }
}

/// Entries that are done, gathered as long as they are of one region.
struct Done {
    by: By,
    mr: Slot,
    count: u64,
}

impl Done {
    #[inline]
    fn of(by: By) -> Self {
        Self { by, mr: 0, count: 0 }
    }

    #[inline]
    fn add(&mut self, recorder: &Recorder, place: &Place) {
        if place.flags & BEGINS != 0 {
            recorder.received.forget(place.addr);
        }
        if place.mr != self.mr {
            self.tell(recorder);
            (self.mr, self.count) = (place.mr, 0);
        }
        self.count += 1;
    }

    #[inline]
    fn tell(&self, recorder: &Recorder) {
        if let Some(mr) = recorder.log.placed::<Mr>(self.mr) {
            count::done(mr, self.by, self.count);
        }
    }
}

/// The size of a ring for so many requests of so many entries.
pub fn size(requests: u32, entries: u32) -> usize {
    size_of_places(places(requests, entries))
}

/// Twice what may be posted: work may be done, so that more can be posted, before its completion is polled.
fn places(requests: u32, entries: u32) -> usize {
    if requests == 0 {
        return 0;
    }
    let most = u64::from(requests) * u64::from(entries.max(1)) * 2;
    usize::try_from(most).unwrap_or(MOST).clamp(LEAST, MOST).next_power_of_two()
}

fn size_of_places(places: usize) -> usize {
    (places / LEAST).checked_ilog2().map_or(0, |power| power as usize + 1)
}

/// The flags of an operation.
#[inline]
pub fn flags(op: Op, signaled: bool) -> u32 {
    (op as u32) << OP | if signaled { SIGNALED } else { 0 }
}

/// The operation's number in these flags.
pub fn op(flags: u32) -> u32 {
    flags >> OP
}

/// Notes where a receive begins: whether another one there is in flight, and what its place then has.
#[inline]
pub fn begins(received: &Received, addr: u64) -> (bool, u32) {
    match received.note(addr) {
        Noted::New => (false, BEGINS),
        Noted::Twice => (true, 0),
        Noted::Not => (false, 0),
    }
}

/// Adds to how often one operation was posted, under the lock of its side.
#[inline]
pub fn posted(counters: &[std::sync::atomic::AtomicU64; 8], op: Op, by: u64) {
    if let Some(counter) = counters.get(op as usize) {
        bump(counter, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion of a shared queue whose oldest message is slow finds its receive in a few steps, not by
    /// way of all that have completed since.
    #[test]
    fn what_has_completed_is_stepped_over() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path(), 1 << 20).unwrap();
        let mut ring = Ring::new(16_000, 1, By::side(1, true)).unwrap();
        (0..16_000).for_each(|id| push(&mut ring, recorder, id));
        // More than are looked at: the way is over those that are not gone.
        for id in 1..15_000 {
            assert_eq!(ring.complete_one(recorder, id), Some(Op::Send as u32));
        }
        assert_eq!((ring.head, ring.step_over(1)), (0, 15_000));
        assert_eq!(ring.in_flight().map(|place| place.id).take(2).collect::<Vec<_>>(), [0, 15_000]);
        // Beyond what is looked at: not found, and given up if it goes on.
        (0..100).for_each(|_| _ = ring.complete_one(recorder, 99_999));
        assert!(ring.lost && ring.is_empty());
    }

    #[test]
    fn strays_amid_others_end_following_too() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path(), 1 << 20).unwrap();
        let mut ring = Ring::new(64, 1, By::side(1, false)).unwrap();
        push(&mut ring, recorder, u64::MAX);
        for id in 0..1000 {
            if ring.lost {
                break;
            }
            push(&mut ring, recorder, id);
            ring.complete_one(recorder, id);
            ring.complete_one(recorder, 99_999);
        }
        assert!(ring.lost);
    }

    /// The places that were written to.
    fn touched(ring: &Ring) -> usize {
        ring.places.iter().filter(|place| place.flags != 0).count()
    }

    fn push(ring: &mut Ring, recorder: &Recorder, id: u64) {
        let flags = flags(Op::Send, true) | FIRST;
        assert!(ring.push(recorder, Place { id, flags, ..Place::zeroed() }));
    }

    #[test]
    fn as_many_places_are_touched_as_are_in_flight_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(folder.path(), 1 << 20).unwrap();
        let mut ring = Ring::new(4096, 4, By::side(1, false)).unwrap();
        for round in 0..1000 {
            (0..3).for_each(|id| push(&mut ring, recorder, round + id));
            match round % 3 {
                0 => _ = ring.complete(recorder, round + 2, false),
                1 => (0..3).for_each(|id| _ = ring.complete_one(recorder, round + 2 - id)),
                _ => ring.take_back(recorder, 0, 3, |_| {}),
            }
            assert!(ring.is_empty() && !ring.lost);
        }
        assert_eq!(touched(&ring), 3);
    }
}
