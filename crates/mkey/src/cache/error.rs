//! Why the cache has no registration to give.

use mkey_core::error::{Code, Error, Object, Reason, errno};

/// Why the cache has no registration to give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The request is not a valid one, or the device refused it. All who waited for the same
    /// registration get the same error.
    #[error(transparent)]
    Register(#[from] Error),
    /// As many registrations as the cache may have, and none of them idle.
    #[error(
        "the cache has its {most} registrations, {in_use} of them in use and none to give up; \
         drop some, or build it with a higher max_count [{}]",
        CacheError::COUNT
    )]
    Count {
        /// The limit.
        most: u64,
        /// Registrations that are in use.
        in_use: u64,
    },
    /// As many bytes registered as the cache may have, and none of them idle.
    #[error(
        "{wanted} bytes more would pass the cache's limit of {most} bytes: {registered} are \
         registered and in use; drop some, or build it with a higher max_bytes [{}]",
        CacheError::BYTES
    )]
    Bytes {
        /// The limit.
        most: u64,
        /// Bytes registered, all in use.
        registered: u64,
        /// Bytes wanted, whole pages.
        wanted: u64,
    },
}

impl CacheError {
    const COUNT: Code = Reason::TableFull { object: Object::Mr, most: 0 }.code();
    const BYTES: Code = Reason::Exhausted { what: "", asked: 0, free: 0, limit: 0 }.code();

    /// The errno that the verbs report for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Register(error) => error.errno(),
            Self::Count { .. } | Self::Bytes { .. } => errno::ENOMEM,
        }
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Register(error) => error.code(),
            Self::Count { .. } => Self::COUNT,
            Self::Bytes { .. } => Self::BYTES,
        }
    }
}

/// As a failed verb, `cache_get`: for programs with one type of error.
impl From<CacheError> for Error {
    fn from(error: CacheError) -> Self {
        let says = error.to_string();
        let reason = match error {
            CacheError::Register(error) => return error,
            CacheError::Count { most, .. } => Reason::TableFull { object: Object::Mr, most },
            CacheError::Bytes { most, registered, wanted } => Reason::Exhausted {
                what: "cache",
                asked: wanted,
                free: most.saturating_sub(registered),
                limit: most,
            },
        };
        Error::new("cache_get", says, reason)
    }
}
