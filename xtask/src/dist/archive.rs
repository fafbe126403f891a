//! Archives that hold nothing of the machine they are made on: files are root's, dated as told, in
//! the order given.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder, write::GzEncoder};

use super::files::File;

/// A compressed tar archive of these files, each path after `prefix`; the folders come before what is in
/// them.
pub fn tar_gz(prefix: &str, files: &[File], time: u64) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(compressor());
    let mut folders = BTreeSet::new();
    for file in files {
        let path = format!("{prefix}{}", file.path);
        for (at, _) in path.match_indices('/') {
            let Some(above) = path.get(..=at) else { continue };
            if folders.insert(above.to_owned()) {
                let mut header = header(0o755, 0, time);
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, above, &[][..])?;
            }
        }
        let mut header = header(file.mode, file.bytes.len() as u64, time);
        tar.append_data(&mut header, &path, &*file.bytes).with_context(|| path.clone())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

fn header(mode: u32, size: u64, time: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// These bytes, compressed.
pub fn gz(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut compressor = compressor();
    compressor.write_all(bytes)?;
    Ok(compressor.finish()?)
}

/// It writes neither a name nor a time.
fn compressor() -> GzEncoder<Vec<u8>> {
    GzBuilder::new().mtime(0).write(Vec::new(), Compression::best())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;

    fn file(path: &str, mode: u32, bytes: &[u8]) -> File {
        File { path: path.into(), mode, bytes: bytes.into() }
    }

    #[test]
    fn what_is_packed_is_root_s_and_folders_come_first() {
        let files = [file("bin/a", 0o755, b"program"), file("share/x/b", 0o644, b"")];
        let packed = tar_gz("top-1.0/", &files, 77).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(&*packed));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 77));
            let path = entry.path().unwrap().display().to_string();
            (path, header.mode().unwrap(), header.size().unwrap())
        });
        let expected = [
            ("top-1.0/", 0o755, 0),
            ("top-1.0/bin/", 0o755, 0),
            ("top-1.0/bin/a", 0o755, 7),
            ("top-1.0/share/", 0o755, 0),
            ("top-1.0/share/x/", 0o755, 0),
            ("top-1.0/share/x/b", 0o644, 0),
        ];
        let expected = expected.map(|(path, mode, size)| (path.to_owned(), mode, size));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_same_files_make_the_same_archive() {
        let files = [file("bin/a", 0o755, b"program")];
        assert_eq!(tar_gz("t/", &files, 1).unwrap(), tar_gz("t/", &files, 1).unwrap());
        assert_ne!(tar_gz("t/", &files, 1).unwrap(), tar_gz("t/", &files, 2).unwrap());
    }
}
