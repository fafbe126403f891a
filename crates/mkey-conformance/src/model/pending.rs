//! What must hold while a change is pending.

use super::bed::Tally;
use super::object::{Gone, Memory, Model};
use super::operations::WANTS;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::{Access, Engine, ObjectError, ObjectId, QpScope, Remap};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::refusal::{DetachCause, KeyKind, QpId};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::BindMw;
use std::time::Duration;

impl Model {
    /// An access through an object that is allowed, if there is one.
    pub(super) fn some_access(&self, id: ObjectId) -> Option<Access> {
        let object = self.by_id(id).filter(|object| object.serves())?;
        let qp = match object.memory {
            Memory::Window { qp: Some(qp), .. } => qp,
            _ => QpId(u32::MAX),
        };
        WANTS
            .into_iter()
            .map(|want| Access {
                key: match (want, object.lkey) {
                    (Want::LocalRead | Want::LocalWrite, Some(lkey)) => lkey,
                    _ => object.rkey,
                },
                pd: object.pd,
                qp,
                address: IoAddr(object.base),
                length: 1,
                want,
            })
            .find(|access| self.access(access).is_ok())
    }

    /// The first bytes of a region are taken away.
    pub(super) fn lose_a_page(&mut self, engine: &Engine, id: ObjectId) {
        let host = match self.by_id(id).map(|object| &object.memory) {
            Some(Memory::Plain(host)) => *host,
            Some(Memory::OnDemand(on_demand)) => on_demand.host,
            _ => return,
        };
        let range = HostRange { start: HostAddr(host), len: 0x800 };
        let (cause, when) = (DetachCause::Unmapped, Duration::from_secs(1));
        let met = engine.detach(range, cause, when);
        assert_eq!(met, self.detach(Gone { range, cause, when }), "regions met while pending");
    }

    /// What is being changed refuses every other change as busy.
    pub(super) fn busy(&self, engine: &Engine, tally: &mut Tally, id: ObjectId) {
        let Some(object) = self.by_id(id) else { return };
        assert_eq!(engine.deregister(id).err(), Some(ObjectError::Busy), "{object:?}");
        let again = engine.reregister(id, &Remap::default()).err();
        assert!(
            again.is_some_and(|refused| self.reregister(id).contains(&refused)),
            "{object:?}: {again:?}"
        );
        let by = QpScope { pd: object.pd, qp: QpId(u32::MAX) };
        let got = engine.invalidate(by, object.rkey).err();
        let wrong = self.invalidate(by, object.rkey).err().unwrap_or_default();
        assert!(got.as_ref().is_some_and(|got| wrong.contains(got)), "{got:?} of {wrong:?}");
        // Nothing can be laid upon it, and what it lay on is held until the change is done.
        if let Some(lkey) = object.lkey.filter(|_| object.kind == KeyKind::Region) {
            for window in self.objects.iter().filter(|window| window.kind == KeyKind::Window1) {
                let what = BindMw {
                    mw: Rkey(window.rkey),
                    new_key: Rkey(Key(0)),
                    mr: Lkey(lkey),
                    address: IoAddr(object.base),
                    length: 1,
                    rights: Rights::empty(),
                };
                let by = QpScope { pd: window.pd, qp: QpId(u32::MAX) };
                let got = engine.bind(by, &what, MwKind::Type1).err();
                let wrong = self.bind(by, &what, MwKind::Type1).err().unwrap_or_default();
                assert!(got.as_ref().is_some_and(|got| wrong.contains(got)), "{got:?}, {wrong:?}");
            }
        }
        for parent in &self.objects {
            let held = self.held_by(parent.id);
            if held > 0 && parent.change.is_none() {
                let got = engine.deregister(parent.id).err();
                assert_eq!(got, Some(ObjectError::Held { by: held }), "{parent:?}");
                tally.count("held while pending");
            }
        }
    }
}
