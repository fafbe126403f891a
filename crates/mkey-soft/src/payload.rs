//! Bytes that a message brings or takes along: in a buffer of our own, or in memory that another
//! process may change at any time. So they are never lent as a slice; they are copied, by
//! [`crate::memory`], and no two looks at them need to see the same.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

/// Bytes to be read.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: *const u8,
    len: usize,
    of: PhantomData<&'a [u8]>,
}

/// Room for bytes to be written.
pub(crate) struct Room<'a> {
    start: *mut u8,
    len: usize,
    of: PhantomData<&'a mut [u8]>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), of: PhantomData }
    }

    /// Bytes that another process may write.
    ///
    /// # Safety
    /// They are mapped and readable for `'a`.
    pub(crate) unsafe fn shared(start: *const u8, len: usize) -> Self {
        Self { start, len, of: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }

    /// The first `most` bytes, or all if there are fewer, and the rest.
    #[inline]
    pub(crate) fn split(self, most: usize) -> (Self, Self) {
        let at = most.min(self.len);
        // SAFETY: within the bytes, or just behind them.
        let start = unsafe { self.start.add(at) };
        (Self { len: at, ..self }, Self { start, len: self.len - at, of: PhantomData })
    }

    /// A copy of its own.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        Room::of(&mut copy).put(self);
        copy
    }
}

impl<'a> Room<'a> {
    pub(crate) fn of(room: &'a mut [u8]) -> Self {
        Self { start: room.as_mut_ptr(), len: room.len(), of: PhantomData }
    }

    /// Room that another process may read and write.
    ///
    /// # Safety
    /// It is mapped and writable for `'a`, and nobody else in this process writes there.
    pub(crate) unsafe fn shared(start: *mut u8, len: usize) -> Self {
        Self { start, len, of: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The same room for a while.
    pub(crate) fn again(&mut self) -> Room<'_> {
        Room { start: self.start, len: self.len, of: PhantomData }
    }

    /// What is in it.
    pub(crate) fn bytes(&self) -> Bytes<'_> {
        Bytes { start: self.start, len: self.len, of: PhantomData }
    }

    /// The first `most` bytes, or all if there are fewer, and the rest.
    #[inline]
    pub(crate) fn split(self, most: usize) -> (Self, Self) {
        let at = most.min(self.len);
        // SAFETY: within the room, or just behind it.
        let start = unsafe { self.start.add(at) };
        let rest = Self { start, len: self.len - at, of: PhantomData };
        (Self { start: self.start, len: at, of: PhantomData }, rest)
    }

    /// Fills it from its start, as far as both reach.
    pub(crate) fn put(&mut self, bytes: Bytes<'_>) {
        let len = bytes.len.min(self.len);
        // SAFETY: both ranges are valid for so many bytes, by the promise of who made them; the
        // room is ours alone to write, so they do not overlap. What another process writes to
        // either meanwhile makes bytes that nobody trusts.
        unsafe { std::ptr::copy_nonoverlapping(bytes.start, self.start, len) }
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "room for {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_loses_nothing() {
        let (all, mut copy) = ([1, 2, 3, 4, 5], [0; 5]);
        let (first, second) = Bytes::of(&all).split(2);
        assert_eq!((first.to_vec(), second.to_vec()), (vec![1, 2], vec![3, 4, 5]));
        let (whole, nothing) = Bytes::of(&all).split(9);
        assert_eq!((whole.len(), nothing.len()), (5, 0));
        let (mut head, mut tail) = Room::of(&mut copy).split(3);
        head.put(Bytes::of(&all));
        tail.put(second);
        assert_eq!(tail.len(), 2);
        assert_eq!(copy, [1, 2, 3, 3, 4]);
    }
}
