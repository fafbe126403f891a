//! All rows: block sizes one after the other, strategies in turns.

use super::args::{Name, StorageArgs};
use super::disk::Disk;
use super::report::{Figures, Latency, Row, SystemCalls};
use super::strategy::Shape;
use super::team::{Counted, Ground, Round, Team, count};
use crate::allocations;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::median;
use crate::bench::progress::Progress;
use crate::bench::report::{Missing, Outcome};
use crate::bench::stop::Stop;
use hdrhistogram::Histogram;
use mkey::{Device, Pd};
use std::sync::Mutex;
use std::time::Duration;

/// How long a round may be: short ones, so that what disturbs the machine disturbs all rows.
const ROUND: Duration = Duration::from_millis(200);

/// How many rounds the time is divided into: an odd number.
pub fn rounds(runtime: Duration) -> u32 {
    let rounds = runtime.as_millis() / ROUND.as_millis().max(1);
    u32::try_from(rounds).unwrap_or(u32::MAX).clamp(3, 51) | 1
}

/// What all rows share.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The device.
    pub device: &'a Device,
    /// What is asked.
    pub args: &'a StorageArgs,
    /// Bytes of each disk.
    pub size: u64,
    /// Asked at safe points.
    pub stop: &'a Stop,
    /// Told how far the run is.
    pub progress: &'a Progress,
}

/// A row in the making.
struct Making<'scope> {
    name: Name,
    team: Option<Team<'scope>>,
    how: String,
    pages: String,
    rounds: Vec<Round>,
    counted: Option<Result<Counted>>,
    latency: Option<Histogram<u64>>,
    failed: Option<RowError>,
}

/// Measures all rows.
///
/// # Errors
/// `Stopped`; whatever else keeps a row from being measured stands in the row.
pub fn measure(plan: &Plan<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for block in plan.args.block_sizes() {
        rows.extend(measure_block(plan, block, rows.len())?);
    }
    Ok(rows)
}

/// Progress steps of a block size: setting up, rounds, counting.
pub fn steps(args: &StorageArgs) -> usize {
    args.block_sizes().len().saturating_mul(args.strategies().len())
}

fn measure_block(plan: &Plan<'_>, bs: u64, before: usize) -> Result<Vec<Row>> {
    let block = usize::try_from(bs).unwrap_or(usize::MAX);
    let shape = Shape { block, depth: plan.args.iodepth as usize };
    plan.progress.row(before, "disks");
    let disk = |_| {
        plan.stop.check()?;
        let pd = Pd::new(plan.device)?;
        let disk = Disk::new(&pd, plan.size, block)?;
        Ok((pd, Mutex::new(disk)))
    };
    let disks = match (0..plan.args.numjobs).map(disk).collect::<Result<Vec<_>>>() {
        Ok(disks) => disks,
        Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
        Err(error) => {
            let missing = error.missing();
            let names = plan.args.strategies();
            return Ok(names.into_iter().map(|n| not_measured(n, bs, missing.clone())).collect());
        }
    };
    let ground = Ground {
        device: plan.device,
        disks: &disks,
        shape,
        pattern: plan.args.rw,
        stop: plan.stop,
    };
    let makings = std::thread::scope(|scope| {
        let mut makings = Vec::new();
        for name in plan.args.strategies() {
            plan.stop.check()?;
            plan.progress.step(name.title());
            makings.push(Making::start(name, Team::start(scope, ground, name))?);
        }
        take_turns(plan, before, &mut makings)?;
        for making in &mut makings {
            plan.progress.step("system calls");
            making.count(ground)?;
        }
        for making in &mut makings {
            making.latency = making.team.take().and_then(Team::finish);
        }
        // The teams end with the scope.
        Ok::<_, RowError>(makings.into_iter().map(Making::parts).collect::<Vec<_>>())
    })?;
    Ok(to_rows(plan, bs, makings))
}

/// All rows, round by round; the first round warms up.
fn take_turns(plan: &Plan<'_>, before: usize, makings: &mut [Making<'_>]) -> Result<()> {
    let rounds = rounds(plan.args.runtime);
    let time = plan.args.runtime / rounds;
    let all = (rounds as usize + 1).saturating_mul(makings.len()).max(1);
    for round in 0..=rounds as usize {
        for turn in 0..makings.len() {
            plan.stop.check()?;
            let share = (round * makings.len() + turn) * makings.len() / all;
            // Who goes first changes: what one leaves in the caches meets all.
            let place = (turn + round) % makings.len();
            if let Some(making) = makings.get_mut(place) {
                plan.progress.row(before + share, making.name.title());
                making.run(time, round > 0)?;
            }
        }
    }
    Ok(())
}

impl<'scope> Making<'scope> {
    fn start(name: Name, team: Result<Team<'scope>>) -> Result<Self> {
        let mut making = Self {
            name,
            team: None,
            how: String::new(),
            pages: String::new(),
            rounds: Vec::new(),
            counted: None,
            latency: None,
            failed: None,
        };
        match team {
            Ok(team) => {
                making.how.clone_from(&team.how);
                making.pages = team.pages.to_string();
                making.team = Some(team);
            }
            Err(error) => making.fail(error)?,
        }
        Ok(making)
    }

    fn run(&mut self, time: Duration, counts: bool) -> Result<()> {
        let Some(team) = &self.team else { return Ok(()) };
        match team.run(time, counts) {
            Ok(round) if counts => self.rounds.push(round),
            Ok(_) => {}
            Err(error) => self.fail(error)?,
        }
        Ok(())
    }

    fn count(&mut self, ground: Ground<'_>) -> Result<()> {
        if self.team.is_some() {
            match count(ground, self.name) {
                Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
                counted => self.counted = Some(counted),
            }
        }
        Ok(())
    }

    /// The row is not measured, and its jobs are over; the others go on.
    fn fail(&mut self, error: RowError) -> Result<()> {
        self.team = None;
        match error {
            RowError::Stopped(signal) => Err(RowError::Stopped(signal)),
            error => {
                self.failed = Some(error);
                Ok(())
            }
        }
    }

    /// Without the team, which does not outlive its threads.
    fn parts<'other>(self) -> Making<'other> {
        let Self { name, team: _, how, pages, rounds, counted, latency, failed } = self;
        Making { name, team: None, how, pages, rounds, counted, latency, failed }
    }

    fn figures(self, of_static: Option<f64>, of_per_io: Option<f64>) -> Result<Figures> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let middle = |of: fn(&Round) -> f64| {
            median(&mut self.rounds.iter().map(of).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let sum = |of: fn(&Round) -> u64| self.rounds.iter().map(of).sum::<u64>();
        Ok(Figures {
            iops: middle(|round| round.iops),
            ns_per_io: middle(|round| round.ns_per_io),
            cpu_ns_per_io: middle(|round| round.cpu_ns_per_io),
            latency: self.latency.as_ref().filter(|times| !times.is_empty()).map(latency),
            percent_of_static: of_static.map(|ratio| ratio * 100.0),
            times_mr_per_io: of_per_io,
            ios: sum(|round| round.all),
            checked_whole: sum(|round| round.whole),
            registrations: sum(|round| round.registrations),
            allocations: allocations::is_counted().then(|| sum(|round| round.allocations)),
            system_calls: match self.counted {
                Some(Ok(counted)) => named(&counted),
                Some(Err(error)) => SystemCalls::NotMeasured(error.missing()),
                None => SystemCalls::default(),
            },
            how: self.how,
            pages: self.pages,
        })
    }
}

fn to_rows(plan: &Plan<'_>, bs: u64, makings: Vec<Making<'_>>) -> Vec<Row> {
    let rounds_of = |name: Name| {
        let making = makings.iter().find(|m| m.name == name && m.failed.is_none());
        making.map(|making| making.rounds.clone())
    };
    let (fixed, per_io) = (rounds_of(Name::Static), rounds_of(Name::MrPerIo));
    let simulated = !plan.args.command_cost.is_zero();
    let row = |making: Making<'_>| {
        let name = making.name;
        let against = |other: &Option<Vec<Round>>| ratio(&making.rounds, other.as_deref()?);
        let (of_static, of_per_io) = (against(&fixed), against(&per_io));
        match making.figures(of_static, of_per_io) {
            Ok(figures) => Row {
                id: name.id().to_owned(),
                strategy: name.title().to_owned(),
                bs,
                simulated,
                outcome: Outcome::Measured(Box::new(figures)),
            },
            Err(error) => not_measured(name, bs, error.missing()),
        }
    };
    makings.into_iter().map(row).collect()
}

/// A row without figures.
pub fn not_measured(name: Name, bs: u64, missing: Missing) -> Row {
    Row {
        id: name.id().to_owned(),
        strategy: name.title().to_owned(),
        bs,
        simulated: false,
        outcome: Outcome::NotMeasured(missing),
    }
}

/// The median of the rounds' ratios: what disturbed the machine in a round disturbed both.
fn ratio(rounds: &[Round], others: &[Round]) -> Option<f64> {
    let pairs = rounds.iter().zip(others).filter(|(_, other)| other.iops > 0.0);
    median(&mut pairs.map(|(round, other)| round.iops / other.iops).collect::<Vec<_>>())
}

fn latency(times: &Histogram<u64>) -> Latency {
    Latency {
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        samples: times.len(),
    }
}

fn named(counted: &Counted) -> SystemCalls {
    let mut by_name: Vec<_> =
        counted.calls.iter().map(|(number, calls)| (call_name(number), calls)).collect();
    by_name.sort_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    SystemCalls::Counted { ios: counted.ios, calls: counted.calls.total(), by_name }
}

fn call_name(number: i64) -> String {
    mkey_os::system_calls::name(number).map_or_else(|| format!("call {number}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_divided_into_an_odd_number_of_rounds() {
        for (milliseconds, expected) in
            [(50, 3), (200, 3), (1_000, 5), (3_000, 15), (10_000, 51), (86_400_000, 51)]
        {
            assert_eq!(rounds(Duration::from_millis(milliseconds)), expected, "{milliseconds}");
        }
    }

    #[test]
    fn ratios_are_of_the_same_rounds() {
        let round = |iops| Round { iops, ..Round::default() };
        let (slow, fast) = ([10.0, 20.0, 30.0].map(round), [20.0, 40.0, 300.0].map(round));
        assert_eq!(ratio(&slow, &fast), Some(0.5));
        assert_eq!(ratio(&slow, &[]), None);
        assert_eq!(ratio(&slow, &[round(0.0)]), None);
    }
}
