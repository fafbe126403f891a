//! The memory that two processes share: two rings, one for each direction, and what each lends.
#![allow(unsafe_code)]

use super::lease;
use super::ring::{Reading, Writing, footprint};
use mkey_os::file_mapping::FileMapping;
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of payload of a packet at most: the most whole pages that an IP packet could carry, so that
/// captures can show each packet as one.
pub(super) const MTU: u32 = 15 * 4096;
/// Of each ring.
const CAPACITY: usize = 1 << 20;
const RING: usize = footprint(CAPACITY);
/// The rings, and the leases of who has created it, and of the peer.
const SIZE: usize = 2 * RING + 2 * lease::FOOTPRINT;

/// Whoever has the file can not make it shorter, which would end a process that touches its memory.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Shared memory with one side of each ring.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) writing: Writing,
    pub(super) reading: Reading,
    /// Where the leases of this side stand, and those of the peer.
    pub(super) lending: usize,
    pub(super) borrowing: usize,
    /// Unmapped after the rings are gone.
    pub(super) memory: FileMapping,
}

impl Segment {
    /// New memory, and the file by which the peer gets it.
    pub(super) fn create() -> Option<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("mkey-link", flags).ok()?;
        rustix::fs::ftruncate(&file, SIZE as u64).ok()?;
        rustix::fs::fcntl_add_seals(&file, SEALS).ok()?;
        Some((Self::of(&file, true)?, file))
    }

    /// The memory that a peer has created.
    pub(super) fn open(file: OwnedFd) -> Option<Self> {
        let sealed = rustix::fs::fcntl_get_seals(&file).ok()?.contains(SEALS);
        let whole = FileMapping::size_of(file.as_fd()).ok()? == SIZE as u64;
        if sealed && whole { Self::of(&file, false) } else { None }
    }

    /// Who has created it writes to the first ring.
    fn of(file: &OwnedFd, created: bool) -> Option<Self> {
        let memory = FileMapping::new(file.as_fd(), 0, SIZE, true).ok()?;
        let range = memory.range();
        let middle = range.start.checked_add(RING)?;
        let end = middle.checked_add(RING)?;
        let (first, second) = (range.start..middle, middle..end);
        let leases = (end, end.checked_add(lease::FOOTPRINT)?);
        let (lending, borrowing) = if created { leases } else { (leases.1, leases.0) };
        let (writes, reads) = if created { (first, second) } else { (second, first) };
        // SAFETY: the rings are dropped before the memory, of which nobody else in this process has
        // the addresses; it is mapped shared, writable, and can not shrink.
        let (writing, reading) = unsafe { (Writing::new(writes)?, Reading::new(reads)?) };
        // The program may have made this while the thread slept, which has hung no bell here.
        reading.arrival_bell().hang();
        Some(Self { writing, reading, lending, borrowing, memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Bytes;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let (mut ours, file) = Segment::create().unwrap();
        let mut theirs = Segment::open(file).unwrap();
        let pass = |from: &mut Writing, to: &mut Reading, bytes: &[u8]| {
            from.room(bytes.len()).unwrap().unwrap().put(Bytes::of(bytes));
            assert_eq!(to.next(|bytes| bytes.to_vec()), Ok(None));
            assert!(from.commit(), "who reads new memory sleeps");
            assert_eq!(to.next(|bytes| bytes.to_vec()), Ok(Some(bytes.to_vec())));
        };
        pass(&mut ours.writing, &mut theirs.reading, b"there");
        pass(&mut theirs.writing, &mut ours.reading, b"back");
        assert!(ours.writing.longest() >= MTU as usize + 128);
    }

    #[test]
    fn memory_that_could_be_taken_away_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = |seals| {
            let file = rustix::fs::memfd_create("test", flags).unwrap();
            rustix::fs::ftruncate(&file, SIZE as u64).unwrap();
            rustix::fs::fcntl_add_seals(&file, seals).unwrap();
            file
        };
        assert!(Segment::open(file(SealFlags::GROW | SealFlags::SEAL)).is_none());
        assert!(Segment::open(file(SEALS)).is_some());
        let short = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&short, RING as u64).unwrap();
        rustix::fs::fcntl_add_seals(&short, SEALS).unwrap();
        assert!(Segment::open(short).is_none());
    }
}
