//! Queue pairs: attributes and states.

use crate::ah;
use crate::attributes::{mtu, mtu_bytes};
use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb};
use crate::mr::rights;
use crate::objects::Found;
use crate::qp::Qp;
use mkey_core::device::Device;
use mkey_core::queue_pair::{QpAttr, QpModify, QpState, Xrc};
use mkey_sys::types::*;
use std::ffi::c_int;
use std::sync::PoisonError;

/// `ibv_modify_qp`.
pub(crate) fn modify(qp: &Found<Qp>, attr: &ibv_qp_attr, mask: c_int) -> Verb<()> {
    let mask = mask & !of_the_other_end(qp.xrc);
    let given = |bit: c_int| mask & bit != 0;
    /// What nothing comes of: migration to another path, and how a drained queue is told of.
    const HINTS: c_int = IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_PATH_MIG_STATE;
    const KNOWN: c_int = HINTS
        | IBV_QP_STATE
        | IBV_QP_CUR_STATE
        | IBV_QP_ACCESS_FLAGS
        | IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | IBV_QP_QKEY
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_QP_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER
        | IBV_QP_SQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_DEST_QPN;
    if mask & !KNOWN != 0 {
        return Err(if given(IBV_QP_ALT_PATH) { EOPNOTSUPP } else { EINVAL });
    }
    if given(IBV_QP_PATH_MIG_STATE) && attr.path_mig_state != IBV_MIG_MIGRATED {
        return Err(EOPNOTSUPP);
    }
    if given(IBV_QP_CUR_STATE) {
        let now = qp.open.device.query_qp(qp.handle)?.state;
        if state(attr.cur_qp_state)? != now {
            return Err(EINVAL);
        }
    }
    let ah = match given(IBV_QP_AV) {
        true => Some(ah::address(&qp.open, &attr.ah_attr)?),
        false => None,
    };
    let path_mtu = match given(IBV_QP_PATH_MTU) {
        true => {
            let bytes = mtu_bytes(attr.path_mtu).ok_or(EINVAL)?;
            if bytes > qp.open.device.port().active_mtu {
                return Err(EINVAL);
            }
            Some(bytes)
        }
        false => None,
    };
    let change = QpModify {
        state: given(IBV_QP_STATE).then(|| state(attr.qp_state)).transpose()?,
        rights: given(IBV_QP_ACCESS_FLAGS).then(|| rights(attr.qp_access_flags)).transpose()?,
        port: given(IBV_QP_PORT).then_some(attr.port_num),
        pkey_index: given(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index),
        qkey: given(IBV_QP_QKEY).then_some(attr.qkey),
        path_mtu,
        dest_qp_num: given(IBV_QP_DEST_QPN).then_some(attr.dest_qp_num),
        rq_psn: given(IBV_QP_RQ_PSN).then_some(attr.rq_psn),
        sq_psn: given(IBV_QP_SQ_PSN).then_some(attr.sq_psn),
        max_rd_atomic: given(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        max_dest_rd_atomic: given(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        min_rnr_timer: given(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        timeout: given(IBV_QP_TIMEOUT).then_some(attr.timeout),
        retry_cnt: given(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: given(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        ah,
    };
    qp.open.device.modify_qp(qp.handle, &change)?;
    let mut address = qp.address.lock().unwrap_or_else(PoisonError::into_inner);
    if ah.is_some() {
        *address = Some(attr.ah_attr);
    }
    if given(IBV_QP_STATE) {
        if attr.qp_state == IBV_QPS_RESET {
            *address = None;
        }
        // SAFETY: the object is live; the program has asked for the change.
        unsafe { (*qp.object.base()).qp_base.state = attr.qp_state };
    }
    Ok(())
}

/// Attributes that only the other end of an extended connection has. Programs give both ends all of
/// them, as for RC, and the kernel looks past these.
fn of_the_other_end(xrc: Option<Xrc>) -> c_int {
    match xrc {
        Some(Xrc::Send) => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        Some(Xrc::Receive(_)) => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        None => 0,
    }
}

fn state(state: ibv_qp_state) -> Verb<QpState> {
    Ok(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        _ => return Err(Errno(libc::EINVAL)),
    })
}

/// `ibv_query_qp`: all attributes, whatever was asked for.
pub(crate) fn query(qp: &Found<Qp>) -> Verb<(ibv_qp_attr, ibv_qp_init_attr)> {
    let now: QpAttr = qp.open.device.query_qp(qp.handle)?;
    let zero: ibv_qp_attr = bytemuck::Zeroable::zeroed();
    let address = *qp.address.lock().unwrap_or_else(PoisonError::into_inner);
    let qp_state = ibv_qp_state(now.state as u32);
    let attr = ibv_qp_attr {
        qp_state,
        cur_qp_state: qp_state,
        path_mtu: match now.path_mtu {
            0 => zero.path_mtu,
            bytes => mtu(bytes),
        },
        path_mig_state: IBV_MIG_MIGRATED,
        qkey: now.qkey,
        rq_psn: now.rq_psn,
        sq_psn: now.sq_psn,
        dest_qp_num: now.dest_qp_num,
        qp_access_flags: now.rights.bits(),
        cap: qp.cap,
        ah_attr: address.unwrap_or(zero.ah_attr),
        pkey_index: now.pkey_index,
        max_rd_atomic: now.max_rd_atomic,
        max_dest_rd_atomic: now.max_dest_rd_atomic,
        min_rnr_timer: now.min_rnr_timer,
        port_num: now.port,
        timeout: now.timeout,
        retry_cnt: now.retry_cnt,
        rnr_retry: now.rnr_retry,
        ..zero
    };
    // SAFETY: the object is live; these fields never change.
    let init = unsafe {
        let base = &raw mut (*qp.object.base()).qp_base;
        (*base).state = qp_state;
        ibv_qp_init_attr {
            qp_context: (*base).qp_context,
            send_cq: (*base).send_cq,
            recv_cq: (*base).recv_cq,
            srq: (*base).srq,
            cap: qp.cap,
            qp_type: (*base).qp_type,
            sq_sig_all: c_int::from(qp.signal_all),
        }
    };
    Ok((attr, init))
}
