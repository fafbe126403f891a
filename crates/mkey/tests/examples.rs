//! The examples run, and end with what they are to show.
//!
//! They are compiled into this test, so that none is missing or old however it is built, and each
//! runs in a process of its own: this program, called with the example's name.

use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode};

// Its runtime is not there under loom.
#[cfg(not(loom))]
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
    #[cfg(not(loom))]
    Example {
        name: "async_echo",
        main: async_echo::main,
        ends: &["400 messages of 4 clients came back", "2 reply buffers at most"],
    },
];

const GUIDES: &[(&str, &str)] = &[
    ("guide.md", include_str!("../../../docs/guide.md")),
    ("guide.zh.md", include_str!("../../../docs/guide.zh.md")),
];

/// Which example this process is to be.
const VARIABLE: &str = "MKEY_EXAMPLE";
/// On which device it is to run.
const DEVICE: &str = "MKEY_DEVICE";
/// The device of the guests.
const REAL: &str = "rxe0";

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
    let examples = EXAMPLES.iter().map(|example| Trial::test(example.name, || run(example, None)));
    // These need a kernel's RDMA device: cargo xtask test --only vm
    let real = EXAMPLES.iter().map(|example| {
        Trial::test(format!("{REAL}::{}", example.name), || run(example, Some(REAL)))
            .with_ignored_flag(true)
    });
    let tutorials = GUIDES.iter().map(|(name, text)| Trial::test(*name, || tutorial(text)));
    let readme = [Trial::test("README.md", readme)];
    let all = examples.chain(real).chain(tutorials).chain(readme).collect();
    libtest_mimic::run(&Arguments::from_args(), all).exit_code()
}

/// The code of the README has been compiled, as part of the crate's own documentation.
fn readme() -> Result<(), Failed> {
    let text = include_str!("../../../README.md");
    let (_, from) = text.split_once("```rust\n").ok_or("no code")?;
    let (code, _) = from.split_once("```\n").ok_or("a code block without end")?;
    let mut documented =
        include_str!("../src/lib.rs").lines().map(|line| line.strip_prefix("//! "));
    let mut lines = code.lines().filter(|line| !line.is_empty());
    match lines.find(|line| !documented.any(|documented| documented == Some(line))) {
        None => Ok(()),
        Some(line) => Err(format!("{line:?} is not in lib.rs, or not in this order").into()),
    }
}

/// The code of the tutorial, put together as it says, is the example: what it tells to write has
/// been compiled and has run.
fn tutorial(guide: &str) -> Result<(), Failed> {
    let mut blocks = Vec::new();
    let mut rest = guide;
    while let Some((_, from)) = rest.split_once("```rust,ignore\n") {
        let (block, after) = from.split_once("```\n").ok_or("a code block without end")?;
        blocks.push(block);
        rest = after;
    }
    let code = blocks.join("\n");
    let example = include_str!("../examples/storage_target.rs");
    let example = example.split_once("\n\n").ok_or("no code")?.1;
    if code == example {
        return Ok(());
    }
    let mut lines = code.lines().zip(example.lines());
    let (told, is) = lines.find(|(told, is)| told != is).unwrap_or(("its end", "its end"));
    Err(format!("the guide has {told:?} where storage_target.rs has {is:?}").into())
}

fn run(example: &Example, device: Option<&str>) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, example.name).env_remove(DEVICE);
    if let Some(device) = device {
        command.env(DEVICE, device);
    }
    let output = command.output()?;
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
    // Why a request was refused is told by the software RNIC alone.
    let told = |end: &'static str| match (device, end.split_once(": RDMA ")) {
        (Some(_), Some((status, _))) => status,
        _ => end,
    };
    let ends = example.ends.iter().map(|end| told(end));
    match last.iter().zip(ends).find(|(line, end)| !line.contains(end)) {
        None => Ok(()),
        Some((line, end)) => Err(format!("{end:?} expected in {line:?}: {all}").into()),
    }
}
