//! Building for an old C library: cargo-zigbuild links with zig, which brings the symbols of every
//! version of glibc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::run;
use crate::tools::{self, ZIGBUILD, announced, succeed};
use crate::workspace::Workspace;

/// The oldest C library that the packages run with, major and minor version: that of Debian 10 and of
/// RHEL 8.
pub const GLIBC: (u32, u32) = (2, 28);
/// Cargo's name of the target.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";
/// zig's version, as its Python package has it.
const ZIG: &str = "0.17.1";

/// What it takes to build.
pub struct Tools {
    zigbuild: PathBuf,
    /// Where the Python package is.
    zig: PathBuf,
}

/// What was built.
pub struct Binaries {
    pub program: PathBuf,
    /// What `mkey run` and `mkey trace` preload.
    pub library: PathBuf,
    /// What `mkey trace` preloads besides.
    pub watch: PathBuf,
}

impl Binaries {
    /// All of them.
    pub fn all(&self) -> [&Path; 3] {
        [&self.program, &self.library, &self.watch]
    }
}

/// The packages that they are built of.
pub const PACKAGES: [&str; 3] = ["mkey-cli", "mkey-preload", "mkey-watch"];

impl Tools {
    /// The tools, installed where they are missing.
    pub fn get(workspace: &Workspace) -> Result<Self> {
        Ok(Self { zigbuild: ZIGBUILD.get(workspace)?, zig: zig(workspace)? })
    }

    /// A file of zig's own.
    pub fn of_zig(&self, name: &str) -> PathBuf {
        self.zig.join(name)
    }

    /// Builds what is packed.
    pub fn build(&self, workspace: &Workspace) -> Result<Binaries> {
        let mut command = Command::new(&self.zigbuild);
        command.current_dir(workspace.root()).arg("zigbuild");
        command.args(["--locked", "--quiet", "--profile", "packaged"]);
        command.args(PACKAGES.map(|package| format!("--package={package}")));
        command.arg("--target");
        command.arg(format!("{TARGET}.{}.{}", GLIBC.0, GLIBC.1));
        command.env("CARGO_ZIGBUILD_ZIG_PATH", self.zig.join("zig"));
        command.env("CARGO_TARGET_DIR", workspace.target());
        succeed(&mut command)?;
        let folder = workspace.target().join(TARGET).join("packaged");
        let binaries = Binaries {
            program: folder.join("mkey"),
            library: folder.join("libmkey_preload.so"),
            watch: folder.join("libmkey_watch.so"),
        };
        for path in binaries.all() {
            ensure!(path.is_file(), "{} was not built", path.display());
        }
        Ok(binaries)
    }
}

/// The folder of zig's Python package: kept, or installed now.
fn zig(workspace: &Workspace) -> Result<PathBuf> {
    let folder = tools::kept(workspace).join(format!("ziglang-{ZIG}"));
    let package = folder.join("ziglang");
    if runs(&package) {
        return Ok(package);
    }
    if !has_pip() {
        packages::get(&[packages::PIP])?;
    }
    announced(&format!("installing zig {ZIG}"), || install(&folder))?;
    ensure!(runs(&package), "{} does not run once installed", package.join("zig").display());
    Ok(package)
}

fn runs(package: &Path) -> bool {
    let ended = run::silent(Command::new(package.join("zig")).arg("version"));
    ended.is_ok_and(|ended| ended.status.success() && ended.text.trim() == ZIG)
}

fn has_pip() -> bool {
    let ended = run::silent(Command::new("python3").args(["-m", "pip", "--version"]));
    ended.is_ok_and(|ended| ended.status.success())
}

/// Into a folder beside, which then takes the place: a download that broke off is never found.
fn install(folder: &Path) -> Result<()> {
    let Some(parent) = folder.parent() else { bail!("{} has no folder", folder.display()) };
    let fresh = tempfile::tempdir_in(parent).context("cannot make a folder")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--target"]).arg(fresh.path());
    pip.arg(format!("ziglang=={ZIG}"));
    succeed(&mut pip)?;
    // A broken one may be there.
    let _ = fs::remove_dir_all(folder);
    fs::rename(fresh.keep(), folder).with_context(|| format!("cannot make {}", folder.display()))
}
