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
