//! What of a recording can not be played again, and how much of it there was.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Why registrations can not be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The call failed.
    Failed,
    /// `ibv_rereg_mr`: the region changed in its life.
    Changed,
    /// The recording does not tell of which region the call was.
    Unknown,
    /// On-demand, for all of the address space.
    Implicit,
    /// Memory of a file descriptor.
    DmaBuf,
    /// Memory of the device.
    DeviceMemory,
    /// A null region.
    Null,
    /// Memory of a device mapping, or none at all.
    NoMemory,
    /// Its range is none: no bytes, or beyond the end of addresses.
    Range,
    /// Its rights are none that a region can have.
    Rights,
    /// There is not memory enough here.
    NoRoom,
    /// The device here does not page on demand.
    OnDemand,
    /// The device here refused.
    Refused,
    /// Windows and fast registrations are less than 4 GiB long.
    TooLong,
}

impl Why {
    /// In words, before a number.
    pub fn words(self) -> &'static str {
        match self {
            Self::Failed => "calls that failed, as they would by any strategy",
            Self::Changed => "calls of ibv_rereg_mr",
            Self::Unknown => "calls of which the recording does not tell the region",
            Self::Implicit => "implicit on-demand regions, which stand for no memory of their own",
            Self::DmaBuf => "dma-buf regions, whose memory is another device's",
            Self::DeviceMemory => "regions of device memory",
            Self::Null => "null regions",
            Self::NoMemory => "regions of device mappings",
            Self::Range => "regions of no bytes, or past the end of addresses",
            Self::Rights => "regions whose rights no region can have",
            Self::NoRoom => "registrations of memory that does not fit here",
            Self::OnDemand => "on-demand registrations, which the device here does not offer",
            Self::Refused => "registrations that the device here refused",
            Self::TooLong => {
                "registrations of 4 GiB and more, too long for a window or fast registration"
            }
        }
    }
}

/// How many there were, and what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// How many.
    pub times: u64,
    /// What they took in the recording, nanoseconds.
    pub ns: u64,
}

/// What can not be played, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left(pub BTreeMap<Why, Count>);

impl Left {
    /// Counts some.
    pub fn add(&mut self, why: Why, times: u64, ns: u64) {
        let count = self.0.entry(why).or_default();
        count.times = count.times.saturating_add(times);
        count.ns = count.ns.saturating_add(ns);
    }

    /// Counts those of another.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(why, count)| self.add(*why, count.times, count.ns));
    }

    /// Whether all can be played.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of a reason.
    pub fn of(&self, why: Why) -> Count {
        self.0.get(&why).copied().unwrap_or_default()
    }

    /// A sentence each: `null regions: 3`.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(why, count)| format!("{}: {}", why.words(), count.times))
    }
}
