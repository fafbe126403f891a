//! What a command's end means to the shell.

use std::process::ExitCode;

/// The end of a chore. Wrong usage is 2 and is answered by the argument parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done and is well: 0.
    Well,
    /// Something failed: 1.
    Failed,
    /// Nothing failed, but something could not be done here: 3.
    Skipped,
    /// Another program's exit status, passed on.
    Other(u8),
}

impl Exit {
    /// The end of a run in which some things failed and some were skipped. In CI a skip is a
    /// failure, since nobody reads the output of a run that ended well.
    pub fn of(failed: bool, skipped: bool, ci: bool) -> Self {
        match (failed, skipped, ci) {
            (true, _, _) | (false, true, true) => Self::Failed,
            (false, true, false) => Self::Skipped,
            (false, false, _) => Self::Well,
        }
    }

    /// The exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::Failed => 1,
            Self::Skipped => 3,
            Self::Other(status) => status,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// Whether this run is a continuous integration run: `CI` is set and not empty.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_1_wherever_it_happens() {
        for ci in [false, true] {
            for skipped in [false, true] {
                assert_eq!(Exit::of(true, skipped, ci).status(), 1);
            }
        }
    }

    #[test]
    fn a_skip_is_3_at_home_and_1_in_ci() {
        assert_eq!(Exit::of(false, true, false).status(), 3);
        assert_eq!(Exit::of(false, true, true).status(), 1);
    }

    #[test]
    fn nothing_failed_and_nothing_skipped_is_0() {
        assert_eq!(Exit::of(false, false, false).status(), 0);
        assert_eq!(Exit::of(false, false, true).status(), 0);
    }
}
