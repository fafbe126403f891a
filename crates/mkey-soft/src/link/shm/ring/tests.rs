use super::*;
use proptest::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;

const CAPACITY: usize = 4096;

/// Memory that stands for a shared mapping.
struct Memory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: only addresses are handed out.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(capacity: usize) -> Self {
        let layout = Layout::from_size_align(footprint(capacity), 4096).unwrap();
        // SAFETY: the layout has a size.
        Self { start: unsafe { alloc_zeroed(layout) }, layout }
    }

    fn sides(&self) -> (Writing, Reading) {
        let range = self.start as usize..self.start as usize + self.layout.size();
        // SAFETY: the memory lives longer than the sides, of which there is one each.
        unsafe { (Writing::new(range.clone()).unwrap(), Reading::new(range).unwrap()) }
    }

    /// Writes where the other process may write.
    fn scribble(&self, offset: usize, value: u64) {
        let at = offset % (self.layout.size() / 8) * 8;
        // SAFETY: within the memory and aligned.
        unsafe { &*self.start.add(at).cast::<AtomicU64>() }.store(value, Ordering::Relaxed);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) }
    }
}

/// Writes a record of this length, of bytes that follow from its number; false if it is full.
fn write(writing: &mut Writing, number: u32, length: usize) -> bool {
    let bytes = vec![number as u8; length];
    match writing.room(length).unwrap() {
        None => false,
        Some(mut room) => {
            room.put(Bytes::of(&bytes));
            let _ = writing.commit();
            true
        }
    }
}

proptest! {
    /// Whatever is written is read, once, in order and unchanged; and it is taken as long as there
    /// is room, whatever wraps where.
    #[test]
    fn what_is_written_is_read(
        steps in prop::collection::vec((any::<bool>(), 0usize..CAPACITY / 2 - WORD + 1), 1..300),
    ) {
        let memory = Memory::new(CAPACITY);
        let (mut writing, mut reading) = memory.sides();
        let mut there: VecDeque<(u32, usize)> = VecDeque::new();
        let mut number = 0;
        for (writes, length) in steps {
            if writes {
                let full = there.iter().map(|&(_, length)| span(length)).sum::<u64>() + span(length);
                if write(&mut writing, number, length) {
                    prop_assert!(full <= CAPACITY as u64);
                    there.push_back((number, length));
                    number += 1;
                } else {
                    prop_assert!(!there.is_empty(), "an empty ring takes any record");
                }
            } else {
                prop_assert_eq!(reading.is_ready(), !there.is_empty());
                let record = reading.next(|bytes| bytes.to_vec()).unwrap();
                let wanted = there.pop_front().map(|(number, length)| vec![number as u8; length]);
                prop_assert_eq!(record, wanted);
                reading.give_back();
            }
        }
    }

    /// What another process writes to the ring breaks it at worst: nothing outside is touched, and
    /// reading ends.
    #[test]
    fn garbage_breaks_the_ring_at_worst(
        scribbles in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u64>(), 0u64..1 << 20, (0u64..80).prop_map(|n| n * 64), Just(u64::from(GAP)),
        ]), 1..40),
        lengths in prop::collection::vec(0usize..600, 1..40),
    ) {
        let memory = Memory::new(CAPACITY);
        let (mut writing, mut reading) = memory.sides();
        let mut lengths = lengths.into_iter();
        for (at, value) in scribbles {
            if let Some(length) = lengths.next() {
                match writing.room(length) {
                    Ok(Some(room)) => {
                        prop_assert_eq!(room.len(), length);
                        prop_assert!(room.start() as usize >= memory.start as usize + 4096);
                        let end = room.start() as usize + length;
                        prop_assert!(end <= memory.start as usize + memory.layout.size());
                        let _ = writing.commit();
                    }
                    Ok(None) => {}
                    Err(Broken) => return Ok(()),
                }
            }
            // Half of it hits the counters.
            let places = memory.layout.size() / 8;
            let at = at.index(2 * places);
            let counters = [0, 16, 32, 512];
            memory.scribble(if at < places { at } else { counters[at % 4] }, value);
            for _ in 0..CAPACITY {
                let read = reading.next(|bytes| {
                    assert!(bytes.start() as usize >= memory.start as usize + 4096);
                    let end = bytes.start() as usize + bytes.len();
                    assert!(end <= memory.start as usize + memory.layout.size());
                });
                match read {
                    Ok(Some(())) => {}
                    Ok(None) => break,
                    Err(Broken) => return Ok(()),
                }
            }
            reading.give_back();
        }
    }
}

#[test]
fn two_threads_pass_records_on() {
    const RECORDS: u32 = 20_000;
    let memory = Memory::new(CAPACITY);
    let (mut writing, mut reading) = memory.sides();
    let length = |number: u32| (number.wrapping_mul(2_654_435_761) % 1500) as usize;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..RECORDS {
                while !write(&mut writing, number, length(number)) {
                    std::thread::yield_now();
                }
            }
        });
        let mut number = 0;
        while number < RECORDS {
            match reading.next(|bytes| bytes.to_vec()).unwrap() {
                None => std::thread::yield_now(),
                Some(record) => {
                    assert_eq!(record, vec![number as u8; length(number)]);
                    number += 1;
                }
            }
            reading.give_back();
        }
    });
}

#[test]
fn a_record_that_no_ring_holds_is_not_taken() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, _) = memory.sides();
    assert!(writing.room(writing.longest()).unwrap().is_some());
    assert!(writing.room(writing.longest() + 1).unwrap().is_none());
    let crooked = memory.start as usize + 8..memory.start as usize + 4096;
    // SAFETY: nothing is made of it.
    assert!(unsafe { Writing::new(crooked) }.is_none());
}

/// Of many records one wakes who sleeps; who does not sleep is not woken.
#[test]
fn bells_ring_once() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, mut reading) = memory.sides();
    let put = |writing: &mut Writing| {
        writing.room(1).unwrap().unwrap();
        writing.commit()
    };
    assert!(!put(&mut writing));
    reading.arrival_bell().hang();
    assert!(reading.is_ready(), "who hangs up a bell looks once more");
    assert!(put(&mut writing));
    assert!(!put(&mut writing));
    reading.arrival_bell().hang();
    reading.arrival_bell().take_down();
    assert!(!put(&mut writing));
    assert!(!reading.arrivals().has_made_room(), "nobody waits for it");
    while write(&mut writing, 0, 100) {}
    reading.next(|_| ()).unwrap();
    reading.give_back();
    assert!(reading.arrivals().has_made_room());
    assert!(!reading.arrivals().has_made_room(), "it is told once");
}

/// Who asks for room again and again needs no bell, until it goes to sleep.
#[test]
fn a_bell_for_room_is_hung_up_by_who_waits() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, mut reading) = memory.sides();
    writing.asks_again = true;
    assert_eq!(writing.hang_room_bell(), Ok(false), "no room was asked for in vain");
    while write(&mut writing, 0, 100) {}
    assert!(!reading.arrivals().has_made_room());
    assert_eq!(writing.hang_room_bell(), Ok(false));
    assert!(reading.arrivals().has_made_room());
    while reading.next(|_| ()).unwrap().is_some() {}
    reading.give_back();
    assert_eq!(writing.hang_room_bell(), Ok(true), "it was made just before");
    assert!(write(&mut writing, 0, 100));
    assert!(!reading.arrivals().has_made_room(), "it has found room");
}

/// While nobody sleeps, whoever rings looks only; who sleeps after that is woken.
#[test]
fn a_bell_that_was_away_rings_again() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, reading) = memory.sides();
    reading.arrival_bell().take_away();
    assert!(write(&mut writing, 0, 1));
    writing.room(1).unwrap().unwrap();
    assert!(!writing.commit());
    reading.arrival_bell().hang();
    writing.room(1).unwrap().unwrap();
    assert!(writing.commit());
}

/// A gap before a record that was not written after all is nothing that a reader leaves lying.
#[test]
fn what_was_not_committed_is_not_unread() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, mut reading) = memory.sides();
    for number in 0..3 {
        assert!(write(&mut writing, number, CAPACITY / 4));
        assert!(writing.unread().is_some());
        reading.next(|_| ()).unwrap().unwrap();
        reading.give_back();
        assert_eq!(writing.unread(), None);
    }
    // It does not fit in front of the end.
    assert!(writing.room(CAPACITY / 4).unwrap().is_some());
    assert_eq!(writing.unread(), None);
    let _ = writing.commit();
    assert!(writing.unread().is_some());
}

/// Room is told of once, as who asked may ask no more; and another's short record is no room for a
/// long one.
#[test]
fn room_for_who_asks_no_more_is_told_once() {
    let memory = Memory::new(CAPACITY);
    let (mut writing, mut reading) = memory.sides();
    while write(&mut writing, 0, 1000) {}
    assert!(write(&mut writing, 1, 100), "a short one fits");
    assert!(reading.arrivals().has_made_room(), "the long one waits still");
    assert_eq!(writing.hang_room_bell(), Ok(false));
    while reading.next(|_| ()).unwrap().is_some() {}
    reading.give_back();
    assert!(reading.arrivals().has_made_room());
    assert_eq!(writing.hang_room_bell(), Ok(true));
    assert_eq!(writing.hang_room_bell(), Ok(false), "it was told");
    assert!(!reading.arrivals().has_made_room(), "nobody waits");
}
