//! The kernels of the guests: which ones, where they come from, and where they are kept.
//!
//! They are Debian's, unpacked into `mkey-xtask/kernels` of the user's cache folder, where every
//! clone finds them. What is kept is used without asking the network.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::apt::{self, Opened, Suite};
use crate::part::Unavailable;
use crate::tools::{announced, kept, succeed};
use crate::workspace::Workspace;

/// A line of kernels: any version of it serves the same tests.
#[derive(Debug)]
pub struct Line {
    /// What the command line calls it.
    pub name: &'static str,
    pub about: &'static str,
    /// Whether soft-RoCE has on-demand paging there.
    pub on_demand: bool,
    /// The suites that have had one, the preferred first.
    suites: &'static [&'static str],
    /// The versions that have the feature.
    versions: Range<(u32, u32)>,
}

/// Every line.
pub static LINES: [Line; 2] = [
    Line {
        name: "6.1",
        about: "soft-RoCE without on-demand paging",
        on_demand: false,
        suites: &["bookworm", "trixie"],
        versions: (6, 1)..(6, 15),
    },
    Line {
        name: "7",
        about: "soft-RoCE with on-demand paging",
        on_demand: true,
        suites: &["trixie-backports", "stable-backports", "stable", "testing", "unstable"],
        versions: (6, 18)..(u32::MAX, 0),
    },
];

impl Line {
    /// The line called `name`, as the command line gives it.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let names: Vec<_> = LINES.iter().map(|line| line.name).collect();
        let found = LINES.iter().find(|line| line.name == name);
        found.ok_or_else(|| format!("the kernels are {}", names.join(" and ")))
    }

    fn fits(&self, release: &str) -> bool {
        version(release).is_some_and(|version| self.versions.contains(&version))
    }
}

/// Major and minor version of the release, say `6.1.0-50-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A kernel that is here.
pub struct Kernel {
    pub line: &'static Line,
    /// As `uname -r` says.
    pub release: String,
    folder: PathBuf,
}

impl Kernel {
    /// The kept kernel of `line`; else it is fetched. Where none can be had the error is
    /// [`Unavailable`].
    pub fn get(workspace: &Workspace, line: &'static Line) -> Result<Self> {
        match Self::kept(workspace, line) {
            Some(kernel) => Ok(kernel),
            None => Self::fetch(workspace, line),
        }
    }

    /// The newest kernel of `line` in the first suite that has one, kept in place of another.
    pub fn fetch(workspace: &Workspace, line: &'static Line) -> Result<Self> {
        let kernels = kept(workspace).join("kernels");
        fs::create_dir_all(&kernels)
            .with_context(|| format!("cannot make {}", kernels.display()))?;
        // Beside its place, so that it gets there by one step: others may fetch at the same time.
        let work = tempfile::tempdir_in(&kernels).context("cannot make a folder")?;
        let mut release = String::new();
        announced(&format!("fetching a kernel, {}: {}", line.name, line.about), || {
            let (suite, found) = offered(line, work.path())?;
            let packages = packages(&suite, &found)?;
            println!("{}", packages.join(" "));
            if let Err(error) = suite.download(&packages) {
                bail!(Unavailable(format!("{error:#}")));
            }
            let unpacked = work.path().join("unpacked");
            suite.unpack(&unpacked)?;
            arrange(&unpacked, &found, &work.path().join("kernel"))?;
            release = found;
            Ok(())
        })?;
        put(&kernels, work.path(), line.name, &release)?;
        Self::kept(workspace, line)
            .with_context(|| format!("{} does not hold {release}", kernels.display()))
    }

    fn kept(workspace: &Workspace, line: &'static Line) -> Option<Self> {
        // Not by the link, which may come to lead elsewhere while a guest runs.
        let folder = kept(workspace).join("kernels").join(line.name).canonicalize().ok()?;
        let mut entries = fs::read_dir(folder.join("lib/modules")).ok()?;
        let release = entries.next()?.ok()?.file_name().into_string().ok()?;
        let kernel = Self { line, release, folder };
        (line.fits(&kernel.release) && kernel.image().is_file()).then_some(kernel)
    }

    /// The file that is booted.
    pub fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The folder that holds `lib/modules`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Moves the kernel in `work` to its place among `kernels`: a folder of its release, to which a link
/// of the line's name leads. A running guest loads modules from its folder by their paths, so that
/// the kernel it runs stays where it is.
fn put(kernels: &Path, work: &Path, line: &str, release: &str) -> Result<()> {
    let folder = kernels.join(release);
    if let Err(error) = fs::rename(work.join("kernel"), &folder) {
        // Unless it is there already, whole as it got there by one step.
        ensure!(folder.is_dir(), "cannot make {}: {error}", folder.display());
    }
    let (link, place) = (work.join("link"), kernels.join(line));
    symlink(release, &link).with_context(|| format!("cannot make {}", link.display()))?;
    if fs::symlink_metadata(&place).is_ok_and(|found| found.is_dir()) {
        // A folder of the line's name, as older versions made it.
        let _ = fs::rename(&place, work.join("old"));
    }
    fs::rename(&link, &place).with_context(|| format!("cannot make {}", place.display()))
}

/// The first suite with a kernel of `line`, and that kernel's release.
fn offered(line: &Line, work: &Path) -> Result<(Suite, String)> {
    let mirrors = match apt::mirrors() {
        Ok(mirrors) if mirrors.is_empty() => {
            bail!(Unavailable("apt is configured for no Debian mirror".into()))
        }
        Ok(mirrors) => mirrors,
        Err(error) => bail!(Unavailable(format!("{error:#}"))),
    };
    let mut tried = Vec::new();
    for mirror in &mirrors {
        for name in line.suites {
            // Each has a folder of its own.
            let folder = work.join(format!("apt-{}", tried.len()));
            let suite = match Suite::open(mirror, name, &folder)? {
                Opened::Here(suite) => suite,
                Opened::Absent => {
                    tried.push(format!("there is no {name}"));
                    continue;
                }
                Opened::Refused(why) => {
                    // The other suites would fare no better.
                    tried.push(format!("{name}: {why}"));
                    break;
                }
            };
            let depends = suite.depends("linux-image-amd64")?;
            let found = depends.iter().find_map(|name| name.strip_prefix("linux-image-"));
            match found {
                Some(release) if line.fits(release) => return Ok((suite, release.into())),
                Some(release) => tried.push(format!("{name} has {release}")),
                None => tried.push(format!("{name} has no linux-image-amd64")),
            }
        }
    }
    bail!(Unavailable(format!("no kernel to be had with {}: {}", line.about, tried.join("; "))))
}

/// The packages that make up the kernel `release`: image and modules are one, or apart.
fn packages(suite: &Suite, release: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in ["image", "binary", "modules"] {
        let name = format!("linux-{kind}-{release}");
        if let Some(version) = suite.version(&name)? {
            found.push(format!("{name}={version}"));
        }
    }
    Ok(found)
}

/// Modules that no guest has a device for: half of all their bytes.
const UNUSED: [&str; 6] = [
    "sound",
    "drivers/gpu",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/staging",
    "drivers/iio",
];

/// Moves what is used of the `unpacked` packages to `folder`: `vmlinuz` and `lib/modules/RELEASE`.
fn arrange(unpacked: &Path, release: &str, folder: &Path) -> Result<()> {
    let found = |names: [String; 2]| {
        let mut paths = names.iter().map(|name| unpacked.join(name));
        paths.find(|path| path.exists()).with_context(|| format!("no {} in the package", names[0]))
    };
    let modules = found([format!("lib/modules/{release}"), format!("usr/lib/modules/{release}")])?;
    let image =
        found([format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")])?;
    fs::create_dir_all(folder.join("lib/modules"))?;
    // kmod looks for modules there where its distribution has merged /lib into /usr.
    fs::create_dir(folder.join("usr"))?;
    symlink("../lib", folder.join("usr/lib"))?;
    fs::rename(&image, folder.join("vmlinuz"))?;
    let place = folder.join("lib/modules").join(release);
    fs::rename(&modules, &place)?;
    for name in UNUSED {
        // One that is not there takes no space.
        let _ = fs::remove_dir_all(place.join("kernel").join(name));
    }
    succeed(Command::new("/sbin/depmod").arg("--basedir").arg(folder).arg(release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_used_stays_when_a_newer_one_is_fetched() {
        let kernels = tempfile::tempdir().unwrap();
        let fetch = |release: &str| {
            let work = tempfile::tempdir_in(&kernels).unwrap();
            let folder = work.path().join("kernel");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("vmlinuz"), release).unwrap();
            put(kernels.path(), work.path(), "6.1", release).unwrap();
            kernels.path().join("6.1").canonicalize().unwrap()
        };
        // As older versions left it.
        fs::create_dir(kernels.path().join("6.1")).unwrap();
        for release in ["6.1.0-1", "6.1.0-2", "6.1.0-1"] {
            let used = fetch(release);
            assert_eq!(used, kernels.path().canonicalize().unwrap().join(release));
            assert_eq!(fs::read_to_string(used.join("vmlinuz")).unwrap(), release);
        }
        assert!(kernels.path().join("6.1.0-2/vmlinuz").is_file());
        assert_eq!(fs::read_dir(&kernels).unwrap().count(), 3);
    }

    #[test]
    fn a_release_is_compared_by_number() {
        assert_eq!(version("6.1.0-50-amd64"), Some((6, 1)));
        assert_eq!(version("7.3.4+deb13-amd64"), Some((7, 3)));
        assert_eq!(version("amd64"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_line_takes_only_kernels_with_its_feature() {
        let [without, with] = &LINES;
        for release in ["6.1.0-50-amd64", "6.12.94+deb13-amd64"] {
            assert!(without.fits(release) && !with.fits(release), "{release}");
        }
        for release in ["6.18.15+deb13-amd64", "7.3.4+deb13-amd64", "10.0-amd64"] {
            assert!(!without.fits(release) && with.fits(release), "{release}");
        }
        assert!(!without.fits("6.16.3-amd64") && !with.fits("6.16.3-amd64"));
    }

    #[test]
    fn an_unknown_line_is_an_error_that_lists_them() {
        assert_eq!(Line::named("5.10").unwrap_err(), "the kernels are 6.1 and 7");
        assert!(Line::named("7").unwrap().on_demand);
    }

    #[test]
    fn a_package_is_arranged_wherever_it_has_its_files() {
        for (image, modules) in [
            ("boot/vmlinuz-6.1.0-1-amd64", "lib/modules/6.1.0-1-amd64"),
            ("usr/lib/modules/6.1.0-1-amd64/vmlinuz", "usr/lib/modules/6.1.0-1-amd64"),
        ] {
            let work = tempfile::tempdir().unwrap();
            let (from, to) = (work.path().join("from"), work.path().join("to"));
            for folder in ["boot", &format!("{modules}/kernel/sound")] {
                fs::create_dir_all(from.join(folder)).unwrap();
            }
            fs::write(from.join(image), "image").unwrap();
            for name in ["modules.order", "modules.builtin"] {
                fs::write(from.join(modules).join(name), "").unwrap();
            }
            arrange(&from, "6.1.0-1-amd64", &to).unwrap();
            assert_eq!(fs::read(to.join("vmlinuz")).unwrap(), b"image");
            assert!(to.join("usr/lib/modules/6.1.0-1-amd64/modules.dep").is_file());
            assert!(!to.join("lib/modules/6.1.0-1-amd64/kernel/sound").exists());
        }
    }
}
