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
pub fn doctor(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    run(mkey(&["doctor", "--root"]).arg(host.root()).args(arguments))
}

pub fn report(host: &Host, arguments: &[&str], code: i32) -> Value {
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
pub fn mends(report: &Value, code: &str, subject: &str) -> String {
    let mends = check(report, code, subject)["mend"].as_array().unwrap();
    let lines = mends.iter().flat_map(|mend| {
        ["run", "then", "edit"].map(|kind| mend[kind].as_array().unwrap()).into_iter().flatten()
    });
    lines.map(|line| format!("{}\n", line.as_str().unwrap())).collect()
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
    // Twice the limit, whatever it is.
    let memory = mends(&report, "MEMORY_CGROUP", "");
    assert_eq!(memory, "sudo systemctl set-property target.service MemoryMax=2G\n");
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
                // Devices may have any name.
                let found =
                    if check["code"] == "RDMA_DEVICES" { &check["code"] } else { &check["found"] };
                for text in [found, &check["why"]].into_iter().chain(mends) {
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
    assert_eq!(check(&one, "RDMA_DEVICES", "")["values"]["devices"], "mlx5_0");
}

#[test]
fn a_device_that_is_not_there_has_no_report() {
    for (host, there) in [
        (Host::healthy(), "there are mlx5_0"),
        (Host::odd(), "there are "),
        (Host::two_nodes(), ""),
    ] {
        let root = host.root().to_str().unwrap().to_owned();
        let arguments = ["doctor", "--root", &root, "--device", "mlx5_7"];
        let (code, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
        assert!(stderr.contains("device mlx5_7: there is no such device"), "{stderr}");
        assert!(stderr.contains(there) && !stderr.contains('\u{1b}'), "{stderr}");
    }
}

#[test]
fn a_folder_without_a_host_has_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["doctor", "--root", folder.path().to_str().unwrap()];
    let (code, stdout, stderr) = run(&mut mkey(&arguments));
    assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
    assert!(stderr.contains("no files of a host"), "{stderr}");
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    let (code, stdout, stderr) = run(&mut mkey(&arguments));
    // Folders alone are a host whose state is not known.
    assert!(code == 3 && !stdout.is_empty() && stderr.contains("no verdict"), "{code} {stderr}");
}

/// A setting that holds something else is told so, not that it is not there.
#[test]
fn a_setting_of_io_uring_that_can_not_be_read_says_why() {
    let path = "proc/sys/kernel/io_uring_disabled";
    for (bytes, why) in [(Some("many"), "many"), (None, "not there")] {
        let host = Host::healthy();
        match bytes {
            Some(bytes) => {
                host.put(path, bytes);
            }
            None => fs::remove_file(host.root().join(path)).unwrap(),
        }
        let found = report(&host, &["--lang", "en"], 0);
        let found = check(&found, "IO_URING", "");
        assert_eq!(found["status"], "not-readable");
        assert!(found["found"].as_str().unwrap().contains(why), "{found}");
    }
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
    fs::create_dir(empty.path().join("sys")).unwrap();
    let mut command = mkey(&["doctor", "--json", "--root"]);
    let (code, stdout, stderr) = run(command.arg(empty.path()));
    assert!(code == 3 && stderr.contains("no verdict"), "{code} {stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["unread"].as_array().unwrap().len(), 3);
    assert_eq!(report["process"]["launcher"]["kind"], "unknown");
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
