//! `cargo xtask gates`: instruction counts against committed limits.
//!
//! Counts, unlike times, are the same on a busy machine. A scenario is run under callgrind for
//! some iterations and for twice as many; the difference is those iterations' work. Each gate is
//! checked itself, too: a copy of the scenario that does a quarter more work must be beyond the
//! limit, or the limit is too wide to notice anything.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::exit::{Exit, in_ci};
use crate::part::Report;
use crate::run;
use crate::tools::Valgrind;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask gates                   every gate
  cargo xtask gates access_check_hot  one, while working on it

The limits are in gates/limits.toml, the scenarios in the examples gates of mkey-core and
soft_gates of mkey-soft. Exit status: 0 all within their limits and all slowed copies beyond,
1 not so, 3 no valgrind.")]
pub struct Args {
    /// The gates to run; all of them if none is named
    #[arg(value_name = "GATE")]
    names: Vec<String>,
}

/// The packages and their examples that hold the scenarios.
const SCENARIOS: [(&str, &str); 2] = [("mkey-core", "gates"), ("mkey-soft", "soft_gates")];
const LIMITS: &str = "gates/limits.toml";
/// The iterations whose work is counted. A power of two, so that work done every so many
/// iterations is in the count with its share.
const ITERATIONS: u64 = 4096;

type Limits = BTreeMap<String, u64>;

/// `cargo xtask gates`.
pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let report = report(workspace, &args.names)?;
    for note in &report.notes {
        println!("{note}");
    }
    Ok(Exit::of(report.tally.failed > 0, report.tally.skipped > 0, in_ci()))
}

/// The part `gates` of the tests.
pub fn part(workspace: &Workspace) -> Result<Report> {
    report(workspace, &[])
}

fn report(workspace: &Workspace, wanted: &[String]) -> Result<Report> {
    let valgrind = match Valgrind::get(workspace) {
        Ok(valgrind) => valgrind,
        Err(error) => return Ok(Report::skipped(format!("{error:#}"))),
    };
    let path = workspace.root().join(LIMITS);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {LIMITS}"))?;
    let limits = toml::from_str(&text).with_context(|| format!("cannot read {LIMITS}"))?;
    let mut scenarios = Vec::new();
    for (package, example) in SCENARIOS {
        let program = build(workspace, package, example)?;
        for name in names(&program)? {
            scenarios.push(Scenario { name, program: program.clone() });
        }
    }
    let names: Vec<_> = scenarios.iter().map(|scenario| &scenario.name).collect();
    for name in wanted {
        ensure!(names.contains(&name), "no gate is called `{name}`; they are {names:?}");
    }
    let chosen: Vec<_> = scenarios
        .iter()
        .filter(|scenario| wanted.is_empty() || wanted.contains(&scenario.name))
        .collect();
    let folder = workspace.target().join("callgrind");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let counter = Counter { valgrind, folder };
    let counts = in_parallel(&chosen, |scenario| {
        Ok(Counted {
            name: scenario.name.clone(),
            instructions: counter.per_iteration("run", scenario)?,
            slowed: counter.per_iteration("slow", scenario)?,
        })
    })?;
    let mut report = judge(&counts, &limits);
    if wanted.is_empty() {
        for name in limits.keys().filter(|name| !names.contains(name)) {
            report.check(false, || format!("{LIMITS} limits `{name}`, which is no scenario"));
        }
    }
    Ok(report)
}

/// Builds the scenarios for any x86-64, whatever the user's flags: valgrind knows no AVX-512, and
/// counts must not depend on the processor the build ran on.
fn build(workspace: &Workspace, package: &str, example: &str) -> Result<PathBuf> {
    let mut command = workspace.cargo();
    command.args(["build", "--profile", "gates", "--package", package, "--example", example]);
    command.env("RUSTFLAGS", "").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", workspace.target());
    ensure!(run::shown(&mut command)?.status.success(), "the scenarios do not build");
    Ok(workspace.target().join("gates/examples").join(example))
}

fn names(program: &Path) -> Result<Vec<String>> {
    let ended = run::silent(std::process::Command::new(program).arg("list"))?;
    ensure!(ended.status.success(), "{} lists no scenario: {}", program.display(), ended.text);
    Ok(ended.text.lines().map(str::to_owned).collect())
}

/// A scenario, and the program that runs it.
struct Scenario {
    name: String,
    program: PathBuf,
}

struct Counter {
    valgrind: Valgrind,
    folder: PathBuf,
}

impl Counter {
    /// The instructions of one iteration of a scenario at `speed`.
    fn per_iteration(&self, speed: &str, scenario: &Scenario) -> Result<f64> {
        let once = self.total(speed, scenario, ITERATIONS)?;
        let twice = self.total(speed, scenario, 2 * ITERATIONS)?;
        Ok(difference(once, twice))
    }

    fn total(&self, speed: &str, scenario: &Scenario, iterations: u64) -> Result<u64> {
        let Scenario { name, program } = scenario;
        let out = self.folder.join(format!("{name}.{speed}.{iterations}"));
        let mut command = self.valgrind.command();
        command.arg("--tool=callgrind");
        command.arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(program).args([speed, name, &iterations.to_string()]);
        let ended = run::silent(&mut command)?;
        ensure!(ended.status.success(), "`{}`: {}", run::line(&command), ended.text.trim_end());
        let text = fs::read_to_string(&out)
            .with_context(|| format!("callgrind wrote no {}", out.display()))?;
        total(&text).with_context(|| format!("{} holds no total", out.display()))
    }
}

/// The total of a callgrind profile, over all its threads.
fn total(profile: &str) -> Option<u64> {
    profile.lines().rev().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

fn difference(once: u64, twice: u64) -> f64 {
    twice.saturating_sub(once) as f64 / ITERATIONS as f64
}

/// What one iteration of a scenario, and of its slowed copy, takes.
struct Counted {
    name: String,
    instructions: f64,
    slowed: f64,
}

/// Two checks for each gate: the scenario is within the limit, its slowed copy beyond.
fn judge(counts: &[Counted], limits: &Limits) -> Report {
    let mut report = Report::default();
    println!("{:<32} {:>12} {:>8} {:>12}", "gate", "instructions", "limit", "slowed copy");
    for Counted { name, instructions, slowed } in counts {
        let Some(&limit) = limits.get(name) else {
            println!("{name:<32} {instructions:>12.1} {:>8} {slowed:>12.1}", "none");
            report.check(false, || {
                format!("`{name}` takes {instructions:.1} instructions; {LIMITS} has no limit")
            });
            continue;
        };
        println!("{name:<32} {instructions:>12.1} {limit:>8} {slowed:>12.1}");
        let most = limit as f64;
        report.check(*instructions <= most, || {
            format!("`{name}` takes {instructions:.1} instructions, {limit} are allowed")
        });
        report.check(*slowed > most, || {
            format!(
                "the limit of `{name}`, {limit}, lets a slowed copy of {slowed:.1} instructions \
                 pass; it takes {instructions:.1}: lower the limit"
            )
        });
    }
    report
}

/// `work` for each of `items`, on every processor, in order; the first error ends it.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(items.iter().enumerate());
    let next = || left.lock().ok()?.next();
    let mut done = thread::scope(|scope| {
        let worker = || -> Result<Vec<(usize, R)>> {
            std::iter::from_fn(next).map(|(at, item)| Ok((at, work(item)?))).collect()
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let mut done = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(results) => done.extend(results?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        anyhow::Ok(done)
    })?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    fn judged(instructions: f64, slowed: f64, limit: Option<u64>) -> Report {
        let counts = [Counted { name: "check".into(), instructions, slowed }];
        judge(&counts, &limit.map(|limit| ("check".into(), limit)).into_iter().collect())
    }

    #[test]
    fn within_the_limit_with_the_slowed_copy_beyond_passes() {
        assert_eq!(judged(70.0, 87.5, Some(70)).tally, Tally { passed: 2, ..Tally::default() });
    }

    #[test]
    fn a_fraction_of_an_instruction_too_many_fails() {
        let report = judged(70.1, 87.6, Some(70));
        assert_eq!(report.tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(report.notes, ["`check` takes 70.1 instructions, 70 are allowed"]);
    }

    #[test]
    fn a_limit_that_a_slowed_copy_meets_fails() {
        let report = judged(50.0, 62.5, Some(70));
        assert_eq!(report.tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert!(report.notes[0].contains("lower the limit"), "{:?}", report.notes);
    }

    #[test]
    fn a_scenario_without_a_limit_fails() {
        let report = judged(50.0, 62.5, None);
        assert_eq!(report.tally, Tally { failed: 1, ..Tally::default() });
    }

    #[test]
    fn the_total_is_read_from_a_profile() {
        let profile = "version: 1\nevents: Ir\nsummary: 7\n\nfn=(1)\n0 7\n\ntotals: 332393\n";
        assert_eq!(total(profile), Some(332_393));
        assert_eq!(total("version: 1\nevents: Ir\n"), None);
        assert_eq!(total("totals: many\n"), None);
    }

    #[test]
    fn what_both_runs_share_cancels_out() {
        let start = 300_000;
        let (once, twice) = (start + 70 * ITERATIONS, start + 140 * ITERATIONS);
        assert_eq!(difference(once, twice), 70.0);
    }

    #[test]
    fn the_committed_limits_can_be_read() {
        let limits: Limits =
            toml::from_str(include_str!("../../gates/limits.toml")).expect("a table of numbers");
        assert!(!limits.is_empty());
    }

    #[test]
    fn work_in_parallel_keeps_its_order_and_its_error() {
        let items: Vec<u64> = (0..100).collect();
        let doubled = in_parallel(&items, |item| Ok(2 * item)).unwrap();
        assert_eq!(doubled, items.iter().map(|item| 2 * item).collect::<Vec<_>>());
        let error = in_parallel(&items, |item| {
            ensure!(*item != 42, "no {item}");
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "no 42");
    }
}
