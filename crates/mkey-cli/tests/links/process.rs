//! Programs in network namespaces.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until a server takes connections, in a namespace or in this one; there is no event of that.
pub fn await_listener(server: &mut Child, namespace: Option<&str>, patience: Duration) {
    let until = Instant::now() + patience;
    let own = fs::metadata("/proc/self/ns/net").unwrap().ino();
    let wanted =
        namespace.map_or(own, |name| fs::metadata(format!("/run/netns/{name}")).unwrap().ino());
    while !listens(server.id(), wanted) {
        assert!(Instant::now() < until, "the server does not listen");
        assert_eq!(server.try_wait().unwrap(), None, "the server ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether anybody listens in the namespace of a process, which is this one.
fn listens(process: u32, namespace: u64) -> bool {
    /// As the kernel's table has it: the port 18515, which the programs take unless told otherwise.
    const PORT: &str = ":4853";
    const LISTEN: &str = "0A";
    let there = fs::metadata(format!("/proc/{process}/ns/net"));
    if there.is_ok_and(|there| there.ino() != namespace) {
        // It has not gone there yet.
        return false;
    }
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|own| own.ends_with(PORT)) && words.nth(1) == Some(LISTEN)
        })
    })
}

/// The status with which a process ends; `None` if it does not end in time: then it is killed.
pub fn ended(child: &mut Child, until: Instant) -> Option<i32> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        if Instant::now() > until {
            child.kill().unwrap();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What it said.
pub fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}
