//! What this machine does not allow, and the command that would.

use mkey_os::hugepages::ReserveError;
use mkey_os::mapping::PageKind;
use mkey_os::pin::{PinRequest, Pinner, Refusal};

use super::arena::Arena;
use super::args::Pin;
use super::report::Missing;

/// More memory may be locked: in this shell, or in a container.
pub const MEMLOCK: &str =
    "sudo prlimit --pid $$ --memlock=unlimited   (docker run --ulimit memlock=-1)";

/// The control group leaves more memory: a container, or a service.
pub const CGROUP: &str = "docker run --memory 4g   (systemd-run -p MemoryMax=4G)";

/// Huge pages that could not be reserved.
pub fn reserve(kind: PageKind, needed: u64, free: u64, error: &ReserveError) -> Missing {
    let what = match error {
        ReserveError::Refused { errno, .. } => format!(
            "{kind} pages: {needed} needed, {free} free, and this user may not reserve more \
             ({errno})"
        ),
        other => format!("{kind} pages: {needed} needed, {free} free; {other}"),
    };
    Missing { what, command: Some(error.mend()) }
}

/// Ways of holding pages in place that were asked for and are refused here, found by holding one
/// page.
pub fn pinning(asked: Pin) -> Vec<Missing> {
    let Ok(page) = Arena::map(1, PageKind::Base) else { return Vec::new() };
    let pinner = Pinner::new(asked.strongest());
    let request = PinRequest {
        addr: page.mapping().addr(),
        len: page.mapping().len(),
        write: true,
        page: None,
    };
    // A page that can not be pinned at all keeps rows from being measured, which say so.
    let Ok(_held) = pinner.pin(&request) else { return Vec::new() };
    let used = pinner.stats().weakest();
    let what = |refusal: &Refusal| {
        let lost = used.not_guaranteed().map(|lost| format!(": {lost}")).unwrap_or_default();
        format!(
            "Pages are held by {used}, not {}, which the system refuses ({}){lost}",
            refusal.mode, refusal.errno
        )
    };
    let refusals = pinner.stats().refusals;
    refusals
        .iter()
        .map(|refusal| Missing { what: what(refusal), command: refusal.mend().map(str::to_owned) })
        .collect()
}
