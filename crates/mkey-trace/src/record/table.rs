//! From a number to a number, read without a lock.
//!
//! Open addressing. What changes the table holds a lock; a removal moves others nearer to where they belong,
//! within an odd count: a reader that has seen two counts, or an odd one, looks again. A table that is half
//! full is replaced by one of twice the size; the old one stays as it was for who still reads it.

use super::lock::{Spin, give_way};
use super::memory;
use bytemuck::Zeroable;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

/// Places that a table begins with.
const FIRST: usize = 1024;
/// Looks at a table that is being changed, before it is left at that.
const TRIES: u32 = 1000;

/// A table. Keys are not 0.
pub struct Table {
    body: AtomicPtr<Body>,
    turns: AtomicU64,
    /// How many are in it.
    state: Spin<usize>,
    most: usize,
}

struct Body {
    places: &'static [Place],
    /// A hash is shifted right by so many bits.
    shift: u32,
}

#[derive(Zeroable)]
struct Place {
    /// 0: nothing is here.
    key: AtomicU64,
    value: AtomicU64,
}

/// There is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The table is being changed.
struct Changing;

/// Between two looks.
#[cold]
fn wait(tries: u32) {
    if tries.is_multiple_of(64) {
        give_way(tries / 64);
    }
    std::hint::spin_loop();
}

impl Table {
    /// An empty one, for at most so many.
    pub const fn new(most: usize) -> Self {
        Self {
            body: AtomicPtr::new(null_mut()),
            turns: AtomicU64::new(0),
            state: Spin::new(0),
            most,
        }
    }

    /// What the key has.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let mut tries = 0_u32;
        loop {
            if let Ok(found) = self.look(key) {
                return found;
            }
            tries = tries.wrapping_add(1);
            wait(tries);
        }
    }

    /// Whether it has the key, or may have: for where the thread itself may have been interrupted amid a
    /// removal, or is not there any more that was.
    #[inline]
    pub fn may_have(&self, key: u64) -> bool {
        for tries in 1..=TRIES {
            if let Ok(found) = self.look(key) {
                return found.is_some();
            }
            wait(tries);
        }
        true
    }

    /// What the key has; an error amid a removal.
    #[inline]
    fn look(&self, key: u64) -> Result<Option<u64>, Changing> {
        if key == 0 {
            return Ok(None);
        }
        let turn = self.turns.load(Acquire);
        if turn & 1 != 0 {
            return Err(Changing);
        }
        let Some(body) = self.body() else { return Ok(None) };
        let found = body.find(key).map(|place| place.value.load(Relaxed));
        fence(Acquire);
        if self.turns.load(Relaxed) == turn { Ok(found) } else { Err(Changing) }
    }

    /// Gives the key this value, and says which it had.
    ///
    /// # Errors
    /// [`Full`]: it had none, and there is no place for it.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, Full> {
        if key == 0 {
            return Err(Full);
        }
        let mut count = self.state.lock();
        if let Some(place) = self.body().and_then(|body| body.find(key)) {
            return Ok(Some(place.value.swap(value, Release)));
        }
        if *count >= self.most {
            return Err(Full);
        }
        let places = self.body().map_or(0, |body| body.places.len());
        if *count * 2 >= places {
            self.grow(places * 2)?;
        }
        self.body().ok_or(Full)?.put(key, value).ok_or(Full)?;
        *count += 1;
        Ok(None)
    }

    /// Takes the key out, and says what it had.
    pub fn remove(&self, key: u64) -> Option<u64> {
        self.remove_if(key, |_| true)
    }

    /// Takes the key out if what it has is so.
    pub fn remove_if(&self, key: u64, so: impl FnOnce(u64) -> bool) -> Option<u64> {
        if key == 0 {
            return None;
        }
        let mut count = self.state.lock();
        let body = self.body()?;
        let index = body.index_of(key)?;
        let value = body.places.get(index)?.value.load(Relaxed);
        if !so(value) {
            return None;
        }
        let turn = self.turns.load(Relaxed);
        self.turns.store(turn.wrapping_add(1), Relaxed);
        fence(Release);
        body.close_gap(index);
        self.turns.store(turn.wrapping_add(2), Release);
        *count -= 1;
        Some(value)
    }

    #[inline]
    fn body(&self) -> Option<&'static Body> {
        // SAFETY: it is null or what `grow` has kept for ever, written before it was stored.
        unsafe { self.body.load(Acquire).as_ref() }
    }

    fn grow(&self, places: usize) -> Result<(), Full> {
        let places = memory::zeros::<Place>(places.max(FIRST).next_power_of_two()).ok_or(Full)?;
        let shift = 64 - places.len().trailing_zeros();
        let body = memory::keep(Body { places, shift }).ok_or(Full)?;
        for place in self.body().map_or(&[][..], |old| old.places) {
            let key = place.key.load(Relaxed);
            if key != 0 {
                body.put(key, place.value.load(Relaxed)).ok_or(Full)?;
            }
        }
        self.body.store(body, Release);
        Ok(())
    }
}

impl Body {
    /// Where the search for a key begins.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&'static Place> {
        let (mut index, mask) = (self.home(key), self.places.len().wrapping_sub(1));
        // As long as the table at most: a reader may see it amid a change.
        for _ in 0..=mask {
            let place = self.places.get(index & mask)?;
            match place.key.load(Acquire) {
                found if found == key => return Some(place),
                0 => return None,
                _ => index += 1,
            }
        }
        None
    }

    fn index_of(&self, key: u64) -> Option<usize> {
        let place = std::ptr::from_ref(self.find(key)?) as usize;
        Some((place - self.places.as_ptr() as usize) / size_of::<Place>())
    }

    /// Puts a key that is not there into the first free place.
    fn put(&self, key: u64, value: u64) -> Option<()> {
        let (mut index, mask) = (self.home(key), self.places.len().wrapping_sub(1));
        for _ in 0..=mask {
            let place = self.places.get(index & mask)?;
            if place.key.load(Relaxed) == 0 {
                place.value.store(value, Relaxed);
                place.key.store(key, Release);
                return Some(());
            }
            index += 1;
        }
        None
    }

    /// Moves those that come after a place, up to the next free one, nearer to where their search begins.
    fn close_gap(&self, mut gap: usize) {
        let mask = self.places.len().wrapping_sub(1);
        let mut index = gap;
        loop {
            index = (index + 1) & mask;
            let (Some(to), Some(from)) = (self.places.get(gap), self.places.get(index)) else {
                return;
            };
            let key = from.key.load(Relaxed);
            if key == 0 {
                to.key.store(0, Relaxed);
                return;
            }
            // It may move if its search passes the gap: from its home to here is at least as far as from
            // the gap to here.
            let far = index.wrapping_sub(self.home(key)) & mask;
            if far >= index.wrapping_sub(gap) & mask {
                to.value.store(from.value.load(Relaxed), Relaxed);
                to.key.store(key, Relaxed);
                gap = index;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn who_may_have_interrupted_a_removal_does_not_wait_for_its_end() {
        let table = Table::new(100);
        table.insert(5, 50).unwrap();
        assert!(table.may_have(5) && !table.may_have(6));
        table.turns.fetch_add(1, Relaxed);
        assert!(table.may_have(5) && table.may_have(6));
        table.turns.fetch_add(1, Relaxed);
        assert!(table.may_have(5) && !table.may_have(6));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        Get(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few keys, so that they meet again; some that share where their search begins.
        let key = prop_oneof![0..50_u64, (0..40_u64).prop_map(|n| n << 32 | 7), any::<u64>()];
        (key, any::<u64>(), 0..3).prop_map(|(key, value, kind)| match kind {
            0 => Step::Insert(key, value),
            1 => Step::Remove(key),
            _ => Step::Get(key),
        })
    }

    proptest! {
        #[test]
        fn it_answers_as_a_map_does(steps in prop::collection::vec(step(), 1..2000)) {
            let (table, mut model) = (Table::new(600), HashMap::new());
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        let full = key == 0 || !model.contains_key(&key) && model.len() >= 600;
                        let expected = if full { Err(Full) } else { Ok(model.insert(key, value)) };
                        prop_assert_eq!(table.insert(key, value), expected);
                    }
                    Step::Remove(key) => prop_assert_eq!(table.remove(key), model.remove(&key)),
                    Step::Get(key) => prop_assert_eq!(table.get(key), model.get(&key).copied()),
                }
            }
            for (key, value) in &model {
                prop_assert_eq!(table.get(*key), Some(*value));
            }
        }
    }

    #[test]
    fn it_grows_to_its_most_and_refuses_beyond() {
        let table = Table::new(100_000);
        for key in 1..=100_000 {
            assert_eq!(table.insert(key, key * 3), Ok(None));
        }
        assert_eq!(table.insert(100_001, 1), Err(Full));
        assert_eq!(table.insert(5, 1), Ok(Some(15)));
        assert_eq!(table.remove(5), Some(1));
        assert_eq!(table.insert(100_001, 1), Ok(None));
        assert!((6..=100_000).all(|key| table.get(key) == Some(key * 3)));
    }

    /// A key that stays is found with its own value by every reader, whatever comes and goes around it.
    #[test]
    fn what_stays_is_found_while_others_come_and_go() {
        static TABLE: Table = Table::new(1 << 16);
        let stop = AtomicBool::new(false);
        for key in (1..2000_u64).step_by(2) {
            TABLE.insert(key, key ^ 0xABCD).unwrap();
        }
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let stop = &stop;
                scope.spawn(move || {
                    let mut key = 1 + reader * 2;
                    while !stop.load(Relaxed) {
                        assert_eq!(TABLE.get(key), Some(key ^ 0xABCD));
                        key = if key + 2 < 2000 { key + 2 } else { 1 };
                        let other = key + 1;
                        assert!(TABLE.get(other).is_none_or(|value| value == other));
                    }
                });
            }
            for round in 0..300_u64 {
                for key in (2..2000_u64).step_by(2) {
                    if (key / 2 + round) % 3 == 0 {
                        TABLE.insert(key, key).unwrap();
                    } else {
                        TABLE.remove(key);
                    }
                }
            }
            stop.store(true, Relaxed);
        });
    }
}
