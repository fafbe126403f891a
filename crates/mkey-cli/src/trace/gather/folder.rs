//! The private folder that the processes of a job write into.

use rustix::fs::{FlockOperation, flock, statvfs};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// What the names of such folders begin with.
const PREFIX: &str = "mkey-trace-";
/// A file in it that is locked as long as its folder is in use.
const LOCK: &str = "lock";

/// A folder that only this user may enter, and that is removed in the end.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// Locked.
    _lock: File,
}

impl Folder {
    /// Makes one: in memory if there is room for twice `limit` bytes, else where temporary files are.
    /// Those that were left behind by processes that were killed are removed.
    ///
    /// # Errors
    /// As the file system refuses.
    pub fn new(limit: u64) -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        sweep(memory);
        let roomy = |place: &Path| {
            statvfs(place).is_ok_and(|has| has.f_bavail.saturating_mul(has.f_frsize) / 2 >= limit)
        };
        let temporary = std::env::temp_dir();
        sweep(&temporary);
        let made = match roomy(memory) {
            true => Self::in_place(memory).or_else(|_| Self::in_place(&temporary)),
            false => Self::in_place(&temporary),
        };
        made.map_err(|error| {
            io::Error::new(error.kind(), format!("a folder for the recording: {error}"))
        })
    }

    fn in_place(place: &Path) -> io::Result<Self> {
        let mut builder = Builder::new();
        let folder = builder
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        let lock = File::create(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The files that processes have made, by their names.
    pub fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path()) else { return Vec::new() };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut files: Vec<_> =
            paths.filter(|path| path.file_name().is_some_and(|name| name != LOCK)).collect();
        files.sort_unstable();
        files
    }
}

/// Removes folders of this user's that nobody uses any more.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let own = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|about| about.is_dir() && about.uid() == own);
        // One without a lock is just being made.
        if is_ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Another one may have begun to remove it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_private_and_what_was_left_behind_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let used = Folder::in_place(place.path()).unwrap();
        assert_eq!(fs::metadata(used.path()).unwrap().mode() & 0o777, 0o700);
        fs::write(used.path().join("1.raw"), "x").unwrap();
        assert_eq!(used.files(), [used.path().join("1.raw")]);
        let Folder { folder, _lock } = Folder::in_place(place.path()).unwrap();
        let left = folder.keep();
        sweep(place.path());
        assert!(left.exists(), "it is in use");
        drop(_lock);
        sweep(place.path());
        assert!(!left.exists() && used.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
