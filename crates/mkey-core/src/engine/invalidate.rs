//! Invalidation, local or by the peer's SEND_WITH_INV. Rules R-INV.

use super::Engine;
use super::change::{Change, Step};
use super::entry::State;
use super::window::{QpScope, same_pd};
use crate::key::Key;
use crate::refusal::{KeyKind, ManageRefusal, QpId, Refusal};
use crate::rights::Rights;

impl Engine {
    /// Begins to invalidate a type 2 window (its own queue pair only, R-INV-03) or an FRMR (any
    /// queue pair of its domain; one that is free already stays so, R-INV-08).
    pub fn invalidate(&self, by: QpScope, key: Key) -> Result<Change, ManageRefusal> {
        let (slot, entry, meta) = self.named(key)?;
        if !matches!(meta.kind(), KeyKind::Window2 | KeyKind::FastMr) {
            return Err(ManageRefusal::WrongKind { key, kind: meta.kind() });
        }
        let owner = same_pd(entry, by.pd, key)?;
        match (meta.kind(), meta.state()) {
            (KeyKind::FastMr, State::Free) => {
                return Ok(self.begin(slot, meta, Step::Done));
            }
            (_, State::Valid) => {}
            (kind, _) => return Err(Refusal::NotValid { key, kind }.into()),
        }
        let key_qp = owner.qp();
        if key_qp != QpId(0) && key_qp != by.qp {
            return Err(Refusal::OtherQp { key, key_qp, qp: by.qp }.into());
        }
        // Windows can only lie on what grants it.
        let closed = meta.rights().contains(Rights::MW_BIND);
        if closed {
            entry.close().map_err(|by| ManageRefusal::Held { key, by })?;
        }
        if !entry.take_of(owner, meta) {
            if closed {
                entry.reopen();
            }
            return Err(ManageRefusal::Busy { key });
        }
        let fields = Self::unbound(entry, QpId(0));
        let free = meta.with_state(State::Free);
        Ok(self.begin(
            slot,
            meta,
            Step::Replace { old: meta, fields, meta: free, translated: true, closed },
        ))
    }
}
