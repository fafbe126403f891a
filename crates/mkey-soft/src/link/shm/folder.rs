//! Where the processes of one user on one host meet: a folder for each network namespace and port
//! address.
//!
//! The numbers of a port's queue pairs are shared out in blocks. Who holds the lock of a block's file
//! has its numbers, and may be reached by the socket beside it. The kernel lets go of the lock when
//! its holder ends, however that happens; what the holder has left behind is then taken over or
//! cleaned up by whoever comes next.

use crate::core::generation;
use crate::not_inherited::NotInherited;
use mkey_core::device::Gid;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bits of a queue pair's number within its block.
pub(crate) const BLOCK_BITS: u32 = 12;
/// Blocks of a port. The first is nobody's: numbers 0 and 1 have a meaning of their own.
const BLOCKS: u32 = 1 << (24 - BLOCK_BITS);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const LOCK_FILE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
pub(super) const SOCKET: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A folder that belongs to this user and to nobody else.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

impl Folder {
    /// The folder of a port in this network namespace.
    pub(super) fn of(gid: Gid) -> io::Result<Arc<Self>> {
        Self::make(&base(), &Self::names(gid)?)
    }

    /// The names of folders, one in the other: the network namespace, and the port.
    fn names(gid: Gid) -> io::Result<[String; 2]> {
        let namespace = fs::metadata("/proc/self/ns/net")?.ino();
        let mut port = String::new();
        for byte in gid.0 {
            // Writing to a string does not fail.
            let _ = write!(port, "{byte:02x}");
        }
        Ok([namespace.to_string(), port])
    }

    /// The folder of another port of this host, in which a process has been.
    pub(super) fn that_is(gid: Gid) -> io::Result<Arc<Self>> {
        let path = Self::names(gid)?.iter().fold(base(), |path, name| path.join(name));
        match is_own(&path)? {
            true => Self::open(path),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// A folder in a folder, of ours alone.
    pub(super) fn make(base: &Path, names: &[String]) -> io::Result<Arc<Self>> {
        let mut path = base.to_owned();
        own(&path)?;
        for name in names {
            path.push(name);
            own(&path)?;
        }
        Self::open(path)
    }

    fn open(path: PathBuf) -> io::Result<Arc<Self>> {
        let fd = rustix::fs::open(&path, DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        Ok(Arc::new(Self { path, fd }))
    }

    /// Where it is.
    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a block that nobody has, `wanted` if that is free; `None` if all are taken.
    pub(super) fn claim(self: &Arc<Self>, wanted: u32) -> io::Result<Option<Block>> {
        for ahead in 0..BLOCKS - 1 {
            let number = wanted.wrapping_add(ahead) % (BLOCKS - 1) + 1;
            if let Some(lock) = self.lock(number)? {
                self.remove(&socket(number));
                let (folder, born) = (self.clone(), generation());
                return Ok(Some(Block { folder, number, born, _lock: NotInherited::new(lock) }));
            }
        }
        Ok(None)
    }

    /// The lock of a block, unless somebody has it.
    fn lock(&self, number: u32) -> io::Result<Option<OwnedFd>> {
        loop {
            let mode = Mode::RUSR | Mode::WUSR;
            let file = rustix::fs::openat(&self.fd, lock_file(number), LOCK_FILE, mode)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // Somebody may have removed the file between opening and locking it.
            if rustix::fs::fstat(&file)?.st_nlink > 0 {
                return Ok(Some(file));
            }
        }
    }

    /// Whether a process has this block.
    pub(super) fn is_taken(&self, number: u32) -> bool {
        let flags = LOCK_FILE.difference(OFlags::CREATE);
        let Ok(file) = rustix::fs::openat(&self.fd, lock_file(number), flags, Mode::empty()) else {
            return false;
        };
        let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        lock == Err(Errno::WOULDBLOCK)
    }

    /// Removes what processes have left behind that have ended.
    pub(super) fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".lock")?.parse().ok());
            if let Some(number) = number
                && let Ok(Some(lock)) = self.lock(number)
            {
                self.clean(number);
                drop(lock);
            }
        }
    }

    /// Removes the files of a block. Called with its lock held.
    fn clean(&self, number: u32) {
        self.remove(&socket(number));
        self.remove(&lock_file(number));
    }

    fn remove(&self, name: &str) {
        // Mostly it is not there.
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// A socket of the process that has a block.
    pub(super) fn connect(&self, number: u32) -> io::Result<OwnedFd> {
        let stream = seqpacket()?;
        rustix::net::connect(&stream, &self.address(number)?)?;
        Ok(stream)
    }

    /// The address of a block's socket. Addresses are short, so the folder is named by its
    /// descriptor.
    fn address(&self, number: u32) -> io::Result<SocketAddrUnix> {
        let folder = self.fd.as_raw_fd();
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{folder}/{}", socket(number)))?)
    }
}

/// A block of numbers, ours until it is dropped or this process ends.
#[derive(Debug)]
pub(super) struct Block {
    folder: Arc<Folder>,
    number: u32,
    born: u32,
    _lock: NotInherited,
}

impl Block {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Makes the block reachable.
    pub(super) fn listen(&self) -> io::Result<NotInherited> {
        let listener = seqpacket()?;
        rustix::net::bind(&listener, &self.folder.address(self.number)?)?;
        rustix::net::listen(&listener, 128)?;
        Ok(NotInherited::new(listener))
    }

    /// Makes the block reachable by the socket of another block of ours.
    pub(super) fn alias(&self, of: &Block) -> io::Result<()> {
        let folder = &self.folder.fd;
        let (from, to) = (socket(of.number), socket(self.number));
        rustix::fs::linkat(folder, from, folder, to, AtFlags::empty())?;
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // In a forked child, which has the lock, too, the block is the parent's still.
        if self.born == generation() {
            self.folder.clean(self.number);
        }
    }
}

fn lock_file(number: u32) -> String {
    format!("{number}.lock")
}

fn socket(number: u32) -> String {
    format!("{number}.sock")
}

fn seqpacket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SOCKET, None)?)
}

/// The folder of this user's runtime files.
fn base() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = runtime.into_iter().chain([PathBuf::from(format!("/run/user/{user}"))]);
    for candidate in candidates {
        if is_own(&candidate).unwrap_or(false) {
            return candidate.join("mkey");
        }
    }
    PathBuf::from(format!("/tmp/mkey-{user}"))
}

/// Whether it is a folder, no link, that only this user can enter.
fn is_own(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    Ok(found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// Makes a folder that only this user can enter, or finds that it is there and so.
fn own(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if is_own(path)? {
        return Ok(());
    }
    let why = format!("{} is not a folder that this user alone can enter", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Arc<Folder>) {
        let temporary = tempfile::tempdir().unwrap();
        let folder =
            Folder::make(&temporary.path().join("mkey"), &["1".to_owned(), "ab".to_owned()])
                .unwrap();
        (temporary, folder)
    }

    fn files(folder: &Folder) -> Vec<String> {
        let names = fs::read_dir(&folder.path).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_block_is_had_by_one() {
        let (_temporary, folder) = folder();
        let first = folder.claim(7).unwrap().unwrap();
        let second = folder.claim(7).unwrap().unwrap();
        assert_eq!((first.number(), second.number()), (8, 9));
        assert_eq!([8, 9, 10].map(|number| folder.is_taken(number)), [true, true, false]);
        let last = folder.claim(BLOCKS - 2).unwrap().unwrap();
        let wrapped = folder.claim(BLOCKS - 2).unwrap().unwrap();
        assert_eq!((last.number(), wrapped.number()), (BLOCKS - 1, 1));
        drop(first);
        assert!(!folder.is_taken(8));
        assert_eq!(folder.claim(7).unwrap().unwrap().number(), 8);
    }

    #[test]
    fn a_block_is_reached_by_its_socket() {
        let (_temporary, folder) = folder();
        assert!(folder.connect(8).is_err());
        let block = folder.claim(7).unwrap().unwrap();
        assert!(folder.connect(8).is_err(), "nobody listens yet");
        let listener = block.listen().unwrap();
        let other = folder.claim(7).unwrap().unwrap();
        other.alias(&block).unwrap();
        for number in [8, 9] {
            let stream = folder.connect(number).unwrap();
            let accepted = rustix::net::accept_with(&listener, SOCKET).unwrap();
            rustix::io::write(&stream, b"x").unwrap();
            let mut byte = [0];
            assert_eq!(rustix::io::read(&accepted, &mut byte), Ok(1));
        }
    }

    #[test]
    fn what_is_left_behind_is_cleaned_up() {
        let (_temporary, folder) = folder();
        let living = folder.claim(1).unwrap().unwrap();
        let _listener = living.listen().unwrap();
        for name in ["5.lock", "5.sock", "6.lock"] {
            fs::write(folder.path.join(name), "").unwrap();
        }
        folder.sweep();
        assert_eq!(files(&folder), ["2.lock", "2.sock"]);
        drop(living);
        assert_eq!(files(&folder), [""; 0]);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("mkey");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Folder::make(&path, &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let link = temporary.path().join("link");
        std::os::unix::fs::symlink(temporary.path(), &link).unwrap();
        assert!(Folder::make(&link, &[]).is_err());
    }
}
