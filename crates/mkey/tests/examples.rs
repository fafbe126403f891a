//! The examples run, and end with what they are to show.
//!
//! They are compiled into this test, so that none is missing or old however it is built, and each
//! runs in a process of its own: this program, called with the example's name.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode};

#[path = "../examples/async_echo.rs"]
mod async_echo;
#[path = "../examples/kv_blocks.rs"]
mod kv_blocks;
#[path = "../examples/parameter_push.rs"]
mod parameter_push;
#[path = "../examples/storage_target.rs"]
mod storage_target;

struct Example {
    name: &'static str,
    main: fn() -> anyhow::Result<()>,
    /// What the last lines contain, in this order.
    ends: &'static [&'static str],
}

const EXAMPLES: &[Example] = &[
    Example {
        name: "storage_target",
        main: storage_target::main,
        ends: &[
            "late read: remote access error: RDMA READ of 4096 bytes",
            "target: 2 requests, 2 grants, 0 live, 0 registrations meanwhile",
        ],
    },
    Example {
        name: "kv_blocks",
        main: kv_blocks::main,
        ends: &["24 blocks of 64 KiB moved by 1 RDMA READ of 1572864 bytes, 0 registrations"],
    },
    Example {
        name: "parameter_push",
        main: parameter_push::main,
        ends: &["40 pushes: 4 registrations, 36 found, 0 left"],
    },
    Example {
        name: "async_echo",
        main: async_echo::main,
        ends: &["4 clients had 100 answers each", "reply buffers: at most 2 at a time"],
    },
];

/// Which example this process is to be.
const VARIABLE: &str = "MKEY_EXAMPLE";

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(VARIABLE) {
        let Some(example) = EXAMPLES.iter().find(|example| name == example.name) else {
            eprintln!("no example {}", name.display());
            return ExitCode::FAILURE;
        };
        return match (example.main)() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let trials = EXAMPLES.iter().map(|example| Trial::test(example.name, || run(example)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn run(example: &Example) -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?).env(VARIABLE, example.name).output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let all = format!("{}, and printed:\n{out}{err}", output.status);
    if !output.status.success() || !err.is_empty() {
        return Err(format!("the example ended with {all}").into());
    }
    let lines: Vec<&str> = out.lines().collect();
    let last = lines.get(lines.len().saturating_sub(example.ends.len())..).unwrap_or_default();
    if last.len() != example.ends.len() {
        return Err(format!("too few lines: {all}").into());
    }
    match last.iter().zip(example.ends).find(|(line, end)| !line.contains(**end)) {
        None => Ok(()),
        Some((line, end)) => Err(format!("{end:?} expected in {line:?}: {all}").into()),
    }
}
