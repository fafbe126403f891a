//! The cache against a list that is searched from end to end, with failures injected.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

#[derive(Clone, Debug)]
enum Step {
    Get { page: usize, pages: usize, rights: usize },
    Clone(usize),
    Put(usize),
    PutElsewhere(usize),
    Event { page: usize, pages: usize },
    Invalidate { page: usize, pages: usize },
    Maintain,
    Fault,
    NoMemory,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0usize..20, 1usize..6);
    prop_oneof![
        12 => (range(), 0usize..5)
            .prop_map(|((page, pages), rights)| Step::Get { page, pages, rights }),
        1 => (0usize..16).prop_map(Step::Clone),
        6 => (0usize..16).prop_map(Step::Put),
        1 => (0usize..16).prop_map(Step::PutElsewhere),
        1 => range().prop_map(|(page, pages)| Step::Event { page, pages }),
        1 => range().prop_map(|(page, pages)| Step::Invalidate { page, pages }),
        1 => Just(Step::Maintain),
        1 => Just(Step::Fault),
        1 => Just(Step::NoMemory),
        1 => (0u64..12).prop_map(Step::Pass),
    ]
}

const RIGHTS: [Rights; 5] = [
    READ,
    WRITE,
    Rights::REMOTE_READ,
    WRITE.union(Rights::REMOTE_READ),
    WRITE.union(Rights::RELAXED_ORDERING),
];

/// What the cache should know.
#[derive(Default)]
struct Model {
    /// By number: what serves requests, as far as it was not given up to make room.
    serving: BTreeMap<u64, Span>,
    /// What was invalidated or replaced.
    ended: BTreeSet<u64>,
    waiting: Vec<Range<usize>>,
    failed: Vec<(Span, u64)>,
    now: u64,
}

impl Model {
    fn end(&mut self, range: &Range<usize>) {
        let hit = |span: &Span| span.start < range.end && range.start < span.end;
        self.ended.extend(self.serving.iter().filter(|(_, span)| hit(span)).map(|(id, _)| *id));
        self.serving.retain(|_, span| !hit(span));
        self.failed.retain(|(span, _)| !hit(span));
    }

    fn settle(&mut self) {
        for range in std::mem::take(&mut self.waiting) {
            self.end(&range);
        }
    }

    fn serves(has: &Span, wanted: &Span) -> bool {
        has.start <= wanted.start
            && wanted.end <= has.end
            && has.rights.contains(wanted.rights)
            && has.rights.contains(Rights::RELAXED_ORDERING)
                == wanted.rights.contains(Rights::RELAXED_ORDERING)
    }
}

fn run(steps: Vec<Step>, max_count: u64, max_bytes: u64) -> Result<(), TestCaseError> {
    let bench = Bench::with(|config| (config.max_count, config.max_bytes) = (max_count, max_bytes));
    let mut model = Model::default();
    let mut held: Vec<Held<Fake>> = Vec::new();
    for step in steps {
        match step {
            Step::Get { page, pages, rights } => {
                let wanted =
                    Span { start: page * PAGE, end: (page + pages) * PAGE, rights: RIGHTS[rights] };
                model.settle();
                let alive = bench.world.alive();
                model.serving.retain(|id, _| alive.contains_key(id));
                let now = model.now;
                model.failed.retain(|(_, until)| now < *until);
                let hit = model.serving.values().any(|span| Model::serves(span, &wanted));
                let failed = model.failed.iter().any(|(span, _)| *span == wanted);
                let (before, fails) = (bench.world.made(), bench.world.lock().fails.clone());
                match bench.get(page, pages, RIGHTS[rights]) {
                    Ok(got) => {
                        let (id, span) = (id(&got), registration(&got).span);
                        prop_assert!(Model::serves(&span, &wanted));
                        if hit {
                            prop_assert_eq!(bench.world.made(), before, "registered in vain");
                            prop_assert!(model.serving.contains_key(&id), "stale: {}", id);
                        } else {
                            prop_assert_eq!(id, before + 1);
                            prop_assert_eq!(span, wanted, "exactly what was asked for");
                            prop_assert!(!failed);
                            let replaced: Vec<u64> = model
                                .serving
                                .iter()
                                .filter(|(_, other)| Model::serves(&span, other))
                                .map(|(id, _)| *id)
                                .collect();
                            for id in replaced {
                                model.serving.remove(&id);
                                model.ended.insert(id);
                            }
                            model.serving.insert(id, span);
                        }
                        held.push(got);
                    }
                    Err(CacheError::Register(error)) => {
                        prop_assert!(!hit, "refused although registered: {}", error);
                        if !failed {
                            let injected = fails.iter().any(|fail| *fail == error.reason);
                            prop_assert!(injected, "{}", error);
                            if error.errno() != mkey_core::error::errno::ENOMEM {
                                model.failed.push((wanted, model.now + 10));
                            }
                        }
                    }
                    Err(CacheError::Count { most, in_use }) => {
                        prop_assert!(!hit && !failed && most == max_count && in_use == most);
                        let used: BTreeSet<u64> = held.iter().map(id).collect();
                        prop_assert_eq!(used.len() as u64, most, "an idle one could go");
                    }
                    Err(CacheError::Bytes { wanted: bytes, .. }) => {
                        prop_assert!(!hit && !failed && bytes == wanted.len() as u64);
                        let used: BTreeMap<u64, usize> = held
                            .iter()
                            .map(|held| (id(held), registration(held).span.len()))
                            .collect();
                        let used: usize = used.values().sum();
                        prop_assert!(
                            (used + wanted.len()) as u64 > max_bytes,
                            "an idle one could go"
                        );
                    }
                }
            }
            Step::Clone(i) if !held.is_empty() => held.push(held[i % held.len()].clone()),
            Step::Put(i) if !held.is_empty() => drop(held.swap_remove(i % held.len())),
            Step::PutElsewhere(i) if !held.is_empty() => {
                let gone = held.swap_remove(i % held.len());
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(gone));
                });
            }
            Step::Clone(_) | Step::Put(_) | Step::PutElsewhere(_) => {}
            Step::Event { page, pages } => {
                let range = page * PAGE..(page + pages) * PAGE;
                bench.cache.gate.before_read();
                bench.cache.gate.leave(range.clone());
                bench.cache.gate.after_read();
                model.waiting.push(range);
            }
            Step::Invalidate { page, pages } => {
                let range = page * PAGE..(page + pages) * PAGE;
                bench.cache.invalidate(range.clone());
                model.settle();
                model.end(&range);
            }
            Step::Maintain => {
                bench.cache.maintain();
                model.settle();
            }
            Step::Fault => {
                let span = Span { start: 0, end: PAGE, rights: READ };
                bench.world.fail(fault(&span));
            }
            Step::NoMemory => bench.world.fail(no_memory()),
            Step::Pass(milliseconds) => {
                bench.world.pass(milliseconds);
                model.now += milliseconds;
            }
        }
        held.iter().for_each(|held| bench.check(held));
        let alive = bench.world.alive();
        let used: BTreeSet<u64> = held.iter().map(id).collect();
        for id in &model.ended {
            prop_assert_eq!(alive.contains_key(id), used.contains(id), "{} ended", id);
        }
        let stats = bench.cache.stats();
        prop_assert_eq!(stats.registered, alive.len() as u64);
        prop_assert_eq!(
            stats.registered_bytes,
            alive.values().map(|s| s.len() as u64).sum::<u64>()
        );
        prop_assert!(stats.registered <= max_count && stats.registered_bytes <= max_bytes);
        let ended = model.ended.intersection(&used).count();
        prop_assert_eq!(stats.invalid_in_use, ended as u64);
        prop_assert_eq!(
            stats.gets,
            stats.fast_hits + stats.slow_hits + stats.misses + stats.negative_hits + stats.refused
        );
    }
    drop(held);
    bench.close();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_does_as_a_list_would(steps in prop::collection::vec(step(), 1..80)) {
        run(steps, u64::MAX, u64::MAX)?;
    }

    #[test]
    fn so_it_does_when_room_is_short(
        steps in prop::collection::vec(step(), 1..80),
        most in 1u64..6,
        pages in 3u64..16,
    ) {
        run(steps, most, pages * PAGE as u64)?;
    }
}
