//! A report of fixed figures, for tests.

use super::args::Name;
use super::report::*;
use crate::bench::report::{Missing, Outcome};
use crate::bench::sample as bench;

/// A report of two sizes, one of which does not fit.
pub fn report() -> Report {
    let of = bench::report();
    let push = |total_ns: f64, registration_ns: f64| Push {
        total_ns,
        registration_ns,
        registration_percent: (registration_ns / total_ns * 1e5).round() / 1e3,
        bytes_per_second: (f64::from(64 << 20) / (total_ns / 1e9)).round(),
    };
    let row = |name: Name, cold: Push, warm: Push| Row {
        id: name.id().to_owned(),
        strategy: name.title().to_owned(),
        bytes: 64 << 20,
        simulated: false,
        outcome: Outcome::Measured(Box::new(Figures {
            pages: if name == Name::Pool { "THP" } else { "4 KiB" }.to_owned(),
            cold,
            warm,
            faults: (name == Name::OnDemand).then_some(16_384),
            smaller_pages: (name == Name::Pool)
                .then(|| Missing::with("2 MiB pages: none", "as root: reserve them")),
        })),
    };
    Report {
        schema: SCHEMA,
        mkey: of.mkey,
        device: of.device,
        machine: of.machine,
        chunk: 1 << 20,
        landing: 64 << 20,
        iterations: 3,
        command_cost_ns: 0,
        rows: vec![
            row(Name::Register, push(9.0e6, 2.0e6), push(9.0e6, 2.0e6)),
            row(Name::Cache, push(8.5e6, 1.6e6), push(6.9e6, 100.0)),
            row(Name::Pool, push(25.0e6, 18.0e6), push(6.5e6, 0.0)),
            row(Name::OnDemand, push(30.0e6, 1_000.0), push(7.0e6, 0.0)),
            Row {
                id: "register".to_owned(),
                strategy: "MR for each push".to_owned(),
                bytes: 2 << 30,
                simulated: false,
                outcome: Outcome::NotMeasured(Missing::with(
                    "2.1 GiB are needed, and 1 GiB of memory are available",
                    "docker run --memory 4g",
                )),
            },
        ],
        seconds: 4.0,
    }
}
