//! What the device offers, and its limits.

use crate::device_memory::MAX_DM_SIZE;
use crate::options::SoftOptions;
use crate::receive::MAX_SGE;
use crate::slots::MOST;
use mkey_core::device::{Capabilities, OdpCaps, OdpOps};
use mkey_core::engine::Engine;

pub(crate) const MAX_RD_ATOMIC: u8 = 128;

pub(crate) fn capabilities(options: &SoftOptions) -> Capabilities {
    let both = OdpOps::SEND | OdpOps::RECV;
    let uc = both | OdpOps::WRITE | OdpOps::SRQ_RECV;
    Capabilities {
        driver: "mkey software RNIC".to_owned(),
        software: true,
        max_mr: options.max_keys,
        max_mr_size: u64::MAX,
        max_mw: options.max_keys,
        max_qp: MOST,
        max_cq: MOST,
        max_cqe: 1 << 22,
        max_srq: MOST,
        max_pd: MOST,
        max_ah: MOST,
        max_qp_wr: 1 << 15,
        max_sge: MAX_SGE as u32,
        max_inline: 1024,
        max_rd_atomic: MAX_RD_ATOMIC,
        max_fast_mr_entries: Engine::MAX_FAST_MR_ENTRIES,
        fast_mr_zero_based: false,
        window1: true,
        window2: true,
        atomics: true,
        atomic_write: true,
        zero_based: true,
        null_mr: true,
        rereg: true,
        srq: true,
        xrc: true,
        dma_buf: true,
        max_dm_size: MAX_DM_SIZE,
        flush: false,
        advise: true,
        odp: OdpCaps {
            explicit: true,
            implicit: options.implicit_odp,
            rc: uc | OdpOps::READ | OdpOps::ATOMIC,
            uc,
            ud: both | OdpOps::SRQ_RECV,
            xrc: uc | OdpOps::READ | OdpOps::ATOMIC,
        },
        // No page lists: any page size from 4 KiB costs one entry.
        page_sizes: !0xfff,
    }
}
