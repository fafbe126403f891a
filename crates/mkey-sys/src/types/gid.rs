//! Global identifiers: the addresses of ports.

use super::be64;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_gid_global = "__typeof__(((union ibv_gid *)0)->global)" {
            subnet_prefix: be64,
            interface_id: be64,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_gid_entry {
            gid: ibv_gid,
            gid_index: u32,
            port_num: u32,
            gid_type: u32,
            ndev_ifindex: u32,
        }
    }
    unions {
        ibv_gid {
            raw: [u8; 16],
            global: ibv_gid_global,
        }
    }
    enums {
        ibv_gid_type: u32 {
            IBV_GID_TYPE_IB = 0,
            IBV_GID_TYPE_ROCE_V1 = 1,
            IBV_GID_TYPE_ROCE_V2 = 2,
        }
    }
}
