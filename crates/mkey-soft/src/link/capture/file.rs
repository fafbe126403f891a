//! Captures as files that tcpdump, Wireshark and others read.

use super::{Capture, Direction};
use mkey_wire::cooked::{self, Way};
use mkey_wire::pcap::{self, LinkType, Writer};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write, stderr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A capture in the format of libpcap, with times in nanoseconds: IP packets, each with who captured it,
/// its sender or its receiver (`LINKTYPE_LINUX_SLL`). Processes may add to one file at once: each packet
/// is one write at its end. So a packet between two of them is there twice, and can be told to be one.
#[derive(Debug)]
pub struct CaptureFile {
    file: File,
    /// It could not be written; nothing more is added then.
    failed: AtomicBool,
}

impl CaptureFile {
    /// Begins a capture. One that was there is begun anew, unless a process adds to it still: then it
    /// goes on.
    ///
    /// # Errors
    /// Those of opening the file and writing to it; `AlreadyExists` for a file that holds something
    /// else than such a capture, which stays as it is.
    pub fn create(path: &Path) -> io::Result<()> {
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            // A pipe, say, holds nothing yet.
            return Writer::new(File::create(path)?, LinkType::Cooked).map(drop);
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut head = Vec::new();
        Read::by_ref(&mut file).take(pcap::HEADER as u64).read_to_end(&mut head)?;
        if !head.is_empty() && !pcap::is_capture(&head) {
            let what = "this file is no capture, and stays as it is: name another";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if head == pcap::header(LinkType::Cooked) => {
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => {
                let what = "another program writes to this file: name another";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            // Not every file system has locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        file.set_len(0)?;
        Writer::new(file, LinkType::Cooked).map(drop)
    }

    /// Adds to a capture that was begun.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        // For `create`. It is held for a moment by one that begins; not every file system has it.
        let _ = file.lock_shared();
        Ok(Self { file, failed: AtomicBool::new(false) })
    }
}

impl Capture for CaptureFile {
    fn packet(&self, direction: Direction, packet: &[u8]) {
        if self.failed.load(Ordering::Relaxed) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let way = match direction {
            Direction::Sent => Way::Sent,
            Direction::Received => Way::Received,
        };
        // No lock, which a process may be forked with.
        let written =
            Writer::resume(&self.file).write(now, &[&cooked::header(way, packet), packet]);
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

    /// Bytes of a record before its packet.
    const BEFORE: usize = 16 + cooked::LEN;

    #[test]
    fn two_add_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        assert!(CaptureFile::append(&path).is_err(), "it was not begun");
        CaptureFile::create(&path).unwrap();
        let both = [(); 2].map(|()| CaptureFile::append(&path).unwrap());
        for (capture, packet) in both.iter().zip([[0x45; 30], [0x60; 30]]) {
            capture.packet(Direction::Sent, &packet);
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), pcap::HEADER + 2 * (BEFORE + 30));
        let first = pcap::HEADER + BEFORE;
        assert_eq!((bytes[first], bytes[first + 30 + BEFORE]), (0x45, 0x60));
    }

    #[test]
    fn who_captured_a_packet_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        CaptureFile::create(&path).unwrap();
        let capture = CaptureFile::append(&path).unwrap();
        capture.packet(Direction::Sent, &[0x45; 30]);
        capture.packet(Direction::Received, &[0x60; 30]);
        let bytes = std::fs::read(&path).unwrap();
        let ways = [pcap::HEADER + 16, pcap::HEADER + BEFORE + 30 + 16].map(|at| bytes[at + 1]);
        assert_eq!(ways, [4, 0]);
    }

    #[test]
    fn a_file_that_is_no_capture_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keep.txt");
        for text in ["x", "a text that somebody keeps, longer than a header"] {
            std::fs::write(&path, text).unwrap();
            let refused = CaptureFile::create(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_capture_is_begun_anew_unless_somebody_adds_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pcap");
        let length = || path.metadata().unwrap().len() as usize;
        CaptureFile::create(&path).unwrap();
        let capture = CaptureFile::append(&path).unwrap();
        capture.packet(Direction::Sent, &[0x45; 30]);
        CaptureFile::create(&path).unwrap();
        assert_eq!(length(), pcap::HEADER + BEFORE + 30, "somebody adds to it");
        drop(capture);
        CaptureFile::create(&path).unwrap();
        assert_eq!(length(), pcap::HEADER);
    }
}
