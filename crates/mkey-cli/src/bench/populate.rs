//! Memory on pages of one kind, mapped and brought in.

use super::arena::Arena;
use super::error::{Result, RowError};
use super::progress::Progress;
use super::report::Missing;
use super::stop::Stop;
use mkey_os::ladder::{self, Pages, Request};
use mkey_os::mapping::PageKind;
use mkey_os::prefault;
use std::ops::ControlFlow;

/// Memory on pages of one kind, not touched yet.
///
/// # Errors
/// `Missing` with the reason and the command that would mend it.
pub fn map(bytes: u64, kind: PageKind) -> Result<Arena> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let request = Request { len, pages: Pages::Exactly(kind), numa_node: None };
    match ladder::obtain(&request) {
        Ok(obtained) => Ok(Arena::from(obtained.mapping)),
        Err(error) => Err(RowError::Missing(match error.refused.into_iter().next() {
            Some(refused) => Missing::new(refused.to_string(), refused.reason.mend()),
            None => Missing::plain(format!("no memory of {bytes} bytes")),
        })),
    }
}

/// Brings all of an arena in, on so many threads; checks that transparent huge pages are huge.
///
/// # Errors
/// `Stopped`; `Missing` with the reason and the command that would mend it.
pub fn prefault(arena: &Arena, threads: usize, stop: &Stop, progress: &Progress) -> Result<()> {
    let mapping = arena.mapping();
    let told = |done: usize, all: usize| {
        progress.part(done as u64, all as u64);
        match stop.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let end = prefault::prefault(mapping, threads, told).map_err(|error| {
        let reason = ladder::Reason::Prefault(error);
        RowError::Missing(Missing::new(reason.to_string(), reason.mend()))
    })?;
    if end.is_break() {
        stop.check()?;
    }
    if mapping.page_kind() == PageKind::Thp {
        let (huge, checked) = (mapping.huge_bytes()?, mapping.len());
        if huge < checked {
            let reason = ladder::Reason::ThpNotGranted { huge, checked };
            return Err(RowError::Missing(Missing::new(reason.to_string(), reason.mend())));
        }
    }
    Ok(())
}
