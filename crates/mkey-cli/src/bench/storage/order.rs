//! The order of blocks: random, each once in a pass, as fio's random map has it.

/// A walk over all blocks of a disk, a power of two of them, again and again in one random order. So
/// no two I/Os in flight meet in a block, if there are fewer of them than blocks.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    next: u64,
    bits: u32,
}

impl Order {
    /// Over `blocks`, rounded down to a power of two.
    pub fn new(blocks: u64) -> Self {
        Self { next: 0, bits: blocks.max(1).ilog2() }
    }

    /// How many blocks it goes over.
    pub fn blocks(self) -> u64 {
        1 << self.bits
    }

    /// The next block.
    pub fn step(&mut self) -> u64 {
        let mask = self.blocks() - 1;
        let half = self.bits / 2 + 1;
        // Each step can be undone, so that no two numbers lead to the same block.
        let mut block = self.next & mask;
        for odd in [0x9e37_79b9_7f4a_7c15_u64, 0xd6e8_feb8_6659_fd93] {
            block = block.wrapping_mul(odd).wrapping_add(odd >> 7) & mask;
            block ^= block >> half;
        }
        self.next = self.next.wrapping_add(1);
        block
    }
}

/// A fair coin, repeatable.
#[derive(Clone, Copy, Debug)]
pub struct Coin(u64);

impl Coin {
    /// With a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Heads or tails.
    pub fn toss(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 33 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_pass_meets_each_block_once() {
        for blocks in [1, 2, 3, 8, 100, 4096, 16384] {
            let mut order = Order::new(blocks);
            let seen: HashSet<u64> = (0..order.blocks()).map(|_| order.step()).collect();
            assert_eq!(seen.len() as u64, order.blocks(), "{blocks}");
            assert!(seen.iter().all(|block| *block < blocks));
        }
    }

    #[test]
    fn the_order_is_not_that_of_the_disk() {
        let mut order = Order::new(16384);
        let blocks: Vec<u64> = (0..16384).map(|_| order.step()).collect();
        let neighbours = blocks.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 8).count();
        assert!(neighbours < 100, "{neighbours}");
        let low: u64 = blocks.iter().take(1000).map(|block| block & 1).sum();
        assert!((300..700).contains(&low), "{low}");
    }

    #[test]
    fn a_coin_falls_both_ways() {
        let mut coin = Coin::new(7);
        let heads = (0..10_000).filter(|_| coin.toss()).count();
        assert!((4_700..5_300).contains(&heads), "{heads}");
    }
}
