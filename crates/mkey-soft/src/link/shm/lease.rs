//! Memory that a process lends to a peer, so that the peer writes into it by itself (`--direct`).
//!
//! A WRITE to a process whose thread sleeps waits for that thread to wake. With a lease it does not: the
//! target has carried one WRITE out itself, has seen that it was allowed, and notes in memory that both
//! share what the sender may write to from now on: of one connection, by one key, the region that the key
//! is of. The sender then writes with the kernel's help into the memory of the target's process.
//!
//! **Taking back is exact.** All leases of a process are taken back at once, whenever anything ends that
//! one of them may rest on: a region is deregistered or registered anew, a queue pair changes, pages were
//! unmapped. Who takes back has first made what ends unusable for accesses of its own, then counts
//! [`Area::ended`] up, and waits until the sender, if it is in the middle of a copy, has done that one. A
//! sender says that it begins ([`Area::turn`]) before it looks at the count, so one of the two sees the
//! other. A lease names the count that it is good for, which its maker has read *before* it looked whether
//! the access is allowed: made too late, it never was good.
//!
//! **Who is waited for.** Deregistering and registering anew wait for such a copy however long it takes:
//! a peer may be stopped there, as by a debugger, or be writing a core. Who waits holds no lock, so others
//! are not held up. What ends a queue pair, and unmapping, do so for half a second ([`crate::drain`]), as
//! for accesses of this process's own that are stopped. A thread that goes in the middle of a copy while
//! its process stays, as when another one starts a new program, is marked by the kernel ([`copier`]).
//!
//! **Who is written to.** The sender opens the memory of the process once, as a file. That stays tied to
//! this program in this process: when either ends, writing fails, whoever has the number then. The file
//! writes through page protections, so only memory is lent whose unmapping is heard of.
//!
//! **What is trusted.** Both sides are of one user, and may write each other's memory anyway. A peer that
//! writes nonsense to what both share may have itself waited for, and may have its own leases hold longer.
#![allow(unsafe_code)]

mod copier;
mod lenders;
#[cfg(test)]
mod tests;

pub(crate) use lenders::{end, settle, settle_within};

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::core::generation;
use crate::link::{Borrow, Lend, Lent};
use crate::not_inherited::NotInherited;
use crate::sync::{lock, try_lock};
use copier::Copier;
use lenders::Peer;
use mkey_os::file_mapping::FileMapping;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Bytes of shared memory that the leases of one side take.
pub(super) const FOOTPRINT: usize = size_of::<Area>();
/// Connections of which there may be leases at once.
const PLACES: usize = 32;
/// Programs poll the last byte of what they wait for: what is longer than one word is stored in two
/// steps, the last word second.
const WORD: u64 = 8;

/// What a process lends to a peer, in memory that both have. All zeros: nothing.
#[repr(C, align(4096))]
struct Area {
    /// How often all of it was taken back. The lender's.
    ended: AtomicU64,
    /// The lender's process.
    lender: AtomicU32,
    /// The borrower's.
    turn: Turn,
    places: [Place; PLACES],
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Turn {
    /// Odd while the borrower looks or copies.
    count: AtomicU64,
    /// Who does so.
    copier: Copier,
}

/// One lease. Written by one thread at a time, and only read as a whole if `version` was the same even
/// number before and after.
#[repr(C, align(64))]
struct Place {
    version: AtomicU64,
    /// One more than the count of [`Area::ended`] that the lease is good for.
    term: AtomicU64,
    /// Sender's and target's queue pair.
    qps: AtomicU64,
    /// The connection, and the key.
    by: AtomicU64,
    /// What the key calls the region's first byte, and its bytes.
    address: AtomicU64,
    length: AtomicU64,
    /// Where it is in the lender's process.
    host: AtomicU64,
}

/// The lease as it was read.
struct Read {
    term: u64,
    qps: u64,
    by: u64,
    region: Lent,
}

impl Place {
    fn read(&self) -> Option<Read> {
        let before = self.version.load(Ordering::Acquire);
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let region =
            Lent { address: get(&self.address), length: get(&self.length), host: get(&self.host) };
        let read = Read { term: get(&self.term), qps: get(&self.qps), by: get(&self.by), region };
        fence(Ordering::Acquire);
        (before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before).then_some(read)
    }

    fn write(&self, term: u64, lend: &Lend, region: &Lent) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(version, Ordering::Relaxed);
        fence(Ordering::Release);
        let set = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        set(&self.term, term);
        set(&self.qps, qps(lend));
        set(&self.by, by(lend));
        set(&self.address, region.address);
        set(&self.length, region.length);
        set(&self.host, region.host);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

fn qps(lend: &Lend) -> u64 {
    u64::from(lend.from_qp) | u64::from(lend.to_qp) << 32
}

fn by(lend: &Lend) -> u64 {
    u64::from(lend.connection) | u64::from(lend.rkey) << 32
}

impl Area {
    /// The one place that a connection has.
    fn place(&self, lend: &Lend) -> Option<&Place> {
        let mixed = lend.from_qp.wrapping_mul(0x9e37_79b9) ^ lend.to_qp;
        self.places.get(mixed as usize % PLACES)
    }

    /// Where the borrower may write these bytes now.
    fn good_for(&self, lend: &Lend, address: u64, length: u64) -> Option<u64> {
        let Read { term, qps: q, by: b, region } = self.place(lend)?.read()?;
        let is_good = term == self.ended.load(Ordering::Relaxed).wrapping_add(1);
        let offset = address.checked_sub(region.address)?;
        let fits = region.length.checked_sub(offset).is_some_and(|room| length <= room);
        (is_good && fits && (q, b) == (qps(lend), by(lend)))
            .then(|| region.host.checked_add(offset))?
    }

    fn take_back(&self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// The copy that the borrower is in the middle of, if its thread is there still. Looked at after a
    /// fence; another number is another copy, which begins by looking at what was taken back.
    fn copies(&self) -> Option<u64> {
        let turn = self.turn.count.load(Ordering::Acquire);
        (turn % 2 == 1 && self.turn.copier.is_there()).then_some(turn)
    }
}

/// This process as it lends to one peer.
#[derive(Debug)]
pub(super) struct Lending {
    area: NonNull<Area>,
    memory: Arc<FileMapping>,
    /// The peer's process; without one nothing is lent.
    process: Option<Arc<OwnedFd>>,
    /// Held by who makes a lease; whether it has begun to.
    making: Mutex<bool>,
    born: u32,
}

// SAFETY: the area consists of atomics, and is mapped for as long as this is.
unsafe impl Send for Lending {}
// SAFETY: as above.
unsafe impl Sync for Lending {}

impl Lending {
    /// On an area of [`FOOTPRINT`] bytes at this address.
    ///
    /// # Safety
    /// It is a page's start in the memory, which is mapped shared and writable.
    pub(super) unsafe fn new(
        area: usize,
        memory: &Arc<FileMapping>,
        process: Option<&Arc<OwnedFd>>,
    ) -> Option<Self> {
        let area = NonNull::new(area as *mut Area)?;
        let (memory, process) = (memory.clone(), process.cloned());
        Some(Self { area, memory, process, making: Mutex::new(false), born: generation() })
    }

    fn area(&self) -> &Area {
        // SAFETY: the contract of `new`; atomics only.
        unsafe { self.area.as_ref() }
    }

    /// Lends the region that `allowed` finds, if it finds the access allowed.
    pub(super) fn lend(
        &self,
        lend: &Lend,
        address: u64,
        length: u64,
        allowed: &mut dyn FnMut() -> Option<Lent>,
    ) {
        if self.area().good_for(lend, address, length).is_some() {
            return;
        }
        let mut lends = lock(&self.making);
        if !*lends {
            *lends = self.begin();
        }
        if !*lends {
            return;
        }
        let term = self.area().ended.load(Ordering::SeqCst).wrapping_add(1);
        fence(Ordering::SeqCst);
        if let Some(region) = allowed()
            && let Some(place) = self.area().place(lend)
        {
            place.write(term, lend, &region);
        }
    }

    /// Joins those whose leases are taken back; false if there is no place, or a peer's end would not
    /// be seen.
    fn begin(&self) -> bool {
        let Some(process) = &self.process else { return false };
        self.area().lender.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the contract of `new`.
        let joined = lenders::join(unsafe { Peer::new(self.area, &self.memory, process) });
        if joined {
            allow_writers();
        }
        joined
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        // A forked child has locks that nobody opens.
        if self.born == generation() && *lock(&self.making) {
            lenders::leave(self.area);
        }
    }
}

/// Where the kernel lets only ancestors write to a process (Yama's `ptrace_scope` 1), all processes of
/// the same user may write to this one from now on, as without that setting.
fn allow_writers() {
    // SAFETY: sets a number of this process. Without Yama it is refused, and not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// This process as it borrows from one peer.
#[derive(Debug)]
pub(super) struct Borrowing {
    area: NonNull<Area>,
    /// The peer's process as the socket tells.
    pid: Option<u32>,
    /// Its memory, once it was asked for.
    memory: Mutex<Option<NotInherited>>,
    /// The system does not let us have it.
    refused: AtomicBool,
    _memory: Arc<FileMapping>,
}

// SAFETY: as of `Lending`.
unsafe impl Send for Borrowing {}
// SAFETY: as above.
unsafe impl Sync for Borrowing {}

impl Borrowing {
    /// On an area of [`FOOTPRINT`] bytes at this address.
    ///
    /// # Safety
    /// As of [`Lending::new`].
    pub(super) unsafe fn new(
        area: usize,
        memory: &Arc<FileMapping>,
        pid: Option<u32>,
    ) -> Option<Self> {
        Some(Self {
            area: NonNull::new(area as *mut Area)?,
            pid,
            memory: Mutex::default(),
            refused: AtomicBool::new(false),
            _memory: memory.clone(),
        })
    }

    fn area(&self) -> &Area {
        // SAFETY: the contract of `new`; atomics only.
        unsafe { self.area.as_ref() }
    }

    /// Whether there is a lease for these bytes, at a glance.
    pub(super) fn is_lent(&self, borrow: &Borrow) -> bool {
        self.area().good_for(&borrow.lend, borrow.address, borrow.length).is_some()
            && !self.refused.load(Ordering::Relaxed)
    }

    /// Writes the bytes from `source` on where they belong; whether all were written. What has no lease
    /// is not written, nor what would have to wait for another thread's; what failed may have been written
    /// in part. `lives` says whether the process is there still that the socket tells of.
    ///
    /// # Safety
    /// `source` is the start of as many bytes as `borrow` says, or of none that can be read.
    pub(super) unsafe fn write(
        &self,
        borrow: &Borrow,
        source: *const u8,
        lives: impl Fn() -> bool,
    ) -> bool {
        // SAFETY: the caller's.
        unsafe { self.write_then(borrow, source, lives, || ()) }
    }

    /// The same; `looked` is called between the look at the lease and the copy.
    ///
    /// # Safety
    /// As of [`Borrowing::write`].
    unsafe fn write_then(
        &self,
        borrow: &Borrow,
        source: *const u8,
        lives: impl Fn() -> bool,
        looked: impl FnOnce(),
    ) -> bool {
        // One at a time: who takes back waits for one.
        let Some(mut memory) = try_lock(&self.memory) else { return false };
        if memory.is_none() {
            *memory = self.open(lives);
        }
        let Some(memory) = &*memory else { return false };
        let Turn { count, copier } = &self.area().turn;
        let copy = || {
            count.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let host = self.area().good_for(&borrow.lend, borrow.address, borrow.length);
            looked();
            // SAFETY: the caller's.
            let done =
                host.is_some_and(|host| unsafe { store(memory, host, source, borrow.length) });
            count.fetch_add(1, Ordering::Release);
            done
        };
        copier.during(copy).unwrap_or(false)
    }

    fn open(&self, lives: impl Fn() -> bool) -> Option<NotInherited> {
        let refuse = || self.refused.store(true, Ordering::Relaxed);
        let lender = self.area().lender.load(Ordering::Relaxed);
        // Nothing was lent yet.
        if lender == 0 {
            return None;
        }
        // In another namespace of processes it is somebody else.
        let Some(pid) = self.pid.filter(|&pid| lender == pid) else {
            refuse();
            return None;
        };
        let opened = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem"));
        if let Err(error) = &opened
            && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound)
        {
            refuse();
        }
        // It lived after its number was looked up, so that was its.
        opened.ok().filter(|_| lives()).map(|file| NotInherited::new(file.into()))
    }
}

/// Stores bytes into the memory of a process, the last word last.
///
/// # Safety
/// As of [`Borrowing::write`].
unsafe fn store(memory: &NotInherited, host: u64, source: *const u8, length: u64) -> bool {
    let end = host.saturating_add(length);
    let last = match length <= WORD && host / WORD == (end - 1) / WORD {
        true => host,
        false => host.max((end - 1) / WORD * WORD),
    };
    let part = |from: u64, to: u64| libc::iovec {
        iov_base: source.wrapping_add((from - host) as usize).cast_mut().cast(),
        iov_len: (to - from) as usize,
    };
    let parts = [part(host, last), part(last, end)];
    let Ok(at) = libc::off_t::try_from(host) else { return false };
    // By its number: the C library's function of that name is a place where threads are cancelled.
    // SAFETY: the kernel reads the bytes, and answers with an error where it can not.
    let written = unsafe {
        libc::syscall(
            libc::SYS_pwritev,
            memory.as_fd().as_raw_fd(),
            parts.as_ptr(),
            parts.len(),
            at,
            0,
        )
    };
    u64::try_from(written) == Ok(length)
}
