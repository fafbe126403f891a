//! The tolerant copy: memory accesses that answer a fault instead of dying of it.
//!
//! A NIC that meets an unmapped page reports it; a software NIC that copies by the CPU would die
//! of SIGSEGV or SIGBUS. Here the copy is a piece of assembly whose faults are caught by a signal
//! handler that looks at the instruction pointer, as the kernel's own exception table does: no
//! cost on the good path, about 2 us for a refusal. Other faults go to the handler that the
//! program had before.
//!
//! [`install`] puts the handler in place, once per process, and returns a token of no size;
//! holding one is the proof that the handler is there:
//!
//! ```
//! let tolerant = mkey_os::copy::install()?;
//! let mut bytes = [0u8; 16];
//! // SAFETY: `bytes` is ours, and nobody else looks at it.
//! let fault = unsafe { tolerant.copy(bytes.as_mut_ptr(), std::ptr::dangling(), 16) };
//! assert_eq!(fault.unwrap_err().side, mkey_os::copy::Side::Source);
//! # Ok::<(), mkey_os::copy::InstallError>(())
//! ```
//!
//! # Order of visibility
//! Programs poll the last byte of a message. So stores happen in ascending order of addresses,
//! each naturally aligned 8-byte word of the destination that lies within the range in one piece,
//! and the last word (or the last part of it) last, with release semantics: who sees it sees all
//! bytes before it. If source and destination overlap, the result is that of a move towards lower
//! addresses if `dst <= src`, and otherwise unspecified bytes of the source.
//!
//! # What does not work
//! A signal that is blocked when the fault happens kills the process: the kernel does not wait
//! for an unblocking. Code that replaces the action for SIGSEGV or SIGBUS after [`install`]
//! without handing on to ours ends the tolerance; [`displaced`] tells.

pub mod portable;

#[cfg(target_arch = "x86_64")]
mod asm;
#[cfg(target_arch = "x86_64")]
mod signal;

use std::io;

/// Which end of a copy faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The memory read from.
    Source,
    /// The memory written to.
    Destination,
    /// Not known: a non-canonical address on both sides.
    Unknown,
}

/// An access stopped at memory that did not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access refused by the MMU after {copied} bytes, {side:?} address {address:#x?}")]
pub struct CopyFault {
    /// Bytes stored, counted from the start of the destination.
    pub copied: usize,
    /// Which end faulted.
    pub side: Side,
    /// The address that faulted; none for an address that is not canonical.
    pub address: Option<usize>,
}

impl CopyFault {
    fn at(address: usize, side: Side) -> Self {
        Self { copied: 0, side, address: Some(address) }
    }
}

/// The signal handler could not be put in place.
#[derive(Debug, thiserror::Error)]
#[error("sigaction for SIGSEGV and SIGBUS refused: {0}")]
pub struct InstallError(#[from] io::Error);

/// Proof that faults of tolerant accesses are caught in this process.
#[derive(Clone, Copy, Debug)]
pub struct Installed(());

/// Puts the fault handler in place, once per process; later calls cost one load.
///
/// # Errors
/// [`InstallError`] if `sigaction` is refused.
pub fn install() -> Result<Installed, InstallError> {
    #[cfg(target_arch = "x86_64")]
    signal::install()?;
    Ok(Installed(()))
}

/// The signal (SIGSEGV or SIGBUS) whose action somebody has replaced since [`install`], if any:
/// tolerant accesses are then at the mercy of that handler.
pub fn displaced() -> Option<i32> {
    #[cfg(target_arch = "x86_64")]
    return signal::displaced();
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}

/// Replaces the action that SIGSEGV or SIGBUS outside tolerant accesses is handed to, and returns
/// the former one; for code that intercepts the program's `sigaction`. None if the signal is
/// neither of the two or [`install`] has not run.
pub fn exchange_previous_action(signal: i32, action: libc::sigaction) -> Option<libc::sigaction> {
    #[cfg(target_arch = "x86_64")]
    return signal::exchange_previous(signal, action);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (signal, action);
        return None;
    }
}

impl Installed {
    /// Copies `len` bytes from `src` to `dst` in the module's order of visibility.
    ///
    /// # Errors
    /// [`CopyFault`] if a byte could not be read or written; all bytes before it were stored.
    ///
    /// # Safety
    /// Any address may be given. But the bytes `dst..dst+len` that can be written must be bytes
    /// which may change now: no Rust reference to them may be live except through atomics, and
    /// concurrent plain accesses to either range by Rust code are data races.
    #[inline]
    pub unsafe fn copy(self, dst: *mut u8, src: *const u8, len: usize) -> Result<(), CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            let routine = match len > 64 && std::arch::is_x86_feature_detected!("avx") {
                true => asm::mkey_tolerant_copy_avx,
                false => asm::mkey_tolerant_copy,
            };
            // SAFETY: passed on from the caller.
            unsafe { by(routine, dst, src, len) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            portable::copy(dst, src, len)
        }
    }

    /// The same where nobody looks at the destination before it is told to: the bytes may become
    /// visible in any order. Quicker than [`Installed::copy`] for many bytes whose places were last
    /// touched by another processor.
    ///
    /// # Errors
    /// As [`Installed::copy`].
    ///
    /// # Safety
    /// As [`Installed::copy`].
    #[inline]
    pub unsafe fn copy_unseen(
        self,
        dst: *mut u8,
        src: *const u8,
        len: usize,
    ) -> Result<(), CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            // It takes a while to begin, and leaves less in the nearest cache.
            const MANY: usize = 8192;
            if len >= MANY && std::arch::is_x86_feature_detected!("ermsb") {
                // SAFETY: passed on from the caller.
                return unsafe { by(asm::mkey_tolerant_string, dst, src, len) };
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { self.copy(dst, src, len) }
    }

    /// Reads `into.len()` bytes from any address.
    ///
    /// # Errors
    /// [`CopyFault`]; the bytes before the fault were read.
    ///
    /// # Safety
    /// Concurrent plain writes to the source by Rust code are data races.
    #[inline]
    pub unsafe fn read(self, into: &mut [u8], src: *const u8) -> Result<(), CopyFault> {
        // SAFETY: `into` is exclusively ours; the rest is passed on from the caller.
        unsafe { self.copy(into.as_mut_ptr(), src, into.len()) }
    }

    /// Writes `from` to any address.
    ///
    /// # Errors
    /// [`CopyFault`]; the bytes before the fault were written.
    ///
    /// # Safety
    /// As for [`Installed::copy`].
    #[inline]
    pub unsafe fn write(self, dst: *mut u8, from: &[u8]) -> Result<(), CopyFault> {
        // SAFETY: passed on from the caller; `from` is readable.
        unsafe { self.copy(dst, from.as_ptr(), from.len()) }
    }

    /// Loads one byte, so that a missing page is faulted in for reading.
    ///
    /// # Errors
    /// [`CopyFault`] if the page cannot be read.
    #[inline]
    #[expect(clippy::not_unsafe_ptr_arg_deref, reason = "any address may be given")]
    pub fn touch_read(self, addr: *const u8) -> Result<(), CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut fault = asm::RawFault::NONE;
            // SAFETY: the handler is installed; a load changes nothing.
            unsafe { asm::mkey_tolerant_touch_read(addr, 0, 0, &mut fault) };
            outcome(fault, addr as usize, Side::Source)
        }
        #[cfg(not(target_arch = "x86_64"))]
        portable::touch_read(addr)
    }

    /// Adds zero to one byte, atomically, so that a missing page is faulted in for writing and
    /// copy-on-write is broken; no store of another thread is lost.
    ///
    /// # Errors
    /// [`CopyFault`] if the page cannot be written.
    ///
    /// # Safety
    /// As for [`Installed::copy`], for one byte at `addr`.
    #[inline]
    pub unsafe fn touch_write(self, addr: *mut u8) -> Result<(), CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut fault = asm::RawFault::NONE;
            // SAFETY: the handler is installed; the caller vouches for the byte.
            unsafe { asm::mkey_tolerant_touch_write(addr, 0, 0, &mut fault) };
            outcome(fault, addr as usize, Side::Destination)
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            portable::touch_write(addr)
        }
    }

    /// Adds to the 8-byte word at `addr` in the CPU's byte order, atomically towards the CPU and
    /// other devices' atomics, and returns what was there. `addr` should be 8-aligned: the check
    /// is the caller's (a misaligned word is updated, slowly).
    ///
    /// # Errors
    /// [`CopyFault`] if the word cannot be read and written; it was not changed.
    ///
    /// # Safety
    /// As for [`Installed::copy`], for the eight bytes at `addr`.
    #[inline]
    pub unsafe fn fetch_add(self, addr: *mut u64, add: u64) -> Result<u64, CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut fault = asm::RawFault::NONE;
            // SAFETY: the handler is installed; the caller vouches for the word.
            let old = unsafe { asm::mkey_tolerant_fetch_add(addr, add, 0, &mut fault) };
            outcome(fault, addr as usize, Side::Destination)?;
            Ok(old)
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            portable::fetch_add(addr, add)
        }
    }

    /// Stores `new` in the 8-byte word at `addr` if it equals `expected`, atomically as
    /// [`Installed::fetch_add`], and returns what was there.
    ///
    /// # Errors
    /// [`CopyFault`] if the word cannot be read and written (also if it differs); it was not
    /// changed.
    ///
    /// # Safety
    /// As for [`Installed::copy`], for the eight bytes at `addr`.
    #[inline]
    pub unsafe fn compare_exchange(
        self,
        addr: *mut u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, CopyFault> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut fault = asm::RawFault::NONE;
            // SAFETY: the handler is installed; the caller vouches for the word.
            let old =
                unsafe { asm::mkey_tolerant_compare_exchange(addr, expected, new, &mut fault) };
            outcome(fault, addr as usize, Side::Destination)?;
            Ok(old)
        }
        #[cfg(not(target_arch = "x86_64"))]
        // SAFETY: passed on from the caller.
        unsafe {
            portable::compare_exchange(addr, expected, new)
        }
    }
}

/// Copies by a routine, as [`Installed::copy`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by(
    routine: unsafe extern "C" fn(*mut u8, *const u8, usize, *mut asm::RawFault) -> usize,
    dst: *mut u8,
    src: *const u8,
    len: usize,
) -> Result<(), CopyFault> {
    let mut fault = std::mem::MaybeUninit::uninit();
    // SAFETY: the caller has an `Installed`, so a fault resumes and is reported, and vouches for the
    // bytes written.
    if unsafe { routine(dst, src, len, fault.as_mut_ptr()) } == 0 {
        return Ok(());
    }
    // SAFETY: a result other than 0 means that the resume point has filled `fault`.
    let fault = unsafe { fault.assume_init() };
    // SAFETY: passed on from the caller.
    unsafe { finish(dst, src, len, fault) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn outcome(fault: asm::RawFault, addr: usize, side: Side) -> Result<(), CopyFault> {
    if fault.flags == 0 {
        return Ok(());
    }
    let known = fault.flags & asm::HAS_ADDRESS != 0;
    Err(CopyFault { copied: 0, side, address: Some(if known { fault.address } else { addr }) })
}

/// After a fault in a block: goes on word by word, then byte by byte, up to the very byte that
/// cannot be copied. If there is none any more (the page has come back), copies the rest.
#[cfg(target_arch = "x86_64")]
#[cold]
unsafe fn finish(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    mut fault: asm::RawFault,
) -> Result<(), CopyFault> {
    let mut done = 0usize;
    loop {
        done = done.saturating_add(fault.copied).min(len);
        if done == len {
            return Ok(());
        }
        let (to, from, left) = (dst.wrapping_add(done), src.wrapping_add(done), len - done);
        let misaligned = to as usize & 7;
        fault = asm::RawFault::NONE;
        if misaligned == 0 && left >= 8 {
            // SAFETY: within the range the caller vouches for.
            if unsafe { asm::mkey_tolerant_words(to, from, left / 8, &mut fault) } == 0 {
                fault.copied = left / 8 * 8;
                continue;
            }
            if fault.copied > 0 {
                continue;
            }
        }
        let bytes = (8 - misaligned).min(left);
        fault = asm::RawFault::NONE;
        // SAFETY: within the range the caller vouches for.
        if unsafe { asm::mkey_tolerant_bytes(to, from, bytes, &mut fault) } == 0 {
            fault.copied = bytes;
            continue;
        }
        done += fault.copied;
        return Err(describe(dst, src, done, &fault));
    }
}

/// The fault of the byte at offset `done`.
#[cfg(target_arch = "x86_64")]
fn describe(dst: *mut u8, src: *const u8, done: usize, fault: &asm::RawFault) -> CopyFault {
    let (to, from) = ((dst as usize).wrapping_add(done), (src as usize).wrapping_add(done));
    let address = (fault.flags & asm::HAS_ADDRESS != 0).then_some(fault.address);
    let side = match address {
        Some(_) if fault.flags & asm::ON_WRITE != 0 => Side::Destination,
        Some(address) if address == from => Side::Source,
        Some(address) if address == to => Side::Destination,
        _ => match (canonical(from), canonical(to)) {
            (false, true) => Side::Source,
            (true, false) => Side::Destination,
            _ => Side::Unknown,
        },
    };
    CopyFault { copied: done, side, address }
}

/// Whether bits 63..47 are equal; an address where they are not faults without an address.
#[cfg(target_arch = "x86_64")]
fn canonical(address: usize) -> bool {
    let top = (address as i64) >> 47;
    top == 0 || top == -1
}
