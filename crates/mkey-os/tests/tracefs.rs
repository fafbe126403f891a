//! Kernel functions timed by kprobes, where the kernel has them and the user may.

use mkey_os::tracefs::{Session, TraceError};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Held by each test: the kernel's list of probes is one for all.
static PROBES: Mutex<()> = Mutex::new(());

/// The system call that the test makes, as a function of the kernel.
const CALL: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__x64_sys_getppid" };

#[test]
#[ignore = "needs the kernel's probes: run in the guests of `cargo xtask test --only vm`"]
fn calls_of_this_thread_are_timed_and_nothing_stays() {
    let _alone = PROBES.lock().unwrap_or_else(PoisonError::into_inner);
    let functions = [CALL, "no_such_function_in_any_kernel"];
    let (session, refused) = match Session::start(&functions) {
        Ok(started) => started,
        Err(why @ (TraceError::NotMounted | TraceError::NoKprobes | TraceError::Denied { .. })) => {
            skipped("calls_of_this_thread_are_timed_and_nothing_stays", &why.to_string());
            return;
        }
        Err(why) => panic!("{why}"),
    };
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].function == 1 && refused[0].absent, "{refused:?}");
    for calls in [1, 7, 0] {
        let ((), events) = session
            .record(|| {
                for _ in 0..calls {
                    let _ = rustix::process::getppid();
                }
            })
            .unwrap();
        let (spent, outermost) = session.spent(&events);
        assert_eq!((spent[0].calls, spent[1].calls), (calls, 0), "{events:?}");
        assert_eq!(spent[0].total_ns, outermost);
        assert_eq!(outermost > 0, calls > 0);
        assert!(events.is_sorted_by_key(|event| event.ns));
    }
    drop(session);
    let ours = format!("mkey_{}_", std::process::id());
    let left = fs::read_to_string(root().join("kprobe_events")).unwrap();
    assert!(!left.contains(&ours), "{left}");
    for instance in fs::read_dir(root().join("instances")).unwrap() {
        assert!(!instance.unwrap().file_name().to_string_lossy().starts_with(&ours));
    }
}

/// Set for the process that is killed while its probes are on.
const KILLED: &str = "MKEY_TEST_TRACEFS_KILLED";

#[test]
#[ignore = "needs the kernel's probes: run in the guests of `cargo xtask test --only vm`"]
fn the_probes_of_a_killed_process_go_with_the_next_session() {
    let _alone = PROBES.lock().unwrap_or_else(PoisonError::into_inner);
    const TEST: &str = "the_probes_of_a_killed_process_go_with_the_next_session";
    let (session, _) = match Session::start(&[CALL]) {
        Ok(started) => started,
        Err(why @ (TraceError::NotMounted | TraceError::NoKprobes | TraceError::Denied { .. })) => {
            skipped(TEST, &why.to_string());
            return;
        }
        Err(why) => panic!("{why}"),
    };
    if std::env::var_os(KILLED).is_some() {
        // Never comes back.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .unwrap();
    }
    let me = std::env::current_exe().unwrap();
    let mut child = Command::new(me);
    child.args(["--exact", TEST, "--include-ignored"]).env(KILLED, "1");
    let mut child = child.spawn().unwrap();
    let left = format!("mkey_{}_", child.id());
    assert!(!child.wait().unwrap().success());
    let named = || {
        let probes = fs::read_to_string(root().join("kprobe_events")).unwrap();
        let instances = fs::read_dir(root().join("instances")).unwrap();
        let instances = instances.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        probes.contains(&left) || instances.into_iter().any(|name| name.starts_with(&left))
    };
    assert!(named(), "nothing was left to remove");
    let (second, _) = Session::start(&[CALL]).unwrap();
    assert!(!named(), "{}", fs::read_to_string(root().join("kprobe_events")).unwrap());
    // The sessions of a process that lives are left alone.
    for session in [&session, &second] {
        let ((), events) = session
            .record(|| {
                let _ = rustix::process::getppid();
            })
            .unwrap();
        assert_eq!(session.spent(&events).0[0].calls, 1);
    }
}

/// Where tracefs is.
fn root() -> PathBuf {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .map(PathBuf::from)
        .find(|root| root.join("kprobe_events").exists())
        .unwrap()
}

/// Notes that a test can not run here, and why; it returns then. Fails where nobody reads such notes.
fn skipped(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
