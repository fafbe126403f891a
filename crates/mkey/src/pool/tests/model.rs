//! The pool against a list of what is out.

use super::*;
use proptest::prelude::*;

const SLAB: usize = 16 * KIB;
const REGION: usize = 32 * KIB;
const CEILING: usize = 64 * KIB;

#[derive(Clone, Debug)]
enum Step {
    Alloc { len: usize, align_bits: u32 },
    Free(prop::sample::Index),
    Trim,
    FailNext,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..4 * KIB, 1..REGION];
    prop_oneof![
        6 => (len, prop_oneof![4 => Just(0u32), 1 => 0u32..14])
            .prop_map(|(len, align_bits)| Step::Alloc { len, align_bits }),
        5 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => Just(Step::Trim),
        1 => Just(Step::FailNext),
    ]
}

/// A block with the bytes that it takes.
struct Out {
    block: Slice,
    taken: usize,
}

impl Out {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.block.start.as_ptr().addr();
        start..start + self.taken
    }
}

/// The first place for `len` bytes at a multiple of `align` that no block takes, in any slab.
fn gap(fake: &Fake, out: &[Out], len: usize, align: usize) -> Option<usize> {
    let ledger = fake.ledger.lock().expect("ledger");
    ledger.slabs.iter().find_map(|(start, slab, _)| {
        let first = start.next_multiple_of(align);
        (first..start + slab).step_by(align).find(|at| {
            let fits = at + len <= start + slab;
            fits && !out.iter().any(|out| out.range().start < at + len && *at < out.range().end)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// No two blocks overlap; each is aligned and within a slab; refused only if there is no room
    /// and none may be made; floor and ceiling are kept; what was registered is what is still
    /// there; when all is back, each slab is one free run.
    #[test]
    fn the_pool_agrees_with_a_list(
        (granule, skew) in prop_oneof![Just((256, 0)), Just((8 * KIB, 0)), Just((8 * KIB, 4 * KIB))],
        resting in prop_oneof![Just(0), Just(1), Just(8)],
        floor in prop_oneof![Just(0), Just(SLAB), Just(3 * SLAB), Just(CEILING)],
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let fake = Fake { skew, ..Fake::default() };
        let options = PoolOptions::default()
            .min_block(granule)
            .slab(SLAB)
            .floor(floor)
            .ceiling(CEILING)
            .resting(resting * granule);
        let pool = fake.pool(REGION, options);
        let mut out: Vec<Out> = Vec::new();
        let mut canary = 0u8;
        for step in steps {
            match step {
                Step::Alloc { len, align_bits } => {
                    let align = granule.max(1usize << align_bits);
                    let before = pool.stats().in_use_bytes;
                    let may_fail = fake.ledger.lock().expect("ledger").fail > 0;
                    match pool.alloc(Request::new(len).aligned(1 << align_bits)) {
                        Ok(block) => {
                            let taken = (pool.stats().in_use_bytes - before) as usize;
                            let new = Out { block, taken };
                            prop_assert!(taken >= len && taken.is_multiple_of(granule));
                            prop_assert!(new.range().start.is_multiple_of(align));
                            for other in &out {
                                let (a, b) = (new.range(), other.range());
                                prop_assert!(a.end <= b.start || b.end <= a.start);
                            }
                            let ledger = fake.ledger.lock().expect("ledger");
                            let within = ledger.slabs.iter().find(|(start, len, _)| {
                                *start <= new.range().start && new.range().end <= start + len
                            });
                            prop_assert_eq!(within.map(|slab| slab.2), Some(new.block.lkey));
                            drop(ledger);
                            canary = canary.wrapping_add(1);
                            write(&new.block, canary);
                            out.push(new);
                        }
                        Err(PoolError::Full(shortage)) => {
                            let whole = len.next_multiple_of(granule);
                            prop_assert_eq!(gap(&fake, &out, whole, align), None);
                            let slack = align.saturating_sub(4 * KIB);
                            let slab = (whole + slack).next_multiple_of(4 * KIB);
                            prop_assert!(slab > REGION || fake.registered() + slab > CEILING);
                            prop_assert_eq!(shortage.asked, len);
                        }
                        Err(PoolError::Source { .. }) => {
                            prop_assert!(may_fail);
                            let whole = len.next_multiple_of(granule);
                            prop_assert_eq!(gap(&fake, &out, whole, align), None);
                        }
                        Err(error) => prop_assert!(false, "{}", error),
                    }
                }
                Step::Free(index) if !out.is_empty() => {
                    let old = out.swap_remove(index.index(out.len()));
                    // Still what was written: nobody else had it.
                    // SAFETY: the block is ours and was written.
                    let value = unsafe { old.block.start.read() };
                    prop_assert!(holds_only(&old.block, value));
                }
                Step::Free(_) => {}
                Step::Trim => drop(pool.trim()),
                Step::FailNext => fake.fail_next(1),
            }
            let stats = pool.stats();
            prop_assert_eq!(stats.in_use_bytes as usize, out.iter().map(|out| out.taken).sum::<usize>());
            prop_assert_eq!(stats.registered_bytes as usize, fake.registered());
            prop_assert!(fake.registered() >= floor && fake.registered() <= CEILING);
            prop_assert!(stats.high_water_bytes >= stats.in_use_bytes);
        }
        out.clear();
        pool.trim();
        let stats = pool.stats();
        prop_assert_eq!((stats.in_use_bytes, stats.resting_bytes), (0, 0));
        // Whole granules of each slab.
        let ledger = fake.ledger.lock().expect("ledger");
        let whole: Vec<_> = ledger.slabs.iter().map(|(start, len, _)| {
            (start + len - start.next_multiple_of(granule)) / granule * granule
        }).collect();
        drop(ledger);
        let largest = whole.iter().max().copied().unwrap_or(0);
        prop_assert_eq!(stats.largest_free_bytes as usize, largest);
        let scattered = 1.0 - largest as f64 / whole.iter().sum::<usize>() as f64;
        prop_assert!(whole.is_empty() || stats.fragmentation == scattered);
        prop_assert_eq!(stats.grows - stats.shrinks, whole.len() as u64);
        drop(pool);
        prop_assert_eq!(fake.registered(), 0);
    }
}
