//! Pin modes, what was pinned how, and why not better.

use crate::error::Errno;
use crate::limits::raise_memlock;
use std::fmt;
use std::str::FromStr;

/// How pages are held in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PinMode {
    /// Pinned by the kernel as a driver does it (io_uring registered buffers): the pages stay,
    /// at their physical addresses, whatever happens to the mapping.
    Kernel,
    /// Locked by `mlock`: the pages stay in memory as long as they are mapped; the kernel may
    /// move them, and unmapping lets them go.
    Mlock,
    /// Not held: the pages may be swapped out or moved.
    None,
}

impl PinMode {
    /// All modes, the strongest first.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Mlock, Self::None];

    /// The name used everywhere: `kernel`, `mlock`, `none`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Mlock => "mlock",
            Self::None => "none",
        }
    }

    /// What is not guaranteed that a NIC's pin would guarantee, in words.
    pub fn not_guaranteed(self) -> Option<&'static str> {
        match self {
            Self::Kernel => None,
            Self::Mlock => Some(
                "pages stay in memory but may move; they are let go when unmapped, so \
                 stale = nic cannot be shown",
            ),
            Self::None => Some("pages may be swapped out, move, and are let go when unmapped"),
        }
    }
}

impl fmt::Display for PinMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a pin mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pin mode {0:?} is none of kernel, mlock, none")]
pub struct UnknownPinMode(pub String);

impl FromStr for PinMode {
    type Err = UnknownPinMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownPinMode(name.to_owned()))
    }
}

/// A range could not be pinned, for a reason for which the verbs too refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The range wraps around the address space.
    #[error("{addr:#x} + {len:#x} wraps around the address space")]
    Wraps {
        /// First address.
        addr: usize,
        /// Bytes.
        len: usize,
    },
    /// Some of the range is not mapped, or not in the way wanted.
    #[error(
        "some of {len:#x} bytes at {addr:#x} cannot be {}",
        if *.write { "written" } else { "read" }
    )]
    Fault {
        /// First address.
        addr: usize,
        /// Bytes.
        len: usize,
        /// Whether it had to be writable.
        write: bool,
    },
    /// The pinner belongs to the parent of this process: pages pinned there are not this
    /// process's.
    #[error("the pinner was made before fork, by the parent process")]
    Forked,
}

impl PinError {
    /// What `ibv_reg_mr` leaves in errno.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Wraps { .. } | Self::Forked => Errno::INVAL,
            Self::Fault { .. } => Errno::FAULT,
        }
    }
}

/// What is held now by one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Spans.
    pub spans: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// A mode that refused spans, so that they fell to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The mode that refused.
    pub mode: PinMode,
    /// Why.
    pub errno: Errno,
    /// How many spans.
    pub spans: u64,
}

impl Refusal {
    /// The command that would allow it, in words; `None` if there is none.
    pub fn mend(&self) -> Option<&'static str> {
        match (self.mode, self.errno) {
            (PinMode::Kernel, Errno::PERM | Errno::ACCESS) => Some(
                "sudo sysctl kernel.io_uring_disabled=0   # container: docker run --security-opt \
                 seccomp=unconfined (or a profile that allows io_uring_setup, io_uring_enter and \
                 io_uring_register)",
            ),
            (PinMode::Kernel, Errno::NOSYS | Errno::INVAL) => {
                Some("use a kernel with io_uring (5.19 or later)")
            }
            (PinMode::Kernel | PinMode::Mlock, Errno::NOMEM | Errno::PERM | Errno::AGAIN) => {
                Some(concat!(
                    raise_memlock!(),
                    "; service: LimitMEMLOCK=infinity, or CAP_IPC_LOCK; with many small spans \
                     locked: sudo sysctl vm.max_map_count=1048576"
                ))
            }
            (PinMode::Kernel, Errno::MFILE) => Some("ulimit -n, higher"),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} refused {} spans ({})", self.mode, self.spans, self.errno)
    }
}

/// What a pinner holds and has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinStats {
    /// Held now by the kernel's pin.
    pub kernel: Live,
    /// Held now by `mlock`.
    pub mlock: Live,
    /// Not held, though asked for.
    pub none: Live,
    /// Spans ever held, by mode: kernel, mlock, none.
    pub(super) ever: [u64; 3],
    /// Pins that found all their pages in a live span and cost no system call.
    pub shared: u64,
    /// Why modes were passed over.
    pub refusals: Vec<Refusal>,
}

impl PinStats {
    /// The weakest mode in use; [`PinMode::Kernel`] if nothing is held.
    pub fn weakest(&self) -> PinMode {
        match (self.none.spans, self.mlock.spans) {
            (0, 0) => PinMode::Kernel,
            (0, _) => PinMode::Mlock,
            _ => PinMode::None,
        }
    }

    /// How many spans a mode has held so far, those let go included.
    pub fn ever(&self, mode: PinMode) -> u64 {
        let [kernel, mlock, none] = self.ever;
        match mode {
            PinMode::Kernel => kernel,
            PinMode::Mlock => mlock,
            PinMode::None => none,
        }
    }

    /// The mode that has held the most spans so far, the weaker of two alike; `None` before the
    /// first.
    pub fn usual(&self) -> Option<PinMode> {
        PinMode::ALL.into_iter().filter(|&m| self.ever(m) > 0).max_by_key(|&m| self.ever(m))
    }

    pub(super) fn count(&mut self, mode: PinMode, bytes: usize) {
        let [kernel, mlock, none] = &mut self.ever;
        *match mode {
            PinMode::Kernel => kernel,
            PinMode::Mlock => mlock,
            PinMode::None => none,
        } += 1;
        let live = self.live_mut(mode);
        live.spans += 1;
        live.bytes = live.bytes.saturating_add(bytes as u64);
    }

    pub(super) fn live_mut(&mut self, mode: PinMode) -> &mut Live {
        match mode {
            PinMode::Kernel => &mut self.kernel,
            PinMode::Mlock => &mut self.mlock,
            PinMode::None => &mut self.none,
        }
    }

    pub(super) fn refuse(&mut self, mode: PinMode, errno: Errno) {
        let known = self.refusals.iter_mut().find(|r| r.mode == mode && r.errno == errno);
        match known {
            Some(refusal) => refusal.spans += 1,
            None => self.refusals.push(Refusal { mode, errno, spans: 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_mode_is_that_of_most_spans_even_when_they_are_let_go() {
        let mut stats = PinStats::default();
        assert_eq!(stats.usual(), None);
        stats.count(PinMode::Kernel, 4096);
        assert_eq!(stats.usual(), Some(PinMode::Kernel));
        stats.count(PinMode::Mlock, 4096);
        stats.count(PinMode::Mlock, 4096);
        stats.mlock = Live::default();
        assert_eq!(stats.usual(), Some(PinMode::Mlock));
        assert_eq!((stats.ever(PinMode::Kernel), stats.ever(PinMode::Mlock)), (1, 2));
    }
}
