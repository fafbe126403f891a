//! Mappings: how many there are, how many there may be, and whether fork protection makes more.

use super::code::Code;
use super::context::{Context, RELEASE};
use super::finding::{Finding, Status};
use crate::files::shown as shown_path;
use crate::process::{ForkSafe, fork_safe};
use mkey_os::{kernel, rdma_netlink};

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let fork = Fork::read(at);
    vec![count(at, &fork), protection(at, &fork)]
}

/// What is known of fork protection.
struct Fork {
    /// The kernel copies pinned pages at fork: none is needed.
    copies: Option<bool>,
    /// How that is known.
    by: &'static str,
    /// The variables that ask for it, and for a look at each page's size; `None`: not readable.
    asked: Option<ForkSafe>,
}

impl Fork {
    fn read(at: &Context) -> Self {
        let told = at.files.live().then(|| rdma_netlink::system().ok()).flatten();
        let told = told.and_then(|system| system.copy_on_fork);
        let (copies, by) = match told {
            Some(copies) => (Some(copies), "netlink RDMA_NLDEV_CMD_SYS_GET"),
            None => (by_version(at), "release of the kernel"),
        };
        let environment = at.files.text(&at.of_process("environ")).ok();
        Self { copies, by, asked: environment.map(|all| fork_safe(&all)) }
    }

    /// Whether registrations may split mappings.
    fn splits(&self) -> bool {
        self.copies == Some(false) && self.asked.is_none_or(|says| says.asked)
    }
}

/// Pinned pages are copied at fork since 5.12.
fn by_version(at: &Context) -> Option<bool> {
    Some(kernel::version(&at.kernel().ok()?)? >= (5, 12))
}

fn count(at: &Context, fork: &Fork) -> Finding {
    let (maps, most) = (at.of_process("maps"), "proc/sys/vm/max_map_count");
    let (count, limit) = match (at.files.lines(&maps), at.files.number(most)) {
        (Ok(count), Ok(limit)) => (count, limit),
        (Err(unread), _) | (_, Err(unread)) => return Finding::unread(Code::MapCount, &unread),
    };
    let left = limit.saturating_sub(count);
    let (status, says) = if left < limit / 100 {
        (Status::Fail, "full")
    } else if left < limit / 10 {
        (Status::Warn, "nearly-full")
    } else if fork.splits() && left < limit / 2 {
        (Status::Warn, "splitting")
    } else {
        (Status::Ok, "room")
    };
    Finding::new(Code::MapCount, status, says)
        .measure("count", count)
        .measure("left", left)
        .value("limit", limit)
        .word("more", limit.max(65_530).saturating_mul(4).min(2_147_483_647))
        .file(&maps)
        .file(most)
        .mend("max-map-count")
}

fn protection(at: &Context, fork: &Fork) -> Finding {
    let (status, says) = match (fork.copies, fork.asked) {
        (Some(true), Some(ForkSafe { asked: true, .. })) => (Status::Ok, "asked-unneeded"),
        (Some(true), _) => (Status::Ok, "unneeded"),
        // What is not known is not told as that the kernel does not.
        (None, _) => (Status::NotReadable, "kernel-unread"),
        (_, None) => (Status::NotReadable, "unknown"),
        // The look at page sizes is a part of protection, and nothing without it.
        (_, Some(ForkSafe { asked: true, huge_pages: true })) => (Status::Warn, "slow"),
        (_, Some(ForkSafe { asked: true, .. })) => (Status::Warn, "active"),
        (_, Some(_)) => (Status::Ok, "not-asked"),
    };
    let shown = |value: Option<bool>| value.map_or("-".to_owned(), |value| value.to_string());
    Finding::new(Code::ForkProtection, status, says)
        .value("copy_on_fork", shown(fork.copies))
        .value("asked_for", shown(fork.asked.map(|says| says.asked)))
        .value("huge_pages_safe", shown(fork.asked.map(|says| says.huge_pages)))
        .word("file", format!("/{}", at.of_process("environ")))
        .word("release", shown_path(RELEASE))
        .file(&at.of_process("environ"))
        .by(fork.by)
        .mend(if says == "slow" { "fork-protection-slow" } else { "fork-protection" })
}
