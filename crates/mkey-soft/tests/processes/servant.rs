//! The other process: does what it is told, a line each, and is passive otherwise.

use crate::end::{Address, End, Setting, device};
use mkey_core::queue_pair::QpKind;
use mkey_core::work::{Completion, SendOp};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

pub const ROLE: &str = "the-other-process";

pub fn kind_of(word: &str) -> QpKind {
    match word {
        "rc" => QpKind::Rc,
        "uc" => QpKind::Uc,
        _ => QpKind::Ud,
    }
}

fn in_words(done: &Completion) -> String {
    format!("{} {:?} {} {:?}", done.wr_id, done.status, done.byte_len, done.imm)
}

/// Processor time of this process, in microseconds.
fn processor_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// The program of the other process.
pub fn serve() -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let mut next = || arguments.next().expect("kind of queue pair, link, address");
    let kind = kind_of(&next());
    let mut end = End::new(&device(&next(), &next()), kind);
    println!("{}", end.address().to_line());
    let mut taken = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let rest: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let word = |at: usize| rest.get(at).copied().expect("a number");
        let answer = match verb {
            "connect" => {
                let (_, address) = line.split_once(' ').expect("an address");
                end.connect(Address::of_line(address));
                "connected".to_owned()
            }
            "reset" => {
                end.reset();
                "reset".to_owned()
            }
            "receive" => {
                end.receive(word(0), word(1), word(2) as u32);
                "posted".to_owned()
            }
            "next" => in_words(&end.next()),
            "last" => {
                let done = end.next();
                end.reset();
                in_words(&done)
            }
            "echo" => {
                end.receive(1, 0, 10);
                println!("ready");
                for _ in 0..word(0) {
                    while end.next().wr_id != 1 {}
                    end.receive(1, 0, 10);
                    end.post(2, SendOp::Send, &[end.memory.sge(0, 10)]);
                }
                "echoed".to_owned()
            }
            "poll" => end.poll().map_or("nothing".to_owned(), |done| in_words(&done)),
            "fill" => {
                end.fill(word(0) as usize, word(1) as usize, word(2));
                "filled".to_owned()
            }
            "holds" => end.holds(word(0) as usize, word(1) as usize, word(2)).to_string(),
            "byte" => end.memory.get(word(0) as usize).to_string(),
            "state" => end.state().to_string(),
            "events" => format!("{:?}", end.events()),
            // Takes all descriptors that it can have, or lets go of them.
            "descriptors" => {
                let before = taken.len();
                match word(0) {
                    0 => taken.clear(),
                    _ => taken.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok())),
                }
                before.abs_diff(taken.len()).to_string()
            }
            "time" => processor_time().to_string(),
            "write" => {
                let sges = [end.memory.sge(word(0), word(1) as u32)];
                format!("{:?}", end.run(SendOp::Write(end.remote(word(0))), &sges).status)
            }
            // For ever: until it is killed.
            "storm" => {
                println!("storming");
                loop {
                    let sges = [end.memory.sge(0, word(0) as u32)];
                    let done = end.run(SendOp::Write(end.remote(0)), &sges);
                    if done.status != mkey_core::status::WcStatus::Success {
                        return ExitCode::FAILURE;
                    }
                }
            }
            other => panic!("told to {other}"),
        };
        println!("{answer}");
    }
    ExitCode::SUCCESS
}

/// The other process, as the test sees it; killed when it is dropped.
pub struct Servant {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    pub address: Address,
}

impl Servant {
    pub fn start(setting: &Setting, kind: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([ROLE, kind, setting.name, setting.other])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = process.stdin.take().unwrap();
        let mut from = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        Self { process, to, from, address: Address::of_line(&line) }
    }

    /// A servant, connected with an end of this process.
    pub fn connected(setting: &Setting, kind: &str) -> (End, Self) {
        let mut end = End::new(&setting.device(), kind_of(kind));
        let mut servant = Self::start(setting, kind);
        servant.connect(&mut end);
        (end, servant)
    }

    pub fn connect(&mut self, end: &mut End) {
        let told = self.tell(&format!("connect {}", end.address().to_line()));
        assert_eq!(told, "connected");
        end.connect(self.address);
    }

    /// Says something without waiting for the answer.
    pub fn say(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    pub fn answer(&mut self) -> String {
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub fn tell(&mut self, line: &str) -> String {
        self.say(line);
        self.answer()
    }

    /// Sends a message of `length` bytes from `offset` on, which a receive of number 4 waits for, over
    /// a transport that may lose it: until it arrives. What has arrived.
    pub fn hear_from(&mut self, end: &End, offset: u64, length: u32) -> String {
        for _ in 0..200 {
            end.succeeds(SendOp::Send, &[end.memory.sge(offset, length)]);
            for _ in 0..10 {
                match self.tell("poll").as_str() {
                    "nothing" => std::thread::sleep(Duration::from_millis(1)),
                    heard => return heard.to_owned(),
                }
            }
        }
        panic!("nothing arrives");
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is ours and was not waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Stops it; when this returns, it has.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: as above; the place is there.
        let pid = unsafe { libc::waitpid(self.process.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(pid > 0 && libc::WIFSTOPPED(status));
    }

    pub fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
