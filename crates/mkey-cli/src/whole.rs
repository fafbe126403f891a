//! Files that are written whole or not at all: what stood there before stays until the new content is
//! complete.

use rustix::fs::{Gid, Uid};
use signal_hook::consts::SIGXFSZ;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::{Builder, NamedTempFile};

/// Links that are followed, as the kernel does.
const MOST_LINKS: usize = 40;

/// Writes `content` to `path`: to a file beside it, which takes its place once it is complete. Links are
/// followed; owner and permissions of a file that is there are kept. Devices, pipes, descriptors as
/// /dev/stdout is one, and files whose folder takes no other, are written directly.
///
/// # Errors
/// As the file system refuses; what stood there is still there then, unless it is written directly.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // A limit of the size of files is to be an error as any other, and not to end this process. Where that
    // can not be had, it does.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let Some(place) = place(path) else { return direct(path, content) };
    let before = match fs::metadata(&place) {
        Ok(about) if !about.is_file() => return direct(path, content),
        Ok(about) => {
            // Who may not write to a file may not put another in its place, either.
            OpenOptions::new().append(true).open(&place)?;
            Some(about)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let beside = || -> io::Result<NamedTempFile> {
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut builder = Builder::new();
        let builder = builder.prefix(".mkey-").permissions(Permissions::from_mode(0o666));
        let file = builder.tempfile_in(folder.unwrap_or(Path::new(".")))?;
        if let Some(before) = &before {
            let about = file.as_file().metadata()?;
            if (about.uid(), about.gid()) != (before.uid(), before.gid()) {
                let (uid, gid) = (Uid::from_raw(before.uid()), Gid::from_raw(before.gid()));
                rustix::fs::fchown(file.as_file(), Some(uid), Some(gid))?;
            }
            file.as_file().set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
        }
        Ok(file)
    };
    let mut file = match beside() {
        Ok(file) => file,
        // The file itself may be written all the same.
        Err(_) if before.is_some() => return direct(path, content),
        Err(error) => return Err(error),
    };
    // By the file itself: an error is to name the path that was asked for, not that of this one.
    file.as_file_mut().write_all(content)?;
    file.as_file().sync_all()?;
    match file.persist(&place) {
        Ok(_) => Ok(()),
        // Another file system is mounted on it, as containers do it with single files.
        Err(failed) if failed.error.kind() == ErrorKind::ResourceBusy => direct(path, content),
        Err(failed) => Err(failed.error),
    }
}

fn direct(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.flush()
}

/// Where a path leads in the end, whether something is there or not; `None` for a descriptor of a process,
/// whose file has other readers than those of its name.
fn place(path: &Path) -> Option<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        if folder.canonicalize().is_ok_and(|folder| folder.starts_with("/proc")) {
            return None;
        }
        match fs::read_link(&place) {
            Ok(target) => place = folder.join(target),
            Err(_) => return Some(place),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn another_file_takes_the_place_with_its_permissions_and_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("report"), "old").unwrap();
        fs::set_permissions(at("report"), Permissions::from_mode(0o640)).unwrap();
        let mut reader = File::open(at("report")).unwrap();
        symlink("report", at("link")).unwrap();
        write(&at("link"), b"new").unwrap();
        assert_eq!(fs::read_to_string(at("report")).unwrap(), "new");
        assert_eq!(fs::metadata(at("report")).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        // Who reads the old one reads it to its end.
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "old");
        symlink("made", at("hanging")).unwrap();
        write(&at("hanging"), b"1").unwrap();
        write(&at("fresh"), b"2").unwrap();
        assert_eq!(names(folder.path()), ["fresh", "hanging", "link", "made", "report"]);
        let usual = File::create(at("usual")).unwrap().metadata().unwrap().mode();
        assert_eq!(fs::metadata(at("fresh")).unwrap().mode(), usual);
    }

    #[test]
    fn what_can_not_be_replaced_is_written_directly() {
        for device in ["/dev/null", "/dev/full"] {
            assert_eq!(write(Path::new(device), b"x").is_ok(), device == "/dev/null");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("behind");
        let file = File::create(&path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        write(Path::new(&format!("/dev/fd/{number}")), b"x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1);
        assert!(write(folder.path(), b"x").is_err());
        assert!(write(&folder.path().join("none/x"), b"x").is_err());
        assert_eq!(names(folder.path()), ["behind"]);
    }
}
