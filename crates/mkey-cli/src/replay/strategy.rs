//! The strategies that registrations of a recording can be done by.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A way to have memory registered when work needs it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Registered and deregistered as in the recording.
    AsRecorded,
    /// Each distinct range (with its rights) registered at its first use, and kept.
    Once,
    /// The library's cache of registrations.
    Cache,
    /// The library's pool: each registration becomes a buffer of it.
    Pool,
    /// The same, with the bytes copied between the buffer and the program's memory.
    Bounce,
    /// As recorded, with the memory on pages of 2 MiB.
    Huge,
    /// The memory registered for good; each registration becomes a window of type 2.
    Mw,
    /// The memory registered for good; each registration becomes a fast registration.
    Frmr,
}

impl Strategy {
    /// All, the one that others are compared with first.
    pub const ALL: [Self; 8] = [
        Self::AsRecorded,
        Self::Once,
        Self::Cache,
        Self::Pool,
        Self::Bounce,
        Self::Huge,
        Self::Mw,
        Self::Frmr,
    ];

    /// Its name on the command line and in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::AsRecorded => "as-recorded",
            Self::Once => "once",
            Self::Cache => "cache",
            Self::Pool => "pool",
            Self::Bounce => "bounce",
            Self::Huge => "huge",
            Self::Mw => "mw",
            Self::Frmr => "frmr",
        }
    }

    /// What becomes of a registration of the recording.
    pub fn what(self) -> &'static str {
        match self {
            Self::AsRecorded => "registered and deregistered as they were",
            Self::Once => "each distinct range registered once, and kept",
            Self::Cache => "asked of the library's cache",
            Self::Pool => "a buffer of the library's pool, which is registered once",
            Self::Bounce => "a buffer of the pool, and the bytes copied",
            Self::Huge => "as recorded, memory on pages of 2 MiB",
            Self::Mw => "a window of type 2 over memory registered once",
            Self::Frmr => "a fast registration over memory registered once",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
