//! The findings: what of the report is worth a change, the worst first.

use super::Report;
use super::code::Code;
use super::held::Regions;
use super::lifetimes::Lifetime;
use super::list::List;
use super::mend::mend;
use super::says;
use super::tally::SiteCost;
use super::thresholds::{COSTLY, HABIT, MUCH, SOON, WORTH_A_CHANGE};
use super::times::share;
use mkey_trace::format::Wrong;
use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It is wrong: data may be lost or land elsewhere.
    Error,
    /// It costs time or memory that is worth a change, or opens more than is needed.
    Warning,
    /// It is so, and costs little here.
    Info,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What was found.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// In one line, with its numbers.
    pub what: String,
    /// Calls, regions or requests that it is about.
    pub count: u64,
    /// The time that it cost, of all threads, ns; 0 where it is not about time.
    pub ns: u64,
    /// That as a share of the time that the traced processes lived.
    pub share: f64,
    /// Where, the costliest first.
    pub sites: List<SiteCost>,
    /// What to change.
    pub mend: &'static str,
}

/// All findings of a report, the worst first: by severity, then by their time, then by the order of the codes.
pub fn all(report: &Report, lives: &[Lifetime]) -> Vec<Finding> {
    let mut all: Vec<Finding> = [
        data_path(report),
        repeated(report),
        cost(report),
        overlap(report),
        small(report),
        leaked(report),
        unused(report),
        granted(report),
        window_kept(report),
        window_unused(report),
        page_faults(report),
        failed_work(report),
        failed_calls(report),
        lost(report),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.extend(lifetimes(report, lives));
    all.sort_by(|a, b| {
        (a.severity, std::cmp::Reverse(a.ns), a.code).cmp(&(
            b.severity,
            std::cmp::Reverse(b.ns),
            b.code,
        ))
    });
    all
}

fn finding(
    report: &Report,
    (code, severity, what): (Code, Severity, String),
    (count, ns): (u64, u64),
    sites: List<SiteCost>,
) -> Option<Finding> {
    let share = share(ns, report.head.lived_ns);
    let mend = mend(code, report.lang);
    (count > 0).then_some(Finding { code, severity, what, count, ns, share, sites, mend })
}

/// A warning if it took enough of the time that the processes lived, or is a habit.
fn weigh(report: &Report, ns: u64, calls: u64) -> Severity {
    if reaches(ns, report.head.lived_ns, WORTH_A_CHANGE) || calls >= HABIT {
        Severity::Warning
    } else {
        Severity::Info
    }
}

/// Whether a part has so many thousandths of the whole.
fn reaches(part: u64, whole: u64, thousandths: u64) -> bool {
    u128::from(part) * 1000 >= u128::from(whole) * u128::from(thousandths) && part > 0
}

fn data_path(report: &Report) -> Option<Finding> {
    let of = &report.data_path;
    let (calls, ns) = (of.times.calls, of.times.ns);
    let what = says::data_path(report);
    let head = (Code::DataPath, weigh(report, ns, calls), what);
    finding(report, head, (calls, ns), of.sites.clone())
}

fn repeated(report: &Report) -> Option<Finding> {
    let of = &report.repeated;
    let ns = of.saving_ns();
    let head = (Code::Repeated, weigh(report, ns, of.repeats), says::repeated(report));
    finding(report, head, (of.repeats, ns), of.sites.clone())
}

fn cost(report: &Report) -> Option<Finding> {
    let of = &report.registration;
    let costly = reaches(of.busy_ns, report.head.lived_ns, COSTLY);
    // Where a habit makes up most of it, that is told in its place.
    let habit = report.data_path.times.ns.max(report.repeated.saving_ns());
    let costly = costly && !reaches(habit, of.ns, 500);
    let head = (Code::Cost, Severity::Warning, says::cost(report));
    finding(report, head, (of.calls(), of.ns), of.sites.clone()).filter(|_| costly)
}

fn overlap(report: &Report) -> Option<Finding> {
    let of = &report.repeated.overlapping;
    let head = (Code::Overlap, Severity::Info, says::overlap(report));
    finding(report, head, (of.registrations, of.ns), List::default())
}

fn small(report: &Report) -> Option<Finding> {
    let of = &report.small;
    let severity = weigh(report, of.ns, of.regions);
    let sites = of.groups.clone().map(|group| SiteCost {
        place: group.place,
        calls: group.regions,
        ns: group.ns,
        share: share(group.ns, report.head.lived_ns),
        bytes: group.len,
        ..SiteCost::default()
    });
    finding(report, (Code::Small, severity, says::small(report)), (of.regions, of.ns), sites)
}

/// A warning if it is many regions, or many bytes.
fn weigh_regions(regions: &Regions) -> Severity {
    if regions.regions >= HABIT || regions.bytes >= MUCH {
        Severity::Warning
    } else {
        Severity::Info
    }
}

fn leaked(report: &Report) -> Option<Finding> {
    let of = &report.held.leaked;
    let head = (Code::Leaked, weigh_regions(of), says::leaked(report));
    finding(report, head, (of.regions, 0), of.sites.clone())
}

fn unused(report: &Report) -> Option<Finding> {
    let of = &report.held.unused;
    let head = (Code::Unused, weigh_regions(of), says::unused(report));
    finding(report, head, (of.regions, of.ns), of.sites.clone())
}

fn granted(report: &Report) -> Option<Finding> {
    let of = &report.rights;
    let severity = if of.remote > 0 { Severity::Warning } else { Severity::Info };
    let sites = of.excess.clone().map(|excess| SiteCost {
        place: excess.place,
        calls: excess.regions,
        bytes: excess.bytes,
        ..SiteCost::default()
    });
    finding(report, (Code::Rights, severity, says::granted(report)), (of.regions, 0), sites)
}

fn window_kept(report: &Report) -> Option<Finding> {
    let of = &report.windows;
    let severity = if of.maybe_by_peer { Severity::Info } else { Severity::Warning };
    let head = (Code::WindowKept, severity, says::window_kept(report));
    finding(report, head, (of.never_taken_back, 0), of.never_taken_back_sites.clone())
}

fn window_unused(report: &Report) -> Option<Finding> {
    let of = &report.windows;
    let head = (Code::WindowUnused, Severity::Info, says::window_unused(report));
    finding(report, head, (of.never_bound, 0), of.never_bound_sites.clone())
}

fn page_faults(report: &Report) -> Option<Finding> {
    let faults = report.counters.page_faults;
    let severity = if faults >= HABIT { Severity::Warning } else { Severity::Info };
    let head = (Code::PageFaults, severity, says::page_faults(report));
    finding(report, head, (faults, 0), List::default())
}

fn failed_work(report: &Report) -> Option<Finding> {
    let of = &report.failures;
    // What was only flushed tells that a queue pair was closed, as programs do at their end.
    let severity = if of.failed_work > 0 { Severity::Error } else { Severity::Info };
    let count = of.failed_work.saturating_add(of.flushed_work);
    finding(
        report,
        (Code::FailedWork, severity, says::failed_work(report)),
        (count, 0),
        List::default(),
    )
}

fn failed_calls(report: &Report) -> Option<Finding> {
    let of = &report.failures;
    let sites = of.calls.clone().map(|calls| SiteCost {
        place: calls.place,
        calls: calls.times,
        ..SiteCost::default()
    });
    let head = (Code::FailedCalls, Severity::Warning, says::failed_calls(report));
    finding(report, head, (of.failed_calls, 0), sites)
}

fn lost(report: &Report) -> Option<Finding> {
    let lost = report.head.overhead.lost;
    let head = (Code::Lost, Severity::Warning, says::lost(report));
    finding(report, head, (lost, 0), List::default())
}

/// One finding for each kind of mistake, told by the region where it happened most.
fn lifetimes(report: &Report, lives: &[Lifetime]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for same in lives.chunk_by(|a, b| a.wrong == b.wrong) {
        let Some(first) = same.first() else { continue };
        let times = same.iter().fold(0u64, |sum, one| sum.saturating_add(one.times.max(1)));
        let what = says::lifetime(report, first, same.len() as u64 - 1);
        let sites = List::of(same.iter().map(site).collect());
        findings.extend(finding(
            report,
            (code(first.wrong), severity(same), what),
            (times, 0),
            sites,
        ));
    }
    findings
}

/// How bad mistakes of one kind are.
fn severity(same: &[Lifetime]) -> Severity {
    let soon = |one: &Lifetime| one.kept_ns.is_some_and(|ns| ns < SOON);
    match same.first().map(|one| one.wrong) {
        // Programs that look at no data do so on purpose.
        Some(Wrong::ReceivedTwice) => Severity::Info,
        Some(Wrong::FreedRegistered | Wrong::UnmappedRegistered) if same.iter().all(soon) => {
            Severity::Warning
        }
        // Deregistering under a receive is allowed: it ends in error, or is flushed with its queue pair.
        Some(Wrong::DeregInFlight) if same.iter().all(|one| one.only_received) => Severity::Warning,
        _ => Severity::Error,
    }
}

fn site(one: &Lifetime) -> SiteCost {
    SiteCost { place: one.place.clone(), calls: one.times, bytes: one.len, ..SiteCost::default() }
}

fn code(wrong: Wrong) -> Code {
    match wrong {
        Wrong::DeregInFlight => Code::DeregInFlight,
        Wrong::KeyAfterDereg => Code::KeyAfterDereg,
        Wrong::FreedRegistered => Code::FreedRegistered,
        Wrong::UnmappedRegistered => Code::UnmappedRegistered,
        Wrong::GoneInFlight => Code::GoneInFlight,
        Wrong::ReceivedTwice => Code::ReceivedTwice,
        Wrong::Outside => Code::Outside,
    }
}
