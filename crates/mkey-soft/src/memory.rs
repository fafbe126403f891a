//! Moving bytes between registered memory: the only place of this crate that touches memory by
//! address.
//!
//! Every chunk is checked and guarded by the engines of both sides, so a key that is revoked in
//! the middle of a message ends the message there. So does a queue pair that ends: a peer's access
//! looks at the connection once more when it is open, and who ends the connection waits for those
//! that are ([`crate::drain`]). The copy itself is tolerant: an address that the program has
//! unmapped makes a refusal, not a crash.
#![allow(unsafe_code)]

use crate::core::Core;
use crate::nic;
use crate::payload::{Bytes, Room};
use crate::qp::Connection;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::engine::{Access, Denied, Executor, FaultCause, Guard, Lane, Place, Segment};
use mkey_core::refusal::{PdId, QpId, Refusal};
use mkey_core::rights::Want;
use mkey_core::work::{RemoteAddr, Sge};
use mkey_os::copy::{CopyFault, Installed, Side};

/// A guard is held for no more than this, so that revoking waits for no more than this.
pub(crate) const CHUNK: u64 = 64 << 10;

/// Who accesses memory, and for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party<'a> {
    /// The device that owns the memory.
    pub(crate) core: &'a Core,
    pub(crate) pd: PdId,
    pub(crate) qp: QpId,
    pub(crate) want: Want,
    /// By which a peer's message comes, if it is one.
    pub(crate) through: Option<Connection<'a>>,
}

/// One access to the memory of a device, and by which connection it comes, if it is a peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    pub(crate) core: &'a Core,
    pub(crate) access: Access,
    pub(crate) through: Option<Connection<'a>>,
}

impl Site<'_> {
    /// Whether the queue pair by which the access comes has ended meanwhile.
    #[inline(always)]
    pub(crate) fn ended(&self) -> bool {
        self.through.is_some_and(|connection| !connection.holds())
    }

    #[inline(always)]
    fn open<'g>(&'g self, lane: &'g mut Lane) -> Result<Guard<'g>, Closed> {
        let guard = self.core.engine.open(lane, &self.access).map_err(Closed::Denied)?;
        // Only now that the access is published: whoever has ended the connection and does not wait
        // for this access has ended it before this look.
        if self.ended() {
            return Err(Closed::Ended);
        }
        Ok(guard)
    }

    /// Does what must be done before opening is tried again, or gives up.
    #[cold]
    fn resolve(&self, executor: &mut Executor, closed: Closed) -> Result<(), Missed> {
        match closed {
            Closed::Denied(denied) if !self.ended() => {
                resolve(executor, self.core, &self.access, denied).map_err(Missed::Refused)
            }
            _ => Err(Missed::Ended),
        }
    }
}

/// Why memory was not opened.
enum Closed {
    Denied(Denied),
    Ended,
}

/// Why an access did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    Refused(Refusal),
    /// The queue pair by which it came has ended.
    Ended,
}

impl Missed {
    pub(crate) fn source(self) -> Failed {
        match self {
            Self::Refused(refusal) => Failed::Source(refusal),
            Self::Ended => Failed::Ended,
        }
    }

    pub(crate) fn target(self) -> Failed {
        match self {
            Self::Refused(refusal) => Failed::Target(refusal),
            Self::Ended => Failed::Ended,
        }
    }
}

/// Registered memory in pieces, and how far a message has gone through it.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) party: Party<'a>,
    pieces: &'a [Sge],
    /// Bytes of the first piece that are done.
    done: u32,
}

/// Where the bytes of a message come from.
#[derive(Clone, Debug)]
pub(crate) enum Source<'a> {
    /// Out of the work request, out of a packet, or out of the device itself.
    Bytes(Bytes<'a>),
    /// Out of registered memory.
    Memory(Cursor<'a>),
}

impl Source<'_> {
    /// As [`Cursor::make_ready`].
    pub(crate) fn make_ready(&self, executor: &mut Executor, length: u64) -> Result<(), Refusal> {
        match self {
            Self::Bytes(_) => Ok(()),
            Self::Memory(cursor) => cursor.make_ready(executor, length),
        }
    }
}

/// Which side did not allow a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Source(Refusal),
    Target(Refusal),
    /// Neither: the queue pair ended in the middle of the message.
    Ended,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

impl Atomic {
    /// The new value, if `old` is to be replaced.
    pub(crate) fn apply(self, old: u64) -> Option<u64> {
        match self {
            Self::FetchAdd { add } => Some(old.wrapping_add(add)),
            Self::CompareSwap { compare, swap } => (old == compare).then_some(swap),
        }
    }
}

/// A remote address range as a piece.
pub(crate) fn remote_piece(remote: RemoteAddr, length: u32) -> Sge {
    Sge { address: remote.address, length, lkey: mkey_core::key::Lkey(remote.rkey.0) }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(party: Party<'a>, pieces: &'a [Sge]) -> Self {
        Self { party, pieces, done: 0 }
    }

    /// The next access, of up to `most` bytes; skips empty pieces.
    #[inline]
    fn next(&mut self, most: u64) -> Option<Site<'a>> {
        loop {
            let (piece, rest) = self.pieces.split_first()?;
            if self.done >= piece.length {
                (self.pieces, self.done) = (rest, 0);
                continue;
            }
            let Party { core, pd, qp, want, through } = self.party;
            let access = Access {
                key: piece.lkey.0,
                pd,
                qp,
                address: IoAddr(piece.address.0.wrapping_add(u64::from(self.done))),
                length: u64::from(piece.length - self.done).min(most),
                want,
            };
            return Some(Site { core, access, through });
        }
    }

    #[inline]
    fn advance(&mut self, bytes: u64) {
        self.done += bytes as u32;
    }

    /// The same without its first bytes.
    pub(crate) fn skip(mut self, mut bytes: u64) -> Self {
        while let Some((piece, rest)) = self.pieces.split_first() {
            let left = u64::from(piece.length.saturating_sub(self.done));
            if bytes < left {
                self.advance(bytes);
                break;
            }
            (self.pieces, self.done) = (rest, 0);
            bytes -= left;
        }
        self
    }

    /// Checks the first `length` bytes without touching them.
    pub(crate) fn check(&self, executor: &mut Executor, mut length: u64) -> Result<(), Refusal> {
        let mut ahead = self.clone();
        while length > 0 {
            let Some(Site { access, .. }) = ahead.next(length) else { break };
            self.party.core.engine.check(&mut executor.source, &access)?;
            ahead.advance(access.length);
            length -= access.length;
        }
        Ok(())
    }

    /// As [`Cursor::check`], and brings absent pages in: afterwards the bytes can be read, unless
    /// something is revoked or unmapped meanwhile.
    pub(crate) fn make_ready(
        &self,
        executor: &mut Executor,
        mut length: u64,
    ) -> Result<(), Refusal> {
        if length > CHUNK {
            self.check(executor, length)?;
        }
        let mut ahead = self.clone();
        while length > 0 {
            let Some(Site { access, .. }) = ahead.next(length.min(CHUNK)) else { break };
            loop {
                let denied = match self.party.core.engine.open(&mut executor.source, &access) {
                    Ok(_) => break,
                    Err(denied) => denied,
                };
                match resolve(executor, self.party.core, &access, denied) {
                    Err(refusal) if nic::serves(self.party.core, &refusal) => break,
                    resolved => resolved?,
                }
            }
            ahead.advance(access.length);
            length -= access.length;
        }
        Ok(())
    }

    /// Whether `length` bytes are opened and copied as one chunk, so that opening is the check.
    #[inline]
    fn is_one_chunk(&self, length: u64) -> bool {
        length <= CHUNK
            && matches!(self.pieces.first(), Some(piece)
                if u64::from(piece.length.saturating_sub(self.done)) >= length)
    }
}

/// Moves `length` bytes, in ascending order. Where it takes more than one chunk, both sides are
/// checked as a whole first, so that nothing is placed if the tail is out of range (R-RA-09).
pub(crate) fn transfer(
    executor: &mut Executor,
    source: &mut Source<'_>,
    target: &mut Cursor<'_>,
    length: u64,
) -> Result<(), Failed> {
    match source {
        Source::Memory(cursor) if cursor.is_one_chunk(length) && target.is_one_chunk(length) => {
            let (Some(from), Some(to)) = (cursor.next(length), target.next(length)) else {
                return Ok(());
            };
            chunk(executor, &from, &to)?;
            cursor.advance(length);
            target.advance(length);
            return Ok(());
        }
        Source::Memory(cursor) => {
            cursor.check(executor, length).map_err(Failed::Source)?;
            target.check(executor, length).map_err(Failed::Target)?;
        }
        Source::Bytes(_) if target.is_one_chunk(length) => {}
        Source::Bytes(_) => target.check(executor, length).map_err(Failed::Target)?,
    }
    let mut left = length;
    while left > 0 {
        let Some(mut to) = target.next(left.min(CHUNK)) else { break };
        let moved = match source {
            Source::Bytes(bytes) => {
                let (now, later) = bytes.split(to.access.length as usize);
                if now.len() == 0 {
                    break;
                }
                to.access.length = now.len() as u64;
                nic::write(executor, &to, now).map_err(Missed::target)?;
                *bytes = later;
                now.len() as u64
            }
            Source::Memory(cursor) => {
                let Some(from) = cursor.next(to.access.length) else { break };
                let length = from.access.length;
                to.access.length = length;
                chunk(executor, &from, &to)?;
                cursor.advance(length);
                length
            }
        };
        target.advance(moved);
        left -= moved;
    }
    Ok(())
}

enum Attempt {
    Done,
    Source(Closed),
    Target(Closed),
    Fault(CopyFault),
}

/// One chunk from memory to memory. Guards are never held while waiting for pages or events.
#[inline]
pub(crate) fn chunk(
    executor: &mut Executor,
    source: &Site<'_>,
    target: &Site<'_>,
) -> Result<(), Failed> {
    loop {
        let failed = match attempt(executor, source, target) {
            Attempt::Done => return Ok(()),
            Attempt::Source(closed) => match source.resolve(executor, closed) {
                Ok(()) => continue,
                Err(missed) => missed.source(),
            },
            Attempt::Target(closed) => match target.resolve(executor, closed) {
                Ok(()) => continue,
                Err(missed) => missed.target(),
            },
            Attempt::Fault(fault) => {
                return Err(refused_by_mmu(fault, &source.access, &target.access));
            }
        };
        return match failed {
            Failed::Source(refusal) if nic::serves(source.core, &refusal) => {
                nic::chunk(executor, source, target)
            }
            Failed::Target(refusal) if nic::serves(target.core, &refusal) => {
                nic::chunk(executor, source, target)
            }
            failed => Err(failed),
        };
    }
}

#[inline]
fn attempt(executor: &mut Executor, source: &Site<'_>, target: &Site<'_>) -> Attempt {
    let read = match source.open(&mut executor.source) {
        Ok(guard) => guard,
        Err(closed) => return Attempt::Source(closed),
    };
    let write = match target.open(&mut executor.target) {
        Ok(guard) => guard,
        Err(closed) => return Attempt::Target(closed),
    };
    let tolerant = target.core.tolerant;
    let copied = match (read.single(), write.single()) {
        (Some(read), Some(write)) => place(tolerant, read.place, write.place, source.access.length),
        _ => scattered(tolerant, &read, &write),
    };
    match copied {
        Ok(()) => Attempt::Done,
        Err(fault) => Attempt::Fault(fault),
    }
}

#[cold]
fn scattered(tolerant: Installed, read: &Guard<'_>, write: &Guard<'_>) -> Result<(), CopyFault> {
    let (mut reads, mut writes) = (read.segments(), write.segments());
    let (mut from, mut to) = (reads.next(), writes.next());
    while let (Some(source), Some(target)) = (from, to) {
        let len = source.len.min(target.len);
        place(tolerant, source.place, target.place, len)?;
        from = beyond(source, len).or_else(|| reads.next());
        to = beyond(target, len).or_else(|| writes.next());
    }
    Ok(())
}

/// What is left of a segment after its first `len` bytes.
fn beyond(segment: Segment, len: u64) -> Option<Segment> {
    let left = segment.len.checked_sub(len).filter(|&left| left > 0)?;
    let place = match segment.place {
        Place::Memory(host) => Place::Memory(HostAddr(host.0.wrapping_add(len))),
        Place::Null => Place::Null,
    };
    Some(Segment { place, len: left })
}

/// Calls `with` with the start of the bytes of an access, if they lie in one place and nothing has to be
/// waited for; their guard is held meanwhile.
pub(crate) fn in_one_place<T>(
    lane: &mut Lane,
    site: &Site<'_>,
    with: impl FnOnce(HostAddr) -> T,
) -> Option<T> {
    let guard = site.open(lane).ok()?;
    match guard.single()?.place {
        Place::Memory(host) => Some(with(host)),
        Place::Null => None,
    }
}

/// Bytes of a message into memory, in one chunk.
pub(crate) fn from_bytes(
    executor: &mut Executor,
    target: &Site<'_>,
    bytes: Bytes<'_>,
) -> Result<(), Missed> {
    loop {
        let closed = match target.open(&mut executor.target) {
            Ok(guard) => {
                let mut rest = bytes;
                for segment in guard.segments() {
                    let (now, later) = rest.split(segment.len as usize);
                    let source = Place::Memory(HostAddr(now.start() as u64));
                    place(target.core.tolerant, source, segment.place, now.len() as u64)
                        .map_err(|fault| Missed::Refused(not_present(&fault, &target.access)))?;
                    rest = later;
                }
                return Ok(());
            }
            Err(closed) => closed,
        };
        target.resolve(executor, closed)?;
    }
}

/// Memory into the room of a message, in one chunk.
pub(crate) fn to_room(
    executor: &mut Executor,
    source: &Site<'_>,
    mut room: Room<'_>,
) -> Result<(), Missed> {
    loop {
        let closed = match source.open(&mut executor.source) {
            Ok(guard) => {
                let mut rest = room.again();
                for segment in guard.segments() {
                    let (now, later) = rest.split(segment.len as usize);
                    let tolerant = source.core.tolerant;
                    let placed = match segment.place {
                        // SAFETY: as in `place`; nobody looks at a packet before it is sent.
                        Place::Memory(from) => unsafe {
                            tolerant.copy_unseen(now.start(), from.0 as *const u8, now.len())
                        },
                        nowhere => {
                            let target = Place::Memory(HostAddr(now.start() as u64));
                            place(tolerant, nowhere, target, now.len() as u64)
                        }
                    };
                    placed.map_err(|fault| Missed::Refused(not_present(&fault, &source.access)))?;
                    rest = later;
                }
                return Ok(());
            }
            Err(closed) => closed,
        };
        source.resolve(executor, closed)?;
    }
}

/// Fills the room of a packet with the next bytes of a message.
pub(crate) fn gather(
    executor: &mut Executor,
    source: &mut Source<'_>,
    mut room: Room<'_>,
) -> Result<(), Missed> {
    match source {
        Source::Bytes(bytes) => {
            let (now, later) = bytes.split(room.len());
            room.put(now);
            *bytes = later;
        }
        Source::Memory(cursor) => {
            while room.len() > 0 {
                let Some(site) = cursor.next((room.len() as u64).min(CHUNK)) else { break };
                let (now, later) = room.split(site.access.length as usize);
                nic::read(executor, &site, now)?;
                cursor.advance(site.access.length);
                room = later;
            }
        }
    }
    Ok(())
}

/// Writes memory of the device itself.
pub(crate) fn put(tolerant: Installed, to: HostRange, from: &[u8]) -> Result<(), CopyFault> {
    let len = from.len().min(to.len as usize);
    // SAFETY: memory of the device, of which there are no references: peers write it, too.
    unsafe { tolerant.copy(to.start.0 as *mut u8, from.as_ptr(), len) }
}

/// Reads memory of the device itself.
pub(crate) fn get(tolerant: Installed, from: HostRange, into: &mut [u8]) -> Result<(), CopyFault> {
    let len = into.len().min(from.len as usize);
    // SAFETY: as above; `into` is the caller's alone.
    unsafe { tolerant.copy(into.as_mut_ptr(), from.start.0 as *const u8, len) }
}

static ZEROS: [u8; 4096] = [0; 4096];

/// The copy itself.
#[inline(always)]
fn place(tolerant: Installed, source: Place, target: Place, len: u64) -> Result<(), CopyFault> {
    match (source, target) {
        (Place::Memory(from), Place::Memory(to)) => {
            // SAFETY: both ranges are memory that the engine opened for this access (or our own
            // bytes, on the reading side), so whoever registered it has agreed, by `reg_mr`, to
            // reads and writes until the registration is revoked, and guards keep it from being
            // revoked meanwhile. Pages that are gone make a fault, which the copy answers.
            unsafe { tolerant.copy(to.0 as *mut u8, from.0 as *const u8, len as usize) }
        }
        (_, Place::Null) => Ok(()),
        (Place::Null, Place::Memory(to)) => {
            let mut done = 0;
            while done < len {
                let now = (len - done).min(ZEROS.len() as u64);
                let to = to.0.wrapping_add(done) as *mut u8;
                // SAFETY: as above.
                unsafe { tolerant.copy(to, ZEROS.as_ptr(), now as usize)? };
                done += now;
            }
            Ok(())
        }
    }
}

/// Executes an atomic; what was there before. The caller has checked the alignment of the address.
pub(crate) fn atomic(
    executor: &mut Executor,
    party: &Party<'_>,
    remote: RemoteAddr,
    operation: Atomic,
) -> Result<u64, Missed> {
    let access = Access {
        key: remote.rkey.0,
        pd: party.pd,
        qp: party.qp,
        address: remote.address,
        length: 8,
        want: party.want,
    };
    let site = Site { core: party.core, access, through: party.through };
    loop {
        let closed = match site.open(&mut executor.target) {
            Ok(guard) => {
                return change_word(party.core, &guard, operation)
                    .map_err(|fault| Missed::Refused(not_present(&fault, &access)));
            }
            Err(closed) => closed,
        };
        match site.resolve(executor, closed) {
            Ok(()) => {}
            Err(Missed::Refused(refusal)) if nic::serves(party.core, &refusal) => {
                return nic::atomic(executor, &site, operation);
            }
            Err(missed) => return Err(missed),
        }
    }
}

fn change_word(core: &Core, guard: &Guard<'_>, operation: Atomic) -> Result<u64, CopyFault> {
    let tolerant = core.tolerant;
    if let Some(Segment { place: Place::Memory(host), .. }) = guard.single()
        && host.0 % 8 == 0
    {
        let word = host.0 as *mut u64;
        // SAFETY: the engine opened these 8 bytes for an atomic, as in `place`; they are aligned.
        return unsafe {
            match operation {
                Atomic::FetchAdd { add } => tolerant.fetch_add(word, add),
                Atomic::CompareSwap { compare, swap } => {
                    tolerant.compare_exchange(word, compare, swap)
                }
            }
        };
    }
    // The I/O address is aligned but the memory is not (a zero-based or scattered registration).
    // Such words are atomic towards each other under a lock.
    let _turn = core.unaligned_atomics();
    let mut word = [0u8; 8];
    let mut at = 0;
    for segment in guard.segments() {
        if let (Place::Memory(host), Some(part)) =
            (segment.place, word.get_mut(at..at + segment.len as usize))
        {
            // SAFETY: as in `place`.
            unsafe { tolerant.read(part, host.0 as *const u8)? };
        }
        at += segment.len as usize;
    }
    let old = u64::from_ne_bytes(word);
    let Some(new) = operation.apply(old) else { return Ok(old) };
    let word = new.to_ne_bytes();
    let mut at = 0;
    for segment in guard.segments() {
        if let (Place::Memory(host), Some(part)) =
            (segment.place, word.get(at..at + segment.len as usize))
        {
            // SAFETY: as in `place`.
            unsafe { tolerant.write(host.0 as *mut u8, part)? };
        }
        at += segment.len as usize;
    }
    Ok(old)
}

/// Does what must be done before a denied access is tried again, or refuses it for good.
#[cold]
fn resolve(
    executor: &mut Executor,
    core: &Core,
    access: &Access,
    denied: Denied,
) -> Result<(), Refusal> {
    let engine = &core.engine;
    match denied {
        Denied::Refused(refusal) => Err(refusal),
        Denied::Paused => {
            while engine.executors().paused() {
                std::thread::yield_now();
            }
            Ok(())
        }
        Denied::Fault(fault) => {
            let range = fault.range();
            touch(core.tolerant, range, access.want.writes())
                .map_err(|range| Refusal::NotPresent { key: access.key, range })?;
            // If pages went away again meanwhile, the next attempt meets the fault again.
            engine.fault_in(&mut executor.target, &fault, FaultCause::Access);
            Ok(())
        }
    }
}

/// Touches every 4 KiB page of a range; the range of the first page that can not be touched so.
pub(crate) fn touch(tolerant: Installed, range: HostRange, write: bool) -> Result<(), HostRange> {
    let end = range.start.0.saturating_add(range.len);
    let mut page = range.start.0;
    while page < end {
        let touched = if write {
            // SAFETY: adds nothing, atomically, to a byte of memory that its owner has registered
            // for writing.
            unsafe { tolerant.touch_write(page as *mut u8) }
        } else {
            tolerant.touch_read(page as *const u8)
        };
        if touched.is_err() {
            return Err(HostRange { start: HostAddr(page), len: 4096 - page % 4096 });
        }
        match (page | 4095).checked_add(1) {
            Some(next) => page = next,
            None => break,
        }
    }
    Ok(())
}

/// Whether all of a page, of up to 2 MiB, is in memory; faults nothing in.
pub(crate) fn resident(page: HostRange) -> bool {
    let mut present = [0u8; 512];
    let Ok(len) = usize::try_from(page.len) else { return false };
    let Some(present) = present.get_mut(..len.div_ceil(4096)) else { return false };
    // SAFETY: mincore only looks at the mapping, and writes one byte for each 4 KiB page to
    // `present`, which has that many.
    let answer =
        unsafe { libc::mincore(page.start.0 as *mut libc::c_void, len, present.as_mut_ptr()) };
    answer == 0 && present.iter().all(|byte| byte & 1 == 1)
}

fn refused_by_mmu(fault: CopyFault, source: &Access, target: &Access) -> Failed {
    match fault.side {
        Side::Source => Failed::Source(not_present(&fault, source)),
        _ => Failed::Target(not_present(&fault, target)),
    }
}

fn not_present(fault: &CopyFault, access: &Access) -> Refusal {
    let range = match fault.address {
        Some(address) => HostRange { start: HostAddr(address as u64), len: 1 },
        None => HostRange { start: HostAddr(access.address.0), len: access.length },
    };
    Refusal::NotPresent { key: access.key, range }
}
