//! Every command that measures, on a kernel's own device: soft-RoCE in a virtual machine
//! (`cargo xtask vm`). Without the device `rxe0` these tests fail; they are ignored unless asked for.

#[path = "common/c.rs"]
mod c;
mod common;
#[path = "common/recorded.rs"]
mod recorded;

use common::{alone, mkey, run};
use mkey_cli::bench::registration::report::{Sweep, Term};
use mkey_cli::bench::report::{Outcome, Report};
use mkey_cli::bench::storage::report::Report as Storage;
use mkey_cli::bench::tensor::report::Report as Tensor;
use mkey_cli::model::report::{Model, Part};
use mkey_os::confine;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const LABEL: &str = "figures of the software RNIC rxe0, not of a NIC";

/// Runs `mkey ... --device rxe0 --json -`.
fn measure<T: DeserializeOwned>(arguments: &[&str]) -> T {
    let (code, stdout, stderr) = run(mkey(arguments).args(["--device", "rxe0", "--json", "-"]));
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}: {stdout}");
    serde_json::from_str(&stdout).unwrap()
}

/// Why a row has no figures; `None`: it has.
fn missing<T>(outcome: &Outcome<T>) -> Option<&str> {
    match outcome {
        Outcome::Measured(_) => None,
        Outcome::NotMeasured(missing) => Some(&missing.what),
    }
}

/// Whether rxe has this here, as `mkey devices` tried it: the kernel and the library's provider
/// for it differ in what they have.
fn has(what: &str) -> bool {
    let (code, stdout, stderr) = run(&mut mkey(&["devices", "--device", "rxe0"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let line = stdout.lines().find(|line| line.trim_start().starts_with(&format!("{what}  ")));
    line.unwrap_or_else(|| panic!("no {what} in {stdout}")).contains("  yes  tried, works")
}

/// Rows that have figures, and those that say what the device does not offer.
fn check<'r>(rows: impl Iterator<Item = (&'r str, Option<&'r str>)>) {
    let (on_demand, advice) = (has("on-demand paging"), has("prefetch advice"));
    let mut measured = 0;
    for (id, missing) in rows {
        let lacks = match id {
            "frmr" | "frmr-pool" => Some("the device does not offer fast registration"),
            "on-demand" | "odp-first-touch" | "odp-warm" | "odp-prefetch" if !on_demand => {
                Some("the device does not offer on-demand paging")
            }
            "odp-prefetch" if !advice => Some("the device does not offer advice"),
            _ => None,
        };
        match (lacks, missing) {
            (None, None) => measured += 1,
            (Some(lacks), Some(why)) if why.contains(lacks) => {}
            (lacks, missing) => panic!("{id}: {missing:?}, and {lacks:?} is expected"),
        }
    }
    assert!(measured >= 2, "{measured} rows measured");
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn devices_shows_it_tried() {
    let arguments = &["devices"];
    let facts: Value = measure(arguments);
    assert_eq!(facts["devices"][0]["name"], "rxe0");
    assert_eq!(facts["devices"][0]["driver"], "rxe");
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_bench_measures_every_strategy_it_has() {
    let _alone = alone();
    let report: Report = measure(&["bench", "--time", "1s", "--memory", "8MiB"]);
    assert!(report.device.software && report.device.driver == "rxe");
    // A page of 1 GiB is more than the memory.
    let rows = report.rows.iter().filter(|row| row.id != "mr-1g");
    check(rows.map(|row| (row.id.as_str(), missing(&row.outcome))));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_sweep_has_the_kernels_stages() {
    let _alone = alone();
    let sweep: Sweep = measure(&[
        "bench",
        "registration",
        "--stages",
        "--sizes",
        "4KiB..1MiB",
        "--pages",
        "4KiB",
        "--time",
        "1s",
    ]);
    assert_eq!(sweep.rows.len(), 9);
    for row in &sweep.rows {
        let (_, split) = row.figures().unwrap().split(true).unwrap();
        for term in [Term::Syscall, Term::Pin, Term::Map, Term::Table] {
            let part = split.iter().find(|(known, _)| *known == term);
            assert!(part.is_some_and(|(_, ns)| *ns > 0.0), "{term:?} of {split:?}");
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_model_is_split_by_the_kernels_stages() {
    let _alone = alone();
    let arguments =
        &["model", "--stages", "--sizes", "4KiB..4MiB", "--pages", "4KiB", "--time", "2s"];
    let model: Model = measure(arguments);
    let fitted = model.fits[0].fitted().unwrap();
    assert!(fitted.register.page.value > 0.0, "{fitted:?}");
    assert_eq!(fitted.split_by, "the kernel's stages, probed");
    for term in [Term::Syscall, Term::Pin, Term::Map, Term::Table] {
        let split = fitted.split.iter().find(|split| split.term == term).unwrap();
        assert!(matches!(split.fixed, Part::Measured(_)), "{split:?}");
    }
    let command = fitted.split.iter().find(|split| split.term == Term::Command).unwrap();
    assert!(matches!(&command.fixed, Part::NotMeasured(why) if why.contains("no firmware")));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_storage_target_serves_over_it() {
    let _alone = alone();
    let arguments = ["bench", "storage", "--runtime", "200ms", "--size", "1MiB", "--iodepth", "4"];
    let report: Storage = measure(&[&arguments[..], &["--rw", "randrw"]].concat());
    check(report.rows.iter().map(|row| (row.id.as_str(), missing(&row.outcome))));
    assert!(report.aims.is_empty(), "they are not for a device whose posts are system calls");
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn tensors_are_pushed_over_it() {
    let _alone = alone();
    let report: Tensor = measure(&["bench", "tensor", "--sizes", "2MiB", "--iterations", "1"]);
    check(report.rows.iter().map(|row| (row.id.as_str(), missing(&row.outcome))));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn what_an_ordinary_user_may_not_register_is_told_with_its_mend() {
    let _alone = alone();
    let arguments = ["bench", "registration", "--device", "rxe0", "--sizes", "4KiB..1MiB"];
    let mut command = mkey(&arguments);
    command.args(["--pages", "4KiB", "--samples", "5", "--json", "-"]);
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            let confined = confine::limit_memlock(64 << 10)
                .and_then(|()| confine::become_user(confine::NOBODY));
            confined.map_err(|_| std::io::Error::last_os_error())
        });
    }
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let sweep: Sweep = serde_json::from_str(&stdout).unwrap();
    assert_eq!(sweep.rows.len(), 9);
    for row in &sweep.rows {
        let measured = row.figures().is_some();
        assert_eq!(measured, row.bytes <= 64 << 10, "{row:?}");
        if let Outcome::NotMeasured(missing) = &row.outcome {
            assert!(missing.what.contains("RLIMIT_MEMLOCK"), "{missing:?}");
            let mend = missing.command.as_ref().unwrap();
            assert!(mend.contains("memlock") || mend.contains("ulimit"), "{mend}");
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn its_figures_are_labelled() {
    let _alone = alone();
    let arguments = ["bench", "registration", "--device", "rxe0", "--sizes", "4KiB,8KiB,16KiB"];
    let (code, stdout, _) = run(mkey(&arguments).args(["--pages", "4KiB", "--samples", "10"]));
    assert_eq!(code, 0);
    assert!(stdout.contains(LABEL) && !stdout.contains("mkey0"), "{stdout}");
}

/// What a process registers shows as its: objects by their owner, against the limits that rxe
/// declares, and the memory that they pin.
#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_monitor_sees_whose_objects_are_there_and_what_they_pin() {
    let _alone = alone();
    let device = mkey::Device::open("rxe0").unwrap();
    let pd = mkey::Pd::new(&device).unwrap();
    let regions: Vec<_> =
        (0..3).map(|_| mkey::Mr::new(&pd, mkey::Region::new(64 << 10).unwrap()).unwrap()).collect();
    let arguments = ["monitor", "--once", "--interval", "100ms", "--device", "rxe0"];
    let (code, stdout, stderr) = run(mkey(&arguments).arg("--json"));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rxe = &report["devices"][0];
    assert_eq!((&rxe["name"], &rxe["ports"][0]["state"]), (&"rxe0".into(), &"ACTIVE".into()));
    assert_eq!(rxe["ports"][0]["interface"], "dummy0");
    let objects = rxe["objects"].as_array().unwrap();
    let of = |kind: &str| objects.iter().find(|objects| objects["kind"] == kind).unwrap();
    for (kind, least) in [("mr", 3), ("pd", 1)] {
        let objects = of(kind);
        assert!(objects["in_use"].as_u64().unwrap() >= least, "{objects}");
        assert!(objects["limit"].as_u64().unwrap() > 1000, "{objects}");
        let mut owners = objects["owners"].as_array().unwrap().iter();
        // Not the thread that this test is.
        let own = owners.find(|owner| owner["pid"] == std::process::id());
        let own = own.unwrap_or_else(|| panic!("{objects}"));
        assert!(own["count"].as_u64().unwrap() >= least, "{own}");
    }
    for kind in ["qp", "cq"] {
        assert!(of(kind)["in_use"].is_u64() && of(kind)["limit"].as_u64().unwrap() > 100);
    }
    // The kernel counts no windows; how many there may be the device declares.
    assert!(of("mw")["in_use"]["not_read"].is_string() && of("mw")["limit"].is_u64());
    // rxe counts nothing for a region.
    assert!(rxe["regions"]["others"].as_u64().unwrap() >= 3, "{}", rxe["regions"]);
    assert_eq!(rxe["regions"]["on_demand"], serde_json::json!([]));
    let counters = rxe["ports"][0]["counters"].as_array().unwrap();
    let counter = |name: &str| counters.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(counter("out_of_seq_request")["class"], "sequence");
    assert!(counter("sent_pkts")["value"].is_u64() && counter("sent_pkts")["per_second"].is_f64());
    let processes = report["pinned"]["processes"].as_array().unwrap();
    let own = processes.iter().find(|one| one["pid"] == std::process::id());
    let own = own.unwrap_or_else(|| panic!("{processes:?}"));
    assert!(own["pinned"].as_u64().unwrap() >= 3 * (64 << 10), "{own}");

    let (code, stdout, stderr) = run(mkey(&arguments).args(["--lang", "en"]));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("rxe0 ? MW: the kernel does not count them"), "{stdout}");
    println!("{stdout}");
    drop(regions);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn doctor_opens_it_tries_it_and_samples_its_keys() {
    let _alone = alone();
    let (code, stdout, stderr) = run(&mut mkey(&["doctor", "--json", "--lang", "en"]));
    assert!(code <= 2 && stderr.is_empty(), "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let check = |code: &str, subject: &str| -> &Value {
        let all = report["checks"].as_array().unwrap();
        let found = all.iter().find(|c| c["code"] == code && c["subject"] == subject);
        found.unwrap_or_else(|| panic!("no {code} of {subject} in {stdout}"))
    };
    for (code, subject) in [
        ("RDMA_DEVICES", ""),
        ("DEVICE", "rxe0"),
        ("DEVICE_FILE", "rxe0"),
        ("DEVICE_OPEN", "rxe0"),
        ("DEVICE_LIMITS", "rxe0"),
        ("WINDOWS", "rxe0"),
        ("PORT", "rxe0/1"),
        ("GID", "rxe0/1"),
        ("MTU", "rxe0/1"),
        ("RESOURCES", "rxe0"),
    ] {
        assert_eq!(check(code, subject)["status"], "ok", "{:#}", check(code, subject));
    }
    let on_demand = check("ON_DEMAND", "rxe0")["status"] == "ok";
    assert_eq!(on_demand, has("on-demand paging"));
    let keys = check("RKEY_PREDICTABLE", "rxe0");
    assert!(keys["status"] != "not-readable" && keys["measured"]["sample"] == "64", "{keys:#}");
    assert_eq!(check("FORK_PROTECTION", "")["values"]["copy_on_fork"], "true");
    // It is no hardware: PFC and the like are not its business.
    assert_eq!(check("PFC", "")["status"], "not-applicable");
}

/// As of our own device, where libibverbs calls its own functions and drivers post what they bind.
#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn what_a_program_does_on_it_is_recorded() {
    use mkey_trace::raw::Op::{Bind, Recv, Send, Write};
    let test = "what_a_program_does_on_it_is_recorded";
    let Some(program) = c::build_short(test, include_str!("c/traced_rxe.c")) else { return };
    let job = recorded::Job::new();
    let library = |name| Path::new(env!("CARGO_BIN_EXE_mkey")).with_file_name(name);
    let mut libraries = library("libmkey_preload.so").into_os_string();
    libraries.push(":");
    libraries.push(library("libmkey_watch.so"));
    let mut command = Command::new(program.path());
    command.env("LD_PRELOAD", libraries).env("MKEY_TRACE", job.folder()).env("MKEY_DEVICES", "0");
    // The guest has little memory.
    command.env("MKEY_TRACE_LIMIT", (16 << 20).to_string());
    assert_eq!(run(&mut command), (0, "rxe0\n".into(), String::new()));
    let process = job.process();
    assert_eq!((process.devices[0].0.soft, &*process.devices[0].1), (0, "rxe0"));
    let verbs = process.verbs();
    assert_eq!(verbs["ibv_reg_mr"], (2, 1));
    for (verb, times) in [("ibv_dereg_mr", 1), ("ibv_modify_qp", 6), ("ibv_bind_mw", 1)] {
        assert_eq!(verbs[verb], (times, 0), "{verb}");
    }
    let queues: Vec<_> = process.queues.iter().map(recorded::work).collect();
    let expected = [
        (vec![(Recv, 3)], 0, 1, 0),
        (vec![(Send, 1), (Write, 15), (Bind, 1)], 0, 13, 1),
        (vec![], 0, 0, 0),
    ];
    assert_eq!(queues, expected);
    assert_eq!(process.mrs.len(), 1);
    assert_eq!(process.mrs[0].uses, [1, 14 + 1, 0, 3, 1]);
    let failures: Vec<_> =
        process.failures.iter().map(|(failure, _)| (failure.status, failure.op)).collect();
    assert_eq!(failures, [(10, Write as u32)]);
    assert!(process.findings.is_empty(), "{:?}", process.findings);
}
