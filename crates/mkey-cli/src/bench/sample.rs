//! A report of fixed figures, for tests.

use super::report::*;

/// A report with every row: one simulated, one not measured.
pub fn report() -> Report {
    let ns = |median_ns: f64, samples: u64, batch: u32| Summary {
        median_ns,
        p99_ns: median_ns * 1.5,
        samples,
        batch,
    };
    let register = |prefault: Option<f64>, pin: Option<f64>, table: f64| Register {
        bytes: 1 << 30,
        prefault: prefault.map(|t| ns(t, 3, 1)),
        pin: pin.map(|t| ns(t, 61, 1)),
        table: Some(ns(table, 61, 1)),
        command: None,
        verb: ns(pin.unwrap_or(0.0) + table, 61, 1),
        deregister: ns(2.9e6, 61, 1),
    };
    let io = |percent: f64| Bandwidth {
        percent_of_bare: percent,
        bytes_per_second: 20e9 * percent / 100.0,
        bare_bytes_per_second: 20e9,
        rounds: 500,
    };
    let row = |id: &str, strategy: &str, page: &str, figures: Figures| Row {
        id: id.to_owned(),
        strategy: strategy.to_owned(),
        page: page.to_owned(),
        simulated: false,
        outcome: Outcome::Measured(Box::new(figures)),
    };
    let region = |pin: f64| Figures {
        register: Some(register(Some(300e6), Some(pin), 500.0)),
        bandwidth: Some(io(97.0)),
        cpu: Some(ns(3_300.0, 500, 128)),
        map_is: "nothing: registered once".to_owned(),
        ..Figures::default()
    };
    let grant = |map: f64| Figures {
        allocate: Some(ns(200.0, 64, 1)),
        map: Some(ns(map, 20_000, 8)),
        map_is: "make and revoke".to_owned(),
        ..region(0.46e6)
    };
    let on_demand = |map: f64| Figures {
        register: Some(register(None, None, 900.0)),
        map: Some(ns(map, 4_096, 1)),
        ..region(0.0)
    };
    let per_io = Figures { register: None, map: Some(ns(2_100.0, 9_000, 1)), ..region(0.0) };
    let mut report = Report {
        schema: SCHEMA,
        mkey: "0.0.0".to_owned(),
        device: DeviceFacts {
            name: "mkey0".to_owned(),
            driver: "mkey software RNIC".to_owned(),
            software: true,
            pin: "kernel".to_owned(),
            pin_asked: "kernel".to_owned(),
            notes: vec!["A note of the device.".to_owned()],
        },
        machine: Machine {
            kernel: "6.0".to_owned(),
            cpu: Some("a CPU".to_owned()),
            cores: 2,
            clock_ns: 25,
        },
        memory: MemoryFacts { asked: 1 << 30, bytes: 1 << 30 },
        io: IoShape { bytes: 64 << 10, working_set: 8 << 20, depth: 8 },
        command_cost_ns: 0,
        rows: vec![
            row("mr-4k", "MR", "4 KiB", region(18e6)),
            row("mr-thp", "MR", "THP", region(0.5e6)),
            row("mr-2m", "MR", "2 MiB", region(0.46e6)),
            Row {
                outcome: Outcome::NotMeasured(Missing::with(
                    "1 GiB pages: 1 needed, 0 of 0 available (Cannot allocate memory)",
                    "echo 1 | sudo tee /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                )),
                ..row("mr-1g", "MR", "1 GiB", Figures::default())
            },
            row("mr-per-io", "MR for each I/O", "4 KiB", per_io),
            row("frmr-pool", "FRMR pool", "2 MiB", grant(90.0)),
            row("mw-type2", "MW type 2", "2 MiB", grant(80.0)),
            row("odp-first-touch", "ODP, first touch", "4 KiB", on_demand(1_900.0)),
            row("odp-warm", "ODP, warm", "4 KiB", on_demand(95.0)),
        ],
        mechanisms: Vec::new(),
        claims: Vec::new(),
        missing: vec![Missing::with("something is missing", "as root: mend it")],
        seconds: 41.5,
    };
    report.mechanisms = super::mechanisms::place(&report);
    report.claims = super::claims::beside(&report);
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
