//! Statistics of a network interface that every kernel has: one of a virtual pair, in a namespace of
//! its own.

use mkey_os::error::Errno;
use mkey_os::ethtool::statistics;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

const SCRIPT: &str = "ip link add v0 type veth peer name v1 || exit 77
exec \"$0\" --ignored --exact an_interface_of_a_pair_tells_the_other";

#[test]
fn a_virtual_pair_is_read() {
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT]).arg(test);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skipped("a_virtual_pair_is_read", &format!("unshare: {error}")),
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    if output.status.code() == Some(77) || stderr.starts_with("unshare: ") {
        return skipped("a_virtual_pair_is_read", stderr.trim());
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[test]
#[ignore = "run by a_virtual_pair_is_read, where there is a pair"]
fn an_interface_of_a_pair_tells_the_other() {
    if let Err(error) = statistics("v0") {
        // Ignored tests are run elsewhere, too, where there is no pair.
        assert_eq!(error.errno, Errno::NODEV);
        return skipped("an_interface_of_a_pair_tells_the_other", "there is no pair here");
    }
    let index = |name: &str| {
        let path = format!("/sys/class/net/{name}/ifindex");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let of = |name: &str| {
        let all = statistics(name).unwrap();
        assert!(all.iter().all(|one| !one.name.is_empty()), "{all:?}");
        all.iter().find(|one| one.name == "peer_ifindex").unwrap().value
    };
    let (first, second) = (of("v0"), of("v1"));
    assert!(first != second && first > 0 && second > 0, "{first} {second}");
    // /sys may be that of the namespace outside.
    if let (Some(v0), Some(v1)) = (index("v0"), index("v1")) {
        assert_eq!((first, second), (v1, v0));
    }
}

/// Notes that a test can not run here, and why. Fails where nobody reads such notes.
fn skipped(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
