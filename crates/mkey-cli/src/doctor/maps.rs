//! Mappings: how many there are, how many there may be, and whether fork protection makes more.

use super::code::Code;
use super::context::Context;
use super::files::Files;
use super::finding::{Finding, Status};
use crate::process::variable;
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
    asked: Option<(bool, bool)>,
}

impl Fork {
    fn read(at: &Context) -> Self {
        let told = at.files.live().then(|| rdma_netlink::system().ok()).flatten();
        let told = told.and_then(|system| system.copy_on_fork);
        let (copies, by) = match told {
            Some(copies) => (Some(copies), "netlink RDMA_NLDEV_CMD_SYS_GET"),
            None => (by_version(&at.files), "/proc/sys/kernel/osrelease"),
        };
        let environment = at.files.text(&at.of_process("environ")).ok();
        let asked = environment.map(|all| {
            let says = |name| variable(&all, name).is_some();
            (
                says("RDMAV_FORK_SAFE") || says("IBV_FORK_SAFE"),
                says("RDMAV_HUGEPAGES_SAFE") || says("IBV_HUGEPAGES_SAFE"),
            )
        });
        Self { copies, by, asked }
    }

    /// Whether registrations may split mappings.
    fn splits(&self) -> bool {
        self.copies != Some(true) && self.asked.is_none_or(|(fork, _)| fork)
    }
}

/// Pinned pages are copied at fork since 5.12.
fn by_version(files: &Files) -> Option<bool> {
    let release = files.line("proc/sys/kernel/osrelease").ok()?;
    Some(kernel::version(&release)? >= (5, 12))
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
        (Some(true), Some((true, _))) => (Status::Ok, "asked-unneeded"),
        (Some(true), _) => (Status::Ok, "unneeded"),
        (_, None) => (Status::NotReadable, "unknown"),
        (_, Some((true, true))) => (Status::Warn, "slow"),
        (_, Some((true, false))) => (Status::Warn, "active"),
        (_, Some((false, _))) => (Status::Ok, "not-asked"),
    };
    let shown = |value: Option<bool>| value.map_or("-".to_owned(), |value| value.to_string());
    Finding::new(Code::ForkProtection, status, says)
        .value("copy_on_fork", shown(fork.copies))
        .value("asked_for", shown(fork.asked.map(|(fork, _)| fork)))
        .value("huge_pages_safe", shown(fork.asked.map(|(_, huge)| huge)))
        .word("file", format!("/{}", at.of_process("environ")))
        .file(&at.of_process("environ"))
        .by(fork.by)
        .mend("fork-protection")
}
