//! The functions of the made-up libraries.
//!
//! # Safety
//! They are called as the real ones are: with objects that they made and that are not destroyed.
#![allow(clippy::missing_safety_doc, reason = "see above")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]
#![allow(unsafe_op_in_unsafe_fn, reason = "see above")]

use super::{DEVICES, FakeDevice};
use mkey_sys::mlx5dv::*;
use mkey_sys::types::*;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::PoisonError;

/// A function by its name; null for those that this library does not have.
pub(super) fn find(name: &str) -> *mut c_void {
    macro_rules! table {
        ($($function:ident)*) => {
            match name {
                $(stringify!($function) => $function as *const () as *mut c_void,)*
                _ if OPTIONAL.contains(&name) => ptr::null_mut(),
                _ => not_expected as *const () as *mut c_void,
            }
        };
    }
    table! {
        ibv_get_device_list ibv_free_device_list ibv_open_device ibv_close_device ibv_query_device
        ibv_query_port ibv_query_gid ibv_alloc_pd ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr
        ibv_create_cq ibv_destroy_cq ibv_create_qp ibv_destroy_qp ibv_query_qp ibv_create_srq
        ibv_get_async_event ibv_ack_async_event ibv_rereg_mr ibv_is_fork_initialized
        ibv_qp_to_qp_ex ibv_create_comp_channel ibv_destroy_comp_channel ibv_get_cq_event
        mlx5dv_is_supported mlx5dv_open_device mlx5dv_create_mkey mlx5dv_destroy_mkey
        mlx5dv_create_qp mlx5dv_qp_ex_from_ibv_qp_ex
    }
}

/// Functions that older libraries lack, and this one.
const OPTIONAL: [&str; 20] = [
    "_ibv_query_gid_ex",
    "_ibv_query_gid_table",
    "ibv_get_device_index",
    "ibv_get_pkey_index",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_query_ece",
    "ibv_query_qp_data_in_order",
    "ibv_reg_dmabuf_mr",
    "ibv_reg_mr_iova",
    "ibv_reg_mr_iova2",
    "ibv_set_ece",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "_mlx5dv_mkey_check",
    "mlx5dv_qp_cancel_posted_send_wrs",
    "mlx5dv_reg_dmabuf_mr",
];

extern "C" fn not_expected() {
    panic!("a function that no test calls");
}

unsafe fn set_errno(errno: i32) {
    *libc::__errno_location() = errno;
}

unsafe fn fake<'a>(context: *mut ibv_context) -> &'a FakeDevice {
    &*(*context).device.cast::<FakeDevice>()
}

/// Notes a call; the errno that it is scripted to answer.
unsafe fn asked(context: *mut ibv_context, verb: &'static str) -> i32 {
    let mut script = fake(context).script();
    script.log.push(verb.to_owned());
    script.fails.get_mut(verb).and_then(|errnos| errnos.pop_front()).unwrap_or(0)
}

/// A new object, or null with the scripted errno.
unsafe fn made<T>(context: *mut ibv_context, verb: &'static str, object: T) -> *mut T {
    let errno = asked(context, verb);
    if errno != 0 {
        set_errno(errno);
        return ptr::null_mut();
    }
    fake(context).script().live += 1;
    Box::into_raw(Box::new(object))
}

/// Frees an object, unless it is scripted to stay.
unsafe fn ended<T>(context: *mut ibv_context, verb: &'static str, object: *mut T) -> c_int {
    let errno = asked(context, verb);
    if errno == 0 {
        fake(context).script().live -= 1;
        drop(Box::from_raw(object));
    }
    errno
}

unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    *count = devices.len() as c_int;
    let list: Vec<*mut ibv_device> = devices
        .iter()
        .map(|&at| ptr::with_exposed_provenance_mut(at))
        .chain([ptr::null_mut()])
        .collect();
    Box::leak(list.into_boxed_slice()).as_mut_ptr()
}

unsafe extern "C" fn ibv_free_device_list(_: *mut *mut ibv_device) {}

unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut extended: verbs_context = bytemuck::Zeroable::zeroed();
    extended.sz = size_of::<verbs_context>();
    extended.advise_mr = Some(advise_mr);
    let context = &mut extended.context;
    context.device = device;
    // The mark of an extended one.
    context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    context.async_fd = (*device.cast::<FakeDevice>()).script().pipe[0].as_raw_fd();
    context.ops.poll_cq = Some(poll_cq);
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    let extended = Box::into_raw(Box::new(extended));
    &raw mut (*extended).context
}

unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let device = fake(context);
    let mut script = device.script();
    let left = script.live;
    script.log.push(format!("closed, {left} objects left"));
    drop(script);
    let outer = std::mem::offset_of!(verbs_context, context);
    drop(Box::from_raw(context.byte_sub(outer).cast::<verbs_context>()));
    0
}

unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    *attr = fake(context).script().attr;
    0
}

unsafe extern "C" fn ibv_query_port(_: *mut ibv_context, _: u8, _: *mut c_void) -> c_int {
    libc::EIO
}

unsafe extern "C" fn ibv_query_gid(_: *mut ibv_context, _: u8, _: c_int, _: *mut ibv_gid) -> c_int {
    -1
}

unsafe extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    made(context, "alloc_pd", ibv_pd { context, handle: 0 })
}

unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    ended((*pd).context, "dealloc_pd", pd)
}

unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _: c_int,
) -> *mut ibv_mr {
    let context = (*pd).context;
    let mut mr: ibv_mr = bytemuck::Zeroable::zeroed();
    (mr.context, mr.pd, mr.addr, mr.length) = (context, pd, addr, length);
    let key = key(context);
    (mr.lkey, mr.rkey) = (key, key);
    made(context, "reg_mr", mr)
}

unsafe fn key(context: *mut ibv_context) -> u32 {
    let mut script = fake(context).script();
    script.next_key += 1;
    script.next_key << 8
}

unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    ended((*mr).context, "dereg_mr", mr)
}

unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    _: c_int,
    _: *mut ibv_pd,
    _: *mut c_void,
    _: usize,
    access: c_int,
) -> c_int {
    let errno = asked((*mr).context, "rereg_mr");
    fake((*mr).context).script().log.push(format!("access {access:#x}"));
    set_errno(errno);
    if errno == 0 { 0 } else { IBV_REREG_MR_ERR_CMD.0 }
}

unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let mut cq: ibv_cq = bytemuck::Zeroable::zeroed();
    (cq.context, cq.cq_context, cq.cqe) = (context, cq_context, cqe);
    made(context, "create_cq", cq)
}

unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    ended((*cq).context, "destroy_cq", cq)
}

/// No completion makes an event here.
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let mut channel: ibv_comp_channel = bytemuck::Zeroable::zeroed();
    (channel.context, channel.fd) = (context, libc::eventfd(0, libc::EFD_CLOEXEC));
    made(context, "create_comp_channel", channel)
}

unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    libc::close((*channel).fd);
    ended((*channel).context, "destroy_comp_channel", channel)
}

unsafe extern "C" fn ibv_get_cq_event(
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    set_errno(libc::EAGAIN);
    -1
}

unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, _: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let _ = pd;
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

/// A queue pair with its other views.
#[repr(C)]
struct FakeQp {
    plain: ibv_qp_ex,
    special: mlx5dv_qp_ex,
}

unsafe fn new_qp(pd: *mut ibv_pd, attr: &ibv_qp_init_attr, verb: &'static str) -> *mut ibv_qp {
    let context = (*pd).context;
    let mut qp =
        FakeQp { plain: bytemuck::Zeroable::zeroed(), special: bytemuck::Zeroable::zeroed() };
    let base = &mut qp.plain.qp_base;
    (base.context, base.pd, base.qp_context) = (context, pd, attr.qp_context);
    (base.send_cq, base.recv_cq, base.qp_num) = (attr.send_cq, attr.recv_cq, 77);
    // As `ibv_query_qp` here has it: connected.
    base.state = IBV_QPS_RTS;
    qp.plain.wr_start = Some(wr_start);
    qp.plain.wr_complete = Some(wr_complete);
    qp.plain.wr_abort = Some(wr_abort);
    qp.special.wr_mr_list = Some(wr_mr_list);
    made(context, verb, qp).cast()
}

unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    new_qp(pd, &*attr, "create_qp")
}

unsafe extern "C" fn mlx5dv_create_qp(
    _: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    special: *mut mlx5dv_qp_init_attr,
) -> *mut ibv_qp {
    let (attr, special) = (&*attr, &*special);
    assert_eq!(special.send_ops_flags, MLX5DV_QP_EX_WITH_MR_LIST);
    assert_eq!(special.create_flags, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
    assert!(attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0);
    let plain = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    let inline = attr.cap.max_inline_data;
    let context = (*attr.pd).context;
    fake(context).script().log.push(format!("inline {inline}"));
    new_qp(attr.pd, &plain, "mlx5dv_create_qp")
}

unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    ended((*qp).context, "destroy_qp", qp.cast::<FakeQp>())
}

unsafe extern "C" fn ibv_query_qp(
    _: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    (*attr).qp_state = IBV_QPS_RTS;
    0
}

unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    qp.cast()
}

unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let mut script = fake(context).script();
    let Some(next) = script.events.pop_front() else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    let mut byte = [0u8];
    assert_eq!(libc::read(script.pipe[0].as_raw_fd(), byte.as_mut_ptr().cast(), 1), 1);
    *event = next;
    0
}

unsafe extern "C" fn ibv_ack_async_event(_: *mut ibv_async_event) {}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, into: *mut ibv_wc) -> c_int {
    let mut script = fake((*cq).context).script();
    if let Some(answer) = script.fails.get_mut("poll_cq").and_then(|answers| answers.pop_front()) {
        return answer;
    }
    let mut taken = 0;
    while taken < most {
        let Some(wc) = script.completions.pop_front() else { break };
        *into.add(taken as usize) = wc;
        taken += 1;
    }
    taken
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    while !wr.is_null() {
        let errno = asked((*qp).context, "post_send");
        if errno != 0 {
            if fake((*qp).context).script().names_bad {
                *bad = wr;
            }
            return errno;
        }
        note(qp, format!("{:?}, {} entries", (*wr).opcode, (*wr).num_sge));
        done(qp, (*wr).wr_id, IBV_WC_SEND.0);
        wr = (*wr).next;
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> c_int {
    while !wr.is_null() {
        note(qp, format!("receive {}", (*wr).wr_id));
        wr = (*wr).next;
    }
    0
}

/// Does not have it, or knows all keys but one.
unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    _: ibv_advise_mr_advice,
    _: u32,
    sges: *mut ibv_sge,
    count: u32,
) -> c_int {
    let Some(unknown) = fake((*pd).context).script().unknown_lkey else {
        return libc::EOPNOTSUPP;
    };
    let known = (0..count as usize).all(|at| (*sges.add(at)).lkey != unknown);
    if known { 0 } else { libc::ENOENT }
}

unsafe fn note(qp: *mut ibv_qp, what: String) {
    fake((*qp).context).script().log.push(what);
}

unsafe fn done(qp: *mut ibv_qp, wr_id: u64, opcode: u32) {
    let mut script = fake((*qp).context).script();
    if script.completes {
        let mut wc: ibv_wc = bytemuck::Zeroable::zeroed();
        (wc.wr_id, wc.opcode, wc.qp_num) = (wr_id, ibv_wc_opcode(opcode), 77);
        script.completions.push_back(wc);
    }
}

unsafe extern "C" fn mlx5dv_is_supported(device: *mut ibv_device) -> bool {
    mkey_sys::devices::text(&(*device).name).starts_with("mlx5")
}

unsafe extern "C" fn mlx5dv_open_device(
    device: *mut ibv_device,
    attr: *mut mlx5dv_context_attr,
) -> *mut ibv_context {
    assert_eq!((*attr).flags, MLX5DV_CONTEXT_FLAGS_DEVX);
    let mut script = (*device.cast::<FakeDevice>()).script();
    let errno = script.fails.get_mut("mlx5dv_open_device").and_then(|errnos| errnos.pop_front());
    drop(script);
    if let Some(errno) = errno {
        set_errno(errno);
        return ptr::null_mut();
    }
    ibv_open_device(device)
}

/// A key that knows its device.
#[repr(C)]
struct FakeMkey {
    key: mlx5dv_mkey,
    context: *mut ibv_context,
}

unsafe extern "C" fn mlx5dv_create_mkey(attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    let context = (*(*attr).pd).context;
    let retag = (*attr).create_flags & MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG != 0;
    let errno = asked(context, if retag { "create_mkey with tag" } else { "create_mkey" });
    if errno != 0 {
        set_errno(errno);
        return ptr::null_mut();
    }
    let key = key(context);
    fake(context).script().live += 1;
    let key = mlx5dv_mkey { lkey: key, rkey: key };
    Box::into_raw(Box::new(FakeMkey { key, context })).cast()
}

unsafe extern "C" fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    let mkey = mkey.cast::<FakeMkey>();
    ended((*mkey).context, "destroy_mkey", mkey)
}

unsafe extern "C" fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex {
    let context = (*qp).qp_base.context;
    let qp = qp.cast::<FakeQp>();
    if asked(context, "mr_list") != 0 {
        (*qp).special.wr_mr_list = None;
    }
    &raw mut (*qp).special
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    note(qp.cast(), "start".to_owned());
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    note(qp.cast(), "abort".to_owned());
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let errno = asked((*qp).qp_base.context, "complete");
    if errno == 0 {
        done(qp.cast(), (*qp).wr_id, MLX5DV_WC_UMR);
    }
    errno
}

unsafe extern "C" fn wr_mr_list(
    special: *mut mlx5dv_qp_ex,
    mkey: *mut mlx5dv_mkey,
    rights: u32,
    count: u16,
    sges: *mut ibv_sge,
) {
    let qp = special.byte_sub(std::mem::offset_of!(FakeQp, special)).cast::<ibv_qp_ex>();
    assert!((*qp).wr_flags & IBV_SEND_INLINE != 0, "the list is given inline");
    let list: Vec<_> =
        (0..count as usize).map(|at| ((*sges.add(at)).addr, (*sges.add(at)).length)).collect();
    note(qp.cast(), format!("key {:#x}, rights {rights}, {list:?}", (*mkey).rkey));
}
