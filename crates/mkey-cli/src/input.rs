//! Files that are read whole, up to a length.

use crate::exit::End;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file, or standard input if the path is "-". It is told of as `name`; what is longer than
/// `longest` bytes is longer than any `what`.
///
/// # Errors
/// `Failed` if it can not be read, or is longer.
pub fn read(path: &Path, name: &str, longest: u64, what: &str) -> Result<Vec<u8>, End> {
    let failed = |error: io::Error| End::failed(format!("{name}: {error}"));
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut bytes = Vec::new();
    input.take(longest + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > longest {
        return Err(End::failed(format!("{name}: longer than any {what}")));
    }
    Ok(bytes)
}
