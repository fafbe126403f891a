//! Page-aligned memory for tests, whose whole content is known at every moment.
//!
//! A peer may write it at any time, so it is read and written by volatile accesses only and never
//! lent as a slice. Beside it stands a shadow: what the content has to be. [`Memory::check`]
//! compares all of it, so a byte written where none may be written is found.

use crate::fixture::locked;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ops::Range;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// An anonymous private mapping.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    len: usize,
    shadow: Mutex<Vec<u8>>,
    /// Ranges that were taken away and can not be read.
    holes: Mutex<Vec<Range<usize>>>,
}

// SAFETY: the mapping is owned by this value alone, and every access to it is volatile.
unsafe impl Send for Memory {}
// SAFETY: as above; the shadow and the holes are behind locks.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `pages` pages and fills them with bytes that no other memory of this process has.
    #[track_caller]
    pub fn filled(pages: usize) -> Self {
        static SEED: AtomicU64 = AtomicU64::new(1);
        let memory = Self::untouched(pages);
        let mut word = SEED.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut content = Vec::with_capacity(memory.len);
        while content.len() < memory.len {
            // splitmix64: bytes that repeat neither within the memory nor between memories.
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            content.extend((mixed ^ mixed >> 31).to_le_bytes());
        }
        memory.set(0, &content);
        memory
    }

    /// Maps `pages` pages without touching them: zeros, no page present.
    #[track_caller]
    pub fn untouched(pages: usize) -> Self {
        let memory = Self::sparse(pages);
        locked(&memory.shadow).resize(memory.len, 0);
        memory
    }

    /// The same without a shadow, for more memory than the machine has: it can only be read.
    #[track_caller]
    pub fn sparse(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: a new anonymous mapping where the kernel likes; nothing else is affected.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let base = base.expect("test memory can be mapped").cast();
        Self { base, len, shadow: Mutex::default(), holes: Mutex::default() }
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes `bytes` at `offset`, into the shadow too.
    #[track_caller]
    pub fn set(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "a write of the test itself is out of range");
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping, as asserted; test code does not write where it has
            // taken the page away.
            unsafe { self.base.add(offset + i).write_volatile(byte) };
        }
        self.expect(offset, bytes);
    }

    /// The bytes of `range` as they are now.
    #[track_caller]
    pub fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.len, "a read of the test itself is out of range");
        // SAFETY: within the mapping, as asserted.
        range.map(|i| unsafe { self.base.add(i).read_volatile() }).collect()
    }

    /// Writes a word of every 8 bytes of `range`, such as `word` makes of its offset. The shadow is
    /// left as it is.
    #[track_caller]
    pub fn fill(&self, range: Range<usize>, word: impl Fn(usize) -> u64) {
        assert!(range.end <= self.len, "a write of the test itself is out of range");
        for at in range.step_by(8) {
            // SAFETY: within the mapping, as asserted, whose length is a multiple of 8 and whose
            // start is aligned; test code does not write where it has taken the page away.
            unsafe { self.base.add(at).cast::<u64>().write_volatile(word(at)) };
        }
    }

    /// A hash (FNV-1a over words) of the bytes of `range`, whole words, as they are now.
    #[track_caller]
    pub fn hash(&self, range: Range<usize>) -> u64 {
        assert!(range.end <= self.len, "a read of the test itself is out of range");
        range.step_by(8).fold(0xcbf2_9ce4_8422_2325, |hash, at| {
            // SAFETY: within the mapping, as asserted, and aligned as above.
            let word = unsafe { self.base.add(at).cast::<u64>().read_volatile() };
            (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// What the device must have written at `offset`: changes the shadow, not the memory.
    #[track_caller]
    pub fn expect(&self, offset: usize, bytes: &[u8]) {
        locked(&self.shadow)[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// What the shadow says of `range`.
    pub fn expected(&self, range: Range<usize>) -> Vec<u8> {
        locked(&self.shadow)[range].to_vec()
    }

    /// Compares all that can be read with the shadow.
    #[track_caller]
    pub fn check(&self) {
        let shadow = locked(&self.shadow);
        let holes = locked(&self.holes);
        for page in 0..self.len / PAGE {
            let range = page * PAGE..(page + 1) * PAGE;
            if holes.iter().any(|hole| hole.contains(&range.start)) {
                continue;
            }
            let now = self.bytes(range.clone());
            let wrong = now.iter().zip(&shadow[range.clone()]).position(|(a, b)| a != b);
            if let Some(at) = wrong {
                panic!(
                    "byte {:#x} of the memory at {:p} is {:#04x}, but has to be {:#04x}",
                    range.start + at,
                    self.base,
                    now[at],
                    shadow[range.start + at]
                );
            }
        }
    }

    /// Gives the pages of `range` back to the kernel; they read as zeros from now on.
    #[track_caller]
    pub fn discard(&self, range: Range<usize>) {
        // SAFETY: whole pages of our own mapping, of which no reference exists.
        unsafe {
            rustix::mm::madvise(
                self.base.add(range.start).cast(),
                range.len(),
                Advice::LinuxDontNeed,
            )
        }
        .expect("madvise");
        self.expect(range.start, &vec![0; range.len()]);
    }

    /// Takes `range` away: an inaccessible mapping is laid over it, so that nothing else of the
    /// process can come to lie there as it could after a bare `munmap`.
    #[track_caller]
    pub fn unmap(&self, range: Range<usize>) {
        // Nobody may compare while the range is neither readable nor noted as a hole.
        let mut holes = locked(&self.holes);
        // SAFETY: replaces whole pages of our own mapping, of which no reference exists; reads
        // skip holes from now on.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.base.add(range.start).cast(),
                range.len(),
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        }
        .expect("mmap over test memory");
        holes.push(range);
    }

    /// Lays new zeroed pages over `range`, as `munmap` and `mmap` at the same address do.
    #[track_caller]
    pub fn remap(&self, range: Range<usize>) {
        let mut holes = locked(&self.holes);
        // SAFETY: replaces whole pages of our own mapping, of which no reference exists.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.base.add(range.start).cast(),
                range.len(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        }
        .expect("mmap over test memory");
        holes.retain(|hole| *hole != range);
        drop(holes);
        self.expect(range.start, &vec![0; range.len()]);
    }

    /// Makes `range` read-only.
    #[track_caller]
    pub fn make_read_only(&self, range: Range<usize>) {
        // SAFETY: whole pages of our own mapping; test code does not write there any more.
        unsafe {
            rustix::mm::mprotect(
                self.base.add(range.start).cast(),
                range.len(),
                MprotectFlags::READ,
            )
        }
        .expect("mprotect");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, holes included; the fixture has closed the device before.
        // A failure leaks the mapping, which a test can live with.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}
