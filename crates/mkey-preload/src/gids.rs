//! The table of identifiers of a port: those of RoCEv2 only, as that is what the device speaks.

use crate::boundary::{EINVAL, Errno, OrMinusErrno, OrMinusOne, Verb};
use crate::context::Open;
use mkey_core::device::{Device, Gid};
use mkey_sys::types::*;
use std::ffi::c_int;

/// The only port.
pub(crate) const PORT: u8 = 1;
/// Places in the table of identifiers.
pub(crate) const PLACES: u32 = 4;
/// Those that are taken, all by the one identifier that there is: programs that look at nothing take
/// the first, or the second, which is where a NIC has that of RoCEv2.
const TAKEN: u32 = 2;
/// The only partition key: the default one, with full membership.
const PKEY: u16 = 0xffff;
/// Places in the table of partition keys.
pub(crate) const PKEYS: u16 = 1;

/// The identifier at a place, zeros if it is empty, if there is such a place.
pub(crate) fn at(open: &Open, index: u32) -> Option<Gid> {
    match index {
        0..TAKEN => Some(open.device.port().gid),
        TAKEN..PLACES => Some(Gid::default()),
        _ => None,
    }
}

/// The place of an identifier.
pub(crate) fn index_of(open: &Open, gid: Gid) -> Option<u8> {
    (0..PLACES).find(|&index| at(open, index) == Some(gid)).map(|index| index as u8)
}

fn checked(open: &Open, port: u32, index: u32) -> Verb<Gid> {
    if port != u32::from(PORT) {
        return Err(EINVAL);
    }
    at(open, index).ok_or(EINVAL)
}

/// `ibv_query_gid`.
pub(crate) fn query(open: &Open, port: u8, index: c_int) -> Verb<ibv_gid> {
    let index = u32::try_from(index).map_err(|_| EINVAL)?;
    Ok(ibv_gid { raw: checked(open, u32::from(port), index)?.0 })
}

/// `ibv_query_gid_type`, whose numbers are those of the kernel's files: 1 is RoCEv2, 0 all else, and
/// what an empty place has.
pub(crate) fn query_type(open: &Open, port: u8, index: u32) -> Verb<u32> {
    let gid = checked(open, u32::from(port), index)?;
    Ok(u32::from(gid != Gid::default()))
}

fn entry(gid: Gid, index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.0 },
        gid_index: index,
        port_num: u32::from(PORT),
        gid_type: IBV_GID_TYPE_ROCE_V2.0,
        // There is no network device.
        ndev_ifindex: 0,
    }
}

/// Entries of other sizes are for programs that are newer or older than this.
fn check_form(flags: u32, entry_size: usize) -> Verb<()> {
    if flags != 0 || entry_size < size_of::<ibv_gid_entry>() {
        return Err(EINVAL);
    }
    Ok(())
}

/// `_ibv_query_gid_ex`.
pub(crate) fn query_ex(
    open: &Open,
    port: u32,
    index: u32,
    flags: u32,
    entry_size: usize,
) -> Verb<ibv_gid_entry> {
    check_form(flags, entry_size)?;
    let gid = checked(open, port, index)?;
    if gid == Gid::default() {
        return Err(Errno(libc::ENODATA));
    }
    Ok(entry(gid, index))
}

/// `_ibv_query_gid_table`.
///
/// # Safety
/// So many entries of this size may be written.
pub(crate) unsafe fn query_table(
    open: &Open,
    entries: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    entry_size: usize,
) -> Verb<OrMinusErrno<isize>> {
    check_form(flags, entry_size)?;
    let used = (0..PLACES).filter_map(|index| Some((index, at(open, index)?)));
    let mut count = 0usize;
    for (index, gid) in used.filter(|(_, gid)| *gid != Gid::default()) {
        if count >= most {
            return Err(EINVAL);
        }
        // SAFETY: the caller's, as `count` is below `most`; what a larger entry has more is left.
        unsafe { entries.byte_add(count * entry_size).write_unaligned(entry(gid, index)) };
        count += 1;
    }
    Ok(OrMinusErrno(count as isize))
}

/// `ibv_query_pkey`.
pub(crate) fn query_pkey(port: u8, index: c_int) -> Verb<be16> {
    if port != PORT || !(0..c_int::from(PKEYS)).contains(&index) {
        return Err(EINVAL);
    }
    Ok(PKEY.to_be())
}

/// `ibv_get_pkey_index`.
pub(crate) fn pkey_index(port: u8, pkey: be16) -> Verb<OrMinusOne> {
    if port != PORT || pkey != PKEY.to_be() {
        return Err(EINVAL);
    }
    Ok(OrMinusOne(0))
}
