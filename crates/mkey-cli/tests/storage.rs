//! `mkey bench storage` from end to end, with little time.

mod common;

use common::{mkey, run};
use mkey_cli::bench::report::Outcome;
use mkey_cli::bench::storage::report::{Figures, Report, SystemCalls};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

const STRATEGIES: [&str; 7] =
    ["static", "mr-per-io", "mr-per-io-pinned", "cache", "bounce", "frmr", "grant"];

fn storage(arguments: &[&str]) -> Report {
    let mut all = vec!["bench", "storage", "--json", "-", "--runtime", "0.2", "--size", "4m"];
    all.extend(arguments);
    let (code, stdout, stderr) = run(&mut mkey(&all));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

fn measured<'r>(report: &'r Report, id: &str, bs: u64) -> &'r Figures {
    let row = report.rows.iter().find(|row| row.id == id && row.bs == bs);
    match &row.unwrap_or_else(|| panic!("no row {id} of {bs}")).outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotMeasured(missing) => panic!("{id} of {bs}: {missing:?}"),
    }
}

fn calls(figures: &Figures) -> u64 {
    match &figures.system_calls {
        SystemCalls::Counted { ios, calls, .. } => {
            assert!(*ios > 0);
            *calls
        }
        SystemCalls::NotMeasured(missing) => panic!("{missing:?}"),
    }
}

#[test]
fn every_strategy_has_all_figures() {
    for rw in ["randread", "randwrite", "randrw"] {
        let report = storage(&["--rw", rw, "--bs", "4k,64k", "--iodepth", "8", "--numjobs", "2"]);
        assert_eq!(report.workload.rw, rw);
        assert_eq!(report.rows.len(), 2 * STRATEGIES.len());
        for bs in [4096, 65536] {
            for id in STRATEGIES {
                let figures = measured(&report, id, bs);
                assert!(figures.iops > 0.0 && figures.ios > 0, "{rw} {id} {figures:?}");
                assert!(figures.ns_per_io > 0.0 && figures.cpu_ns_per_io > 0.0, "{id}");
                let latency = figures.latency.unwrap();
                assert!(latency.samples > 0 && latency.p50_ns > 0, "{id} {latency:?}");
                assert!(latency.p50_ns <= latency.p99_ns && latency.p99_ns <= latency.p999_ns);
                assert!(figures.percent_of_static.unwrap() > 0.0, "{id}");
                assert!(figures.times_mr_per_io.unwrap() > 0.0, "{id}");
                assert!(figures.checked_whole >= figures.ios / 512, "{id} {figures:?}");
            }
            let of_itself = measured(&report, "static", bs).percent_of_static;
            assert_eq!(of_itself, Some(100.0));
            assert_eq!(measured(&report, "mr-per-io", bs).times_mr_per_io, Some(1.0));
        }
    }
}

#[test]
fn a_registration_for_each_io_is_one_and_the_others_have_none() {
    let report = storage(&[]);
    for id in ["mr-per-io", "mr-per-io-pinned"] {
        let figures = measured(&report, id, 4096);
        assert_eq!(figures.registrations, figures.ios, "{id}");
        assert!(figures.allocations.unwrap() >= figures.ios, "{id}");
    }
    for id in ["static", "cache", "bounce", "frmr", "grant"] {
        assert_eq!(measured(&report, id, 4096).registrations, 0, "{id}");
    }
    for id in ["static", "cache", "bounce", "frmr", "grant"] {
        assert_eq!(measured(&report, id, 4096).allocations, Some(0), "{id}");
    }
    assert!(calls(measured(&report, "mr-per-io", 4096)) > 0, "pinning takes system calls");
    for id in ["static", "cache", "bounce", "frmr", "grant"] {
        assert_eq!(calls(measured(&report, id, 4096)), 0, "{id}");
    }
}

#[test]
fn a_declared_command_slows_registrations_and_not_posted_work() {
    let arguments = ["--strategy", "mr-per-io,static,grant", "--command-cost", "200us"];
    let report = storage(&arguments);
    assert!(report.rows.iter().all(|row| row.simulated));
    assert!(measured(&report, "mr-per-io", 4096).ns_per_io >= 400e3);
    // A grant takes a new window once in 255 times: one to free, one to allocate.
    assert!(measured(&report, "grant", 4096).ns_per_io < 200e3);
    assert!(measured(&report, "grant", 4096).times_mr_per_io.unwrap() > 2.0);
}

#[test]
fn the_tables_and_files_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("run.json"), folder.path().join("run.csv"));
    let (code, text, stderr) = run(mkey(&["bench", "storage", "--runtime", "0.1", "--size", "4m"])
        .arg("--json")
        .arg(&json)
        .arg("--csv")
        .arg(&csv));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert_eq!(
        text.matches("figures of the software RNIC mkey0, not of a NIC").count(),
        2,
        "{text}"
    );
    let report: Report = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(report.rows.iter().all(|row| text.contains(&row.strategy)), "{text}");
    assert!(!report.aims.is_empty() && report.aims.iter().all(|aim| text.contains(&aim.work)));
    assert!(text.contains("static MR (unsafe)"), "the baseline is labelled: {text}");
    let lines = csv::Reader::from_path(&csv).unwrap().into_records().count();
    assert_eq!(lines, report.rows.len());
}

#[test]
fn what_is_asked_for_wrongly_is_2() {
    for arguments in [
        &["--rw", "read"][..],
        &["--bs", "1000"],
        &["--strategy", "hope"],
        &["--device", "mlx5_0"],
        &["--json", "-", "--csv", "-"],
        // Four blocks for 32 I/Os in flight.
        &["--bs", "16m"],
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["bench", "storage"], arguments].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn an_interrupted_run_stops_and_leaves_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut child = mkey(&["bench", "storage", "--runtime", "60", "--size", "4m", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    // The handlers are there once the first job's thread has its name.
    let tasks = format!("/proc/{}/task", pid.as_raw_nonzero());
    let named = |task: fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "static")
    };
    while !fs::read_dir(&tasks).unwrap().flatten().any(named) {
        assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
        std::thread::yield_now();
    }
    kill_process(pid, Signal::INT).unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "mkey: stopping\n");
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status:?}");
    assert!(!json.exists(), "an interrupted run left a report");
}
