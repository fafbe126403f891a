//! The initial RAM file system of the guests: only what mounts the shared folders.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cpio::NewcBuilder;
use cpio::newc::trailer;

use super::kernel::Kernel;
use crate::run;

/// Where the guest has the kernel's modules, as kmod's base folder.
pub const MODULES: &str = "/bb/kernel";

/// Loaded before anything else: the ports, and the shared folders.
const EARLY: [&str; 4] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];

const FOLDERS: [&str; 14] = [
    "bb",
    "bb/own",
    "bb/early.d",
    "control",
    "dev",
    "etc",
    "etc/libibverbs.d",
    "proc",
    "root",
    "run",
    "share",
    "sys",
    "tmp",
    "usr",
];

/// Files of the guest: path, mode, content.
const FILES: [(&str, u32, &str); 7] = [
    ("init", 0o755, include_str!("../../../tools/vm/init")),
    ("bb/guest", 0o755, include_str!("../../../tools/vm/guest")),
    ("bb/own/modprobe", 0o755, include_str!("../../../tools/vm/modprobe")),
    // The only device there is; without this file the providers of all others are tried, too.
    ("etc/libibverbs.d/rxe.driver", 0o644, "driver rxe\n"),
    (
        "etc/passwd",
        0o644,
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    ),
    ("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n"),
];

/// The image for `kernel`, in the form that the kernel unpacks (cpio, "newc").
pub fn build(kernel: &Kernel) -> Result<Vec<u8>> {
    let mut image = Archive::default();
    for name in FOLDERS {
        image.folder(name)?;
    }
    for (name, mode, content) in FILES {
        image.file(name, mode, content.as_bytes())?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        image.link(name, &format!("usr/{name}"))?;
    }
    image.link("etc/mtab", "/proc/mounts")?;
    image.file("bb/busybox", 0o755, &busybox()?)?;
    let mut order = String::new();
    for (at, module) in early(kernel)?.iter().enumerate() {
        let name = format!("bb/early.d/{at}.ko");
        image.file(&name, 0o644, &unpacked(module)?)?;
        order += &format!("/{name}\n");
    }
    image.file("bb/early", 0o644, order.as_bytes())?;
    Ok(image.end()?)
}

/// busybox as a file that runs before there are any libraries.
fn busybox() -> Result<Vec<u8>> {
    let places = ["/bin/busybox", "/usr/bin/busybox", "/usr/local/bin/busybox"];
    let place =
        places.iter().find(|place| Path::new(place).is_file()).context("no busybox here")?;
    let content = fs::read(place).with_context(|| format!("cannot read {place}"))?;
    // The name of the loader, which a program with shared libraries holds.
    let loader = b"/ld-linux";
    ensure!(
        !content.windows(loader.len()).any(|bytes| bytes == loader),
        "{place} needs shared libraries; the package busybox-static has one that does not"
    );
    Ok(content)
}

/// The files of the early modules and of those that they need, in the order to load them.
fn early(kernel: &Kernel) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for name in EARLY {
        let mut command = Command::new("/sbin/modprobe");
        command.arg("--dirname").arg(kernel.folder());
        command.args(["--set-version", &kernel.release, "--show-depends", name]);
        let ended = run::silent(command.env("LC_ALL", "C"))?;
        // Newer packages do not list what is built in. Had the kernel no such driver at all, the
        // guest would not come up.
        let built_in = ended.text.contains("not found in directory");
        ensure!(ended.status.success() || built_in, "`{}`: {}", run::line(&command), ended.text);
        for file in to_insert(&ended.text) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// The files of the `insmod` lines of modprobe's answer; what is built in has `builtin` ones.
fn to_insert(text: &str) -> impl Iterator<Item = PathBuf> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("insmod "));
    lines.map(|rest| PathBuf::from(rest.trim_end()))
}

/// A module as busybox loads it.
fn unpacked(module: &Path) -> Result<Vec<u8>> {
    let program = match module.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("ko") => {
            return fs::read(module).with_context(|| format!("cannot read {}", module.display()));
        }
        _ => bail!("{} is in no form that is known", module.display()),
    };
    let mut command = Command::new(program);
    let output = command.arg("-dc").arg(module).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}`: {}", run::line(&command), said.trim_end());
    Ok(output.stdout)
}

/// An archive that grows entry by entry.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, 0o100_000 | mode, content)
    }

    fn link(&mut self, name: &str, to: &str) -> io::Result<()> {
        self.entry(name, 0o120_777, to.as_bytes())
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).map_err(io::Error::other)?;
        let header = NewcBuilder::new(name).ino(self.entries).mode(mode);
        let mut writer = header.write(&mut self.bytes, size);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }

    fn end(self) -> io::Result<Vec<u8>> {
        trailer(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_holds_its_entries_as_they_were() {
        let mut archive = Archive::default();
        archive.folder("bin").unwrap();
        archive.file("bin/odd", 0o755, b"12345").unwrap();
        archive.link("lib", "usr/lib").unwrap();
        let bytes = archive.end().unwrap();
        let mut left = bytes.as_slice();
        let mut seen = Vec::new();
        loop {
            let mut reader = cpio::NewcReader::new(left).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = String::new();
            io::Read::read_to_string(&mut reader, &mut content).unwrap();
            seen.push((name, mode, content));
            left = reader.finish().unwrap();
        }
        let expected = [
            ("bin", 0o040_755, ""),
            ("bin/odd", 0o100_755, "12345"),
            ("lib", 0o120_777, "usr/lib"),
        ];
        let expected = expected.map(|(name, mode, content)| (name.into(), mode, content.into()));
        assert_eq!(seen, expected);
    }

    #[test]
    fn only_modules_with_a_file_are_inserted() {
        let text = "builtin virtio\ninsmod /k/virtio_ring.ko \ninsmod /k/9p.ko.xz\n";
        let files: Vec<_> = to_insert(text).collect();
        assert_eq!(files, [Path::new("/k/virtio_ring.ko"), Path::new("/k/9p.ko.xz")]);
    }

    #[test]
    fn a_module_in_an_unknown_form_is_named() {
        let error = unpacked(Path::new("/k/9p.ko.rar")).unwrap_err().to_string();
        assert!(error.contains("/k/9p.ko.rar"), "{error}");
    }
}
