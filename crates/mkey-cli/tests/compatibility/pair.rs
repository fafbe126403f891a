//! Two processes that talk to each other: a server, and its client.

use crate::common;
use crate::list::{Expected, Program, Run};
use mkey_os::hugepages;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Both sides of a run have ended by then. They take less than a second on a machine that does nothing
/// else; a busy one lets each side wait for the other at every message.
const PATIENCE: Duration = Duration::from_secs(60);
/// perftest measures the processor's frequency before it reports, and gives up where that scatters, as it
/// does on a machine that is busy. That is no matter of the device.
const SCATTERED: &str = "Can't produce a report";
/// Runs that may end so.
const TRIES: usize = 5;
/// What a run may take of them.
const HUGE_PAGES: u64 = 32;

/// Runs of two processes that poll take turns, across all processes of a test run. Held meanwhile.
#[must_use]
pub fn turn() -> File {
    let path = std::env::temp_dir().join("mkey-tests-two-processes.lock");
    // It may be there already, as another user's: to lock it, reading is enough.
    let _ = OpenOptions::new().append(true).create(true).open(&path);
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    file
}

/// Huge pages for a program; `None` where none can be reserved, which is noted.
pub struct HugePages {
    _turn: File,
    _reservation: hugepages::Reservation,
}

impl HugePages {
    pub fn reserve(test: &str) -> Option<Self> {
        let turn = common::alone();
        match hugepages::reserve(2 << 20, HUGE_PAGES) {
            Ok(reservation) => Some(Self { _turn: turn, _reservation: reservation }),
            Err(error) => {
                common::skipped(test, &format!("huge pages: {error}"));
                None
            }
        }
    }
}

/// Which side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

/// How a side of a pair ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A side that runs.
pub struct Side {
    pid: Pid,
    /// The process itself: once waited for, its number may be another's.
    process: OwnedFd,
    shown: String,
    output: Receiver<Ended>,
}

impl Side {
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child: Child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let output = child.wait_with_output().unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            // Nobody listens any more if the other side has failed.
            let _ = sender.send(Ended {
                status: output.status,
                stdout: text(output.stdout),
                stderr: text(output.stderr),
            });
        });
        Self { pid, process, shown: format!("{command:?}"), output }
    }

    /// Waits until it listens on this port, if it does not end before.
    pub fn listens(&self, port: u16, until: Instant) -> bool {
        // Of its own network namespace. Nobody tells when a line appears there.
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.pid));
        while Instant::now() < until {
            if tables.iter().any(|table| is_listening(table, port)) {
                return true;
            }
            if fs::metadata(format!("/proc/{}", self.pid)).is_err() {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// How it ended; killed if it has not by then.
    pub fn ended(&self, until: Instant) -> Result<Ended, String> {
        match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(ended) => Ok(ended),
            Err(RecvTimeoutError::Disconnected) => Err(format!("{}: lost", self.shown)),
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended by now.
                let _ = pidfd_send_signal(&self.process, Signal::KILL);
                let last = self.output.recv().map_err(|_| "lost".to_owned())?;
                Err(format!("{}: did not end in time\n{}", self.shown, last.words()))
            }
        }
    }
}

impl Ended {
    pub fn well(&self) -> bool {
        self.status.success()
    }

    pub fn words(&self) -> String {
        let Self { status, stdout, stderr } = self;
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("status {code}"),
            (_, signal) => format!("signal {signal:?}"),
        };
        format!("{how}\n--- output\n{stdout}--- errors\n{stderr}---")
    }
}

/// What a side said, or what became of it.
fn said(end: &Result<Ended, String>) -> String {
    end.as_ref().map_or_else(Clone::clone, Ended::words)
}

/// Whether a line of a table of sockets says that somebody listens on a port.
fn is_listening(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    fs::read_to_string(table).unwrap_or_default().lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next(), words.next(), words.next());
        local.is_some_and(|local| local.ends_with(&end)) && state == Some(LISTEN)
    })
}

/// A port that nobody has at this moment.
pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port()
}

/// Runs a program in two processes; what went wrong, if something did.
pub fn run(
    side: &dyn Fn(Role, &[&str]) -> Command,
    host: &str,
    program: &Program,
    run: &Run,
) -> Result<(), String> {
    let mut result = run_once(side, host, program, run);
    for _ in 1..TRIES {
        match &result {
            Err(words) if words.contains(SCATTERED) => result = run_once(side, host, program, run),
            _ => break,
        }
    }
    result
}

/// Starts the server, then the client, each by what makes a command of a program and its arguments; what
/// went wrong, if something did.
fn run_once(
    side: &dyn Fn(Role, &[&str]) -> Command,
    host: &str,
    program: &Program,
    run: &Run,
) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    let port = free_port();
    let port_argument = port.to_string();
    let mut arguments = vec![program.name];
    arguments.extend(program.arguments(run));
    arguments.extend(["-p", &port_argument]);
    let server = Side::start(&mut side(Role::Server, &arguments));
    if !server.listens(port, until) && run.expected == Expected::Works {
        return Err(format!("the server did not begin: {}", said(&server.ended(until))));
    }
    arguments.push(host);
    let client = Side::start(&mut side(Role::Client, &arguments)).ended(until);
    // A client that failed may leave its server waiting for another one.
    let patience = if client.as_ref().is_ok_and(Ended::well) { until } else { Instant::now() };
    let server = server.ended(patience.min(until));
    judge(program, run, server, client)
}

fn judge(
    program: &Program,
    run: &Run,
    server: Result<Ended, String>,
    client: Result<Ended, String>,
) -> Result<(), String> {
    let both = match (server, client) {
        (Ok(server), Ok(client)) => [server, client],
        (server, client) => {
            return Err(format!("server: {}\nclient: {}", said(&server), said(&client)));
        }
    };
    let [server, client] = &both;
    // Servers of perftest may say nothing.
    let measured = |side| if program.name.starts_with("ibv_") { side } else { client };
    let good = both.iter().all(|side| match run.expected {
        Expected::Works => side.well() && has_done(program, run, measured(side)),
        Expected::Declines(words) => {
            !side.well() && (side.stderr.contains(words) || side.stdout.contains(words))
        }
    });
    good.then_some(()).ok_or_else(|| {
        let expected = run.expected;
        format!("expected: {expected:?}\nserver: {}\nclient: {}", server.words(), client.words())
    })
}

/// Whether a side says that it has done what it was to do.
fn has_done(program: &Program, run: &Run, side: &Ended) -> bool {
    let text = &side.stdout;
    if program.name == "ibv_xsrq_pingpong" {
        return text.ends_with("success\n");
    }
    if program.name.starts_with("ibv_") {
        return !text.contains("invalid data") && text.contains(" bytes in ");
    }
    let arguments = program.arguments(run);
    // Lines of the table begin with the size.
    let size = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    let table = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).skip(1);
    let sizes: Vec<_> = table.map_while(size).collect();
    let most = match arguments.contains(&"UD") {
        true => 4096,
        false => 8 << 20,
    };
    match arguments.contains(&"-a") {
        true => sizes.last() == Some(&most),
        false => sizes.len() == 1,
    }
}
