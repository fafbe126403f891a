//! What each strategy would have cost for the run of a recording.

use super::dry::{self, CacheRun, PoolRun};
use super::host::{Host, Straight};
use super::recorded::{Cost, Recorded, later};
use super::{Part, Predicted, Source};
use crate::bench::measure::median;
use crate::bench::report::{Missing, Outcome};
use crate::bench::units::size;
use crate::replay::layout::Layout;
use crate::replay::script::{PAGE, Registered, Script};
use crate::replay::strategy::Strategy;
use mkey_os::mapping::PageKind;

/// What is known of a run and of this machine.
#[derive(Debug)]
pub struct Known<'a> {
    scripts: &'a [Script],
    recorded: Recorded,
    /// The same of memory that had been registered before.
    again: Recorded,
    host: &'a Host,
    /// What calls took beyond this machine's line, in the median; not less than nothing.
    beyond: Vec<((PageKind, Verb), f64)>,
    caches: Result<Vec<CacheRun>>,
    pools: Result<Vec<PoolRun>>,
}

/// How often, in words: of one, of several.
type Words = (&'static str, &'static str);

/// A sum of costs of one source in the making.
#[derive(Default)]
struct Sum {
    times: u64,
    ns: f64,
}

impl Sum {
    fn add(&mut self, ns: f64) {
        self.times += 1;
        self.ns += ns;
    }

    fn part(self, (one, several): Words, source: Source) -> Option<Part> {
        let Self { times, ns } = self;
        let what = if times == 1 { one } else { several };
        (times > 0).then(|| Part { what: what.to_owned(), times, ns, source })
    }
}

/// Registrations, by where their costs come from.
#[derive(Default)]
struct Sums {
    recorded: Sum,
    model: Sum,
}

impl Sums {
    fn add(&mut self, (ns, source): (f64, Source)) {
        match source {
            Source::Recorded => self.recorded.add(ns),
            Source::Measured | Source::Model => self.model.add(ns),
        }
    }

    fn parts(self, what: Words) -> impl Iterator<Item = Part> {
        let recorded = self.recorded.part(what, Source::Recorded);
        let model = self.model.part(what, Source::Model);
        recorded.into_iter().chain(model)
    }
}

type Result<T> = std::result::Result<T, Missing>;

/// What is kept is given up then.
const AT_THE_END: Words = ("deregistration at the end", "deregistrations at the end");

/// The verbs of a registration.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Register,
    Deregister,
}

impl Verb {
    /// What it took in the recording.
    fn took(self, range: &Registered) -> Option<f64> {
        let ns = match self {
            Self::Register => range.register_ns,
            Self::Deregister => range.deregister_ns,
        };
        ns.map(|ns| ns as f64)
    }
}

/// What a verb takes for so many bytes by this machine's line.
fn line(host: &Host, pages: PageKind, verb: Verb, bytes: u64) -> Option<f64> {
    let (costs, page) = match pages {
        PageKind::Base => (host.base.as_ref()?, PAGE),
        _ => (host.huge.as_ref()?, PageKind::Huge2M.size() as u64),
    };
    let line: Straight = match verb {
        Verb::Register => costs.register,
        Verb::Deregister => costs.deregister,
    };
    Some(line.at(bytes.div_ceil(page).max(1) as f64))
}

/// What calls took beyond that; `None`: there was none to compare. Best on memory that was registered
/// before, of these pages or of others: pages that come in are no part of it.
fn beyond(scripts: &[Script], host: &Host, (pages, verb): (PageKind, Verb)) -> Option<f64> {
    let over = |range: &Registered| {
        Some(verb.took(range)? - line(host, range.pages, verb, range.bytes())?)
    };
    let again = || scripts.iter().flat_map(Script::again);
    let same = |range: &&Registered| range.pages == pages;
    let others = || scripts.iter().flat_map(later).filter(same);
    let middle = |of: Vec<f64>| median(&mut { of });
    let beyond = middle(again().filter(same).filter_map(over).collect())
        .or_else(|| middle(again().filter_map(over).collect()))
        .or_else(|| middle(others().filter_map(over).collect()));
    Some(beyond?.max(0.0))
}

/// The cost of a verb.
fn of(cost: Cost, verb: Verb) -> Option<f64> {
    match verb {
        Verb::Register => cost.register,
        Verb::Deregister => cost.deregister,
    }
}

impl<'a> Known<'a> {
    /// Puts the requests of the processes to the library's cache and pool.
    pub fn new(scripts: &'a [Script], host: &'a Host) -> Self {
        let caches = scripts.iter().map(|script| dry::cache(script).map_err(|e| e.missing()));
        let pools = scripts.iter().map(|script| dry::pool(script).map_err(|e| e.missing()));
        let (caches, pools) = (caches.collect(), pools.collect());
        let kinds = PageKind::LADDER.into_iter();
        let kinds = kinds.flat_map(|pages| [Verb::Register, Verb::Deregister].map(|v| (pages, v)));
        let beyond = kinds.filter_map(|of| Some((of, beyond(scripts, host, of)?))).collect();
        let (recorded, again) = (Recorded::of(scripts), Recorded::of_again(scripts));
        Self { scripts, recorded, again, host, beyond, caches, pools }
    }

    /// What a strategy would have cost.
    pub fn predict(&self, strategy: Strategy) -> Outcome<Predicted> {
        let predicted = match strategy {
            Strategy::AsRecorded => Ok(self.as_recorded()),
            Strategy::Once => self.once(),
            Strategy::Cache => self.cache(),
            Strategy::Pool => self.pool(false),
            Strategy::Bounce => self.pool(true),
            Strategy::Huge => self.huge(),
            Strategy::Mw => self.granted(strategy, self.host.window_ns),
            Strategy::Frmr => self.granted(strategy, self.host.fast_ns),
        };
        match predicted {
            Ok(predicted) => Outcome::Measured(Box::new(predicted)),
            Err(missing) => Outcome::NotMeasured(missing),
        }
    }

    fn ranges(&self) -> impl Iterator<Item = &Registered> {
        self.scripts.iter().flat_map(|script| &script.ranges)
    }

    fn as_recorded(&self) -> Predicted {
        let mut register = Sum::default();
        let mut deregister = Sum::default();
        for range in self.ranges() {
            range.register_ns.iter().for_each(|ns| register.add(*ns as f64));
            range.deregister_ns.iter().for_each(|ns| deregister.add(*ns as f64));
        }
        let parts = [
            register.part(("registration", "registrations"), Source::Recorded),
            deregister.part(("deregistration", "deregistrations"), Source::Recorded),
        ];
        let most = self.scripts.iter().map(Script::most_bytes).fold(0, u64::saturating_add);
        Predicted::of(parts.into_iter().flatten().collect(), self.ranges().count() as u64, most)
    }

    /// What a verb costs for a range that was in the recording.
    fn own(&self, range: &Registered, verb: Verb) -> Result<(f64, Source)> {
        match verb.took(range) {
            Some(ns) => Ok((ns, Source::Recorded)),
            None => self.cost(range.pages, range.bytes(), verb),
        }
    }

    /// What a verb costs for so many bytes on such pages: as recorded for others of that size, else by
    /// this machine's line.
    fn cost(&self, pages: PageKind, bytes: u64, verb: Verb) -> Result<(f64, Source)> {
        if let Some(ns) = self.recorded.about(pages, bytes).and_then(|cost| of(cost, verb)) {
            return Ok((ns, Source::Recorded));
        }
        let ns = self.model(pages, bytes, verb).ok_or_else(|| {
            let bytes = size(bytes);
            Missing::plain(format!(
                "what {bytes} on {pages} pages cost was neither recorded nor measured here"
            ))
        })?;
        Ok((ns, Source::Model))
    }

    /// By this machine's line, moved by what the calls of the recording took beyond it: a NIC's command
    /// shows there, and not in the line of a software RNIC.
    fn model(&self, pages: PageKind, bytes: u64, verb: Verb) -> Option<f64> {
        let beyond = self.beyond.iter().find(|(of, ..)| *of == (pages, verb));
        Some(line(self.host, pages, verb, bytes)? + beyond.map_or(0.0, |(_, ns)| *ns))
    }

    /// What registering memory for the first time took beyond registering as much again: pages come in
    /// then, and what a process makes once is made. Whatever registers that memory first pays it.
    fn set_up(&self) -> Option<Part> {
        let mut sum = Sum::default();
        for script in self.scripts {
            for range in script.firsts() {
                let Some(ns) = range.register_ns.map(|ns| ns as f64) else { continue };
                let again = self.again.about(range.pages, range.bytes());
                let again = again.and_then(|cost| cost.register);
                let again =
                    again.or_else(|| self.model(range.pages, range.bytes(), Verb::Register));
                again.into_iter().for_each(|again| sum.add(ns - again));
            }
        }
        let words = (
            "first registration, beyond registering as much again",
            "first registrations, beyond registering as much again",
        );
        sum.part(words, Source::Recorded).filter(|part| part.ns > 0.0)
    }

    fn once(&self) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let (mut made, mut bytes) = (0, 0u64);
        for range in self.scripts.iter().flat_map(Script::firsts) {
            register.add(self.own(range, Verb::Register)?);
            deregister.add(self.own(range, Verb::Deregister)?);
            (made, bytes) = (made + 1, bytes.saturating_add(range.bytes()));
        }
        let parts = register.parts(("first registration", "first registrations"));
        let parts = parts.chain(deregister.parts(AT_THE_END));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }

    fn cache(&self) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let mut hits = Sum::default();
        let (mut made, mut bytes) = (0, 0u64);
        for (script, run) in self.scripts.iter().zip(self.caches.as_ref().map_err(Clone::clone)?) {
            for (range, missed) in script.ranges.iter().zip(&run.missed) {
                if *missed {
                    register.add(self.own(range, Verb::Register)?);
                    deregister.add(self.own(range, Verb::Deregister)?);
                    made += 1;
                }
            }
            hits.times += run.hits;
            hits.ns += run.hits as f64 * run.hit_ns.unwrap_or(0.0);
            bytes = bytes.saturating_add(run.most_bytes);
        }
        let parts = register.parts(("miss, which registers", "misses, which register"));
        let parts = parts.chain(hits.part(("hit", "hits"), Source::Measured));
        let parts = parts.chain(deregister.parts(AT_THE_END));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }

    fn pool(&self, copied: bool) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let (mut takes, mut copies, mut by_rights) =
            (Sum::default(), Sum::default(), Sum::default());
        let (mut made, mut bytes) = (0, 0u64);
        for (script, run) in self.scripts.iter().zip(self.pools.as_ref().map_err(Clone::clone)?) {
            for slab in &run.slabs {
                register.add(self.cost(PageKind::Base, *slab, Verb::Register)?);
                deregister.add(self.cost(PageKind::Base, *slab, Verb::Deregister)?);
                (made, bytes) = (made + 1, bytes.saturating_add(*slab));
            }
            takes.times += run.takes;
            takes.ns += run.takes as f64 * run.take_ns.unwrap_or(0.0);
            for (number, range) in script.ranges.iter().enumerate().filter(|_| copied) {
                let copies = match script.by_rights.contains(&number) {
                    true => &mut by_rights,
                    false => &mut copies,
                };
                for _ in [range.is_source, range.is_target].into_iter().filter(|is| *is) {
                    let none = || Missing::plain("copies were not measured here");
                    copies.add(self.host.copy_ns(range.len).ok_or_else(none)?);
                }
            }
        }
        let parts = register
            .parts(("slab of the pool, on 4 KiB pages", "slabs of the pool, on 4 KiB pages"));
        let parts = self.set_up().into_iter().chain(parts).chain(takes.part(
            ("buffer taken and given back", "buffers taken and given back"),
            Source::Measured,
        ));
        let parts = parts.chain(copies.part(("copy", "copies"), Source::Measured));
        let parts = parts.chain(by_rights.part(
            ("copy for what peers may have done", "copies for what peers may have done"),
            Source::Measured,
        ));
        let parts = parts
            .chain(deregister.parts(("slab given back at the end", "slabs given back at the end")));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }

    fn huge(&self) -> Result<Predicted> {
        let none = || {
            let why = self.host.missing.iter().find(|why| why.contains("pages"));
            Missing::plain(
                why.cloned().unwrap_or_else(|| "huge pages were not measured".to_owned()),
            )
        };
        let huge = self.host.huge.as_ref().ok_or_else(none)?;
        let base = self.host.base.as_ref().ok_or_else(none)?;
        let (mut changed, mut same) = (Sum::default(), Sum::default());
        for range in self.ranges() {
            let verbs = [
                (range.register_ns, &base.register, &huge.register),
                (range.deregister_ns, &base.deregister, &huge.deregister),
            ];
            for (ns, base, huge) in verbs {
                let Some(ns) = ns.map(|ns| ns as f64) else { continue };
                if range.pages != PageKind::Base {
                    same.add(ns);
                    continue;
                }
                let bytes = range.bytes();
                let on_base = base.at(bytes.div_ceil(PAGE) as f64);
                let on_huge = huge.at(bytes.div_ceil(PageKind::Huge2M.size() as u64) as f64);
                // The pages are what changes: what else the device did in that run stays.
                changed.add((ns - (on_base - on_huge)).max(on_huge.min(ns)));
            }
        }
        let layout = |script: &Script| Layout::of(&script.ranges, Some(PageKind::Huge2M)).bytes();
        let bytes = self.scripts.iter().map(layout).fold(0, u64::saturating_add);
        let parts = [
            changed.part(("call, on other pages", "calls, on other pages"), Source::Model),
            same.part(
                ("call on huge pages as it was", "calls on huge pages as they were"),
                Source::Recorded,
            ),
        ];
        let made = self.ranges().count() as u64;
        Ok(Predicted::of(parts.into_iter().flatten().collect(), made, bytes))
    }

    fn granted(&self, strategy: Strategy, pair_ns: Option<f64>) -> Result<Predicted> {
        let words @ (_, what) = match strategy {
            Strategy::Mw => ("window of type 2", "windows of type 2"),
            _ => ("fast registration", "fast registrations"),
        };
        let pair_ns = pair_ns.ok_or_else(|| {
            let why = self.host.missing.iter().find(|why| why.starts_with(what));
            let why = why.cloned().unwrap_or_else(|| format!("{what}: not measured here"));
            Missing::plain(why)
        })?;
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let mut pairs = Sum::default();
        let (mut made, mut bytes) = (0, 0u64);
        for script in self.scripts {
            for domain in 0..script.domains {
                let of_domain = |range: &&Registered| range.domain == domain;
                let ranges: Vec<_> = script.ranges.iter().filter(of_domain).copied().collect();
                for area in Layout::of(&ranges, None).areas {
                    register.add(self.cost(area.pages, area.bytes, Verb::Register)?);
                    deregister.add(self.cost(area.pages, area.bytes, Verb::Deregister)?);
                    (made, bytes) = (made + 1, bytes.saturating_add(area.bytes));
                }
            }
            for range in &script.ranges {
                // What opens nothing to a peer needs no window: the memory's own local key serves.
                if strategy == Strategy::Frmr || range.is_exposed() {
                    pairs.add(pair_ns);
                }
            }
        }
        let parts = register.parts(("region registered for good", "regions registered for good"));
        let parts =
            self.set_up().into_iter().chain(parts).chain(pairs.part(words, Source::Measured));
        let parts = parts.chain(deregister.parts(AT_THE_END));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }
}
