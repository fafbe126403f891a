//! Rust programs: the examples of crates that give the verbs to Rust, as their authors publish them.

use crate::common::skipped;
use crate::pair::{self, Side};
use crate::traced::{is_reported, mkey_trace};
use crate::{ended, mkey_run, page};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A crate, the version that is run, and its examples.
struct Crate {
    name: &'static str,
    version: &'static str,
    examples: &'static [&'static str],
}

const SIDEWAY: Crate =
    Crate { name: "sideway", version: "0.4.3", examples: &["rc_pingpong", "rc_pingpong_split"] };
const IBVERBS: Crate = Crate { name: "ibverbs", version: "0.9.2", examples: &["loopback"] };

impl Crate {
    /// The folder of its examples, which are built if they are not there yet; `None` if they can not be,
    /// which is noted.
    fn examples(&self, test: &str) -> Option<PathBuf> {
        let root = format!("{}-{}", self.name, self.version);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(root);
        let folder = root.join("bin");
        if self.examples.iter().all(|example| folder.join(example).is_file()) {
            return Some(folder);
        }
        fs::create_dir_all(&root).unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["install", "--debug", "--force", "--root"]).arg(&root);
        cargo.args([self.name, "--version", self.version]);
        cargo.args(self.examples.iter().flat_map(|example| ["--example", example]));
        // Away from this workspace and how it is built.
        cargo.current_dir(&root).stdin(Stdio::null());
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
        let output = cargo.output().unwrap();
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words: Vec<_> = words.lines().rev().take(20).collect();
            let words: Vec<_> = words.into_iter().rev().collect();
            skipped(test, &format!("{cargo:?}: {}", words.join(" / ")));
            return None;
        }
        Some(folder)
    }

    fn row(&self, example: &str) -> String {
        format!("| `{}` {} | `{example}` | works |\n", self.name, self.version)
    }
}

const HEAD: &str = "| crate | example | |\n|---|---|---|\n";

/// Two processes.
#[test]
fn sideway_ping_pong() {
    let Some(folder) = SIDEWAY.examples("sideway_ping_pong") else { return };
    let mut text = HEAD.to_owned();
    let reports_folder = tempfile::tempdir().unwrap();
    let reports = ["server", "client"].map(|side| reports_folder.path().join(side));
    for example in SIDEWAY.examples {
        for (options, is_traced) in [(&[][..], false), (&["-t"], false), (&[], true)] {
            let _turn = pair::turn();
            let until = Instant::now() + Duration::from_secs(60);
            let port = pair::free_port().to_string();
            let program = [folder.join(example)];
            let side = |host: Option<&str>| {
                let mut command = match is_traced {
                    true => mkey_trace(&reports[usize::from(host.is_some())], &program),
                    false => mkey_run(&[&["--only".into()], &program[..]].concat()),
                };
                command.args(["-p", &port]).args(options).args(host);
                Side::start(&mut command)
            };
            let server = side(None);
            assert!(
                server.listens(port.parse().unwrap(), until),
                "{:?}",
                server.ended(until).err()
            );
            for (name, side) in [("client", side(Some("127.0.0.1"))), ("server", server)] {
                let ended = side.ended(until).unwrap_or_else(|words| panic!("{name}: {words}"));
                let good = ended.well() && ended.stdout.contains("bytes in");
                assert!(good, "{example} {options:?}: {name}: {}", ended.words());
            }
            if is_traced {
                reports.iter().for_each(|report| is_reported(report));
            }
        }
        text.push_str(&SIDEWAY.row(example));
    }
    page::compare("sideway", &text);
}

/// A queue pair that is connected to itself.
#[test]
fn ibverbs_loopback() {
    let Some(folder) = IBVERBS.examples("ibverbs_loopback") else { return };
    let report_folder = tempfile::tempdir().unwrap();
    let report = report_folder.path().join("report");
    let program = [folder.join("loopback")];
    let run = mkey_run(&[&["--only".into()], &program[..]].concat());
    for mut command in [run, mkey_trace(&report, &program)] {
        let (code, stdout, stderr) = ended(&mut command);
        assert_eq!(code, 0, "{command:?}: {stdout}\n{stderr}");
        let mut lines: Vec<_> = stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["received", "sent"], "{command:?}: {stderr}");
    }
    is_reported(&report);
    page::compare("ibverbs", &format!("{HEAD}{}", IBVERBS.row("loopback")));
}
