//! Files that are read whole, up to a length, or from their beginning to their end.

use crate::exit::End;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file that is being read, or standard input.
pub struct Opened {
    /// Where its bytes come from.
    pub bytes: Box<dyn Read>,
    /// How many bytes there are; 0 if nobody knows.
    pub length: u64,
}

/// Opens a file, or standard input if the path is "-". It is told of as `name`.
///
/// # Errors
/// `Failed` if it can not be opened.
pub fn open(path: &Path, name: &str) -> Result<Opened, End> {
    if path.as_os_str() == "-" {
        return Ok(Opened { bytes: Box::new(io::stdin().lock()), length: 0 });
    }
    let failed = |error: io::Error| End::failed(format!("{name}: {error}"));
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    Ok(Opened { bytes: Box::new(file), length })
}

/// Reads a file, or standard input if the path is "-". It is told of as `name`; what is longer than
/// `longest` bytes is longer than any `what`.
///
/// # Errors
/// `Failed` if it can not be read, or is longer.
pub fn read(path: &Path, name: &str, longest: u64, what: &str) -> Result<Vec<u8>, End> {
    let mut bytes = Vec::new();
    open(path, name)?
        .bytes
        .take(longest + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| End::failed(format!("{name}: {error}")))?;
    if bytes.len() as u64 > longest {
        return Err(End::failed(format!("{name}: longer than any {what}")));
    }
    Ok(bytes)
}
