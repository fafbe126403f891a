//! Memory regions: registration, re-registration, deregistration.

use super::change::{Change, Step};
use super::entry::{Entry, Fields, Link, Meta, Owner, State, Variants, flag};
use super::permutation::split_mix;
use super::sync::Ordering;
use super::{Engine, fast_mr, on_demand};
use crate::address::{HostAddr, IoAddr};
use crate::device::MwKind;
use crate::key::{Key, Lkey, Rkey};
use crate::refusal::{KeyKind, PdId, QpId};
use crate::rights::Rights;

/// What is behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pinned memory from here on. Contiguous in host addresses, so it needs no page list,
    /// whatever its page size.
    Plain {
        /// Address of the first byte.
        host: HostAddr,
    },
    /// Memory that faults in page by page.
    OnDemand {
        /// Address of the first byte.
        host: HostAddr,
        /// Pages have 2^this bytes; at least 12.
        page_shift: u8,
    },
    /// The whole address space on demand; I/O addresses are host addresses.
    Implicit,
    /// Zeros to read, nothing to write.
    Null,
}

/// A region to register. Rights were validated by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Address of the first byte in work requests.
    pub iova: IoAddr,
    /// Bytes.
    pub length: u64,
    /// Rights.
    pub rights: Rights,
    /// The memory.
    pub backing: Backing,
}

/// Names an object of an engine, unlike any that was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    pub(super) fn new(slot: u32, generation: u64) -> Self {
        Self(generation << 24 | u64::from(slot))
    }

    pub(super) fn slot(self) -> u32 {
        self.0 as u32 & 0xff_ffff
    }

    pub(super) fn generation(self) -> u64 {
        self.0 >> 24
    }

    /// As a number, for handles.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// From a number that may be anything.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Its place in tables kept beside the engine: dense, below 2^24, reused after the object's
    /// end.
    pub fn place(self) -> usize {
        self.slot() as usize
    }
}

/// A new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Names it.
    pub id: ObjectId,
    /// Its local key (windows: of no use).
    pub lkey: Lkey,
    /// Its remote key.
    pub rkey: Rkey,
}

/// The engine holds as many objects as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull {
    /// The most that it may hold.
    pub most: u32,
}

/// Why an object can not be changed or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// No such object, or no more, or not of the right kind.
    Unknown,
    /// Windows or fast registrations lie on it.
    Held {
        /// How many.
        by: u32,
    },
    /// Another thread is changing it.
    Busy,
    /// No room in the translation table.
    Full,
}

/// What to change of a region; at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remap {
    /// Another domain.
    pub pd: Option<PdId>,
    /// Other memory: I/O address of the first byte, bytes, backing.
    pub translation: Option<(IoAddr, u64, Backing)>,
    /// Other rights, validated by the caller.
    pub rights: Option<Rights>,
}

impl Engine {
    /// Registers memory.
    pub fn register(&self, pd: PdId, what: &Registration) -> Result<Registered, TableFull> {
        let full = TableFull { most: self.table.most() };
        let (host, flags, link) = self.back(what.backing, what.length).ok_or(full)?;
        let kind = match what.backing {
            Backing::Null => KeyKind::Null,
            _ => KeyKind::Region,
        };
        let fields = Fields {
            owner: Owner::new(pd, QpId(0)),
            base: what.iova.0,
            length: what.length,
            host,
            link: link.pack(),
        };
        let flags = flags | zero_based(what.rights);
        self.place(kind, State::Valid, flags, what.rights, &fields).inspect_err(|_| {
            if flags & (flag::ON_DEMAND | flag::IMPLICIT) != 0 {
                on_demand::free(&self.runs, link.pack(), what.length, host);
            }
        })
    }

    /// Allocates a window, unbound.
    pub fn allocate_window(&self, pd: PdId, kind: MwKind) -> Result<Registered, TableFull> {
        let kind = match kind {
            MwKind::Type1 => KeyKind::Window1,
            MwKind::Type2 => KeyKind::Window2,
        };
        let fields =
            Fields { owner: Owner::new(pd, QpId(0)), base: 0, length: 0, host: 0, link: 0 };
        self.place(kind, State::Free, 0, Rights::empty(), &fields)
    }

    /// Allocates an FRMR for up to `max_entries` scatter entries, at most
    /// [`Engine::MAX_FAST_MR_ENTRIES`]. Its lkey and rkey are the same number (R-FR-10).
    pub fn allocate_fast_mr(&self, pd: PdId, max_entries: u32) -> Result<Registered, TableFull> {
        let full = TableFull { most: self.table.most() };
        let words = fast_mr::words(max_entries.min(Self::MAX_FAST_MR_ENTRIES));
        let run = self.runs.allocate(words).ok_or(full)?;
        let link = Link { run, detail: max_entries.min(Self::MAX_FAST_MR_ENTRIES) };
        let fields = Fields {
            owner: Owner::new(pd, QpId(0)),
            base: 0,
            length: 0,
            host: 0,
            link: link.pack(),
        };
        self.place(KeyKind::FastMr, State::Free, 0, Rights::empty(), &fields)
            .inspect_err(|_| self.runs.free(run, words))
    }

    /// Begins to free an object: a region, window or FRMR. A window ends what it grants
    /// (R-MWU-11); a region on which windows or fast registrations lie stays (R-MWU-10).
    pub fn deregister(&self, id: ObjectId) -> Result<Change, ObjectError> {
        let (entry, meta) = self.object(id)?;
        entry.close().map_err(|by| ObjectError::Held { by })?;
        let meta = self.take_closed(id, entry, meta)?;
        Ok(self.begin(id.slot(), meta, Step::Retire { old: meta }))
    }

    /// Begins to change a region. Its keys stay.
    pub fn reregister(&self, id: ObjectId, remap: &Remap) -> Result<Change, ObjectError> {
        let (entry, meta) = self.object(id)?;
        if meta.kind() != KeyKind::Region {
            return Err(ObjectError::Unknown);
        }
        entry.close().map_err(|by| ObjectError::Held { by })?;
        let meta = self.take_closed(id, entry, meta)?;
        let rights = remap.rights.unwrap_or(meta.rights());
        let mut fields = entry.fields();
        let mut flags = meta.0 & (flag::SLOW | flag::ZERO_BASED);
        if let Some((iova, length, backing)) = remap.translation {
            let Some((host, kind, link)) = self.back(backing, length) else {
                // A change to what it was: pages may have been taken away meanwhile.
                self.replace_region(id.slot(), entry, meta, &fields, meta, false);
                entry.reopen();
                return Err(ObjectError::Full);
            };
            fields = Fields { base: iova.0, length, host, link: link.pack(), ..fields };
            flags = kind | zero_based(rights);
        }
        if let Some(pd) = remap.pd {
            fields.owner = Owner::new(pd, QpId(0));
        }
        let new = Meta::new(State::Valid, KeyKind::Region, flags, meta.variants(), rights);
        Ok(self.begin(
            id.slot(),
            meta,
            Step::Replace {
                old: meta,
                fields,
                meta: new,
                translated: remap.translation.is_some(),
                closed: true,
            },
        ))
    }

    /// The entry of an object that lives.
    pub(super) fn object(&self, id: ObjectId) -> Result<(&Entry, Meta), ObjectError> {
        let entry = self.table.entry(id.slot()).ok_or(ObjectError::Unknown)?;
        let meta = entry.meta();
        if entry.generation.load(Ordering::Acquire) != id.generation()
            || meta.state() == State::Empty
        {
            return Err(ObjectError::Unknown);
        }
        if meta.state() == State::Changing {
            return Err(ObjectError::Busy);
        }
        Ok((entry, meta))
    }

    /// Takes an entry that was closed to new holders, or opens it again.
    fn take_closed(&self, id: ObjectId, entry: &Entry, meta: Meta) -> Result<Meta, ObjectError> {
        let mut meta = meta;
        let refused = loop {
            if entry.generation.load(Ordering::Acquire) != id.generation() {
                break ObjectError::Unknown;
            }
            if entry.take(meta) {
                return Ok(meta);
            }
            // Pages may just have been marked as detached; that is no reason to give up.
            meta = entry.meta();
            match meta.state() {
                State::Changing => break ObjectError::Busy,
                State::Empty => break ObjectError::Unknown,
                State::Free | State::Valid => {}
            }
        };
        entry.reopen();
        Err(refused)
    }

    /// Host address, flags and page list for a backing, or `None` if the list finds no room.
    fn back(&self, backing: Backing, length: u64) -> Option<(u64, u64, Link)> {
        Some(match backing {
            Backing::Plain { host } => (host.0, 0, Link::NONE),
            Backing::Null => (0, 0, Link::NONE),
            Backing::OnDemand { host, page_shift } => {
                let translation = self.next_translation();
                let link =
                    on_demand::allocate(&self.runs, host.0, length, page_shift, translation)?;
                (host.0, flag::ON_DEMAND, link)
            }
            Backing::Implicit => {
                let link = on_demand::allocate_implicit(&self.runs, self.next_translation())?;
                (0, flag::IMPLICIT, link)
            }
        })
    }

    fn next_translation(&self) -> u32 {
        self.translations.fetch_add(1, Ordering::Relaxed)
    }

    fn place(
        &self,
        kind: KeyKind,
        state: State,
        flags: u64,
        rights: Rights,
        fields: &Fields,
    ) -> Result<Registered, TableFull> {
        let (slot, entry) = self.table.allocate().ok_or(TableFull { most: self.table.most() })?;
        let generation = entry.generation.load(Ordering::Acquire);
        let variants = self.draw_variants(slot, generation, entry.meta().variants(), kind);
        entry.publish(fields, Meta::new(state, kind, flags, variants, rights));
        let index = self.table.index(slot);
        Ok(Registered {
            id: ObjectId::new(slot, generation),
            lkey: Lkey(Key::new(index, variants.local)),
            rkey: Rkey(Key::new(index, variants.remote)),
        })
    }

    /// Random variants that are none of the last object's (R-KEY-07).
    fn draw_variants(&self, slot: u32, generation: u64, last: Variants, kind: KeyKind) -> Variants {
        let mut state = self.seed ^ generation << 24 ^ u64::from(slot);
        let random = split_mix(&mut state);
        let fresh = |mut variant: u8, also_not: Option<u8>| {
            while variant == last.local || variant == last.remote || Some(variant) == also_not {
                variant = variant.wrapping_add(1);
            }
            variant
        };
        let remote = fresh(random as u8, None);
        let local = match kind {
            KeyKind::FastMr => remote,
            _ => fresh((random >> 8) as u8, Some(remote)),
        };
        Variants { local, remote }
    }
}

fn zero_based(rights: Rights) -> u64 {
    if rights.contains(Rights::ZERO_BASED) { flag::ZERO_BASED } else { 0 }
}
