//! Work requests.

use std::ffi::{c_int, c_uint};

use super::{be32, ibv_ah, ibv_mw, ibv_mw_bind_info};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_sge {
            addr: u64,
            length: u32,
            lkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr_rdma = "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)" {
            remote_addr: u64,
            rkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr_atomic = "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)" {
            remote_addr: u64,
            compare_add: u64,
            swap: u64,
            rkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr_ud = "__typeof__(((struct ibv_send_wr *)0)->wr.ud)" {
            ah: *mut ibv_ah,
            remote_qpn: u32,
            remote_qkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr_xrc = "__typeof__(((struct ibv_send_wr *)0)->qp_type.xrc)" {
            remote_srqn: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr_bind_mw = "__typeof__(((struct ibv_send_wr *)0)->bind_mw)" {
            mw: *mut ibv_mw,
            rkey: u32,
            bind_info: ibv_mw_bind_info,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_send_wr = "struct ibv_send_wr" {
            wr_id: u64,
            next: *mut ibv_send_wr,
            sg_list: *mut ibv_sge,
            num_sge: c_int,
            opcode: ibv_wr_opcode,
            send_flags: c_uint,
            imm_data: be32,
            wr: ibv_send_wr_wr,
            qp_type: ibv_send_wr_qp_type,
            bind_mw: ibv_send_wr_bind_mw,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_recv_wr {
            wr_id: u64,
            next: *mut ibv_recv_wr,
            sg_list: *mut ibv_sge,
            num_sge: c_int,
        }
    }
    unions {
        ibv_send_wr_wr = "__typeof__(((struct ibv_send_wr *)0)->wr)" {
            rdma: ibv_send_wr_rdma,
            atomic: ibv_send_wr_atomic,
            ud: ibv_send_wr_ud,
        }
        ibv_send_wr_qp_type = "__typeof__(((struct ibv_send_wr *)0)->qp_type)" {
            xrc: ibv_send_wr_xrc,
        }
    }
    enums {
        ibv_wr_opcode: u32 {
            IBV_WR_RDMA_WRITE = 0,
            IBV_WR_RDMA_WRITE_WITH_IMM = 1,
            IBV_WR_SEND = 2,
            IBV_WR_SEND_WITH_IMM = 3,
            IBV_WR_RDMA_READ = 4,
            IBV_WR_ATOMIC_CMP_AND_SWP = 5,
            IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
            IBV_WR_LOCAL_INV = 7,
            IBV_WR_BIND_MW = 8,
            IBV_WR_SEND_WITH_INV = 9,
            IBV_WR_TSO = 10,
            IBV_WR_DRIVER1 = 11,
            IBV_WR_ATOMIC_WRITE = 15,
        }
    }
    constants {
        c_uint {
            IBV_SEND_FENCE = 1 << 0,
            IBV_SEND_SIGNALED = 1 << 1,
            IBV_SEND_SOLICITED = 1 << 2,
            IBV_SEND_INLINE = 1 << 3,
            IBV_SEND_IP_CSUM = 1 << 4,
        }
    }
}
