//! Fake roots: healthy, sick, odd.

use super::common::{mkey, run};
use super::host::Host;
use super::{check, checks, status};
use mkey_cli::doctor::code::Code;
use mkey_cli::doctor::{DoctorArgs, look, texts::Words};
use mkey_cli::lang::{Lang, LangArg};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `mkey doctor --root HOST` with these arguments.
fn doctor(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    run(mkey(&["doctor", "--root"]).arg(host.root()).args(arguments))
}

fn report(host: &Host, arguments: &[&str], code: i32) -> Value {
    let (ended, stdout, stderr) = doctor(host, &[arguments, &["--json"]].concat());
    assert_eq!((ended, stderr.as_str()), (code, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_healthy_host_is_0() {
    let report = report(&Host::healthy(), &["--lang", "en"], 0);
    assert_eq!((&report["host"], &report["probes"]), (&"node1".into(), &false.into()));
    for (code, subject) in [
        ("MEMLOCK", ""),
        ("HUGE_PAGES", "2 MiB"),
        ("HUGE_PAGES_BOOT", "2 MiB"),
        ("MAP_COUNT", ""),
        ("FORK_PROTECTION", ""),
        ("IO_URING", ""),
        ("IOMMU", "mlx5_0"),
        ("NUMA", "mlx5_0"),
        ("RDMA_DEVICES", ""),
        ("PORT", "mlx5_0/1"),
        ("GID", "mlx5_0/1"),
        ("MTU", "mlx5_0/1"),
        ("TRAFFIC_CLASS", "mlx5_0"),
        ("ECN", "mlx5_0"),
        ("COUNTERS", "mlx5_0/1"),
    ] {
        assert_eq!(status(&report, code, subject), "ok", "{:#}", check(&report, code, subject));
    }
    let checks = report["checks"].as_array().unwrap();
    let well = checks.iter().filter(|check| check["status"] == "ok");
    assert!(well.into_iter().all(|check| check["mend"] == serde_json::json!([])), "{report:#}");
    // Only the program dcb tells these, and a fake root runs none.
    assert_eq!(status(&report, "PFC", "mlx5_0"), "not-readable");
    // Probes are not made, and that is said.
    for code in ["PIN_PROBE", "HUGE_PAGE_PROBE", "DEVICE_OPEN", "RKEY_PREDICTABLE"] {
        let check = check(&report, code, "");
        assert_eq!(check["status"], "not-applicable");
        assert!(check["found"].as_str().unwrap().starts_with("not tried"), "{check}");
    }
}

#[test]
fn each_code_is_in_a_report() {
    let host = Host::two_nodes();
    host.put("etc/passwd", "");
    let report = report(&host, &["--user", "alice"], 1);
    for code in Code::ALL {
        assert!(!checks(&report, code.name()).is_empty(), "{code}");
    }
}

/// The lines of all that mends a check.
fn mends(report: &Value, code: &str, subject: &str) -> String {
    let mends = check(report, code, subject)["mend"].as_array().unwrap();
    let lines = mends.iter().flat_map(|mend| {
        ["run", "then", "edit"].map(|kind| mend[kind].as_array().unwrap()).into_iter().flatten()
    });
    lines.map(|line| format!("{}\n", line.as_str().unwrap())).collect()
}

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
fn a_sick_host_is_2_with_the_mend_for_how_it_was_started() {
    let report = report(&Host::sick(), &["--lang", "en"], 2);
    assert_eq!(report["process"]["launcher"]["unit"], "target.service");
    for (code, subject, expected) in [
        ("MEMLOCK", "", "fail"),
        ("HUGE_PAGES", "2 MiB", "warn"),
        ("HUGE_PAGES_BOOT", "2 MiB", "warn"),
        ("HUGE_PAGES_CGROUP", "2 MiB", "fail"),
        ("THP", "", "warn"),
        ("MAP_COUNT", "", "fail"),
        ("FORK_PROTECTION", "", "warn"),
        ("IO_URING", "", "warn"),
        ("MEMORY_CGROUP", "", "warn"),
        ("RDMA_CGROUP", "mlx5_0", "fail"),
        ("NOFILE", "", "warn"),
        ("IOMMU", "mlx5_0", "warn"),
        ("NUMA", "mlx5_0", "warn"),
        ("PORT", "mlx5_0/1", "warn"),
        ("GID", "mlx5_0/1", "warn"),
        ("MTU", "mlx5_0/1", "warn"),
        ("TRAFFIC_CLASS", "mlx5_0", "warn"),
        ("ECN", "mlx5_0", "warn"),
        ("PEER_MEMORY", "", "warn"),
        ("COUNTERS", "mlx5_0/1 packet_seq_err", "warn"),
        ("COUNTERS", "mlx5_0/1 resp_remote_access_errors", "warn"),
    ] {
        let check = check(&report, code, subject);
        assert_eq!(check["status"], expected, "{check:#}");
        assert!(!check["mend"].as_array().unwrap().is_empty(), "{check:#}");
        assert!(!check["read"].as_array().unwrap().is_empty(), "{check:#}");
    }
    let memlock = check(&report, "MEMLOCK", "")["mend"].to_string();
    assert!(memlock.contains("/etc/systemd/system/target.service.d"), "{memlock}");
    let rdma = check(&report, "RDMA_CGROUP", "mlx5_0")["mend"].to_string();
    assert!(rdma.contains("target.service/rdma.max"), "{rdma}");
}

/// English that stands in a Chinese text: two plain words one after the other, or one that is of no
/// command, no file and no setting.
fn english(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii() || "(),;:".contains(c)).collect();
    let plain = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase());
    // Commands, and settings with what they are set to.
    let begins = ["mkey", "rdma", "docker", "sudo", "defrag", "pod", "dcb", "uid", "root"];
    for part in words {
        let part: Vec<&str> = part.split_whitespace().collect();
        let is_command = part.first().is_some_and(|first| begins.contains(first));
        if let (false, Some(two)) =
            (is_command, part.windows(2).find(|two| two.iter().all(|w| plain(w))))
        {
            return Some(two.join(" "));
        }
        let never = ["unlimited", "not", "none", "the", "no", "is", "set", "free", "of"];
        if let Some(word) = part.iter().find(|word| never.contains(*word)) {
            return Some((*word).to_owned());
        }
    }
    None
}

#[test]
fn chinese_reports_have_no_english_left() {
    assert_eq!(english("上限为 unlimited").as_deref(), Some("unlimited"));
    assert_eq!(english("试过：tried, not offered").as_deref(), Some("not offered"));
    assert_eq!(english("运行 mkey run，读 /proc/self/maps，RLIMIT_MEMLOCK 为 8 MiB"), None);
    let bare = Host::healthy();
    for file in ["proc/self/status", "proc/self/environ", "proc/cmdline", "proc/self/limits"] {
        fs::remove_file(bare.root().join(file)).unwrap();
    }
    for host in [Host::healthy(), Host::sick(), Host::odd(), Host::two_nodes(), bare] {
        for user in ["root", "alice"] {
            let (_, json, _) = doctor(&host, &["--json", "--lang", "zh", "--user", user]);
            let report: Value = serde_json::from_str(&json).unwrap();
            for check in report["checks"].as_array().unwrap() {
                let mends = check["mend"].as_array().unwrap().iter().map(|mend| &mend["what"]);
                for text in [&check["found"], &check["why"]].into_iter().chain(mends) {
                    assert_eq!(english(text.as_str().unwrap()), None, "{text} in {check:#}");
                }
            }
        }
    }
}

/// All that is printed has no gap left, and is in its language.
#[test]
fn reports_scripts_and_checklists_are_whole_in_both_languages() {
    for host in [Host::healthy(), Host::sick(), Host::odd(), Host::two_nodes()] {
        for arguments in [&["--user", "alice"][..], &["--checklist"], &["--fix-script"]] {
            for lang in ["en", "zh"] {
                let (code, stdout, stderr) =
                    doctor(&host, &[arguments, &["--lang", lang]].concat());
                assert!(code <= 2 && stderr.is_empty(), "{stderr}");
                assert!(stdout.len() > 60 && !stdout.contains('\u{1b}'), "{stdout}");
                for gap in stdout.split('{').skip(1) {
                    let name = gap.split('}').next().unwrap_or_default();
                    // Commands for Kubernetes have braces of their own; no gap has a blank.
                    let words = !name.is_empty()
                        && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                    assert!(!words, "{{{name}}} in {stdout}");
                }
                let han = stdout.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
                assert_eq!(han, lang == "zh", "{stdout}");
            }
        }
    }
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

#[test]
fn the_checklist_has_five_points_with_evidence() {
    for (host, answers) in [
        (Host::healthy(), ["unseen", "unseen", "yes", "yes", "yes"]),
        (Host::sick(), ["no", "no", "no", "no", "no"]),
    ] {
        let (_, json, _) = doctor(&host, &["--json", "-"]);
        let report: Value = serde_json::from_str(&json).unwrap();
        let points = report["checklist"].as_array().unwrap();
        let told: Vec<&str> = points.iter().map(|p| p["answer"].as_str().unwrap()).collect();
        assert_eq!(told, answers);
        assert!(points.iter().all(|p| !p["evidence"].as_array().unwrap().is_empty()));
    }
    let (_, text, _) = doctor(&Host::healthy(), &["--checklist", "--lang", "en"]);
    for number in 1..=5 {
        assert!(text.contains(&format!("\n{number}. ")), "{text}");
    }
    assert!(text.contains("cannot be seen from here"), "{text}");
}

#[test]
fn one_odd_device_never_breaks_the_rest() {
    let (healthy, odd) = (report(&Host::healthy(), &[], 0), report(&Host::odd(), &[], 1));
    // The good device is told of as if it were alone.
    let of = |report: &Value| -> Vec<Value> {
        let all = report["checks"].as_array().unwrap().iter();
        all.filter(|c| c["subject"].as_str().unwrap().starts_with("mlx5_0")).cloned().collect()
    };
    assert!(of(&healthy).len() >= 10);
    assert_eq!(of(&healthy), of(&odd));
    for (code, subject, expected) in [
        ("DEVICE", "empty", "not-readable"),
        ("DEVICE", "a_file", "not-readable"),
        ("PORT", "empty", "not-readable"),
        ("PORT", "ports_file", "not-readable"),
        ("PORT", "garbage/1", "not-readable"),
        ("COUNTERS", "garbage/1", "not-readable"),
        ("GID", "garbage/1", "warn"),
        ("COUNTERS", "huge/1 out_of_buffer", "warn"),
        ("DEVICE", "red\u{fffd}[31m", "not-readable"),
    ] {
        assert_eq!(status(&odd, code, subject), expected);
    }
    // One that is asked for by name is looked at alone.
    let one = report(&Host::odd(), &["--device", "mlx5_0"], 0);
    assert_eq!(check(&one, "RDMA_DEVICES", "")["values"]["devices"], "mlx5_0");
    let none = report(&Host::odd(), &["--device", "mlx5_7"], 2);
    assert_eq!(status(&none, "RDMA_DEVICES", ""), "fail");
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            files(&path, into);
        } else if path.is_file() {
            into.push(path);
        }
    }
}

/// Whatever a file holds: every check is there, and nothing panics.
#[test]
fn any_file_may_hold_anything() {
    let words = Words::load().unwrap();
    for host in [Host::healthy(), Host::sick()] {
        let args = DoctorArgs {
            user: Some("alice".to_owned()),
            pid: None,
            device: None,
            root: Some(host.root().to_owned()),
            json: None,
            fix_script: false,
            checklist: false,
            merge: None,
            lang: LangArg { lang: Some(Lang::En) },
        };
        let seen = || {
            let report = look(&args, &words, Lang::En).unwrap();
            let codes = report.checks.iter().map(|check| check.code);
            codes.collect::<std::collections::BTreeSet<_>>().len()
        };
        let whole = seen();
        let mut all = Vec::new();
        files(host.root(), &mut all);
        assert!(all.len() > 60);
        for path in all {
            let before = fs::read(&path).unwrap();
            let half = &before[..before.len().min(200) / 2];
            let huge = [b"18446744073709551615".as_slice(), b"-1", b"99999999999999999999999"];
            let odd = [b"".as_slice(), b"\xff\xfe\x00\n", b"[:::]{}=,\n0::/../..\n", half];
            for bytes in huge.into_iter().chain(odd) {
                fs::write(&path, bytes).unwrap();
                assert!(seen() + 2 >= whole, "{} = {bytes:?}", path.display());
            }
            // A pipe that nobody writes to, and a link out of the root.
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            assert!(seen() + 2 >= whole, "{} is a pipe", path.display());
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            assert!(seen() + 2 >= whole, "{} is a link", path.display());
            fs::remove_file(&path).unwrap();
            fs::write(&path, before).unwrap();
        }
        assert_eq!(seen(), whole);
    }
}

#[test]
fn no_files_at_all_are_a_report_too_and_no_root_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let mut command = mkey(&["doctor", "--json", "--root"]);
    let (code, stdout, stderr) = run(command.arg(empty.path()));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(status(&report, "MEMLOCK", ""), "not-readable");
    assert_eq!(status(&report, "RDMA_DEVICES", ""), "not-applicable");
    let (code, stdout, stderr) = run(&mut mkey(&["doctor", "--root", "/nonexistent"]));
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("/nonexistent"), "{stderr}");
}

#[test]
fn a_user_gets_what_limits_say() {
    let host = Host::healthy();
    host.put("etc/passwd", "alice:x:7:70::/:/bin/sh\n").put("etc/group", "rdma:x:71:alice\n");
    host.put("etc/pam.d/sshd", "session required pam_limits.so\n");
    for (line, says, code) in [
        ("alice - memlock unlimited\n", "without limit", 0),
        ("@rdma - memlock 65536\n", "64 MiB", 1),
        ("* - memlock 64\n", "64 KiB", 2),
        ("bob - memlock 64\n", "no line of limits.conf", 1),
    ] {
        host.put("etc/security/limits.conf", line);
        let report = report(&host, &["--user", "alice", "--lang", "en"], code);
        let found = check(&report, "MEMLOCK_USER", "alice")["found"].as_str().unwrap();
        assert!(found.contains(says), "{line}: {found}");
    }
}

#[test]
fn root_and_who_is_not_here_are_not_told_to_have_the_kernels_default() {
    let host = Host::healthy();
    host.put("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    let found = |user: &str, expected: &str| {
        let report = report(&host, &["--user", user, "--lang", "en"], 0);
        let check = check(&report, "MEMLOCK_USER", user).clone();
        assert_eq!(check["status"], expected, "{check:#}");
        assert_eq!(check["mend"], serde_json::json!([]), "{check:#}");
        check["found"].as_str().unwrap().to_owned()
    };
    assert!(found("root", "ok").contains("CAP_IPC_LOCK"));
    assert!(found("nosuchuser", "not-readable").contains("not in /etc/passwd"));
}

#[test]
fn a_report_that_can_not_be_written_is_none() {
    let (code, stdout, stderr) = doctor(&Host::healthy(), &["--json", "/nonexistent/r.json"]);
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("/nonexistent/r.json"), "{stderr}");
}

/// The process holds CAP_IPC_LOCK, and nothing says in which user namespace.
#[test]
fn a_namespace_that_can_not_be_read_is_not_the_initial_one() {
    let host = Host::healthy();
    host.limits("65536", "1048576");
    host.status("0000000000004000", 0, "0-63");
    assert_eq!(status(&report(&host, &[], 0), "MEMLOCK", ""), "ok");
    fs::remove_file(host.root().join("proc/self/ns/user")).unwrap();
    let unread = report(&host, &["--lang", "en"], 0);
    for code in ["MEMLOCK", "IPC_LOCK", "PINNED", "NAMESPACES"] {
        assert_eq!(status(&unread, code, ""), "not-readable", "{code}");
    }
    // Its map of ids says so, too: a rootless container.
    host.put("proc/self/uid_map", "0 1000 1\n");
    let rootless = report(&host, &[], 2);
    assert_eq!(status(&rootless, "MEMLOCK", ""), "fail");
    assert_eq!(status(&rootless, "NAMESPACES", ""), "warn");
}

#[test]
fn process_1_of_a_container_says_nothing_of_the_hosts_network() {
    let host = Host::healthy();
    assert_eq!(status(&report(&host, &[], 0), "NAMESPACES", ""), "ok");
    fs::remove_file(host.root().join("proc/self/ns/pid")).unwrap();
    std::os::unix::fs::symlink("pid:[4026532300]", host.root().join("proc/self/ns/pid")).unwrap();
    assert_eq!(status(&report(&host, &[], 0), "NAMESPACES", ""), "not-readable");
}

#[test]
fn a_line_that_is_missing_is_told_as_that() {
    let host = Host::healthy();
    host.put("proc/self/status", "Name:\tkthreadd\nCapEff:\t0000000000000000\n");
    let report = report(&host, &["--lang", "en"], 0);
    assert_eq!(check(&report, "PINNED", "")["found"], "/proc/self/status has no line VmPin");
}

#[test]
fn groups_that_can_not_be_seen_are_no_groups_without_a_limit() {
    let host = Host::healthy();
    let of = |expected: &str, codes: &[&str]| {
        let report = report(&host, &[], 0);
        for code in codes {
            let found = checks(&report, code);
            assert!(found.iter().all(|check| check["status"] == expected), "{found:#?}");
        }
    };
    let all = ["MEMORY_CGROUP", "HUGE_PAGES_CGROUP", "RDMA_CGROUP"];
    of("ok", &all);
    fs::remove_dir_all(host.root().join("sys/fs/cgroup")).unwrap();
    of("not-readable", &all);
    // A top that has no group of this process says nothing either; that of a container is the group.
    host.put("sys/fs/cgroup/cgroup.procs", "1\n");
    of("not-readable", &all);
    host.put("sys/fs/cgroup/cgroup.type", "domain\n");
    of("ok", &all);
    host.put("sys/fs/cgroup/memory.max", "1073741824\n");
    of("not-readable", &["MEMORY_CGROUP"]);
    // Beside version 1 the tree of version 2 lies elsewhere.
    host.put("sys/fs/cgroup/memory.current", "0\n");
    of("ok", &["MEMORY_CGROUP"]);
    host.put("sys/fs/cgroup/unified/user.slice/user-0.slice/session-3.scope/cgroup.procs", "");
    of("ok", &all);
}

#[test]
fn files_that_were_read_do_not_fill_a_group() {
    let host = Host::healthy();
    let group = "sys/fs/cgroup/user.slice/user-0.slice/session-3.scope";
    host.put(&format!("{group}/memory.max"), "1073741824\n");
    host.put(&format!("{group}/memory.current"), "1073000000\n");
    assert_eq!(status(&report(&host, &[], 1), "MEMORY_CGROUP", ""), "warn");
    host.put(&format!("{group}/memory.stat"), "anon 1000\ninactive_file 1000000000\n");
    assert_eq!(status(&report(&host, &[], 0), "MEMORY_CGROUP", ""), "ok");
    // What is promised is limited by itself.
    host.put(&format!("{group}/hugetlb.2MB.rsvd.max"), "2097152\n");
    host.put(&format!("{group}/hugetlb.2MB.rsvd.current"), "2097152\n");
    let report = report(&host, &[], 2);
    let lines = mends(&report, "HUGE_PAGES_CGROUP", "2 MiB rsvd");
    assert_eq!(lines, format!("echo max | sudo tee /{group}/hugetlb.2MB.rsvd.max\n"));
}

#[test]
fn another_process_of_a_copied_host() {
    let host = Host::healthy();
    for file in ["limits", "status", "cgroup", "environ", "maps"] {
        let text = fs::read(host.root().join("proc/self").join(file)).unwrap();
        host.put(&format!("proc/7/{file}"), text);
    }
    host.put("proc/7/environ", "SLURM_JOB_ID=9\0");
    let report = report(&host, &["--pid", "7"], 0);
    assert_eq!(report["process"]["launcher"]["kind"], "slurm");
    assert_eq!(
        (&report["process"]["pid"], &report["process"]["name"]),
        (&7.into(), &"server".into())
    );
    let (code, _, stderr) = doctor(&host, &["--pid", "8"]);
    assert!(code == 3 && stderr.contains("no such process"), "{stderr}");
}
