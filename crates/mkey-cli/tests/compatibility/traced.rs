//! The same under `mkey trace`: programs run as without it, and are reported.

use crate::list::{LATENCY, PING_PONG, Program, Run, THROUGHPUT};
use crate::pair::{self, HugePages};
use crate::{has, library};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// `mkey trace` with the software RNIC alone, whose report goes to a file: the program's own streams
/// are its own.
pub fn mkey_trace<S: AsRef<OsStr>>(report: &Path, program: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(["trace", "--devices", "1", "--only", "--report"]).arg(report).arg("--");
    command.args(program).stdin(Stdio::null()).env("MKEY_PRELOAD", library());
    command
}

/// What a report has to say of a program that has opened a device.
pub fn is_reported(report: &Path) {
    let text = fs::read_to_string(report).unwrap();
    let expected = ["Registration took", "ibv_reg_mr", "software RNIC"];
    assert!(expected.iter().all(|words| text.contains(words)), "{text}");
}

/// Of each program its plain run, and those that register otherwise.
fn chosen(program: &Program) -> impl Iterator<Item = &Run> {
    let others = ["--mr_per_qp", "-e -o", "--use-srq"];
    let runs = program.runs.iter().enumerate();
    let chosen = runs.filter(move |(at, run)| {
        *at == 0 || others.iter().any(|options| run.options.contains(options))
    });
    chosen.map(|(_, run)| run)
}

#[test]
fn pairs_of_programs() {
    let test = "pairs_of_programs";
    let programs: Vec<_> = [PING_PONG, THROUGHPUT, LATENCY].into_iter().flatten().collect();
    if !programs.iter().all(|program| has(test, program.name)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = |role| folder.path().join(format!("{role:?}"));
    let side = |role, arguments: &[&str]| mkey_trace(&report(role), arguments);
    let mut failures = Vec::new();
    for program in programs {
        for run in chosen(program) {
            let _turn = pair::turn();
            match pair::run(&side, "127.0.0.1", program, run) {
                Ok(()) => {
                    is_reported(&report(pair::Role::Server));
                    is_reported(&report(pair::Role::Client));
                }
                Err(words) => failures.push(format!("{} {}: {words}", program.name, run.options)),
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn rdma_core_s_own_tests() {
    let test = "rdma_core_s_own_tests";
    if !crate::python::is_here(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let _pages = HugePages::reserve(test);
    crate::python::all_pass(mkey_trace(&report, &crate::python::RUN), folder.path());
    is_reported(&report);
}
