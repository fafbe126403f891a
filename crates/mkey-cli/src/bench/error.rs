//! Why a row could not be measured.

use super::report::Missing;
use mkey_core::data_plane::PostError;
use mkey_core::error::{Error, Reason};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_os::error::{Errno, OsError};

/// Why a measurement ended without figures.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// A signal asked to stop.
    #[error("stopped by signal {0}")]
    Stopped(i32),
    /// This machine does not allow it.
    #[error("{}", .0.what)]
    Missing(Missing),
    /// The port is down: no two queue pairs connect.
    #[error("the port of {device} is down ({why}): {mend}")]
    PortDown {
        /// The device.
        device: String,
        /// Why they did not connect.
        why: String,
        /// What brings the port up.
        mend: String,
    },
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
        let failed = self.is_failure();
        let missing = match self {
            Self::Missing(missing) => missing,
            Self::Verb(error) => {
                let command = match error.reason {
                    Reason::MemlockLimit { .. } | Reason::MemlockForbidden => {
                        Some(super::mend::MEMLOCK.to_owned())
                    }
                    _ => None,
                };
                Missing::new(error.to_string(), command)
            }
            other => Missing::plain(other.to_string()),
        };
        Missing { failed, ..missing }
    }

    /// Whether the device failed at what it had begun, or this program did: not what it does not
    /// offer, and not what the machine does not allow.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Work { .. }
            | Self::NoCompletion(_)
            | Self::NotArrived { .. }
            | Self::Protocol(_)
            | Self::Outside { .. }
            | Self::PortDown { .. } => true,
            Self::Verb(error) | Self::Cache(mkey::CacheError::Register(error)) => failed(error),
            Self::Pool(mkey::PoolError::Source { error, .. }) => failed(error),
            // A thread that could not be started is the machine's limit.
            Self::Stopped(_)
            | Self::Missing(_)
            | Self::Os(_)
            | Self::Thread(_)
            | Self::Cache(_)
            | Self::Pool(_) => false,
        }
    }
}

/// Whether a verb failed for the device's own state: it is gone, its port is down, work was flushed.
fn failed(error: &Error) -> bool {
    match error.reason {
        Reason::DeviceGone
        | Reason::WorkFailed { .. }
        | Reason::TimedOut { .. }
        | Reason::CqOverrun { .. } => true,
        Reason::System { errno, .. } => [
            Errno::IO,
            Errno::NODEV,
            Errno::NXIO,
            Errno::NETDOWN,
            Errno::NETUNREACH,
            Errno::HOSTUNREACH,
            Errno::TIMEDOUT,
        ]
        .iter()
        .any(|device| device.raw_os_error() == errno),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_failed_at_is_not_what_it_lacks() {
        let verb = |reason| RowError::Verb(Error::new("reg_mr", "", reason));
        let system = |errno| verb(Reason::System { call: "reg_mr", errno });
        let flushed = RowError::Work {
            opcode: WcOpcode::RdmaWrite,
            status: WcStatus::WrFlushErr,
            reason: None,
        };
        for error in [flushed, RowError::NoCompletion(10), verb(Reason::DeviceGone), system(5)] {
            let words = error.to_string();
            assert!(error.missing().failed, "{words}");
        }
        // EOPNOTSUPP, ENOMEM, EPERM.
        for error in [system(95), system(12), system(1), verb(Reason::MemlockForbidden)] {
            let words = error.to_string();
            assert!(!error.missing().failed, "{words}");
        }
    }
}
