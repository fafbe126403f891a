//! A keyed permutation of the 24-bit indices.
//!
//! Slots of the table are dense, so that a key costs no page of its own; the index that a peer
//! sees is a permutation of the slot number. This is obfuscation, not cryptography: whoever sees
//! many keys can solve for it. Protection domains and windows are the real protection.

use crate::key::Key;

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

/// The permutation drawn from one seed.
///
/// Towards the slot, which precedes every look-up, it is as short as it can be: mask, fold, times,
/// fold, times. Backwards the sequence ends with a fold, so that the low bits of the indices of
/// neighbouring slots differ as irregularly as the high ones.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    /// In the place of a key's index.
    mask: u32,
    multipliers: [u32; 2],
    inverses: [u32; 2],
}

impl Permutation {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let multipliers = core::array::from_fn(|_| split_mix(&mut state) as u32 & MASK | 1);
        let inverses = multipliers.map(invert);
        Self { mask: (split_mix(&mut state) as u32) << 8, multipliers, inverses }
    }

    /// The slot of a key's index.
    #[inline(always)]
    pub(super) fn slot(&self, key: Key) -> u32 {
        let x = fold(Key(key.0 ^ self.mask).index()).wrapping_mul(self.multipliers[0]);
        fold(x).wrapping_mul(self.multipliers[1]) & MASK
    }

    /// The index of a slot.
    #[inline]
    pub(super) fn index(&self, slot: u32) -> u32 {
        let x = fold(slot.wrapping_mul(self.inverses[1]));
        fold(x.wrapping_mul(self.inverses[0])) & MASK ^ self.mask >> 8
    }
}

/// Mixes the upper half of the index bits into the lower one; its own inverse. What lies above
/// the index bits does not matter and stays.
#[inline(always)]
const fn fold(x: u32) -> u32 {
    x ^ (x & MASK) >> (BITS / 2)
}

/// The inverse of an odd number modulo 2^32, by Newton's iteration: each step doubles the number
/// of right bits, of which an odd number has 3 to begin with.
fn invert(odd: u32) -> u32 {
    let mut inverse = odd;
    for _ in 0..4 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
    }
    inverse
}

/// The SplitMix64 generator (Steele, Lea, Flood 2014).
pub(super) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_its_own_slot_and_back() {
        let permutation = Permutation::new(7);
        let mut seen = vec![false; 1 << BITS];
        for index in 0..1 << BITS {
            let slot = permutation.slot(Key::new(index, index as u8));
            assert!(!core::mem::replace(&mut seen[slot as usize], true));
            assert_eq!(permutation.index(slot), index);
        }
    }

    #[test]
    fn seeds_give_different_permutations_and_neighbours_part() {
        let (a, b) = (Permutation::new(1), Permutation::new(2));
        let same = (0..4096).filter(|&slot| a.index(slot) == b.index(slot)).count();
        assert!(same < 8, "{same}");
        let steps: std::collections::HashSet<u32> =
            (0..4096).map(|slot| a.index(slot + 1).wrapping_sub(a.index(slot)) & MASK).collect();
        assert!(steps.len() > 2048, "consecutive slots step by {} distances only", steps.len());
    }
}
