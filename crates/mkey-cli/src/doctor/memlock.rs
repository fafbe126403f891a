//! How much memory the process may lock, which every registration does: the limit, the privilege
//! that lifts it, and what is locked already.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::bench::units::size;
use crate::files::{Unread, no_line};
use crate::process::{self, IPC_LOCK, Limit};

/// The line of the limit.
pub const LIMIT: &str = "Max locked memory";
/// Up to this nothing of use can be registered: a queue's own buffers take as much.
pub const TINY: u64 = 64 << 10;
/// From this on a limit is taken for one that somebody chose for registering.
pub const ENOUGH: u64 = 1 << 30;

/// What the process may lock.
struct Allowed {
    limit: Limit,
    /// CAP_IPC_LOCK is effective.
    holds: bool,
    /// And in the namespace where it counts, if that can be seen.
    initial: Option<bool>,
    status: String,
}

impl Allowed {
    fn read(at: &Context) -> Result<Self, Unread> {
        let path = at.of_process("limits");
        let text = at.files.text(&path)?;
        let limit =
            process::limit(&text, LIMIT).ok_or_else(|| process::no_limit(&path, &text, LIMIT))?;
        let status = at.files.text(&at.of_process("status"))?;
        let holds = process::has_capability(&status, "CapEff", IPC_LOCK)
            .ok_or_else(|| no_line(&at.of_process("status"), "CapEff"))?;
        Ok(Self { limit, holds, initial: at.in_initial_namespace(), status })
    }

    fn lifted(&self) -> bool {
        self.holds && self.initial == Some(true)
    }

    /// Whether the limit counts can not be seen.
    fn unseen(&self) -> bool {
        self.holds && self.initial.is_none()
    }
}

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    match Allowed::read(at) {
        Ok(allowed) => vec![limit(at, &allowed), privilege(at, &allowed), pinned(at, &allowed)],
        Err(unread) => vec![
            Finding::unread(Code::Memlock, &unread),
            Finding::unread(Code::IpcLock, &unread),
            Finding::unread(Code::Pinned, &unread),
        ],
    }
}

/// What is known or not, as a value.
pub fn told(known: Option<bool>) -> String {
    known.map_or_else(|| "-".to_owned(), |known| known.to_string())
}

/// A limit as a value, and as a word of each language.
pub fn put(finding: Finding, name: &'static str, limit: Option<u64>) -> Finding {
    let finding = finding.value(name, shown(limit));
    if limit.is_none() { finding.term(name, "unlimited-word") } else { finding }
}

/// A limit as text.
fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), size)
}

/// How a limit of locked memory is judged.
pub fn judge(soft: Option<u64>) -> (Status, &'static str) {
    match soft {
        None => (Status::Ok, "unlimited"),
        Some(0) => (Status::Fail, "zero"),
        Some(limit) if limit <= TINY => (Status::Fail, "tiny"),
        Some(limit) if limit < ENOUGH => (Status::Warn, "small"),
        Some(_) => (Status::Ok, "enough"),
    }
}

fn limit(at: &Context, allowed: &Allowed) -> Finding {
    let Limit { soft, hard } = allowed.limit;
    let (status, says) = if allowed.lifted() { (Status::Ok, "lifted") } else { judge(soft) };
    let unsure = allowed.unseen() && status != Status::Ok;
    let (status, says) =
        if unsure { (Status::NotReadable, "maybe-lifted") } else { (status, says) };
    let room_above = match (soft, hard) {
        (Some(_), None) => true,
        (Some(soft), Some(hard)) => hard > soft,
        (None, _) => false,
    };
    let finding = put(put(Finding::new(Code::Memlock, status, says), "soft", soft), "hard", hard)
        .value("ipc_lock", allowed.lifted())
        .word("kib", hard.map_or_else(|| "unlimited".to_owned(), |hard| (hard / 1024).to_string()))
        .word("pid", &at.process)
        .file(&at.of_process("limits"))
        .file(&at.of_process("status"));
    let finding =
        if room_above && at.launcher.has_shell() { finding.mend("memlock-soft") } else { finding };
    let other = at.process != "self";
    let finding = if other { finding.mend("memlock-process") } else { finding };
    finding.mend("memlock")
}

fn privilege(at: &Context, allowed: &Allowed) -> Finding {
    let has = |set| process::has_capability(&allowed.status, set, IPC_LOCK) == Some(true);
    let root = process::field(&allowed.status, "Uid")
        .and_then(|ids| ids.split_whitespace().nth(1))
        .is_some_and(|id| id == "0");
    let counts = allowed.limit.soft.is_some();
    let (status, says) = if allowed.lifted() {
        (Status::Ok, "effective")
    } else if !counts {
        (Status::Ok, "not-needed")
    } else if allowed.unseen() {
        (Status::NotReadable, "namespace-unread")
    } else if allowed.holds {
        (Status::Warn, "elsewhere")
    } else if !root && has("CapBnd") && at.launcher.name() == "kubernetes" {
        (Status::Warn, "bounding")
    } else {
        (Status::Ok, "absent")
    };
    Finding::new(Code::IpcLock, status, says)
        .value("effective", allowed.holds)
        .value("initial_user_namespace", told(allowed.initial))
        .file(&at.of_process("status"))
        .file(&at.of_process("ns/user"))
        .mend("memlock")
}

fn pinned(at: &Context, allowed: &Allowed) -> Finding {
    let path = at.of_process("status");
    let of = |name| process::size_in(&path, &allowed.status, name);
    let (pinned, locked) = match (of("VmPin"), of("VmLck")) {
        (Ok(pinned), Ok(locked)) => (pinned, locked),
        (Err(unread), _) | (_, Err(unread)) => return Finding::unread(Code::Pinned, &unread),
    };
    let base = |status, says| {
        Finding::new(Code::Pinned, status, says)
            .measure("pinned", size(pinned))
            .measure("locked", size(locked))
            .file(&at.of_process("status"))
    };
    let Some(limit) = allowed.limit.soft.filter(|_| !allowed.lifted()) else {
        return base(Status::Ok, "no-limit");
    };
    if allowed.unseen() {
        return base(Status::NotReadable, "maybe-limit").word("limit", size(limit));
    }
    let left = limit.saturating_sub(pinned);
    let (status, says) = match left {
        left if left < 4096 => (Status::Fail, "none-left"),
        left if left < limit / 10 => (Status::Warn, "little-left"),
        _ => (Status::Ok, "left"),
    };
    base(status, says).measure("left", size(left)).word("limit", size(limit)).mend("memlock")
}
