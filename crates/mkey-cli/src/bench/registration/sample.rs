//! A sweep of fixed figures, for tests.

use super::report::*;
use crate::bench::report::{DeviceFacts, Machine, Missing, Outcome, Summary};

/// A sweep of the software RNIC that follows the model exactly: 500 ns and 70 ns a page on 4 KiB
/// pages, 600 ns and 900 ns a page on 2 MiB pages; with stages on 4 KiB pages as if of rxe. One
/// row is not measured.
pub fn sweep() -> Sweep {
    let mut rows: Vec<Row> = (0..15).map(|n| row("4 KiB", 12, n, 500.0, 70.0)).collect();
    rows.extend((0..6).map(|n| row("2 MiB", 21, n, 600.0, 900.0)));
    for of_base in rows.iter_mut().take(15) {
        let pages = of_base.pages() as f64;
        if let Outcome::Measured(figures) = &mut of_base.outcome {
            figures.stages = Some(stages(pages));
        }
    }
    rows.push(Row {
        page: "1 GiB".to_owned(),
        page_bytes: 1 << 30,
        bytes: 1 << 30,
        simulated: false,
        outcome: Outcome::NotMeasured(Missing::with("1 GiB pages: <none> free", "echo 1 > x")),
    });
    Sweep {
        schema: SCHEMA,
        mkey: "0.0.0".to_owned(),
        device: DeviceFacts {
            name: "mkey0".to_owned(),
            driver: "mkey software RNIC".to_owned(),
            software: true,
            pin: "kernel".to_owned(),
            pin_asked: "kernel".to_owned(),
            notes: Vec::new(),
        },
        machine: Machine {
            kernel: "6.18.0".to_owned(),
            cpu: Some("A & B <CPU>".to_owned()),
            cores: 2,
            clock_ns: 25,
        },
        command_cost_ns: 0,
        rows,
        iommu: None,
        probes: Some(Probes {
            chain: "rxe (soft-RoCE)".to_owned(),
            note: None,
            functions: ["uverbs entry", "pin pages", "driver's table"]
                .into_iter()
                .zip([Term::Syscall, Term::Pin, Term::Table])
                .map(|(stage, term)| Probed {
                    stage: stage.to_owned(),
                    term,
                    functions: vec!["a_function".to_owned()],
                    not_probed: vec!["another: not in this kernel".to_owned()],
                    source: "drivers/x.c".to_owned(),
                })
                .collect(),
            absent: vec![(Term::Command, "soft-RoCE has no firmware".to_owned())],
            missing: None,
        }),
        missing: Vec::new(),
        seconds: 3.0,
    }
}

fn ns(median_ns: f64) -> Summary {
    Summary { median_ns, p99_ns: median_ns * 1.5, samples: 100, batch: 1 }
}

fn row(page: &str, shift: u32, doubled: u32, fixed: f64, per_page: f64) -> Row {
    let pages = f64::from(1u32 << doubled);
    let terms = Terms {
        pin: Some(ns(0.6 * fixed + per_page * pages)),
        unpin: Some(ns(0.3 * fixed + 0.2 * per_page * pages)),
        table: ns(0.1 * fixed),
        command: None,
    };
    Row {
        page: page.to_owned(),
        page_bytes: 1 << shift,
        bytes: 1 << (shift + doubled),
        simulated: false,
        outcome: Outcome::Measured(Box::new(Figures {
            register: ns(fixed + per_page * pages),
            deregister: ns(0.5 * fixed + 0.2 * per_page * pages),
            preempted: 0,
            disturbed: false,
            terms: Some(terms),
            stages: None,
            dma: None,
        })),
    }
}

fn stages(pages: f64) -> Stages {
    let stage = |name: &str, term, own_ns: f64| Stage {
        stage: name.to_owned(),
        term,
        total_ns: own_ns,
        own_ns,
        calls: 1.0,
    };
    let parts = [
        stage("uverbs entry", Term::Syscall, 200.0),
        stage("pin pages", Term::Pin, 50.0 + 60.0 * pages),
        stage("driver's table", Term::Table, 100.0 + 30.0 * pages),
    ];
    Stages {
        verb_ns: 500.0 + parts.iter().map(|part| part.own_ns).sum::<f64>(),
        outside_ns: 500.0,
        samples: 15,
        stages: parts.into(),
    }
}
