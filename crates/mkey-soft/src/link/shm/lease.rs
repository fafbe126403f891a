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
//! **Who is written to.** The sender opens the memory of the process once, as a file. That stays tied to
//! this program in this process: when either ends, writing fails, whoever has the number then. A sender
//! that ends in the middle of a copy is seen to have ended by its process descriptor; one that is stopped
//! there, as by a debugger, is waited for.
#![allow(unsafe_code)]

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::core::generation;
use crate::link::{Borrow, Lend, Lent};
use crate::sync::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of shared memory that the leases of one side take.
pub(super) const FOOTPRINT: usize = size_of::<Area>();
/// Connections of which there may be leases at once.
const PLACES: usize = 32;
/// Peers that a process lends to at once; others get no leases.
const PEERS: usize = 64;
/// Looks at a sender that is in the middle of a copy before it is left alone for [`NAP`] between looks.
const LOOKS: u32 = 256;
const NAP: Duration = Duration::from_micros(50);
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
    /// Odd while the borrower looks or copies. The borrower's.
    turn: Turn,
    places: [Place; PLACES],
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Turn(AtomicU64);

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

    /// Waits until a copy that has begun is done, or `has_ended` says that nobody does it any more.
    fn await_quiet(&self, has_ended: impl Fn() -> bool) {
        fence(Ordering::SeqCst);
        let turn = self.turn.0.load(Ordering::Acquire);
        let mut looks = 0u32;
        while turn % 2 == 1 && self.turn.0.load(Ordering::Acquire) == turn && !has_ended() {
            looks = looks.saturating_add(1);
            match looks < LOOKS {
                true => std::thread::yield_now(),
                false => std::thread::sleep(NAP),
            }
        }
    }
}

/// This process as it lends to one peer.
#[derive(Debug)]
pub(super) struct Lending {
    area: NonNull<Area>,
    /// The peer's process; without one nothing is lent.
    process: Option<RawFd>,
    /// Held by who makes a lease.
    making: Mutex<bool>,
}

// SAFETY: the area consists of atomics, and is mapped for as long as this is.
unsafe impl Send for Lending {}
// SAFETY: as above.
unsafe impl Sync for Lending {}

/// Whom this process lends to.
static LENDERS: Mutex<Lenders> = Mutex::new(Lenders { peers: [const { None }; PEERS] });
/// How many they are.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Of which generation of this process they are: a forked child lends nothing, and must not take back
/// what its parent lends.
static BORN: AtomicU32 = AtomicU32::new(0);

/// Nothing is allocated or freed while it is locked: who waits for it may hold the allocator up.
struct Lenders {
    peers: [Option<Peer>; PEERS],
}

struct Peer {
    area: NonNull<Area>,
    process: RawFd,
}

// SAFETY: as of `Lending`, which takes it out before the area goes.
unsafe impl Send for Peer {}

impl Peer {
    fn area(&self) -> &Area {
        // SAFETY: mapped until `Lending` is dropped, which takes this out first; atomics only.
        unsafe { self.area.as_ref() }
    }

    fn has_ended(&self) -> bool {
        has_ended(self.process)
    }
}

/// Takes back all that this process lends, without waiting for copies that have begun. Whatever has
/// ended is to be unusable for this process's own accesses before.
pub(crate) fn end() {
    each(Area::take_back);
}

/// The same, and waits for copies that have begun: on return no peer writes by a lease that was made
/// before. Allocates nothing.
pub(crate) fn settle() {
    fence(Ordering::SeqCst);
    if !is_lending() {
        return;
    }
    let lenders = lock(&LENDERS);
    for peer in lenders.peers.iter().flatten() {
        peer.area().take_back();
    }
    for peer in lenders.peers.iter().flatten() {
        peer.area().await_quiet(|| peer.has_ended());
    }
}

fn each(act: impl Fn(&Area)) {
    // Who begins to lend counts itself first and then looks at what may have ended.
    fence(Ordering::SeqCst);
    if is_lending() {
        lock(&LENDERS).peers.iter().flatten().for_each(|peer| act(peer.area()));
    }
}

#[inline]
fn is_lending() -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && BORN.load(Ordering::Relaxed) == generation()
}

impl Lending {
    /// On an area of [`FOOTPRINT`] bytes at this address.
    ///
    /// # Safety
    /// It is a page's start, mapped shared and writable until this is dropped; `process` is open until
    /// then.
    pub(super) unsafe fn new(area: usize, process: Option<&OwnedFd>) -> Option<Self> {
        let area = NonNull::new(area as *mut Area)?;
        Some(Self { area, process: process.map(AsRawFd::as_raw_fd), making: Mutex::new(false) })
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
        let Some(process) = self.process else { return false };
        let born = generation();
        if COUNT.load(Ordering::Relaxed) > 0 && BORN.load(Ordering::Relaxed) != born {
            // A forked child: what is here is its parent's.
            return false;
        }
        let mut lenders = lock(&LENDERS);
        let Some(place) = lenders.peers.iter_mut().find(|place| place.is_none()) else {
            return false;
        };
        *place = Some(Peer { area: self.area, process });
        BORN.store(born, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::SeqCst);
        self.area().lender.store(std::process::id(), Ordering::Relaxed);
        allow_writers();
        true
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        // A forked child has locks that nobody opens.
        if BORN.load(Ordering::Relaxed) != generation() || !*lock(&self.making) {
            return;
        }
        let mut lenders = lock(&LENDERS);
        let is_this =
            |place: &&mut Option<Peer>| place.as_ref().is_some_and(|peer| peer.area == self.area);
        if let Some(place) = lenders.peers.iter_mut().find(is_this) {
            // The peer has the memory still.
            self.area().take_back();
            if let Some(peer) = place.take() {
                self.area().await_quiet(|| peer.has_ended());
            }
            COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Where the kernel lets only ancestors write to a process (Yama's `ptrace_scope` 1), all processes of
/// the same user may write to this one from now on, as without that setting.
fn allow_writers() {
    // SAFETY: sets a number of this process. Without Yama it is refused, and not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

fn has_ended(process: RawFd) -> bool {
    // SAFETY: the contract of `Lending::new`: it is open.
    let process = unsafe { BorrowedFd::borrow_raw(process) };
    let mut ready = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// This process as it borrows from one peer.
#[derive(Debug)]
pub(super) struct Borrowing {
    area: NonNull<Area>,
    /// The peer's process as the socket tells.
    pid: Option<u32>,
    /// Its memory, once it was asked for.
    memory: Mutex<Option<Option<File>>>,
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
    pub(super) unsafe fn new(area: usize, pid: Option<u32>) -> Option<Self> {
        Some(Self { area: NonNull::new(area as *mut Area)?, pid, memory: Mutex::default() })
    }

    fn area(&self) -> &Area {
        // SAFETY: the contract of `new`; atomics only.
        unsafe { self.area.as_ref() }
    }

    /// Whether there is a lease for these bytes, at a glance.
    pub(super) fn is_lent(&self, borrow: &Borrow) -> bool {
        self.area().good_for(&borrow.lend, borrow.address, borrow.length).is_some()
    }

    /// Writes the bytes from `source` on where they belong; whether all were written. What has no lease
    /// is not written; what failed may have been written in part. `lives` says whether the process is
    /// there still that the socket tells of.
    ///
    /// # Safety
    /// `source` is the start of as many bytes as `borrow` says, or of none that can be read.
    pub(super) unsafe fn write(
        &self,
        borrow: &Borrow,
        source: *const u8,
        lives: impl Fn() -> bool,
    ) -> bool {
        // One at a time: who takes back waits for one.
        let mut memory = lock(&self.memory);
        let memory = memory.get_or_insert_with(|| self.open(lives));
        let Some(memory) = memory else { return false };
        let turn = &self.area().turn.0;
        turn.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let host = self.area().good_for(&borrow.lend, borrow.address, borrow.length);
        // SAFETY: the caller's.
        let done = host.is_some_and(|host| unsafe { store(memory, host, source, borrow.length) });
        turn.fetch_add(1, Ordering::Release);
        done
    }

    fn open(&self, lives: impl Fn() -> bool) -> Option<File> {
        let pid = self.pid?;
        // In another namespace of processes it is somebody else.
        if self.area().lender.load(Ordering::Relaxed) != pid {
            return None;
        }
        let file = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).ok()?;
        // It lived after its number was looked up, so that was its.
        lives().then_some(file)
    }
}

/// Stores bytes into the memory of a process, the last word last.
///
/// # Safety
/// As of [`Borrowing::write`].
unsafe fn store(memory: &File, host: u64, source: *const u8, length: u64) -> bool {
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
        libc::syscall(libc::SYS_pwritev, memory.as_raw_fd(), parts.as_ptr(), parts.len(), at, 0)
    };
    u64::try_from(written) == Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::shm::segment::Segment;
    use std::process::{Child, Command};
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    /// Rounds at least.
    const ENOUGH: u64 = 20;
    const LEND: Lend = Lend { from_qp: 17, connection: 1, to_qp: 18, rkey: 99 };

    /// Both sides in this process, which lends to itself.
    struct Both {
        lending: Lending,
        borrowing: Borrowing,
        _process: OwnedFd,
        _memory: Segment,
    }

    fn pidfd(pid: u32) -> OwnedFd {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
    }

    /// The peer's process only has to be there.
    fn both(process: OwnedFd) -> Both {
        let (memory, _) = Segment::create().unwrap();
        // SAFETY: the area is of the memory, and the descriptor goes last, too.
        let (lending, borrowing) = unsafe {
            (
                Lending::new(memory.lending, Some(&process)).unwrap(),
                Borrowing::new(memory.lending, Some(std::process::id())).unwrap(),
            )
        };
        Both { lending, borrowing, _process: process, _memory: memory }
    }

    fn to_itself() -> Both {
        both(pidfd(std::process::id()))
    }

    impl Both {
        /// Lends `region`, as 1000 and so on, until nobody else in this process has taken that back.
        fn lend(&self, region: &mut [u8]) {
            let (length, host) = (region.len() as u64, region.as_mut_ptr() as u64);
            let mut lent = || Some(Lent { address: 1000, length, host });
            while !self.borrowing.is_lent(&borrow(LEND, 1000, length)) {
                self.lending.lend(&LEND, 1000, length, &mut lent);
            }
        }

        fn write(&self, borrow: &Borrow, source: &[u8]) -> bool {
            assert_eq!(source.len() as u64, borrow.length);
            // SAFETY: so many bytes.
            unsafe { self.borrowing.write(borrow, source.as_ptr(), || true) }
        }
    }

    fn borrow(lend: Lend, address: u64, length: u64) -> Borrow {
        Borrow { lend, address, length }
    }

    #[test]
    fn what_is_lent_is_written_and_nothing_else() {
        let both = to_itself();
        for start in 0..9 {
            for length in (1..40).chain([200, 4096, 5000]) {
                let mut room = vec![0u8; 6000];
                let source: Vec<u8> = (0..length).map(|at| at as u8 | 1).collect();
                let whole = borrow(LEND, 1000 + start, length as u64);
                // Others of this process may take back what is lent just now.
                loop {
                    both.lend(&mut room);
                    if both.write(&whole, &source) {
                        break;
                    }
                }
                let end = start as usize + length;
                assert_eq!(room[start as usize..end], source);
                assert!(room[..start as usize].iter().chain(&room[end..]).all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn what_differs_in_anything_is_not_lent() {
        let both = to_itself();
        let mut room = [0u8; 64];
        both.lend(&mut room);
        let others = [
            borrow(LEND, 999, 8),
            borrow(LEND, 1000, 65),
            borrow(LEND, 1063, 2),
            borrow(LEND, 1064, 1),
            borrow(LEND, u64::MAX, 8),
            borrow(LEND, 1008, u64::MAX),
            borrow(Lend { from_qp: 1, ..LEND }, 1000, 8),
            borrow(Lend { to_qp: 1, ..LEND }, 1000, 8),
            borrow(Lend { rkey: 1, ..LEND }, 1000, 8),
            borrow(Lend { connection: 2, ..LEND }, 1000, 8),
        ];
        for other in others {
            assert!(!both.borrowing.is_lent(&other), "{other:?}");
        }
        assert!(!both.write(&borrow(Lend { connection: 2, ..LEND }, 1000, 8), &[1; 8]));
        settle();
        assert!(!both.write(&borrow(LEND, 1000, 8), &[1; 8]));
        assert_eq!(room, [0; 64]);
    }

    /// Something ends while its maker looks whether the access is allowed: the lease was never good.
    #[test]
    fn a_lease_that_is_made_too_late_is_good_for_nothing() {
        let both = to_itself();
        let mut room = [0u8; 64];
        let host = room.as_mut_ptr() as u64;
        both.lending.lend(&LEND, 1000, 8, &mut || {
            end();
            Some(Lent { address: 1000, length: 64, host })
        });
        assert!(!both.borrowing.is_lent(&borrow(LEND, 1000, 8)));
        assert!(!both.write(&borrow(LEND, 1000, 8), &[1; 8]));
        assert_eq!(room, [0; 64]);
    }

    /// A sender writes on and on; after each `settle` the memory is its owner's again.
    #[test]
    fn nothing_is_written_after_what_was_lent_was_taken_back() {
        let both = to_itself();
        let mut room = vec![0u8; 32 << 10];
        let (length, host) = (room.len() as u64, room.as_mut_ptr() as u64);
        let stop = AtomicBool::new(false);
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let source = vec![0xee; length as usize];
                while !stop.load(Ordering::Relaxed) {
                    let done = both.write(&borrow(LEND, 1000, length), &source);
                    written.fetch_add(u64::from(done), Ordering::Relaxed);
                }
            });
            let _stop = Stop(&stop);
            let begun = Instant::now();
            for round in 0..300 {
                // On a machine that is busy, each waits for the other to have its turn.
                if round >= ENOUGH && begun.elapsed() > Duration::from_secs(5) {
                    break;
                }
                let before = written.load(Ordering::Relaxed);
                while written.load(Ordering::Relaxed) == before {
                    let mut lent = || Some(Lent { address: 1000, length, host });
                    both.lending.lend(&LEND, 1000, length, &mut lent);
                    std::thread::yield_now();
                }
                settle();
                let (first, last) = (host as *mut u8, (host + length - 1) as *mut u8);
                for _ in 0..200 {
                    for byte in [first, last] {
                        // SAFETY: of `room`, which nobody else has a reference to now.
                        unsafe { byte.write_volatile(0x5a) };
                    }
                    std::hint::spin_loop();
                    // SAFETY: as above.
                    let seen = unsafe { (first.read_volatile(), last.read_volatile()) };
                    assert_eq!(seen, (0x5a, 0x5a), "written to after it was taken back");
                }
            }
        });
        assert!(written.load(Ordering::Relaxed) >= ENOUGH);
        drop(room);
    }

    /// Ends the other thread, also when this one fails.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// A sender that has ended in the middle of a copy is not waited for; one that lives is.
    #[test]
    fn who_ended_in_the_middle_is_not_waited_for() {
        let mut peer = sleeper();
        let both = both(pidfd(peer.id()));
        let mut room = [0u8; 64];
        both.lend(&mut room);
        both.borrowing.area().turn.0.store(1, Ordering::Relaxed);
        let settled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                settle();
                settled.store(true, Ordering::Release);
            });
            // It is taken back at once, unless another test of this process waits for the same.
            while both.borrowing.is_lent(&borrow(LEND, 1000, 8)) && LENDERS.try_lock().is_ok() {
                std::thread::yield_now();
            }
            assert!(!settled.load(Ordering::Acquire), "the sender lives, and its copy is not done");
            peer.kill().unwrap();
        });
        assert!(settled.load(Ordering::Acquire));
        peer.wait().unwrap();
    }

    #[test]
    fn nothing_is_lent_to_who_can_not_be_waited_for_and_nothing_is_written_to_another() {
        let (memory, _) = Segment::create().unwrap();
        // SAFETY: the area is of the memory, which goes last.
        let lending = unsafe { Lending::new(memory.lending, None).unwrap() };
        lending.lend(&LEND, 1000, 8, &mut || panic!("asked without need"));

        let both = to_itself();
        let mut room = [0u8; 64];
        both.lend(&mut room);
        for pid in [None, Some(1)] {
            // SAFETY: as above.
            let borrowing = unsafe { Borrowing::new(both._memory.lending, pid).unwrap() };
            // SAFETY: 8 bytes.
            let done =
                unsafe { borrowing.write(&borrow(LEND, 1000, 8), [1u8; 8].as_ptr(), || true) };
            assert!(!done);
        }
        assert_eq!(room, [0; 64]);
    }
}
