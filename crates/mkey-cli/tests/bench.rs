//! `mkey bench` from end to end, with little memory and time.

mod common;

use common::{alone, bench, huge_pages, interrupted_once_reserved, measured, mkey, run, skipped};
use mkey_cli::bench::report::{Outcome, Report, Summary};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

const SMALL: [&str; 4] = ["--memory", "64MiB", "--time", "2s"];

#[test]
fn the_tables_come_out_with_all_figures() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("run.json"), folder.path().join("run.csv"));
    let (code, text, stderr) = run(mkey(&["bench"]).args(SMALL).args([
        "--json",
        json.to_str().unwrap(),
        "--csv",
        csv.to_str().unwrap(),
    ]));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    let label = "figures of the software RNIC mkey0, not of a NIC";
    assert_eq!(text.matches(label).count(), 4, "{text}");
    let report: Report = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report.rows.len(), 11);
    for row in &report.rows {
        assert!(text.contains(&row.strategy), "{} missing in\n{text}", row.strategy);
        match &row.outcome {
            Outcome::Measured(figures) => {
                let bandwidth = figures.bandwidth.unwrap();
                assert!(bandwidth.percent_of_bare > 0.0 && bandwidth.rounds > 0, "{row:?}");
                assert!(figures.cpu.unwrap().median_ns > 0.0, "{row:?}");
                for summary in [figures.map, figures.allocate].into_iter().flatten() {
                    positive(&summary);
                }
                if let Some(register) = figures.register {
                    positive(&register.verb);
                    positive(&register.deregister);
                    assert!(register.total_ns() >= register.verb.median_ns);
                }
            }
            // Only pages that this machine does not give may keep a row from being measured.
            Outcome::NotMeasured(missing) => {
                assert!(["mr-thp", "mr-2m", "mr-1g"].contains(&row.id.as_str()), "{row:?}");
                assert!(missing.command.is_some(), "{row:?}");
            }
        }
    }
    let lines = csv::Reader::from_path(&csv).unwrap().into_records().count();
    assert_eq!(lines, report.rows.len());
}

fn positive(summary: &Summary) {
    assert!(summary.median_ns > 0.0 && summary.p99_ns >= summary.median_ns, "{summary:?}");
    assert!(summary.samples > 0 && summary.batch > 0, "{summary:?}");
}

#[test]
fn huge_pages_register_faster() {
    let _alone = alone();
    let report = bench(&SMALL);
    let small = measured(&report, "mr-4k").register.unwrap().verb.median_ns;
    let huge = ["mr-2m", "mr-thp"]
        .into_iter()
        .filter_map(|id| report.figures(id)?.register)
        .map(|register| register.verb.median_ns)
        .next()
        .expect("neither 2 MiB nor transparent huge pages here: nothing to compare");
    assert!(huge * 2.0 < small, "huge {huge} ns, 4 KiB {small} ns");
}

#[test]
fn a_declared_command_moves_registrations_and_not_posted_work() {
    const COST_NS: f64 = 2e6;
    let _alone = alone();
    let quick = ["--memory", "8MiB", "--time", "2s", "--no-reserve"];
    let plain = bench(&quick);
    let declared = bench(&[&quick[..], &["--command-cost", "2ms"]].concat());
    assert!(plain.rows.iter().all(|row| !row.simulated));
    for row in declared.rows.iter().filter(|row| row.figures().is_some()) {
        assert!(row.simulated, "{row:?}");
    }
    for id in ["mr-4k", "pool-copy", "frmr-pool", "mw-type2", "odp-warm"] {
        let before = measured(&plain, id).register.unwrap();
        let after = measured(&declared, id).register.unwrap();
        assert_eq!(before.command, None, "{id}");
        assert!(after.command.unwrap().median_ns >= COST_NS * 0.99, "{id}: {after:?}");
        assert!(after.verb.median_ns >= COST_NS * 0.99, "{id}: {after:?}");
        assert!(after.deregister.median_ns >= COST_NS * 0.99, "{id}: {after:?}");
    }
    let per_io = measured(&declared, "mr-per-io").map.unwrap().median_ns;
    assert!(per_io >= 2.0 * COST_NS * 0.99, "{per_io}");
    for id in ["frmr-pool", "mw-type2"] {
        let figures = measured(&declared, id);
        assert!(figures.allocate.unwrap().median_ns >= COST_NS * 0.99, "{id}");
        let map = figures.map.unwrap().median_ns;
        assert!(map < COST_NS / 10.0, "{id}: {map} ns: posted work was charged");
    }
}

#[test]
fn an_interrupted_run_gives_its_huge_pages_back() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        // Others can reserve nothing, so there is nothing to give back.
        skipped("an_interrupted_run_gives_its_huge_pages_back", "reserving needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::ALARM,
        Signal::USR1,
        Signal::USR2,
        Signal::XCPU,
        Signal::XFSZ,
    ] {
        let before = huge_pages();
        let mut command = mkey(&["bench", "--memory", "64MiB", "--time", "60s", "--json"]);
        let Output { status, stderr, .. } =
            interrupted_once_reserved(command.arg(&json), 32, signal);
        assert_eq!(String::from_utf8(stderr).unwrap(), "mkey: stopping\n");
        assert!(!json.exists(), "an interrupted run left a report");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert_eq!(huge_pages(), before);
    }
}

#[test]
fn a_finished_run_gives_its_huge_pages_back() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        skipped("a_finished_run_gives_its_huge_pages_back", "reserving needs root");
        return;
    }
    let before = huge_pages();
    let report = bench(&["--memory", "16MiB", "--time", "1s"]);
    // It had reserved some: otherwise this test shows nothing.
    measured(&report, "mr-2m");
    assert_eq!(huge_pages(), before);
}

/// Ends by itself although SIGHUP comes, as under nohup.
#[test]
fn a_signal_that_the_run_was_started_to_ignore_does_not_end_it() {
    let _alone = alone();
    let mut command = std::process::Command::new("sh");
    let run = "trap '' HUP; exec \"$0\" bench --memory 4MiB --time 1s --no-reserve --json -";
    command.args(["-c", run, env!("CARGO_BIN_EXE_mkey")]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    // The signal is to come when the run would take it: SIGXFSZ, the last that it takes, shows when.
    let status = format!("/proc/{}/status", child.id());
    let takes_signals = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::XFSZ.as_raw() - 1)) != 0
    };
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !takes_signals() {
        assert!(std::time::Instant::now() < patience, "signals were never taken");
        std::thread::yield_now();
    }
    for _ in 0..20 {
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        std::thread::yield_now();
    }
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(serde_json::from_slice::<serde_json::Value>(&ended.stdout).is_ok());
}

#[test]
fn a_page_that_can_not_be_written_does_not_take_the_tables_away() {
    let _alone = alone();
    let quick = ["--memory", "4MiB", "--time", "1s", "--no-reserve", "--html", "/dev/full"];
    let (code, stdout, stderr) = common::run(&mut mkey(&[&["bench"][..], &quick].concat()));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("/dev/full"), "{stderr}");
    assert!(stdout.contains("What registration costs"), "{stdout}");
}

#[test]
fn one_file_for_two_outputs_is_asked_for_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    let file = file.to_str().unwrap();
    for command in [&["bench"][..], &["bench", "registration"]] {
        let arguments = [command, &["--json", file, "--html", file]].concat();
        let (code, stdout, stderr) = common::run(&mut mkey(&arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains("--json and --html are the same file"), "{stderr}");
    }
}
