//! `mkey bench tensor` from end to end, with small buffers.

mod common;

use common::{alone, mkey, run};
use mkey_cli::bench::report::Outcome;
use mkey_cli::bench::tensor::report::{Figures, Report};

const STRATEGIES: [&str; 4] = ["register", "cache", "pool", "on-demand"];

fn tensor(arguments: &[&str]) -> Report {
    let mut all = vec!["bench", "tensor", "--json", "-", "--iterations", "2"];
    all.extend(arguments);
    let (code, stdout, stderr) = run(&mut mkey(&all));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

fn measured<'r>(report: &'r Report, id: &str, bytes: u64) -> &'r Figures {
    let row = report.rows.iter().find(|row| row.id == id && row.bytes == bytes);
    match &row.unwrap_or_else(|| panic!("no row {id} of {bytes}")).outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotMeasured(missing) => panic!("{id} of {bytes}: {missing:?}"),
    }
}

#[test]
fn registration_is_a_share_of_each_push_or_of_the_first() {
    let _alone = alone();
    let report = tensor(&["--sizes", "8MiB..16MiB", "--chunk", "256KiB"]);
    for bytes in [8 << 20, 16 << 20] {
        for id in STRATEGIES {
            let Figures { cold, warm, .. } = measured(&report, id, bytes);
            for push in [cold, warm] {
                assert!(push.total_ns > 0.0 && push.bytes_per_second > 0.0, "{id} {push:?}");
                assert!(push.registration_ns <= push.total_ns, "{id} {push:?}");
                assert!((0.0..=100.0).contains(&push.registration_percent), "{id} {push:?}");
            }
            assert!(cold.registration_ns > 0.0, "{id}: all register once");
        }
        assert!(measured(&report, "register", bytes).warm.registration_ns > 0.0);
        for id in ["pool", "on-demand"] {
            assert_eq!(measured(&report, id, bytes).warm.registration_ns, 0.0, "{id}");
        }
        let cache = measured(&report, "cache", bytes);
        assert!(cache.warm.registration_ns < cache.cold.registration_ns, "{cache:?}");
        let pages = bytes / 4096;
        let on_demand = measured(&report, "on-demand", bytes);
        assert_eq!(on_demand.faults, Some(pages), "each page faults once: {on_demand:?}");
    }
}

#[test]
fn what_does_not_fit_is_left_out_with_the_reason() {
    let _alone = alone();
    let report = tensor(&["--sizes", "2MiB,1TiB", "--strategy", "register"]);
    measured(&report, "register", 2 << 20);
    let large = report.rows.iter().find(|row| row.bytes == 1 << 40).unwrap();
    let Outcome::NotMeasured(missing) = &large.outcome else { panic!("1 TiB fits: {large:?}") };
    assert!(missing.what.contains("are needed, and"), "{missing:?}");
}

#[test]
fn the_table_comes_out_and_nothing_at_all_is_a_failure() {
    let _alone = alone();
    let arguments = ["bench", "tensor", "--sizes", "2MiB", "--iterations", "1"];
    let (code, text, stderr) = run(&mut mkey(&arguments));
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert!(text.contains("figures of the software RNIC mkey0, not of a NIC"), "{text}");
    let (code, text, stderr) = run(&mut mkey(&["bench", "tensor", "--sizes", "1TiB"]));
    assert_eq!(code, 1, "{text}");
    assert_eq!(stderr, "mkey: not one row could be measured\n");
}

#[test]
fn what_is_asked_for_wrongly_is_2() {
    for arguments in [
        &["--sizes", "1m"][..],
        &["--sizes", "64m..32m"],
        &["--chunk", "5000"],
        &["--device", "mlx5_0"],
        &["--json", "-", "--csv", "-"],
    ] {
        let (code, stdout, stderr) = run(&mut mkey(&[&["bench", "tensor"], arguments].concat()));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty(), "{arguments:?}");
    }
}
