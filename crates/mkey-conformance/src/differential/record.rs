//! What campaigns showed over devices of which a machine of its own is needed, as recorded.

use super::campaign::Tally;
use super::deviations::Deviation;
use crate::deviations::{NEW, OLD, Version};
use mkey_os::kernel::version;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a campaign showed over one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its driver.
    pub driver: String,
    /// The kernel that it is in, as `uname -r` has it.
    pub kernel: String,
    /// Programs run.
    pub programs: u64,
    /// Steps compared.
    pub steps: u64,
    /// Programs compared to their end.
    pub whole: u64,
    /// Programs with a difference that was not there when they ran again.
    pub unsteady: u64,
    /// In how many programs each deviation was met, by its name.
    pub met: BTreeMap<String, u64>,
}

/// A file of results.
struct File {
    name: &'static str,
    driver: &'static str,
    kernels: Range<Version>,
    json: &'static str,
}

const FILES: [File; 2] = [
    File {
        name: "differential-rxe-6.1.json",
        driver: "rxe",
        kernels: OLD,
        json: include_str!("../../results/differential-rxe-6.1.json"),
    },
    File {
        name: "differential-rxe-7.json",
        driver: "rxe",
        kernels: NEW,
        json: include_str!("../../results/differential-rxe-7.json"),
    },
];

impl Record {
    /// What is recorded of a campaign.
    pub fn of(driver: &str, kernel: &str, table: &[Deviation], tally: &Tally) -> Self {
        let met = |(at, count): (&usize, &u64)| Some((table.get(*at)?.name(), *count));
        let Tally { programs, steps, whole, unsteady, .. } = *tally;
        let met = tally.deviations.iter().filter_map(met).collect();
        let (driver, kernel) = (driver.to_owned(), kernel.to_owned());
        Self { driver, kernel, programs, steps, whole, unsteady, met }
    }
}

/// All that is recorded.
///
/// # Errors
/// Which file can not be read.
pub fn recorded() -> Result<Vec<Record>, String> {
    FILES.iter().map(read).collect()
}

/// The name of the file with what was seen over a driver in a kernel, and what is in it.
///
/// # Errors
/// That nothing is to be recorded of it, or that the file can not be read.
pub fn find(driver: &str, kernel: &str) -> Result<(&'static str, Record), String> {
    let of = version(kernel).unwrap_or_default();
    let mut files = FILES.iter();
    let file = files.find(|file| file.driver == driver && file.kernels.contains(&of));
    let file = file.ok_or_else(|| format!("{driver} in {kernel} has no place in the page"))?;
    Ok((file.name, read(file)?))
}

fn read(file: &File) -> Result<Record, String> {
    serde_json::from_str(file.json).map_err(|error| format!("{}: {error}", file.name))
}
