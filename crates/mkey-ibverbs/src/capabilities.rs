//! What a device offers: its attributes, corrected by what was tried.

use crate::attributes::limit;
use crate::context::Context;
use crate::fast_mr;
use crate::trial::Tried;
use mkey_core::device::{Capabilities, OdpCaps, OdpOps};
use mkey_sys::types::*;

pub(crate) fn capabilities(
    context: &Context,
    attr: &ibv_device_attr_ex,
    tried: &Tried,
) -> Capabilities {
    let plain = &attr.orig_attr;
    let odp = &attr.odp_caps;
    let says = |flag: u32| plain.device_cap_flags & flag != 0;
    let ops = OdpOps::from_bits_truncate;
    Capabilities {
        driver: context.driver.as_deref().unwrap_or("unknown").to_owned(),
        software: context.software,
        max_mr: limit(plain.max_mr),
        max_mr_size: plain.max_mr_size,
        max_mw: limit(plain.max_mw),
        max_qp: limit(plain.max_qp),
        max_cq: limit(plain.max_cq),
        max_cqe: limit(plain.max_cqe),
        max_srq: limit(plain.max_srq),
        max_pd: limit(plain.max_pd),
        max_ah: limit(plain.max_ah),
        max_qp_wr: limit(plain.max_qp_wr),
        max_sge: limit(plain.max_sge),
        max_inline: tried.max_inline,
        max_rd_atomic: u8::try_from(limit(plain.max_qp_rd_atom)).unwrap_or(u8::MAX),
        max_fast_mr_entries: if tried.fast_mr.or_says(false) { fast_mr::MOST_ENTRIES } else { 0 },
        // Keys of mlx5, the only ones there are, have no address of their own.
        fast_mr_zero_based: true,
        window1: tried.window1.or_says(says(IBV_DEVICE_MEM_WINDOW)),
        window2: tried.window2.or_says(says(IBV_DEVICE_MEM_WINDOW_TYPE_2B))
            && says(IBV_DEVICE_MEM_WINDOW_TYPE_2B),
        // Not offered here.
        atomic_write: false,
        atomics: plain.atomic_cap != IBV_ATOMIC_NONE,
        // Only memory that begins at a page is taken so, which is less than what this means.
        zero_based: false,
        null_mr: tried.null_mr.or_says(false),
        rereg: tried.rereg.or_says(false),
        srq: tried.srq.or_says(limit(plain.max_srq) > 0),
        // An extended connection is not offered here.
        xrc: false,
        dma_buf: tried.dma_buf.or_says(false),
        // A NIC's own memory is not offered here.
        max_dm_size: 0,
        flush: tried.flush.or_says(false),
        advise: tried.advise.or_says(false),
        odp: OdpCaps {
            explicit: tried.on_demand.or_says(odp.general_caps & IBV_ODP_SUPPORT != 0),
            implicit: tried
                .on_demand_implicit
                .or_says(odp.general_caps & IBV_ODP_SUPPORT_IMPLICIT != 0),
            rc: ops(odp.per_transport_caps.rc_odp_caps),
            uc: ops(odp.per_transport_caps.uc_odp_caps),
            ud: ops(odp.per_transport_caps.ud_odp_caps),
            xrc: OdpOps::empty(),
        },
        page_sizes: plain.page_size_cap,
    }
}
