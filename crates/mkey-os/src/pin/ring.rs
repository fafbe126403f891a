//! Tables of io_uring registered buffers: the kernel's pin, one slot per span.
//!
//! A ring has one sparse table. Small spans go to tables of 16,384 slots, the most the kernel
//! takes. Wide ones (large, or in huge pages) go to small tables of their own: for each huge page
//! the kernel looks through the whole table, whether it has charged it already (0.35 ns a slot), and
//! it holds the ring's lock while it pins, so several such rings let threads pin large memory at
//! the same time. The first wide table has 64 slots; later ones, of which few programs see any,
//! are larger, so that many spans do not take many descriptors.

use crate::error::{Errno, OsError};
use io_uring::{IoUring, opcode, types};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Most bytes in one registered buffer.
pub(super) const MOST_BYTES: usize = 1 << 30;

/// Which table a span goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Small,
    Wide,
}

impl Class {
    /// Slots of the next table, if there are so many of this class.
    fn slots(self, tables: usize) -> u16 {
        match self {
            Self::Small => 16_384,
            Self::Wide => 64 << tables.min(4),
        }
    }
}

/// A slot of a ring's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    ring: u32,
    slot: u16,
}

/// All rings of a pinner.
#[derive(Debug, Default)]
pub(super) struct Rings {
    rings: Vec<Table>,
    /// Why no ring can be made in this process, ever.
    unavailable: Option<Errno>,
}

#[derive(Debug)]
struct Table {
    ring: Arc<Ring>,
    class: Class,
    free: Vec<u16>,
    /// Pins under way outside the pinner's lock.
    busy: u32,
}

impl Rings {
    /// Wide rings beyond this many are made only when the others are full.
    const WIDE_AT_ONCE: usize = 4;

    /// A free slot, and the ring it belongs to.
    pub(super) fn take(&mut self, class: Class) -> Result<Place, OsError> {
        let mut open = None;
        let mut count = 0;
        // The newest small table is the one with room; the oldest wide one is the quickest.
        for step in 0..self.rings.len() {
            let index = match class {
                Class::Small => self.rings.len() - 1 - step,
                Class::Wide => step,
            };
            if let Some(table) = self.rings.get(index).filter(|table| table.class == class) {
                count += 1;
                if !table.free.is_empty() {
                    open = Some(index);
                    if table.busy == 0 {
                        break;
                    }
                }
            }
        }
        let all_busy = open.and_then(|i| self.rings.get(i)).is_some_and(|table| table.busy > 0);
        let index = match open {
            Some(index) if !all_busy || class == Class::Small || count >= Self::WIDE_AT_ONCE => {
                index
            }
            _ => self.add(class)?,
        };
        let table = self.rings.get_mut(index).ok_or(OsError::new("io_uring", Errno::INVAL))?;
        let slot = table.free.pop().ok_or(OsError::new("io_uring", Errno::INVAL))?;
        Ok(Place { ring: index as u32, slot })
    }

    /// Returns a slot; it must be clear.
    pub(super) fn give_back(&mut self, place: Place) {
        if let Some(table) = self.rings.get_mut(place.ring as usize) {
            table.free.push(place.slot);
        }
    }

    pub(super) fn ring(&self, place: Place) -> Option<&Arc<Ring>> {
        self.rings.get(place.ring as usize).map(|table| &table.ring)
    }

    /// Notes that a pin of this ring runs outside the pinner's lock, or has ended.
    pub(super) fn set_busy(&mut self, place: Place, busy: bool) {
        if let Some(table) = self.rings.get_mut(place.ring as usize) {
            table.busy = if busy { table.busy + 1 } else { table.busy.saturating_sub(1) };
        }
    }

    fn add(&mut self, class: Class) -> Result<usize, OsError> {
        if let Some(errno) = self.unavailable {
            return Err(OsError::new("io_uring_setup", errno));
        }
        let slots = class.slots(self.rings.iter().filter(|table| table.class == class).count());
        let ring = Ring::new(slots).inspect_err(|error| {
            // Denied by a seccomp filter or by kernel.io_uring_disabled, or not compiled in, or
            // without sparse tables (before 5.19): none of it changes while the process lives.
            if matches!(error.errno, Errno::PERM | Errno::NOSYS | Errno::INVAL) {
                self.unavailable = Some(error.errno);
            }
        })?;
        let free = (0..slots).rev().collect();
        self.rings.push(Table { ring: Arc::new(ring), class, free, busy: 0 });
        Ok(self.rings.len() - 1)
    }
}

/// One ring with its table of buffers.
pub(super) struct Ring {
    uring: IoUring,
    /// For access through the pinned pages; made at first use.
    bounce: Mutex<Option<Bounce>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.uring.as_raw_fd()).finish()
    }
}

/// A file in memory from and to which the kernel copies the pinned pages.
struct Bounce {
    file: OwnedFd,
    view: View,
}

/// A shared mapping of the bounce file.
struct View(*mut u8);

// SAFETY: the view is used under the bounce's mutex only.
unsafe impl Send for View {}

impl Bounce {
    const SIZE: usize = 1 << 20;

    fn new() -> Result<Self, OsError> {
        let error = |call| move |errno| OsError::new(call, errno);
        let file = rustix::fs::memfd_create("mkey-bounce", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(error("memfd_create"))?;
        rustix::fs::ftruncate(&file, Self::SIZE as u64).map_err(error("ftruncate"))?;
        // SAFETY: a new mapping at an address the kernel chooses.
        let view = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                Self::SIZE,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }
        .map_err(error("mmap"))?;
        Ok(Self { file, view: View(view.cast()) })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped by `Bounce::new`, used only through this value.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), Bounce::SIZE) };
    }
}

/// Which way bytes go between the caller and the pinned pages.
pub(super) enum Transfer<'a> {
    /// From the pinned pages.
    Read(&'a mut [u8]),
    /// To the pinned pages.
    Write(&'a [u8]),
}

impl Ring {
    fn new(slots: u16) -> Result<Self, OsError> {
        let uring = IoUring::new(4).map_err(|error| OsError::from_io("io_uring_setup", &error))?;
        uring
            .submitter()
            .register_buffers_sparse(u32::from(slots))
            .map_err(|error| OsError::from_io("io_uring_register", &error))?;
        Ok(Self { uring, bounce: Mutex::new(None) })
    }

    /// Pins the pages of `range` into the slot.
    #[inline]
    pub(super) fn pin(&self, place: Place, range: &Range<usize>) -> Result<(), OsError> {
        self.update(place, range.start as *mut _, range.len())
    }

    /// Unpins what the slot holds.
    #[inline]
    pub(super) fn unpin(&self, place: Place) -> Result<(), OsError> {
        self.update(place, std::ptr::null_mut(), 0)
    }

    #[inline]
    fn update(
        &self,
        place: Place,
        iov_base: *mut libc::c_void,
        iov_len: usize,
    ) -> Result<(), OsError> {
        let buffer = [libc::iovec { iov_base, iov_len }];
        // SAFETY: the kernel pins the pages; what happens to the mapping afterwards cannot make
        // them invalid, and they are written only on behalf of whoever holds the guard.
        unsafe {
            self.uring.submitter().register_buffers_update(u32::from(place.slot), &buffer, None)
        }
        .map_err(|error| OsError::from_io("io_uring_register", &error))
    }

    /// Copies between the caller and the pinned pages of `place`, which were pinned at
    /// addresses that include `addr..addr + len`, whatever is mapped there now.
    pub(super) fn transfer(
        &self,
        place: Place,
        addr: usize,
        mut bytes: Transfer<'_>,
    ) -> Result<(), OsError> {
        let mut slot = self.bounce.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if slot.is_none() {
            *slot = Some(Bounce::new()?);
        }
        let Some(bounce) = slot.as_ref() else { return Err(OsError::new("mmap", Errno::NOMEM)) };
        let fd = types::Fd(bounce.file.as_raw_fd());
        let total = match &bytes {
            Transfer::Read(into) => into.len(),
            Transfer::Write(from) => from.len(),
        };
        let mut done = 0;
        while done < total {
            let len = (total - done).min(Bounce::SIZE);
            let at = addr.wrapping_add(done) as *mut u8;
            // A read of the file writes the pinned pages, and the other way round.
            let entry = match &bytes {
                Transfer::Write(from) => {
                    if let Some(part) = from.get(done..done + len) {
                        // SAFETY: the view is SIZE bytes long, `len` at most that, and we hold
                        // its lock.
                        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), bounce.view.0, len) };
                    }
                    opcode::ReadFixed::new(fd, at, len as u32, place.slot).offset(0).build()
                }
                Transfer::Read(_) => {
                    opcode::WriteFixed::new(fd, at, len as u32, place.slot).offset(0).build()
                }
            };
            let moved = self.run(&entry)?;
            if moved == 0 {
                return Err(OsError::new("io_uring_enter", Errno::IO));
            }
            let moved = moved.min(len);
            if let Transfer::Read(into) = &mut bytes
                && let Some(part) = into.get_mut(done..done + moved)
            {
                // SAFETY: as above, for reading.
                unsafe { std::ptr::copy_nonoverlapping(bounce.view.0, part.as_mut_ptr(), moved) };
            }
            done += moved;
        }
        Ok(())
    }

    /// Submits one entry and waits for it; the caller holds the bounce's lock, so the queues have
    /// one user.
    fn run(&self, entry: &io_uring::squeue::Entry) -> Result<usize, OsError> {
        const CALL: &str = "io_uring_enter";
        // SAFETY: only the holder of the bounce's lock touches the queues, and the buffer of the
        // entry stays pinned until the completion has been seen.
        unsafe {
            self.uring
                .submission_shared()
                .push(entry)
                .map_err(|_| OsError::new(CALL, Errno::BUSY))?;
        }
        loop {
            match self.uring.submitter().submit_and_wait(1) {
                Ok(_) => {}
                // The entry stays in the queue: it must be seen through before the next one.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                    ) => {}
                Err(error) => return Err(OsError::from_io(CALL, &error)),
            }
            // SAFETY: as above.
            if let Some(completion) = unsafe { self.uring.completion_shared() }.next() {
                return usize::try_from(completion.result()).map_err(|_| {
                    OsError::new(CALL, Errno::from_raw_os_error(-completion.result()))
                });
            }
        }
    }
}
