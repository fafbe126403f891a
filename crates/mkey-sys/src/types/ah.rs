//! Address handles and the headers they are made from.

use super::{be16, be32, ibv_context, ibv_gid, ibv_pd};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_global_route {
            dgid: ibv_gid,
            flow_label: u32,
            sgid_index: u8,
            hop_limit: u8,
            traffic_class: u8,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_grh {
            version_tclass_flow: be32,
            paylen: be16,
            next_hdr: u8,
            hop_limit: u8,
            sgid: ibv_gid,
            dgid: ibv_gid,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_ah_attr {
            grh: ibv_global_route,
            dlid: u16,
            sl: u8,
            src_path_bits: u8,
            static_rate: u8,
            is_global: u8,
            port_num: u8,
        }
        #[derive(Debug)]
        ibv_ah {
            context: *mut ibv_context,
            pd: *mut ibv_pd,
            handle: u32,
        }
    }
    enums {
        ibv_rate: u32 {
            IBV_RATE_MAX = 0,
            IBV_RATE_2_5_GBPS = 2,
            IBV_RATE_5_GBPS = 5,
            IBV_RATE_10_GBPS = 3,
            IBV_RATE_20_GBPS = 6,
            IBV_RATE_30_GBPS = 4,
            IBV_RATE_40_GBPS = 7,
            IBV_RATE_60_GBPS = 8,
            IBV_RATE_80_GBPS = 9,
            IBV_RATE_120_GBPS = 10,
            IBV_RATE_14_GBPS = 11,
            IBV_RATE_56_GBPS = 12,
            IBV_RATE_112_GBPS = 13,
            IBV_RATE_168_GBPS = 14,
            IBV_RATE_25_GBPS = 15,
            IBV_RATE_100_GBPS = 16,
            IBV_RATE_200_GBPS = 17,
            IBV_RATE_300_GBPS = 18,
            IBV_RATE_28_GBPS = 19,
            IBV_RATE_50_GBPS = 20,
            IBV_RATE_400_GBPS = 21,
            IBV_RATE_600_GBPS = 22,
            IBV_RATE_800_GBPS = 23,
            IBV_RATE_1200_GBPS = 24,
        }
    }
}
