//! Re-registration. Rules R-RRG.

use super::{Kind, Region, Registrations, check_rights};
use crate::core::Core;
use crate::link::lease;
use crate::object::PdUse;
use crate::qp::settle;
use crate::sync::lock;
use mkey_core::address::{HostRange, IoAddr};
use mkey_core::device::{Capability, MrChange, MrHandle, MrInfo, ReregError, ReregState};
use mkey_core::engine::{Backing, ObjectError, Remap};
use mkey_core::error::{Error, Object, Reason};
use mkey_core::rights::Rights;
use std::sync::Arc;

/// The reason, and how the region was left.
type Refused = (Reason, ReregState);

impl Registrations {
    /// Changes a region; `pd` is the new domain, if there is one to be. Keys stay.
    pub(crate) fn reregister(
        &self,
        core: &Arc<Core>,
        handle: MrHandle,
        change: &MrChange,
        pd: Option<PdUse>,
    ) -> Result<MrInfo, ReregError> {
        self.try_reregister(core, handle, change, pd).map_err(|(reason, state)| {
            let arguments = format_args!("handle {:#x}, {change:?}", handle.0);
            ReregError { error: Error::new("rereg_mr", arguments, reason), state }
        })
    }

    fn try_reregister(
        &self,
        core: &Arc<Core>,
        handle: MrHandle,
        change: &MrChange,
        pd: Option<PdUse>,
    ) -> Result<MrInfo, Refused> {
        let unchanged = |reason| (reason, ReregState::Unchanged);
        let refused = |reason| (reason, ReregState::Refused);
        if *change == MrChange::default() {
            let (what, allowed) = ("the set of changes", "domain, memory, rights, or several");
            return Err(unchanged(Reason::Argument { what, value: 0, allowed }));
        }
        if let Some((address, length)) = change.translation
            && (address.0 == 0 || length == 0)
        {
            let (what, allowed) = ("the length of the new memory", "not 0, and not at address 0");
            return Err(unchanged(Reason::Argument { what, value: length, allowed }));
        }
        // Held over the whole change: re-registration is rare, and two at once must not mix.
        let mut regions = lock(&self.regions);
        let unknown = Reason::UnknownHandle { object: Object::Mr, handle: handle.0 };
        let Some(region) = regions.get_mut(handle.0) else { return Err(unchanged(unknown)) };
        if matches!(region.kind, Kind::Null | Kind::Fast | Kind::DmaBuf | Kind::Device) {
            let (operation, on) = ("re-registration", "a region that is not memory of the process");
            return Err(unchanged(Reason::NotHere { operation, on }));
        }
        let rights = match change.rights {
            Some(rights) => check_rights(rights).map_err(refused)?,
            None => region.rights,
        };
        let kind = kind_after(region, change, rights).map_err(refused)?;
        let mut hold = None;
        let mut translation = None;
        if let Some((address, length)) = change.translation {
            HostRange::new(address, length)
                .ok_or(Reason::Wraps { address, length })
                .map_err(refused)?;
            let zero_based = rights.contains(Rights::ZERO_BASED);
            let iova = if zero_based { IoAddr(0) } else { IoAddr(address.0) };
            let backing = if kind == Kind::OnDemand {
                let page_shift = if rights.contains(Rights::HUGETLB) { 21 } else { 12 };
                hold = Some(self.hold_on_demand(core, address, length));
                Backing::OnDemand { host: address, page_shift }
            } else {
                hold = Some(self.hold(core, address, length, rights).map_err(refused)?);
                Backing::Plain { host: address }
            };
            translation = Some((iova, length, backing));
        }
        // R-RRG-07: the domain it is in already is no change.
        let pd = pd.filter(|pd| pd.id() != region.pd.id());
        let remap = Remap {
            pd: pd.as_ref().map(PdUse::id),
            translation,
            rights: change.rights.map(|_| rights),
        };
        let mut running = core.engine.reregister(region.id, &remap).map_err(|error| {
            refused(match error {
                ObjectError::Held { by } => {
                    let by = format!("{by} memory windows or fast registrations lie on it").into();
                    Reason::InUse { object: Object::Mr, by }
                }
                ObjectError::Busy => {
                    let by = "another thread is changing it".into();
                    Reason::InUse { object: Object::Mr, by }
                }
                ObjectError::Full => {
                    Reason::TableFull { object: Object::Mr, most: u64::from(u32::MAX) }
                }
                _ => unknown,
            })
        })?;
        settle(&core.engine, &mut running);
        region.rights = rights;
        region.kind = kind;
        if let Some(pd) = pd {
            region.pd = pd;
        }
        let old = hold.map(|hold| std::mem::replace(&mut region.hold, hold));
        let info = region.info;
        drop(regions);
        lease::settle();
        drop(old);
        self.command();
        Ok(info)
    }
}

/// What the region will be.
fn kind_after(region: &Region, change: &MrChange, rights: Rights) -> Result<Kind, Reason> {
    let on_demand = rights.contains(Rights::ON_DEMAND);
    match region.kind {
        Kind::Implicit if change.translation.is_some() => {
            Err(Reason::Unsupported { capability: Capability::Rereg })
        }
        // R-RRG-14.
        Kind::Implicit if !on_demand => Err(Reason::Unsupported { capability: Capability::Rereg }),
        Kind::Implicit => Ok(Kind::Implicit),
        _ if change.translation.is_some() => {
            Ok(if on_demand { Kind::OnDemand } else { Kind::Pinned })
        }
        kind if (kind == Kind::OnDemand) != on_demand => {
            Err(Reason::Unsupported { capability: Capability::Rereg })
        }
        // R-RRG-06.
        Kind::Pinned
            if rights.intersects(Rights::NEED_WRITABLE)
                && !region.rights.intersects(Rights::NEED_WRITABLE) =>
        {
            Err(Reason::PinnedReadOnly)
        }
        kind => Ok(kind),
    }
}
