//! Processes that fork, that are killed, that have no room. Each is a child: this very program, told by the
//! environment what to do.

use super::*;
use std::ffi::{CStr, CString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

const ROLE: &str = "MKEY_TEST_ROLE";

fn child(role: &str, folder: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "record::tests::processes::role", "--ignored", "--nocapture"]);
    command.env(ROLE, role).env(FOLDER, folder).env(LIMIT, "16000000");
    command
}

/// What the children do.
#[test]
#[ignore = "run by the others, as a child process"]
fn role() {
    match std::env::var(ROLE).unwrap().as_str() {
        "killed" => work_until_killed(),
        "forks" => fork_and_go_on(),
        "full" => fill_a_file_system(),
        "limited" => be_limited(),
        other => panic!("{other}"),
    }
}

/// The recorder of this process, as a device is opened.
fn begun() -> Traced {
    let recorder = Recorder::begin().unwrap();
    assert!(std::ptr::eq(recorder, Recorder::current().unwrap()));
    assert!(std::ptr::eq(recorder, Recorder::begin().unwrap()));
    let device = recorder.device(0xDE, b"mkey0", 0x1234, true);
    Traced { recorder, folder: tempfile::tempdir().unwrap(), device }
}

fn work_until_killed() {
    let traced = begun();
    let queue = traced.queue(8, 8);
    traced.reg(1, 0x7000_0000, 1 << 20);
    for id in 0_u64.. {
        traced.post(queue, Op::Send, id, &[(0x7000_0000, 8, 1)]);
        queue.completed(traced.recorder, id, false, 0, 0);
        let number = id as u32 % 1000 + 2;
        traced.reg(number, 0x8000_0000, 4096);
        traced.dereg(number);
        if id == 500 {
            println!("500 done");
        }
    }
}

#[test]
fn a_killed_process_leaves_a_file_that_is_whole_up_to_its_last_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = child("killed", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("500 done")));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));

    let bytes = std::fs::read(&files(folder.path())[0]).unwrap();
    let file = File::parse(&bytes).unwrap();
    let header = file.header();
    assert_eq!((header.pid, header.ended, header.lost), (child.id(), 0, 0));
    let program = header.program.split(|byte| *byte == 0).next().unwrap();
    assert_eq!(program, std::env::current_exe().unwrap().as_os_str().as_encoded_bytes());
    assert!(header.arguments.windows(9).any(|bytes| bytes == b"processes"));
    let calls = file.records().filter(|(_, r)| matches!(r, Record::Call(_))).count() as u64;
    assert!(
        calls >= 1001 && (header.calls..=header.calls + 1).contains(&calls),
        "{calls} {header:?}"
    );
    let mrs: Vec<Mr> = file
        .records()
        .filter_map(|(_, r)| if let Record::Mr(mr) = r { Some(mr) } else { None })
        .collect();
    assert!(mrs[0].uses[0] >= 501 && in_flight(&mrs[0]) <= 1);
    let ended = mrs[1..].iter().filter(|mr| file.get::<Call>(mr.dereg).is_some()).count();
    assert!(ended >= mrs.len() - 2, "all but the one that was at hand");
}

fn fork_and_go_on() {
    let traced = begun();
    let queue = traced.queue(8, 8);
    traced.reg(1, 0x7000_0000, 1 << 20);
    traced.post(queue, Op::Send, 1, &[(0x7000_0000, 8, 1)]);
    // SAFETY: the child goes on alone, and ends without returning into the test's harness.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        Recorder::forked();
        assert!(Recorder::current().is_none());
        // What it has of its parent's goes nowhere.
        traced.post(queue, Op::Send, 2, &[(0x7000_0000, 8, 1)]);
        queue.completed(traced.recorder, 1, false, 0, 0);
        traced.reg(2, 0x7100_0000, 4096);
        traced.recorder.polled(1);
        let own = begun();
        assert!(!std::ptr::eq(own.recorder, traced.recorder));
        // The queue is not the new one's.
        queue.completed(own.recorder, 1, false, 0, 0);
        own.reg(3, 0x7200_0000, 4096);
        own.recorder.end();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert_eq!(status, 0);
    traced.reg(4, 0x7300_0000, 4096);
    traced.recorder.end();
}

#[test]
fn a_forked_child_has_a_file_of_its_own_and_leaves_its_parents_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut parent = child("forks", folder.path());
    let out = parent.output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let read: Vec<_> =
        files(folder.path()).iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(read.len(), 2);
    let mut found: Vec<_> = read
        .iter()
        .map(|bytes| {
            let file = File::parse(bytes).unwrap();
            let mrs: Vec<_> = file
                .records()
                .filter_map(|(_, r)| {
                    if let Record::Mr(mr) = r { Some((mr.lkey, in_flight(&mr))) } else { None }
                })
                .collect();
            (mrs, file.header())
        })
        .collect();
    found.sort_by_key(|(mrs, _)| mrs.len());
    let [(child, child_header), (parent, parent_header)] = &found[..] else { panic!() };
    assert_eq!(*child, [(lkey(3), 0)]);
    assert_eq!(*parent, [(lkey(1), 1), (lkey(4), 0)]);
    assert_eq!(child_header.parent, parent_header.pid);
    assert!(child_header.ended != 0 && parent_header.ended != 0);
    assert_eq!((child_header.calls, parent_header.calls), (1, 2));
}

fn fill_a_file_system() {
    let folder = std::env::var(FOLDER).unwrap();
    let traced = begun();
    for number in 1..20_000 {
        traced.reg(number, 0x7000_0000, 4096);
    }
    let queue = traced.recorder.queue(&traced.init(8, 8));
    assert!(queue.is_none());
    traced.recorder.end();
    let bytes = std::fs::read(&files(folder.as_ref())[0]).unwrap();
    let file = File::parse(&bytes).unwrap();
    let header = file.header();
    assert!(header.used <= 1 << 20 && header.lost > 20_000 && header.ended != 0, "{header:?}");
    assert_eq!(header.calls, 19_999);
    assert!(file.records().count() > 1000);
    println!("full and well");
}

/// Mounts a small file system at `folder`, seen by this process and its children alone.
fn mount_small(folder: &CStr) -> std::io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    use rustix::thread::UnshareFlags;
    let (user, root) = (rustix::process::geteuid(), rustix::process::geteuid().is_root());
    let flags =
        if root { UnshareFlags::NEWNS } else { UnshareFlags::NEWNS | UnshareFlags::NEWUSER };
    // SAFETY: nothing of this thread's is shared with others afterwards that was not before.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    if !root {
        std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    }
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount(c"none", folder, c"tmpfs", MountFlags::empty(), Some(c"size=1m"))?;
    Ok(())
}

#[test]
fn a_full_file_system_costs_records_and_not_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let at = CString::new(folder.path().as_os_str().as_encoded_bytes()).unwrap();
    let mut command = child("full", folder.path());
    // SAFETY: the child has one thread, and makes few allocations, which glibc allows after `fork`.
    unsafe { command.pre_exec(move || mount_small(&at)) };
    let out = match command.output() {
        Err(error) => {
            eprintln!(
                "SKIPPED: a full file system: this user may not mount one for itself: {error}"
            );
            return;
        }
        Ok(out) => out,
    };
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("full and well"), "{out:?}");
}

fn be_limited() {
    let limit = libc::rlimit { rlim_cur: 1_000_000, rlim_max: 1_000_000 };
    // SAFETY: sets a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let traced = begun();
    for number in 1..20_000 {
        traced.reg(number, 0x7000_0000, 4096);
    }
    println!("limited and well");
}

#[test]
fn a_limit_of_file_sizes_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = child("limited", folder.path()).output().unwrap();
    assert!(
        out.status.success() && String::from_utf8_lossy(&out.stdout).contains("limited and well"),
        "{out:?}"
    );
    let bytes = std::fs::read(&files(folder.path())[0]).unwrap();
    assert!(bytes.len() <= 1_000_000);
    assert!(File::parse(&bytes).unwrap().header().lost > 0);
}

#[test]
fn without_a_folder_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = child("forks", folder.path());
    command.env_remove(FOLDER);
    let out = command.output().unwrap();
    assert!(!out.status.success());
    // `begin` said None.
    assert!(String::from_utf8_lossy(&out.stderr).contains("None"), "{out:?}");
    assert!(files(folder.path()).is_empty());
}
