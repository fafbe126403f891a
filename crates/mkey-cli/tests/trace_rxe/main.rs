//! `mkey trace` of programs on the kernel's soft-RoCE, in a virtual machine (`cargo xtask vm`): it finds
//! what it finds on a software RNIC, and its times are those of the kernel's own probes.

#[path = "../common/c.rs"]
mod c;
#[path = "../common/mod.rs"]
mod common;
#[path = "../trace/pattern.rs"]
mod pattern;

use c::{Built, build_short};
use mkey_trace::format::{Call, Recording};
use pattern::Pattern;
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each test: the kernel's probes see the programs of all.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program of a real device's under `mkey trace`; the recording.
fn traced(program: &Built) -> Recording {
    let file = program.path().with_file_name("recording");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(["trace", "--devices", "0", "--output"]).arg(&file).arg("--");
    let (code, stdout, stderr) = common::run(command.arg(program.path()).stdin(Stdio::null()));
    assert_eq!((code, &*stdout), (0, "done\n"), "{stderr}");
    Recording::read(BufReader::new(File::open(&file).unwrap())).unwrap()
}

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --only vm"]
fn a_program_of_a_known_pattern_is_found_to_do_just_that() {
    let _alone = alone();
    let test = "a_program_of_a_known_pattern_is_found_to_do_just_that";
    for seed in [1, 2] {
        let pattern = Pattern::random(seed);
        let Some(program) = build_short(test, &pattern.source()) else { return };
        let recording = traced(&program);
        assert!(recording.devices.iter().all(|device| !device.soft), "{:?}", recording.devices);
        pattern.check(&recording);
    }
}

/// A program of the project's own, over libibverbs: it runs as without, and what it registered is told.
#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --only vm"]
fn the_project_s_own_bench_is_recorded() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording");
    let mkey = env!("CARGO_BIN_EXE_mkey");
    let bench = ["bench", "tensor", "--device", "rxe0", "--sizes", "4MiB"];
    let mut command = Command::new(mkey);
    command.args(["trace", "--devices", "0", "--output"]).arg(&file).arg("--").arg(mkey);
    let (code, stdout, stderr) = common::run(command.args(bench).stdin(Stdio::null()));
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stdout.contains("rxe0"), "{stdout}");
    let recording = Recording::read(BufReader::new(File::open(&file).unwrap())).unwrap();
    assert!(recording.devices.iter().any(|device| device.name == "rxe0"), "{stderr}");
    let written = recording.regions.iter().filter(|region| region.writes > 0);
    assert!(written.count() > 0, "{stderr}");
}

/// Registers and deregisters, so that it takes milliseconds each time.
const LARGE: &str = "int main(void)
{
	struct ibv_pd *pd;
	size_t length = 192 << 20;
	char *memory;

	CHECK((pd = ibv_alloc_pd(open_first())));
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED && madvise(memory, length, MADV_NOHUGEPAGE) == 0);
	memset(memory, 1, length);
	for (int i = 0; i < 8; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE);

		CHECK(mr && ibv_dereg_mr(mr) == 0);
	}
	puts(\"done\");
	return 0;
}
";

/// The time that a call takes is what the kernel takes for it, within 10 %.
#[test]
#[ignore = "needs the kernel's soft-RoCE and probes: cargo xtask test --only vm"]
fn times_are_those_of_the_kernel_s_own_probes() {
    let _alone = alone();
    let test = "times_are_those_of_the_kernel_s_own_probes";
    let Some(program) = build_short(test, LARGE) else { return };
    for (verb, function) in
        [("ibv_reg_mr", "ib_uverbs_reg_mr"), ("ibv_dereg_mr", "ib_dereg_mr_user")]
    {
        let Some(probe) = Probe::of(test, function) else { return };
        let recording = traced(&program);
        let kernel = probe.durations();
        drop(probe);
        let calls: Vec<&Call> = recording.calls.iter().filter(|call| call.verb == verb).collect();
        assert_eq!((calls.len(), kernel.len()), (8, 8), "{verb}: {kernel:?}");
        let both = calls.iter().zip(kernel).map(|(call, ns)| (call.end - call.begin, ns));
        let long: Vec<_> = both.filter(|(_, ns)| *ns > 1_000_000).collect();
        println!("{verb}, ns as traced and in the kernel: {long:?}");
        assert!(
            verb != "ibv_reg_mr" || long.len() == 8,
            "{verb} is too short to compare: {long:?}"
        );
        // Half of the calls at least: the machine is emulated, and its clock may stand still meanwhile.
        let close = long
            .iter()
            .filter(|(traced, kernel)| kernel <= traced && traced - kernel <= traced / 10);
        assert!(2 * close.count() > long.len(), "{verb}: {long:?}");
    }
}

/// A function of the kernel, probed at its entry and return.
struct Probe {
    root: PathBuf,
}

const GROUP: &str = "mkey_trace_test";

impl Probe {
    /// `None`: it can not be here, which is noted.
    fn of(test: &str, function: &str) -> Option<Self> {
        let root = Path::new("/sys/kernel/tracing").to_path_buf();
        if !root.join("kprobe_events").exists() {
            common::skipped(test, "the kernel has no kprobes, or tracefs is not mounted");
            return None;
        }
        let probe = Self { root };
        probe.write("trace_clock", "mono");
        probe.write("trace", "");
        let events = format!("p:{GROUP}/in {function}\nr:{GROUP}/out {function}\n");
        match fs::write(probe.root.join("kprobe_events"), events) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                common::skipped(test, &format!("{function} can not be probed"));
                return None;
            }
            Err(error) => panic!("{function}: {error}"),
        }
        probe.write(&format!("events/{GROUP}/enable"), "1");
        Some(probe)
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// From entry to return of each call, ns.
    fn durations(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.root.join("trace")).unwrap();
        let (mut entered, mut durations) = (None, Vec::new());
        // `program-123   [000] d..2.    12.345678: in: (ib_uverbs_reg_mr+0x0/0x2f0)`
        // `mkey trace` registers as well, to know what advice would cost.
        let of_program = |line: &&str| line.trim_start().starts_with("program-");
        for line in text.lines().filter(of_program) {
            let mut words = line.split_whitespace().skip_while(|word| !word.ends_with(':'));
            let at: f64 = words.next().unwrap().trim_end_matches(':').parse().unwrap();
            match (words.next(), entered.take()) {
                (Some("in:"), None) => entered = Some(at),
                (Some("out:"), Some(before)) => durations.push(((at - before) * 1e9) as u64),
                _ => panic!("{text}"),
            }
        }
        durations
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // It may not have been enabled.
        let _ = fs::write(self.root.join(format!("events/{GROUP}/enable")), "0");
        let _ = fs::write(self.root.join("kprobe_events"), "");
    }
}
