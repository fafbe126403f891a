//! Where receives in flight begin, so that two into the same memory are seen.
//!
//! Only receives that begin at the very same address are. Each address has four places, in one cache line; if
//! others have taken all it is not followed: then a mistake is missed, but none is made up. The table is small,
//! since what is looked up in it all the time should be found without the pages' own table.

use super::memory;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places of one hash, and hashes, a power of two.
const WAYS: usize = 4;
const HASHES: usize = 1 << 13;

type Ways = [AtomicU64; WAYS];

/// The addresses.
pub struct Received {
    places: &'static [Ways],
}

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is followed until [`Received::forget`].
    New,
    /// Another receive in flight has it.
    Twice,
    /// There is no place.
    Not,
}

impl Received {
    /// None yet. Without memory none ever is.
    pub fn new() -> Self {
        Self { places: memory::zeros(HASHES).unwrap_or_default() }
    }

    /// A receive into memory from `addr` on is posted.
    #[inline]
    pub fn note(&self, addr: u64) -> Noted {
        let mut free = None;
        for place in self.places(addr) {
            match place.load(Relaxed) {
                0 => free = Some(place),
                other if other == addr => return Noted::Twice,
                _ => {}
            }
        }
        match free {
            // Of two threads that take it at once one is not followed, and finds the other's at its end.
            Some(place) if addr != 0 => {
                place.store(addr, Relaxed);
                Noted::New
            }
            _ => Noted::Not,
        }
    }

    /// The receive that [`Noted::New`] was said of is done.
    #[inline]
    pub fn forget(&self, addr: u64) {
        for place in self.places(addr) {
            if place.load(Relaxed) == addr {
                place.store(0, Relaxed);
            }
        }
    }

    #[inline]
    fn places(&self, addr: u64) -> &Ways {
        /// For where there is no memory: taken, as far as anyone sees.
        static NONE: Ways = [const { AtomicU64::new(u64::MAX) }; WAYS];
        let hash = addr.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.places.get(hash as usize % HASHES).unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_until_it_is_forgotten() {
        let received = Received::new();
        assert_eq!(received.note(0x7000), Noted::New);
        assert_eq!(received.note(0x7000), Noted::Twice);
        received.forget(0x7000);
        assert_eq!(received.note(0x7000), Noted::New);
        assert_eq!(received.note(0), Noted::Not);
    }

    #[test]
    fn addresses_without_a_place_are_never_said_to_be_there() {
        let received = Received::new();
        let kept = (1..100_000_u64).filter(|n| received.note(n * 4096) == Noted::New).count();
        assert!(kept > 24_000 && kept <= WAYS * HASHES, "{kept}");
    }
}
