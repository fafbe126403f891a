//! The extended attributes of a device: on-demand paging, device memory and more.

use super::ibv_device_attr;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_query_device_ex_input {
            comp_mask: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_odp_transport_caps = "__typeof__(((struct ibv_odp_caps *)0)->per_transport_caps)" {
            rc_odp_caps: u32,
            uc_odp_caps: u32,
            ud_odp_caps: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_odp_caps = "struct ibv_odp_caps" {
            general_caps: u64,
            per_transport_caps: ibv_odp_transport_caps,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_tso_caps {
            max_tso: u32,
            supported_qpts: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_rss_caps {
            supported_qpts: u32,
            max_rwq_indirection_tables: u32,
            max_rwq_indirection_table_size: u32,
            rx_hash_fields_mask: u64,
            rx_hash_function: u8,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_packet_pacing_caps {
            qp_rate_limit_min: u32,
            qp_rate_limit_max: u32,
            supported_qpts: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_tm_caps {
            max_rndv_hdr_size: u32,
            max_num_tags: u32,
            flags: u32,
            max_ops: u32,
            max_sge: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_cq_moderation_caps {
            max_cq_count: u16,
            max_cq_period: u16,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_pci_atomic_caps {
            fetch_add: u16,
            swap: u16,
            compare_swap: u16,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_device_attr_ex @grows {
            orig_attr: ibv_device_attr,
            comp_mask: u32,
            odp_caps: ibv_odp_caps,
            completion_timestamp_mask: u64,
            hca_core_clock: u64,
            device_cap_flags_ex: u64,
            tso_caps: ibv_tso_caps,
            rss_caps: ibv_rss_caps,
            max_wq_type_rq: u32,
            packet_pacing_caps: ibv_packet_pacing_caps,
            raw_packet_caps: u32,
            tm_caps: ibv_tm_caps,
            cq_mod_caps: ibv_cq_moderation_caps,
            max_dm_size: u64,
            pci_atomic_caps: ibv_pci_atomic_caps,
            xrc_odp_caps: u32,
            phys_port_cnt_ex: u32,
        }
    }
    constants {
        u64 {
            IBV_ODP_SUPPORT = 1 << 0,
            IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
        }
        u32 {
            IBV_ODP_SUPPORT_SEND = 1 << 0,
            IBV_ODP_SUPPORT_RECV = 1 << 1,
            IBV_ODP_SUPPORT_WRITE = 1 << 2,
            IBV_ODP_SUPPORT_READ = 1 << 3,
            IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
            IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
        }
        u32 {
            IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
            IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
            IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
            IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
        }
        u16 {
            IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
            IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
            IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
        }
    }
}
