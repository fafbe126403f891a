//! Where a thread keeps its uses: each in a cache line of its own, as near as can be to where the
//! address leads that it was asked for. So a hit touches that one line and no other, which matters
//! once there are more registrations than the processor's caches hold.
//!
//! Lines stay where they are, as those who have a use point to them. When half of them serve a place,
//! four times as many take over: what was served by the old ones comes to the new ones when it is
//! asked for again.

use super::local::Use;
use super::registrar::Registrar;
use super::slab::Slab;
use super::table::Key;
use std::ptr::NonNull;

/// One of the uses of a place.
pub(super) struct Line<R: Registrar>(pub(super) NonNull<Use<R>>);

// SAFETY: leads to a use by shared reference only, and these are `Sync`.
unsafe impl<R: Registrar> Send for Line<R> {}

impl<R: Registrar> Line<R> {
    pub(super) fn used(&self) -> &Use<R> {
        // SAFETY: the cache has both the places and the locals, whose lines stay where they are.
        unsafe { self.0.as_ref() }
    }
}

/// The lines in which a thread looks first: a chunk of its slab.
pub(super) struct Newest<R: Registrar> {
    lines: NonNull<[Use<R>]>,
    chunk: Option<usize>,
    /// What leaves as many bits of a hash as number the lines.
    shift: u32,
    /// Lines that serve a place.
    filled: usize,
}

impl<R: Registrar> Newest<R> {
    /// Chunks from one newest to the next: four times as many lines.
    const STEP: usize = 2;

    pub(super) fn none() -> Self {
        let lines = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);
        Self { lines, chunk: None, shift: u64::BITS - 1, filled: 0 }
    }

    #[inline]
    fn lines(&self) -> &[Use<R>] {
        // SAFETY: none, or a chunk of the slab that lies beside this, which stays.
        unsafe { self.lines.as_ref() }
    }

    #[inline]
    fn place(&self, key: Key) -> usize {
        (key.hash() >> self.shift) as usize
    }

    /// The line to which a key leads.
    #[inline]
    pub(super) fn home(&self, key: Key) -> Option<&Use<R>> {
        self.lines().get(self.place(key))
    }

    /// The one beside it.
    pub(super) fn beside(&self, key: Key) -> Option<&Use<R>> {
        self.lines().get(self.place(key) ^ 1)
    }

    /// Where in here a line is.
    fn position(&self, used: &Use<R>) -> Option<usize> {
        let first = self.lines().first()?.number;
        let position = used.number.checked_sub(first)? as usize;
        (position < self.lines().len()).then_some(position)
    }

    pub(super) fn has(&self, used: &Use<R>) -> bool {
        self.position(used).is_some()
    }

    /// Whether a line is found from a key without being noted.
    pub(super) fn is_near(&self, used: &Use<R>, key: Key) -> bool {
        self.position(used).is_some_and(|position| position ^ self.place(key) <= 1)
    }

    /// A line serves a place from now on (1), or none any more (-1).
    pub(super) fn count(&mut self, used: &Use<R>, by: isize) {
        if self.has(used) {
            self.filled = self.filled.saturating_add_signed(by);
        }
    }

    /// The line nearest to where a key leads that serves no place.
    pub(super) fn free<'a>(
        &mut self,
        key: Key,
        slab: &'a Slab<Use<R>>,
        make: impl Fn(u32) -> Use<R>,
    ) -> Option<&'a Use<R>> {
        if self.filled * 2 >= self.lines().len() {
            let chunk = self.chunk.map_or(0, |chunk| chunk + Self::STEP);
            if let Some(lines) = slab.chunk_or_make(chunk, make) {
                let shift = u64::BITS - lines.len().ilog2();
                *self = Self { lines: NonNull::from(lines), chunk: Some(chunk), shift, filled: 0 };
            }
        }
        let lines = slab.chunk(self.chunk?)?;
        let home = self.place(key);
        (0..lines.len()).filter_map(|away| lines.get(home ^ away)).find(|used| used.is_free())
    }
}
