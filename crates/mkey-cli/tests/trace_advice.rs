//! Advice against the truth: what is predicted from a traced run is what a changed program then saves. Each
//! pattern is a C program over the software RNIC that takes the time of its own registrations, and with
//! AFTER set does the same work the advised way.

#[path = "common/c.rs"]
mod c;
#[path = "common/mod.rs"]
mod common;
#[path = "common/preloaded.rs"]
mod preloaded;

use mkey_cli::bench::measure::median;
use mkey_cli::replay::strategy::Strategy;
use mkey_cli::trace::advice::{Advice, text};
use mkey_trace::format::Recording;
use preloaded::{library, mkey_run, succeeds};
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// How far a prediction may be off: the share of the saving that was measured.
const TOLERANCE: f64 = 0.25;
/// Runs of each way, in turns, of which the medians are compared.
const RUNS: usize = 5;
/// Another program may take the processor in the middle of one way: so often it is looked again.
const TRIES: usize = 4;

/// One pattern at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Nanoseconds in registration as the program itself has measured them.
fn spent(program: &Path, after: bool) -> f64 {
    let mut command = mkey_run(&[program]);
    if after {
        command.env("AFTER", "1");
    }
    succeeds(&mut command).trim().parse().unwrap()
}

fn traced(program: &Path, output: &Path) -> Recording {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(["trace", "--devices", "1", "--report", "/dev/null", "--output"]).arg(output);
    command.arg(program).stdin(Stdio::null()).env("MKEY_PRELOAD", library());
    succeeds(&mut command);
    Recording::read(BufReader::new(File::open(output).unwrap())).unwrap()
}

fn predicted(advice: &Advice, strategy: Strategy) -> f64 {
    let proposal = advice.proposals.iter().find(|proposal| proposal.strategy == strategy).unwrap();
    proposal.weighed().unwrap_or_else(|| panic!("{advice:?}")).saving_ns
}

/// Compares the prediction for a strategy with what the changed program saves.
fn is_met(pattern: &str, source: &str, strategy: Strategy) {
    let source = format!("{}\n{source}", include_str!("c/pattern.h"));
    let Some(built) = c::build_short(pattern, &source) else { return };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("recording");
    let mut told = String::new();
    for _ in 0..TRIES {
        let (mut saved, mut promised) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let before = spent(&built.path(), false);
            let advice = Advice::of(&traced(&built.path(), &output));
            saved.push(before - spent(&built.path(), true));
            promised.push(predicted(&advice, strategy));
            assert!(advice.proposals.iter().any(|p| p.strategy == strategy && p.is_advised));
            assert!(text::text(&advice).lines().all(|line| line.chars().count() <= 120));
        }
        let (saved, promised) = (median(&mut saved).unwrap(), median(&mut promised).unwrap());
        let off = promised / saved - 1.0;
        told.push_str(&format!(
            "{pattern}: {strategy}: predicted {promised:.0} ns, saved {saved:.0} ns: {:+.1} %\n",
            off * 100.0
        ));
        if off.abs() <= TOLERANCE {
            println!("{told}");
            replays(&output, strategy);
            return;
        }
    }
    panic!("{told}");
}

/// What was recorded can be replayed, with the same saving in sight.
fn replays(recording: &Path, strategy: Strategy) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.arg("replay").arg(recording).args(["--time", "500ms", "--json", "-"]);
    let replayed: Value = serde_json::from_str(&succeeds(&mut command)).unwrap();
    let rows = replayed["rows"].as_array().unwrap();
    let figures = |name: &str| {
        let row = rows.iter().find(|row| row["strategy"] == name).unwrap();
        let figures = &row["outcome"]["measured"];
        assert!(figures.is_object(), "{row}");
        figures.clone()
    };
    let asked = replayed["registrations"].as_u64().unwrap();
    assert_eq!(figures("as-recorded")["made"].as_u64().unwrap(), asked);
    let kept = figures(strategy.name());
    assert!(kept["made"].as_u64().unwrap() < asked / 10, "{kept}");
    assert!(kept["ratio"].as_f64().unwrap() < 1.0, "{kept}");
}

#[test]
fn a_registration_for_each_io() {
    is_met("per I/O", include_str!("c/pattern_per_io.c"), Strategy::Cache);
}

#[test]
fn big_buffers_again_and_again() {
    is_met("big", include_str!("c/pattern_big.c"), Strategy::Cache);
}

#[test]
fn many_small_buffers() {
    is_met("small", include_str!("c/pattern_small.c"), Strategy::Pool);
}
