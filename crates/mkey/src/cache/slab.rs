//! Items at addresses that stay, found by number.

use std::sync::OnceLock;

/// The first chunk's items; each further chunk has twice as many.
const FIRST: u32 = 1 << 10;
const CHUNKS: usize = 22;

/// Grows without moving anything; reading takes no lock.
pub(super) struct Slab<T>([OnceLock<Box<[T]>>; CHUNKS]);

impl<T> Slab<T> {
    /// How many there can be.
    pub(super) const MOST: u32 = FIRST * ((1 << CHUNKS as u32) - 1);

    pub(super) fn new() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }

    /// The chunk of an item and its place in there.
    #[inline]
    fn place(index: u32) -> (usize, usize) {
        let from_first = u64::from(index) + u64::from(FIRST);
        let chunk = from_first.ilog2() - FIRST.ilog2();
        (chunk as usize, (from_first - (u64::from(FIRST) << chunk)) as usize)
    }

    /// The item, if its chunk has been made.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, at) = Self::place(index);
        self.0.get(chunk)?.get()?.get(at)
    }

    /// The item; makes its chunk if need be. None past [`Slab::MOST`].
    pub(super) fn get_or_make(&self, index: u32, make: impl Fn(u32) -> T) -> Option<&T> {
        let (chunk, at) = Self::place(index);
        self.chunk_or_make(chunk, make)?.get(at)
    }

    /// A chunk's items, [`Slab::FIRST`] in the first and twice as many in each further one; makes
    /// them if need be.
    pub(super) fn chunk_or_make(&self, chunk: usize, make: impl Fn(u32) -> T) -> Option<&[T]> {
        Some(self.0.get(chunk)?.get_or_init(|| {
            let items = FIRST << chunk;
            (0..items).map(|i| make(items - FIRST + i)).collect()
        }))
    }

    /// A chunk's items, if they have been made.
    pub(super) fn chunk(&self, chunk: usize) -> Option<&[T]> {
        self.0.get(chunk)?.get().map(|items| &**items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_their_number_and_stay() {
        let slab = Slab::new();
        assert!(slab.get(5).is_none());
        let numbers = [0, 1, 1023, 1024, 3071, 3072, 70_000];
        let places: Vec<_> = numbers
            .iter()
            .map(|&i| std::ptr::from_ref(slab.get_or_make(i, |i| i).expect("room")))
            .collect();
        for (&i, place) in numbers.iter().zip(places) {
            let item = slab.get(i).expect("made");
            assert_eq!((*item, std::ptr::from_ref(item)), (i, place));
        }
    }

    #[test]
    fn past_the_most_there_is_none() {
        let slab = Slab::<u8>::new();
        assert!(slab.get(Slab::<u8>::MOST).is_none() && slab.get(u32::MAX).is_none());
        assert!(slab.get_or_make(Slab::<u8>::MOST, |_| 0).is_none());
    }
}
