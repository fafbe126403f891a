//! The tools that a chore needs beyond the toolchain: found, or installed where that is allowed.
//!
//! Tools built from crates are kept outside the workspace, in `mkey-xtask` of the user's cache
//! folder, one folder per version: a fresh clone finds them again, and a tool that the user has
//! installed in another version is left alone.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::run;
use crate::workspace::Workspace;

/// A tool that is built from a crate, always in the same version.
pub struct CargoTool {
    name: &'static str,
    version: &'static str,
    /// What it is asked for its version by.
    ask: &'static [&'static str],
}

pub const DENY: CargoTool =
    CargoTool { name: "cargo-deny", version: "0.20.2", ask: &["--version"] };
pub const MUTANTS: CargoTool =
    CargoTool { name: "cargo-mutants", version: "27.1.0", ask: &["mutants", "--version"] };
pub const ZIGBUILD: CargoTool =
    CargoTool { name: "cargo-zigbuild", version: "0.24.1", ask: &["--version"] };

/// Whether cargo-nextest is there, which is not installed: `cargo test` runs the same tests.
pub fn has_nextest(workspace: &Workspace) -> Result<bool> {
    let asked = run::silent(workspace.cargo().args(["nextest", "--version"]))?;
    Ok(asked.status.success())
}

impl CargoTool {
    /// The tool's program: the one on the path if it has this version, else the kept one, else
    /// one that is built now.
    pub fn get(&self, workspace: &Workspace) -> Result<PathBuf> {
        let on_path = PathBuf::from(self.name);
        if self.is(&on_path) {
            return Ok(on_path);
        }
        let folder = kept(workspace).join(format!("{}-{}", self.name, self.version));
        let program = folder.join("bin").join(self.name);
        if !self.is(&program) {
            announced(&format!("building {} {}", self.name, self.version), || {
                fs::create_dir_all(&folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                succeed(self.install(workspace.cargo().current_dir(&folder)))
            })?;
            ensure!(self.is(&program), "{} does not run once built", program.display());
        }
        Ok(program)
    }

    /// An unoptimized build: it takes a fraction of the time, and these tools mostly
    /// wait for cargo.
    fn install<'a>(&self, cargo: &'a mut Command) -> &'a mut Command {
        cargo
            .args(["install", "--quiet", "--locked", "--debug", "--root", "."])
            .args([self.name, "--version", self.version])
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUSTFLAGS")
    }

    /// Whether `program` is there, in this version.
    fn is(&self, program: &Path) -> bool {
        let ended = run::silent(Command::new(program).args(self.ask));
        ended.is_ok_and(|ended| ended.status.success() && self.is_named_by(&ended.text))
    }

    fn is_named_by(&self, text: &str) -> bool {
        let mut words = text.split_whitespace();
        words.next() == Some(self.name) && words.next() == Some(self.version)
    }
}

/// valgrind: Debian's package, of the system or unpacked into the target folder.
pub struct Valgrind {
    program: PathBuf,
    /// Where an unpacked one has its tools.
    library: Option<PathBuf>,
}

impl Valgrind {
    /// The system's valgrind; else the package, installed if this is root, else unpacked.
    pub fn get(workspace: &Workspace) -> Result<Self> {
        let system = Self { program: "valgrind".into(), library: None };
        if system.runs() {
            return Ok(system);
        }
        let folder = workspace.target().join("tools/valgrind");
        let unpacked = Self {
            program: folder.join("usr/bin/valgrind"),
            library: Some(folder.join("usr/libexec/valgrind")),
        };
        if unpacked.runs() {
            return Ok(unpacked);
        }
        let root = run::silent(Command::new("id").arg("-u"))?.text.trim() == "0";
        let found = if root {
            announced("installing valgrind", install_valgrind)?;
            system
        } else {
            announced("unpacking valgrind", || unpack_valgrind(&folder))?;
            unpacked
        };
        ensure!(found.runs(), "{} does not run once installed", found.program.display());
        Ok(found)
    }

    /// A valgrind command whose environment is empty, so that counts do not depend on it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("LC_ALL", "C");
        command.env("PATH", env::var_os("PATH").unwrap_or_default());
        if let Some(library) = &self.library {
            command.env("VALGRIND_LIB", library);
        }
        command
    }

    fn runs(&self) -> bool {
        let ended = run::silent(self.command().args(["--tool=none", "--quiet", "true"]));
        ended.is_ok_and(|ended| ended.status.success())
    }
}

fn install_valgrind() -> Result<()> {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
        command
    };
    succeed(apt().arg("update"))?;
    succeed(apt().args(["install", "--yes", "--no-install-recommends", "valgrind"]))
}

/// apt keeps its lists and its cache in `folder`, since the system's are root's.
fn unpack_valgrind(folder: &Path) -> Result<()> {
    let apt_folder = folder.join("apt");
    for sub in ["lists/partial", "archives/partial"] {
        let sub = apt_folder.join(sub);
        fs::create_dir_all(&sub).with_context(|| format!("cannot make {}", sub.display()))?;
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        command.current_dir(&apt_folder).arg("--quiet=2");
        command.arg("-o").arg(format!("Dir::State::lists={}/lists", apt_folder.display()));
        command.arg("-o").arg(format!("Dir::Cache={}", apt_folder.display()));
        command
    };
    succeed(apt().arg("update"))?;
    succeed(apt().args(["download", "valgrind"]))?;
    let package = fs::read_dir(&apt_folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .context("apt-get downloaded no package")?;
    succeed(Command::new("dpkg").arg("--extract").arg(package).arg(folder))
}

/// The folder that tools and kernels are kept in.
pub fn kept(workspace: &Workspace) -> PathBuf {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let kept = cache.map(|cache| cache.join("mkey-xtask"));
    kept.filter(|kept| fs::create_dir_all(kept).is_ok())
        .unwrap_or_else(|| workspace.target().join("tools"))
}

/// Says what is being done, does it, and says how long it took.
pub fn announced(what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("{what} ...");
    let begun = Instant::now();
    work().with_context(|| format!("{what} failed"))?;
    println!("{what} took {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Runs `command` in silence; a failure is an error with what it said.
pub fn succeed(command: &mut Command) -> Result<()> {
    let ended = run::silent(command)?;
    ensure!(ended.status.success(), "`{}`: {}", run::line(command), ended.text.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_only_taken_in_its_version() {
        assert!(DENY.is_named_by("cargo-deny 0.20.2\n"));
        assert!(!DENY.is_named_by("cargo-deny 0.20.3\n"));
        assert!(!DENY.is_named_by("cargo-mutants 0.20.2\n"));
        assert!(!DENY.is_named_by(""));
    }

    #[test]
    fn a_tool_is_installed_locked_in_its_version() {
        let shown = run::line(MUTANTS.install(&mut Command::new("cargo")));
        assert!(shown.contains("--locked") && shown.ends_with("cargo-mutants --version 27.1.0"));
    }

    #[test]
    fn what_failed_is_named_with_what_it_said() {
        let error = announced("making tea", || {
            succeed(Command::new("sh").args(["-c", "echo no water >&2; exit 1"]))
        });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.starts_with("making tea failed: `sh"), "{error}");
        assert!(error.ends_with("no water"), "{error}");
    }
}
