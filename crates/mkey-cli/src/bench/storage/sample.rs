//! A report of fixed figures, for tests.

use super::args::Name;
use super::plan::not_measured;
use super::report::*;
use crate::bench::report::{Missing, Outcome};
use crate::bench::sample as bench;

/// A report of 4 KiB random reads: every strategy, one of them not measured.
pub fn report() -> Report {
    let of = bench::report();
    let row = |name: Name, iops: f64, figures: Figures| Row {
        id: name.id().to_owned(),
        strategy: name.title().to_owned(),
        bs: 4096,
        simulated: false,
        outcome: Outcome::Measured(Box::new(Figures {
            iops,
            ns_per_io: 1e9 / iops,
            cpu_ns_per_io: 1.01e9 / iops,
            latency: Some(Latency {
                p50_ns: (32e9 / iops) as u64,
                p99_ns: (40e9 / iops) as u64,
                p999_ns: (90e9 / iops) as u64,
                samples: iops as u64,
            }),
            percent_of_static: Some(iops / 1.5e6 * 100.0),
            times_mr_per_io: Some(iops / 0.4e6),
            ios: iops as u64,
            checked_whole: iops as u64 / 256,
            allocations: Some(0),
            ..figures
        })),
    };
    let free = |pages: &str| Figures {
        how: "what it needs".to_owned(),
        pages: pages.to_owned(),
        system_calls: SystemCalls::Counted { ios: 256, calls: 0, by_name: Vec::new() },
        ..Figures::default()
    };
    let per_io = Figures {
        registrations: 400_000,
        system_calls: SystemCalls::Counted {
            ios: 256,
            calls: 512,
            by_name: vec![("io_uring_register".to_owned(), 512)],
        },
        ..free("4 KiB")
    };
    let mut report = Report {
        schema: SCHEMA,
        mkey: of.mkey,
        device: of.device,
        machine: of.machine,
        workload: Workload {
            rw: "randread".to_owned(),
            iodepth: 32,
            numjobs: 1,
            runtime: 3.0,
            size: 64 << 20,
            rounds: 15,
        },
        command_cost_ns: 0,
        rows: vec![
            row(Name::Static, 1.5e6, free("2 MiB")),
            row(Name::MrPerIo, 0.4e6, per_io),
            row(Name::Bounce, 1.2e6, free("2 MiB")),
            row(Name::Frmr, 0.9e6, free("2 MiB")),
            row(Name::Grant, 1.0e6, free("2 MiB")),
            not_measured(Name::Cache, 4096, Missing::with("no events here", "as root: allow them")),
        ],
        aims: Vec::new(),
        missing: vec![Missing::with("something is missing", "as root: mend it")],
        seconds: 31.0,
    };
    report.aims = super::aims::of(&report);
    report
}

/// The figures of a row, to change.
pub fn figures<'a>(report: &'a mut Report, id: &str) -> &'a mut Figures {
    let row = report.rows.iter_mut().find(|row| row.id == id).unwrap();
    match &mut row.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotMeasured(missing) => panic!("{missing:?}"),
    }
}
