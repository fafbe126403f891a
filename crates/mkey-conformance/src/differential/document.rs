//! What a campaign met, as a section of the page.

use super::campaign::{Comparison, Tally};
use super::deviations::WITHOUT_ON_DEMAND;
use crate::fixture::Subject;
use mkey_core::device::Device;
use mkey_core::status::WcStatus;
use std::fmt::Write;

/// The section of a device.
pub fn section<O: Subject, T: Subject>(comparison: &Comparison<'_, O, T>, tally: &Tally) -> String {
    let kernel = rustix::system::uname();
    let mut text = format!(
        "## {} in Linux {}\n\n\
         {} programs, {} steps; {} programs were compared to their end, the others until the devices\n\
         parted by a known deviation.\n\n",
        comparison.theirs.device().capabilities().driver,
        kernel.release().to_string_lossy(),
        tally.programs,
        tally.steps,
        tally.whole
    );
    text.push_str("| verb or work request | times |\n|---|---|\n");
    for (kind, count) in &tally.kinds {
        let _ = writeln!(text, "| {kind:?} | {count} |");
    }
    text.push_str("\n| completion | times |\n|---|---|\n");
    for (status, count) in &tally.statuses {
        let status = WcStatus::from_u32(*status).unwrap_or(WcStatus::GeneralErr);
        let _ = writeln!(text, "| {status} | {count} |");
    }
    text.push_str(
        "\n| rule | of | software RNIC; device | in programs | why |\n|---|---|---|---|---|\n",
    );
    for (at, deviation) in comparison.table.iter().enumerate() {
        let count = tally.deviations.get(&at).copied().unwrap_or(0);
        let of: Vec<_> = deviation.of.iter().map(|kind| format!("{kind:?}")).collect();
        let (rule, of, seen) = (deviation.rule, of.join(", "), deviation.seen);
        let _ = writeln!(text, "| {rule} | {of} | {seen} | {count} | {} |", deviation.why);
    }
    let driver = &comparison.theirs.device().capabilities().driver;
    for (_, why) in WITHOUT_ON_DEMAND.iter().filter(|(of, _)| of == driver) {
        let _ = writeln!(text, "\nNo on-demand regions: {why}.");
    }
    text
}
