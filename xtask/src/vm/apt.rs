//! Debian's packages of one suite, whichever suite this machine itself runs.
//!
//! apt does the work, from the mirror that this machine is configured for, with lists and a cache
//! of its own: the system's sources stay as they are, and nothing is installed. apt verifies what
//! it fetches: the suite's signature by Debian's keyring, and from there every package's checksum.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;
use crate::tools::succeed;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The Debian mirrors that this machine's apt is configured for.
pub fn mirrors() -> Result<Vec<String>> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"]);
    let ended = run::silent(&mut command)?;
    ensure!(ended.status.success(), "`{}`: {}", run::line(&command), ended.text.trim_end());
    Ok(of_debian(&ended.text))
}

/// The repositories among `lines` that by their names are Debian's main one, without repeats.
/// Whether one is, its signature shows later.
fn of_debian(lines: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in lines.lines() {
        let last = line.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if matches!(last, "debian" | "debian.list") && !found.iter().any(|known| known == line) {
            found.push(line.into());
        }
    }
    found
}

/// What came of asking a mirror for a suite.
pub enum Opened {
    Here(Suite),
    /// The mirror answers, and has no such suite.
    Absent,
    /// There is no answer, or none that can be trusted: what apt says of it.
    Refused(String),
}

fn refused(text: &str) -> Opened {
    if text.contains("does not have a Release file") {
        return Opened::Absent;
    }
    Opened::Refused(text.lines().next().unwrap_or("apt-get update failed").into())
}

/// A suite of Debian as a mirror has it.
pub struct Suite {
    folder: PathBuf,
}

impl Suite {
    /// Fetches the lists of the suite `name` from `mirror`; `folder` is for apt's files.
    pub fn open(mirror: &str, name: &str, folder: &Path) -> Result<Opened> {
        let suite = Self { folder: folder.into() };
        for sub in ["sources", "lists/partial", "cache/archives/partial", "packages"] {
            let sub = folder.join(sub);
            fs::create_dir_all(&sub).with_context(|| format!("cannot make {}", sub.display()))?;
        }
        let source = format!(
            "Types: deb\nURIs: {mirror}\nSuites: {name}\nComponents: main\nArchitectures: amd64\n\
             Signed-By: {KEYRING}\n"
        );
        let configuration = configuration(folder);
        let files = [("status", ""), ("sources/x.sources", &source), ("apt.conf", &configuration)];
        for (file, content) in files {
            let file = folder.join(file);
            fs::write(&file, content)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let updated = run::silent(suite.apt("apt-get").arg("update"))?;
        Ok(if updated.status.success() { Opened::Here(suite) } else { refused(&updated.text) })
    }

    /// The packages that `package` depends on; none if the suite has no such package.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        let mut command = self.apt("apt-cache");
        command.args(["depends", "--no-recommends", "--no-suggests", package]);
        Ok(depended(&run::silent(&mut command)?.text))
    }

    /// The version of `package` in this suite.
    pub fn version(&self, package: &str) -> Result<Option<String>> {
        let ended =
            run::silent(self.apt("apt-cache").args(["show", "--no-all-versions", package]))?;
        let version = ended.text.lines().find_map(|line| line.strip_prefix("Version: "));
        Ok(version.map(str::to_owned).filter(|_| ended.status.success()))
    }

    /// Downloads `packages`.
    pub fn download(&self, packages: &[String]) -> Result<()> {
        let mut command = self.apt("apt-get");
        succeed(command.arg("download").args(packages).current_dir(self.folder.join("packages")))
    }

    /// Unpacks what was downloaded into `into`.
    pub fn unpack(&self, into: &Path) -> Result<()> {
        let packages = self.folder.join("packages");
        let entries = fs::read_dir(&packages)
            .with_context(|| format!("cannot read {}", packages.display()))?;
        for entry in entries {
            let package = entry?.path();
            succeed(Command::new("dpkg").arg("--extract").arg(package).arg(into))?;
        }
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C").args(["--quiet=2", "--config-file"]);
        command.arg(self.folder.join("apt.conf"));
        command
    }
}

/// What apt is to do otherwise than this machine's configuration says, with its files in `folder`.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::Etc::sourcelist \"/dev/null\";\n\
         Dir::Etc::sourceparts \"{folder}/sources\";\n\
         Dir::State \"{folder}\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         APT::Sandbox::User \"root\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"1\";\n\
         Acquire::http::Timeout \"20\";\n\
         Acquire::https::Timeout \"20\";\n"
    )
}

/// The names in the answer of `apt-cache depends`.
fn depended(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("Depends: "));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_repository_is_told_from_the_others() {
        let lines = "http://mirror/debian/\nhttp://mirror/debian/\nhttp://mirror/debian-security/\n\
                     mirror+file:/etc/apt/mirrors/debian.list/\nhttp://mirror/ubuntu/\n";
        let expected = ["http://mirror/debian/", "mirror+file:/etc/apt/mirrors/debian.list/"];
        assert_eq!(of_debian(lines), expected);
        assert!(of_debian("").is_empty());
    }

    #[test]
    fn a_suite_that_is_not_there_is_told_from_a_mirror_that_is_not() {
        let absent =
            "E: The repository 'http://mirror/debian x Release' does not have a Release file.";
        assert!(matches!(refused(absent), Opened::Absent));
        let text =
            "E: Failed to fetch http://mirror  Could not connect\nE: Some index files failed";
        let Opened::Refused(why) = refused(text) else { panic!("an answer of no mirror") };
        assert_eq!(why, "E: Failed to fetch http://mirror  Could not connect");
    }

    #[test]
    fn the_depended_packages_are_read() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-50-amd64\n  Conflicts: x\n |Depends: a\n";
        assert_eq!(depended(text), ["linux-image-6.1.0-50-amd64"]);
        assert!(depended("N: Unable to locate package nothing\n").is_empty());
    }
}
