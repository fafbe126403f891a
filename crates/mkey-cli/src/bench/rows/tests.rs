//! The rows over a device that counts and fails as asked.

#[path = "../../../tests/common/alone.rs"]
mod alone;

use crate::bench::arena::Arena;
use crate::bench::error::RowError;
use crate::bench::fake::Fake;
use crate::bench::plan::{self, Options, ROWS};
use crate::bench::progress::Progress;
use crate::bench::report::{IoShape, Outcome, Row};
use crate::bench::rows::{Context, SOURCE_BYTE, Strategy};
use crate::bench::stop::Stop;
use mkey_os::mapping::PageKind;
use std::time::Duration;

fn measure(device: &Fake, stop: &Stop) -> Result<Vec<Row>, RowError> {
    measure_and(device, stop, false)
}

fn measure_and(device: &Fake, stop: &Stop, reserve: bool) -> Result<Vec<Row>, RowError> {
    let io = IoShape { bytes: 64 << 10, working_set: 2 << 20, depth: 8 };
    let source = Arena::map(io.bytes, PageKind::Base).unwrap();
    source.fill(SOURCE_BYTE);
    let progress = Progress::new(ROWS.len());
    let context = Context {
        device,
        source: &source,
        memory: 2 << 20,
        io,
        threads: 1,
        clock: Duration::from_nanos(25),
        stop,
        progress: &progress,
    };
    let options =
        Options { time: Duration::ZERO, reserve, simulated: false, limit: None, unpinnable: None };
    plan::measure(&context, &options)
}

/// Rows that need no huge pages, so are measured on any machine.
const ANYWHERE: [&str; 8] = [
    "mr-4k",
    "mr-per-io",
    "pool-copy",
    "frmr-pool",
    "mw-type2",
    "odp-first-touch",
    "odp-warm",
    "odp-prefetch",
];

fn row<'r>(rows: &'r [Row], id: &str) -> &'r Row {
    rows.iter().find(|row| row.id == id).unwrap()
}

#[test]
fn every_row_is_measured_in_the_tables_order_and_nothing_stays() {
    let device = Fake::new();
    let rows = measure(&device, &Stop::default()).unwrap();
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ROWS.iter().map(|row| row.id).collect::<Vec<_>>());
    for id in ANYWHERE {
        let figures = row(&rows, id).figures().unwrap_or_else(|| panic!("{:?}", row(&rows, id)));
        let once = ["mr-4k", "mr-thp", "mr-2m", "mr-1g"].contains(&id);
        assert_eq!(figures.map.is_none(), once, "{id}");
        assert_eq!(figures.register.is_none(), id == "mr-per-io", "{id}");
        assert_eq!(figures.allocate.is_some(), ["frmr-pool", "mw-type2"].contains(&id), "{id}");
    }
    assert_eq!(device.live(), 0);
    for (make, end) in [("reg_mr", "dereg_mr"), ("alloc_mw", "dealloc_mw")] {
        assert!(device.calls(make) > 0 && device.calls(make) <= device.calls(end), "{make}");
    }
    let granted = device.calls("BIND_MW") + device.calls("REG_MR");
    assert!(granted > 0);
    assert_eq!(granted, device.calls("LOCAL_INV"));
}

#[test]
fn grants_that_count_from_0_are_made_and_written_so() {
    let device = Fake::zero_based();
    let rows = measure(&device, &Stop::default()).unwrap();
    for id in ANYWHERE {
        assert!(row(&rows, id).figures().is_some(), "{:?}", row(&rows, id));
    }
    assert!(device.calls("REG_MR") > 0);
}

#[test]
fn a_verb_that_fails_stands_in_its_row_and_nothing_stays() {
    for (verb, hit) in [
        ("alloc_mw", "mw-type2"),
        ("alloc_mr", "frmr-pool"),
        ("BIND_MW", "mw-type2"),
        ("REG_MR", "frmr-pool"),
        ("advise_mr", "odp-prefetch"),
    ] {
        for good in [0, 3] {
            let device = Fake::failing(verb, good);
            let rows = measure(&device, &Stop::default()).unwrap();
            for id in ANYWHERE {
                match &row(&rows, id).outcome {
                    Outcome::Measured(_) => assert_ne!(id, hit),
                    Outcome::NotMeasured(why) => {
                        assert_eq!(id, hit);
                        assert!(why.what.contains("as the test asks"), "{why:?}");
                    }
                }
            }
            assert_eq!(device.live(), 0, "{verb} {good}");
        }
    }
    for verb in ["alloc_pd", "create_cq", "create_qp", "modify_qp", "reg_mr"] {
        for good in 0..4 {
            let device = Fake::failing(verb, good);
            measure(&device, &Stop::default()).unwrap();
            assert_eq!(device.live(), 0, "{verb} {good}");
        }
    }
}

#[test]
fn a_signal_stops_the_run_and_nothing_stays() {
    let device = Fake::new();
    let stop = Stop::by(15);
    assert!(matches!(measure(&device, &stop), Err(RowError::Stopped(15))));
    assert_eq!(device.live(), 0);
}

#[test]
fn a_panic_gives_huge_pages_back() {
    fn pages() -> String {
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").unwrap()
    }
    if !rustix::process::geteuid().is_root() {
        let line = "a_panic_gives_huge_pages_back: reserving needs root\n";
        eprint!("SKIPPED: {line}");
        if let Some(file) = std::env::var_os("XTASK_SKIPS") {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.append(true).create(true).open(file).unwrap();
            std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
        }
        return;
    }
    let _alone = alone::alone();
    let before = pages();
    let device = Fake::panicking("reg_mr", pages);
    let stop = Stop::default();
    let run = || measure_and(&device, &stop, true).map(|rows| rows.len());
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    let during = payload.downcast_ref::<String>().unwrap();
    assert_ne!(during, &before, "none were reserved: the test shows nothing");
    // The kernel counts a page that was pinned until it has let go of it, which nothing tells.
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while pages() != before && std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(pages(), before);
}

/// I/O in the midst of which a signal comes.
struct Interrupted<'a> {
    memory: &'a Arena,
    stop: &'a Stop,
    calls: usize,
}

impl Strategy for Interrupted<'_> {
    fn io(&mut self, _offsets: &[u64]) -> Result<(), RowError> {
        self.calls += 1;
        self.stop.ask(2);
        Ok(())
    }

    fn memory(&self) -> Result<&Arena, RowError> {
        Ok(self.memory)
    }

    fn map_step(&self) -> Option<u64> {
        None
    }
}

#[test]
fn a_signal_stops_a_pass_over_the_working_set_in_its_midst() {
    let io = IoShape { bytes: 64 << 10, working_set: 2 << 20, depth: 8 };
    let (device, stop) = (Fake::new(), Stop::default());
    let source = Arena::map(io.bytes, PageKind::Base).unwrap();
    let memory = Arena::map(io.working_set, PageKind::Base).unwrap();
    let progress = Progress::new(1);
    let context = Context {
        device: &device,
        source: &source,
        memory: io.working_set,
        io,
        threads: 1,
        clock: Duration::from_nanos(25),
        stop: &stop,
        progress: &progress,
    };
    let mut strategy = Interrupted { memory: &memory, stop: &stop, calls: 0 };
    let outcome = context.io(&mut strategy, &memory, Duration::ZERO);
    assert!(matches!(outcome, Err(RowError::Stopped(2))), "{outcome:?}");
    // Of the four calls of one pass.
    assert_eq!(strategy.calls, 1);
}

#[test]
fn a_signal_stops_a_prefault_between_its_parts() {
    let io = IoShape { bytes: 64 << 10, working_set: 2 << 20, depth: 8 };
    let (device, stop) = (Fake::new(), Stop::by(2));
    let source = Arena::map(io.bytes, PageKind::Base).unwrap();
    let memory = Arena::map(64 << 20, PageKind::Base).unwrap();
    let progress = Progress::new(1);
    let context = Context {
        device: &device,
        source: &source,
        memory: 64 << 20,
        io,
        threads: 1,
        clock: Duration::from_nanos(25),
        stop: &stop,
        progress: &progress,
    };
    let outcome = context.prefault(&memory);
    assert!(matches!(outcome, Err(RowError::Stopped(2))), "{outcome:?}");
}
