//! What can not be seen is told as that, and not as well or as wrong.

use super::host::Host;
use super::roots::{doctor, mends, report};
use super::{check, checks, status};
use std::fs;

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

/// A gate that asks for 0 is not passed by a host of which nothing is known.
#[test]
fn without_the_kernel_the_status_or_the_limits_there_is_no_verdict() {
    for (file, odd) in [
        ("proc/sys/kernel/osrelease", "x"),
        ("proc/self/status", "Name:\tx\n"),
        ("proc/self/limits", "Limit\n"),
    ] {
        let host = Host::healthy();
        fs::remove_file(host.root().join(file)).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(host.root().join(file)).status();
        assert!(pipe.unwrap().success());
        for lang in ["en", "zh"] {
            let (code, stdout, stderr) = doctor(&host, &["--lang", lang]);
            assert!(code == 3 && !stdout.is_empty(), "{file} {code}");
            assert!(stderr.contains(file), "{stderr}");
        }
        fs::remove_file(host.root().join(file)).unwrap();
        host.put(file, odd);
        let report = report_of(&host, 3);
        assert_eq!(report["unread"].as_array().unwrap().len(), 1, "{:#}", report["unread"]);
    }
    assert_eq!(report_of(&Host::healthy(), 0)["unread"], serde_json::json!([]));
}

fn report_of(host: &Host, expected: i32) -> serde_json::Value {
    let (code, stdout, stderr) = doctor(host, &["--json", "--lang", "en"]);
    assert_eq!(code, expected, "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn a_kernel_that_is_not_told_is_not_told_to_need_protection() {
    let host = Host::healthy();
    fs::remove_file(host.root().join("proc/sys/kernel/osrelease")).unwrap();
    fs::remove_file(host.root().join("proc/self/environ")).unwrap();
    let report = report_of(&host, 3);
    let found = check(&report, "FORK_PROTECTION", "");
    assert_eq!(found["status"], "not-readable");
    let text = found["found"].as_str().unwrap();
    assert!(text.contains("can not be seen") && text.contains("osrelease"), "{text}");
    assert_eq!(report["kernel"], "?");
}

/// What is not there in a copy may not have been copied.
#[test]
fn what_was_not_copied_is_not_told_to_be_none() {
    let host = Host::healthy();
    fs::remove_dir_all(host.root().join("sys/class/infiniband/mlx5_0/device/iommu_group")).unwrap();
    assert_eq!(status(&report_of(&host, 0), "IOMMU", "mlx5_0"), "ok");
    fs::remove_file(host.root().join("proc/cmdline")).unwrap();
    assert_eq!(status(&report_of(&host, 0), "IOMMU", "mlx5_0"), "not-readable");
    assert_eq!(status(&report_of(&host, 0), "PEER_MEMORY", ""), "not-applicable");
    fs::remove_dir_all(host.root().join("sys/module")).unwrap();
    fs::remove_dir_all(host.root().join("sys/class/infiniband")).unwrap();
    fs::create_dir_all(host.root().join("sys/class/infiniband")).unwrap();
    for code in ["IOMMU", "PEER_MEMORY"] {
        assert_eq!(status(&report_of(&host, 0), code, ""), "not-readable", "{code}");
    }
}

#[test]
fn a_counter_without_a_number_does_not_disappear() {
    let host = Host::healthy();
    let counters = "sys/class/infiniband/mlx5_0/ports/1/counters";
    host.put(&format!("{counters}/symbol_error"), "99999999999999999999\n");
    host.put(&format!("{counters}/port_rcv_errors"), "x\n");
    let report = report_of(&host, 0);
    let found = check(&report, "COUNTERS", "mlx5_0/1 unread");
    assert_eq!(found["status"], "not-readable");
    assert_eq!(found["measured"]["names"], "port_rcv_errors, symbol_error");
    let text = found["found"].as_str().unwrap();
    assert!(text.contains("port_rcv_errors, symbol_error"), "{text}");
}

/// The line at fault is quoted, and a figure that can not be is none.
#[test]
fn figures_that_can_not_be_are_told_with_their_line() {
    let host = Host::healthy();
    host.limits("99999999999999999999999", "1048576");
    let told = |code: &str, subject: &str, ended: i32| {
        let report = report_of(&host, ended);
        let check = check(&report, code, subject);
        assert_eq!(check["status"], "not-readable", "{check:#}");
        check["found"].as_str().unwrap().to_owned()
    };
    assert!(told("MEMLOCK", "", 3).contains("“Max locked memory 9999"));
    host.limits("65536000", "x");
    assert!(told("NOFILE", "", 1).contains("“Max open files x"));
    host.limits("unlimited", "1048576");
    let status = "CapEff:\t0000000000000000\nVmLck:\t0 kB\nVmPin:\t18446744073709551615 kB\n";
    host.put("proc/self/status", status);
    assert!(told("PINNED", "", 0).contains("“VmPin: 18446744073709551615 kB”"));
    host.put("proc/self/status", "CapEff:\t0\nVmLck:\tmany\nVmPin:\t0 kB\n");
    assert!(told("PINNED", "", 0).contains("“VmLck: many”"));
    host.put("sys/class/net/eth2/mtu", "18446744073709551615\n");
    assert!(told("MTU", "mlx5_0/1", 0).contains("18446744073709551615"));
    // A copy of a length that no list of mappings has is not counted for long.
    let maps = host.root().join("proc/self/maps");
    fs::File::create(maps).unwrap().set_len(10 << 30).unwrap();
    assert!(told("MAP_COUNT", "", 0).contains("longer than any"));
}

#[test]
fn processes_without_memory_have_no_report() {
    let host = Host::healthy();
    for (status, lang, part) in [
        ("State:\tZ (zombie)\n", "en", "has ended"),
        ("State:\tS (sleeping)\nKthread:\t1\n", "en", "thread of the kernel"),
        ("State:\tI (idle)\n", "zh", "内核线程"),
    ] {
        host.put("proc/7/status", status);
        let (code, stdout, stderr) = doctor(&host, &["--pid", "7", "--lang", lang]);
        assert_eq!((code, stdout.as_str()), (3, ""), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
    let (code, _, stderr) = doctor(&host, &["--pid", "8", "--lang", "zh"]);
    assert!(code == 3 && stderr.contains("没有这个进程"), "{stderr}");
    fs::remove_dir_all(host.root().join("proc")).unwrap();
    let (code, _, stderr) = doctor(&host, &["--pid", "1", "--lang", "en"]);
    assert!(code == 3 && stderr.contains("/proc is not mounted"), "{stderr}");
}
