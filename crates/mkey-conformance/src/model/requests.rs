//! Memory-management work requests: sections R-MW, R-MWU, R-INV, R-FR.
//!
//! Each function gives all that is wrong with a request as far as it can be told apart, or the
//! effect.

use super::access::place;
use super::object::{Item, Memory, Model, Object};
use mkey_core::device::MwKind;
use mkey_core::engine::{ObjectId, QpScope};
use mkey_core::key::Key;
use mkey_core::refusal::{KeyKind, ManageRefusal, Refusal};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, RegMr, Sge};

/// What a change makes of an object.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub id: ObjectId,
    pub rkey: Key,
    pub rights: Rights,
    pub base: u64,
    pub length: u64,
    pub zero_based: bool,
    pub memory: Memory,
}

/// An effect, or everything that stands against it (never nothing).
pub(super) type Expected<E> = Result<Effect, Vec<E>>;

type Wrong = Vec<ManageRefusal>;

const REMOTE: Rights = Rights::REMOTE_READ.union(Rights::REMOTE_WRITE).union(Rights::REMOTE_ATOMIC);

/// R-MW-19, R-MW-07 (the zero base of type 2), R-MW-18 (LOCAL_WRITE is accepted).
const WINDOW_MAY: Rights = REMOTE.union(Rights::LOCAL_WRITE).union(Rights::ZERO_BASED);

fn unless_wrong(wrong: Wrong, effect: impl FnOnce() -> Effect) -> Expected<ManageRefusal> {
    if wrong.is_empty() { Ok(effect()) } else { Err(wrong) }
}

impl Model {
    /// The object whose current remote key this is.
    fn by_rkey(&self, key: Key) -> Result<&Object, Wrong> {
        let object = self.by_index(key).ok_or(vec![Refusal::UnknownIndex { key }.into()])?;
        if object.rkey == key {
            return Ok(object);
        }
        Err(vec![match object.lkey == Some(key) {
            true => Refusal::LkeyAsRkey { key }.into(),
            false => Refusal::StaleVariant { key, kind: object.kind }.into(),
        }])
    }

    /// The object in force whose lkey this is.
    fn by_lkey(&self, key: Key) -> Result<&Object, Wrong> {
        let object = self.by_index(key).ok_or(vec![Refusal::UnknownIndex { key }.into()])?;
        let mut wrong = Wrong::new();
        if object.lkey != Some(key) {
            wrong.push(match object.rkey == key {
                true => Refusal::RkeyAsLkey { key }.into(),
                false => Refusal::StaleVariant { key, kind: object.kind }.into(),
            });
        } else if !object.serves() {
            wrong.push(Refusal::NotValid { key, kind: object.kind }.into());
        }
        if object.change.is_some() {
            wrong.push(ManageRefusal::Busy { key });
        }
        if wrong.is_empty() { Ok(object) } else { Err(wrong) }
    }

    pub fn bind(&self, by: QpScope, what: &BindMw, kind: MwKind) -> Expected<ManageRefusal> {
        let key = what.mw.0;
        let window = self.by_rkey(key)?;
        let wanted = match kind {
            MwKind::Type1 => KeyKind::Window1,
            MwKind::Type2 => KeyKind::Window2,
        };
        if window.kind != wanted {
            let mut wrong = vec![ManageRefusal::WrongKind { key, kind: window.kind }];
            wrong.extend(busy(window, key));
            return Err(wrong);
        }
        let mut wrong = Wrong::from_iter(busy(window, key));
        wrong.extend(other_pd(window, by, key));
        if kind == MwKind::Type2 && window.serves() {
            wrong.push(ManageRefusal::NotFree { key });
        }
        let zero_based = what.rights.contains(Rights::ZERO_BASED);
        if !WINDOW_MAY.contains(what.rights) || (zero_based && kind == MwKind::Type1) {
            wrong.push(ManageRefusal::Rights { rights: what.rights });
        }
        let unbinds = kind == MwKind::Type1 && what.length == 0;
        if kind == MwKind::Type2 && what.length == 0 {
            wrong.push(ManageRefusal::Empty);
        }
        let rkey = match kind {
            MwKind::Type1 => Key(key.0 & !0xff | (key.0 + 1) & 0xff),
            MwKind::Type2 => Key(key.0 & !0xff | what.new_key.0.0 & 0xff),
        };
        let none = Effect {
            id: window.id,
            rkey,
            rights: Rights::empty(),
            base: 0,
            length: 0,
            zero_based: false,
            memory: Memory::None,
        };
        if unbinds {
            // The memory does not matter then.
            return unless_wrong(wrong, || none);
        }
        let parent = match self.by_lkey(what.mr.0) {
            Ok(parent) => parent,
            Err(more) => return Err([wrong, more].concat()),
        };
        let lkey = what.mr.0;
        if !matches!(parent.kind, KeyKind::Region | KeyKind::FastMr) {
            wrong.push(ManageRefusal::WrongKind { key: lkey, kind: parent.kind });
        }
        wrong.extend(other_pd(parent, by, lkey));
        if !parent.rights.contains(Rights::MW_BIND) {
            wrong.push(ManageRefusal::ParentLacks { key: lkey, missing: Rights::MW_BIND });
        }
        if (what.rights.contains(Rights::REMOTE_WRITE)
            || what.rights.contains(Rights::REMOTE_ATOMIC))
            && !parent.rights.contains(Rights::LOCAL_WRITE)
        {
            wrong.push(ManageRefusal::ParentLacks { key: lkey, missing: Rights::LOCAL_WRITE });
        }
        if kind == MwKind::Type1 && parent.zero_based {
            wrong.push(ManageRefusal::ZeroBasedParent { key: lkey });
        }
        let placed = place(parent, lkey, what.address.0, what.length);
        let offset = placed.unwrap_or_else(|refusal| {
            wrong.push(refusal.into());
            0
        });
        let qp = (kind == MwKind::Type2).then_some(by.qp);
        let memory = Memory::Window { parent: parent.id, offset, qp };
        unless_wrong(wrong, || Effect {
            rights: what.rights & REMOTE,
            base: if zero_based { 0 } else { what.address.0 },
            length: what.length,
            zero_based,
            memory,
            ..none
        })
    }

    pub fn invalidate(&self, by: QpScope, key: Key) -> Expected<ManageRefusal> {
        let object = self.by_rkey(key)?;
        let mut wrong = Wrong::from_iter(busy(object, key));
        if !matches!(object.kind, KeyKind::Window2 | KeyKind::FastMr) {
            wrong.push(ManageRefusal::WrongKind { key, kind: object.kind });
            return Err(wrong);
        }
        wrong.extend(other_pd(object, by, key));
        match object.memory {
            Memory::None if object.kind == KeyKind::Window2 => {
                wrong.push(Refusal::NotValid { key, kind: object.kind }.into());
            }
            Memory::Window { qp: Some(key_qp), .. } if key_qp != by.qp => {
                wrong.push(Refusal::OtherQp { key, key_qp, qp: by.qp }.into());
            }
            _ => {}
        }
        let holders = self.held_by(object.id);
        if holders > 0 {
            wrong.push(ManageRefusal::Held { key, by: holders });
        }
        unless_wrong(wrong, || Effect {
            id: object.id,
            rkey: object.rkey,
            rights: object.rights,
            base: 0,
            length: 0,
            zero_based: false,
            memory: Memory::None,
        })
    }

    pub fn fast_register(&self, by: QpScope, what: &RegMr<'_>) -> Expected<ManageRefusal> {
        let key = what.key;
        let object = self.by_index(key).ok_or(vec![Refusal::UnknownIndex { key }.into()])?;
        if object.kind != KeyKind::FastMr {
            let mut wrong = vec![ManageRefusal::WrongKind { key, kind: object.kind }];
            wrong.extend(busy(object, key));
            return Err(wrong);
        }
        let mut wrong = Wrong::from_iter(busy(object, key));
        if object.serves() {
            wrong.push(ManageRefusal::NotFree { key });
        }
        wrong.extend(other_pd(object, by, key));
        if !may_fast_register(what.rights) {
            wrong.push(ManageRefusal::Rights { rights: what.rights });
        }
        let (given, most) = (what.entries.len(), object.room);
        if given == 0 || given as u64 > u64::from(most) {
            wrong.push(ManageRefusal::Entries { given, most });
        }
        let mut items = Vec::new();
        for sge in what.entries {
            match self.entry(by, sge, what.rights) {
                Ok(item) => items.push(item),
                Err(more) => {
                    wrong.extend(more);
                    return Err(wrong);
                }
            }
        }
        let length: u64 = what.entries.iter().map(|sge| u64::from(sge.length)).sum();
        if u128::from(what.iova.0) + u128::from(length) > u128::from(u64::MAX) {
            wrong.push(ManageRefusal::Wraps { address: what.iova, length });
        }
        unless_wrong(wrong, || Effect {
            id: object.id,
            rkey: key,
            rights: what.rights,
            base: what.iova.0,
            length,
            zero_based: false,
            memory: Memory::List(items),
        })
    }

    fn entry(&self, by: QpScope, sge: &Sge, rights: Rights) -> Result<Item, Wrong> {
        let key = sge.lkey.0;
        let parent = self.by_lkey(key)?;
        if parent.kind != KeyKind::Region {
            return Err(vec![ManageRefusal::WrongKind { key, kind: parent.kind }]);
        }
        let mut wrong = Wrong::from_iter(other_pd(parent, by, key));
        // What is registered for writing, or may be given on for writing, must be writable.
        let writes =
            [Rights::LOCAL_WRITE, Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC, Rights::MW_BIND];
        if writes.iter().any(|&right| rights.contains(right))
            && !parent.rights.contains(Rights::LOCAL_WRITE)
        {
            wrong.push(ManageRefusal::ParentLacks { key, missing: Rights::LOCAL_WRITE });
        }
        let len = u64::from(sge.length);
        let offset = place(parent, key, sge.address.0, len).unwrap_or_else(|refusal| {
            wrong.push(refusal.into());
            0
        });
        let host = match &parent.memory {
            Memory::Plain(host) => *host,
            Memory::OnDemand(on_demand) => on_demand.host,
            _ => 0,
        };
        if wrong.is_empty() {
            Ok(Item { host: host + offset, len, parent: parent.id })
        } else {
            Err(wrong)
        }
    }
}

/// R-FR-13, and nothing that an FRMR can not be.
fn may_fast_register(rights: Rights) -> bool {
    let may = REMOTE
        | Rights::LOCAL_WRITE
        | Rights::MW_BIND
        | Rights::RELAXED_ORDERING
        | Rights::FLUSH_GLOBAL
        | Rights::FLUSH_PERSISTENT;
    let writes = rights.contains(Rights::REMOTE_WRITE) || rights.contains(Rights::REMOTE_ATOMIC);
    may.contains(rights) && (!writes || rights.contains(Rights::LOCAL_WRITE))
}

fn busy(object: &Object, key: Key) -> Option<ManageRefusal> {
    object.change.as_ref().map(|_| ManageRefusal::Busy { key })
}

fn other_pd(object: &Object, by: QpScope, key: Key) -> Option<ManageRefusal> {
    (object.pd != by.pd).then(|| Refusal::OtherPd { key, key_pd: object.pd, qp_pd: by.pd }.into())
}
