//! Asking an open device about itself.

use std::ffi::c_int;
use std::ptr;

use super::dispatch::{extended, verbs};
use crate::error::Missing;
use crate::types::*;
use crate::verbs::Verbs;

/// `ibv_query_port` as C programs mean it (`___ibv_query_port`): the whole of the attributes where
/// the provider knows them, else the old part and zeros.
///
/// # Safety
/// `context` is an open device of `verbs`, `attr` may be written.
pub unsafe fn ibv_query_port(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's; the old function writes less than the structure, as its type says.
    unsafe {
        match extended!(context, query_port) {
            Some(op) => op(context, port_num, attr, size_of::<ibv_port_attr>()),
            None => {
                ptr::write_bytes(attr, 0, 1);
                verbs.ibv_query_port(context, port_num, attr.cast())
            }
        }
    }
}

/// `ibv_query_device_ex`: the extended attributes; of a provider without them the plain ones and
/// zeros.
///
/// # Safety
/// `context` is an open device of `verbs`, `input` is null or may be read, `attr` may be written.
pub unsafe fn ibv_query_device_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return libc::EINVAL;
        }
        if let Some(op) = extended!(context, query_device_ex) {
            let answer = op(context, input, attr, size_of::<ibv_device_attr_ex>());
            if answer != libc::EOPNOTSUPP && answer != libc::ENOSYS {
                return answer;
            }
        }
        ptr::write_bytes(attr, 0, 1);
        verbs.ibv_query_device(context, &raw mut (*attr).orig_attr)
    }
}

/// `ibv_query_gid_ex`: an entry of a port's GID table.
///
/// # Safety
/// `context` is an open device of `verbs`, `entry` may be written.
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> Result<c_int, Missing> {
    let op = verbs._ibv_query_gid_ex()?;
    // SAFETY: the caller's, and the size is the entry's.
    Ok(unsafe { op(context, port_num, gid_index, entry, flags, size_of::<ibv_gid_entry>()) })
}

/// `ibv_query_gid_table`: all valid entries of the GID tables. Answers how many there are, or a
/// negative errno.
///
/// # Safety
/// `context` is an open device of `verbs`, `max_entries` entries may be written.
pub unsafe fn ibv_query_gid_table(
    verbs: &Verbs,
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> Result<isize, Missing> {
    let op = verbs._ibv_query_gid_table()?;
    // SAFETY: the caller's, and the size is an entry's.
    Ok(unsafe { op(context, entries, max_entries, flags, size_of::<ibv_gid_entry>()) })
}

verbs! {
    /// `ibv_query_rt_values_ex`: the device's clock.
    fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int
        = extended!(context, query_rt_values);
}

/// `ibv_is_qpt_supported`: whether a mask of queue pair types has one.
pub fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> bool {
    1u32.checked_shl(qpt.0).is_some_and(|bit| caps & bit != 0)
}

/// `ibv_flow_label_to_udp_sport`: the UDP source port that a flow label stands for.
pub fn ibv_flow_label_to_udp_sport(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14);
    folded as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_type_beyond_the_mask_is_not_supported() {
        assert!(ibv_is_qpt_supported(1 << 2, IBV_QPT_RC));
        assert!(!ibv_is_qpt_supported(1 << 2, IBV_QPT_UC));
        assert!(!ibv_is_qpt_supported(u32::MAX, IBV_QPT_DRIVER));
    }

    #[test]
    fn flow_labels_fold_into_the_dynamic_ports() {
        assert_eq!(ibv_flow_label_to_udp_sport(0), 0xc000);
        assert_eq!(ibv_flow_label_to_udp_sport(0xf_ffff), 0xffc0);
        assert_eq!(ibv_flow_label_to_udp_sport(u32::MAX), 0xffc0, "20 bits count");
    }
}
