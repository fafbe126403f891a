//! Small files of the kernel, below a root that need not be this system's.

use super::told::Told;
use crate::files::Files;
use crate::model::check::obeyed;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest file that is read; the kernel's are shorter by far.
const LONGEST: u64 = 64 << 10;
/// More than any folder of counters or ports holds.
const MOST_ENTRIES: usize = 4096;
/// How much of what is no number is shown.
const SHOWN: usize = 24;

/// A file whole, up to a length.
///
/// # Errors
/// As the system refuses it.
pub fn bytes(files: &Files, path: &Path) -> io::Result<Vec<u8>> {
    files.bytes(path, LONGEST)
}

/// The text of a file without blanks at its ends; what is no text, and what would steer a terminal, is
/// replaced.
///
/// # Errors
/// As the system refuses it.
pub fn text(files: &Files, path: &Path) -> io::Result<String> {
    bytes(files, path).map(|bytes| clean(&bytes))
}

/// A number alone in a file; why it can not be had names the file's fault, not its path.
pub fn number(files: &Files, path: &Path) -> Told<u64> {
    let text = match text(files, path) {
        Ok(text) => text,
        Err(error) => return Told::not(error),
    };
    text.parse().map_or_else(
        |_| {
            let mut shown: String = text.chars().take(SHOWN).collect();
            if shown.len() < text.len() {
                shown.push_str("...");
            }
            Told::not(format!("{shown:?} is no number"))
        },
        Told::Is,
    )
}

/// What is in a folder.
///
/// # Errors
/// As the system refuses it.
pub fn list(files: &Files, folder: &Path) -> io::Result<fs::ReadDir> {
    fs::read_dir(files.place(folder)?)
}

/// The names in a folder, sorted; nothing if it can not be listed.
pub fn names(files: &Files, folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = list(files, folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).take(MOST_ENTRIES).collect();
    names.sort();
    names
}

/// The numbers among the names in a folder, ascending: its processes or ports. All of them.
pub fn numbers(files: &Files, folder: &Path) -> Vec<u32> {
    let entries = list(files, folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// A file's name as it is shown.
pub fn shown(name: &OsStr) -> String {
    clean(name.as_bytes())
}

/// Bytes as they are shown, without blanks at their ends: what is not UTF-8 or would steer a terminal
/// is replaced.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let one = |c: char| if obeyed(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.trim().chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::below(Some(folder.path())).unwrap();
        let number = |name: &str| number(&files, Path::new(name));
        let path = folder.path().join("counter");
        for (content, told) in [
            (&b"17\n"[..], Told::Is(17)),
            (b"18446744073709551615\n", Told::Is(u64::MAX)),
            (b"18446744073709551616\n", Told::not("\"18446744073709551616\" is no number")),
            (b"N/A (no PMA)\n", Told::not("\"N/A (no PMA)\" is no number")),
            (b"", Told::not("\"\" is no number")),
            (b"-1\n", Told::not("\"-1\" is no number")),
            (b"\x1b[31m\xff", Told::not("\"\u{fffd}[31m\u{fffd}\" is no number")),
            ("x\u{202e}\u{9b}y".as_bytes(), Told::not("\"x\u{fffd}\u{fffd}y\" is no number")),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(number("counter"), told, "{content:?}");
        }
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert!(number("counter").why_not().unwrap().len() < 60);
        assert!(number("").why_not().unwrap().contains("directory"));
        assert!(number("gone").why_not().unwrap().contains("No such file"));
    }
}
