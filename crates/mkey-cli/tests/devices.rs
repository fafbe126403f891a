//! `mkey devices`, and devices by name.

mod common;

use common::{mkey, run, skipped};
use std::path::Path;

#[test]
fn the_software_rnic_is_always_there_and_why_no_other_is_said() {
    let mut command = mkey(&["devices"]);
    command.env("MKEY_LIBIBVERBS", "/nonexistent/libibverbs.so.1");
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("mkey0 (mkey software RNIC, in software"), "{stdout}");
    assert!(
        stdout.contains("No real device: /nonexistent/libibverbs.so.1 is not there"),
        "{stdout}"
    );
    assert!(stdout.contains("install libibverbs1"), "{stdout}");
}

#[test]
fn devices_as_json() {
    let (code, stdout, stderr) = run(&mut mkey(&["devices", "--device", "mkey0", "--json", "-"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&value["schema"], &value["devices"][0]["name"]), (&1.into(), &"mkey0".into()));
    assert_eq!(value["devices"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_unknown_device_lists_those_there_are_and_the_mend() {
    let commands = [
        &["devices"][..],
        &["bench"],
        &["bench", "registration"],
        &["bench", "storage"],
        &["bench", "tensor"],
        &["model"],
    ];
    for command in commands {
        let mut command = mkey(&[command, &["--device", "mlx5_0"]].concat());
        command.env("MKEY_LIBIBVERBS", "/nonexistent");
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        for part in
            ["no device \"mlx5_0\"", "mkey0", "/nonexistent is not there", "MKEY_LIBIBVERBS"]
        {
            assert!(stderr.contains(part), "{part:?} is not in {stderr}");
        }
    }
}

#[test]
fn a_kernel_without_rdma_is_said_to_be_one() {
    if Path::new("/sys/class/infiniband").exists() {
        return skipped("a_kernel_without_rdma_is_said_to_be_one", "this kernel has RDMA");
    }
    let (code, stdout, _) = run(&mut mkey(&["devices"]));
    assert_eq!(code, 0);
    if stdout.contains("libibverbs.so.1 is not there") {
        return skipped("a_kernel_without_rdma_is_said_to_be_one", "libibverbs is not installed");
    }
    assert!(stdout.contains("No real device: the kernel offers no RDMA to programs"), "{stdout}");
    assert!(stdout.contains("modprobe rdma_rxe"), "{stdout}");
}

#[test]
fn what_only_the_software_rnic_has_is_refused_for_others() {
    let commands =
        [&["bench"][..], &["bench", "registration"], &["bench", "storage"], &["bench", "tensor"]];
    for command in commands.into_iter().chain([&["model"][..]]) {
        for extra in [&["--pin", "mlock"][..], &["--command-cost", "1us"]] {
            let arguments = [command, &["--device", "rxe0"], extra].concat();
            let (code, stdout, stderr) = run(&mut mkey(&arguments));
            assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
            assert!(stderr.contains("for mkey0 only"), "{stderr}");
        }
    }
}
