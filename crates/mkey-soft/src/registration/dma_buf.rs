//! Registration of a file descriptor's memory. Rules R-REG-23 to 26.
//!
//! The device maps the memory itself, for as long as the region lives. It counts against no memory
//! lock, as the verbs have it: whoever made the memory has been charged for it.

use super::{Hold, Kind, Registrations};
use crate::core::Core;
use crate::memory;
use crate::object::PdUse;
use crate::watch::settled;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::device::{DmaBufSpec, MrInfo};
use mkey_core::engine::{Backing, Registration};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::rights::Rights;
use mkey_os::error::OsError;
use mkey_os::file_mapping::FileMapping;
use mkey_os::pin::{PinError, PinRequest};
use std::os::fd::AsRawFd;

impl Registrations {
    /// Registers a file's memory. Order of checks: rights (R-REG-01, R-REG-23), page offset
    /// (R-REG-24), range (R-REG-25), what the operating system says.
    pub(crate) fn register_file(
        &self,
        core: &Core,
        pd: PdUse,
        spec: &DmaBufSpec<'_>,
    ) -> Result<MrInfo> {
        let (host, hold) = self.hold_file(core, spec).map_err(|reason| {
            let DmaBufSpec { fd, offset, length, iova, rights } = spec;
            let fd = fd.as_raw_fd();
            let arguments = format_args!("fd {fd}, {offset:#x}, {length}, iova {iova}, {rights}");
            Error::new("reg_dmabuf_mr", arguments, reason)
        })?;
        let DmaBufSpec { length, iova, rights, .. } = *spec;
        let what = Registration { iova, length, rights, backing: Backing::Plain { host } };
        let registered =
            self.terms.time(&self.terms.table, || core.engine.register(pd.id(), &what));
        self.command();
        self.keep("reg_dmabuf_mr", pd, Kind::DmaBuf, rights, hold, registered)
    }

    /// Maps and pins it; its first byte.
    fn hold_file(
        &self,
        core: &Core,
        spec: &DmaBufSpec<'_>,
    ) -> std::result::Result<(HostAddr, Hold), Reason> {
        spec.validate()?;
        let DmaBufSpec { fd, offset, length, rights, .. } = *spec;
        let system = |error: OsError| {
            let OsError { call, errno } = error;
            Reason::System { call, errno: errno.raw_os_error() }
        };
        let size = FileMapping::size_of(fd).map_err(system)?;
        let outside = Reason::OutsideFile { offset, length, size };
        let (true, Ok(len)) =
            (offset.checked_add(length).is_some_and(|end| end <= size), usize::try_from(length))
        else {
            return Err(outside);
        };
        let write = rights.intersects(Rights::NEED_WRITABLE);
        let mapping = FileMapping::new(fd, offset, len, write).map_err(system)?;
        let addr = mapping.range().start;
        let host = HostAddr(addr as u64);
        // Or the pinner could take the place for what was pinned there before.
        settled(core);
        let request = PinRequest { addr, len, write, page: None };
        let pin = match self.terms.time(&self.terms.pin, || self.pinner.pin(&request)) {
            Ok(pin) => Some(pin),
            // Memory of a driver is held in place by the driver, and nobody else may pin it.
            Err(PinError::Fault { .. }) => {
                let range = HostRange { start: host, len: length };
                memory::touch(core.tolerant, range, write)
                    .map_err(|range| Reason::NotMapped { range })?;
                None
            }
            Err(error) => {
                let errno = error.errno().raw_os_error();
                return Err(Reason::System { call: "pin", errno });
            }
        };
        Ok((host, Hold { pin, _mapping: Some(Box::new(mapping)), ..Hold::default() }))
    }
}
