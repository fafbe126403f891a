//! What mends what was found: true for how the program was started, and without harm.

use super::host::Host;
use super::roots::{doctor, mends, report};
use super::{check, status};
use std::fs;
use std::process::Command;

#[test]
fn a_nodes_pool_is_never_made_smaller() {
    let report = report(&Host::two_nodes(), &[], 1);
    let near = check(&report, "HUGE_PAGES_NODE", "mlx5_0 2 MiB");
    assert_eq!((&near["status"], &near["measured"]["free"]), (&"warn".into(), &"0".into()));
    assert_eq!(
        mends(&report, "HUGE_PAGES_NODE", "mlx5_0 2 MiB"),
        "echo 4608 | sudo tee /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages\n"
    );
}

#[test]
fn protection_of_forks_that_is_needed_is_not_taken_away() {
    let host = Host::healthy();
    host.put("proc/sys/kernel/osrelease", "5.4.0\n");
    for (environment, lines) in [
        ("RDMAV_FORK_SAFE=1\0", ""),
        ("RDMAV_FORK_SAFE=1\0RDMAV_HUGEPAGES_SAFE=1\0", "unset RDMAV_HUGEPAGES_SAFE\n"),
    ] {
        host.put("proc/self/environ", environment);
        assert_eq!(mends(&report(&host, &[], 1), "FORK_PROTECTION", ""), lines);
    }
    // Alone it is no protection, and a variable that does not exist is none.
    host.put("proc/self/environ", "RDMAV_HUGEPAGES_SAFE=1\0IBV_HUGEPAGES_SAFE=1\0");
    assert_eq!(status(&report(&host, &[], 0), "FORK_PROTECTION", ""), "ok");
}

#[test]
fn a_unit_is_restarted_once_and_after_all_that_it_is_to_read() {
    let (_, script, _) = doctor(&Host::sick(), &["--fix-script", "--lang", "en"]);
    let at = |line: &str| script.find(line).unwrap_or_else(|| panic!("{line}: {script}"));
    let restart = "\nsudo systemctl daemon-reload && sudo systemctl restart target.service\n";
    assert_eq!(script.matches(restart).count(), 1, "{script}");
    assert!(at("LimitMEMLOCK=infinity") < at(restart) && at("LimitNOFILE=1048576") < at(restart));
    assert!(!script.contains("(above) sudo systemctl"), "{script}");
}

#[test]
fn each_user_has_a_file_of_limits_of_its_own() {
    let host = Host::healthy();
    host.put("etc/passwd", "alice:x:7:70::/:/bin/sh\nbob:x:8:70::/:/bin/sh\n");
    let file = |user: &str| {
        let report = report(&host, &["--user", user], 1);
        mends(&report, "MEMLOCK_USER", user)
    };
    assert!(file("alice").contains("| sudo tee /etc/security/limits.d/90-mkey-alice.conf\n"));
    assert!(file("bob").contains("| sudo tee /etc/security/limits.d/90-mkey-bob.conf\n"));
}

/// By how a program was started: what raises its limits, and what does not.
#[test]
fn limits_are_raised_where_the_program_has_them_from() {
    let user = "0::/user.slice/user-1000.slice/user@1000.service/app.slice";
    let pod = "0::/kubepods.slice/kubepods-pod1.slice/crio-2.scope\n".to_owned();
    for (groups, memlock, nofile, never) in [
        (format!("{user}/train.service\n"), "user@.service.d", "user@.service.d", "restart train"),
        (format!("{user}/vte.scope\n"), "user@.service.d", "ulimit -n 4096", "limits.d"),
        (pod, "crio", "crio", "ulimit"),
        (
            "0::/system.slice/slurmstepd.scope/job_7/step_0\n".to_owned(),
            "slurmd.service.d",
            "ulimit -n 4096",
            "limits.d",
        ),
        (
            "0::/system.slice/docker-5f.scope\n".to_owned(),
            "--ulimit memlock",
            "--ulimit nofile",
            "sudo tee",
        ),
        ("0::/system.slice/a.service\n".to_owned(), "a.service.d", "a.service.d", "ulimit"),
        (
            "0::/user.slice/user-0.slice/session-3.scope\n".to_owned(),
            "limits.d",
            "ulimit -n 4096",
            "docker",
        ),
    ] {
        let host = Host::healthy();
        host.put("proc/self/cgroup", &groups);
        host.put(
            "proc/self/limits",
            "Max open files            1024 4096 files\n\
             Max locked memory         65536 65536 bytes\n",
        );
        let report = report(&host, &[], 2);
        let (of_memlock, of_files) = (mends(&report, "MEMLOCK", ""), mends(&report, "NOFILE", ""));
        assert!(of_memlock.contains(memlock), "{groups}{of_memlock}");
        assert!(of_files.contains(nofile), "{groups}{of_files}");
        assert!(
            !of_memlock.contains(never) || !of_files.contains(never),
            "{groups}{of_memlock}{of_files}"
        );
        assert!(!of_files.contains(never), "{groups}{of_files}");
    }
    // Where the hard limit is as low, a shell can not raise it.
    let host = Host::healthy();
    host.limits("unlimited", "1024");
    assert!(mends(&report(&host, &[], 1), "NOFILE", "").contains("limits.d/91-mkey.conf"));
}

#[test]
fn pages_of_the_boot_line_are_asked_for_again_after_memory_was_gathered() {
    let lines = mends(&report(&Host::sick(), &[], 2), "HUGE_PAGES_BOOT", "2 MiB");
    assert_eq!(
        lines,
        "echo 1 | sudo tee /proc/sys/vm/compact_memory\n\
         echo 2048 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages\n"
    );
}

#[test]
fn a_script_for_review_is_one_that_a_shell_takes() {
    let host = Host::sick();
    // Names from files must not become commands.
    host.put("proc/self/cgroup", "0::/system.slice/a'; reboot;'$(reboot).service\n");
    host.put("proc/sys/kernel/hostname", "a\nreboot\n");
    let (code, script, _) = doctor(&host, &["--fix-script", "--lang", "en"]);
    assert_eq!(code, 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &script).unwrap();
    let shell = Command::new("sh").arg("-n").arg(file.path()).output().unwrap();
    assert!(shell.status.success(), "{script}\n{shell:?}");
    assert!(script.starts_with("#!/bin/sh\n# "), "{script}");
    assert!(script.lines().all(|line| !line.trim_start().starts_with("reboot")), "{script}");
    assert!(script.contains("LimitMEMLOCK=infinity"), "{script}");
    // Where a command is, the reason stands above it.
    let at = script.find("sudo sysctl vm.max_map_count").unwrap();
    assert!(script[..at].contains("# MAP_COUNT"), "{script}");
    let (_, nothing, _) = doctor(&Host::healthy(), &["--fix-script", "--lang", "en"]);
    assert!(nothing.ends_with("# Nothing to mend was found.\n"), "{nothing}");
}
