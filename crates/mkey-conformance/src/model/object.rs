//! What the model remembers.

use mkey_core::address::HostRange;
use mkey_core::device::OdpStats;
use mkey_core::engine::ObjectId;
use mkey_core::key::Key;
use mkey_core::refusal::{DetachCause, KeyKind, PdId, QpId};
use mkey_core::rights::Rights;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Every object that lives, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub objects: Vec<Object>,
    /// The last keys of the last object of each index.
    pub last_keys: HashMap<u32, Vec<Key>>,
    pub pauses: u32,
    /// Counts translations, to tell one from the next.
    pub translations: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub id: ObjectId,
    pub kind: KeyKind,
    pub pd: PdId,
    /// Windows have none.
    pub lkey: Option<Key>,
    pub rkey: Key,
    /// What was handed out as its lkey.
    pub told_lkey: Key,
    pub rights: Rights,
    pub base: u64,
    pub length: u64,
    pub zero_based: bool,
    pub memory: Memory,
    /// FRMR: the most entries.
    pub room: u32,
    pub gone: Vec<Gone>,
    /// A change has begun and not taken effect: the memory that follows.
    pub change: Option<Memory>,
}

#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// Windows not bound, FRMR not registered.
    None,
    /// Contiguous from here.
    Plain(u64),
    OnDemand(OnDemand),
    Null,
    Window {
        parent: ObjectId,
        /// Distance from the parent's first byte.
        offset: u64,
        /// Type 2: bound by this queue pair.
        qp: Option<QpId>,
    },
    List(Vec<Item>),
}

/// An entry of a scatter list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub host: u64,
    pub len: u64,
    pub parent: ObjectId,
}

#[derive(Clone, Debug)]
pub(super) struct OnDemand {
    pub host: u64,
    pub shift: u32,
    pub present: Present,
    /// Which translation it is.
    pub translation: u64,
    /// Events that took pages away.
    pub events: u64,
    pub stats: OdpStats,
}

#[derive(Clone, Debug)]
pub(super) enum Present {
    /// Of an explicit region.
    All(BTreeSet<u64>),
    /// Of an implicit region: each page has one of 4096 places.
    Places(BTreeMap<u64, u64>),
}

impl Present {
    pub fn has(&self, page: u64) -> bool {
        match self {
            Self::All(pages) => pages.contains(&page),
            Self::Places(places) => places.get(&(page % 4096)) == Some(&page),
        }
    }

    /// Whether it was absent.
    pub fn add(&mut self, page: u64) -> bool {
        match self {
            Self::All(pages) => pages.insert(page),
            Self::Places(places) => places.insert(page % 4096, page) != Some(page),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub range: HostRange,
    pub cause: DetachCause,
    pub when: Duration,
}

impl Memory {
    /// How often it lies on an object. A run of list entries on one region counts once.
    fn lies_on(&self, id: ObjectId) -> u32 {
        match self {
            Self::Window { parent, .. } => u32::from(*parent == id),
            Self::List(items) => {
                let mut count = 0;
                let mut last = None;
                for item in items {
                    if item.parent == id && last != Some(id) {
                        count += 1;
                    }
                    last = Some(item.parent);
                }
                count
            }
            _ => 0,
        }
    }
}

impl Object {
    /// Whether accesses may be allowed.
    pub fn serves(&self) -> bool {
        self.change.is_none() && !matches!(self.memory, Memory::None)
    }

    pub fn is_window(&self) -> bool {
        matches!(self.kind, KeyKind::Window1 | KeyKind::Window2)
    }

    pub fn on_demand(&self) -> Option<&OnDemand> {
        match &self.memory {
            Memory::OnDemand(on_demand) => Some(on_demand),
            _ => None,
        }
    }
}

impl Model {
    pub fn by_id(&self, id: ObjectId) -> Option<&Object> {
        self.objects.iter().find(|object| object.id == id)
    }

    pub fn by_id_mut(&mut self, id: ObjectId) -> Option<&mut Object> {
        self.objects.iter_mut().find(|object| object.id == id)
    }

    pub fn by_index(&self, key: Key) -> Option<&Object> {
        self.objects.iter().find(|object| object.rkey.index() == key.index())
    }

    /// Windows and list runs that lie on an object now, those included that end or begin.
    pub fn held_by(&self, id: ObjectId) -> u32 {
        let of = |object: &Object| {
            let next = object.change.as_ref().map_or(0, |next| next.lies_on(id));
            object.memory.lies_on(id) + next
        };
        self.objects.iter().map(of).sum()
    }
}

pub(super) fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Region => "region",
        KeyKind::Window1 => "window 1",
        KeyKind::Window2 => "window 2",
        KeyKind::FastMr => "frmr",
        KeyKind::Null => "null",
        _ => "?",
    }
}
