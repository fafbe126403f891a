//! Devices as they are listed, and what every device tells of itself.

use std::ffi::{c_char, c_int, c_uint};

use super::{be64, ibv_context};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        _ibv_device_ops {
            _dummy1: Option<
                unsafe extern "C" fn(device: *mut ibv_device, cmd_fd: c_int) -> *mut ibv_context,
            >,
            _dummy2: Option<unsafe extern "C" fn(context: *mut ibv_context)>,
        }
        #[derive(Debug)]
        ibv_device {
            _ops: _ibv_device_ops,
            node_type: ibv_node_type,
            transport_type: ibv_transport_type,
            name: [c_char; 64],
            dev_name: [c_char; 64],
            dev_path: [c_char; 256],
            ibdev_path: [c_char; 256],
        }
        #[derive(Clone, Copy, Debug)]
        ibv_device_attr {
            fw_ver: [c_char; 64],
            node_guid: be64,
            sys_image_guid: be64,
            max_mr_size: u64,
            page_size_cap: u64,
            vendor_id: u32,
            vendor_part_id: u32,
            hw_ver: u32,
            max_qp: c_int,
            max_qp_wr: c_int,
            device_cap_flags: c_uint,
            max_sge: c_int,
            max_sge_rd: c_int,
            max_cq: c_int,
            max_cqe: c_int,
            max_mr: c_int,
            max_pd: c_int,
            max_qp_rd_atom: c_int,
            max_ee_rd_atom: c_int,
            max_res_rd_atom: c_int,
            max_qp_init_rd_atom: c_int,
            max_ee_init_rd_atom: c_int,
            atomic_cap: ibv_atomic_cap,
            max_ee: c_int,
            max_rdd: c_int,
            max_mw: c_int,
            max_raw_ipv6_qp: c_int,
            max_raw_ethy_qp: c_int,
            max_mcast_grp: c_int,
            max_mcast_qp_attach: c_int,
            max_total_mcast_qp_attach: c_int,
            max_ah: c_int,
            max_fmr: c_int,
            max_map_per_fmr: c_int,
            max_srq: c_int,
            max_srq_wr: c_int,
            max_srq_sge: c_int,
            max_pkeys: u16,
            local_ca_ack_delay: u8,
            phys_port_cnt: u8,
        }
    }
    enums {
        ibv_node_type: i32 {
            IBV_NODE_UNKNOWN = -1,
            IBV_NODE_CA = 1,
            IBV_NODE_SWITCH = 2,
            IBV_NODE_ROUTER = 3,
            IBV_NODE_RNIC = 4,
            IBV_NODE_USNIC = 5,
            IBV_NODE_USNIC_UDP = 6,
            IBV_NODE_UNSPECIFIED = 7,
        }
        ibv_transport_type: i32 {
            IBV_TRANSPORT_UNKNOWN = -1,
            IBV_TRANSPORT_IB = 0,
            IBV_TRANSPORT_IWARP = 1,
            IBV_TRANSPORT_USNIC = 2,
            IBV_TRANSPORT_USNIC_UDP = 3,
            IBV_TRANSPORT_UNSPECIFIED = 4,
        }
        ibv_atomic_cap: u32 {
            IBV_ATOMIC_NONE = 0,
            IBV_ATOMIC_HCA = 1,
            IBV_ATOMIC_GLOB = 2,
        }
        ibv_fork_status: u32 {
            IBV_FORK_DISABLED = 0,
            IBV_FORK_ENABLED = 1,
            IBV_FORK_UNNEEDED = 2,
        }
    }
    constants {
        u32 {
            IBV_DEVICE_RESIZE_MAX_WR = 1 << 0,
            IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
            IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
            IBV_DEVICE_RAW_MULTI = 1 << 3,
            IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
            IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
            IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
            IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
            IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
            IBV_DEVICE_INIT_TYPE = 1 << 9,
            IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
            IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
            IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
            IBV_DEVICE_SRQ_RESIZE = 1 << 13,
            IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
            IBV_DEVICE_MEM_WINDOW = 1 << 17,
            IBV_DEVICE_UD_IP_CSUM = 1 << 18,
            IBV_DEVICE_XRC = 1 << 20,
            IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
            IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
            IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
            IBV_DEVICE_RC_IP_CSUM = 1 << 25,
            IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
            IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
        }
        u64 {
            IBV_DEVICE_RAW_SCATTER_FCS = 1 << 34,
            IBV_DEVICE_PCI_WRITE_END_PADDING = 1 << 36,
        }
    }
}
