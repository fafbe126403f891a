//! Unmodified programs of Debian's packages in two network namespaces, by RoCEv2 over UDP.

#[path = "../common/c.rs"]
mod c;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/namespaces.rs"]
mod namespaces;
#[path = "../common/outlives.rs"]
mod outlives;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod captured;
mod own;
mod pair;
mod pcap;
mod process;

use namespaces::Namespaces;
use pair::Pair;

/// Of the frames, in bytes.
const MTU: u32 = 1500;
/// What is passed with all programs of perftest: they say much about the processor's frequency.
const PERFTEST: &[&str] = &["-F", "-x", "0"];
/// What befalls packets of the programs that mend it.
const FAULTS: &[&str] = &["--faults", "loss=1%,reorder=1%,seed=7"];

/// The two networks of a test, which has a name; `None` if they can not be had here, which is noted.
fn namespaces(test: &str, programs: &[&str]) -> Option<Namespaces> {
    for program in programs.iter().chain(&["ip"]) {
        if !preloaded::has(test, program) {
            return None;
        }
    }
    match Namespaces::new(MTU) {
        Ok(both) => Some(both),
        Err(why) => {
            common::skipped(test, &format!("no network namespaces: {why}"));
            None
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs programs, each as `PROGRAM ARGUMENTS`, by IPv6 or IPv4.
fn all(test: &str, versions: &[bool], options: &[&str], programs: &[&str]) {
    let names: Vec<&str> = programs.iter().filter_map(|line| line.split(' ').next()).collect();
    let Some(both) = namespaces(test, &names) else { return };
    for &v6 in versions {
        let pair = Pair::new(&both, v6).options(options);
        for line in programs {
            let mut arguments = words(line);
            match line.starts_with("ibv_") {
                true => arguments.extend(["-g", "0", "-c"]),
                false => arguments.extend(PERFTEST),
            }
            pair.succeeds(&arguments);
        }
    }
}

/// The examples of rdma-core, which look at all they receive. By IPv4 more of them make the table of
/// `docs/compatibility.md`.
#[test]
fn pingpongs_by_udp_of_ipv6() {
    let programs = [
        "ibv_rc_pingpong -n 200",
        "ibv_rc_pingpong -n 50 -s 70000 -m 1024 -e",
        "ibv_uc_pingpong -n 200",
        "ibv_ud_pingpong -n 200 -s 1024",
        "ibv_srq_pingpong -n 200",
    ];
    all("pingpongs_by_udp_of_ipv6", &[true], &[], &programs);
}

#[test]
fn perftest_by_udp_of_ipv6() {
    let programs = [
        "ib_write_bw -s 65536 -n 200",
        "ib_read_bw -s 65536 -n 200",
        "ib_send_bw -s 65536 -n 200",
        "ib_atomic_bw -n 200",
        "ib_write_bw -s 1048576 -n 20",
        "ib_read_bw -s 1048576 -n 20",
        "ib_write_lat -s 8 -n 200",
        "ib_read_lat -s 4096 -n 200",
        "ib_send_lat -s 4096 -n 200",
        "ib_send_bw -s 4096 -n 200 -e",
        "ib_atomic_lat -n 200",
        "ib_write_bw -c UC -s 4096 -n 200",
        "ib_send_bw -c UD -s 1024 -n 200",
        "ib_write_bw -s 4096 -n 200 -q 8",
        "ib_write_bw -s 4096 -n 200 -b",
    ];
    all("perftest_by_udp_of_ipv6", &[true], &[], &programs);
}

/// Reliable connections mend what is lost and reordered; nothing hangs.
#[test]
fn pingpongs_by_udp_that_loses_and_reorders() {
    let programs = ["ibv_rc_pingpong -n 200", "ibv_srq_pingpong -n 200"];
    let test = "pingpongs_by_udp_that_loses_and_reorders";
    let Some(both) = namespaces(test, &["ibv_rc_pingpong", "ibv_srq_pingpong"]) else { return };
    for v6 in [false, true] {
        let pair = Pair::new(&both, v6).options(FAULTS);
        for line in programs {
            pair.succeeds_but_for_last_words(&[&words(line)[..], &["-g", "0", "-c"]].concat());
        }
    }
}

#[test]
fn perftest_by_udp_that_loses_and_reorders() {
    let programs = [
        "ib_write_bw -s 64 -n 200",
        "ib_write_bw -s 4096 -n 200",
        "ib_write_bw -s 65536 -n 200",
        "ib_read_bw -s 4096 -n 200",
        "ib_read_bw -s 65536 -n 200",
        "ib_send_bw -s 4096 -n 200",
        "ib_send_bw -s 65536 -n 200",
        "ib_atomic_bw -n 200",
        "ib_write_lat -s 4096 -n 200",
        "ib_read_lat -s 4096 -n 200",
        "ib_send_lat -s 4096 -n 200",
        "ib_atomic_lat -n 200",
    ];
    all("perftest_by_udp_that_loses_and_reorders", &[false, true], FAULTS, &programs);
}

/// The captures of both sides are as Wireshark wants them, over each link.
#[test]
fn captures_are_decoded_without_complaint() {
    let test = "captures_are_decoded_without_complaint";
    if !preloaded::has(test, "tshark") {
        return;
    }
    let Some(both) = namespaces(test, &["ibv_rc_pingpong", "ib_write_bw"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    for v6 in [false, true] {
        for (name, options) in [("clean", &[][..]), ("faults", FAULTS)] {
            let pair = Pair::new(&both, v6).options(options).captured(folder.path());
            pair.succeeds(&["ibv_rc_pingpong", "-n", "50", "-g", "0", "-c"]);
            let sent = captured::check(&pair);
            assert!(sent > 100, "{name}: {sent} packets");
            let line = ["ib_write_bw", "-s", "65536", "-n", "20"];
            pair.succeeds(&[&line, PERFTEST].concat());
            let sent = captured::check(&pair);
            assert!(sent > 20 * 64, "{name}: {sent} packets");
        }
    }
}
