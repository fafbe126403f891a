//! This machine, as far as it can be put into the states that matter.

use super::common::{alone, mkey, run, skipped};
use super::in_container::become_confined;
use super::{check, status};
use mkey_os::hugepages;
use mkey_os::mapping::{Mapping, PageKind};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Set in a child, which is this same test started again.
const PROGRAM: &str = "MKEY_TEST_DOCTOR_PROGRAM";
const MEMLOCK: &str = "MKEY_TEST_DOCTOR_MEMLOCK";
const MANY: &str = "MKEY_TEST_DOCTOR_MAPPINGS";

fn report(arguments: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) =
        run(&mut mkey(&[&["doctor", "--lang", "en", "--json"], arguments].concat()));
    assert_eq!(stderr, "", "{stdout}");
    (code, serde_json::from_str(&stdout).unwrap())
}

#[test]
fn this_machine_is_told_of_in_less_than_a_second() {
    // Others may be busy here: the shortest of some runs counts.
    let mut shortest = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let (code, report) = report(&[]);
        shortest = shortest.min(start.elapsed().as_secs_f64());
        assert!(code <= 2);
        assert_eq!(report["probes"], true);
    }
    assert!(shortest < 1.0, "{shortest} s");
}

#[test]
fn without_rdma_that_is_a_note_with_what_to_do() {
    if Path::new("/sys/class/infiniband").exists() {
        return skipped("without_rdma_that_is_a_note_with_what_to_do", "this kernel has RDMA");
    }
    let (_, report) = report(&[]);
    let devices = check(&report, "RDMA_DEVICES", "");
    assert_eq!(devices["status"], "not-applicable");
    assert!(devices["found"].as_str().unwrap().contains("no RDMA device here"), "{devices}");
    assert!(devices["mend"].to_string().contains("mkey run"), "{devices}");
    // The software RNIC can be looked at by name.
    let (_, soft) = self::report(&["--device", "mkey0"]);
    for (code, expected) in [("DEVICE_OPEN", "ok"), ("WINDOWS", "ok"), ("RKEY_PREDICTABLE", "ok")] {
        assert_eq!(status(&soft, code, "mkey0"), expected, "{code}");
    }
}

/// Where `/proc` is not mounted nothing is told to be refused, missing or needed: that is only not known.
#[test]
fn without_proc_there_is_no_verdict_and_no_guess() {
    let name = "without_proc_there_is_no_verdict_and_no_guess";
    let without = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "umount -l /proc || exit 99; exec \"$@\"", "sh"]);
        run(command.arg(env!("CARGO_BIN_EXE_mkey")).args(arguments))
    };
    let (code, stdout, stderr) = without(&["doctor", "--lang", "en", "--json"]);
    if code == 99 || stderr.contains("unshare") {
        return skipped(name, "/proc can not be unmounted here");
    }
    assert!(code == 3 && stderr.contains("no verdict"), "{code} {stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["unread"].as_array().unwrap().len(), 2, "{:#}", report["unread"]);
    assert_ne!(report["kernel"], "?");
    assert_eq!(status(&report, "USERFAULTFD", ""), "not-readable");
    let protection = check(&report, "FORK_PROTECTION", "")["found"].as_str().unwrap();
    assert!(!protection.contains("does not copy"), "{protection}");
    for arguments in [&["doctor", "--pid", "1"][..], &["explain", "ENOMEM", "--pid", "1"]] {
        let (_, stdout, stderr) = without(&[arguments, &["--lang", "en"]].concat());
        assert!(stdout.is_empty() && stderr.contains("/proc is not mounted"), "{stderr}");
    }
}

/// In the child.
fn become_doctor(program: &str) -> ! {
    let memlock = std::env::var(MEMLOCK).unwrap().parse().unwrap();
    let mut doctor = Command::new(program);
    become_confined(doctor.args(["doctor", "--lang", "en", "--json", "r.json"]), memlock)
}

/// The report of one so confined, and its exit code.
fn confined(test: &str, memlock: u64) -> (i32, Value) {
    let folder = tempfile::tempdir().unwrap();
    // The other user must reach the program and write its report.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("mkey");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_mkey")), &program).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(PROGRAM, &program)
        .env(MEMLOCK, memlock.to_string())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let report = fs::read(folder.path().join("r.json"));
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), serde_json::from_slice(&report).unwrap())
}

/// What Docker's profile takes away.
fn under_the_profile(report: &Value) {
    for (code, part) in [
        ("USERFAULTFD", "refused"),
        ("IO_URING", "refused"),
        ("SECCOMP", "calls that mkey needs are denied"),
    ] {
        let check = check(report, code, "");
        assert_eq!(check["status"], "warn", "{check:#}");
        assert!(check["found"].as_str().unwrap().contains(part), "{check:#}");
        assert!(!check["mend"].as_array().unwrap().is_empty(), "{check:#}");
    }
    assert_eq!(check(report, "PIN_PROBE", "")["values"]["mode"], "mlock");
    assert_eq!(check(report, "IPC_LOCK", "")["values"]["effective"], "false");
}

#[test]
fn eight_mib_under_dockers_profile_are_a_warning() {
    if let Ok(program) = std::env::var(PROGRAM) {
        become_doctor(&program);
    }
    let (code, report) = confined("live::eight_mib_under_dockers_profile_are_a_warning", 8 << 20);
    assert_eq!(code, 1, "{report:#}");
    let memlock = check(&report, "MEMLOCK", "");
    assert_eq!((&memlock["status"], &memlock["values"]["soft"]), (&"warn".into(), &"8 MiB".into()));
    assert_eq!(check(&report, "PINNED", "")["measured"]["left"], "8 MiB");
    under_the_profile(&report);
}

#[test]
fn sixty_four_kib_under_dockers_profile_are_a_failure() {
    if let Ok(program) = std::env::var(PROGRAM) {
        become_doctor(&program);
    }
    let test = "live::sixty_four_kib_under_dockers_profile_are_a_failure";
    let (code, report) = confined(test, 64 << 10);
    assert_eq!(code, 2, "{report:#}");
    assert_eq!(status(&report, "MEMLOCK", ""), "fail");
    under_the_profile(&report);
}

#[test]
fn a_pool_that_is_used_up_is_told_by_figures_and_by_the_probe() {
    let _alone = alone();
    let size = 2 << 20;
    let test = "a_pool_that_is_used_up_is_told_by_figures_and_by_the_probe";
    let has_pages = hugepages::pool(size).is_some_and(|pool| pool.available() > 0);
    let _more = match hugepages::reserve(size, 1) {
        Ok(more) => Some(more),
        Err(_) if has_pages => None,
        Err(error) => return skipped(test, &error.to_string()),
    };
    let (_, before) = report(&[]);
    assert_eq!(status(&before, "HUGE_PAGES", "2 MiB"), "ok");
    assert_eq!(status(&before, "HUGE_PAGE_PROBE", "2 MiB"), "ok");
    let mut held = Vec::new();
    while let Ok(page) = Mapping::new(size, PageKind::Huge2M) {
        held.push(page);
        assert!(held.len() < 1 << 20);
    }
    assert!(!held.is_empty());
    let (code, report) = report(&[]);
    assert!(code >= 1);
    assert_eq!(status(&report, "HUGE_PAGES", "2 MiB"), "warn");
    assert_eq!(check(&report, "HUGE_PAGES", "2 MiB")["measured"]["available"], "0");
    let probe = check(&report, "HUGE_PAGE_PROBE", "2 MiB");
    assert_eq!(probe["status"], "warn");
    assert!(probe["mend"].to_string().contains("nr_hugepages"), "{probe:#}");
}

/// In the child: maps pages of changing rights until there are 65,000 mappings, and waits.
fn map_many() {
    const MAPPINGS: usize = 65_000;
    let page = rustix::param::page_size();
    let len = MAPPINGS * page;
    // SAFETY: a new mapping, at a place that the kernel chooses; nothing of it is touched.
    let start = unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags).unwrap()
    };
    for at in (0..len).step_by(2 * page) {
        // SAFETY: a page of that mapping.
        unsafe {
            let place = start.cast::<u8>().add(at).cast();
            rustix::mm::mprotect(place, page, MprotectFlags::READ).unwrap();
        }
    }
    println!("\nmapped");
    // Ends with the pipe.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn sixty_five_thousand_mappings_are_a_failure() {
    if std::env::var_os(MANY).is_some() {
        return map_many();
    }
    let limit = mkey_os::limits::max_map_count().unwrap();
    if !(65_100..=65_600).contains(&limit) {
        let why = format!("vm.max_map_count is {limit}, not the default");
        return skipped("sixty_five_thousand_mappings_are_a_failure", &why);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "live::sixty_five_thousand_mappings_are_a_failure", "--nocapture"])
        .env(MANY, "1")
        .env("RDMAV_FORK_SAFE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "mapped"));
    let (code, report) = report(&["--pid", &child.id().to_string()]);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(code, 2);
    let maps = check(&report, "MAP_COUNT", "");
    assert_eq!(maps["status"], "fail", "{maps:#}");
    let count: u64 = maps["measured"]["count"].as_str().unwrap().parse().unwrap();
    assert!(count >= 65_000, "{maps:#}");
    assert!(maps["mend"].to_string().contains("vm.max_map_count"), "{maps:#}");
    let fork = check(&report, "FORK_PROTECTION", "");
    assert_eq!(fork["values"]["asked_for"], "true", "{fork:#}");
    // What may be tried is tried for doctor's own process only.
    assert_eq!(status(&report, "PIN_PROBE", ""), "not-applicable");
}

#[test]
fn in_namespaces_of_its_own_a_privilege_does_not_count() {
    let test = "in_namespaces_of_its_own_a_privilege_does_not_count";
    let unshare = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]).args(program).stdin(Stdio::null());
        command
    };
    match unshare(&["true"]).output() {
        Ok(output) if output.status.success() => {}
        other => return skipped(test, &format!("unshare: {other:?}")),
    }
    let memlock = mkey_os::limits::memlock().soft;
    let mut command = unshare(&[env!("CARGO_BIN_EXE_mkey"), "doctor", "--json", "--lang", "en"]);
    let (_, stdout, stderr) = run(&mut command);
    assert_eq!(stderr, "", "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let namespaces = check(&report, "NAMESPACES", "");
    assert_eq!(namespaces["status"], "warn");
    let found = namespaces["found"].as_str().unwrap();
    assert!(found.contains("another user namespace"), "{found}");
    let privilege = check(&report, "IPC_LOCK", "");
    assert_eq!(privilege["values"]["effective"], "true");
    assert_eq!(privilege["values"]["initial_user_namespace"], "false");
    assert_eq!(privilege["status"], if memlock.is_some() { "warn" } else { "ok" });
}
