//! The Debian packages whose programs and files the tests use: what this machine lacks, and its
//! installation.
//!
//! What is there is seen from the files, not from a package database: a machine that has them by
//! other means lacks nothing.

use std::borrow::Cow;
use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::exit::Exit;
use crate::part::Unavailable;
use crate::run;
use crate::tools::{announced, succeed};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask setup           installs what is missing, where this is root
  cargo xtask setup --list    what is missing

The parts of `cargo xtask test` install what they need themselves; this does it at once. Exit
status: 0 nothing is missing (any more), 3 something is and cannot be installed here.")]
pub struct Args {
    /// Only say what is missing
    #[arg(long)]
    list: bool,
}

/// A package, and a file of it that shows that it is there.
pub struct Package {
    name: Cow<'static, str>,
    /// A program if it is a plain name, else a path.
    shown_by: Cow<'static, str>,
}

const fn package(name: &'static str, shown_by: &'static str) -> Package {
    Package { name: Cow::Borrowed(name), shown_by: Cow::Borrowed(shown_by) }
}

/// What runs the guests.
pub const HYPERVISOR: &[Package] = &[
    package("qemu-system-x86", "qemu-system-x86_64"),
    package("busybox-static", "busybox"),
    package("kmod", "depmod"),
    package("xz-utils", "xz"),
    package("zstd", "zstd"),
];

/// What runs inside the guests, from this machine's `/usr`.
pub const RDMA: &[Package] = &[
    package("iproute2", "rdma"),
    package("ibverbs-providers", "/usr/lib/x86_64-linux-gnu/libibverbs"),
    package("ibverbs-utils", "ibv_devinfo"),
    package("perftest", "ib_write_bw"),
];

/// What the checks of the binary interface compile against.
pub const HEADERS: &[Package] = &[
    package("gcc", "cc"),
    package("libc6-dev", "/usr/include/stdio.h"),
    package("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
];

/// Programs that are run on software RNICs, and rdma-core's own tests.
pub const PROGRAMS: &[Package] = &[
    package("ibverbs-utils", "ibv_devinfo"),
    package("perftest", "ib_write_bw"),
    package("rdma-core", "/usr/share/doc/rdma-core/tests/run_tests.py"),
    package("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs/__init__.py"),
    package("ucx-utils", "ucx_perftest"),
];

/// What the crates need to be built whose examples are run on software RNICs.
pub const CRATES: &[Package] = &[
    package("libclang-dev", "/usr/share/doc/libclang-dev"),
    package("cmake", "cmake"),
    package("pkg-config", "pkg-config"),
];

/// What reads the captures that the tests write.
pub const CAPTURES: &[Package] = &[package("tshark", "tshark")];

/// What drives the dashboard, and what reads its OpenMetrics.
pub const MONITOR: &[Package] = &[
    package("tmux", "tmux"),
    package(
        "python3-prometheus-client",
        "/usr/lib/python3/dist-packages/prometheus_client/__init__.py",
    ),
];
/// What brings zig.
pub const PIP: &[Package] = &[package("python3-pip", "/usr/lib/python3/dist-packages/pip")];

/// What reads the compiler's counts of the lines that were run: LLVM's tools of this major version.
pub fn llvm(major: u32) -> [Package; 1] {
    let (name, shown_by) = (format!("llvm-{major}").into(), format!("llvm-cov-{major}").into());
    [Package { name, shown_by }]
}

/// The major version of the compiler's LLVM.
pub fn llvm_major() -> Result<u32> {
    let ended = run::silent(Command::new("rustc").arg("-vV"))?;
    major_in(&ended.text).with_context(|| format!("rustc names no LLVM: {}", ended.text))
}

fn major_in(versions: &str) -> Option<u32> {
    let version = versions.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    version.split('.').next()?.parse().ok()
}

/// `cargo xtask setup`.
pub fn run(args: &Args) -> Result<Exit> {
    let llvm = llvm(llvm_major()?);
    let groups: [&[Package]; 7] = [HYPERVISOR, RDMA, HEADERS, PROGRAMS, CRATES, CAPTURES, MONITOR];
    let all = [&groups[..], &[&llvm]].concat();
    let lacking = lacking(&all);
    if args.list || lacking.is_empty() {
        println!(
            "missing: {}",
            if lacking.is_empty() { "nothing".into() } else { lacking.join(" ") }
        );
        return Ok(Exit::of(false, !lacking.is_empty(), false));
    }
    // apt installs all that it is asked for or nothing, and not every release has this LLVM.
    let mut exit = Exit::Well;
    for groups in [&groups[..], &[&llvm]] {
        match get(groups) {
            Ok(()) => {}
            Err(error) if error.is::<Unavailable>() => {
                println!("{error:#}");
                exit = Exit::Skipped;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(exit)
}

/// Sees to it that the packages of `groups` are here. What is missing is installed where this is
/// root and apt can; else the error is [`Unavailable`].
pub fn get(groups: &[&[Package]]) -> Result<()> {
    let before = lacking(groups);
    if before.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install --no-install-recommends {}", before.join(" "));
    let unavailable = |why: String| Unavailable(format!("{why}; to install it: {command}"));
    if !run::silent(Command::new("id").arg("-u")).is_ok_and(|ended| ended.text.trim() == "0") {
        bail!(unavailable(format!(
            "missing here, and only root can install it: {}",
            before.join(" ")
        )));
    }
    if let Err(error) = announced(&format!("installing {}", before.join(" ")), || install(&before))
    {
        // The first reason will do: the others are the same for the other packages.
        let error = format!("{error:#}");
        bail!(unavailable(error.lines().next().unwrap_or_default().into()));
    }
    let after = lacking(groups);
    if !after.is_empty() {
        bail!(unavailable(format!("still missing once installed: {}", after.join(" "))));
    }
    Ok(())
}

fn install(packages: &[String]) -> Result<()> {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
        command.args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]);
        // Another process may be installing, too.
        command.args(["-o", "DPkg::Lock::Timeout=300"]);
        command
    };
    succeed(apt().arg("update"))?;
    succeed(apt().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

fn lacking(groups: &[&[Package]]) -> Vec<String> {
    let packages = groups.iter().copied().flatten();
    packages.filter(|package| !package.is_here()).map(|package| package.name.to_string()).collect()
}

impl Package {
    fn is_here(&self) -> bool {
        if self.shown_by.contains('/') {
            return Path::new(&*self.shown_by).exists();
        }
        let path = env::var_os("PATH").unwrap_or_default();
        // Where root's programs are, which others may not have on their path.
        let root = ["/usr/sbin".into(), "/sbin".into()];
        env::split_paths(&path).chain(root).any(|folder| folder.join(&*self.shown_by).is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named_by_its_package() {
        let here: &[Package] = &[package("dash", "sh"), package("base-files", "/etc")];
        let absent: &[Package] = &[package("a", "no-such-program"), package("b", "/nowhere/file")];
        assert_eq!(lacking(&[here, absent, here]), ["a", "b"]);
        assert!(get(&[here]).is_ok());
    }

    #[test]
    fn llvm_is_that_of_the_compiler() {
        assert_eq!(major_in("rustc 1.95.0\nrelease: 1.95.0\nLLVM version: 22.1.2\n"), Some(22));
        assert_eq!(major_in("rustc 1.95.0\n"), None);
        assert!(llvm_major().unwrap() >= 18);
        let [package] = llvm(22);
        assert_eq!((&*package.name, &*package.shown_by), ("llvm-22", "llvm-cov-22"));
    }
}
