//! What a device says of itself.

use crate::boundary::{EINVAL, EOPNOTSUPP, Verb};
use crate::context::Open;
use crate::gids;
use mkey_core::device::{Capabilities, Device, OdpCaps, OdpOps};
use mkey_sys::types::*;
use std::ffi::{c_char, c_int};

/// Of no maker: "mk".
const VENDOR: u32 = 0x6d6b;
/// Longest message.
const MAX_MESSAGE: u32 = 1 << 31;
/// `IBV_DEVICE_ATOMIC_WRITE`, which headers of before do not have.
const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
/// Times of completions are in nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

/// `ibv_query_device`.
pub(crate) fn device(open: &Open) -> ibv_device_attr {
    let caps = open.device.capabilities();
    let mut attr: ibv_device_attr = bytemuck::Zeroable::zeroed();
    let version = concat!("mkey ", env!("CARGO_PKG_VERSION"));
    for (byte, value) in attr.fw_ver.iter_mut().take(63).zip(version.bytes()) {
        *byte = value as c_char;
    }
    let guid = open.listed.guid.to_be();
    let many = |count: u32| c_int::try_from(count).unwrap_or(c_int::MAX);
    let reads = c_int::from(caps.max_rd_atomic);
    ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: caps.max_mr_size,
        page_size_cap: caps.page_sizes,
        vendor_id: VENDOR,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: many(caps.max_qp),
        max_qp_wr: many(caps.max_qp_wr),
        device_cap_flags: flags(caps),
        max_sge: many(caps.max_sge),
        max_sge_rd: many(caps.max_sge),
        max_cq: many(caps.max_cq),
        max_cqe: many(caps.max_cqe),
        max_mr: many(caps.max_mr),
        max_pd: many(caps.max_pd),
        max_qp_rd_atom: reads,
        max_res_rd_atom: reads.saturating_mul(many(caps.max_qp)),
        max_qp_init_rd_atom: reads,
        atomic_cap: if caps.atomics { IBV_ATOMIC_HCA } else { IBV_ATOMIC_NONE },
        max_mw: many(caps.max_mw),
        max_ah: many(caps.max_ah),
        max_srq: many(caps.max_srq),
        max_srq_wr: many(caps.max_qp_wr),
        max_srq_sge: many(caps.max_sge),
        max_pkeys: gids::PKEYS,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..attr
    }
}

fn flags(caps: &Capabilities) -> u32 {
    let offered = [
        (IBV_DEVICE_MEM_WINDOW, caps.window1),
        (IBV_DEVICE_MEM_WINDOW_TYPE_2B, caps.window2),
        // LOCAL_INV and SEND_WITH_INV; fast registration has no verbs in user space.
        (IBV_DEVICE_MEM_MGT_EXTENSIONS, caps.window2),
        (IBV_DEVICE_XRC, caps.xrc),
        (IBV_DEVICE_CURR_QP_STATE_MOD, true),
        (IBV_DEVICE_SYS_IMAGE_GUID, true),
        (IBV_DEVICE_RC_RNR_NAK_GEN, true),
    ];
    offered.iter().filter(|(_, offered)| *offered).fold(0, |flags, (flag, _)| flags | flag)
}

/// `ibv_query_device_ex`.
pub(crate) fn device_ex(
    open: &Open,
    input: Option<&ibv_query_device_ex_input>,
) -> Verb<ibv_device_attr_ex> {
    if input.is_some_and(|input| input.comp_mask != 0) {
        return Err(EINVAL);
    }
    let caps = open.device.capabilities();
    let zero: ibv_device_attr_ex = bytemuck::Zeroable::zeroed();
    let orig_attr = device(open);
    let more = if caps.atomic_write { DEVICE_ATOMIC_WRITE } else { 0 };
    Ok(ibv_device_attr_ex {
        device_cap_flags_ex: u64::from(orig_attr.device_cap_flags) | more,
        orig_attr,
        odp_caps: odp(&caps.odp),
        completion_timestamp_mask: u64::MAX,
        hca_core_clock: CLOCK_KHZ,
        // Moderation is accepted, and nothing comes of it.
        cq_mod_caps: ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX },
        max_dm_size: caps.max_dm_size,
        xrc_odp_caps: caps.odp.xrc.bits(),
        phys_port_cnt_ex: 1,
        ..zero
    })
}

fn odp(caps: &OdpCaps) -> ibv_odp_caps {
    let bits = |ops: OdpOps| ops.bits();
    let mut general_caps = 0;
    if caps.explicit {
        general_caps |= IBV_ODP_SUPPORT;
    }
    if caps.implicit {
        general_caps |= IBV_ODP_SUPPORT_IMPLICIT;
    }
    let per_transport_caps = ibv_odp_transport_caps {
        rc_odp_caps: bits(caps.rc),
        uc_odp_caps: bits(caps.uc),
        ud_odp_caps: bits(caps.ud),
    };
    ibv_odp_caps { general_caps, per_transport_caps }
}

/// The verbs' number of a size of packets.
pub(crate) fn mtu(bytes: u32) -> ibv_mtu {
    match bytes {
        ..512 => IBV_MTU_256,
        512..1024 => IBV_MTU_512,
        1024..2048 => IBV_MTU_1024,
        2048..4096 => IBV_MTU_2048,
        4096.. => IBV_MTU_4096,
    }
}

/// The bytes of the verbs' number, if it is one.
pub(crate) fn mtu_bytes(mtu: ibv_mtu) -> Option<u32> {
    (IBV_MTU_256.0..=IBV_MTU_4096.0).contains(&mtu.0).then(|| 128 << mtu.0)
}

/// `ibv_query_port`.
pub(crate) fn port(open: &Open, port: u8) -> Verb<ibv_port_attr> {
    if port != gids::PORT {
        return Err(EINVAL);
    }
    /// Values of the verbs that have names in no header: a link that is up, and 100 Gb/s of it.
    const LINK_UP: u8 = 5;
    const WIDTH_4X: u8 = 2;
    const SPEED_EDR: u8 = 32;
    let info = open.device.port();
    let zero: ibv_port_attr = bytemuck::Zeroable::zeroed();
    Ok(ibv_port_attr {
        state: if info.active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: IBV_MTU_4096,
        active_mtu: mtu(info.active_mtu),
        gid_tbl_len: gids::PLACES as c_int,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: MAX_MESSAGE,
        pkey_tbl_len: gids::PKEYS,
        max_vl_num: 1,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state: LINK_UP,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        ..zero
    })
}

/// `ibv_query_port_speed`: in units of 100 Mb/s, as the width and the speed of [`port`] say.
pub(crate) fn speed(open: &Open, number: u32) -> Verb<u64> {
    port(open, u8::try_from(number).map_err(|_| EINVAL)?)?;
    Ok(1000)
}

/// `ibv_query_rt_values_ex`: the clock that completions are stamped by.
pub(crate) fn real_time(open: &Open, values: &mut ibv_values_ex) -> Verb<()> {
    if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
        return Err(EOPNOTSUPP);
    }
    let now = open.device.now();
    values.raw_clock = timespec(libc::timespec {
        tv_sec: libc::time_t::try_from(now.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(now.subsec_nanos() as i32),
    });
    Ok(())
}
