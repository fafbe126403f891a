//! A keyed permutation of the 24-bit indices.
//!
//! Slots of the table are dense, so that a key costs no page of its own; the index that a peer
//! sees is a permutation of the slot number. This is obfuscation, not cryptography: whoever sees
//! many keys can solve for it. Protection domains and windows are the real protection.

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
const ROUNDS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Round {
    multiplier: u32,
    inverse: u32,
    addend: u32,
}

/// The permutation drawn from one seed.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    rounds: [Round; ROUNDS],
}

impl Permutation {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        let rounds = core::array::from_fn(|_| {
            let random = split_mix(&mut state);
            let multiplier = random as u32 & MASK | 1;
            Round { multiplier, inverse: invert(multiplier), addend: (random >> 32) as u32 & MASK }
        });
        Self { rounds }
    }

    /// The slot of an index. Hot: it precedes every look-up.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> u32 {
        let mut x = index & MASK;
        for round in &self.rounds {
            x = x.wrapping_mul(round.multiplier).wrapping_add(round.addend) & MASK;
            x ^= x >> (BITS / 2);
        }
        x
    }

    /// The index of a slot.
    pub(super) fn index(&self, slot: u32) -> u32 {
        let mut x = slot & MASK;
        for round in self.rounds.iter().rev() {
            x ^= x >> (BITS / 2);
            x = x.wrapping_sub(round.addend).wrapping_mul(round.inverse) & MASK;
        }
        x
    }
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
            let slot = permutation.slot(index);
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
