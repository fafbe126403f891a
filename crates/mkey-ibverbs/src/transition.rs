//! The attributes and states of queue pairs.

use crate::context::Context;
use crate::failure::{Refused, call, errno_of};
use crate::objects::Qp;
use crate::port;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::queue_pair::{QpAttr, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_sys::types::*;
use std::ffi::c_int;

/// The names of attributes, for messages.
const NAMES: [(c_int, &str); 14] = [
    (IBV_QP_ACCESS_FLAGS, "rights"),
    (IBV_QP_PKEY_INDEX, "pkey_index"),
    (IBV_QP_PORT, "port"),
    (IBV_QP_QKEY, "qkey"),
    (IBV_QP_AV, "ah"),
    (IBV_QP_PATH_MTU, "path_mtu"),
    (IBV_QP_DEST_QPN, "dest_qp_num"),
    (IBV_QP_RQ_PSN, "rq_psn"),
    (IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic"),
    (IBV_QP_MIN_RNR_TIMER, "min_rnr_timer"),
    (IBV_QP_SQ_PSN, "sq_psn"),
    (IBV_QP_TIMEOUT, "timeout"),
    (IBV_QP_RETRY_CNT, "retry_cnt"),
    (IBV_QP_RNR_RETRY, "rnr_retry"),
];

/// The kind of a queue pair as libibverbs has it.
pub(crate) fn kind_of(kind: QpKind) -> Option<ibv_qp_type> {
    match kind {
        QpKind::Rc => Some(IBV_QPT_RC),
        QpKind::Uc => Some(IBV_QPT_UC),
        QpKind::Ud => Some(IBV_QPT_UD),
        _ => None,
    }
}

fn state_of(state: ibv_qp_state) -> Option<QpState> {
    Some(match state {
        IBV_QPS_RESET => QpState::Reset,
        IBV_QPS_INIT => QpState::Init,
        IBV_QPS_RTR => QpState::Rtr,
        IBV_QPS_RTS => QpState::Rts,
        IBV_QPS_SQD => QpState::Sqd,
        IBV_QPS_SQE => QpState::Sqe,
        IBV_QPS_ERR => QpState::Err,
        _ => return None,
    })
}

/// The attributes that a change of state needs, beside the state (`ibv_modify_qp`, its table).
fn needed(kind: QpKind, from: QpState, to: QpState) -> c_int {
    let rc = kind == QpKind::Rc;
    match (from, to, kind) {
        (QpState::Reset, QpState::Init, QpKind::Ud) => {
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        }
        (QpState::Reset, QpState::Init, _) => IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr, QpKind::Rc | QpKind::Uc) => {
            let both = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            both | if rc { IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER } else { 0 }
        }
        (QpState::Rtr, QpState::Rts, _) => {
            let more = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
            IBV_QP_SQ_PSN | if rc { more | IBV_QP_MAX_QP_RD_ATOMIC } else { 0 }
        }
        _ => 0,
    }
}

/// The attribute of `needed` that `mask` lacks first.
fn missing(needed: c_int, mask: c_int) -> Option<&'static str> {
    let lacks = needed & !mask;
    let named = NAMES.iter().find(|(bit, _)| lacks & bit != 0).map(|(_, name)| *name);
    named.or((lacks & IBV_QP_MAX_QP_RD_ATOMIC != 0).then_some("max_rd_atomic"))
}

/// The state of a queue pair, as the device has it.
///
/// # Safety
/// `qp` is live and of `context`.
pub(crate) unsafe fn state_now(context: &Context, qp: *mut ibv_qp) -> Option<QpState> {
    // SAFETY: the caller's.
    let (attr, _) = unsafe { query_raw(context, qp, IBV_QP_STATE) }.ok()?;
    state_of(attr.qp_state)
}

/// The state of a queue pair before RTS, from which only a change that was asked for leads on, as
/// libibverbs remembers it.
///
/// # Safety
/// `qp` is live, and nobody changes it meanwhile.
pub(crate) unsafe fn early(qp: *const ibv_qp) -> Option<QpState> {
    // SAFETY: the caller's.
    let state = state_of(unsafe { (*qp).state })?;
    matches!(state, QpState::Reset | QpState::Init | QpState::Rtr).then_some(state)
}

/// # Safety
/// `qp` is live and of `context`.
unsafe fn query_raw(
    context: &Context,
    qp: *mut ibv_qp,
    mask: c_int,
) -> std::result::Result<(ibv_qp_attr, ibv_qp_init_attr), i32> {
    let mut attr: ibv_qp_attr = bytemuck::Zeroable::zeroed();
    let mut init: ibv_qp_init_attr = bytemuck::Zeroable::zeroed();
    // SAFETY: the caller's; both are ours to be written.
    match unsafe { context.verbs.ibv_query_qp(qp, &raw mut attr, mask, &raw mut init) } {
        0 => Ok((attr, init)),
        errno => Err(errno_of(errno)),
    }
}

/// A change as libibverbs takes it.
fn raw_change(
    context: &Context,
    change: &QpModify,
) -> std::result::Result<(ibv_qp_attr, c_int), Reason> {
    let mut attr: ibv_qp_attr = bytemuck::Zeroable::zeroed();
    let mut mask = 0;
    macro_rules! set {
        ($($value:expr => $bit:ident, $field:ident;)*) => {$(
            if let Some(value) = $value {
                attr.$field = value;
                mask |= $bit;
            }
        )*};
    }
    let psn = |psn: Option<u32>| psn.map(|psn| psn & 0xff_ffff);
    set! {
        change.state.map(|state| ibv_qp_state(state as u32)) => IBV_QP_STATE, qp_state;
        change.rights.map(|rights| rights.bits()) => IBV_QP_ACCESS_FLAGS, qp_access_flags;
        change.port => IBV_QP_PORT, port_num;
        change.pkey_index => IBV_QP_PKEY_INDEX, pkey_index;
        change.qkey => IBV_QP_QKEY, qkey;
        change.path_mtu.map(port::mtu_of).transpose()? => IBV_QP_PATH_MTU, path_mtu;
        change.dest_qp_num => IBV_QP_DEST_QPN, dest_qp_num;
        psn(change.rq_psn) => IBV_QP_RQ_PSN, rq_psn;
        psn(change.sq_psn) => IBV_QP_SQ_PSN, sq_psn;
        change.max_rd_atomic => IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic;
        change.max_dest_rd_atomic => IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic;
        change.min_rnr_timer => IBV_QP_MIN_RNR_TIMER, min_rnr_timer;
        change.timeout => IBV_QP_TIMEOUT, timeout;
        change.retry_cnt => IBV_QP_RETRY_CNT, retry_cnt;
        change.rnr_retry => IBV_QP_RNR_RETRY, rnr_retry;
        change.ah.as_ref().map(|ah| port::path(context, ah)).transpose()? => IBV_QP_AV, ah_attr;
    }
    Ok((attr, mask))
}

/// Changes a queue pair.
pub(crate) fn modify(context: &Context, qp: &Qp, change: &QpModify) -> Result<()> {
    let verb = "modify_qp";
    let to = change.state.map_or_else(String::new, |state| format!(" to {state}"));
    let fail = |reason| Error::new(verb, format_args!("qp {:#08x}{to}", qp.num), reason);
    let (attr, mask) = raw_change(context, change).map_err(fail)?;
    // Posting reads the state that libibverbs writes here.
    let done = qp.live.alone(|raw| {
        let answer = call(|| {
            let mut attr = attr;
            // SAFETY: a live queue pair; the attributes are ours.
            unsafe { context.verbs.ibv_modify_qp(raw, &raw mut attr, mask) }
        });
        answer.map_err(|errno| {
            // SAFETY: a live queue pair.
            let from = unsafe { state_now(context, raw) };
            match (errno, from, change.state) {
                (libc::EINVAL, Some(from), Some(to)) => {
                    let missing = missing(needed(qp.kind, from, to), mask);
                    Reason::QpTransition { from, to, missing }
                }
                _ => Refused { context, verb, errno, lacks: None }.reason(),
            }
        })
    });
    let ended = || Reason::UnknownHandle { object: Object::Qp, handle: qp.handle };
    done.ok_or_else(ended).and_then(|done| done).map_err(fail)
}

/// The attributes of a queue pair.
pub(crate) fn query(context: &Context, qp: &Qp) -> Result<QpAttr> {
    let verb = "query_qp";
    let fail = |reason| Error::new(verb, format_args!("qp {:#08x}", qp.num), reason);
    let all = NAMES.iter().fold(IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC, |all, (bit, _)| all | bit);
    // SAFETY: a live queue pair.
    let answer = qp.live.with(|raw| unsafe { query_raw(context, raw, all) });
    let ended = || Reason::UnknownHandle { object: Object::Qp, handle: qp.handle };
    let (attr, _) = answer
        .ok_or_else(ended)
        .map_err(fail)?
        .map_err(|errno| fail(Refused { context, verb, errno, lacks: None }.reason()))?;
    let unknown = Reason::System { call: "ibv_query_qp", errno: libc::EIO };
    Ok(QpAttr {
        state: state_of(attr.qp_state).ok_or_else(|| fail(unknown))?,
        rights: Rights::from_bits_truncate(attr.qp_access_flags),
        port: attr.port_num,
        pkey_index: attr.pkey_index,
        qkey: attr.qkey,
        path_mtu: port::bytes_of(attr.path_mtu),
        dest_qp_num: attr.dest_qp_num,
        rq_psn: attr.rq_psn,
        sq_psn: attr.sq_psn,
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ah: port::path_of(&attr.ah_attr),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_attribute_of_a_transition_is_named() {
        let all = needed(QpKind::Rc, QpState::Init, QpState::Rtr);
        assert_eq!(missing(all, all), None);
        assert_eq!(missing(all, all & !IBV_QP_AV), Some("ah"));
        assert_eq!(missing(all, all & !IBV_QP_MIN_RNR_TIMER), Some("min_rnr_timer"));
        let all = needed(QpKind::Rc, QpState::Rtr, QpState::Rts);
        assert_eq!(missing(all, all & !IBV_QP_MAX_QP_RD_ATOMIC), Some("max_rd_atomic"));
        assert_eq!(needed(QpKind::Uc, QpState::Rtr, QpState::Rts), IBV_QP_SQ_PSN);
        let ud = needed(QpKind::Ud, QpState::Reset, QpState::Init);
        assert_eq!(missing(ud, 0), Some("pkey_index"));
        assert_eq!(needed(QpKind::Rc, QpState::Rts, QpState::Err), 0);
    }
}
