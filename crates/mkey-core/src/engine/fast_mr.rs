//! Fast registration (FRMR): an allocated region whose scatter list is written on the data path.
//! Rules R-FR, over lists of (address, length, lkey) as user-space NICs take them.

use super::Engine;
use super::access::{Place, Segment};
use super::change::{Change, Step};
use super::entry::{Entry, Fields, Link, Meta, Owner, State, Variants};
use super::range::wraps;
use super::sync::{AtomicU64, Ordering};
use super::window::{QpScope, in_force, offset_within, same_pd};
use crate::address::HostAddr;
use crate::key::Key;
use crate::refusal::{KeyKind, ManageRefusal, QpId, Refusal};
use crate::rights::Rights;
use crate::work::{RegMr, Sge};

/// What an FRMR may grant.
const REGISTRABLE: Rights = Rights::REMOTE
    .union(Rights::LOCAL_WRITE)
    .union(Rights::MW_BIND)
    .union(Rights::RELAXED_ORDERING);

/// Words of one list entry: end (bytes from the start), host address, parent's slot.
const STRIDE: usize = 3;

/// Words of the list of an FRMR with room for `max` entries: the entries, then the slots of the
/// regions held.
pub(super) const fn words(max: u32) -> u64 {
    max as u64 * (STRIDE as u64 + 1)
}

/// An FRMR keeps in its `host` field how many entries its list has and how many regions it holds.
const fn pack_counts(entries: u32, held: u32) -> u64 {
    (entries as u64) << 32 | held as u64
}

pub(super) const fn entries(host: u64) -> usize {
    (host >> 32) as usize
}

/// The slots of the regions that the list holds.
pub(super) fn held(list: &[AtomicU64], max: u32, host: u64) -> impl Iterator<Item = u32> {
    list.iter().skip(max as usize * STRIDE).take(host as u32 as usize).map(load).map(|s| s as u32)
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// A place in a scatter list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    list: &'a [AtomicU64],
    at: usize,
    /// Bytes of the entry that lie before the place.
    skip: u64,
}

/// Bytes of one entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub host: u64,
    pub len: u64,
    pub parent: u32,
}

/// The place `offset` bytes into a list.
pub(super) fn locate(list: &[AtomicU64], entries: usize, offset: u64) -> Option<Piece<'_>> {
    let list = list.get(..entries * STRIDE)?;
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if load(list.get(middle * STRIDE)?) <= offset { low = middle + 1 } else { high = middle }
    }
    let start = if low == 0 { 0 } else { load(list.get((low - 1) * STRIDE)?) };
    (low < entries).then_some(Piece { list, at: low, skip: offset - start })
}

impl<'a> Piece<'a> {
    fn entry(&self, at: usize) -> Option<(u64, Part)> {
        let words = self.list.get(at * STRIDE..(at + 1) * STRIDE)?;
        let start = if at == 0 { 0 } else { load(self.list.get((at - 1) * STRIDE)?) };
        let [end, host, parent] = words else { return None };
        let len = load(end).saturating_sub(start);
        Some((start, Part { host: load(host), len, parent: load(parent) as u32 }))
    }

    /// The host address of the next `length` bytes, if they lie in one entry.
    pub(super) fn whole(&self, length: u64) -> Option<u64> {
        let (_, part) = self.entry(self.at)?;
        (length <= part.len - self.skip).then_some(part.host.wrapping_add(self.skip))
    }

    /// The next `length` bytes, entry by entry.
    pub(super) fn parts(self, length: u64) -> impl Iterator<Item = Part> + use<'a> {
        let (mut at, mut skip, mut left) = (self.at, self.skip, length);
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (_, part) = self.entry(at)?;
            let len = (part.len - skip).min(left);
            let found = Part { host: part.host.wrapping_add(skip), len, ..part };
            (at, skip, left) = (at + 1, 0, left - len);
            Some(found)
        })
    }

    pub(super) fn walk(self, length: u64) -> impl Iterator<Item = Segment> + use<'a> {
        self.parts(length)
            .map(|part| Segment { place: Place::Memory(HostAddr(part.host)), len: part.len })
    }
}

impl Engine {
    /// The most scatter entries that one FRMR takes.
    pub const MAX_FAST_MR_ENTRIES: u32 = if cfg!(loom) { 2 } else { 4096 };

    /// Writes the scatter list of an FRMR and puts it in force. Regions behind are held until it
    /// is invalidated; a run of entries under one lkey holds its region once.
    pub fn fast_register(&self, by: QpScope, what: &RegMr<'_>) -> Result<Change, ManageRefusal> {
        let key = what.key;
        let (slot, entry) = self.table.find(key);
        let entry = entry.ok_or(Refusal::UnknownIndex { key })?;
        let meta = entry.meta();
        match (meta.state(), meta.kind()) {
            (State::Empty, _) => return Err(Refusal::UnknownIndex { key }.into()),
            (_, kind) if kind != KeyKind::FastMr => {
                return Err(ManageRefusal::WrongKind { key, kind });
            }
            (State::Changing, _) => return Err(ManageRefusal::Busy { key }),
            (State::Valid, _) => return Err(ManageRefusal::NotFree { key }),
            (State::Free, _) => {}
        }
        let owner = same_pd(entry, by.pd, key)?;
        if !REGISTRABLE.contains(what.rights) || what.rights.validate().is_err() {
            return Err(ManageRefusal::Rights { rights: what.rights });
        }
        if !entry.take_of(owner, meta) {
            return Err(ManageRefusal::Busy { key });
        }
        let link = Link::unpack(entry.link());
        if what.entries.is_empty() || what.entries.len() > link.detail as usize {
            let given = what.entries.len();
            entry.meta.store(meta.0, Ordering::Release);
            return Err(ManageRefusal::Entries { given, most: link.detail });
        }
        let written = self.write_list(by, what, link).and_then(|(length, counts)| {
            if wraps(what.iova.0, length) {
                self.release_list(link, counts);
                return Err(ManageRefusal::Wraps { address: what.iova, length });
            }
            Ok((length, counts))
        });
        let (length, host) = match written {
            Ok(written) => written,
            Err(refusal) => {
                entry.meta.store(meta.0, Ordering::Release);
                return Err(refusal);
            }
        };
        let owner = Owner::new(by.pd, QpId(0));
        let fields = Fields { owner, base: what.iova.0, length, host, link: link.pack() };
        let variants = Variants { local: key.variant(), remote: key.variant() };
        let new = Meta::new(State::Valid, KeyKind::FastMr, 0, variants, what.rights);
        let step = Step::Replace { old: meta, fields, meta: new, translated: true, closed: false };
        Ok(self.begin(slot, meta, step))
    }

    /// Writes the list into the run of an FRMR that the caller has taken; its length in bytes and
    /// its counts. Refused, it holds nothing.
    fn write_list(
        &self,
        by: QpScope,
        what: &RegMr<'_>,
        link: Link,
    ) -> Result<(u64, u64), ManageRefusal> {
        let list = self.runs.words(link.run);
        let slots_of_held = link.detail as usize * STRIDE;
        let writes = what.rights.intersects(Rights::NEED_WRITABLE);
        let (mut end, mut holds) = (0, 0);
        let mut last: Option<(Key, u32, &Entry)> = None;
        for (words, sge) in list.chunks_exact(STRIDE).zip(what.entries) {
            let written = (|| {
                let (parent, entry) = match last {
                    Some((key, parent, entry)) if key == sge.lkey.0 => (parent, entry),
                    _ => {
                        let (parent, entry) = self.hold_parent(sge.lkey.0)?;
                        if let Some(word) = list.get(slots_of_held + holds as usize) {
                            word.store(u64::from(parent), Ordering::Relaxed);
                        }
                        holds += 1;
                        usable_parent(entry, by, sge.lkey.0, writes)?;
                        last = Some((sge.lkey.0, parent, entry));
                        (parent, entry)
                    }
                };
                write_entry(words, parent, entry, sge, &mut end)
            })();
            if let Err(refusal) = written {
                self.release_list(link, pack_counts(0, holds));
                return Err(refusal);
            }
        }
        Ok((end, pack_counts(what.entries.len() as u32, holds)))
    }

    fn release_list(&self, link: Link, counts: u64) {
        held(self.runs.words(link.run), link.detail, counts)
            .for_each(|parent| self.release(parent));
    }
}

fn usable_parent(entry: &Entry, by: QpScope, key: Key, writes: bool) -> Result<(), ManageRefusal> {
    let meta = in_force(entry, key)?;
    if meta.kind() != KeyKind::Region {
        return Err(ManageRefusal::WrongKind { key, kind: meta.kind() });
    }
    same_pd(entry, by.pd, key)?;
    if writes && !meta.rights().contains(Rights::LOCAL_WRITE) {
        return Err(ManageRefusal::ParentLacks { key, missing: Rights::LOCAL_WRITE });
    }
    Ok(())
}

#[inline]
fn write_entry(
    words: &[AtomicU64],
    parent: u32,
    entry: &Entry,
    sge: &Sge,
    end: &mut u64,
) -> Result<(), ManageRefusal> {
    let length = u64::from(sge.length);
    let offset = offset_within(entry, sge.lkey.0, sge.address, length)?;
    *end += length;
    if let [word_end, word_host, word_parent] = words {
        word_end.store(*end, Ordering::Relaxed);
        word_host.store(entry.host().wrapping_add(offset), Ordering::Relaxed);
        word_parent.store(u64::from(parent), Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_past_the_end_is_in_no_entry_whatever_words_follow() {
        // Two entries of 10 and 20 bytes, then words of an earlier, longer list.
        let list = [10, 0x1000, 1, 30, 0x2000, 2, 90, 0x3000, 3].map(AtomicU64::new);
        let at = |offset| locate(&list, 2, offset).map(|piece| (piece.at, piece.skip));
        assert_eq!([at(0), at(9), at(10), at(29)], [(0, 0), (0, 9), (1, 0), (1, 19)].map(Some));
        assert_eq!([at(30), at(89)], [None; 2]);
    }
}
