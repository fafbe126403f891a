//! What a sandbox takes away: userfaultfd, system calls, namespaces.

use super::code::Code;
use super::context::Context;
use super::files::garbage;
use super::finding::{Finding, Status};
use crate::process;
use mkey_os::events::Watcher;
use mkey_os::rdma_netlink;

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
            Err(error) => Finding::new(Code::Userfaultfd, Status::Warn, "denied")
                .word("why", error.source)
                .by(error.source.call)
                .mend("userfaultfd"),
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

fn seccomp(at: &Context, denied: bool) -> Finding {
    let path = at.of_process("status");
    let status = match at.files.text(&path) {
        Ok(status) => status,
        Err(unread) => return Finding::unread(Code::Seccomp, &unread),
    };
    let Some(mode) = process::field(&status, "Seccomp") else {
        return Finding::unread(Code::Seccomp, &garbage(&path, "Seccomp"));
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

fn namespaces(at: &Context) -> Finding {
    let user = process::in_initial_namespace(&at.files.path(&at.of_process("")));
    let net = |process: &str| at.files.link_name(&format!("proc/{process}/ns/net"));
    // That of the first process may be hidden: then nothing is known.
    let other_net = match (net(&at.process), net("1")) {
        (Some(own), Some(first)) => Some(own != first),
        _ => None,
    };
    let system = at.files.live().then(|| rdma_netlink::system().ok()).flatten();
    let exclusive = system.and_then(|system| system.netns_exclusive);
    let (status, says) = match (user, other_net) {
        (true, Some(true)) if exclusive == Some(true) => (Status::Warn, "net-exclusive"),
        (true, Some(true)) => (Status::Ok, "net"),
        (true, _) => (Status::Ok, "initial"),
        (false, Some(true)) => (Status::Warn, "both"),
        (false, _) => (Status::Warn, "user"),
    };
    let mode = match exclusive {
        Some(true) => "exclusive",
        Some(false) => "shared",
        None => "-",
    };
    Finding::new(Code::Namespaces, status, says)
        .value("initial_user_namespace", user)
        .value("rdma_netns", mode)
        .file(&at.of_process("ns/user"))
        .file(&at.of_process("ns/net"))
        .mend("namespaces")
}
