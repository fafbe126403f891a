//! The same under `mkey trace`: programs run as without it, and are reported.

use crate::common;
use crate::list::{LATENCY, PING_PONG, Program, Run, THROUGHPUT};
use crate::pair::{self, HugePages, Side};
use crate::{has, library, mkey_run};
use mkey_trace::format::Recording;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// The library's examples, whose software RNIC is within them: no device is opened by libibverbs.
#[test]
fn the_library_s_own_examples() {
    let program = Path::new(env!("CARGO_BIN_EXE_mkey"));
    let target = program.ancestors().nth(2).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--examples", "--manifest-path"]);
    build.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../mkey/Cargo.toml"));
    assert!(build.env("CARGO_TARGET_DIR", target).status().unwrap().success());
    let report_folder = tempfile::tempdir().unwrap();
    let report = report_folder.path().join("report");
    for example in ["storage_target", "kv_blocks", "parameter_push", "async_echo"] {
        let example = target.join("debug/examples").join(example);
        let (code, alone, stderr) = common::run(Command::new(&example).stdin(Stdio::null()));
        assert_eq!(code, 0, "{}: {stderr}", example.display());
        let (code, traced, stderr) = common::run(&mut mkey_trace(&report, &[&example]));
        assert_eq!(code, 0, "{}: {stderr}", example.display());
        // Times and counts of what others do meanwhile differ from run to run.
        let words = |text: &str| text.lines().last().map(|line| line.replace(char::is_numeric, ""));
        assert!(words(&alone).is_some() && words(&alone) == words(&traced), "{alone}\n{traced}");
        let told = fs::read_to_string(&report).unwrap();
        assert!(told.contains("no RDMA device was opened"), "{told}");
    }
}

/// What the first page tells of UCX: it registers for each message where its cache of registrations is
/// switched off, and hardly ever where it is not.
#[test]
fn ucx_with_and_without_its_cache() {
    let test = "ucx_with_and_without_its_cache";
    if !has(test, "ucx_perftest") {
        return;
    }
    // UCX looks for a character device of the RDMA device's name, and never opens it.
    let made =
        fs::create_dir_all("/dev/infiniband").and_then(|()| {
            match std::os::unix::fs::symlink("/dev/null", "/dev/infiniband/mkey0") {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        });
    if let Err(error) = made {
        return common::skipped(test, &format!("/dev/infiniband/mkey0: {error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let [direct, cached] = ["direct", "rcache"].map(|methods| {
        let _turn = pair::turn();
        let recording = folder.path().join(methods);
        let (until, port) =
            (Instant::now() + Duration::from_secs(60), pair::free_port().to_string());
        let ucx = |command: &mut Command| {
            // Without IPv6 it takes a port that it can read nothing of in /sys for one of RoCEv1.
            command.args(["--address", "::1", "--", "ucx_perftest", "-p", &port]);
            command.env("UCX_TLS", "rc_verbs,ud_verbs").env("UCX_NET_DEVICES", "mkey0:1");
            command.env("UCX_IB_REG_METHODS", methods);
        };
        let mut server = mkey_run(&["--only"]);
        ucx(&mut server);
        let server = Side::start(&mut server);
        assert!(server.listens(port.parse().unwrap(), until), "{:?}", server.ended(until).err());
        let mut client = Command::new(env!("CARGO_BIN_EXE_mkey"));
        client.args(["trace", "--devices", "1", "--only", "--output"]).arg(&recording);
        client.env("MKEY_PRELOAD", library());
        ucx(&mut client);
        client.args(["127.0.0.1", "-t", "tag_lat", "-s", "1048576", "-n", "1000"]);
        for side in [Side::start(&mut client), server] {
            let ended = side.ended(until).unwrap_or_else(|words| panic!("{methods}: {words}"));
            assert!(ended.well(), "{methods}: {}", ended.words());
        }
        let file = BufReader::new(fs::File::open(&recording).unwrap());
        let recording = Recording::read(file).unwrap();
        recording.calls.iter().filter(|call| call.verb == "ibv_reg_mr").count()
    });
    // Sent and received; the measured rounds come after others.
    assert!(direct >= 2000 && cached < 50, "{direct} and {cached} registrations");
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
