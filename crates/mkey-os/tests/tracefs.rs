//! Kernel functions timed by kprobes, where the kernel has them and the user may.

use mkey_os::tracefs::{Session, TraceError};
use std::fs::{self, OpenOptions};
use std::io::Write;

/// The system call that the test makes, as a function of the kernel.
const CALL: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_getppid" } else { "__x64_sys_getppid" };

#[test]
#[ignore = "needs the kernel's probes: run in the guests of `cargo xtask test --only vm`"]
fn calls_of_this_thread_are_timed_and_nothing_stays() {
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
    let root = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find(|root| fs::exists(format!("{root}/kprobe_events")).unwrap())
        .unwrap();
    let ours = format!("mkey_{}_", std::process::id());
    let left = fs::read_to_string(format!("{root}/kprobe_events")).unwrap();
    assert!(!left.contains(&ours), "{left}");
    for instance in fs::read_dir(format!("{root}/instances")).unwrap() {
        assert!(!instance.unwrap().file_name().to_string_lossy().starts_with(&ours));
    }
}

/// Notes that a test can not run here, and why; it returns then. Fails where nobody reads such notes.
fn skipped(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
