//! `mkey config`, run.

mod common;

use common::{mkey, run};
use std::io::Write;

const VENDORS: [&str; 7] = ["h3c", "huawei", "nxos", "eos", "sonic", "cumulus", "onyx"];

#[test]
fn a_configuration_is_a_result() {
    for vendor in VENDORS {
        let mut arguments = vec!["config", "switch", "--vendor", vendor];
        arguments.extend((vendor == "sonic").then_some("--dscp-map"));
        let (code, stdout, stderr) = run(&mut mkey(&arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{vendor}");
        assert!(stdout.contains("RoCE") && stdout.contains("verify: "), "{stdout}");
        assert!(!stdout.contains('\u{1b}'));
    }
}

#[test]
fn what_is_inconsistent_is_refused_with_the_reason() {
    for (arguments, part) in [
        (
            &["switch", "--vendor", "sonic"][..],
            "stock map of SONiC (community) sends to priority 1, a lossy queue",
        ),
        (&["switch", "--vendor", "h3c", "--roce-prio", "7", "--roce-dscp", "56"], "0, 6 and 7"),
        (&["switch", "--vendor", "eos", "--cnp-prio", "3"], "both on priority 3"),
        (&["nic", "--driver", "mlx5", "--cnp-dscp", "26"], "both with DSCP 26"),
        (
            &["host", "--hugepages", "2MiB=16GiB", "--memlock", "8MiB"],
            "huge pages count against the limit",
        ),
        (&["switch", "--vendor", "eos", "--ecn-min", "9", "--ecn-max", "5"], "below the beginning"),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["config"], arguments].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains("inconsistent") && stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn nics_and_hosts() {
    for (arguments, parts) in [
        (
            &["nic", "--driver", "mlx5", "--netdev", "eth2"][..],
            &[
                "NETDEV=eth2",
                "dscp-prio 26:3 48:6",
                "echo 106 >",
                "ROCE_CC_PRIO_MASK_P1=8",
                "MR_MAX and ODP_SUPPORT of mlxconfig do not exist",
            ][..],
        ),
        (
            &["nic", "--driver", "mlx5", "--tool", "mlnx-qos"],
            &["--pfc 0,0,0,1,0,0,0,0", "--dscp2prio set,26,3"],
        ),
        (&["nic", "--driver", "bnxt"], &["-m 3 -r 3 -s 26 -c 6 -p 48", "DEVICE=bnxt_re0"]),
        (
            &[
                "host",
                "--hugepages",
                "2MiB=16GiB,1GiB=4GiB",
                "--memlock",
                "64GiB",
                "--user",
                "@rdma",
                "--max-map-count",
                "262144",
            ],
            &[
                "vm.nr_hugepages = 8192",
                "default_hugepagesz=2M hugepagesz=2M hugepages=8192 hugepagesz=1G hugepages=4",
                "@rdma soft memlock 67108864",
                "LimitMEMLOCK=68719476736",
                "vm.max_map_count = 262144",
                "memlock=68719476736:68719476736",
            ],
        ),
        (&["host"], &["* hard memlock unlimited", "LimitMEMLOCK=infinity", "memlock=-1:-1"]),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["config"], arguments].concat()));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        let joined = stdout.replace("\n# ", " ");
        for part in parts {
            assert!(joined.contains(part) || stdout.contains(part), "{part:?} is not in\n{stdout}");
        }
    }
}

#[test]
fn a_script_for_a_nic_is_one_that_a_shell_takes() {
    for driver in ["mlx5", "bnxt"] {
        let (_, stdout, _) = run(&mut mkey(&["config", "nic", "--driver", driver]));
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.arg("-n").stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdout.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{stdout}");
    }
}

#[test]
fn every_line_of_the_json_has_a_source() {
    let (code, stdout, _) =
        run(&mut mkey(&["config", "switch", "--vendor", "nxos", "--json", "-"]));
    assert_eq!(code, 0);
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(value["schema"], 1);
    let lines: Vec<_> = value["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|b| b["lines"].as_array().unwrap())
        .collect();
    assert!(lines.len() > 20);
    for line in lines {
        assert!(!line["source"].as_str().unwrap().is_empty());
        assert!(["doc", "seen", "infer"].contains(&line["confidence"].as_str().unwrap()), "{line}");
    }
}

#[test]
fn check_compares_a_file_with_the_hosts() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (_, config, _) = run(&mut mkey(&["config", "switch", "--vendor", "eos"]));
    std::fs::write(file.path(), config).unwrap();
    let path = file.path().to_str().unwrap();
    let check = |dscp: &str| {
        let marking =
            ["--roce-dscp", dscp, "--roce-prio", "3", "--cnp-dscp", "48", "--cnp-prio", "6"];
        run(&mut mkey(&[&["config", "check", "--switch", path][..], &marking].concat()))
    };
    let (code, stdout, stderr) = check("26");
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(
        stdout.contains("switch: Arista EOS")
            && stdout.contains("same      RoCE: DSCP 26 goes to priority 3"),
        "{stdout}"
    );
    let (code, stdout, stderr) = check("48");
    assert_eq!(code, 1);
    assert!(stdout.contains("MISMATCH  RoCE: the host means DSCP 48"), "{stdout}");
    assert!(stderr.contains("contradict each other"), "{stderr}");
}

#[test]
fn check_says_what_it_lacks() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let (code, _, stderr) = run(&mut mkey(&["config", "check", "--switch", path]));
    assert_eq!(code, 2);
    assert!(stderr.contains("name it by --vendor"), "{stderr}");
    let (code, _, stderr) =
        run(&mut mkey(&["config", "check", "--switch", path, "--vendor", "eos"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("neither --host nor a marking"), "{stderr}");
    let (code, _, stderr) = run(&mut mkey(&[
        "config",
        "check",
        "--switch",
        "/nonexistent",
        "--vendor",
        "eos",
        "--roce-dscp",
        "26",
    ]));
    assert_eq!(code, 3);
    assert!(stderr.contains("/nonexistent"), "{stderr}");
}

#[test]
fn a_file_that_is_no_configuration_of_the_vendor_is_3_and_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("switch.cfg");
    let check = |vendor: &str, content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let mut command = mkey(&["config", "check", "--roce-dscp", "26", "--roce-prio", "3"]);
        run(command.args(["--vendor", vendor, "--switch"]).arg(&path))
    };
    let nxos =
        b"hostname x\nclass-map type qos match-any R\n match dscp 26\ninterface Ethernet1/1\n";
    for vendor in VENDORS {
        for content in
            [&b""[..], b"\n! nothing\n", b"\x7fELF\x02\0\0\xff", b"{}", b"[1]", b"Dear all,\n"]
        {
            let (code, stdout, stderr) = check(vendor, content);
            assert_eq!((code, stdout.as_str()), (3, ""), "{vendor}, {content:?}: {stderr}");
            assert!(stderr.contains("switch.cfg: "), "{stderr}");
        }
        let (code, stdout, stderr) = check(vendor, nxos);
        assert_eq!(code == 3, vendor != "nxos", "{vendor}: {stdout}{stderr}");
    }
    let (_, _, stderr) = check("eos", nxos);
    assert!(stderr.contains("is a line of Cisco NX-OS"), "{stderr}");
    // One that says nothing of RoCE is compared: that is a result.
    let (code, stdout, _) = check("eos", b"hostname leaf1\ninterface Ethernet1\n mtu 9214\n");
    assert!(code == 1 && stdout.contains("MISMATCH  PFC for priority 3"), "{stdout}");
    let (code, stdout, _) = check("sonic", br#"{"PORT": {"Ethernet0": {"mtu": "9100"}}}"#);
    assert!(code == 1 && stdout.contains("MISMATCH"), "{stdout}");
    // A result that can not be written is no contradiction, either.
    let mut command = mkey(&["config", "check", "--roce-dscp", "26", "--json", "/dev/full"]);
    let (code, _, stderr) = run(command.args(["--vendor", "eos", "--switch"]).arg(&path));
    assert_eq!(code, 3, "{stderr}");
}

#[test]
fn names_of_a_switch_do_not_steer_the_terminal() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let odd = "Eth\u{1b}]52;c;YWJj\u{7}\u{9b}31m\u{202e}1";
    let config =
        format!("hostname x\ninterface {odd}\n priority-flow-control priority 3 no-drop\n");
    std::fs::write(file.path(), config).unwrap();
    let marking = ["config", "check", "--roce-dscp", "26", "--roce-prio", "3", "--vendor", "eos"];
    let steers = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    let (code, stdout, _) = run(mkey(&marking).arg("--switch").arg(file.path()));
    assert_eq!(code, 1);
    assert!(!stdout.contains(steers), "{stdout:?}");
    assert!(stdout.contains("\\u{1b}]52;c;YWJj\\u{7}"), "{stdout}");
    // JSON keeps the name, and escapes it in its own way.
    let (_, stdout, _) = run(mkey(&marking).args(["--json", "-", "--switch"]).arg(file.path()));
    assert!(!stdout.contains(steers), "{stdout:?}");
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(value["switch"]["ports"][odd].is_object(), "{stdout}");
}

#[test]
fn a_nics_names_are_ones_that_can_be_and_no_option_is_dropped() {
    for (arguments, part) in [
        (&["--driver", "mlx5", "--pci", "zz"][..], "a PCI address"),
        (&["--driver", "mlx5", "--netdev", ".."], "no network device"),
        (&["--driver", "mlx5", "--netdev", "sixteencharacter"], "at most 15"),
        (&["--driver", "bnxt", "--tool", "mlnx-qos"], "--tool is for mlx5"),
        (&["--driver", "bnxt", "--pci", "0000:01:00.0"], "--pci is for mlx5"),
        (&["--driver", "mlx5", "--roce-dscp", "64"], "64 is not in 0..=63"),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["config", "nic"], arguments].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}
