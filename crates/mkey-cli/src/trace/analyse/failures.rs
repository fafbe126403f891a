//! What failed: calls, and work that completed in error, with what `mkey explain` says of it.

use super::ground::Ground;
use super::list::List;
use super::places::Place;
use super::thresholds::CAUSES;
use crate::explain::errno;
use crate::explain::find::Found;
use crate::explain::report::{Maker, Section};
use crate::explain::texts::Library;
use crate::lang::Lang;
use mkey_trace::format::Recording;
use serde::Serialize;
use std::collections::BTreeMap;

/// What failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// Calls that failed, by verb, errno and place, those that failed most first.
    pub calls: List<FailedCalls>,
    /// How many calls failed.
    pub failed_calls: u64,
    /// Work that completed in error, by status; that which was only flushed last.
    pub work: List<FailedWork>,
    /// How many work requests completed in error, those that were only flushed not among them.
    pub failed_work: u64,
    /// How many were only flushed, because their queue pair was in the error state.
    pub flushed_work: u64,
}

/// Calls that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedCalls {
    /// The verb.
    pub verb: String,
    /// What it failed with, and its name.
    pub errno: i32,
    /// See `errno`.
    pub name: String,
    /// How often.
    pub times: u64,
    /// Where.
    pub place: Place,
    /// What it means.
    pub explained: Option<Explained>,
}

/// Work that completed in error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedWork {
    /// The status, and its name.
    pub status: u32,
    /// See `status`.
    pub name: String,
    /// What the device said besides; nothing if it was not the same each time.
    pub vendor: Option<u32>,
    /// How often, on how many queues.
    pub times: u64,
    /// See `times`.
    pub queues: u64,
    /// The first: when, and on the queue of this number.
    pub first_at: u64,
    /// See `first_at`.
    pub first_queue: u32,
    /// What it means.
    pub explained: Option<Explained>,
}

/// What something means, as `mkey explain` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// What it means.
    pub meaning: String,
    /// Why it happens, the likeliest first.
    pub causes: Vec<Cause>,
}

/// Why it happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// What it is.
    pub cause: String,
    /// How to tell it.
    pub tell: String,
    /// What mends it.
    pub mend: String,
}

/// `IBV_WC_WR_FLUSH_ERR`.
const FLUSHED: u32 = 5;

impl Failures {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>, lang: Lang) -> Self {
        // The texts are in the program: a test rules out that they can not be read.
        let library = Library::load().unwrap_or_default();
        let maker = Maker { library: &library, lang, process: None };
        let mut all = Self::default();
        all.calls(ground, &maker);
        all.work(ground.recording, &maker);
        all
    }

    fn calls(&mut self, ground: &Ground<'_>, maker: &Maker<'_>) {
        let mut groups: BTreeMap<(&str, i32, usize), u64> = BTreeMap::new();
        for call in ground.recording.calls.iter().filter(|call| call.errno != 0) {
            self.failed_calls += 1;
            let place = ground.places.number(call.stack);
            *groups.entry((&call.verb, call.errno, place)).or_default() += 1;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        self.calls = List::of(groups).map(|((verb, errno, place), times)| FailedCalls {
            verb: verb.to_owned(),
            errno,
            name: name(errno),
            times,
            place: ground.places.get(place),
            explained: explain_call(maker, verb, &name(errno)),
        });
    }

    fn work(&mut self, recording: &Recording, maker: &Maker<'_>) {
        let mut groups: BTreeMap<u32, FailedWork> = BTreeMap::new();
        for failure in &recording.failures {
            let sum = if failure.status == FLUSHED {
                &mut self.flushed_work
            } else {
                &mut self.failed_work
            };
            *sum = sum.saturating_add(failure.times);
            let queue = Recording::by_id(&recording.queues, failure.queue);
            let device = queue.and_then(|queue| Recording::by_id(&recording.devices, queue.device));
            let group = groups.entry(failure.status).or_insert_with(|| FailedWork {
                status: failure.status,
                name: status(maker, failure.status),
                vendor: Some(failure.vendor),
                times: 0,
                queues: 0,
                first_at: u64::MAX,
                first_queue: 0,
                explained: None,
            });
            group.times = group.times.saturating_add(failure.times);
            group.queues += 1;
            group.vendor = group.vendor.filter(|vendor| *vendor == failure.vendor);
            if failure.at < group.first_at {
                group.first_at = failure.at;
                group.first_queue = queue.map_or(0, |queue| queue.number);
                let mlx5 = device.is_some_and(|device| device.name.starts_with("mlx5"));
                let vendor = mlx5.then_some(failure.vendor);
                group.explained = explain_work(maker, failure.status, vendor);
            }
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|work| (work.status == FLUSHED, std::cmp::Reverse(work.times)));
        self.work = List::of(groups);
    }
}

/// The name of an errno, or its number.
fn name(errno: i32) -> String {
    let known = errno::name_of(u64::from(errno.unsigned_abs()));
    known.map_or_else(|| format!("errno {errno}"), str::to_owned)
}

/// The name of a completion status, or its number.
fn status(maker: &Maker<'_>, status: u32) -> String {
    let entry = maker.library.entry(&format!("status/{status}"));
    let name = entry.and_then(|entry| entry.names.first());
    name.cloned().unwrap_or_else(|| format!("status {status}"))
}

fn explain_call(maker: &Maker<'_>, verb: &str, errno: &str) -> Option<Explained> {
    let of_verb = errno::verb_in_text(verb).map(|verb| format!("errno/{verb}/{errno}"));
    let entry = of_verb.and_then(|id| maker.library.entry(&id));
    let entry = entry.or_else(|| maker.library.entry(&format!("errno/any/{errno}")))?;
    Some(explained(maker.section(&Found::Entry(entry))))
}

fn explain_work(maker: &Maker<'_>, status: u32, vendor: Option<u32>) -> Option<Explained> {
    let entry = maker.library.entry(&format!("status/{status}"))?;
    let mut explained = explained(maker.section(&Found::Entry(entry)));
    // What the vendor's number says of the cause counts for more than the order of the texts.
    if let Some(vendor) = vendor.and_then(|vendor| u8::try_from(vendor).ok()).filter(|v| *v != 0)
        && crate::explain::vendor::status_of(vendor).map(u64::from) == Some(u64::from(status))
    {
        let section = maker.section(&Found::Vendor(vendor));
        explained.causes = self::explained(section).causes;
    }
    Some(explained)
}

fn explained(section: Section) -> Explained {
    let causes = section.causes.into_iter().take(CAUSES).map(|ranked| Cause {
        cause: ranked.cause,
        tell: ranked.tell,
        mend: ranked.mend,
    });
    Explained { meaning: section.meaning, causes: causes.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use mkey_trace::format::{Failure, Queue};

    #[test]
    fn calls_are_explained_by_verb_and_errno() {
        let mut builder = Builder::new();
        let place = builder.place("setup", 3);
        for (verb, errno) in [
            ("ibv_reg_mr_iova", 12),
            ("ibv_reg_mr_iova", 12),
            ("ibv_create_srq", 12),
            ("ibv_open_device", 19),
            ("ibv_reg_mr", 999),
            ("ibv_reg_mr", 0),
        ] {
            builder.call(verb, 0, 1, place).errno = errno;
        }
        let all = Failures::of(&Ground::new(&builder.recording), Lang::En);
        assert_eq!((all.failed_calls, all.calls.count()), (5, 4));
        let first = &all.calls.first[0];
        assert_eq!(
            (first.verb.as_str(), first.name.as_str(), first.times),
            ("ibv_reg_mr_iova", "ENOMEM", 2)
        );
        let explained = first.explained.as_ref().unwrap();
        assert!(explained.meaning.contains("limit"), "{explained:?}");
        assert!(explained.causes[0].mend.contains("memlock"), "{explained:?}");
        let of = |verb: &str| all.calls.first.iter().find(|call| call.verb == verb).unwrap();
        assert!(
            of("ibv_create_srq").explained.is_some() && of("ibv_open_device").explained.is_some()
        );
        assert_eq!(
            (of("ibv_reg_mr").name.as_str(), &of("ibv_reg_mr").explained),
            ("errno 999", &None)
        );
    }

    #[test]
    fn work_is_explained_by_status_and_what_is_flushed_stands_last() {
        let mut builder = Builder::new();
        builder.recording.queues.push(Queue { id: 1, device: 1, number: 17, ..Queue::default() });
        builder.recording.devices[0].name = "mlx5_0".to_owned();
        let failure =
            |status, vendor, at, times| Failure { process: 1, queue: 1, at, status, vendor, times };
        builder.recording.failures = vec![
            failure(5, 0xf9, 20, 100),
            failure(4, 0x52, 10, 1),
            failure(10, 0x88, 30, 2),
            failure(99, 0, 1, 1),
        ];
        let all = Failures::of(&Ground::new(&builder.recording), Lang::En);
        assert_eq!((all.failed_work, all.flushed_work), (4, 100));
        let names: Vec<_> = all.work.first.iter().map(|work| work.name.as_str()).collect();
        assert_eq!(
            names,
            ["IBV_WC_REM_ACCESS_ERR", "IBV_WC_LOC_PROT_ERR", "status 99", "IBV_WC_WR_FLUSH_ERR"]
        );
        let local = &all.work.first[1];
        assert_eq!((local.first_queue, local.first_at, local.vendor), (17, 10, Some(0x52)));
        let cause = &local.explained.as_ref().unwrap().causes[0].cause;
        assert!(cause.contains("different PDs"), "{cause}");
    }

    #[test]
    fn the_texts_can_be_read_in_both_languages() {
        let mut builder = Builder::new();
        builder.call("ibv_reg_mr", 0, 1, 0).errno = 14;
        let meaning = |lang| {
            let all = Failures::of(&Ground::new(&builder.recording), lang);
            all.calls.first[0].explained.clone().unwrap().meaning
        };
        assert_ne!(meaning(Lang::En), meaning(Lang::Zh));
    }
}
