//! The names and versions under which the functions are found.

use crate::exports::*;
use crate::newer::*;
// What `mkey trace` asks for goes by these, which lead on to those of the same names.
use crate::traced::control::{
    ibv_alloc_pd, ibv_close_device, ibv_create_cq, ibv_create_qp, ibv_create_srq, ibv_dealloc_pd,
    ibv_dereg_mr, ibv_destroy_cq, ibv_destroy_qp, ibv_destroy_srq, ibv_import_device,
    ibv_modify_qp, ibv_open_device, ibv_reg_dmabuf_mr, ibv_reg_mr, ibv_reg_mr_ex, ibv_reg_mr_iova,
    ibv_reg_mr_iova2, ibv_rereg_mr,
};

/// Makes a function known under its name and version. rustc's own list of exported names knows no
/// versions, so each has a place of its own from which a jump leads to the function.
///
/// `and` names a file with further versions of the name, made when the library is built.
macro_rules! export {
    ($($version:literal $name:ident $(and $others:literal)?;)*) => {
        /// What is exported, with its version. Tests are programs, which export nothing.
        #[cfg(test)]
        const EXPORTS: &[(&str, &str, *const ())] =
            &[$((stringify!($name), $version, $name as *const ()),)*];

        $(
            #[cfg(not(test))]
            core::arch::global_asm!(
                concat!(".pushsection .text.mkey_", stringify!($name), ", \"ax\", %progbits"),
                ".balign 16",
                concat!(".globl mkey_", stringify!($name)),
                concat!(".type mkey_", stringify!($name), ", %function"),
                concat!("mkey_", stringify!($name), ":"),
                concat!($crate::symbols::jump!(), " {function}"),
                concat!(".size mkey_", stringify!($name), ", . - mkey_", stringify!($name)),
                concat!(
                    ".symver mkey_", stringify!($name), ", ",
                    stringify!($name), "@@@", $version
                ),
                $(include_str!(concat!(env!("OUT_DIR"), "/", $others)),)?
                ".popsection",
                function = sym $name,
            );
        )*
    };
}

#[cfg(all(not(test), target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(all(not(test), not(target_arch = "x86_64")))]
macro_rules! jump {
    () => {
        "b"
    };
}
#[cfg(not(test))]
pub(crate) use jump;

export! {
    "IBVERBS_1.0" ibv_create_comp_channel;
    "IBVERBS_1.0" ibv_destroy_comp_channel;
    "IBVERBS_1.1" ibv_ack_async_event;
    "IBVERBS_1.1" ibv_ack_cq_events;
    "IBVERBS_1.1" ibv_alloc_pd;
    "IBVERBS_1.1" ibv_attach_mcast;
    "IBVERBS_1.1" ibv_close_device;
    "IBVERBS_1.1" ibv_create_ah;
    "IBVERBS_1.1" ibv_create_ah_from_wc;
    "IBVERBS_1.1" ibv_create_cq;
    "IBVERBS_1.1" ibv_create_qp;
    "IBVERBS_1.1" ibv_create_srq;
    "IBVERBS_1.1" ibv_dealloc_pd;
    "IBVERBS_1.1" ibv_dereg_mr;
    "IBVERBS_1.1" ibv_destroy_ah;
    "IBVERBS_1.1" ibv_destroy_cq;
    "IBVERBS_1.1" ibv_destroy_qp;
    "IBVERBS_1.1" ibv_destroy_srq;
    "IBVERBS_1.1" ibv_detach_mcast;
    "IBVERBS_1.1" ibv_fork_init;
    "IBVERBS_1.1" ibv_free_device_list;
    "IBVERBS_1.1" ibv_get_async_event;
    "IBVERBS_1.1" ibv_get_cq_event;
    "IBVERBS_1.1" ibv_get_device_guid;
    "IBVERBS_1.1" ibv_get_device_list;
    "IBVERBS_1.1" ibv_get_device_name;
    "IBVERBS_1.1" ibv_init_ah_from_wc;
    "IBVERBS_1.1" ibv_modify_qp;
    "IBVERBS_1.1" ibv_modify_srq;
    "IBVERBS_1.1" ibv_open_device;
    "IBVERBS_1.1" ibv_query_device;
    "IBVERBS_1.1" ibv_query_gid;
    "IBVERBS_1.1" ibv_query_pkey;
    "IBVERBS_1.1" ibv_query_port;
    "IBVERBS_1.1" ibv_query_qp;
    "IBVERBS_1.1" ibv_query_srq;
    "IBVERBS_1.1" ibv_reg_mr;
    "IBVERBS_1.1" ibv_rereg_mr;
    "IBVERBS_1.1" ibv_resize_cq;
    "IBVERBS_1.1" ibv_resolve_eth_l2_from_gid;
    "IBVERBS_1.5" ibv_get_pkey_index;
    "IBVERBS_1.6" ibv_qp_to_qp_ex;
    "IBVERBS_1.7" ibv_reg_mr_iova;
    "IBVERBS_1.8" ibv_reg_mr_iova2;
    "IBVERBS_1.9" ibv_get_device_index;
    "IBVERBS_1.10" ibv_import_device;
    "IBVERBS_1.10" ibv_import_mr;
    "IBVERBS_1.10" ibv_import_pd;
    "IBVERBS_1.10" ibv_query_ece;
    "IBVERBS_1.10" ibv_set_ece;
    "IBVERBS_1.10" ibv_unimport_mr;
    "IBVERBS_1.10" ibv_unimport_pd;
    "IBVERBS_1.11" _ibv_query_gid_ex;
    "IBVERBS_1.11" _ibv_query_gid_table;
    "IBVERBS_1.12" ibv_reg_dmabuf_mr;
    "IBVERBS_1.13" ibv_import_dm;
    "IBVERBS_1.13" ibv_is_fork_initialized;
    "IBVERBS_1.13" ibv_unimport_dm;
    "IBVERBS_1.14" ibv_query_qp_data_in_order;
    "IBVERBS_1.15" ibv_dm_export_dmabuf_fd and "ibv_dm_export_dmabuf_fd.s";
    "IBVERBS_1.15" ibv_query_port_speed and "ibv_query_port_speed.s";
    "IBVERBS_1.15" ibv_reg_mr_ex and "ibv_reg_mr_ex.s";
    "IBVERBS_PRIVATE_34" ibv_query_gid_type and "ibv_query_gid_type.s";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_name_is_exported_once_and_for_a_function_of_its_own() {
        let names: BTreeSet<_> = EXPORTS.iter().map(|(name, ..)| name).collect();
        let functions: BTreeSet<_> = EXPORTS.iter().map(|(.., function)| function).collect();
        assert_eq!((names.len(), functions.len()), (EXPORTS.len(), EXPORTS.len()));
        assert!(EXPORTS.iter().all(|(_, version, _)| version.starts_with("IBVERBS_")));
    }
}
