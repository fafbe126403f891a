//! One entry of the protection table: 64 bytes, one cache line.

use super::sync::{AtomicU64, Ordering};
use crate::key::Key;
use crate::refusal::{KeyKind, PdId, QpId};
use crate::rights::{Rights, Want};

/// Whether an entry's key is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// No object.
    Empty = 0,
    /// One thread owns the entry and changes it; nobody may use it.
    Changing = 1,
    /// An object without memory behind it: a window not bound, an FRMR not registered.
    Free = 2,
    /// In force.
    Valid = 3,
}

/// Properties of an entry, in its word.
pub(super) mod flag {
    /// Some pages were unmapped, discarded or moved under the region.
    pub const DETACHED: u64 = 1 << 8;
    /// Pages have present bits.
    pub const ON_DEMAND: u64 = 1 << 9;
    /// The whole address space, on demand.
    pub const IMPLICIT: u64 = 1 << 10;
    /// Addresses count from 0.
    pub const ZERO_BASED: u64 = 1 << 11;
    /// Any of those that a translation has to stop at.
    pub const SLOW: u64 = DETACHED | ON_DEMAND | IMPLICIT;
}

const NO_LKEY: u64 = 1 << 24;
const LOCAL_SHIFT: u32 = 16;
const REMOTE_SHIFT: u32 = 25;
const RIGHTS_SHIFT: u32 = 33;

/// The first word of an entry, read and written as one: what must never be seen torn.
///
/// Bits: 0-3 state, 4-7 kind, 8-15 flags, 16-23 local variant, 24 no local key, 25-32 remote
/// variant, 33 and up rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta(pub u64);

impl Meta {
    pub(super) fn new(
        state: State,
        kind: KeyKind,
        flags: u64,
        variants: Variants,
        rights: Rights,
    ) -> Self {
        let no_lkey = match kind {
            KeyKind::Window1 | KeyKind::Window2 => NO_LKEY,
            _ => 0,
        };
        Self(
            state as u64
                | (kind as u64) << 4
                | flags
                | no_lkey
                | u64::from(variants.local) << LOCAL_SHIFT
                | u64::from(variants.remote) << REMOTE_SHIFT
                | u64::from(rights.bits()) << RIGHTS_SHIFT,
        )
    }

    #[inline(always)]
    pub(super) const fn state(self) -> State {
        match self.0 & 0xf {
            0 => State::Empty,
            2 => State::Free,
            3 => State::Valid,
            _ => State::Changing,
        }
    }

    /// The kind; an entry that never held an object counts as an (empty) region.
    #[inline]
    pub(super) fn kind(self) -> KeyKind {
        KeyKind::from_u8((self.0 >> 4 & 0xf) as u8).unwrap_or(KeyKind::Region)
    }

    #[inline(always)]
    pub(super) const fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// A region whose bytes are simply at `host + offset`.
    #[inline(always)]
    pub(super) const fn is_plain_region(self) -> bool {
        self.0 & (0xf0 | flag::SLOW) == (KeyKind::Region as u64) << 4
    }

    /// Whether this is a plain region in force that `key` names, in the role that `want` asks for,
    /// and grants what `want` needs: state, kind, flags, variant and right in one comparison.
    #[inline(always)]
    pub(super) fn is_plain_region_for(self, key: Key, want: Want) -> bool {
        let want = want as usize;
        let variant = u64::from(key.variant()) * PLAIN.variant[want];
        self.0 & PLAIN.mask[want] == PLAIN.value[want] + variant
    }

    #[inline(always)]
    pub(super) const fn variants(self) -> Variants {
        Variants { local: (self.0 >> LOCAL_SHIFT) as u8, remote: (self.0 >> REMOTE_SHIFT) as u8 }
    }

    /// Whether `key`'s variant is the local one; never for windows, which have none.
    #[inline(always)]
    pub(super) const fn is_lkey(self, key: Key) -> bool {
        (self.0 >> LOCAL_SHIFT) as u32 & 0x1ff == key.variant() as u32
    }

    /// Whether `key`'s variant is the remote one.
    #[inline(always)]
    pub(super) const fn is_rkey(self, key: Key) -> bool {
        (self.0 >> REMOTE_SHIFT) as u8 == key.variant()
    }

    #[inline(always)]
    pub(super) const fn rights(self) -> Rights {
        Rights::from_bits_retain((self.0 >> RIGHTS_SHIFT) as u32)
    }

    pub(super) const fn with(self, flags: u64) -> Self {
        Self(self.0 | flags)
    }

    pub(super) const fn with_state(self, state: State) -> Self {
        Self(self.0 & !0xf | state as u64)
    }
}

/// What the word of a plain region looks like, by [`Want`].
struct Patterns {
    /// The bits that matter.
    mask: [u64; 5],
    /// What they are, but for the key's variant.
    value: [u64; 5],
    /// What the variant is multiplied by to be in its place.
    variant: [u64; 5],
}

const PLAIN: Patterns = {
    const WANTS: [Want; 5] = [
        Want::LocalRead,
        Want::LocalWrite,
        Want::RemoteRead,
        Want::RemoteWrite,
        Want::RemoteAtomic,
    ];
    let mut patterns = Patterns { mask: [0; 5], value: [0; 5], variant: [0; 5] };
    let mut at = 0;
    while at < WANTS.len() {
        let want = WANTS[at];
        assert!(want as usize == at);
        let (shift, bits) = match want.is_remote() {
            true => (REMOTE_SHIFT, 0xff),
            // With the bit that says that there is no local key.
            false => (LOCAL_SHIFT, 0x1ff),
        };
        let right = (want.right().bits() as u64) << RIGHTS_SHIFT;
        patterns.mask[at] = 0xff | flag::SLOW | bits << shift | right;
        patterns.value[at] = State::Valid as u64 | (KeyKind::Region as u64) << 4 | right;
        patterns.variant[at] = 1 << shift;
        at += 1;
    }
    patterns
};

/// The low 8 bits of an object's two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variants {
    pub local: u8,
    pub remote: u8,
}

/// Who may use a key. Queue pair 0 stands for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(pub u64);

impl Owner {
    #[inline(always)]
    pub(super) const fn new(pd: PdId, qp: QpId) -> Self {
        Self((qp.0 as u64) << 32 | pd.0 as u64)
    }

    #[inline(always)]
    pub(super) const fn pd(self) -> PdId {
        PdId(self.0 as u32)
    }

    #[inline(always)]
    pub(super) const fn qp(self) -> QpId {
        QpId((self.0 >> 32) as u32)
    }
}

/// The fields of an entry that its word does not hold. Only the thread that has the entry in
/// state `Changing`, or that has just allocated it, writes them. Others read them after they have
/// published their use and then saw `Valid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub owner: Owner,
    /// First address, as work requests count.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Regions: host address of the first byte. Windows: distance from the parent's first byte.
    pub host: u64,
    /// Windows: the parent's slot. FRMR and on-demand regions: a [`Link`] to their page list.
    pub link: u64,
}

/// One object.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Entry {
    pub meta: AtomicU64,
    owner: AtomicU64,
    base: AtomicU64,
    length: AtomicU64,
    host: AtomicU64,
    link: AtomicU64,
    /// Windows and fast registrations that lie on this region, or [`CLOSING`].
    holds: AtomicU64,
    /// Counts the objects that this entry has held.
    pub generation: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == 64);

const CLOSING: u64 = 1 << 63;

impl Entry {
    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        Meta(self.meta.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(super) fn owner(&self) -> Owner {
        Owner(self.owner.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn host(&self) -> u64 {
        self.host.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn link(&self) -> u64 {
        self.link.load(Ordering::Relaxed)
    }

    pub(super) fn fields(&self) -> Fields {
        Fields {
            owner: self.owner(),
            base: self.base(),
            length: self.length(),
            host: self.host(),
            link: self.link(),
        }
    }

    /// Writes the fields and puts the entry into the state that `meta` says. The caller owns the
    /// entry.
    #[inline]
    pub(super) fn publish(&self, fields: &Fields, meta: Meta) {
        self.owner.store(fields.owner.0, Ordering::Relaxed);
        self.base.store(fields.base, Ordering::Relaxed);
        self.length.store(fields.length, Ordering::Relaxed);
        self.host.store(fields.host, Ordering::Relaxed);
        self.link.store(fields.link, Ordering::Relaxed);
        self.meta.store(meta.0, Ordering::Release);
    }

    /// Takes the entry for changing, if it still is as `seen`.
    #[inline]
    pub(super) fn take(&self, seen: Meta) -> bool {
        self.meta
            .compare_exchange(
                seen.0,
                seen.with_state(State::Changing).0,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// As [`Entry::take`], for an object whose `owner` was read before it was taken: it must be
    /// that owner's still. The word alone may be the same again in a later object's life.
    #[inline]
    pub(super) fn take_of(&self, owner: Owner, seen: Meta) -> bool {
        if !self.take(seen) {
            return false;
        }
        let same = self.owner() == owner;
        if !same {
            self.meta.store(seen.0, Ordering::Release);
        }
        same
    }

    /// Adds a window or fast registration that lies on this region; false once it is being closed.
    #[inline]
    pub(super) fn hold(&self) -> bool {
        let before = self.holds.fetch_add(1, Ordering::AcqRel);
        if before & CLOSING != 0 {
            self.release();
            return false;
        }
        true
    }

    #[inline]
    pub(super) fn release(&self) {
        self.holds.fetch_sub(1, Ordering::AcqRel);
    }

    /// Closes the region to new holders, unless it has some: then their number.
    pub(super) fn close(&self) -> Result<(), u32> {
        match self.holds.compare_exchange(0, CLOSING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            // Another closing thread, or a holder that is just being turned away, counts as one.
            Err(holders) => Err(u32::try_from(holders & !CLOSING).unwrap_or(u32::MAX).max(1)),
        }
    }

    pub(super) fn reopen(&self) {
        self.holds.fetch_and(!CLOSING, Ordering::AcqRel);
    }
}

/// The place of an object's page list in the translation table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// First word.
    pub run: u32,
    /// Room in entries (FRMR), or the page size's power of two (on-demand regions).
    pub detail: u32,
}

impl Link {
    pub(super) const NONE: Link = Link { run: 0, detail: 0 };

    #[inline(always)]
    pub(super) const fn unpack(word: u64) -> Self {
        Self { run: word as u32, detail: (word >> 32) as u32 }
    }

    pub(super) const fn pack(self) -> u64 {
        (self.detail as u64) << 32 | self.run as u64
    }
}
