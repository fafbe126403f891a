//! Two processes on one host, by shared memory.

use crate::list::{LATENCY, PING_PONG, Program, THROUGHPUT};
use crate::pair::{self, HugePages};
use crate::{has, mkey_run, page};
use std::time::Instant;

/// Each run of each program; the page has a table of them.
fn all_work(test: &str, section: &str, programs: &'static [Program]) {
    if !programs.iter().all(|program| has(test, program.name)) {
        return;
    }
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
            let side = |arguments: &[&str]| mkey_run(&[&["--only"], arguments].concat());
            let result = pair::run(&side, "127.0.0.1", program, run);
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

#[test]
fn ping_pong() {
    all_work("ping_pong", "The examples of libibverbs", PING_PONG);
}

#[test]
fn throughput() {
    all_work("throughput", "perftest, throughput", THROUGHPUT);
}

#[test]
fn latency() {
    all_work("latency", "perftest, latency", LATENCY);
}
