//! Memory that is not the library's: mapped, unmapped, and mapped again at the same place.

use crate::numbers::{Random, filled, owners};
use mkey::Cache;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;

pub const LEN: usize = 32 << 10;

/// A mapping that is used by one thread, one use at a time.
pub struct Mapping {
    at: *mut c_void,
    /// What still uses it: the round and the number of posted work, or a grant.
    pub busy: Option<Busy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    Posted(u64),
    Granted,
}

// SAFETY: an address range of the process.
unsafe impl Send for Mapping {}

impl Mapping {
    pub fn new() -> Self {
        Self { at: map(null_mut(), MapFlags::empty()).expect("memory"), busy: None }
    }

    pub fn start(&self) -> *mut u8 {
        self.at.cast()
    }

    /// Writes `count` words at `offset`: the program's own use of its memory.
    pub fn fill(&self, offset: usize, count: usize, serial: u64) {
        assert!(self.busy.is_none() && offset + count * 8 <= LEN);
        let bytes = filled(0, count, |index| owners(serial, index));
        // SAFETY: within the mapping, which nothing else uses now; no reference to it is ever
        // made.
        unsafe { self.start().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Puts other pages in its place.
    pub fn remap(&mut self, cache: &Cache, random: &mut Random) {
        assert!(self.busy.is_none());
        if cache.invalidation() == mkey::Invalidation::Explicit {
            cache.invalidate(self.start(), LEN);
        }
        if random.one_in(2) {
            // SAFETY: the mapping is this one's, and nothing uses it.
            let again = unsafe { mmap_anonymous(self.at, LEN, PROT, PRIVATE | MapFlags::FIXED) };
            self.at = again.expect("mapped over");
            return;
        }
        self.unmap();
        // Somebody else may have mapped something there meanwhile.
        let again = map(self.at, MapFlags::FIXED_NOREPLACE);
        let again = again.or_else(|_| map(null_mut(), MapFlags::empty()));
        self.at = again.expect("memory");
    }

    fn unmap(&self) {
        // SAFETY: the mapping is this one's, and nothing uses it.
        unsafe { munmap(self.at, LEN) }.expect("unmapped");
    }
}

const PROT: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
const PRIVATE: MapFlags = MapFlags::PRIVATE;

fn map(at: *mut c_void, flags: MapFlags) -> rustix::io::Result<*mut c_void> {
    // SAFETY: a new mapping, where nothing is mapped.
    unsafe { mmap_anonymous(at, LEN, PROT, PRIVATE | flags) }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A use that nobody knows the end of keeps the memory.
        if self.busy.is_none() {
            self.unmap();
        }
    }
}
