//! Flow counters.

use super::ibv_context;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_counters_init_attr {
            comp_mask: u32,
        }
        #[derive(Debug)]
        ibv_counters {
            context: *mut ibv_context,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_counter_attach_attr {
            counter_desc: ibv_counter_description,
            index: u32,
            comp_mask: u32,
        }
    }
    enums {
        ibv_counter_description: u32 {
            IBV_COUNTER_PACKETS = 0,
            IBV_COUNTER_BYTES = 1,
        }
    }
    constants {
        u32 {
            IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
        }
    }
}
