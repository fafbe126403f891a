//! Why the pool gave no memory.

use mkey_core::error::{Code, Error, Reason};
use std::fmt;
use std::time::Duration;

/// Why a pool gave no memory, or could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A length of zero.
    #[error("an allocation of 0 bytes: there is nothing to hand out")]
    Empty,
    /// An alignment that is no power of two, or larger than the pool aligns to.
    #[error("alignment {align}: it must be a power of two up to {most} bytes")]
    Alignment {
        /// The alignment asked for, in bytes.
        align: usize,
        /// The largest, in bytes.
        most: usize,
    },
    /// More than the pool could ever hand out in one piece. Nothing is clipped.
    #[error("{asked} bytes (aligned to {align}) asked; {limit} is {most} bytes")]
    TooLarge {
        /// Bytes asked for.
        asked: usize,
        /// The alignment asked for, in bytes.
        align: usize,
        /// The limit that is in the way.
        limit: Limit,
        /// That limit in bytes.
        most: usize,
    },
    /// No room now, and none may be made.
    #[error("the pool is full: {0}")]
    Full(Shortage),
    /// No room within the time given.
    #[error("no room within {waited:?}: {shortage}")]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// What there was at the end.
        shortage: Shortage,
    },
    /// The pool had to grow, and memory could not be had or not be registered.
    #[error("the pool could not grow: {error} ({shortage})")]
    Source {
        /// The verb that failed, and why.
        error: Box<mkey_core::error::Error>,
        /// What there was.
        shortage: Shortage,
    },
    /// An option that can not be.
    #[error("pool option {option} = {value}: {allowed}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value in bytes.
        value: usize,
        /// What is allowed, in words.
        allowed: &'static str,
    },
}

impl PoolError {
    /// The stable code, for `mkey explain`.
    pub fn code(&self) -> Code {
        Error::from(self.clone()).code()
    }

    /// The errno that the verbs would report for it.
    pub fn errno(&self) -> i32 {
        Error::from(self.clone()).errno()
    }
}

/// As a failed verb, `pool_alloc`: for programs with one type of error.
impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        let says = error.to_string();
        let reason = match error {
            PoolError::Source { error, .. } => return *error,
            PoolError::Empty => argument("length", 0, "at least 1"),
            PoolError::Alignment { align, .. } => {
                argument("alignment", align, "a power of two that the pool aligns to")
            }
            PoolError::TooLarge { asked, .. } => {
                argument("length", asked, "at most the pool's ceiling and the device's max_mr_size")
            }
            PoolError::Option { option, value, allowed } => argument(option, value, allowed),
            PoolError::Full(Shortage { asked, free, ceiling, .. }) => Reason::Exhausted {
                what: "pool",
                asked: asked as u64,
                free: free as u64,
                limit: ceiling as u64,
            },
            PoolError::TimedOut { waited, .. } => Reason::TimedOut { after: waited },
        };
        Error::new("pool_alloc", says, reason)
    }
}

fn argument(what: &'static str, value: usize, allowed: &'static str) -> Reason {
    Reason::Argument { what, value: value as u64, allowed }
}

/// What bounds a single allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The largest memory region that the device registers (`max_mr_size`).
    Device,
    /// The pool's ceiling.
    Ceiling,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "the device's largest memory region",
            Self::Ceiling => "the pool's ceiling",
        })
    }
}

/// What a full pool had when it could not serve. All in bytes but `waiting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// Asked for.
    pub asked: usize,
    /// Free in the pool, in all.
    pub free: usize,
    /// Free in one piece, the largest.
    pub largest_free: usize,
    /// Registered.
    pub registered: usize,
    /// The most that the pool may register.
    pub ceiling: usize,
    /// Requests that wait already and come first.
    pub waiting: usize,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, free, largest_free, registered, ceiling, waiting } = self;
        write!(
            f,
            "{asked} bytes asked, {free} free, {largest_free} of them in one piece, \
             {registered} registered, ceiling {ceiling}, {waiting} waiting"
        )
    }
}
