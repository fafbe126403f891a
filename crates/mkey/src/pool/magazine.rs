//! Magazines: the few blocks of each size that rest with the thread that freed them last.
//!
//! A thread takes from and puts into its own magazines without a lock and without an atomic
//! read-modify-write. Others may empty them, rarely: they raise the pool's [`Recall`], make every
//! running thread pass a fence, and wait until the owner is out. From then on the owner sees the
//! recall and keeps its hands off, until it is lowered.
//!
//! ```text
//! owner                         the one who recalls (holds the pool's lock)
//! busy = true                   up = true
//! light fence                   heavy fence
//! up? busy = false, give up     wait while busy
//! take or put                   empty the magazines
//! busy = false (release)        up = false (release)
//! ```
//! Either the owner sees `up`, or the other sees `busy`.

use super::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, pause};
use crate::fences::Fences;
use std::ptr::{self, NonNull};

/// Granules of the blocks of each class: two steps a doubling, so that rounding up to a class
/// wastes less than a third of the block.
const SIZES: [u8; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
/// How many classes there are.
pub(super) const CLASSES: usize = SIZES.len();
/// Blocks that a magazine can hold at most.
const DEPTH: usize = if cfg!(loom) { 2 } else { 64 };

const CLASS_OF: [u8; 32] = {
    let mut classes = [0; 32];
    let (mut granules, mut class) = (1, 0);
    while granules <= 32 {
        if granules > SIZES[class] as usize {
            class += 1;
        }
        classes[granules - 1] = class as u8;
        granules += 1;
    }
    classes
};

/// A size class that magazines hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// The smallest class with room for `granules_less_one + 1` granules.
    #[inline]
    pub(super) fn holding(granules_less_one: usize) -> Option<Self> {
        CLASS_OF.get(granules_less_one).map(|class| Self(*class))
    }

    /// The class of exactly this size.
    pub(super) fn exactly(granules: u32) -> Option<Self> {
        let class = Self::holding(usize::try_from(granules).ok()?.checked_sub(1)?)?;
        (class.granules() == granules).then_some(class)
    }

    /// Its size.
    pub(super) fn granules(self) -> u32 {
        SIZES.get(usize::from(self.0)).map_or(0, |size| u32::from(*size))
    }

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES as u8).map(Self)
    }
}

/// Whether blocks go past the magazines: somebody waits for memory, or the pool has gone.
#[derive(Debug, Default)]
pub(super) struct Recall(AtomicBool);

impl Recall {
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Gives the magazines back to their owners, with what was done to them meanwhile.
    pub(super) fn lower(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What became of a block that was to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It rests.
    Rests,
    /// The magazine is full, or blocks of this class do not rest.
    Full,
    /// Blocks are recalled.
    Recalled,
}

/// The magazines of one thread for one pool. `T` is what stands for a block.
#[repr(align(128))]
pub(super) struct Magazines<T> {
    busy: AtomicBool,
    fence: Fences,
    /// Blocks handed out; written by the owner only.
    taken: AtomicU64,
    by_class: [Magazine<T>; CLASSES],
}

struct Magazine<T> {
    len: AtomicUsize,
    /// How many it may hold, at most [`DEPTH`].
    most: usize,
    slots: [AtomicPtr<T>; DEPTH],
}

impl<T> Magazine<T> {
    fn new(most: usize) -> Self {
        let slots = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Self { len: AtomicUsize::new(0), most: most.min(DEPTH), slots }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<T>> {
        let len = self.len.load(Ordering::Relaxed).checked_sub(1)?;
        let block = NonNull::new(self.slots.get(len)?.load(Ordering::Relaxed));
        self.len.store(len, Ordering::Relaxed);
        block
    }

    #[inline]
    fn push(&self, block: NonNull<T>) -> bool {
        let len = self.len.load(Ordering::Relaxed);
        let slot = self.slots.get(len).filter(|_| len < self.most);
        let Some(slot) = slot else { return false };
        slot.store(block.as_ptr(), Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Relaxed);
        true
    }
}

/// The owner is in: dropping it lets the others in, with what the owner did.
struct Inside<'a>(&'a AtomicBool);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> Magazines<T> {
    /// Empty ones that hold at most `bytes` of each class, with granules of `granule` bytes.
    pub(super) fn new(fence: Fences, bytes: usize, granule: usize) -> Self {
        let by_class = std::array::from_fn(|class| {
            let size = SIZES.get(class).map_or(1, |size| usize::from(*size));
            Magazine::new(bytes / size.saturating_mul(granule))
        });
        Self { busy: AtomicBool::new(false), fence, taken: AtomicU64::new(0), by_class }
    }

    /// A block of this class. The owner only.
    #[inline]
    pub(super) fn take(&self, recall: &Recall, class: Class) -> Option<NonNull<T>> {
        let _inside = self.enter(recall)?;
        let block = self.magazine(class)?.pop()?;
        self.taken.store(self.taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Some(block)
    }

    /// Puts a block to rest. The owner only. The pool may be gone when it returns.
    #[inline]
    pub(super) fn put(&self, recall: &Recall, class: Class, block: NonNull<T>) -> Put {
        let Some(_inside) = self.enter(recall) else { return Put::Recalled };
        match self.magazine(class).map(|magazine| magazine.push(block)) {
            Some(true) => Put::Rests,
            _ => Put::Full,
        }
    }

    /// As [`put`](Self::put), for the owner who holds the pool's lock while nothing is recalled.
    pub(super) fn put_locked(&self, class: Class, block: NonNull<T>) -> bool {
        self.magazine(class).is_some_and(|magazine| magazine.push(block))
    }

    /// As [`take`](Self::take), for the owner who holds the pool's lock, or whoever
    /// [shut the owner out](Self::wait_until_out).
    pub(super) fn take_locked(&self, class: Class) -> Option<NonNull<T>> {
        self.magazine(class)?.pop()
    }

    /// Waits until the owner is out. Under the pool's lock, after the recall was raised and the
    /// heavy fence passed: the owner stays out then until it is lowered.
    pub(super) fn wait_until_out(&self) {
        while self.busy.load(Ordering::Acquire) {
            pause();
        }
    }

    /// How many blocks half a full magazine of this class is, at least one unless it holds none.
    pub(super) fn half(&self, class: Class) -> usize {
        self.magazine(class).map_or(0, |magazine| magazine.most.div_ceil(2))
    }

    /// How many blocks have been taken, and how many granules rest; of a running owner from just
    /// now.
    pub(super) fn count(&self) -> (u64, u64) {
        let resting = Class::all().filter_map(|class| {
            let blocks = self.magazine(class)?.len.load(Ordering::Relaxed);
            Some(blocks as u64 * u64::from(class.granules()))
        });
        (self.taken.load(Ordering::Relaxed), resting.sum())
    }

    #[inline]
    fn enter(&self, recall: &Recall) -> Option<Inside<'_>> {
        self.busy.store(true, Ordering::Relaxed);
        let inside = Inside(&self.busy);
        self.fence.light();
        (!recall.is_up()).then_some(inside)
    }

    #[inline]
    fn magazine(&self, class: Class) -> Option<&Magazine<T>> {
        self.by_class.get(usize::from(class.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn a_class_wastes_less_than_a_third_of_a_block() {
        for granules in 1..=32u32 {
            let class = Class::holding(granules as usize - 1).expect("a class");
            assert!(class.granules() >= granules);
            assert!((class.granules() - granules) * 3 < class.granules(), "{granules}");
            assert_eq!(Class::exactly(granules).is_some(), class.granules() == granules);
        }
        assert_eq!(Class::holding(32), None);
        assert_eq!(Class::holding(usize::MAX), None);
        assert_eq!(Class::exactly(0), None);
    }

    #[cfg(not(loom))]
    #[test]
    fn a_magazine_holds_its_bytes_and_no_more() {
        let magazines = Magazines::<u8>::new(Fences::choose(), 16 * 4096, 4096);
        let recall = Recall::default();
        let block = NonNull::<u8>::dangling();
        for class in Class::all() {
            let most = 16 / class.granules();
            for _ in 0..most {
                assert_eq!(magazines.put(&recall, class, block), Put::Rests);
            }
            assert_eq!(magazines.put(&recall, class, block), Put::Full);
        }
        recall.raise();
        let one = Class::holding(0).expect("a class");
        assert_eq!(magazines.put(&recall, one, block), Put::Recalled);
        assert_eq!(magazines.take(&recall, one), None);
        recall.lower();
        assert_eq!(magazines.take(&recall, one), Some(block));
        assert_eq!(magazines.count().0, 1);
    }

    /// Every order of steps of an owner who puts and takes, and of one who recalls: each block is
    /// in one place, what rests when the recall is raised is found, and after it the owner works on.
    #[cfg(loom)]
    #[test]
    fn loom_recalled_blocks_are_found_and_never_twice() {
        use loom::sync::{Arc, Mutex};

        loom::model(|| {
            let one = Class::holding(0).expect("a class");
            let magazines = Arc::new(Magazines::<u8>::new(Fences::choose(), 2, 1));
            let recall = Arc::new(Recall::default());
            // Blocks that went to the pool; 1 and 2 are the two there are.
            let pool = Arc::new(Mutex::new(Vec::new()));
            let block = |n: usize| NonNull::new(ptr::without_provenance_mut::<u8>(n));

            let owner = {
                let (magazines, recall, pool) = (magazines.clone(), recall.clone(), pool.clone());
                loom::thread::spawn(move || {
                    let mut held = Vec::new();
                    for n in [1, 2] {
                        let block = block(n).expect("not null");
                        if magazines.put(&recall, one, block) != Put::Rests {
                            pool.lock().expect("lock").push(n);
                        }
                    }
                    if let Some(block) = magazines.take(&recall, one) {
                        held.push(block.as_ptr().addr());
                    }
                    held
                })
            };

            {
                let mut pool = pool.lock().expect("lock");
                recall.raise();
                assert!(Fences::choose().heavy());
                magazines.wait_until_out();
                while let Some(block) = magazines.take_locked(one) {
                    pool.push(block.as_ptr().addr());
                }
                // Nothing comes to rest while the recall is up.
                assert_eq!(magazines.count().1, 0);
                recall.lower();
            }

            let mut all = owner.join().expect("the owner");
            all.extend(pool.lock().expect("lock").iter());
            while let Some(block) = magazines.take_locked(one) {
                all.push(block.as_ptr().addr());
            }
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }
}
