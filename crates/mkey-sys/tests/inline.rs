//! The inline operations, over a provider that is a fake: which function they call, with what, and
//! what they answer where there is none.

mod common;

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::{self, null_mut};

use bytemuck::Zeroable;
use mkey_sys::inline::*;
use mkey_sys::types::*;
use mkey_sys::{NotOffered, Verbs};

/// An open device's context, extended by the whole of what is declared, without any operation.
fn context() -> Box<verbs_context> {
    let mut extended = Box::new(verbs_context::zeroed());
    extended.sz = size_of::<verbs_context>();
    extended.context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    extended
}

fn plain(extended: &mut verbs_context) -> *mut ibv_context {
    // Through the whole structure, since the verbs go from its last field back to the others.
    let whole = ptr::from_mut(extended);
    // SAFETY: the field is inside.
    unsafe { whole.byte_add(offset_of!(verbs_context, context)).cast() }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

unsafe extern "C" fn advise(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    _: *mut ibv_sge,
    count: u32,
) -> c_int {
    assert!(!pd.is_null());
    assert_eq!(advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    (flags * 100 + count) as c_int
}

fn advised(context: *mut ibv_context) -> c_int {
    let mut pd = ibv_pd { context, handle: 0 };
    let advice = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    // SAFETY: the fake looks at no list.
    unsafe { ibv_advise_mr(&raw mut pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, null_mut(), 7) }
}

#[test]
fn an_extended_operation_is_called() {
    let mut extended = context();
    extended.advise_mr = Some(advise);
    assert_eq!(advised(plain(&mut extended)), 107);
}

#[test]
fn an_operation_that_the_provider_does_not_set_is_not_supported() {
    assert_eq!(advised(plain(&mut context())), libc::EOPNOTSUPP);
}

/// An older provider's structure is smaller at its start: what lies there is not its own.
#[test]
fn an_operation_before_the_start_of_a_smaller_structure_is_not_read() {
    let mut extended = context();
    extended.advise_mr = Some(advise);
    let whole = size_of::<verbs_context>() - offset_of!(verbs_context, advise_mr);
    extended.sz = whole;
    assert_eq!(advised(plain(&mut extended)), 107, "just reaches");
    extended.sz = whole - 1;
    assert_eq!(advised(plain(&mut extended)), libc::EOPNOTSUPP);
}

#[test]
fn a_context_that_is_not_extended_has_no_extended_operations() {
    let mut extended = context();
    extended.advise_mr = Some(advise);
    extended.context.abi_compat = null_mut();
    assert_eq!(advised(plain(&mut extended)), libc::EOPNOTSUPP);
    // SAFETY: a context.
    assert_eq!(unsafe { verbs_get_ctx(plain(&mut extended)) }, None);
}

#[test]
fn a_verb_that_makes_an_object_answers_null_and_errno() {
    let mut extended = context();
    let context = plain(&mut extended);
    let mut pd = ibv_pd { context, handle: 0 };
    // SAFETY: live objects, of which nothing is called.
    unsafe {
        assert!(ibv_alloc_null_mr(&raw mut pd).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        *libc::__errno_location() = 0;
        assert!(ibv_alloc_mw(&raw mut pd, IBV_MW_TYPE_2).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn polling_a_queue_without_the_operation_is_an_error_and_no_number_of_completions() {
    let mut extended = context();
    let mut cq = ibv_cq::zeroed();
    cq.context = plain(&mut extended);
    // SAFETY: live objects, of which nothing is called.
    unsafe { assert!(ibv_poll_cq(&raw mut cq, 1, null_mut()) < 0) };
}

#[test]
fn posting_and_polling_go_through_the_contexts_operations() {
    unsafe extern "C" fn post(
        _: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        // SAFETY: the test's own.
        unsafe { *bad = wr };
        libc::ENOMEM
    }
    unsafe extern "C" fn poll(_: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
        // SAFETY: the test's own.
        unsafe { (*wc).wr_id = 42 };
        count
    }
    let mut extended = context();
    extended.context.ops.post_send = Some(post);
    extended.context.ops.poll_cq = Some(poll);
    let mut qp = ibv_qp::zeroed();
    let mut cq = ibv_cq::zeroed();
    qp.context = plain(&mut extended);
    cq.context = qp.context;
    let (mut wr, mut bad, mut wc) = (ibv_send_wr::zeroed(), null_mut(), ibv_wc::zeroed());
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_post_send(&raw mut qp, &raw mut wr, &raw mut bad), libc::ENOMEM);
        assert_eq!(bad, &raw mut wr);
        assert_eq!(ibv_post_recv(&raw mut qp, null_mut(), null_mut()), libc::EOPNOTSUPP);
        assert_eq!(ibv_poll_cq(&raw mut cq, 1, &raw mut wc), 1);
        assert_eq!(wc.wr_id, 42);
    }
}

#[test]
fn a_window_is_bound_only_as_its_type_and_domain_allow() {
    unsafe extern "C" fn bind(_: *mut ibv_qp, _: *mut ibv_mw, _: *mut ibv_mw_bind) -> c_int {
        0
    }
    let mut extended = context();
    extended.context.ops.bind_mw = Some(bind);
    let context = plain(&mut extended);
    let (mut one, mut other) = (ibv_pd { context, handle: 1 }, ibv_pd { context, handle: 2 });
    let (mut mr, mut mw, mut request) = (ibv_mr::zeroed(), ibv_mw::zeroed(), ibv_mw_bind::zeroed());
    mr.pd = &raw mut one;
    mw.context = context;
    mw.pd = &raw mut one;
    mw.r#type = IBV_MW_TYPE_1;
    let bound = |mw: &mut ibv_mw, request: &mut ibv_mw_bind| {
        // SAFETY: live objects; the fake needs no queue pair.
        unsafe { ibv_bind_mw(null_mut(), ptr::from_mut(mw), ptr::from_mut(request)) }
    };
    assert_eq!(bound(&mut mw, &mut request), 0, "no range and no region: unbinds");
    request.bind_info.length = 1;
    assert_eq!(bound(&mut mw, &mut request), libc::EINVAL, "a range of no region");
    request.bind_info.mr = &raw mut mr;
    assert_eq!(bound(&mut mw, &mut request), 0);
    mr.pd = &raw mut other;
    request.bind_info.mr = &raw mut mr;
    assert_eq!(bound(&mut mw, &mut request), libc::EPERM);
    mw.r#type = IBV_MW_TYPE_2;
    assert_eq!(bound(&mut mw, &mut request), libc::EINVAL, "type 2 is bound by a work request");
}

#[test]
fn a_queue_pair_says_which_operation_it_was_not_made_with() {
    unsafe extern "C" fn write(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
        // SAFETY: the test's own.
        unsafe { (*qp).wr_id = u64::from(rkey) + address };
    }
    let mut qp = ibv_qp_ex::zeroed();
    qp.wr_rdma_write = Some(write);
    let qp = &raw mut qp;
    // SAFETY: a live object.
    unsafe {
        assert_eq!(ibv_wr_rdma_write(qp, 7, 0x1000), Ok(()));
        assert_eq!((*qp).wr_id, 0x1007);
        let refused = ibv_wr_local_inv(qp, 7);
        assert_eq!(refused, Err(NotOffered { operation: "wr_local_inv" }));
        assert_eq!(ibv_wr_complete(qp), libc::EOPNOTSUPP);
    }
}

#[test]
fn a_memory_key_is_configured_through_the_queue_pair() {
    use mkey_sys::mlx5dv::*;
    unsafe extern "C" fn configure(
        qp: *mut mlx5dv_qp_ex,
        mkey: *mut mlx5dv_mkey,
        setters: u8,
        _: *mut mlx5dv_mkey_conf_attr,
    ) {
        // SAFETY: the test's own.
        unsafe { (*qp).comp_mask = u64::from((*mkey).lkey) + u64::from(setters) };
    }
    let (mut qp, mut mkey) = (mlx5dv_qp_ex::zeroed(), mlx5dv_mkey::zeroed());
    qp.wr_mkey_configure = Some(configure);
    mkey.lkey = 0x100;
    let qp = &raw mut qp;
    // SAFETY: live objects.
    unsafe {
        assert_eq!(mlx5dv_wr_mkey_configure(qp, &raw mut mkey, 2, null_mut()), Ok(()));
        assert_eq!((*qp).comp_mask, 0x102);
        let refused = mlx5dv_wr_set_mkey_layout_list(qp, 0, ptr::null());
        assert_eq!(refused, Err(NotOffered { operation: "wr_set_mkey_layout_list" }));
    }
}

/// A library whose functions leave in errno which of them was called, and answer as they would.
fn library(with_iova2: bool) -> (tempfile::TempDir, Verbs) {
    let mut c = String::from(
        "#include <errno.h>\n#include <string.h>\n\
         void *ibv_reg_mr(void *pd, void *a, unsigned long l, int access) \
         { errno = access; return pd; }\n\
         int ibv_query_port(void *c, unsigned char p, void *attr) { memset(attr, 1, 48); return 0; }\n\
         int ibv_query_device(void *c, void *attr) { memset(attr, 2, 232); return 0; }\n\
         void *ibv_create_qp(void *pd, void *attr) { return pd; }\n\
         void *ibv_create_srq(void *pd, void *attr) { return pd; }\n",
    );
    if with_iova2 {
        c += "void *ibv_reg_mr_iova2(void *pd, void *a, unsigned long l, unsigned long iova, \
              unsigned access) { errno = (iova == (unsigned long)a) ? -1 : -2; return pd; }\n";
    }
    for function in mkey_sys::abi::verbs_functions() {
        let name = function.name;
        if function.needs.is_none() && !c.contains(&format!("{name}(")) {
            c += &format!("void {name}(void) {{}}\n");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = common::build(folder.path(), "libfake.so", &c, &["-shared", "-fPIC"]);
    // SAFETY: the library has no initialisers.
    let verbs = unsafe { Verbs::load_file(&path) }.unwrap();
    (folder, verbs)
}

/// What of the fake library registers with these rights: -1 `ibv_reg_mr_iova2`, else the rights
/// that `ibv_reg_mr` was given.
fn registered(verbs: &Verbs, access: u32) -> c_int {
    let mut pd = ibv_pd { context: null_mut(), handle: 0 };
    let memory: *mut c_void = ptr::without_provenance_mut(0x1000);
    // SAFETY: the fakes look at nothing.
    assert!(!unsafe { ibv_reg_mr(verbs, &raw mut pd, memory, 1, access) }.is_null());
    errno()
}

#[test]
fn optional_rights_are_registered_by_the_function_that_knows_them() {
    let (_folder, verbs) = library(true);
    let relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    assert_eq!(registered(&verbs, IBV_ACCESS_LOCAL_WRITE), 1);
    assert_eq!(registered(&verbs, relaxed), -1);
}

#[test]
fn optional_rights_are_left_out_where_no_function_knows_them() {
    let (_folder, verbs) = library(false);
    let relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    assert_eq!(registered(&verbs, relaxed), 1);
    let mut pd = ibv_pd { context: null_mut(), handle: 0 };
    // SAFETY: nothing is called.
    let missing = unsafe { ibv_reg_mr_iova(&verbs, &raw mut pd, null_mut(), 1, 8, relaxed) };
    assert_eq!(missing.unwrap_err().symbol, "ibv_reg_mr_iova");
}

#[test]
fn ports_and_devices_of_old_providers_are_asked_the_old_way_and_the_rest_is_zero() {
    let (_folder, verbs) = library(false);
    let mut extended = context();
    let context = plain(&mut extended);
    let (mut port, mut device) = (ibv_port_attr::zeroed(), ibv_device_attr_ex::zeroed());
    port.port_cap_flags2 = 9;
    device.max_dm_size = 9;
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_query_port(&verbs, context, 1, &raw mut port), 0);
        assert_eq!(ibv_query_device_ex(&verbs, context, ptr::null(), &raw mut device), 0);
    }
    assert_eq!((port.flags, port.port_cap_flags2), (1, 0));
    assert_eq!((device.orig_attr.phys_port_cnt, device.max_dm_size), (2, 0));
}

#[test]
fn a_device_without_extended_attributes_is_asked_the_old_way() {
    unsafe extern "C" fn refuse(
        _: *mut ibv_context,
        _: *const ibv_query_device_ex_input,
        _: *mut ibv_device_attr_ex,
        size: usize,
    ) -> c_int {
        assert_eq!(size, size_of::<ibv_device_attr_ex>());
        libc::EOPNOTSUPP
    }
    let (_folder, verbs) = library(false);
    let mut extended = context();
    extended.query_device_ex = Some(refuse);
    let context = plain(&mut extended);
    let mut device = ibv_device_attr_ex::zeroed();
    let asked = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: live objects.
    unsafe {
        assert_eq!(ibv_query_device_ex(&verbs, context, ptr::null(), &raw mut device), 0);
        assert_eq!(device.orig_attr.phys_port_cnt, 2);
        let answer = ibv_query_device_ex(&verbs, context, &raw const asked, &raw mut device);
        assert_eq!(answer, libc::EINVAL);
    }
}

#[test]
fn plain_queues_are_made_by_the_plain_functions() {
    let (_folder, verbs) = library(false);
    let mut extended = context();
    let context = plain(&mut extended);
    let mut pd = ibv_pd { context, handle: 0 };
    let (mut qp, mut srq) = (ibv_qp_init_attr_ex::zeroed(), ibv_srq_init_attr_ex::zeroed());
    qp.pd = &raw mut pd;
    qp.comp_mask = IBV_QP_INIT_ATTR_PD;
    srq.pd = &raw mut pd;
    srq.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
    srq.srq_type = IBV_SRQT_BASIC;
    // SAFETY: live objects.
    unsafe {
        assert!(!ibv_create_qp_ex(&verbs, context, &raw mut qp).is_null());
        assert!(!ibv_create_srq_ex(&verbs, context, &raw mut srq).is_null());
        qp.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        srq.srq_type = IBV_SRQT_XRC;
        assert!(ibv_create_qp_ex(&verbs, context, &raw mut qp).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        *libc::__errno_location() = 0;
        assert!(ibv_create_srq_ex(&verbs, context, &raw mut srq).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}
