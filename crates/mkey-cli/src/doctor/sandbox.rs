//! What a sandbox takes away: userfaultfd, system calls, namespaces.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::memlock::told;
use crate::explain::errno;
use crate::files::no_line;
use crate::process;
use mkey_os::events::Watcher;
use mkey_os::{kernel, rdma_netlink};

/// CAP_SYS_PTRACE's bit.
const SYS_PTRACE: u32 = 19;

/// The checks; `denied`: io_uring was.
pub fn check(at: &Context, denied: bool) -> Vec<Finding> {
    let faults = userfaultfd(at);
    let denied = denied || faults.says == "denied";
    vec![faults, seccomp(at, denied), namespaces(at)]
}

fn userfaultfd(at: &Context) -> Finding {
    let path = "proc/sys/vm/unprivileged_userfaultfd";
    let setting = at.files.number(path);
    let finding = if at.probes {
        match Watcher::new() {
            Ok(_) => Finding::new(Code::Userfaultfd, Status::Ok, "works").by("userfaultfd"),
            // It reads its own mappings, which nothing refuses where /proc is not mounted.
            Err(error) if !at.files.exists("proc/self") => {
                Finding::new(Code::Userfaultfd, Status::NotReadable, "unread-missing")
                    .word("file", "/proc/self")
                    .by(error.source.call)
            }
            Err(error) => {
                let finding = Finding::new(Code::Userfaultfd, Status::Warn, "denied")
                    .word("why", errno::shown(&error.source.errno.into()))
                    .by(error.source.call);
                denial(at, finding, setting.as_ref().ok() == Some(&0))
            }
        }
    } else {
        match &setting {
            Ok(0) => Finding::new(Code::Userfaultfd, Status::Ok, "user-mode"),
            Ok(_) => Finding::new(Code::Userfaultfd, Status::Ok, "allowed"),
            Err(unread) => return Finding::unread(Code::Userfaultfd, unread),
        }
    };
    match setting {
        Ok(setting) => finding.value("unprivileged", setting).file(path),
        Err(_) => finding,
    }
}

/// What mends that userfaultfd is denied: what denies it. `off`: the setting is 0.
fn denial(at: &Context, finding: Finding, off: bool) -> Finding {
    // Since Linux 5.11 the setting is not about faults in user mode, which are asked for.
    let old = at
        .kernel()
        .ok()
        .and_then(|kernel| kernel::version(&kernel))
        .is_some_and(|version| version < (5, 11));
    let finding = if off && old && !at.has_capability(SYS_PTRACE) {
        finding.mend("userfaultfd")
    } else {
        finding
    };
    if at.is_filtered() { finding.mend("seccomp") } else { finding }
}

fn seccomp(at: &Context, denied: bool) -> Finding {
    let path = at.of_process("status");
    let status = match at.files.text(&path) {
        Ok(status) => status,
        Err(unread) => return Finding::unread(Code::Seccomp, &unread),
    };
    let Some(mode) = process::field(&status, "Seccomp") else {
        return Finding::unread(Code::Seccomp, &no_line(&path, "Seccomp"));
    };
    let filters = process::field(&status, "Seccomp_filters").unwrap_or("?");
    let (result, says) = match mode {
        "0" => (Status::Ok, "none"),
        _ if denied => (Status::Warn, "denies"),
        _ => (Status::Ok, "filter"),
    };
    Finding::new(Code::Seccomp, result, says)
        .value("mode", mode)
        .measure("filters", filters)
        .file(&path)
        .mend("seccomp")
}

/// The number of the process namespace that the kernel booted with (PROC_PID_INIT_INO).
const FIRST_PIDS: &str = "pid:[4026531836]";

fn namespaces(at: &Context) -> Finding {
    let link = |path: &str| at.files.link_name(path);
    // Process 1 is the host's only where its number is: in a container it is the container's.
    let hosts = link(&at.of_process("ns/pid")).is_some_and(|pids| pids == FIRST_PIDS);
    let other_net = match (link(&at.of_process("ns/net")), link("proc/1/ns/net")) {
        (Some(own), Some(first)) if hosts => Some(own != first),
        _ => None,
    };
    let system = at.files.live().then(|| rdma_netlink::system().ok()).flatten();
    let exclusive = system.and_then(|system| system.netns_exclusive);
    let user = at.in_initial_namespace();
    let (status, says) = match (user, other_net) {
        (None, _) => (Status::NotReadable, "user-unread"),
        (Some(true), Some(true)) if exclusive == Some(true) => (Status::Warn, "net-exclusive"),
        (Some(true), Some(true)) => (Status::Ok, "net"),
        (Some(true), Some(false)) => (Status::Ok, "initial"),
        (Some(true), None) => (Status::NotReadable, "net-unseen"),
        (Some(false), Some(true)) => (Status::Warn, "both"),
        (Some(false), _) => (Status::Warn, "user"),
    };
    let mode = match exclusive {
        Some(true) => "exclusive",
        Some(false) => "shared",
        None => "-",
    };
    let finding = Finding::new(Code::Namespaces, status, says)
        .value("initial_user_namespace", told(user))
        .value("rdma_netns", mode)
        .file(&at.of_process("ns/user"))
        .file(&at.of_process("ns/net"));
    let finding = if user == Some(false) { finding.mend("namespaces-user") } else { finding };
    let hidden = other_net == Some(true) && exclusive == Some(true);
    if hidden { finding.mend("namespaces-net") } else { finding }
}
