//! Sweeps over a device that counts and fails as asked.

use super::args::{Page, SweepArgs};
use super::report::{Row, Sweep};
use super::sweep::Effort;
use crate::bench::error::RowError;
use crate::bench::fake::Fake;
use crate::bench::report::Outcome;
use crate::bench::sizes::Sizes;
use crate::bench::stop::Stop;
use std::time::Duration;

fn args(sizes: &[u64], pages: &[Page]) -> SweepArgs {
    SweepArgs {
        device: "fake0".to_owned(),
        sizes: Sizes(sizes.to_vec()),
        pages: pages.to_vec(),
        stages: false,
        iommu: None,
        command_cost: Duration::ZERO,
        pin: None,
        no_reserve: true,
    }
}

fn measure(args: &SweepArgs, effort: Effort, device: &Fake) -> Result<Sweep, RowError> {
    super::measure_device(args, effort, device, &Stop::default())
}

fn why(row: &Row) -> &str {
    match &row.outcome {
        Outcome::NotMeasured(missing) => &missing.what,
        Outcome::Measured(_) => panic!("{row:?}"),
    }
}

#[test]
fn as_many_as_asked_and_nothing_stays() {
    let device = Fake::new();
    let args = args(&[4096, 8192, 1 << 20], &[Page::Base]);
    let sweep = measure(&args, Effort::Samples(7), &device).unwrap();
    let taken: Vec<_> =
        sweep.rows.iter().map(|row| (row.bytes, row.figures().unwrap().register.samples)).collect();
    assert_eq!(taken, [(4096, 7), (8192, 7), (1 << 20, 7)]);
    // One more of each warms up.
    assert_eq!(device.calls("reg_mr"), 3 * 8);
    assert_eq!(device.calls("dereg_mr"), 3 * 8);
    assert_eq!(device.live(), 0);
}

#[test]
fn without_time_each_size_is_measured_three_times() {
    let device = Fake::new();
    let args = args(&[4096, 1 << 20], &[Page::Base]);
    let sweep = measure(&args, Effort::Time(Duration::ZERO), &device).unwrap();
    for row in &sweep.rows {
        assert_eq!(row.figures().unwrap().register.samples, 3, "{row:?}");
    }
}

#[test]
fn a_verb_that_fails_stands_in_its_rows_and_nothing_stays() {
    for verb in ["reg_mr", "dereg_mr"] {
        let device = Fake::failing(verb, 0);
        let args = args(&[4096, 8192], &[Page::Base]);
        let sweep = measure(&args, Effort::Samples(3), &device).unwrap();
        assert!(sweep.rows.iter().all(|row| why(row).contains(verb)), "{sweep:?}");
    }
}

#[test]
fn sizes_that_do_not_fit_a_page_are_told() {
    let device = Fake::new();
    let huge = args(&[4096, 3 << 20], &[Page::Huge2M, Page::Huge1G]);
    let sweep = measure(&huge, Effort::Samples(1), &device).unwrap();
    assert_eq!(sweep.rows.len(), 2);
    assert_eq!(why(&sweep.rows[0]), "3 MiB are no whole pages of 2 MiB");
    assert_eq!(why(&sweep.rows[1]), "no size asked for holds a page of 1 GiB");
    let Outcome::NotMeasured(missing) = &sweep.rows[1].outcome else { panic!() };
    assert_eq!(
        missing.command.as_deref(),
        Some("mkey bench registration --pages 1GiB --sizes 1GiB..4GiB --device fake0")
    );
}

#[test]
fn a_size_beyond_all_memory_is_told_and_the_others_are_measured() {
    let device = Fake::new();
    let args = args(&[4096, 1 << 40], &[Page::Base]);
    let sweep = measure(&args, Effort::Samples(2), &device).unwrap();
    assert!(sweep.rows[0].figures().is_some());
    assert!(why(&sweep.rows[1]).contains("1 TiB do not fit, sizes to "), "{:?}", sweep.rows[1]);
    assert_eq!(sweep.missing.len(), 1);
    assert!(!sweep.missing[0].what.contains("are registered"), "{:?}", sweep.missing);
}

/// Nothing is said of what was not measured.
#[test]
fn a_sweep_of_sizes_that_do_not_fit_says_nothing_of_the_device() {
    let device = Fake::new();
    let sweep = measure(&args(&[1 << 40], &[Page::Base]), Effort::Samples(2), &device).unwrap();
    assert_eq!(device.calls("reg_mr"), 0);
    let text = super::text::sweep(&sweep);
    for untrue in ["does not tell its own terms", "are registered"] {
        assert!(!text.contains(untrue), "{text}");
    }
}

#[test]
fn a_signal_ends_the_sweep() {
    let device = Fake::new();
    let args = args(&[4096], &[Page::Base]);
    let ended = super::measure_device(&args, Effort::Samples(5), &device, &Stop::by(2));
    assert!(matches!(ended, Err(RowError::Stopped(2))), "{ended:?}");
    assert_eq!(device.live(), 0);
}

#[test]
fn a_device_without_terms_has_none() {
    let device = Fake::new();
    let args = args(&[4096], &[Page::Base]);
    let sweep = measure(&args, Effort::Samples(2), &device).unwrap();
    assert_eq!(sweep.rows[0].figures().unwrap().terms, None);
}
