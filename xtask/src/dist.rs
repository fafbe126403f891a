//! `cargo xtask dist`: what is handed to users, a tarball and a Debian package.
//!
//! Both hold the same files ([`files`]): `mkey`, the libraries that `mkey run` and `mkey trace` preload, the
//! manual, completions, documents, and the licences of all that is linked in ([`licences`]). The binaries
//! are linked for an old C library ([`zig`]), so that they run on distributions older than this one.

mod archive;
mod deb;
mod elf;
mod files;
mod licences;
mod part;
mod zig;

pub use part::part;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::exit::Exit;
use crate::run;
use crate::tools::announced;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask dist

Writes target/dist/mkey-VERSION-x86_64-linux.tar.gz and target/dist/mkey_VERSION_amd64.deb. The
tools that it needs, cargo-zigbuild and zig, are installed for it alone where they are missing. The
same sources make the same packages: files are dated by SOURCE_DATE_EPOCH, else by the commit.")]
pub struct Args {}

/// `cargo xtask dist`.
pub fn run(workspace: &Workspace, _: &Args) -> Result<Exit> {
    let made = make(workspace)?;
    for path in [&made.tarball, &made.deb] {
        let size = fs::metadata(path).with_context(|| path.display().to_string())?.len();
        println!("{} ({:.1} MB)", path.display(), size as f64 / 1e6);
    }
    Ok(Exit::Well)
}

/// The packages, once made.
struct Made {
    tarball: PathBuf,
    /// The folder that the tarball unpacks into.
    folder: String,
    deb: PathBuf,
    version: String,
    binaries: zig::Binaries,
}

fn make(workspace: &Workspace) -> Result<Made> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "packages are made on x86-64, since `mkey` itself prints its manual"
    );
    let tools = zig::Tools::get(workspace)?;
    let mut built = None;
    announced(&format!("building for glibc {}.{}", zig::GLIBC.0, zig::GLIBC.1), || {
        built = Some(tools.build(workspace)?);
        Ok(())
    })?;
    let binaries = built.context("nothing was built")?;
    let version = version(&binaries)?;
    let time = time(workspace)?;
    let files = files::files(workspace, &tools, &binaries)?;
    let out = workspace.target().join("dist");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let folder = format!("mkey-{version}-x86_64-linux");
    let write = |name: String, bytes: Vec<u8>| -> Result<PathBuf> {
        let path = out.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    let tarball = archive::tar_gz(&format!("{folder}/"), &files, time)?;
    let deb = deb::deb(&version, &files, time)?;
    Ok(Made {
        tarball: write(format!("{folder}.tar.gz"), tarball)?,
        deb: write(format!("mkey_{version}_amd64.deb"), deb)?,
        folder,
        version,
        binaries,
    })
}

/// As the program itself says it.
fn version(binaries: &zig::Binaries) -> Result<String> {
    let said = run::silent(std::process::Command::new(&binaries.program).arg("--version"))?.text;
    let version = said.trim().strip_prefix("mkey ").context("`mkey --version` names no version")?;
    Ok(version.to_owned())
}

/// Seconds since 1970: what the files in the packages are dated.
fn time(workspace: &Workspace) -> Result<u64> {
    if let Ok(told) = std::env::var("SOURCE_DATE_EPOCH") {
        return told.parse().with_context(|| format!("SOURCE_DATE_EPOCH={told}"));
    }
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace.root()).args(["log", "-1", "--format=%ct"]);
    // Sources without their history have no date of their own.
    let said = run::silent(&mut git).ok().filter(|ended| ended.status.success());
    Ok(said.and_then(|ended| ended.text.trim().parse().ok()).unwrap_or_default())
}
