//! Two processes: on one host, by shared memory, and in two network namespaces, by RoCEv2 over UDP.

use crate::list::{LATENCY, PING_PONG, Program, THROUGHPUT};
use crate::namespaces::{Namespaces, in_namespace};
use crate::pair::{self, HugePages, Role};
use crate::{common, has, mkey_run, page};
use std::process::Command;
use std::time::Instant;

/// Bytes of a frame that holds a packet of 4096 bytes, which one of the programs asks for.
const JUMBO: u32 = 9000;

/// Programs of UC and UD wait for ever for what was lost, and a machine that is busy lets the buffers of
/// sockets overflow.
const TRIES: usize = 3;

/// Each run of each program; the page has a table of them.
fn all_work(
    test: &str,
    section: &str,
    programs: &'static [Program],
    side: &dyn Fn(Role, &[&str]) -> Command,
    host: &str,
    may_lose: bool,
) {
    let mut failures = Vec::new();
    for program in programs {
        for run in program.runs {
            let huge = run.options.contains("--use_hugepages");
            let pages = match huge.then(|| HugePages::reserve(test)) {
                Some(None) => continue,
                Some(pages) => pages,
                None => None,
            };
            let turn = pair::turn();
            let begun = Instant::now();
            let tries = if may_lose && !program.is_reliable(run) { TRIES } else { 1 };
            let mut result = pair::run(side, host, program, run);
            for _ in 1..tries {
                result = result.or_else(|words| {
                    println!("{words}");
                    pair::run(side, host, program, run)
                });
            }
            drop((turn, pages));
            let name = format!("{} {} {}", program.name, program.always, run.options);
            println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
            if let Err(words) = result {
                println!("{words}");
                failures.push(format!("{name}: {words}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
    page::compare(section, &page::programs(programs));
}

fn all_are_here(test: &str, programs: &[Program]) -> bool {
    programs.iter().all(|program| has(test, program.name))
}

fn on_one_host(test: &str, section: &str, programs: &'static [Program]) {
    if all_are_here(test, programs) {
        let side = |_, arguments: &[&str]| mkey_run(&[&["--only"], arguments].concat());
        all_work(test, section, programs, &side, "127.0.0.1", false);
    }
}

fn by_udp(test: &str, section: &str, programs: &'static [Program]) {
    if !all_are_here(test, programs) || !has(test, "ip") {
        return;
    }
    let both = match Namespaces::new(JUMBO) {
        Ok(both) => both,
        Err(why) => return common::skipped(test, &format!("no network namespaces: {why}")),
    };
    let side = |role, arguments: &[&str]| {
        let side = if role == Role::Server { 0 } else { 1 };
        let options = ["--only", "--address", both.address(side, false)];
        in_namespace(both.name(side), &mkey_run(&[&options, arguments].concat()))
    };
    all_work(test, section, programs, &side, both.address(0, false), true);
}

#[test]
fn ping_pong() {
    on_one_host("ping_pong", "The examples of libibverbs", PING_PONG);
}

#[test]
fn throughput() {
    on_one_host("throughput", "perftest, throughput", THROUGHPUT);
}

#[test]
fn latency() {
    on_one_host("latency", "perftest, latency", LATENCY);
}

#[test]
fn ping_pong_by_udp() {
    by_udp("ping_pong_by_udp", "The examples of libibverbs", PING_PONG);
}

#[test]
fn throughput_by_udp() {
    by_udp("throughput_by_udp", "perftest, throughput", THROUGHPUT);
}

#[test]
fn latency_by_udp() {
    by_udp("latency_by_udp", "perftest, latency", LATENCY);
}
