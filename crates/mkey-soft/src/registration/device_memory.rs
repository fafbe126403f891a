//! Registration of the device's own memory. It is in place by itself and counts against no limit.

use super::{Hold, Kind, Registrations};
use crate::core::Core;
use crate::device_memory::Dm;
use crate::object::{PdUse, Use};
use mkey_core::address::{HostRange, IoAddr};
use mkey_core::device::MrInfo;
use mkey_core::engine::{Backing, Registration};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::rights::Rights;

/// What a region over device memory may have.
const ALLOWED: Rights = Rights::DMA_BUF.union(Rights::ZERO_BASED);

impl Registrations {
    pub(crate) fn register_dm(
        &self,
        core: &Core,
        pd: PdUse,
        (range, dm): (HostRange, Use<Dm>),
        rights: Rights,
    ) -> Result<MrInfo> {
        check(rights).map_err(|reason| {
            Error::new("reg_dm_mr", format_args!("{} bytes, {rights}", range.len), reason)
        })?;
        let backing = Backing::Plain { host: range.start };
        let what = Registration { iova: IoAddr(0), length: range.len, rights, backing };
        let registered =
            self.terms.time(&self.terms.table, || core.engine.register(pd.id(), &what));
        self.command();
        let hold = Hold { _own: Some(dm), ..Hold::default() };
        self.keep("reg_dm_mr", pd, Kind::Device, rights, hold, registered)
    }
}

/// There is no address of the program to count from, and no pages to fault in or bind windows to.
fn check(rights: Rights) -> std::result::Result<(), Reason> {
    if !rights.contains(Rights::ZERO_BASED) || !ALLOWED.contains(rights) {
        let (what, value) = ("the rights of device memory", u64::from(rights.bits()));
        let allowed = "zero based, local write, remote write, read and atomic";
        return Err(Reason::Argument { what, value, allowed });
    }
    rights.validate().map(|_| ())
}
