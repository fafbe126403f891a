//! The licences of all that is linked in.
//!
//! The crates are those that cargo lists for the binaries, each with the texts that its package
//! has. The Rust standard library and what zig adds (its C start-up code, unwinder and runtime) bring
//! texts of their own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::zig::{PACKAGES, TARGET, Tools};
use crate::run;
use crate::workspace::Workspace;

/// The file that lists the crates with their licences.
pub const LIST: &str = "THIRD-PARTY.txt";
/// Licence files of a package begin with one of these.
const BEGIN: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// What zig adds, its licence among zig's files.
const OF_ZIG: &[(&str, &str)] = &[
    ("LLVM's libunwind", "lib/libunwind/LICENSE.TXT"),
    ("zig's compiler runtime", "LICENSE"),
    ("the parts of glibc that are linked into programs", "lib/libc/glibc/LICENSES"),
];

/// A crate that is linked in.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    licence: String,
}

/// The documents, by their names.
pub fn documents(workspace: &Workspace, tools: &Tools) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let sources = Sources::of(workspace)?;
    let mut list = String::from("Software by others that is linked into mkey.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for linked in linked(workspace)? {
        let folder = sources.folder(&linked)?;
        let of_it = texts_in(&folder)?;
        let name = format!("{} {}", linked.name, linked.version);
        ensure!(!of_it.is_empty(), "{name} has no licence file in {}", folder.display());
        writeln!(list, "{name}: {}", linked.licence)?;
        for text in of_it {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (name, path) in OF_ZIG {
        writeln!(list, "{name}: its text below")?;
        texts.entry(text(&tools.of_zig(path))?).or_default().push((*name).into());
    }
    writeln!(list, "the Rust standard library: MIT OR Apache-2.0, and what {STANDARD} says")?;
    for (text, names) in texts {
        let rule = "-".repeat(78);
        writeln!(list, "\n{rule}\n{}\n{rule}\n\n{}", names.join(", "), text.trim_end())?;
    }
    Ok(vec![(LIST, list.into_bytes()), (STANDARD, standard_library()?)])
}

/// The file of the Rust standard library's notices.
const STANDARD: &str = "rust-standard-library.html";

fn standard_library() -> Result<Vec<u8>> {
    let said = run::silent(Command::new("rustc").args(["--print", "sysroot"]))?;
    let path = Path::new(said.text.trim()).join("share/doc/rust/COPYRIGHT-library.html");
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The crates of others, as cargo lists them for this target; sorted.
fn linked(workspace: &Workspace) -> Result<Vec<Crate>> {
    let mut tree = workspace.cargo();
    tree.args(["tree", "--locked", "--quiet", "--target", TARGET, "--prefix", "none"]);
    tree.args(["--edges", "normal,no-proc-macro", "--format", "{p}|{l}"]);
    tree.args(PACKAGES.map(|package| format!("--package={package}")));
    let ended = run::silent(&mut tree)?;
    ensure!(ended.status.success(), "`{}`: {}", run::line(&tree), ended.text.trim_end());
    crates_in(&ended.text)
}

fn crates_in(tree: &str) -> Result<Vec<Crate>> {
    let mut crates = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let parsed = line.split_once('|').and_then(|(package, licence)| {
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            Some((name, version, words.next(), licence))
        });
        let Some((name, version, path, licence)) = parsed else {
            bail!("`cargo tree` printed what is no package: {line}")
        };
        // Those of the workspace are mkey itself.
        if path.is_some_and(|path| path.starts_with("(/")) {
            continue;
        }
        // A package that was shown before is marked.
        let licence = licence.trim_end_matches("(*)").trim_end();
        ensure!(!licence.is_empty(), "{name} {version} names no licence");
        crates.push(Crate { name: name.into(), version: version.into(), licence: licence.into() });
    }
    crates.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    crates.dedup();
    ensure!(!crates.is_empty(), "`cargo tree` listed no crate");
    Ok(crates)
}

/// Where the sources of packages are.
struct Sources {
    packages: Vec<Source>,
}

#[derive(Deserialize)]
struct Source {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

impl Sources {
    fn of(workspace: &Workspace) -> Result<Self> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Source>,
        }
        let mut metadata = workspace.cargo();
        metadata.args(["metadata", "--locked", "--format-version", "1"]);
        metadata.args(["--filter-platform", TARGET]);
        let output = metadata.output().context("cannot start cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}`: {}", run::line(&metadata), said.trim_end());
        let Metadata { packages } = serde_json::from_slice(&output.stdout)?;
        Ok(Self { packages })
    }

    fn folder(&self, of: &Crate) -> Result<PathBuf> {
        let is_it = |source: &&Source| source.name == of.name && source.version == of.version;
        let source = self.packages.iter().find(is_it);
        let folder = source.and_then(|source| source.manifest_path.parent());
        Ok(folder.with_context(|| format!("no sources of {} {}", of.name, of.version))?.into())
    }
}

/// The licence texts of a package.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_uppercase();
        if path.is_file() && BEGIN.iter().any(|begin| name.starts_with(begin)) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| text(path)).collect()
}

/// A text, without what differs between copies of it by chance.
fn text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_matches('\n').into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_are_listed_once() {
        let tree = "mkey-cli v0.1.0 (/x/mkey-cli)|MIT\nb v1.0.0|MIT\n\na v2.1.0+spec-1|ISC\nb v1.0.0|MIT (*)\n";
        let crates = crates_in(tree).unwrap();
        let names: Vec<_> = crates.iter().map(|c| (&*c.name, &*c.version, &*c.licence)).collect();
        assert_eq!(names, [("a", "2.1.0+spec-1", "ISC"), ("b", "1.0.0", "MIT")]);
    }

    #[test]
    fn a_crate_without_a_licence_is_an_error() {
        assert!(crates_in("a v1.0.0|\n").unwrap_err().to_string().contains("a 1.0.0"));
        assert!(crates_in("no package\n").is_err());
        assert!(crates_in("mkey v0.1.0 (/x)|MIT\n").is_err());
    }
}
