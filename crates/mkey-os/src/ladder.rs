//! The page ladder: memory on the largest pages that can be had, and why not on larger ones.
//!
//! 1 GiB hugetlb, 2 MiB hugetlb, transparent huge pages, base pages. A rung that is refused is
//! reported with its [`Reason`], which knows the command that would mend it; nothing falls back
//! silently. A hugetlb rung holds when the pool has promised the pages. Whether a control group
//! lets them be *used* shows only when they are touched, so [`obtain_prefaulted`] counts a failed
//! prefault as a refusal too and steps down. The transparent rung is verified: the first huge
//! page (or with [`obtain_prefaulted`] all of them) is looked up in the page tables.

use crate::error::{Errno, OsError};
use crate::hugepages;
use crate::mapping::{Mapping, PageKind};
use crate::numa::{self, Binding};
use crate::prefault::{self, PrefaultError};
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Which rungs may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// This kind or nothing.
    Exactly(PageKind),
    /// The largest that can be had without wasting more than a quarter by rounding up.
    Best,
}

/// What memory is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes; rounded up to the pages used.
    pub len: usize,
    /// The rungs.
    pub pages: Pages,
    /// The NUMA node the pages shall come from; a refusal is reported, not an error.
    pub numa_node: Option<u32>,
}

/// The memory got, and how.
#[derive(Debug)]
pub struct Obtained {
    /// The memory; [`Mapping::page_kind`] is the rung.
    pub mapping: Mapping,
    /// The higher rungs that were tried, highest first.
    pub refused: Vec<Refused>,
    /// What became of the wish for a NUMA node.
    pub numa: Binding,
}

/// A rung that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} pages: {reason}")]
pub struct Refused {
    /// The rung.
    pub kind: PageKind,
    /// Why.
    pub reason: Reason,
}

/// No rung held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory of {len} bytes: {}", join(.refused))]
pub struct LadderError {
    /// Bytes asked for.
    pub len: usize,
    /// The rungs tried, highest first.
    pub refused: Vec<Refused>,
}

/// Why a rung did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The kernel or the CPU has no such pages.
    #[error("the kernel has none of this size")]
    NoSuchSize,
    /// The kernel refused them, and its pool, which would tell more, can not be read.
    #[error("the kernel refused them ({refused}), and {} can not be read ({errno})", path.display())]
    PoolUnread {
        /// What `mmap` answered.
        refused: Errno,
        /// The file of the pool.
        path: PathBuf,
        /// Why it can not be read.
        errno: Errno,
    },
    /// Rounding up to this page size would waste too much.
    #[error("{len} bytes would take {rounded}")]
    Waste {
        /// Bytes asked for.
        len: usize,
        /// Bytes after rounding.
        rounded: usize,
    },
    /// The hugetlb pool has not enough pages to promise.
    #[error("{needed} needed, {available} of {total} available ({errno})")]
    Pool {
        /// Size of a page in bytes.
        page_size: usize,
        /// Pages needed.
        needed: u64,
        /// Pages that could be promised.
        available: u64,
        /// Pages in the pool.
        total: u64,
        /// What `mmap` answered.
        errno: Errno,
    },
    /// Transparent huge pages are switched off.
    #[error("transparent huge pages are set to {mode:?}")]
    ThpOff {
        /// The mode in force, `never`.
        mode: String,
    },
    /// The kernel accepted the advice and gave (some) base pages all the same.
    #[error("the kernel gave {huge} of {checked} bytes as huge pages")]
    ThpNotGranted {
        /// Bytes mapped by huge pages.
        huge: usize,
        /// Bytes looked at.
        checked: usize,
    },
    /// The pages were promised and could not be brought in.
    #[error("{0}")]
    Prefault(PrefaultError),
    /// A system call was refused.
    #[error("{0}")]
    Os(OsError),
}

impl Reason {
    /// The command that would make the rung hold, in words; `None` if there is none.
    pub fn mend(&self) -> Option<String> {
        match self {
            Self::Pool { page_size, needed, available, total, .. } => {
                let pages = total.saturating_add(needed.saturating_sub(*available));
                let kib = page_size / 1024;
                Some(format!(
                    "echo {pages} | sudo tee \
                     /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"
                ))
            }
            Self::NoSuchSize => Some("boot with hugepagesz= and hugepages= for this size".into()),
            Self::PoolUnread { errno, .. } => Some(hugepages::mend_unread(*errno).into()),
            Self::ThpOff { .. } => {
                Some("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled".into())
            }
            Self::ThpNotGranted { .. } => {
                Some("echo 1 | sudo tee /proc/sys/vm/compact_memory".into())
            }
            Self::Prefault(_) => {
                Some("raise memory.max and hugetlb.*.max of the control group".into())
            }
            Self::Waste { .. } | Self::Os(_) => None,
        }
    }
}

/// Maps memory by the ladder. At most one huge page of it is touched.
///
/// # Errors
/// [`LadderError`] with the reason per rung.
pub fn obtain(request: &Request) -> Result<Obtained, LadderError> {
    climb(request, |mapping| {
        let first = mapping.addr()..mapping.addr().saturating_add(mapping.page_kind().size());
        if mapping.page_kind() == PageKind::Thp {
            // SAFETY: the mapping is new and ours.
            unsafe { prefault::populate_write(first.clone()) }.map_err(Reason::Os)?;
            verify_thp(first)?;
        }
        Ok(())
    })
}

/// Maps memory by the ladder and brings all of it in, by `threads` threads; a rung whose pages
/// cannot be brought in is refused. `progress` is told (bytes done, bytes in all), starting anew
/// at each rung.
///
/// # Errors
/// [`LadderError`] with the reason per rung.
pub fn obtain_prefaulted(
    request: &Request,
    threads: usize,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Obtained, LadderError> {
    climb(request, |mapping| {
        let told = |done, total| {
            progress(done, total);
            ControlFlow::Continue(())
        };
        // Never told to stop, it comes back when all is done.
        let _ = prefault::prefault(mapping, threads, told).map_err(Reason::Prefault)?;
        if mapping.page_kind() == PageKind::Thp {
            verify_thp(mapping.range())?;
        }
        Ok(())
    })
}

fn climb(
    request: &Request,
    accept: impl Fn(&Mapping) -> Result<(), Reason>,
) -> Result<Obtained, LadderError> {
    let mut refused = Vec::new();
    for kind in PageKind::LADDER {
        if let Pages::Exactly(only) = request.pages
            && kind != only
        {
            continue;
        }
        match rung(request, kind, &accept) {
            Ok((mapping, numa)) => return Ok(Obtained { mapping, refused, numa }),
            Err(reason) => refused.push(Refused { kind, reason }),
        }
    }
    Err(LadderError { len: request.len, refused })
}

fn rung(
    request: &Request,
    kind: PageKind,
    accept: impl Fn(&Mapping) -> Result<(), Reason>,
) -> Result<(Mapping, Binding), Reason> {
    let len = request.len;
    if request.pages == Pages::Best
        && kind != PageKind::Base
        && let Some(rounded) = len.checked_next_multiple_of(kind.size())
        && rounded - len > len / 4
    {
        return Err(Reason::Waste { len, rounded });
    }
    if kind == PageKind::Thp
        && let Some(mode) = thp_mode()
        && mode == "never"
    {
        return Err(Reason::ThpOff { mode });
    }
    let mapping = Mapping::new(len, kind).map_err(|error| explain(len, kind, error))?;
    let numa = numa::bind(&mapping, request.numa_node);
    accept(&mapping)?;
    Ok((mapping, numa))
}

/// Why a mapping was refused, with the pool's figures for hugetlb pages.
fn explain(len: usize, kind: PageKind, error: OsError) -> Reason {
    if !kind.is_hugetlb() || len == 0 {
        return Reason::Os(error);
    }
    match hugepages::pool(kind.size()) {
        None => match hugepages::unread(kind.size()) {
            Some((path, errno)) => Reason::PoolUnread { refused: error.errno, path, errno },
            None => Reason::NoSuchSize,
        },
        Some(pool) if error.errno == Errno::NOMEM => Reason::Pool {
            page_size: pool.page_size,
            needed: len.div_ceil(kind.size()) as u64,
            available: pool.available(),
            total: pool.total,
            errno: error.errno,
        },
        Some(_) => Reason::Os(error),
    }
}

fn verify_thp(range: std::ops::Range<usize>) -> Result<(), Reason> {
    let checked = range.len();
    let huge = crate::proc::huge_bytes(range).map_err(Reason::Os)?;
    if huge >= checked { Ok(()) } else { Err(Reason::ThpNotGranted { huge, checked }) }
}

/// The mode in force: `always`, `madvise` or `never`; `None` if the kernel does not tell.
pub fn thp_mode() -> Option<String> {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn join(refused: &[Refused]) -> String {
    refused.iter().map(Refused::to_string).collect::<Vec<_>>().join("; ")
}
