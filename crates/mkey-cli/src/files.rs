//! Files of a host, read below a root: whatever they hold, and however long they are.

use crate::explain::errno;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// No file of the kernel's that is read whole is as long as this, in bytes.
const LONGEST: u64 = 1 << 20;
/// No list of mappings is as long as this, in bytes.
const LONGEST_MAPS: u64 = 1 << 30;
/// No copied one is: so many are counted in moments.
const LONGEST_COPY: u64 = 256 << 20;
/// More names than this in one folder are not looked at.
const MOST_NAMES: usize = 4096;

/// The root, and how to read below it.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
    /// The root without links, if it is not the machine's own: nothing outside is read.
    inside: Option<PathBuf>,
}

/// A file that tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its path, below the root.
    pub path: String,
    /// Why.
    pub why: Why,
}

/// Why a file tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not there.
    Missing,
    /// This user may not read it.
    Denied,
    /// The kernel, or the file system, refuses: its errno.
    Error(String),
    /// It is something else than a file.
    NoFile,
    /// A link that leads out of the root.
    Outside,
    /// It holds something else: its beginning.
    Garbage(String),
    /// It has no line of this name.
    NoLine(String),
    /// It is longer than any that a host has.
    Long,
}

impl Files {
    /// Reads below `root`; `None`: this machine's own files.
    ///
    /// # Errors
    /// The root is not there.
    pub fn below(root: Option<&Path>) -> io::Result<Self> {
        match root {
            None => Ok(Self { root: PathBuf::from("/"), inside: None }),
            Some(root) => {
                let inside = root.canonicalize()?;
                if !inside.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                Ok(Self { root: root.to_owned(), inside: Some(inside) })
            }
        }
    }

    /// The root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether these are this machine's own files.
    pub fn live(&self) -> bool {
        self.inside.is_none()
    }

    /// A path below the root, as in `proc/self/limits`.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Reads a text. What is not UTF-8 is replaced.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn text(&self, path: &str) -> Result<String, Unread> {
        let mut bytes = Vec::new();
        let file = self.open(path)?;
        file.take(LONGEST).read_to_end(&mut bytes).map_err(|error| unread(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a text that is a word or a line.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn line(&self, path: &str) -> Result<String, Unread> {
        Ok(self.text(path)?.trim().to_owned())
    }

    /// Reads a number, decimal or with `0x`.
    ///
    /// # Errors
    /// [`Unread`]: `Garbage` if it is none.
    pub fn number(&self, path: &str) -> Result<u64, Unread> {
        let text = self.text(path)?;
        let word = text.trim();
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        number.map_err(|_| garbage(path, word))
    }

    /// How many lines a file has.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn lines(&self, path: &str) -> Result<u64, Unread> {
        let longest = if self.live() { LONGEST_MAPS } else { LONGEST_COPY };
        let file = self.open(path)?;
        let long = || Unread { path: shown(path), why: Why::Long };
        if file.metadata().is_ok_and(|data| data.len() > longest) {
            return Err(long());
        }
        let mut file = file.take(longest + 1);
        let (mut piece, mut count) = (vec![0; 64 << 10], 0u64);
        loop {
            let read = file.read(&mut piece).map_err(|error| unread(path, &error))?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else {
                return if file.limit() == 0 { Err(long()) } else { Ok(count) };
            };
            count += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }

    /// The names in a folder, in order. What is not UTF-8 is left out: no path leads there.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn names(&self, path: &str) -> Result<Vec<String>, Unread> {
        let folder = self.checked(path)?;
        let entries = folder.read_dir().map_err(|error| unread(path, &error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MOST_NAMES).collect();
        names.sort();
        Ok(names)
    }

    /// How many names a folder has.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn count(&self, path: &str) -> Result<u64, Unread> {
        let folder = self.checked(path)?;
        let entries = folder.read_dir().map_err(|error| unread(path, &error))?;
        Ok(entries.count() as u64)
    }

    /// The last part of what a link leads to.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = self.path(path).read_link().ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The name of what a path is in the end, links followed, as long as they stay below the root.
    pub fn real_name(&self, path: &str) -> Option<String> {
        let real = self.checked(path).ok()?.canonicalize().ok()?;
        Some(real.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether something is there.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Where a path below the root leads, which is below the root also where links lead elsewhere. The path
    /// need not be text.
    ///
    /// # Errors
    /// As the system refuses; a link that leads out of the root.
    pub fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.root.join(path);
        let Some(inside) = &self.inside else { return Ok(place) };
        let real = place.canonicalize()?;
        if real.starts_with(inside) {
            return Ok(real);
        }
        Err(io::Error::other("leads out of the root"))
    }

    /// Reads a file of whatever name: at most `longest` bytes.
    ///
    /// # Errors
    /// As [`Self::place`] and [`bounded`].
    pub fn bytes(&self, path: &Path, longest: u64) -> io::Result<Vec<u8>> {
        bounded(&self.place(path)?, longest)
    }

    fn open(&self, path: &str) -> Result<File, Unread> {
        opened(&self.checked(path)?).map_err(|error| unread(path, &error))
    }

    /// The place of a path, which is below the root also where links lead elsewhere.
    fn checked(&self, path: &str) -> Result<PathBuf, Unread> {
        let place = self.path(path);
        let Some(inside) = &self.inside else { return Ok(place) };
        let real = place.canonicalize().map_err(|error| unread(path, &error))?;
        if real.starts_with(inside) {
            return Ok(real);
        }
        Err(Unread { path: shown(path), why: Why::Outside })
    }
}

/// Reads a file that may be anything: at most `longest` bytes, and without waiting for who writes to a
/// pipe.
///
/// # Errors
/// As the system refuses it; that it is no file.
pub fn bounded(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    opened(path)?.take(longest).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn opened(path: &Path) -> io::Result<File> {
    // A pipe that nobody writes to must not keep us.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(io::Error::from(rustix::io::Errno::ISDIR)),
        _ => Err(io::Error::other("no file")),
    }
}

/// A line that a file was expected to have.
pub fn no_line(path: &str, name: &str) -> Unread {
    Unread { path: shown(path), why: Why::NoLine(name.to_owned()) }
}

/// What a file was expected not to hold.
pub fn garbage(path: &str, text: &str) -> Unread {
    Unread { path: shown(path), why: Why::Garbage(text.chars().take(40).collect()) }
}

/// A path as it is told.
pub fn shown(path: &str) -> String {
    format!("/{path}")
}

fn unread(path: &str, error: &io::Error) -> Unread {
    let why = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
        io::ErrorKind::PermissionDenied => Why::Denied,
        io::ErrorKind::IsADirectory => Why::NoFile,
        _ if error.raw_os_error().is_none() => Why::NoFile,
        _ => Why::Error(errno::shown(error)),
    };
    Unread { path: shown(path), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn odd_files_tell_why_they_tell_nothing() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(root.path().join(name), bytes).unwrap();
        put("number", b" 0x1f\n");
        put("words", b"many \xff words");
        put("empty", b"");
        fs::create_dir(root.path().join("folder")).unwrap();
        symlink("/etc/passwd", root.path().join("out")).unwrap();
        symlink("number", root.path().join("link")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(root.path().join("pipe")).status();
        assert!(pipe.unwrap().success());
        let files = Files::below(Some(root.path())).unwrap();
        assert!(!files.live());
        assert_eq!((files.number("number"), files.number("link")), (Ok(31), Ok(31)));
        let why = |path| files.number(path).unwrap_err().why;
        assert_eq!(why("words"), Why::Garbage("many \u{fffd} words".to_owned()));
        assert_eq!(why("empty"), Why::Garbage(String::new()));
        assert_eq!(why("none"), Why::Missing);
        assert_eq!(why("number/below"), Why::Missing);
        assert_eq!(
            [why("folder"), why("pipe"), why("out")],
            [Why::NoFile, Why::NoFile, Why::Outside]
        );
        assert_eq!(files.text("none").unwrap_err().path, "/none");
        assert_eq!(files.lines("words"), Ok(0));
        // A part of it is not told as the whole.
        fs::File::create(root.path().join("long")).unwrap().set_len(10 << 30).unwrap();
        assert_eq!(files.lines("long").unwrap_err().why, Why::Long);
        assert_eq!(files.names("folder"), Ok(Vec::new()));
        assert_eq!(files.names("none").unwrap_err().why, Why::Missing);
    }

    #[test]
    fn names_that_are_no_text_are_left_out() {
        use std::os::unix::ffi::OsStrExt;
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("mlx5_0"), "").unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"mlx5_\xff");
        fs::write(root.path().join(odd), "").unwrap();
        let files = Files::below(Some(root.path())).unwrap();
        assert_eq!(files.names("."), Ok(vec!["mlx5_0".to_owned()]));
        assert!(Files::below(Some(&root.path().join("mlx5_0"))).is_err());
    }
}
