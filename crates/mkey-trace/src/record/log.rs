//! The file of this process, mapped: room is handed out by one counter, records are written in place.
//!
//! Pages are brought in ahead, in steps, by a call that can fail. A write into a page that the file system
//! has no room for would end the program instead.

use super::lock::Spin;
use super::memory;
use super::thread::Inside;
use crate::raw::{ALIGN, HEADER, Head, Header, Kind, MAGIC, Slot};
use bytemuck::Zeroable;
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

/// What is mapped at a time. Not the whole file at once: a program that locks all that it has mapped, or
/// may map only so much, sees little of it. No record lies across two.
const CHUNK: u64 = 4 << 20;
/// Chunks of a file, at most.
const CHUNKS: usize = 1024;
/// What is brought in at a time.
const STEP: u64 = 256 << 10;
/// The least that a file has.
const LEAST: u64 = STEP;
/// Files of one process (each `exec` begins another).
const FILES: u32 = 10_000;

/// The file.
pub struct Log {
    path: CString,
    /// The descriptor that it was made by, as long as the program does not close it, and the file that it is.
    kept: RawFd,
    same: (u64, u64),
    limit: u64,
    chunks: &'static [AtomicPtr<u8>],
    /// So many bytes from the beginning are mapped, and in memory.
    ready: AtomicU64,
    /// The file system has no room for more, or the address space.
    full: AtomicBool,
    grow: Spin<()>,
}

/// A record that is in the file for good, or a piece of memory like one.
pub struct Placed<T> {
    at: NonNull<T>,
    /// Its name.
    pub slot: Slot,
}

/// Room for a record, before it is one.
pub struct Room<'a, T> {
    at: NonNull<u8>,
    len: u32,
    slot: Slot,
    of: PhantomData<(&'a Log, T)>,
}

impl Log {
    /// Makes the file `PID-N.raw` in `folder`, and its header.
    ///
    /// # Errors
    /// As of the file system; `NOSPC` where not even a first step of it has room.
    pub fn create(folder: &Path, limit: u64) -> Result<Self, Errno> {
        let (file, path) = new_file(folder)?;
        let most = CHUNK * CHUNKS as u64;
        // Beyond this limit the kernel does not just refuse, it sends SIGXFSZ.
        let limit = match getrlimit(Resource::Fsize).current {
            Some(bytes) if bytes < LEAST => {
                let _ = fs::unlink(&path);
                return Err(Errno::FBIG);
            }
            Some(bytes) => limit.min(bytes),
            None => limit,
        };
        let limit = limit.clamp(LEAST, most) / HEADER as u64 * HEADER as u64;
        let Some(chunks) = memory::zeros::<AtomicPtr<u8>>(CHUNKS) else {
            let _ = fs::unlink(&path);
            return Err(Errno::NOMEM);
        };
        let Ok(same) = identity(&file) else {
            let _ = fs::unlink(&path);
            return Err(Errno::IO);
        };
        let log = Self {
            path,
            kept: keep(&file),
            same,
            limit,
            chunks,
            ready: AtomicU64::new(0),
            full: AtomicBool::new(false),
            grow: Spin::new(()),
        };
        if let Err(error) = fs::ftruncate(&file, limit) {
            let _ = fs::unlink(&log.path);
            return Err(error);
        }
        if !log.bring(HEADER as u64) {
            let _ = fs::unlink(&log.path);
            return Err(Errno::NOSPC);
        }
        Ok(log)
    }

    /// Fills the first page, which is zeros, in place: a thread may have little stack. `fill` gives all but
    /// what the log itself knows.
    pub fn begin(&self, fill: impl FnOnce(&mut Header)) {
        let Some(at) = self.address(0, HEADER) else { return };
        {
            // SAFETY: the first page is mapped and in memory since `create`, of a file that was empty, and any
            // bytes are a header; nothing else refers to it, as no other thread has been given the log.
            let header = unsafe { at.cast::<Header>().as_mut() };
            fill(header);
            header.magic = [0; 8];
            header.used = HEADER as u64;
            header.limit = self.limit;
        }
        // What can be told from any other file by its first bytes has all the others.
        self.header()
            .word::<{ offset_of!(Header, magic) }>()
            .store(u64::from_ne_bytes(MAGIC), Release);
    }

    /// The first page.
    pub fn header(&self) -> Placed<Header> {
        // `create` fails unless it is there.
        Placed { at: self.address(0, HEADER).map_or(NonNull::dangling(), NonNull::cast), slot: 0 }
    }

    /// Writes a record, whose head is made here, and what comes after it. `None`: there is no room, which
    /// is counted.
    pub fn write<T: Kind>(&self, fixed: T, tail: &[u8]) -> Option<Placed<T>> {
        let mut room = self.room::<T>(tail.len())?;
        let to = room.tail().get_mut(..tail.len())?;
        to.copy_from_slice(tail);
        Some(room.finish(fixed))
    }

    /// Takes room for a record with `tail` bytes after its fixed part. `None`: as of [`Log::write`].
    pub fn room<T: Kind>(&self, tail: usize) -> Option<Room<'_, T>> {
        let len =
            tail.checked_add(size_of::<T>()).and_then(|len| len.checked_next_multiple_of(ALIGN));
        let taken = len.and_then(|len| {
            let at = self.take(len as u64)?;
            Some((at, self.address(at, len)?, u32::try_from(len).ok()?))
        });
        let Some((at, address, len)) = taken else {
            self.header().word::<{ offset_of!(Header, lost) }>().fetch_add(1, Relaxed);
            return None;
        };
        let slot = (at / ALIGN as u64) as Slot;
        // SAFETY: `address` begins `len` bytes that are this record's alone, aligned to 64 bytes; a reader
        // of the file needs the length to pass over a record that never is whole.
        unsafe { AtomicU32::from_ptr(address.as_ptr().cast()) }.store(len, Relaxed);
        Some(Room { at: address, len, slot, of: PhantomData })
    }

    /// The record of a name that [`Log::write`] gave for this kind.
    #[inline]
    pub fn placed<T: Kind>(&self, slot: Slot) -> Option<Placed<T>> {
        if slot == 0 {
            return None;
        }
        let at = self.address(u64::from(slot) * ALIGN as u64, size_of::<T>())?;
        Some(Placed { at: at.cast(), slot })
    }

    /// The names of all records of a kind, from the first.
    pub fn all<T: Kind>(&self) -> impl Iterator<Item = Placed<T>> + '_ {
        let used = self.header().word::<{ offset_of!(Header, used) }>().load(Acquire);
        let mut at = HEADER as u64;
        std::iter::from_fn(move || {
            while at < used {
                let head = self.address(at, ALIGN)?.cast::<Head>();
                // SAFETY: a head lies in memory that is mapped for ever; both of its numbers are only ever
                // written by atomic stores.
                let (len, kind) = unsafe {
                    let head = head.as_ptr();
                    (
                        AtomicU32::from_ptr(&raw mut (*head).len),
                        AtomicU16::from_ptr(&raw mut (*head).kind),
                    )
                };
                let (kind, len) = (kind.load(Acquire), u64::from(len.load(Relaxed)));
                let slot = (at / ALIGN as u64) as Slot;
                at += len.max(ALIGN as u64);
                if kind == T::KIND {
                    return self.placed(slot);
                }
            }
            None
        })
    }

    /// Calls `f` with the file: opened anew, as a program may close what it has not opened itself and open
    /// something else by the same number; where that fails (it was confined since, or has no number left) the
    /// descriptor that was kept, if it still is the file.
    fn with_file<T>(&self, f: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        match reopen(&self.path) {
            Ok(file) if identity(&file) == Ok(self.same) => f(file.as_fd()),
            other => {
                let kept = self.kept().ok_or(other.err().unwrap_or(Errno::NOENT))?;
                f(kept)
            }
        }
    }

    /// The descriptor that was kept, if it still is the file.
    fn kept(&self) -> Option<BorrowedFd<'_>> {
        if self.kept < 0 {
            return None;
        }
        // SAFETY: it is not -1; whether it is open, and of what, is asked for before it is used.
        let kept = unsafe { BorrowedFd::borrow_raw(self.kept) };
        (identity(kept) == Ok(self.same)).then_some(kept)
    }

    /// In a forked child: what is written from now on goes nowhere, and never to the parent's file.
    ///
    /// # Safety
    /// The caller is the child's only thread.
    pub unsafe fn forked(&self) {
        if let Some(kept) = self.kept() {
            // SAFETY: it is this log's own, which does not use it any more here.
            unsafe { rustix::io::close(kept.as_raw_fd()) };
        }
        for chunk in self.chunks {
            let at = chunk.load(Acquire);
            if at.is_null() {
                continue;
            }
            let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
            // SAFETY: a whole mapping of this log's own is replaced by zeros, with the same rights; all
            // that refers to it are numbers of which any value will do, and no thread is amid one.
            let done = unsafe {
                mm::mmap_anonymous(
                    at.cast(),
                    CHUNK as usize,
                    ProtFlags::READ | ProtFlags::WRITE,
                    flags,
                )
            };
            debug_assert!(done.is_ok(), "replacing a mapping by one of the same size");
        }
    }

    /// Takes the next `len` bytes, a multiple of [`ALIGN`], that lie within one chunk: their offset.
    fn take(&self, len: u64) -> Option<u64> {
        if len > CHUNK {
            return None;
        }
        let used = self.header().word::<{ offset_of!(Header, used) }>();
        let mut seen = used.load(Relaxed);
        loop {
            let at = if seen % CHUNK + len > CHUNK { seen.next_multiple_of(CHUNK) } else { seen };
            let end = at.checked_add(len)?;
            if end > self.ready.load(Acquire) && !self.bring(end) {
                return None;
            }
            match used.compare_exchange_weak(seen, end, AcqRel, Relaxed) {
                Ok(_) => return Some(at),
                Err(now) => seen = now,
            }
        }
    }

    /// Where `len` bytes from offset `at` on are, if they lie in one chunk that is mapped. Offsets are those
    /// that [`Log::take`] gave, which are in memory.
    #[inline]
    fn address(&self, at: u64, len: usize) -> Option<NonNull<u8>> {
        let within = (at % CHUNK) as usize;
        if within + len > CHUNK as usize {
            return None;
        }
        let chunk = self.chunks.get((at / CHUNK) as usize)?.load(Acquire);
        // SAFETY: the chunk is mapped for ever, and the offset is less than its size.
        NonNull::new(chunk).map(|chunk| unsafe { chunk.add(within) })
    }

    /// Maps and brings in all up to offset `end`. Whether it is there.
    #[cold]
    fn bring(&self, end: u64) -> bool {
        if end > self.limit {
            return false;
        }
        // A signal handler that gives memory back meanwhile does not come here.
        let _inside = Inside::enter();
        let _held = self.grow.lock();
        loop {
            let ready = self.ready.load(Acquire);
            if ready >= end {
                return true;
            }
            if self.full.load(Relaxed) {
                return false;
            }
            let step = STEP.min(self.limit - ready);
            if self.bring_step(ready, step).is_err() {
                self.full.store(true, Relaxed);
                return false;
            }
            self.ready.store(ready + step, Release);
        }
    }

    fn bring_step(&self, from: u64, step: u64) -> Result<(), Errno> {
        let chunk = self.chunks.get((from / CHUNK) as usize).ok_or(Errno::NOSPC)?;
        if chunk.load(Relaxed).is_null() {
            if from > 0 {
                let room = |file: BorrowedFd<'_>| has_room(file).then_some(()).ok_or(Errno::NOSPC);
                self.with_file(room)?;
            }
            // Whole chunks, the last one too: what lies beyond the end of the file is never touched.
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
            let at = self.with_file(|file| unsafe {
                mm::mmap(
                    null_mut(),
                    CHUNK as usize,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED,
                    file,
                    from / CHUNK * CHUNK,
                )
            })?;
            chunk.store(at.cast(), Release);
        }
        // SAFETY: the offset is less than the size of the chunk, which is mapped.
        let at = unsafe { chunk.load(Relaxed).add((from % CHUNK) as usize) };
        // SAFETY: bringing pages in changes nothing in them.
        match unsafe { mm::madvise(at.cast(), step as usize, Advice::LinuxPopulateWrite) } {
            // Before Linux 5.14.
            Err(Errno::INVAL) => self.with_file(|file| allocate(file, from, step)),
            other => other,
        }
    }
}

impl<T> Clone for Placed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Placed<T> {}

// SAFETY: it is an address of memory that stays, reached by atomic operations alone.
unsafe impl<T> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Placed<T> {}

impl<T: Zeroable> Placed<T> {
    /// Memory that is like a record, but in no file: for what found no room there.
    pub fn nowhere() -> Option<Self> {
        let zeros = super::memory::zeros::<u64>(size_of::<T>().div_ceil(8))?;
        const { assert!(align_of::<T>() <= 64) };
        Some(Self { at: NonNull::from(zeros).cast(), slot: 0 })
    }
}

impl<T> Placed<T> {
    /// The number of 64 bits at an offset: `placed.word::<{ offset_of!(Mr, done) }>()`.
    #[inline(always)]
    pub fn word<const AT: usize>(self) -> &'static AtomicU64 {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= size_of::<T>()) };
        // SAFETY: the offset lies within the record and is aligned in it as the record is; the memory
        // stays, any bytes are a number, and all access to a record that is placed is atomic.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().byte_add(AT).cast()) }
    }

    /// The numbers of 64 bits from an offset on.
    #[inline(always)]
    pub fn words<const AT: usize, const COUNT: usize>(self) -> &'static [AtomicU64; COUNT] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 * COUNT <= size_of::<T>()) };
        // SAFETY: as of `word`; an array of atomics lies as the array of the numbers.
        unsafe { &*self.at.as_ptr().byte_add(AT).cast() }
    }

    /// The number of 32 bits at an offset.
    #[inline(always)]
    pub fn half<const AT: usize>(self) -> &'static AtomicU32 {
        const { assert!(AT.is_multiple_of(4) && AT + 4 <= size_of::<T>()) };
        // SAFETY: as of `word`.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().byte_add(AT).cast()) }
    }
}

impl<T: Kind> Placed<T> {
    /// It is none any more: a reader passes over it.
    pub fn withdraw(self) {
        const KIND: usize = offset_of!(Head, kind);
        // SAFETY: as of `word`; a record begins with its head.
        unsafe { AtomicU16::from_ptr(self.at.as_ptr().byte_add(KIND).cast()) }.store(0, Release);
    }
}

impl<T: Kind> Room<'_, T> {
    /// What comes after the fixed part: zeros up to a multiple of [`ALIGN`].
    pub fn tail(&mut self) -> &mut [u8] {
        let fixed = size_of::<T>();
        // SAFETY: the room is `len` bytes, at least those of the fixed part, that only this value reaches.
        unsafe {
            std::slice::from_raw_parts_mut(self.at.as_ptr().add(fixed), self.len as usize - fixed)
        }
    }

    /// Its record is whole with this fixed part, whose head is made here.
    pub fn finish(self, mut fixed: T) -> Placed<T> {
        const { assert!(size_of::<T>() >= size_of::<Head>()) };
        let head: [u8; size_of::<Head>()] =
            bytemuck::cast(Head { len: self.len, kind: 0, zero: 0 });
        if let Some(to) = bytemuck::bytes_of_mut(&mut fixed).get_mut(..size_of::<Head>()) {
            to.copy_from_slice(&head);
        }
        // SAFETY: the room has at least the bytes of a `T`, is aligned to 64, and only this value reaches
        // it; the head in it says the same length as before and still no kind.
        let kind = unsafe {
            self.at.cast::<T>().write(fixed);
            AtomicU16::from_ptr(self.at.as_ptr().add(offset_of!(Head, kind)).cast())
        };
        kind.store(T::KIND, Release);
        Placed { at: self.at.cast(), slot: self.slot }
    }
}

fn new_file(folder: &Path) -> Result<(OwnedFd, CString), Errno> {
    // The working directory may be another one when a chunk is mapped.
    let folder = std::path::absolute(folder).map_err(|_| Errno::NOENT)?;
    let pid = rustix::process::getpid().as_raw_nonzero();
    for number in 0..FILES {
        let mut name = String::new();
        write!(name, "{pid}-{number}.raw").map_err(|_| Errno::INVAL)?;
        let path =
            CString::new(folder.join(name).as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((file, path)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::EXIST)
}

/// The descriptor again, by a number that programs do not come to, if it may be so high; -1: there is none.
fn keep(file: &OwnedFd) -> RawFd {
    let kept = [900, 200, 3].into_iter().find_map(|least| fcntl_dupfd_cloexec(file, least).ok());
    kept.map_or(-1, IntoRawFd::into_raw_fd)
}

/// Which file it is.
fn identity(file: impl AsFd) -> Result<(u64, u64), Errno> {
    fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

fn reopen(path: &CStr) -> Result<OwnedFd, Errno> {
    fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}

/// Whether the file system has room to spare. The processes of a job share it: in memory with what the program
/// itself has there, which would be ended by a write that finds no room.
fn has_room(file: impl AsFd) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    /// Bytes that are left to others on disk.
    const SPARE: u64 = 64 << 20;
    let Ok(has) = fs::fstatvfs(&file) else { return true };
    let tenth = has.f_blocks.saturating_mul(has.f_frsize) / 10;
    let is_memory = fs::fstatfs(&file).is_ok_and(|about| about.f_type as u32 == TMPFS);
    let spare = if is_memory { tenth } else { tenth.min(SPARE) };
    has.f_bavail.saturating_mul(has.f_frsize) >= spare
}

/// Has the file system make room.
fn allocate(file: impl AsFd, from: u64, step: u64) -> Result<(), Errno> {
    // The limit may have been lowered since.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| from + step > most) {
        return Err(Errno::FBIG);
    }
    match fs::fallocate(&file, FallocateFlags::empty(), from, step) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = [0; 4096];
            for at in (from..from + step).step_by(zeros.len()) {
                if rustix::io::pwrite(&file, &zeros, at)? != zeros.len() {
                    return Err(Errno::NOSPC);
                }
            }
            Ok(())
        }
        other => other,
    }
}
