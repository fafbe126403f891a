//! Where receives in flight begin, so that two into the same memory are seen.
//!
//! Only receives that begin at the very same address are. Each address has two places; if others have taken
//! both it is not followed: then a mistake is missed, but none is made up.

use super::memory;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places, a power of two.
const PLACES: usize = 1 << 16;

/// The addresses.
pub struct Received {
    places: &'static [[AtomicU64; 2]],
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
        Self { places: memory::zeros(PLACES / 2).unwrap_or_default() }
    }

    /// A receive into memory from `addr` on is posted.
    #[inline]
    pub fn note(&self, addr: u64) -> Noted {
        let [one, two] = self.pair(addr);
        let (first, second) = (one.load(Relaxed), two.load(Relaxed));
        if first == addr || second == addr {
            return if addr == 0 { Noted::Not } else { Noted::Twice };
        }
        // Of two threads that take it at once one is not followed, and finds the other's at its end.
        match (first, second) {
            (0, _) => one.store(addr, Relaxed),
            (_, 0) => two.store(addr, Relaxed),
            _ => return Noted::Not,
        }
        Noted::New
    }

    /// The receive that [`Noted::New`] was said of is done.
    #[inline]
    pub fn forget(&self, addr: u64) {
        for place in self.pair(addr) {
            if place.load(Relaxed) == addr {
                place.store(0, Relaxed);
            }
        }
    }

    #[inline]
    fn pair(&self, addr: u64) -> &[AtomicU64; 2] {
        /// For where there is no memory: taken, as far as anyone sees.
        static NONE: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];
        let hash = addr.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.places.get(hash as usize % (PLACES / 2)).unwrap_or(&NONE)
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
        assert!(kept > 40_000 && kept <= PLACES, "{kept}");
    }
}
