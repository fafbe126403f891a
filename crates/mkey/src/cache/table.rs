//! A thread's guess of which registration an address lies in.
//!
//! A slot names a registration by its number; whether it fits is for the reader to see. So stale
//! slots do no harm and nobody but the owning thread touches the table.

/// Slots that share a cache line are tried one after another.
const LINE: usize = 8;
const FIRST: usize = 1 << 10;
const MOST: usize = 1 << 18;

/// A slot: the key's low half above, the number + 1 below; 0 is empty.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Line>,
    /// What leaves as many bits of a hash as number the lines.
    shift: u32,
    filled: usize,
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u64; LINE]);

/// Where to look for an address: at its page, then at the large block around it, so that a large
/// registration does not need a slot for each of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    const PAGE: u32 = 12;
    const BLOCK: u32 = 21;

    #[inline]
    pub(super) fn page(address: usize) -> Self {
        Self(address as u64 >> Self::PAGE)
    }

    #[inline]
    pub(super) fn block(address: usize) -> Self {
        // The top bits tell blocks from pages.
        Self(!(address as u64 >> Self::BLOCK))
    }

    /// The key under which a registration of `[start, end)` is best found from `address`.
    pub(super) fn best(address: usize, start: usize, end: usize) -> Self {
        let block = address >> Self::BLOCK << Self::BLOCK;
        match block.checked_add(1 << Self::BLOCK) {
            Some(block_end) if start <= block && block_end <= end => Self::block(address),
            _ => Self::page(address),
        }
    }

    /// The number in a slot that may be this key's.
    #[inline]
    fn number(self, slot: u64) -> Option<u32> {
        // Below 1 there is none.
        if (slot >> 32) as u32 == self.0 as u32 { (slot as u32).checked_sub(1) } else { None }
    }

    /// Fibonacci hashing: the upper bits are well mixed.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self::of(FIRST / LINE)
    }

    fn of(lines: usize) -> Self {
        Self { slots: vec![Line([0; LINE]); lines], shift: u64::BITS - lines.ilog2(), filled: 0 }
    }

    /// The number noted under a key where it is looked for first; seldom another key's.
    #[inline]
    pub(super) fn first(&self, key: Key) -> Option<u32> {
        let (at, first) = self.place(key);
        key.number(self.slots.get(at)?.0[first])
    }

    /// All numbers noted under a key, and seldom another's.
    pub(super) fn find(&self, key: Key) -> impl Iterator<Item = u32> + '_ {
        let (at, first) = self.place(key);
        let line = self.slots.get(at).map_or(&[0; LINE], |line| &line.0);
        (0..LINE).filter_map(move |i| key.number(line[(first + i) % LINE]))
    }

    /// Notes a number. `stale` tells numbers that are of no use any more.
    pub(super) fn note(&mut self, key: Key, number: u32, stale: impl Fn(u32) -> bool) {
        if self.filled * 2 > self.slots.len() * LINE && self.slots.len() * LINE < MOST {
            // The addresses of the others are not known here; they come again when needed.
            *self = Self::of(self.slots.len() * 4);
        }
        let (at, first) = self.place(key);
        let Some(Line(line)) = self.slots.get_mut(at) else { return };
        let tag = key.0 as u32;
        let slot = (u64::from(tag) << 32) | (u64::from(number) + 1);
        let empty_or_old =
            |old: u64| old as u32 == 0 || (old >> 32) as u32 == tag || stale(old as u32 - 1);
        let i = (0..LINE).map(|i| (first + i) % LINE).find(|&i| empty_or_old(line[i]));
        let i = i.unwrap_or(first);
        self.filled += usize::from(line[i] == 0);
        line[i] = slot;
    }

    /// The line of a key and the slot in there that is tried first.
    #[inline]
    fn place(&self, key: Key) -> (usize, usize) {
        let hash = key.hash();
        ((hash >> self.shift) as usize, (hash >> 40) as usize % LINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_all_of_100_000_pages_are_found() {
        let mut table = Table::new();
        for _ in 0..8 {
            for page in 0..100_000u32 {
                let key = Key::page(0x7f00_0000_0000 + page as usize * 4096);
                if !table.find(key).any(|number| number == page) {
                    table.note(key, page, |_| false);
                }
            }
        }
        let found = (0..100_000u32)
            .filter(|&page| {
                let key = Key::page(0x7f00_0000_0000 + page as usize * 4096);
                table.find(key).any(|number| number == page)
            })
            .count();
        assert!(found > 99_000, "{found}");
        assert_eq!(table.slots.len() * LINE, MOST);
    }

    #[test]
    fn a_large_registration_is_noted_once_a_block() {
        let mut table = Table::new();
        let (start, end) = (0x4000_0000, 0x8000_0000);
        for page in 0..512 {
            let address = start + page * 4096;
            table.note(Key::best(address, start, end), 7, |_| false);
            assert!(table.find(Key::block(address)).eq([7]));
        }
        assert_eq!(table.filled, 1);
        // At the ragged end of a registration no block is all its.
        let key = Key::best(end - 4096, start, end - 4096);
        table.note(key, 8, |_| false);
        assert!(table.find(Key::page(end - 4096)).eq([8]));
    }

    #[test]
    fn the_ends_of_the_address_space_have_keys() {
        for address in [0, usize::MAX] {
            let _ = Key::best(address, 0, usize::MAX);
        }
    }
}
