//! What the figures are to be: the promise that grants and fast registrations are worth their
//! safety.

use super::args::Name;
use super::report::{Aim, Figures, Report, SystemCalls};
use crate::bench::units::size;

/// The block size and depth that the aims on speed are for.
const BLOCK: u64 = 4096;
const DEPTH: u64 = 32;
/// The declared device command from which on registrations are as dear as a NIC's.
const DEAR_NS: u64 = 16_000;

/// The strategies that register nothing on the data path, with the least percentage of the static
/// registration's IOPS, where there is one.
const FREE: [(Name, Option<f64>); 3] =
    [(Name::Bounce, None), (Name::Frmr, Some(55.0)), (Name::Grant, Some(65.0))];

/// The aims that a run's workload has, with its figures. None where posting is a system call, as on
/// a software RNIC of the kernel: they are for devices that programs reach by themselves.
pub fn of(report: &Report) -> Vec<Aim> {
    let mut aims = Vec::new();
    if report.device.software && !report.device.is_mkeys() {
        return aims;
    }
    let row_of = |name: Name, bs| report.rows.iter().any(|r| r.id == name.id() && r.bs == bs);
    let mut sizes: Vec<u64> = report.rows.iter().map(|row| row.bs).collect();
    sizes.dedup();
    for bs in sizes {
        for (name, share) in FREE.into_iter().filter(|(name, _)| row_of(*name, bs)) {
            let figures = report.figures(name.id(), bs);
            if let Some(share) = share.filter(|_| bs == BLOCK && report.workload.iodepth == DEPTH) {
                aims.extend(speed(report, name, figures, share));
            }
            aims.push(nothing(name, bs, figures));
        }
    }
    aims
}

fn speed(report: &Report, name: Name, figures: Option<&Figures>, share: f64) -> Vec<Aim> {
    let at_least = |work: &str, least: f64, unit: &str, figure: Option<f64>| Aim {
        work: format!("{}, {work}", name.title()),
        aim: format!(">= {least} {unit}"),
        figure: figure.map_or("not measured".to_owned(), |f| format!("{f:.1} {unit}")),
        met: figure.map(|figure| figure >= least),
    };
    let of_static = figures.and_then(|f| f.percent_of_static);
    let of_per_io = figures.and_then(|f| f.times_mr_per_io);
    let mut aims = vec![at_least("4 KiB IOPS against the static MR's", share, "%", of_static)];
    let times = match report.command_cost_ns {
        0 => Some(1.6),
        DEAR_NS.. => Some(10.0),
        // Between the two there is no promise.
        _ => None,
    };
    let against = "4 KiB IOPS against an MR for each I/O";
    aims.extend(times.map(|times| at_least(against, times, "x", of_per_io)));
    aims
}

/// No registrations, allocations and system calls.
fn nothing(name: Name, bs: u64, figures: Option<&Figures>) -> Aim {
    let counts = figures.map(|figures| {
        let calls = match figures.system_calls {
            SystemCalls::Counted { calls, .. } => Some(calls),
            SystemCalls::NotMeasured(_) => None,
        };
        [Some(figures.registrations), calls, figures.allocations]
    });
    let shown = |count: Option<u64>| count.map_or("not measured".to_owned(), |n| n.to_string());
    Aim {
        work: format!("{}, {}: registrations, system calls, allocations", name.title(), size(bs)),
        aim: "0, 0, 0".to_owned(),
        figure: counts.map_or("not measured".to_owned(), |counts| counts.map(shown).join(", ")),
        met: counts.and_then(|counts| {
            let missed = counts.iter().flatten().any(|count| *count > 0);
            let known = counts.iter().all(Option::is_some);
            // One that is not 0 is a miss, whatever the others are.
            (missed || known).then_some(!missed)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn met(report: &Report, work: &str) -> Option<bool> {
        let aims = of(report);
        let aim = aims.iter().find(|aim| aim.work.contains(work));
        aim.unwrap_or_else(|| panic!("no aim {work:?} in {aims:?}")).met
    }

    #[test]
    fn figures_meet_or_miss() {
        let mut report = sample::report();
        assert_eq!(met(&report, "grant (MW type 2), 4 KiB IOPS against the static"), Some(true));
        assert_eq!(met(&report, "FRMR pool, 4 KiB IOPS against an MR"), Some(true));
        sample::figures(&mut report, "grant").percent_of_static = Some(64.9);
        assert_eq!(met(&report, "grant (MW type 2), 4 KiB IOPS against the static"), Some(false));
        sample::figures(&mut report, "grant").percent_of_static = None;
        assert_eq!(met(&report, "grant (MW type 2), 4 KiB IOPS against the static"), None);
    }

    #[test]
    fn a_dear_command_raises_the_aim() {
        let mut report = sample::report();
        report.command_cost_ns = 16_000;
        assert_eq!(met(&report, "FRMR pool, 4 KiB IOPS against an MR"), Some(false));
        sample::figures(&mut report, "frmr").times_mr_per_io = Some(10.0);
        assert_eq!(met(&report, "FRMR pool, 4 KiB IOPS against an MR"), Some(true));
        report.command_cost_ns = 1_000;
        assert!(!of(&report).iter().any(|aim| aim.work.contains("against an MR")));
    }

    #[test]
    fn nothing_means_nothing_at_all() {
        let zero = "grant (MW type 2), 4 KiB: registrations";
        let mut report = sample::report();
        assert_eq!(met(&report, zero), Some(true));
        sample::figures(&mut report, "grant").allocations = None;
        assert_eq!(met(&report, zero), None);
        sample::figures(&mut report, "grant").registrations = 1;
        assert_eq!(met(&report, zero), Some(false));
    }

    #[test]
    fn other_depths_and_blocks_have_no_aim_on_speed() {
        let mut report = sample::report();
        report.workload.iodepth = 8;
        assert!(!of(&report).iter().any(|aim| aim.work.contains("IOPS")));
        assert_eq!(met(&report, "grant (MW type 2), 4 KiB: registrations"), Some(true));
    }
}
