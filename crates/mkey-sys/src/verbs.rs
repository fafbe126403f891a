//! The functions of libibverbs.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use crate::error::LoadError;
use crate::library::{self, library};
use crate::types::*;

/// What is loaded, and how.
const VERBS: library::Source = library::Source {
    soname: "libibverbs.so.1",
    variable: "MKEY_LIBIBVERBS",
    package: "libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
};

library! {
    /// libibverbs, loaded: its exported functions as methods.
    ///
    /// A required function is called as a method; an optional one, which older libraries lack, is
    /// asked for first. Each is described in its manual page, `man 3 ibv_...`. What
    /// `infiniband/verbs.h` does in inline functions is in [`inline`](crate::inline).
    Verbs;
    required {
        "IBVERBS_1.1" fn ibv_ack_async_event(event: *mut ibv_async_event);
        "IBVERBS_1.1" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
        "IBVERBS_1.1" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        "IBVERBS_1.1" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        "IBVERBS_1.1" fn ibv_close_device(context: *mut ibv_context) -> c_int;
        "IBVERBS_1.1" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        "IBVERBS_1.1" fn ibv_create_ah_from_wc(
            pd: *mut ibv_pd,
            wc: *mut ibv_wc,
            grh: *mut ibv_grh,
            port_num: u8,
        ) -> *mut ibv_ah;
        "IBVERBS_1.0" fn ibv_create_comp_channel(
            context: *mut ibv_context,
        ) -> *mut ibv_comp_channel;
        "IBVERBS_1.1" fn ibv_create_cq(
            context: *mut ibv_context,
            cqe: c_int,
            cq_context: *mut c_void,
            channel: *mut ibv_comp_channel,
            comp_vector: c_int,
        ) -> *mut ibv_cq;
        "IBVERBS_1.1" fn ibv_create_qp(
            pd: *mut ibv_pd,
            qp_init_attr: *mut ibv_qp_init_attr,
        ) -> *mut ibv_qp;
        "IBVERBS_1.1" fn ibv_create_srq(
            pd: *mut ibv_pd,
            srq_init_attr: *mut ibv_srq_init_attr,
        ) -> *mut ibv_srq;
        "IBVERBS_1.1" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        "IBVERBS_1.1" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
        "IBVERBS_1.0" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        "IBVERBS_1.1" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
        "IBVERBS_1.1" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        "IBVERBS_1.1" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char;
        "IBVERBS_1.1" fn ibv_fork_init() -> c_int;
        "IBVERBS_1.1" fn ibv_free_device_list(list: *mut *mut ibv_device);
        "IBVERBS_1.1" fn ibv_get_async_event(
            context: *mut ibv_context,
            event: *mut ibv_async_event,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_get_cq_event(
            channel: *mut ibv_comp_channel,
            cq: *mut *mut ibv_cq,
            cq_context: *mut *mut c_void,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_get_device_guid(device: *mut ibv_device) -> be64;
        "IBVERBS_1.1" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
        "IBVERBS_1.1" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        "IBVERBS_1.1" fn ibv_init_ah_from_wc(
            context: *mut ibv_context,
            port_num: u8,
            wc: *mut ibv_wc,
            grh: *mut ibv_grh,
            ah_attr: *mut ibv_ah_attr,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_modify_qp(
            qp: *mut ibv_qp,
            attr: *mut ibv_qp_attr,
            attr_mask: c_int,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_modify_srq(
            srq: *mut ibv_srq,
            srq_attr: *mut ibv_srq_attr,
            srq_attr_mask: c_int,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
        "IBVERBS_1.1" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        "IBVERBS_1.1" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char;
        "IBVERBS_1.1" fn ibv_query_device(
            context: *mut ibv_context,
            device_attr: *mut ibv_device_attr,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_query_gid(
            context: *mut ibv_context,
            port_num: u8,
            index: c_int,
            gid: *mut ibv_gid,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_query_pkey(
            context: *mut ibv_context,
            port_num: u8,
            index: c_int,
            pkey: *mut be16,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_query_port(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut _compat_ibv_port_attr,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_query_qp(
            qp: *mut ibv_qp,
            attr: *mut ibv_qp_attr,
            attr_mask: c_int,
            init_attr: *mut ibv_qp_init_attr,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int;
        "IBVERBS_1.1" fn ibv_reg_mr(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int,
        ) -> *mut ibv_mr;
        "IBVERBS_1.1" fn ibv_rereg_mr(
            mr: *mut ibv_mr,
            flags: c_int,
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        "IBVERBS_1.1" fn ibv_resolve_eth_l2_from_gid(
            context: *mut ibv_context,
            attr: *mut ibv_ah_attr,
            eth_mac: *mut u8,
            vid: *mut u16,
        ) -> c_int;
        "IBVERBS_1.1" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
    }
    optional {
        "IBVERBS_1.11" 32 fn _ibv_query_gid_ex(
            context: *mut ibv_context,
            port_num: u32,
            gid_index: u32,
            entry: *mut ibv_gid_entry,
            flags: u32,
            entry_size: usize,
        ) -> c_int;
        "IBVERBS_1.11" 32 fn _ibv_query_gid_table(
            context: *mut ibv_context,
            entries: *mut ibv_gid_entry,
            max_entries: usize,
            flags: u32,
            entry_size: usize,
        ) -> isize;
        "IBVERBS_1.9" 30 fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
        "IBVERBS_1.5" 20 fn ibv_get_pkey_index(
            context: *mut ibv_context,
            port_num: u8,
            pkey: be16,
        ) -> c_int;
        "IBVERBS_1.10" 31 fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
        "IBVERBS_1.13" 35 fn ibv_import_dm(
            context: *mut ibv_context,
            dm_handle: u32,
        ) -> *mut ibv_dm;
        "IBVERBS_1.10" 31 fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
        "IBVERBS_1.10" 31 fn ibv_import_pd(
            context: *mut ibv_context,
            pd_handle: u32,
        ) -> *mut ibv_pd;
        "IBVERBS_1.13" 35 fn ibv_is_fork_initialized() -> ibv_fork_status;
        "IBVERBS_1.6" 24 fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        "IBVERBS_1.10" 31 fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        "IBVERBS_1.14" 36 fn ibv_query_qp_data_in_order(
            qp: *mut ibv_qp,
            op: ibv_wr_opcode,
            flags: u32,
        ) -> c_int;
        "IBVERBS_1.12" 34 fn ibv_reg_dmabuf_mr(
            pd: *mut ibv_pd,
            offset: u64,
            length: usize,
            iova: u64,
            fd: c_int,
            access: c_int,
        ) -> *mut ibv_mr;
        "IBVERBS_1.7" 25 fn ibv_reg_mr_iova(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            iova: u64,
            access: c_int,
        ) -> *mut ibv_mr;
        "IBVERBS_1.8" 28 fn ibv_reg_mr_iova2(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            iova: u64,
            access: c_uint,
        ) -> *mut ibv_mr;
        "IBVERBS_1.10" 31 fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        "IBVERBS_1.13" 35 fn ibv_unimport_dm(dm: *mut ibv_dm);
        "IBVERBS_1.10" 31 fn ibv_unimport_mr(mr: *mut ibv_mr);
        "IBVERBS_1.10" 31 fn ibv_unimport_pd(pd: *mut ibv_pd);
    }
}

impl Verbs {
    /// The library of this process: loaded by the first call, never unloaded.
    ///
    /// It is `libibverbs.so.1` as the dynamic loader finds it, or the file that the environment
    /// variable `MKEY_LIBIBVERBS` names. A failure is not kept: the next call tries again.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Verbs> = OnceLock::new();
        if let Some(verbs) = LOADED.get() {
            return Ok(verbs);
        }
        let verbs = Self::resolve(&VERBS.open()?)?;
        Ok(LOADED.get_or_init(|| verbs))
    }

    /// The library of the file `path`, for programs that choose themselves.
    ///
    /// # Safety
    /// Loading a library runs its code. The file must be a libibverbs.
    pub unsafe fn load_file(path: &Path) -> Result<Self, LoadError> {
        Self::resolve(&VERBS.open_file(path)?)
    }
}
