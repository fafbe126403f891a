//! Captures as files that tcpdump, Wireshark and others read.

use super::{Capture, Direction};
use mkey_wire::pcap::{LinkType, Writer};
use std::fs::{File, OpenOptions};
use std::io::{self, Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A capture in the format of libpcap, with times in nanoseconds: IP packets. Processes may add to one
/// file at once: each packet is one write at its end.
#[derive(Debug)]
pub struct CaptureFile {
    file: File,
    /// It could not be written; nothing more is added then.
    failed: AtomicBool,
}

impl CaptureFile {
    /// Begins a capture: what the file held is gone.
    ///
    /// # Errors
    /// Those of creating the file and writing to it.
    pub fn create(path: &Path) -> io::Result<()> {
        Writer::new(File::create(path)?, LinkType::Raw).map(drop)
    }

    /// Adds to a capture that was begun.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { file, failed: AtomicBool::new(false) })
    }
}

impl Capture for CaptureFile {
    fn packet(&self, _: Direction, packet: &[u8]) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // No lock, which a process may be forked with.
        let written = Writer::resume(&self.file).write(now, &[packet]);
        if let Err(error) = written
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            // If standard error is closed there is nobody to tell.
            let _ = writeln!(stderr(), "mkey: nothing more is captured: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_add_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        assert!(CaptureFile::append(&path).is_err(), "it was not begun");
        std::fs::write(&path, [1; 1000]).unwrap();
        CaptureFile::create(&path).unwrap();
        let both = [(); 2].map(|()| CaptureFile::append(&path).unwrap());
        for (capture, packet) in both.iter().zip([[0x45; 30], [0x60; 30]]) {
            capture.packet(Direction::Sent, &packet);
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 24 + 2 * (16 + 30));
        assert_eq!((bytes[24 + 16], bytes[24 + 46 + 16]), (0x45, 0x60));
    }
}
