//! What is packed, and where in its prefix it stands.
//!
//! A Debian package has the prefix `/usr`, the tarball any folder: `mkey` finds its library by its own
//! place.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::gz;
use super::licences;
use super::zig::{Binaries, Tools};
use crate::run;
use crate::workspace::Workspace;

/// A file to be packed.
pub struct File {
    /// Below the prefix.
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

/// Where the documents stand.
const DOC: &str = "share/doc/mkey";
/// Shells with the names of their completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/mkey"),
    ("zsh", "share/zsh/vendor-completions/_mkey"),
    ("fish", "share/fish/vendor_completions.d/mkey.fish"),
];
/// Documents of the workspace's folder.
const DOCUMENTS: &[&str] =
    &["README.md", "README.zh-CN.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// All files, sorted by their paths.
pub fn files(workspace: &Workspace, tools: &Tools, binaries: &Binaries) -> Result<Vec<File>> {
    let mut files = vec![
        File { path: "bin/mkey".into(), mode: 0o755, bytes: read(&binaries.program)? },
        plain("lib/mkey/libmkey_preload.so", read(&binaries.library)?),
        plain("lib/mkey/libmkey_watch.so", read(&binaries.watch)?),
        plain("share/man/man1/mkey.1.gz", gz(&printed(binaries, &["man"])?)?),
    ];
    for (shell, path) in COMPLETIONS {
        files.push(plain(path, printed(binaries, &["completions", shell])?));
    }
    for name in DOCUMENTS {
        files.push(plain(&format!("{DOC}/{name}"), read(&workspace.root().join(name))?));
    }
    // As beside the README, whose links lead there.
    let docs = workspace.root().join("docs");
    for entry in fs::read_dir(&docs).with_context(|| docs.display().to_string())? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.ends_with(".md")
        {
            files.push(plain(&format!("{DOC}/docs/{name}"), read(&path)?));
        }
    }
    for (name, bytes) in licences::documents(workspace, tools)? {
        files.push(plain(&format!("{DOC}/{name}"), bytes));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn plain(path: &str, bytes: Vec<u8>) -> File {
    File { path: path.into(), mode: 0o644, bytes }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What the program prints.
fn printed(binaries: &Binaries, args: &[&str]) -> Result<Vec<u8>> {
    let ended = run::silent(Command::new(&binaries.program).args(args))?;
    ensure!(ended.status.success(), "mkey {}: {}", args.join(" "), ended.text.trim_end());
    Ok(ended.text.into_bytes())
}
