//! Extended completion queues: polled entry by entry, read field by field.

use std::ffi::{c_int, c_uint, c_void};

use super::{
    be32, ibv_comp_channel, ibv_context, ibv_wc_opcode, ibv_wc_status, pthread_cond_t,
    pthread_mutex_t,
};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_poll_cq_attr {
            comp_mask: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_wc_tm_info {
            tag: u64,
            r#priv: u32,
        }
        #[derive(Debug)]
        ibv_cq_ex @grows {
            context: *mut ibv_context,
            channel: *mut ibv_comp_channel,
            cq_context: *mut c_void,
            handle: u32,
            cqe: c_int,
            mutex: pthread_mutex_t,
            cond: pthread_cond_t,
            comp_events_completed: u32,
            async_events_completed: u32,
            comp_mask: u32,
            status: ibv_wc_status,
            wr_id: u64,
            start_poll: Option<
                unsafe extern "C" fn(current: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int,
            >,
            next_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_int>,
            end_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex)>,
            read_opcode: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> ibv_wc_opcode>,
            read_vendor_err: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_byte_len: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_imm_data: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> be32>,
            read_qp_num: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_src_qp: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_wc_flags: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_uint>,
            read_slid: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_sl: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
            read_dlid_path_bits: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
            read_completion_ts: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
            read_cvlan: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u16>,
            read_flow_tag: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            read_tm_info: Option<
                unsafe extern "C" fn(current: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info),
            >,
            read_completion_wallclock_ns: Option<
                unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64,
            >,
        }
    }
}
