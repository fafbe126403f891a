//! Grants by a registration of their own: what is left where a device has neither windows nor fast
//! registration.

use super::options::{Grants, Source};
use crate::access::PeerAccess;
use crate::lease::{Ended, bump};
use crate::slice::Slice;
use crate::sync::lock;
use mkey_core::address::HostAddr;
use mkey_core::device::{MrInfo, MrSpec};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use std::sync::Mutex;

/// A registration that is one grant.
#[derive(Debug)]
pub(crate) struct RegionGrant {
    info: MrInfo,
    grants: Grants,
    length: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Live { _slice: Slice },
    Over,
    Kept(Error),
}

impl RegionGrant {
    pub(super) fn new(slice: &Slice, grants: &Grants, access: PeerAccess) -> Result<Self> {
        let inner = &grants.inner;
        let Source::Regions(regions) = &inner.source else {
            let reason = Reason::Ended { what: "policy" };
            return Err(Error::new("grant", slice.len, reason));
        };
        regions.begin(inner.max)?;
        let length = slice.len as u64;
        let address = HostAddr(slice.as_ptr().expose_provenance() as u64);
        let (iova, rights) = (Some(slice.iova), access.of_registration());
        let spec = MrSpec { address, length, iova, rights };
        let device = inner.pd.device();
        // SAFETY: the slice keeps its memory mapped, and its owner promised, when it was
        // registered, that no references to it exist; it is kept until this registration has
        // ended.
        match unsafe { device.control().reg_mr(inner.pd.handle(), &spec) } {
            Ok(info) => {
                device.registered(length);
                bump(&regions.counters.begun);
                let state = Mutex::new(State::Live { _slice: slice.clone() });
                Ok(Self { info, grants: grants.clone(), length, state })
            }
            Err(error) => {
                regions.end();
                Err(error)
            }
        }
    }

    pub(super) fn key(&self) -> Rkey {
        self.info.rkey
    }

    /// Deregisters, unless that was done; exact on return.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Live { .. }) {
            return;
        }
        let inner = &self.grants.inner;
        let device = inner.pd.device();
        let ended = device.dereg_mr(self.info.handle, self.length);
        let before = match &ended {
            Ok(()) => std::mem::replace(&mut *state, State::Over),
            Err(error) => {
                device.failed_drop(error);
                std::mem::replace(&mut *state, State::Kept(error.clone()))
            }
        };
        drop(state);
        if let Source::Regions(regions) = &inner.source {
            match ended {
                Ok(()) => bump(&regions.counters.revoked),
                Err(_) => bump(&regions.counters.kept),
            }
            regions.end();
        }
        match ended {
            Ok(()) => drop(before),
            // The peer may still have access: memory, registration and domain stay for ever.
            Err(_) => std::mem::forget((before, self.grants.clone())),
        }
    }

    pub(super) fn ended(&self) -> Result<Option<Ended>> {
        match &*lock(&self.state) {
            State::Live { .. } => Ok(None),
            State::Over => Ok(Some(Ended::Revoked)),
            State::Kept(error) => Err(error.clone()),
        }
    }

    /// A peer can not end it.
    pub(super) fn abandon(&self) -> Result<Ended> {
        self.end();
        Ok(self.ended()?.unwrap_or(Ended::Revoked))
    }
}

impl Drop for RegionGrant {
    fn drop(&mut self) {
        self.end();
    }
}
