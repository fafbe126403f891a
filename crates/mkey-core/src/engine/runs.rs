//! The translation table (MTT): words in runs, for the page lists of on-demand regions and the
//! scatter lists of FRMR. A plain region needs none: it is contiguous in host addresses.

use super::sync::{AtomicU64, Mutex, lock};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const CHUNK_BITS: u32 = if cfg!(loom) { 4 } else { 17 };
const CHUNK: u32 = 1 << CHUNK_BITS;
const CHUNKS: u32 = if cfg!(loom) { 2 } else { 1 << 12 };
const CLASSES: usize = CHUNK_BITS as usize + 1;

/// Words, allocated by powers of two. A run within a chunk is contiguous memory; larger runs are
/// whole chunks in sequence.
#[derive(Debug)]
pub(super) struct Runs {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    /// Freed runs of 2^n words.
    classes: [Vec<u32>; CLASSES],
    /// Freed sequences of chunks: the number by the first chunk. No two touch.
    sequences: BTreeMap<u32, u32>,
    /// Chunks from here on were never used.
    fresh: u32,
}

impl Runs {
    pub(super) fn new() -> Self {
        let mut free = Free { classes: Default::default(), sequences: BTreeMap::new(), fresh: 1 };
        // Chunk 0 comes in halves, so that word 0 is never given out and can stand for "none".
        for class in 0..CHUNK_BITS {
            free.classes[class as usize].push(1 << class);
        }
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), free: Mutex::new(free) }
    }

    /// The first word of a run of at least `words` zeroed words, or `None` if the table is full.
    pub(super) fn allocate(&self, words: u64) -> Option<u32> {
        let rounded = words.max(1).checked_next_power_of_two()?;
        let start = if rounded <= u64::from(CHUNK) {
            lock(&self.free).take(rounded.trailing_zeros() as usize)?
        } else {
            let chunks = u32::try_from(rounded >> CHUNK_BITS).ok()?;
            lock(&self.free).take_chunks(chunks)?.checked_mul(CHUNK)?
        };
        for word in (u64::from(start)..u64::from(start) + words).step_by(CHUNK as usize) {
            self.make(word as u32);
        }
        self.make((u64::from(start) + words.max(1) - 1) as u32);
        for at in 0..words {
            self.word(start, at).store(0, super::sync::Ordering::Relaxed);
        }
        Some(start)
    }

    fn make(&self, word: u32) {
        if let Some(chunk) = self.chunks.get((word >> CHUNK_BITS) as usize) {
            chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        }
    }

    /// Gives back a run of `words` words; nobody uses it any more.
    pub(super) fn free(&self, start: u32, words: u64) {
        let Some(rounded) = words.max(1).checked_next_power_of_two() else { return };
        let mut free = lock(&self.free);
        if rounded < u64::from(CHUNK) {
            free.classes[rounded.trailing_zeros() as usize].push(start);
        } else {
            free.give_chunks(start >> CHUNK_BITS, (rounded >> CHUNK_BITS) as u32);
        }
    }

    /// Word `at` of the run that starts at `start`. Words of runs that were never allocated read
    /// as one shared zero.
    #[inline]
    pub(super) fn word(&self, start: u32, at: u64) -> &AtomicU64 {
        let word = u64::from(start) + at;
        self.chunks
            .get((word >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.get())
            .and_then(|chunk| chunk.get(word as usize % CHUNK as usize))
            .unwrap_or_else(|| nowhere())
    }

    /// The words from `start` on that lie together in memory: all of the run that starts there, if
    /// it lies within a chunk, and what follows it. None if there was never a run.
    #[inline]
    pub(super) fn words(&self, start: u32) -> &[AtomicU64] {
        self.chunks
            .get((start >> CHUNK_BITS) as usize)
            .and_then(|chunk| chunk.get())
            .and_then(|chunk| chunk.get(start as usize % CHUNK as usize..))
            .unwrap_or(&[])
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count() as u64;
        chunks * u64::from(CHUNK) * 8
    }
}

#[cold]
fn nowhere() -> &'static AtomicU64 {
    #[cfg(not(loom))]
    {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        &NOWHERE
    }
    #[cfg(loom)]
    unreachable!("a run is used that was never allocated")
}

impl Free {
    fn take(&mut self, class: usize) -> Option<u32> {
        if let Some(start) = self.classes.get_mut(class)?.pop() {
            return Some(start);
        }
        let whole = if class + 1 < CLASSES {
            self.take(class + 1)?
        } else {
            return self.take_chunks(1)?.checked_mul(CHUNK);
        };
        self.classes[class].push(whole + (1 << class));
        Some(whole)
    }

    /// From the smallest sequence that has room, else from where none was used before.
    fn take_chunks(&mut self, chunks: u32) -> Option<u32> {
        let fits = self.sequences.iter().filter(|&(_, &size)| size >= chunks);
        if let Some((&first, &size)) = fits.min_by_key(|&(_, &size)| size) {
            self.sequences.remove(&first);
            if size > chunks {
                self.sequences.insert(first + chunks, size - chunks);
            }
            return Some(first);
        }
        let first = self.fresh;
        if chunks > CHUNKS - first {
            return None;
        }
        self.fresh += chunks;
        Some(first)
    }

    fn give_chunks(&mut self, mut first: u32, mut chunks: u32) {
        if let Some(after) = self.sequences.remove(&(first + chunks)) {
            chunks += after;
        }
        if let Some((&before, &size)) = self.sequences.range(..first).next_back()
            && before + size == first
        {
            self.sequences.remove(&before);
            (first, chunks) = (before, chunks + size);
        }
        if first + chunks == self.fresh {
            self.fresh = first;
        } else {
            self.sequences.insert(first, chunks);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sync::Ordering;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_table_says_so_and_word_0_is_never_given() {
        let runs = Runs::new();
        assert_eq!(runs.allocate(u64::MAX), None);
        assert_eq!(runs.allocate(u64::from(CHUNK) * u64::from(CHUNKS)), None);
        for words in [1, 2, 3, 1000, u64::from(CHUNK), u64::from(CHUNK) + 1] {
            assert_ne!(runs.allocate(words).expect("there is room"), 0);
        }
    }

    /// Filled with runs of one size and emptied, the table takes any other size.
    #[test]
    fn freed_chunks_serve_runs_of_other_sizes() {
        let runs = Runs::new();
        let mut free = lock(&runs.free);
        for chunks in [2u32, 512, 8, 2048, 3, 1] {
            let taken: Vec<_> = std::iter::from_fn(|| free.take_chunks(chunks)).collect();
            assert_eq!(taken.len() as u32, (CHUNKS - 1) / chunks, "in runs of {chunks}");
            let (even, odd): (Vec<_>, Vec<_>) = taken.iter().partition(|&&first| first % 2 == 0);
            even.into_iter().chain(odd).for_each(|first| free.give_chunks(first, chunks));
        }
        assert_eq!((free.fresh, free.sequences.len()), (1, 0));
    }

    proptest! {
        #[test]
        fn live_runs_never_overlap(steps in prop::collection::vec((1u64..3000, any::<bool>()), 1..80)) {
            let runs = Runs::new();
            let mut live: Vec<(u32, u64)> = Vec::new();
            for (words, drop_one) in steps {
                if drop_one && !live.is_empty() {
                    let (start, words) = live.swap_remove(words as usize % live.len());
                    runs.free(start, words);
                }
                let start = runs.allocate(words).expect("there is room");
                for &(other, size) in &live {
                    let (a, b) = (u64::from(start), u64::from(other));
                    prop_assert!(a + words <= b || b + size <= a);
                }
                for at in 0..words {
                    prop_assert_eq!(runs.word(start, at).swap(1, Ordering::Relaxed), 0);
                }
                live.push((start, words));
            }
        }
    }
}
