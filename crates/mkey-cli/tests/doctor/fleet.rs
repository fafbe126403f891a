//! Reports of many hosts, made and compared.

use super::common::{mkey, run};
use super::host::Host;
use serde_json::Value;
use std::path::Path;

/// Writes the report of a host.
fn write(host: &Host, name: &str, folder: &Path) {
    host.put("proc/sys/kernel/hostname", name);
    let file = folder.join(format!("{name}.json"));
    let mut command = mkey(&["doctor", "--lang", "en", "--json"]);
    command.arg(&file).arg("--checklist").arg("--root").arg(host.root());
    let (_, stdout, stderr) = run(&mut command);
    assert!(stdout.contains(name) && stderr.is_empty(), "{stderr}");
}

fn merge(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    run(mkey(&["doctor", "--merge"]).arg(folder).args(arguments))
}

#[test]
fn the_odd_hosts_of_a_fleet_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["node1", "node2", "node3"] {
        write(&Host::healthy(), name, folder.path());
    }
    let (code, stdout, _) = merge(folder.path(), &["--lang", "en"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("3 hosts") && stdout.contains("set up alike"), "{stdout}");

    let other = Host::healthy();
    other.put("sys/class/infiniband/mlx5_0/fw_ver", "20.1.1\n");
    other.put("proc/sys/vm/max_map_count", "262144\n");
    write(&other, "node4", folder.path());
    write(&Host::sick(), "node5", folder.path());
    std::fs::write(folder.path().join("x.json"), "{}").unwrap();
    let (code, stdout, stderr) = merge(folder.path(), &["--lang", "en"]);
    assert_eq!((code, stderr.as_str()), (2, ""));
    for part in [
        "skipped x.json: not a report of mkey doctor",
        "DEVICE [mlx5_0] firmware",
        "4 of 5 have 28.39.1002",
        "20.1.1: node4",
        "MEMLOCK soft",
        "4 of 5 have unlimited",
        "64 KiB: node5",
        "FAIL MEMLOCK",
        "@ node5",
        "LimitMEMLOCK=infinity",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in\n{stdout}");
    }
    let (code, json, _) = merge(folder.path(), &["--json"]);
    assert_eq!(code, 2);
    let merged: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(merged["hosts"].as_array().map(Vec::len), Some(5));
    let (_, zh, _) = merge(folder.path(), &["--lang", "zh"]);
    assert!(zh.contains("5 台主机") && zh.contains("主机间的差异"), "{zh}");
}

#[test]
fn a_report_is_never_written_over_by_the_comparison() {
    let folder = tempfile::tempdir().unwrap();
    write(&Host::healthy(), "node1", folder.path());
    let report = folder.path().join("node1.json");
    let before = std::fs::read(&report).unwrap();
    let (code, stdout, stderr) = merge(folder.path(), &["--json", report.to_str().unwrap()]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("this is what is read"), "{stderr}");
    assert_eq!(std::fs::read(&report).unwrap(), before);
    // An earlier comparison may be beside them.
    let merged = folder.path().join("merged.json");
    for _ in 0..2 {
        let (code, _, stderr) = merge(folder.path(), &["--json", merged.to_str().unwrap()]);
        assert!(code < 2 && stderr.is_empty(), "{stderr}");
    }
}

#[test]
fn no_report_is_3_and_so_is_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.json"), "[]").unwrap();
    let (code, stdout, stderr) = merge(folder.path(), &["--lang", "en"]);
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("skipped x.json") && stderr.contains("no report"), "{stderr}");
    let (code, _, stderr) = merge(Path::new("/nonexistent"), &[]);
    assert!(code == 3 && stderr.contains("/nonexistent"), "{stderr}");
}
