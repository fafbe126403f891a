//! Why a row could not be measured.

use super::report::Missing;
use mkey_core::data_plane::PostError;
use mkey_core::error::{Error, Reason};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_os::error::OsError;

/// Why a measurement ended without figures.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A signal asked to stop.
    #[error("stopped by signal {0}")]
    Stopped(i32),
    /// This machine does not allow it.
    #[error("{}", .0.what)]
    Missing(Missing),
    /// A verb failed.
    #[error("{0}")]
    Verb(#[from] Error),
    /// The operating system refused.
    #[error("{0}")]
    Os(#[from] OsError),
    /// Work was not done as it should.
    #[error("{opcode}: {status}{}", .reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default())]
    Work {
        /// What was posted.
        opcode: WcOpcode,
        /// How it ended.
        status: WcStatus,
        /// What the device's log of refusals says.
        reason: Option<String>,
    },
    /// No completion came.
    #[error("no completion after {0} s")]
    NoCompletion(u64),
    /// Work completed and its bytes are not there.
    #[error("an I/O completed, but its bytes at offset {offset} did not arrive")]
    NotArrived {
        /// The I/O's offset in the working set.
        offset: u64,
    },
    /// The two ends do not understand each other: a fault of this program.
    #[error("the two ends do not agree: {0}")]
    Protocol(&'static str),
    /// A thread that does I/O could not be started, or has gone.
    #[error("a job's thread: {0}")]
    Thread(String),
    /// The cache gave no registration.
    #[error("{0}")]
    Cache(#[from] mkey::CacheError),
    /// The pool gave no memory.
    #[error("{0}")]
    Pool(#[from] mkey::PoolError),
    /// An offset outside the memory it counts in: a fault of this program.
    #[error("offset {offset} + {length} is outside of {bytes} bytes")]
    Outside {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes there are.
        bytes: u64,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, RowError>;

impl From<PostError> for RowError {
    fn from(error: PostError) -> Self {
        Self::Verb(error.error)
    }
}

impl RowError {
    /// As the output tells it: what is missing and the command that would allow it.
    pub fn missing(self) -> Missing {
        match self {
            Self::Missing(missing) => missing,
            Self::Verb(error) => {
                let command = match error.reason {
                    Reason::MemlockLimit { .. } | Reason::MemlockForbidden => {
                        Some(super::mend::MEMLOCK.to_owned())
                    }
                    _ => None,
                };
                Missing { what: error.to_string(), command }
            }
            other => Missing::plain(other.to_string()),
        }
    }
}
