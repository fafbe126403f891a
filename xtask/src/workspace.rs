//! Where things are: asked of cargo, so that a new crate or target needs no entry here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The workspace this program belongs to.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// The workspace that holds this program's manifest.
    pub fn here() -> Result<Self> {
        // Set by `cargo run`; the compiled-in value serves a binary that is started by hand.
        let own = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let metadata = Metadata::of(&own.join("Cargo.toml"))?;
        Ok(Self { root: metadata.workspace_root, target: metadata.target_directory })
    }

    /// The folder of the workspace's manifest.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that cargo builds into.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// A cargo command in the workspace's folder.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root);
        command
    }
}

/// What `cargo metadata --no-deps` says, as far as it is used here.
#[derive(Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
    pub target_directory: PathBuf,
    pub workspace_root: PathBuf,
}

/// A package of a workspace.
#[derive(Deserialize)]
pub struct Package {
    pub targets: Vec<Target>,
}

/// A target of a package: library, binary, test, example.
#[derive(Deserialize)]
pub struct Target {
    pub name: String,
    pub kind: Vec<String>,
}

impl Metadata {
    /// Asks cargo about the workspace of the manifest at `manifest`.
    pub fn of(manifest: &Path) -> Result<Self> {
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
            .arg(manifest)
            .output()
            .context("cannot start cargo")?;
        ensure!(
            output.status.success(),
            "cargo metadata of {} failed:\n{}",
            manifest.display(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cannot read cargo's metadata of {}", manifest.display()))
    }

    /// The names of the binaries, sorted.
    pub fn binaries(&self) -> Vec<&str> {
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        let mut names: Vec<&str> = targets
            .filter(|target| target.kind.iter().any(|kind| kind == "bin"))
            .map(|target| target.name.as_str())
            .collect();
        names.sort_unstable();
        names
    }
}

fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binaries_are_those_of_all_packages_sorted() {
        let text = r#"{"workspace_root": "/w", "target_directory": "/w/target", "packages": [
            {"name": "a", "targets": [{"name": "z", "kind": ["bin"]}, {"name": "a", "kind": ["lib"]}]},
            {"name": "b", "targets": [{"name": "m", "kind": ["bin"]}, {"name": "t", "kind": ["test"]}]}
        ]}"#;
        let metadata: Metadata = serde_json::from_str(text).unwrap();
        assert_eq!(metadata.binaries(), ["m", "z"]);
    }

    #[test]
    fn this_workspace_is_found() {
        let workspace = Workspace::here().unwrap();
        assert!(workspace.root().join("xtask/Cargo.toml").is_file());
    }

    #[test]
    fn a_manifest_that_is_not_there_is_an_error_with_its_path() {
        let Err(error) = Metadata::of(Path::new("/nowhere/Cargo.toml")) else {
            panic!("cargo described a manifest that does not exist");
        };
        assert!(error.to_string().contains("/nowhere/Cargo.toml"), "{error}");
    }
}
