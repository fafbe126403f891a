//! Parts of registered memory: what work requests name, programs read and write, and grants open.

use crate::keep::Hold;
use crate::memory::tolerant;
use crate::pd::PdTag;
use crate::remote::RemoteKey;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::{Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Part of registered memory. Cheap to clone; as long as one clone lives (work that was posted with
/// it counts), the memory stays registered and is not handed out again.
///
/// Work requests and peers may read and write the bytes at any time, so they are never lent: they
/// are copied in and out. Who has the only clone of memory that no peer may access can borrow them
/// for a while: [`Slice::into_local`].
#[derive(Clone)]
pub struct Slice {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) iova: IoAddr,
    pub(crate) lkey: Lkey,
    /// The remote key of the registration, if peers have rights by it.
    pub(crate) rkey: Option<Rkey>,
    /// The rights of the registration.
    pub(crate) rights: Rights,
    /// The protection domain of the registration.
    pub(crate) pd: PdTag,
    /// Whether only holders of clones can reach the bytes.
    pub(crate) private: bool,
    /// Work requests can name it, but it has no one place in the process: a fast mapping, or memory
    /// of a file descriptor.
    pub(crate) mapped: bool,
    pub(crate) hold: Hold,
}

// SAFETY: an address range that `hold` keeps; all accesses to it are by tolerant copies or atomics.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First byte in the process. Reading or writing there is `unsafe`, and races with peers. Not
    /// a valid address for the slice of a [`FastMapping`](crate::FastMapping), which has none.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// First byte as work requests count.
    pub fn iova(&self) -> IoAddr {
        self.iova
    }

    /// The registration's local key, for information: work requests take slices.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// Whether peers have rights by the registration itself, grants aside.
    pub fn is_exposed(&self) -> bool {
        self.rkey.is_some()
    }

    /// What a peer needs to access it by the registration itself, for as long as that lives: the
    /// step by which memory is given away. Nothing ends it with the slice; a grant does.
    ///
    /// # Errors
    /// `RightMissing` if the memory was registered local-only.
    pub fn remote_key(&self) -> Result<RemoteKey> {
        match self.rkey {
            Some(key) => Ok(RemoteKey { key, address: self.iova, length: self.len as u64 }),
            None => {
                let reason = Reason::RightMissing { missing: Rights::REMOTE };
                Err(Error::new("remote_key", format_args!("{self:?}"), reason))
            }
        }
    }

    /// A part of it, counted from its start.
    ///
    /// # Errors
    /// `OutOfRange` beyond its end.
    pub fn part(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (from, to) = bounds(&range, self.len);
        let len = to.checked_sub(from).filter(|_| to <= self.len);
        let len = len.ok_or_else(|| self.outside("part", from, to.saturating_sub(from)))?;
        let start = match self.mapped {
            true => self.start,
            // SAFETY: `from` is within the memory, or at its end.
            false => unsafe { self.start.add(from) },
        };
        let iova = IoAddr(self.iova.0.wrapping_add(from as u64));
        Ok(Self { start, len, iova, ..self.clone() })
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Errors
    /// `OutOfRange`; `NotMapped` if the memory is foreign and has been unmapped.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let from = self.at("read", offset, into.len())?;
        // SAFETY: `into` is ours; the source is only written by tolerant copies and atomics.
        let done = unsafe { tolerant()?.read(into, from) };
        done.map_err(|_| self.gone("read", offset, into.len()))
    }

    /// `N` bytes from `offset` on, copied out.
    ///
    /// # Errors
    /// As [`Slice::read`].
    pub fn read_array<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes in, from `offset` on, in ascending order.
    ///
    /// # Errors
    /// `OutOfRange`; `NotMapped` if the memory is foreign and has been unmapped.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.at("write", offset, from.len())?;
        // SAFETY: no reference to the bytes exists: a slice is never lent, and `Local` has the
        // only one.
        let done = unsafe { tolerant()?.write(to, from) };
        done.map_err(|_| self.gone("write", offset, from.len()))
    }

    /// Copies all of `from` into the start of this one.
    ///
    /// # Errors
    /// `OutOfRange` if this one is shorter; `NotMapped` if either is foreign memory that has been
    /// unmapped.
    pub fn copy_from(&self, from: &Slice) -> Result<()> {
        let to = self.at("copy", 0, from.len)?;
        let source = from.at("copy", 0, from.len)?;
        // SAFETY: as for `read` and `write`.
        let done = unsafe { tolerant()?.copy(to, source, from.len) };
        done.map_err(|_| self.gone("copy", 0, from.len))
    }

    /// All its bytes, copied out.
    ///
    /// # Errors
    /// As [`Slice::read`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Loads 8 bytes at `offset`, in the CPU's byte order: who sees a value sees all that was
    /// written before it (acquire).
    ///
    /// # Errors
    /// `OutOfRange`; `Argument` if the address is not a multiple of 8.
    pub fn load(&self, offset: usize) -> Result<u64> {
        Ok(self.word("load", offset)?.load(Ordering::Acquire))
    }

    /// Stores 8 bytes at `offset`, in the CPU's byte order, after all that was written before
    /// (release).
    ///
    /// # Errors
    /// `OutOfRange`; `Argument` if the address is not a multiple of 8.
    pub fn store(&self, offset: usize, value: u64) -> Result<()> {
        self.word("store", offset)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Exclusive use of the bytes, as `&[u8]` and `&mut [u8]`: possible for the only clone (no
    /// posted work, no grant) of memory that no peer and no other process can reach.
    ///
    /// # Errors
    /// The slice, and `Exposed` or `StillUsed`.
    #[expect(clippy::result_large_err, reason = "it is the slice, given back")]
    pub fn into_local(mut self) -> std::result::Result<Local, (Self, Error)> {
        let reason = if self.rkey.is_some() || !self.private {
            Reason::Exposed
        } else if !self.hold.is_only() {
            Reason::StillUsed { what: "memory" }
        } else {
            return Ok(Local(self));
        };
        let error = Error::new("into_local", format_args!("{self:?}"), reason);
        Err((self, error))
    }

    pub(crate) fn sge(&self) -> Result<Sge> {
        let length = u32::try_from(self.len).map_err(|_| {
            let (value, allowed) = (self.len as u64, "less than 4 GiB in one work request");
            let reason = Reason::Argument { what: "length", value, allowed };
            Error::new("post", format_args!("{self:?}"), reason)
        })?;
        Ok(Sge { address: self.iova, length, lkey: self.lkey })
    }

    fn at(&self, verb: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        if self.mapped {
            let reason = Reason::NotHere { operation: verb, on: "memory without an address here" };
            return Err(Error::new(verb, format_args!("{self:?}"), reason));
        }
        match offset.checked_add(len) {
            // SAFETY: within the memory, or at its end.
            Some(end) if end <= self.len => Ok(unsafe { self.start.add(offset) }.as_ptr()),
            _ => Err(self.outside(verb, offset, len)),
        }
    }

    fn word(&self, verb: &'static str, offset: usize) -> Result<&AtomicU64> {
        let at = self.at(verb, offset, 8)?;
        if !at.addr().is_multiple_of(8) {
            let (value, allowed) = (at.addr() as u64, "a multiple of 8");
            let reason = Reason::Argument { what: "address", value, allowed };
            return Err(Error::new(verb, format_args!("{self:?} at {offset}"), reason));
        }
        // SAFETY: aligned and within memory that `self` keeps; all who access it do so by
        // atomics or outside of Rust's view.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    #[cold]
    fn outside(&self, verb: &'static str, offset: usize, len: usize) -> Error {
        let address = IoAddr(self.iova.0.wrapping_add(offset as u64));
        let reason = Reason::OutOfRange { address, length: len as u64 };
        Error::new(verb, format_args!("{len} bytes at {offset} of {}", self.len), reason)
    }

    #[cold]
    fn gone(&self, verb: &'static str, offset: usize, len: usize) -> Error {
        let start = HostAddr(self.start.as_ptr().addr().wrapping_add(offset) as u64);
        let reason = Reason::NotMapped { range: HostRange { start, len: len as u64 } };
        Error::new(verb, format_args!("{len} bytes at {offset} of {}", self.len), reason)
    }
}

/// So that work requests take one slice as they take several.
impl AsRef<[Slice]> for Slice {
    fn as_ref(&self) -> &[Slice] {
        std::slice::from_ref(self)
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slice of {} bytes at {} under lkey {}", self.len, self.iova, self.lkey)
    }
}

/// Registered memory that nobody else can reach for now: it derefs to its bytes. To post work with
/// it or to grant it, turn it back: [`Local::into_slice`].
#[derive(Debug)]
pub struct Local(Slice);

impl Local {
    /// Ends the exclusive use.
    pub fn into_slice(self) -> Slice {
        self.0
    }

    /// The bytes as values of a plain type.
    ///
    /// # Errors
    /// `Argument` if address or length do not fit the type's alignment and size.
    pub fn view<T: bytemuck::Pod>(&self) -> Result<&[T]> {
        bytemuck::try_cast_slice(self).map_err(|_| self.misfit::<T>())
    }

    /// The bytes as values of a plain type, to change.
    ///
    /// # Errors
    /// As [`Local::view`].
    pub fn view_mut<T: bytemuck::Pod>(&mut self) -> Result<&mut [T]> {
        match bytemuck::try_cast_slice::<u8, T>(self) {
            Ok(_) => Ok(bytemuck::cast_slice_mut(self)),
            Err(_) => Err(self.misfit::<T>()),
        }
    }

    fn misfit<T>(&self) -> Error {
        let (value, what) = (size_of::<T>() as u64, "size of the type");
        let allowed = "a divisor of the length, at an address aligned for the type";
        Error::new("view", format_args!("{:?}", self.0), Reason::Argument { what, value, allowed })
    }
}

impl Deref for Local {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised memory that the hold keeps; this is the only hold and no peer has
        // rights, so that nobody writes. Clones can not be made of a `Local`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len) }
    }
}

impl DerefMut for Local {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; nobody reads either.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.len) }
    }
}

/// Start and end of a range of positions below `len`.
pub(crate) fn bounds(range: &impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    use std::ops::Bound;
    let from = match range.start_bound() {
        Bound::Included(&from) => from,
        Bound::Excluded(&from) => from.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(&to) => to.saturating_add(1),
        Bound::Excluded(&to) => to,
        Bound::Unbounded => len,
    };
    (from, to)
}
