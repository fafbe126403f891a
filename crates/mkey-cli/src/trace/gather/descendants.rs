//! Processes that a program leaves behind: daemons, whose parent is no longer the program. They may open a
//! device later on.

use crate::model::check::printable;
use mkey_trace::record::FOLDER;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Descendants that are named.
const MOST: usize = 8;

/// What is to be said of processes that go on with the recorder's folder in their environment, other than
/// those that `told` names; `None`: there are none.
pub fn note(folder: &Path, told: &[u32]) -> Option<String> {
    let mut left = alive(folder);
    left.retain(|(pid, _)| !told.contains(pid));
    let named: Vec<_> =
        left.iter().map(|(pid, name)| format!("{pid} ({})", printable(name))).collect();
    words(&named)
}

/// Processes that run with the recorder's folder in their environment, and their names.
fn alive(folder: &Path) -> Vec<(u32, String)> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id();
    let mut alive: Vec<(u32, String)> = all
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // Those of other users cannot be read, nor can they write into the folder.
            let environment = fs::read(entry.path().join("environ")).ok()?;
            if pid == own || !names(&environment, folder) {
                return None;
            }
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            };
            // What has ended is there until its parent asks for it.
            let has_ended =
                field("State").is_some_and(|state| state.trim().starts_with(['Z', 'X']));
            (!has_ended).then(|| (pid, field("Name").unwrap_or_default().trim().to_owned()))
        })
        .collect();
    alive.sort_unstable();
    alive
}

/// Whether an environment, as in `/proc/PID/environ`, names the folder as the recorder's.
fn names(environment: &[u8], folder: &Path) -> bool {
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable.strip_prefix(FOLDER.as_bytes());
        let value = value.and_then(|value| value.strip_prefix(b"="));
        value.is_some_and(|value| OsStr::from_bytes(value) == folder.as_os_str())
    })
}

/// What is said of processes, by how each is named; `None`: there are none.
pub fn words(left: &[String]) -> Option<String> {
    let mut named: Vec<&str> = left.iter().take(MOST).map(String::as_str).collect();
    if left.len() > MOST {
        named.push("..");
    }
    let named = named.join(", ");
    match left.len() {
        0 => None,
        1 => Some(format!("process {named} goes on; what it does from now on is not recorded")),
        _ => Some(format!("processes {named} go on; what they do from now on is not recorded")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_daemon_is_named_while_it_lives_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        // The shell ends; what it began goes on until its standard input is closed, and tells its number.
        let mut shell = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 >/dev/null & echo $!"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = shell.stdin.take();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let daemon: u32 = line.trim().parse().unwrap();
        assert!(shell.wait().unwrap().success());
        let told = note(folder.path(), &[]).unwrap();
        assert!(told.starts_with(&format!("process {daemon} (")), "{told}");
        assert!(told.ends_with("goes on; what it does from now on is not recorded"), "{told}");
        assert_eq!(note(folder.path(), &[daemon]), None);
        assert_eq!(note(other.path(), &[]), None);
        drop(input);
    }

    #[test]
    fn what_has_ended_and_waits_for_its_parent_is_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").env(FOLDER, folder.path()).spawn().unwrap();
        let id = rustix::process::Pid::from_raw(ended.id() as i32).unwrap();
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(id), options).unwrap();
        assert_eq!(note(folder.path(), &[]), None);
        ended.wait().unwrap();
    }

    #[test]
    fn only_the_whole_name_and_value_count() {
        let folder = Path::new("/dev/shm/mkey-trace-a");
        let is = |text: &str| names(text.replace('|', "\0").as_bytes(), folder);
        assert!(is(&format!("A=1|{FOLDER}=/dev/shm/mkey-trace-a|B=2|")));
        assert!(!is(&format!("A=1|{FOLDER}=/dev/shm/mkey-trace-ab|")));
        assert!(!is(&format!("X{FOLDER}=/dev/shm/mkey-trace-a|")));
        assert!(!is(&format!("{FOLDER}_LIMIT=/dev/shm/mkey-trace-a|")));
        assert!(!is(""));
    }

    #[test]
    fn many_are_named_in_part() {
        let all: Vec<String> = (1..=10).map(|pid| format!("{pid} (d)")).collect();
        let told = words(&all).unwrap();
        assert!(
            told.starts_with("processes 1 (d), 2 (d)") && told.contains("8 (d), .. go on"),
            "{told}"
        );
    }
}
