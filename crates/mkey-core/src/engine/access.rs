//! Opening memory for an access: check, guard, translation.

use super::check::{Access, check, serves_plainly};
use super::entry::{Entry, Meta, State};
use super::executor::{Lane, Published, tag};
use super::fast_mr::{self, Piece};
use super::on_demand::Fault;
use super::{Engine, entry::Link};
use crate::address::HostAddr;
use crate::key::Key;
use crate::refusal::{KeyKind, Refusal};

/// Why memory was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It may not be accessed so.
    Refused(Refusal),
    /// Pages of an on-demand region must be touched first: see [`Engine::fault_in`].
    Fault(Fault),
    /// An event that takes pages away is being worked on: wait until
    /// [`Executors::paused`](super::Executors::paused) is false, then ask again.
    Paused,
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Where some of the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the process that owns the memory.
    Memory(HostAddr),
    /// Nowhere: reads as zeros, swallows writes.
    Null,
}

/// A contiguous part of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it is.
    pub place: Place,
    /// Bytes.
    pub len: u64,
}

/// Memory opened for one access. Until it is dropped, revoking the key stays pending: hold it for
/// at most 64 KiB of copying.
#[derive(Debug)]
pub struct Guard<'a> {
    _published: Published<'a>,
    found: Found<'a>,
    length: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'a> {
    Memory(u64),
    Null,
    List(Piece<'a>),
}

impl<'a> Guard<'a> {
    /// The single segment of the access, unless its bytes lie in several.
    #[inline(always)]
    pub fn single(&self) -> Option<Segment> {
        match self.found {
            Found::Memory(host) => {
                Some(Segment { place: Place::Memory(HostAddr(host)), len: self.length })
            }
            Found::Null => Some(Segment { place: Place::Null, len: self.length }),
            Found::List(_) => None,
        }
    }

    /// The segments of the access, in order; their lengths add up to its length.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'_, 'a> {
        let pieces = match self.found {
            Found::List(piece) => Some(piece.walk(self.length)),
            _ => None,
        };
        self.single().into_iter().chain(pieces.into_iter().flatten())
    }
}

impl Engine {
    /// Opens memory for an access of up to 64 KiB: checks it, and guards it against revocation
    /// until the guard is dropped.
    ///
    /// Takes no lock and writes no memory that other threads write, except where pages of a plain
    /// region are detached.
    #[inline(always)]
    pub fn open<'a>(&'a self, lane: &'a mut Lane, access: &Access) -> Result<Guard<'a>, Denied> {
        let slot = self.table.slot(access.key);
        let published = lane.publish(tag(self.tag, slot));
        // Only now that the access is published: a drain that does not wait for it comes after a
        // pause that is seen here.
        if self.executors.paused() {
            return Err(Denied::Paused);
        }
        let Some(entry) = self.table.entry(slot) else {
            return Err(Refusal::UnknownIndex { key: access.key }.into());
        };
        let meta = entry.meta();
        let found = match serves_plainly(entry, meta, access) {
            Some(offset) => Found::Memory(entry.host().wrapping_add(offset)),
            None => self.find(slot, entry, meta, access)?,
        };
        Ok(Guard { _published: published, found, length: access.length })
    }

    /// Checks and translates an access that a plain region does not simply serve. Apart from
    /// [`Engine::open`], so that the common case stays small enough to be inlined.
    #[inline(never)]
    fn find(
        &self,
        slot: u32,
        entry: &Entry,
        meta: Meta,
        access: &Access,
    ) -> Result<Found<'_>, Denied> {
        let offset = check(entry, meta, access)?;
        self.translate(slot, entry, meta, offset, access.length, access.key)
    }

    /// Checks a whole message before its first byte moves (R-RA-09): as [`Engine::open`], but of
    /// any length, and pages may be absent.
    pub fn check(&self, lane: &mut Lane, access: &Access) -> Result<(), Refusal> {
        let (slot, entry) = self.table.find(access.key);
        let _published = lane.publish(tag(self.tag, slot));
        let entry = entry.ok_or(Refusal::UnknownIndex { key: access.key })?;
        check(entry, entry.meta(), access).map(|_| ())
    }

    /// Finds the bytes of a checked access that is not simply `host + offset`.
    fn translate(
        &self,
        slot: u32,
        entry: &Entry,
        meta: Meta,
        offset: u64,
        length: u64,
        key: Key,
    ) -> Result<Found<'_>, Denied> {
        match meta.kind() {
            KeyKind::Null => Ok(Found::Null),
            KeyKind::Region => {
                let host = entry.host().wrapping_add(offset);
                self.stop(slot, entry, meta, host, length, key)?;
                Ok(Found::Memory(host))
            }
            KeyKind::Window1 | KeyKind::Window2 => {
                // The window holds its parent, but the parent is asked each time all the same
                // (R-MWU-08): it may be detached by now.
                let parent = entry.link() as u32;
                let offset = entry.host().wrapping_add(offset);
                let (entry, meta) = self.parent(parent, key)?;
                if meta.is_plain_region() {
                    return Ok(Found::Memory(entry.host().wrapping_add(offset)));
                }
                self.translate(parent, entry, meta, offset, length, key)
            }
            KeyKind::FastMr => {
                let list = self.runs.words(Link::unpack(entry.link()).run);
                let piece = fast_mr::locate(list, fast_mr::entries(entry.host()), offset)
                    .ok_or(Refusal::NotValid { key, kind: KeyKind::FastMr })?;
                for part in piece.parts(length) {
                    let (entry, meta) = self.parent(part.parent, key)?;
                    if !meta.is_plain_region() {
                        self.stop(part.parent, entry, meta, part.host, part.len, key)?;
                    }
                }
                Ok(match piece.whole(length) {
                    Some(host) => Found::Memory(host),
                    None => Found::List(piece),
                })
            }
        }
    }

    /// The region that a window or fast registration lies on; it must be in force still.
    #[inline]
    fn parent(&self, slot: u32, key: Key) -> Result<(&Entry, Meta), Refusal> {
        let gone = Refusal::NotValid { key, kind: KeyKind::Region };
        let entry = self.table.entry(slot).ok_or(gone)?;
        let meta = entry.meta();
        if meta.state() == State::Valid { Ok((entry, meta)) } else { Err(gone) }
    }

    /// What may stand in the way of a translation: detached or absent pages.
    #[cold]
    fn stop(
        &self,
        slot: u32,
        entry: &Entry,
        meta: Meta,
        host: u64,
        length: u64,
        key: Key,
    ) -> Result<(), Denied> {
        self.refuse_detached(slot, meta, host, length, key)?;
        self.need_present(slot, entry, meta, host, length)
    }
}
