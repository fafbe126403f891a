//! The free and taken runs of one slab, in granules: a two-level segregated fit on offsets.
//!
//! Nothing is written into the slab itself: a peer may be able to write there. Free neighbours are
//! always one run. Lists of free runs by size (exact below eight granules, then eight steps a
//! doubling) find a fit in constant time; only where the slab is nearly full are lists searched,
//! so that a request is refused only if there is no room for it.

/// No run.
const NONE: u32 = u32::MAX;
/// Steps a doubling, as a power of two.
const STEP_BITS: u32 = 3;
const STEPS: u32 = 1 << STEP_BITS;
/// Lists for every length of 32 bits.
const LISTS: usize = ((32 - STEP_BITS + 1) * STEPS) as usize;

/// A run, taken or free; valid until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunId(u32);

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u32,
    len: u32,
    free: bool,
    /// Neighbours in the slab.
    before: u32,
    after: u32,
    /// Neighbours in the list of free runs of this size, or of unused entries.
    previous: u32,
    next: u32,
}

/// The runs of one slab.
#[derive(Debug)]
pub(super) struct Runs {
    runs: Vec<Run>,
    unused: u32,
    lists: [u32; LISTS],
    /// Which lists have a run.
    occupied: [u64; LISTS.div_ceil(64)],
    granules: u32,
    free: u32,
    /// What is added to an offset before it is aligned: the slab's own place.
    phase: u32,
}

impl Runs {
    /// One free run of `granules`, the first of which lies `phase` granules after an aligned one.
    pub(super) fn new(granules: u32, phase: u32) -> Self {
        let mut new = Self {
            runs: Vec::new(),
            unused: NONE,
            lists: [NONE; LISTS],
            occupied: [0; LISTS.div_ceil(64)],
            granules,
            free: granules,
            phase,
        };
        let whole = new.entry(Run {
            start: 0,
            len: granules,
            free: false,
            before: NONE,
            after: NONE,
            previous: NONE,
            next: NONE,
        });
        new.link(whole);
        new
    }

    /// Takes `len` granules at a multiple of `align` (a power of two). The run and its offset.
    pub(super) fn take(&mut self, len: u32, align: u32) -> Option<(RunId, u32)> {
        let (id, start) = self.find(len, align)?;
        self.unlink(id);
        let found = self.run(id);
        let lead = start - found.start;
        if lead > 0 {
            let rest = self.split(id, lead);
            self.link(id);
            return Some((self.cut(rest, len), start));
        }
        Some((self.cut(id, len), start))
    }

    /// Gives a run back and joins it with its free neighbours.
    pub(super) fn give(&mut self, RunId(id): RunId) {
        let mut id = id;
        self.free += self.run(id).len;
        let before = self.run(id).before;
        if before != NONE && self.run(before).free {
            self.unlink(before);
            self.join(before);
            id = before;
        }
        let after = self.run(id).after;
        if after != NONE && self.run(after).free {
            self.unlink(after);
            self.join(id);
        }
        self.link(id);
    }

    /// Whether [`take`](Self::take) would succeed.
    pub(super) fn fits(&self, len: u32, align: u32) -> bool {
        self.find(len, align).is_some()
    }

    /// Free granules.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// All granules.
    pub(super) fn granules(&self) -> u32 {
        self.granules
    }

    /// The longest free run.
    pub(super) fn largest_free(&self) -> u32 {
        let last = (0..LISTS).rev().find(|list| self.lists[*list] != NONE);
        last.map_or(0, |list| self.list(list).map(|id| self.run(id).len).max().unwrap_or(0))
    }

    fn find(&self, len: u32, align: u32) -> Option<(u32, u32)> {
        if len == 0 || len > self.free {
            return None;
        }
        // Every run of these lists has room for it wherever it starts.
        let room = len.checked_add(align - 1)?;
        let first = list_of(room);
        let first = if least_of(first) == Some(room) { first } else { first + 1 };
        if let Some(list) = self.occupied_from(first) {
            let id = self.lists[list];
            return Some((id, self.aligned(self.run(id).start, align)?));
        }
        let mut at = list_of(len);
        while let Some(list) = self.occupied_from(at) {
            let fit = self.list(list).find_map(|id| {
                let run = self.run(id);
                let start = self.aligned(run.start, align)?;
                let fits = run.len.checked_sub(start - run.start)? >= len;
                fits.then_some((id, start))
            });
            if fit.is_some() {
                return fit;
            }
            at = list + 1;
        }
        None
    }

    fn aligned(&self, start: u32, align: u32) -> Option<u32> {
        let place = self.phase.wrapping_add(start);
        start.checked_add(place.wrapping_neg() & (align - 1))
    }

    /// The first list at or after `list` with a run.
    fn occupied_from(&self, list: usize) -> Option<usize> {
        let mut word = list / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (list % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn list(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        let some = |id: u32| (id != NONE).then_some(id);
        std::iter::successors(some(self.lists[list]), move |id| some(self.run(*id).next))
    }

    /// Cuts a run that is in no list to `len`; what is left is free.
    fn cut(&mut self, id: u32, len: u32) -> RunId {
        if self.run(id).len > len {
            let rest = self.split(id, len);
            self.link(rest);
        }
        self.free -= len;
        RunId(id)
    }

    /// Splits a run that is in no list after `len`; answers the second part.
    fn split(&mut self, id: u32, len: u32) -> u32 {
        let whole = *self.run(id);
        let rest = self.entry(Run {
            start: whole.start + len,
            len: whole.len - len,
            free: false,
            before: id,
            after: whole.after,
            previous: NONE,
            next: NONE,
        });
        let run = self.run_mut(id);
        run.len = len;
        run.after = rest;
        if whole.after != NONE {
            self.run_mut(whole.after).before = rest;
        }
        rest
    }

    /// Joins a run with the one after it, both in no list.
    fn join(&mut self, id: u32) {
        let gone = self.run(id).after;
        let Run { len, after, .. } = *self.run(gone);
        let run = self.run_mut(id);
        run.len += len;
        run.after = after;
        if after != NONE {
            self.run_mut(after).before = id;
        }
        self.run_mut(gone).next = self.unused;
        self.unused = gone;
    }

    fn link(&mut self, id: u32) {
        let list = list_of(self.run(id).len);
        let next = self.lists[list];
        let run = self.run_mut(id);
        (run.free, run.previous, run.next) = (true, NONE, next);
        if next != NONE {
            self.run_mut(next).previous = id;
        }
        self.lists[list] = id;
        self.occupied[list / 64] |= 1 << (list % 64);
    }

    fn unlink(&mut self, id: u32) {
        let Run { previous, next, len, .. } = *self.run(id);
        self.run_mut(id).free = false;
        if next != NONE {
            self.run_mut(next).previous = previous;
        }
        if previous != NONE {
            self.run_mut(previous).next = next;
            return;
        }
        let list = list_of(len);
        self.lists[list] = next;
        if next == NONE {
            self.occupied[list / 64] &= !(1 << (list % 64));
        }
    }

    fn entry(&mut self, run: Run) -> u32 {
        let id = self.unused;
        if id != NONE {
            self.unused = self.run(id).next;
            *self.run_mut(id) = run;
            return id;
        }
        self.runs.push(run);
        // There are no more runs than granules, and those fit 32 bits.
        (self.runs.len() - 1) as u32
    }

    // Ids come from `entry` and are dropped by `join` only: they are always in range.
    fn run(&self, id: u32) -> &Run {
        &self.runs[id as usize]
    }

    fn run_mut(&mut self, id: u32) -> &mut Run {
        &mut self.runs[id as usize]
    }
}

/// The list for runs of this length.
fn list_of(len: u32) -> usize {
    if len < STEPS {
        return len as usize;
    }
    let shift = len.ilog2() - STEP_BITS;
    (((shift + 1) << STEP_BITS) + ((len >> shift) & (STEPS - 1))) as usize
}

/// The shortest length of a list.
fn least_of(list: usize) -> Option<u32> {
    let list = u32::try_from(list).ok()?;
    if list < STEPS {
        return Some(list);
    }
    let shift = (list >> STEP_BITS) - 1;
    (STEPS + (list & (STEPS - 1))).checked_shl(shift)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_in_order_and_hold_their_lengths() {
        for len in (1..5000).chain([u32::MAX - 1, u32::MAX, 1 << 31]) {
            let list = list_of(len);
            assert!(list < LISTS, "{len}");
            assert!(least_of(list).is_some_and(|least| least <= len), "{len}");
            assert!(least_of(list + 1).is_none_or(|least| least == 0 || least > len), "{len}");
        }
    }

    /// Takes and gives against a map of single granules: no overlap, alignment, refused only if
    /// there is no room, and one whole run at the end.
    #[derive(Clone, Debug)]
    enum Step {
        Take { len: u32, align_bits: u32 },
        Give(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..40, 0u32..6).prop_map(|(len, align_bits)| Step::Take { len, align_bits }),
            any::<prop::sample::Index>().prop_map(Step::Give),
        ]
    }

    proptest! {
        #[test]
        fn runs_agree_with_a_map(
            granules in 1u32..300,
            phase in any::<u32>(),
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut runs = Runs::new(granules, phase);
            let mut taken = vec![false; granules as usize];
            let mut live = Vec::new();
            for step in steps {
                match step {
                    Step::Take { len, align_bits } => {
                        let align = 1u32 << align_bits;
                        let free = |start: u32| {
                            phase.wrapping_add(start).is_multiple_of(align)
                                && start + len <= granules
                                && taken[start as usize..(start + len) as usize].iter().all(|t| !t)
                        };
                        let room = (0..granules).any(free);
                        prop_assert_eq!(runs.fits(len, align), room);
                        let got = runs.take(len, align);
                        prop_assert_eq!(got.is_some(), room);
                        if let Some((id, start)) = got {
                            prop_assert!(free(start));
                            taken[start as usize..(start + len) as usize].fill(true);
                            live.push((id, start, len));
                        }
                    }
                    Step::Give(index) if !live.is_empty() => {
                        let (id, start, len) = live.swap_remove(index.index(live.len()));
                        runs.give(id);
                        taken[start as usize..(start + len) as usize].fill(false);
                    }
                    Step::Give(_) => {}
                }
                let free = taken.iter().filter(|t| !**t).count();
                prop_assert_eq!(runs.free() as usize, free);
                let largest = taken.split(|t| *t).map(<[bool]>::len).max().unwrap_or(0);
                prop_assert_eq!(runs.largest_free() as usize, largest);
            }
            for (id, _, _) in live {
                runs.give(id);
            }
            prop_assert_eq!(runs.largest_free(), granules);
            prop_assert_eq!(runs.free(), granules);
        }
    }
}
