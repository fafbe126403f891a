//! What is known of objects, found by their addresses: read without a lock, on the way of every work
//! request.
//!
//! Places are never given back, only used again, so that a reader never meets one that is gone: who uses
//! an object while another thread ends it finds it, or does not, or finds the next one at its address.

use crate::traced::epoch;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Numbers of places without an object, which no object has: queue pairs have 24 bits.
const FREE: u32 = u32::MAX;
const BUSY: u32 = u32::MAX - 1;

/// A table with so many chains.
pub(super) struct Table<V: 'static, const CHAINS: usize>([AtomicPtr<Place<V>>; CHAINS]);

/// A place in it. Its value is made of atomics, or is touched by who the verbs allow alone.
pub(super) struct Place<V: 'static> {
    address: AtomicUsize,
    /// The number of the object, and above it how often the place was used.
    state: AtomicU64,
    /// The process that it was put in by; see [`epoch`].
    epoch: AtomicU32,
    next: Option<&'static Self>,
    pub(super) value: V,
}

impl<V> Place<V> {
    /// Whether the object is of this process: a forked child finds its parent's, too.
    #[inline]
    pub(super) fn is_own(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == epoch()
    }

    /// Whether another object is of the same process.
    pub(super) fn is_with<W>(&self, other: &Place<W>) -> bool {
        self.epoch.load(Ordering::Relaxed) == other.epoch.load(Ordering::Relaxed)
    }

    /// The object's address, or that of the one that it belongs to.
    pub(super) fn address(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }

    /// The object as it is now, for who ends it: by then another one may have its address and number.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.state.load(Ordering::Acquire))
    }

    /// The object has ended.
    pub(super) fn remove(&self, mark: Mark) {
        self.pass(mark.0, FREE);
    }

    /// Goes on to another number, if nobody was faster.
    fn pass(&self, from: u64, number: u32) -> bool {
        let to = next_use(from) | u64::from(number);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the place, if it has this number.
    fn take(&self, number: u32) -> bool {
        let state = self.state.load(Ordering::Acquire);
        number_of(state) == number && self.pass(state, BUSY)
    }
}

/// An object at a place; see [`Place::mark`].
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

#[inline]
fn number_of(state: u64) -> u32 {
    state as u32
}

fn next_use(state: u64) -> u64 {
    (state >> 32).wrapping_add(1) << 32
}

impl<V: Default + Sync, const CHAINS: usize> Table<V, CHAINS> {
    pub(super) const fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; CHAINS])
    }

    #[inline]
    fn chain(&self, address: usize, number: u32) -> &AtomicPtr<Place<V>> {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (address as u64 >> 4 ^ u64::from(number) << 32).wrapping_mul(ODD) >> 32;
        &self.0[mixed as usize % CHAINS]
    }

    fn places(chain: &AtomicPtr<Place<V>>) -> impl Iterator<Item = &'static Place<V>> {
        // SAFETY: null or a place, which are never given back.
        let first = unsafe { chain.load(Ordering::Acquire).as_ref() };
        std::iter::successors(first, |place| place.next)
    }

    /// The object of this address and number.
    #[inline]
    pub(super) fn get<T>(
        &'static self,
        address: *const T,
        number: u32,
    ) -> Option<&'static Place<V>> {
        let address = address.addr();
        if number >= BUSY {
            return None;
        }
        Self::places(self.chain(address, number)).find(|place| {
            number_of(place.state.load(Ordering::Acquire)) == number
                && place.address.load(Ordering::Relaxed) == address
        })
    }

    /// Puts an object in, as `fill` sets it. One at the same address has ended unseen.
    pub(super) fn insert<T>(
        &'static self,
        address: *const T,
        number: u32,
        fill: impl FnOnce(&V),
    ) -> &'static Place<V> {
        let chain = self.chain(address.addr(), number);
        let before = self.get(address, number).filter(|place| place.take(number));
        let place = before
            .or_else(|| Self::places(chain).find(|place| place.take(FREE)))
            .unwrap_or_else(|| Self::grow(chain));
        fill(&place.value);
        place.address.store(address.addr(), Ordering::Relaxed);
        place.epoch.store(epoch(), Ordering::Relaxed);
        let state = place.state.load(Ordering::Relaxed);
        place.state.store(next_use(state) | u64::from(number), Ordering::Release);
        place
    }

    /// Another place, which nobody takes.
    fn grow(chain: &AtomicPtr<Place<V>>) -> &'static Place<V> {
        let place = Box::leak(Box::new(Place {
            address: AtomicUsize::new(0),
            state: AtomicU64::new(u64::from(BUSY)),
            epoch: AtomicU32::new(0),
            next: None,
            value: V::default(),
        }));
        let mut head = chain.load(Ordering::Acquire);
        loop {
            // SAFETY: null or a place, which are never given back.
            place.next = unsafe { head.as_ref() };
            match chain.compare_exchange(head, place, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return place,
                Err(now) => head = now,
            }
        }
    }

    /// All objects.
    pub(super) fn all(&'static self) -> impl Iterator<Item = &'static Place<V>> {
        let places = self.0.iter().flat_map(Self::places);
        places.filter(|place| number_of(place.state.load(Ordering::Acquire)) < BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_until_it_ends_and_its_place_is_used_again() {
        static TABLE: Table<AtomicU32, 2> = Table::new();
        let at = |address: usize| std::ptr::without_provenance::<u8>(address << 6);
        for address in 1..100 {
            TABLE.insert(at(address), 7, |value| value.store(address as u32, Ordering::Relaxed));
        }
        for address in 1..100 {
            let place = TABLE.get(at(address), 7).unwrap();
            assert_eq!(place.value.load(Ordering::Relaxed), address as u32);
            assert!(place.is_own() && place.address() == address << 6);
            assert!(TABLE.get(at(address), 8).is_none());
        }
        assert_eq!(TABLE.all().count(), 99);
        TABLE.all().filter(|place| place.address() % 128 == 0).for_each(|p| p.remove(p.mark()));
        assert!(TABLE.get(at(2), 7).is_none() && TABLE.get(at(3), 7).is_some());
        let places = || TABLE.0.iter().flat_map(Table::<_, 2>::places).count();
        assert_eq!((TABLE.all().count(), places()), (50, 99));
        // One that ended unseen is replaced, and the free places are taken first.
        TABLE.insert(at(3), 7, |value| value.store(9, Ordering::Relaxed));
        let place = TABLE.get(at(3), 7).unwrap();
        assert_eq!(place.value.load(Ordering::Relaxed), 9);
        // Who ends an object does not end the one that has come since.
        let mark = place.mark();
        TABLE.insert(at(3), 7, |value| value.store(10, Ordering::Relaxed));
        place.remove(mark);
        assert_eq!(TABLE.get(at(3), 7).unwrap().value.load(Ordering::Relaxed), 10);
        for address in 200..240 {
            TABLE.insert(at(address), 7, |_| ());
        }
        assert_eq!(TABLE.all().count(), 90);
        assert!(places() <= 110, "{}", places());
    }

    #[test]
    fn threads_that_put_in_and_end_at_once_lose_none() {
        static TABLE: Table<AtomicU32, 1> = Table::new();
        std::thread::scope(|scope| {
            for thread in 1..5usize {
                scope.spawn(move || {
                    for round in 0..2000u32 {
                        let address = std::ptr::without_provenance::<u8>(thread << 8);
                        TABLE.insert(address, round, |v| v.store(round, Ordering::Relaxed));
                        let place = TABLE.get(address, round).unwrap();
                        assert_eq!(place.value.load(Ordering::Relaxed), round);
                        place.remove(place.mark());
                    }
                });
            }
        });
        assert_eq!(TABLE.all().count(), 0);
        // Who looks for a free place may miss one that becomes free meanwhile.
        assert!(Table::<_, 1>::places(&TABLE.0[0]).count() <= 16);
    }
}
