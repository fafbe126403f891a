//! Memory windows: bind, for types 1 and 2B. Rules R-MW.

use super::Engine;
use super::change::{Change, Step};
use super::check::unusable;
use super::entry::{Entry, Fields, Meta, Owner, State, Variants, flag};
use super::range::{Fit, fit};
use crate::address::IoAddr;
use crate::device::MwKind;
use crate::key::Key;
use crate::refusal::{KeyKind, ManageRefusal, PdId, QpId, Refusal};
use crate::rights::Rights;
use crate::work::BindMw;

/// The queue pair by which a memory-management operation comes, and its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpScope {
    /// Its domain.
    pub pd: PdId,
    /// The queue pair.
    pub qp: QpId,
}

/// What a window may grant; a zero base is for type 2 only (R-MW-07), and LOCAL_WRITE is accepted
/// and grants nothing (R-MW-18).
const GRANTABLE: Rights = Rights::REMOTE_WRITE
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::LOCAL_WRITE)
    .union(Rights::ZERO_BASED);

/// What only writable memory may grant (R-MW-14).
const CHANGES: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_ATOMIC);

impl Engine {
    /// Begins to bind a window to part of a region. Refused, the window stays as it was.
    pub fn bind(&self, by: QpScope, what: &BindMw, kind: MwKind) -> Result<Change, ManageRefusal> {
        let (slot, entry, meta, owner) = self.window(by, what.mw.0, kind)?;
        let zero_based = what.rights.contains(Rights::ZERO_BASED);
        if !GRANTABLE.contains(what.rights) || (zero_based && kind == MwKind::Type1) {
            return Err(ManageRefusal::Rights { rights: what.rights });
        }
        let (fields, state) = match (kind, what.length) {
            (MwKind::Type2, 0) => return Err(ManageRefusal::Empty),
            (MwKind::Type1, 0) => (Self::unbound(entry, QpId(0)), State::Free),
            _ => (self.lay(by, what, kind)?, State::Valid),
        };
        let variant = match kind {
            MwKind::Type1 => what.mw.0.next().variant(),
            MwKind::Type2 => what.new_key.0.variant(),
        };
        let zero = if zero_based { flag::ZERO_BASED } else { 0 };
        let rights = what.rights & Rights::REMOTE;
        let variants = Variants { local: meta.variants().local, remote: variant };
        let new = Meta::new(state, meta.kind(), zero, variants, rights);
        if !entry.take_of(owner, meta) {
            if state == State::Valid {
                self.release(fields.link as u32);
            }
            return Err(ManageRefusal::Busy { key: what.mw.0 });
        }
        let step = Step::Replace { old: meta, fields, meta: new, translated: true, closed: false };
        Ok(self.begin(slot, meta, step))
    }

    /// The window that a bind names, ready to be bound.
    fn window(
        &self,
        by: QpScope,
        key: Key,
        kind: MwKind,
    ) -> Result<(u32, &Entry, Meta, Owner), ManageRefusal> {
        let (slot, entry, meta) = self.named(key)?;
        match (kind, meta.kind()) {
            (MwKind::Type1, KeyKind::Window1) | (MwKind::Type2, KeyKind::Window2) => {}
            (_, kind) => return Err(ManageRefusal::WrongKind { key, kind }),
        }
        let owner = same_pd(entry, by.pd, key)?;
        if kind == MwKind::Type2 && meta.state() == State::Valid {
            return Err(ManageRefusal::NotFree { key });
        }
        Ok((slot, entry, meta, owner))
    }

    /// Lays the window over its region, which it holds from then on.
    fn lay(&self, by: QpScope, what: &BindMw, kind: MwKind) -> Result<Fields, ManageRefusal> {
        let key = what.mr.0;
        let (parent, entry) = self.hold_parent(key)?;
        self.lay_on_held(by, what, kind, parent, entry).inspect_err(|_| entry.release())
    }

    fn lay_on_held(
        &self,
        by: QpScope,
        what: &BindMw,
        kind: MwKind,
        parent: u32,
        entry: &Entry,
    ) -> Result<Fields, ManageRefusal> {
        let key = what.mr.0;
        let meta = in_force(entry, key)?;
        if !matches!(meta.kind(), KeyKind::Region | KeyKind::FastMr) {
            return Err(ManageRefusal::WrongKind { key, kind: meta.kind() });
        }
        same_pd(entry, by.pd, key)?;
        if !meta.rights().contains(Rights::MW_BIND) {
            return Err(ManageRefusal::ParentLacks { key, missing: Rights::MW_BIND });
        }
        if what.rights.intersects(CHANGES) && !meta.rights().contains(Rights::LOCAL_WRITE) {
            return Err(ManageRefusal::ParentLacks { key, missing: Rights::LOCAL_WRITE });
        }
        let zero_based = what.rights.contains(Rights::ZERO_BASED);
        if kind == MwKind::Type1 && meta.has(flag::ZERO_BASED) {
            return Err(ManageRefusal::ZeroBasedParent { key });
        }
        let offset = offset_within(entry, key, what.address, what.length)?;
        let qp = match kind {
            MwKind::Type1 => QpId(0),
            MwKind::Type2 => by.qp,
        };
        Ok(Fields {
            owner: Owner::new(by.pd, qp),
            base: if zero_based { 0 } else { what.address.0 },
            length: what.length,
            host: offset,
            link: u64::from(parent),
        })
    }

    /// The live object that an rkey names, and its word.
    pub(super) fn named(&self, key: Key) -> Result<(u32, &Entry, Meta), ManageRefusal> {
        let (slot, entry) = self.table.find(key);
        let entry = entry.ok_or(Refusal::UnknownIndex { key })?;
        let meta = entry.meta();
        if meta.state() == State::Empty || !meta.is_rkey(key) {
            return Err(unusable(meta, key, true).into());
        }
        if meta.state() == State::Changing {
            return Err(ManageRefusal::Busy { key });
        }
        Ok((slot, entry, meta))
    }

    /// Holds the region of an lkey, so that it can not end; what it is must be looked at after.
    #[inline]
    pub(super) fn hold_parent(&self, key: Key) -> Result<(u32, &Entry), ManageRefusal> {
        let (slot, entry) = self.table.find(key);
        let entry = entry.ok_or(Refusal::UnknownIndex { key })?;
        // A key that names nothing must not be in the way of whoever ends the slot's object.
        in_force(entry, key)?;
        if !entry.hold() {
            return Err(ManageRefusal::Busy { key });
        }
        Ok((slot, entry))
    }
}

/// The word of a held region, if `key` is its lkey and in force.
#[inline]
pub(super) fn in_force(entry: &Entry, key: Key) -> Result<Meta, ManageRefusal> {
    let meta = entry.meta();
    if meta.state() == State::Valid && meta.is_lkey(key) {
        return Ok(meta);
    }
    Err(unusable(meta, key, false).into())
}

#[inline]
pub(super) fn same_pd(entry: &Entry, qp_pd: PdId, key: Key) -> Result<Owner, ManageRefusal> {
    let owner = entry.owner();
    let key_pd = owner.pd();
    if key_pd == qp_pd { Ok(owner) } else { Err(Refusal::OtherPd { key, key_pd, qp_pd }.into()) }
}

/// How far into a region a range begins that must lie within it.
#[inline]
pub(super) fn offset_within(
    entry: &Entry,
    key: Key,
    address: IoAddr,
    length: u64,
) -> Result<u64, ManageRefusal> {
    let start = IoAddr(entry.base());
    match fit(entry.base(), entry.length(), address.0, length) {
        Fit::Within(offset) => Ok(offset),
        Fit::Before(by) => Err(Refusal::BeforeStart { key, start, address, by }.into()),
        Fit::Past(by) => {
            let length = entry.length();
            Err(Refusal::PastEnd { key, start, length, address, by }.into())
        }
    }
}
