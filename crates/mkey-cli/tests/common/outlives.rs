//! A server and its clients, of which most are killed in the middle of a transfer.
#![allow(dead_code)] // Each test target uses part of it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The program, in C.
pub const PROGRAM: &str = include_str!("../c/mourner.c");
/// What ends a queue pair whose peer is gone: `IBV_WC_RETRY_EXC_ERR`.
const RETRY_EXCEEDED: u32 = 12;
/// Of the queue pair: 4.096 us * 2^12 = 16.8 ms, 8 times.
const TIMEOUT: u32 = 12;
const TIMES: u32 = 8;
/// Besides, others use the processors.
const BUSY: Duration = Duration::from_secs(2);
/// Every so many clients one is let live.
const SPARED: u32 = 10;
/// WRITEs of 64 KiB for those.
const ENOUGH: &str = "200";

/// Kills so many clients, each at another moment. `side` makes the command of the server, 0, or of a
/// client, 1, from its arguments, and `host` is where a client finds the server.
///
/// # Panics
/// If the server is not told in time, told something else, or does not serve the next client.
pub fn kills(kills: u32, side: &dyn Fn(usize, &[&str]) -> Command, host: &str, port: u16) {
    let port = port.to_string();
    let client = |arguments: &[&str]| side(1, &[&[host, &port], arguments].concat());
    let spared = kills / SPARED + 1;
    let clients = (kills + spared).to_string();
    let timeout = TIMEOUT.to_string();
    let mut running = Running::start(&mut side(0, &["listen", &port, &clients, &timeout]));
    running.says("listening");
    let within = Duration::from_nanos(4096 << TIMEOUT) * TIMES + BUSY;
    let mut dice = fastrand::Rng::with_seed(7);
    for round in 0..kills {
        if round % SPARED == 0 {
            running.serves(&mut client(&[ENOUGH]));
        }
        let mut killed = client(&[]).spawn().unwrap();
        running.says("moving");
        // Any moment of a transfer is as good as any other.
        thread::sleep(Duration::from_micros(dice.u64(0..5000)));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let line = running.line();
        let (status, late) = line.split_once(' ').unwrap_or_else(|| panic!("{round}: {line}"));
        assert_eq!(status.parse(), Ok(RETRY_EXCEEDED), "{round}: {line}");
        let late = Duration::from_micros(late.parse().unwrap());
        assert!(late < within, "{round}: the server was told after {late:?}, not {within:?}");
    }
    running.serves(&mut client(&[ENOUGH]));
    running.ends();
}

struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    since: Instant,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, since: Instant::now() }
    }

    fn line(&mut self) -> String {
        let line = self.lines.next();
        line.unwrap_or_else(|| panic!("the server ended after {:?}", self.since.elapsed())).unwrap()
    }

    fn says(&mut self, words: &str) {
        assert_eq!(self.line(), words);
    }

    fn serves(&mut self, client: &mut Command) {
        let mut client = client.spawn().unwrap();
        self.says("moving");
        self.says("served");
        assert!(client.wait().unwrap().success());
    }

    fn ends(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or its test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
