//! What each strategy would have cost for the run of a recording.

use super::dry;
use super::host::Host;
use super::recorded::Recorded;
use super::{Part, Predicted, Source};
use crate::bench::report::{Missing, Outcome};
use crate::replay::layout::Layout;
use crate::replay::script::{PAGE, Registered, Script};
use crate::replay::strategy::Strategy;
use mkey_os::mapping::PageKind;

/// What is known of a run and of this machine.
#[derive(Debug)]
pub struct Known<'a> {
    /// The processes.
    pub scripts: &'a [Script],
    /// What registrations cost in them.
    pub recorded: &'a Recorded,
    /// What this machine costs.
    pub host: &'a Host,
}

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

    fn part(self, what: &str, source: Source) -> Option<Part> {
        let Self { times, ns } = self;
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

    fn parts(self, what: &str) -> impl Iterator<Item = Part> {
        let recorded = self.recorded.part(what, Source::Recorded);
        let model = self.model.part(what, Source::Model);
        recorded.into_iter().chain(model)
    }
}

type Result<T> = std::result::Result<T, Missing>;

/// The verbs of a registration.
#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Register,
    Deregister,
}

impl Known<'_> {
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
            register.part("registrations", Source::Recorded),
            deregister.part("deregistrations", Source::Recorded),
        ];
        let most = self.scripts.iter().map(Script::most_bytes).fold(0, u64::saturating_add);
        Predicted::of(parts.into_iter().flatten().collect(), self.ranges().count() as u64, most)
    }

    /// What a verb costs for a range that was in the recording.
    fn own(&self, range: &Registered, verb: Verb) -> Result<(f64, Source)> {
        let recorded = match verb {
            Verb::Register => range.register_ns,
            Verb::Deregister => range.deregister_ns,
        };
        match recorded {
            Some(ns) => Ok((ns as f64, Source::Recorded)),
            None => self.cost(range.pages, range.bytes(), verb),
        }
    }

    /// What a verb costs for so many bytes on such pages: as recorded for others of that size, else by
    /// this machine's line, moved to meet what was recorded next in size.
    fn cost(&self, pages: PageKind, bytes: u64, verb: Verb) -> Result<(f64, Source)> {
        let of = |cost: super::recorded::Cost| match verb {
            Verb::Register => cost.register,
            Verb::Deregister => cost.deregister,
        };
        if let Some(ns) = self.recorded.about(pages, bytes).and_then(of) {
            return Ok((ns, Source::Recorded));
        }
        let line = |bytes: u64| {
            let (costs, page) = match pages {
                PageKind::Base => (self.host.base.as_ref()?, PAGE),
                _ => (self.host.huge.as_ref()?, PageKind::Huge2M.size() as u64),
            };
            let pages = bytes.div_ceil(page).max(1) as f64;
            Some(match verb {
                Verb::Register => costs.register.at(pages),
                Verb::Deregister => costs.deregister.at(pages),
            })
        };
        let here = line(bytes);
        let nearest = self.recorded.nearest(pages, bytes);
        let nearest = nearest.and_then(|cost| Some((of(cost)?, cost.bytes as u64)));
        match (here, nearest) {
            (Some(here), Some((ns, known))) => {
                // A NIC's command shows in what was recorded, and not in a software RNIC's line.
                let moved = (ns - line(known).unwrap_or(ns)).max(0.0);
                Ok((here + moved, Source::Model))
            }
            (Some(here), None) => Ok((here, Source::Model)),
            (None, _) => Err(Missing::plain(format!(
                "what {} bytes on {pages} pages cost was neither recorded nor measured here",
                bytes
            ))),
        }
    }

    fn once(&self) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let (mut made, mut bytes) = (0, 0u64);
        for script in self.scripts {
            let (numbers, count) = script.distinct();
            let mut known = vec![false; count];
            for (range, number) in script.ranges.iter().zip(numbers) {
                if let Some(known) = known.get_mut(number).filter(|known| !**known) {
                    *known = true;
                    register.add(self.own(range, Verb::Register)?);
                    deregister.add(self.own(range, Verb::Deregister)?);
                    (made, bytes) = (made + 1, bytes.saturating_add(range.bytes()));
                }
            }
        }
        let parts = register.parts("first registrations");
        let parts = parts.chain(deregister.parts("deregistrations at the end"));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }

    fn cache(&self) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let mut hits = Sum::default();
        let (mut made, mut bytes) = (0, 0u64);
        for script in self.scripts {
            let run = dry::cache(script).map_err(|error| error.missing())?;
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
        let parts = register.parts("misses, which register");
        let parts = parts.chain(hits.part("hits", Source::Measured));
        let parts = parts.chain(deregister.parts("deregistrations at the end"));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }

    fn pool(&self, copied: bool) -> Result<Predicted> {
        let (mut register, mut deregister) = (Sums::default(), Sums::default());
        let (mut takes, mut copies) = (Sum::default(), Sum::default());
        let (mut made, mut bytes) = (0, 0u64);
        for script in self.scripts {
            let run = dry::pool(script).map_err(|error| error.missing())?;
            for slab in &run.slabs {
                register.add(self.cost(PageKind::Base, *slab, Verb::Register)?);
                deregister.add(self.cost(PageKind::Base, *slab, Verb::Deregister)?);
                (made, bytes) = (made + 1, bytes.saturating_add(*slab));
            }
            takes.times += run.takes;
            takes.ns += run.takes as f64 * run.take_ns.unwrap_or(0.0);
            for range in script.ranges.iter().filter(|_| copied) {
                for _ in [range.is_source, range.is_target].into_iter().filter(|is| *is) {
                    let none = || Missing::plain("copies were not measured here");
                    copies.add(self.host.copy_ns(range.len).ok_or_else(none)?);
                }
            }
        }
        let parts = register.parts("slabs of the pool, on 4 KiB pages");
        let parts = parts.chain(takes.part("buffers taken and given back", Source::Measured));
        let parts = parts.chain(copies.part("copies", Source::Measured));
        let parts = parts.chain(deregister.parts("slabs given back at the end"));
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
                changed.add((ns - (on_base - on_huge).max(0.0)).max(on_huge.min(ns)));
            }
        }
        let layout = |script: &Script| Layout::of(&script.ranges, Some(PageKind::Huge2M)).bytes();
        let bytes = self.scripts.iter().map(layout).fold(0, u64::saturating_add);
        let parts = [
            changed.part("calls, less what their pages took", Source::Model),
            same.part("calls on huge pages as it was", Source::Recorded),
        ];
        let made = self.ranges().count() as u64;
        Ok(Predicted::of(parts.into_iter().flatten().collect(), made, bytes))
    }

    fn granted(&self, strategy: Strategy, pair_ns: Option<f64>) -> Result<Predicted> {
        let what = match strategy {
            Strategy::Mw => "windows of type 2",
            _ => "fast registrations",
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
                for block in Layout::of(&ranges, None).blocks {
                    register.add(self.cost(block.pages, block.bytes(), Verb::Register)?);
                    deregister.add(self.cost(block.pages, block.bytes(), Verb::Deregister)?);
                    (made, bytes) = (made + 1, bytes.saturating_add(block.bytes()));
                }
            }
            for range in &script.ranges {
                // What opens nothing to a peer needs no window: the memory's own local key serves.
                if strategy == Strategy::Frmr || range.is_exposed() {
                    pairs.add(pair_ns);
                }
            }
        }
        let parts = register.parts("blocks of memory registered for good");
        let parts = parts.chain(pairs.part(what, Source::Measured));
        let parts = parts.chain(deregister.parts("deregistrations at the end"));
        Ok(Predicted::of(parts.collect(), made, bytes))
    }
}
