//! The operations behind the inline functions of `infiniband/verbs.h`.

use crate::boundary::{EINVAL, Verb, verb};
use crate::context::Open;
use crate::cq::{self, Cq};
use crate::dm::Dm;
use crate::mr::Mw;
use crate::objects::{Found, Kind, Object, Whose, readable, whose, whose_context};
use crate::pd::{Pd, Td};
use crate::srq::{self, Srq};
use crate::structs::given;
use crate::xrcd::{self, Xrcd};
use crate::{attributes, dm, mr, pd, post, qp};
use mkey_core::device::Device;
use mkey_sys::types::*;
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

/// Sets the operations of a context. What is not there is answered by the inline functions.
pub(crate) fn fill(verbs: &mut verbs_context) {
    verbs.sz = size_of::<verbs_context>();
    // What marks a context as the end of an extended one.
    verbs.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    let ops = &mut verbs.context.ops;
    ops._compat_query_device = Some(crate::exports::ibv_query_device);
    ops._compat_query_port = Some(crate::exports::ibv_query_port);
    ops.alloc_mw = Some(alloc_mw);
    ops.bind_mw = Some(post::bind_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.poll_cq = Some(cq::poll);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.post_srq_recv = Some(srq::post_recv);
    ops.post_send = Some(post::send);
    ops.post_recv = Some(post::recv);
    verbs.query_port = Some(query_port);
    verbs.advise_mr = Some(advise_mr);
    verbs.alloc_null_mr = Some(alloc_null_mr);
    verbs.reg_dm_mr = Some(reg_dm_mr);
    verbs.alloc_dm = Some(alloc_dm);
    verbs.free_dm = Some(free_dm);
    verbs.alloc_parent_domain = Some(alloc_parent_domain);
    verbs.dealloc_td = Some(dealloc_td);
    verbs.alloc_td = Some(alloc_td);
    verbs.modify_cq = Some(modify_cq);
    verbs.query_rt_values = Some(query_rt_values);
    verbs.create_cq_ex = Some(create_cq_ex);
    verbs.query_device_ex = Some(query_device_ex);
    verbs.create_qp_ex = Some(create_qp_ex);
    verbs.create_srq_ex = Some(create_srq_ex);
    verbs.get_srq_num = Some(get_srq_num);
    verbs.open_xrcd = Some(open_xrcd);
    verbs.close_xrcd = Some(close_xrcd);
}

/// An object that is ours and in use, which an operation of ours was called with.
unsafe fn ours<K: Kind, B>(base: *mut B) -> Verb<Found<K>> {
    // SAFETY: the caller's.
    unsafe { whose::<K, B>(base) }.ours()
}

/// A device for what needs nothing of the parent's in a forked child.
unsafe fn looked_at(context: *mut ibv_context) -> Verb<Arc<Open>> {
    // SAFETY: the caller's.
    unsafe { readable(context) }.ours()
}

unsafe fn opened(context: *mut ibv_context) -> Verb<Arc<Open>> {
    // SAFETY: the caller's.
    unsafe { whose_context(context) }.ours()
}

/// Ends an object: of a parent's there is nothing to end here.
unsafe fn end<K: Kind, B>(base: *mut B, end: impl FnOnce(&Found<K>) -> Verb<()>) -> Verb<()> {
    // SAFETY: the caller's.
    match unsafe { whose::<K, B>(base) } {
        Whose::Parents => Ok(()),
        whose => end(&whose.ours()?),
    }
}

/// Operations: called by the inline functions with objects of ours and the program's structures.
macro_rules! operations {
    ($(
        fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty as $answer:ty = $body:expr;
    )*) => {$(
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: as the macro says.
            verb::<$ret, $answer>(|| unsafe { $body })
        }
    )*};
}

operations! {
    fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw as Verb<*mut ibv_mw>
        = mr::alloc_mw(&ours::<Pd, _>(pd)?, kind);
    fn dealloc_mw(mw: *mut ibv_mw) -> c_int as Verb<()> = end::<Mw, _>(mw, mr::dealloc_mw);
    fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int as Verb<()>
        = cq::notify(Object::<Cq>::live(cq).ok_or(EINVAL)?, solicited_only != 0);
    fn query_port(
        context: *mut ibv_context,
        port: u8,
        attr: *mut ibv_port_attr,
        len: usize
    ) -> c_int as Verb<()> = {
        let known = attributes::port(&*looked_at(context)?, port)?;
        put_sized(attr, len, &known)
    };
    fn query_device_ex(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        len: usize
    ) -> c_int as Verb<()> = {
        let known = attributes::device_ex(&*looked_at(context)?, input.as_ref())?;
        if len < size_of::<ibv_device_attr>() {
            return Err(EINVAL);
        }
        put_sized(attr, len, &known)
    };
    fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int as Verb<()>
        = attributes::real_time(&*looked_at(context)?, values.as_mut().ok_or(EINVAL)?);
    fn advise_mr(
        pd: *mut ibv_pd,
        advice: ibv_advise_mr_advice,
        flags: u32,
        list: *mut ibv_sge,
        count: u32
    ) -> c_int as Verb<()> = {
        let list = post::sges(list, c_int::try_from(count).map_err(|_| EINVAL)?)?;
        mr::advise(&ours::<Pd, _>(pd)?, advice, flags, list)
    };
    fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = mr::alloc_null(&ours::<Pd, _>(pd)?);
    fn reg_dm_mr(
        pd: *mut ibv_pd,
        dm: *mut ibv_dm,
        offset: u64,
        length: usize,
        access: c_uint
    ) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = dm::reg(&ours::<Pd, _>(pd)?, &ours::<Dm, _>(dm)?, offset, length, access);
    // Also of the parent's device in a forked child, as rdma-core's tests do: what is made is the child's,
    // in its own copy of the device, and it can do no more with it than free it.
    fn alloc_dm(
        context: *mut ibv_context,
        attr: *mut ibv_alloc_dm_attr
    ) -> *mut ibv_dm as Verb<*mut ibv_dm> = dm::alloc(&*looked_at(context)?, given(attr)?);
    fn free_dm(dm: *mut ibv_dm) -> c_int as Verb<()> = end::<Dm, _>(dm, dm::free);
    fn alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr
    ) -> *mut ibv_pd as Verb<*mut ibv_pd> = pd::alloc_parent(&opened(context)?, attr);
    fn alloc_td(
        context: *mut ibv_context,
        attr: *mut ibv_td_init_attr
    ) -> *mut ibv_td as Verb<*mut ibv_td> = pd::alloc_td(&opened(context)?, given(attr)?);
    fn dealloc_td(td: *mut ibv_td) -> c_int as Verb<()> = end::<Td, _>(td, pd::dealloc_td);
    fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int as Verb<()>
        = cq::modify(&ours::<Cq, _>(cq)?, given(attr)?);
    fn create_cq_ex(
        context: *mut ibv_context,
        attr: *mut ibv_cq_init_attr_ex
    ) -> *mut ibv_cq_ex as Verb<*mut ibv_cq_ex> = cq::create_ex(&opened(context)?, attr);
    fn create_qp_ex(
        context: *mut ibv_context,
        attr: *mut ibv_qp_init_attr_ex
    ) -> *mut ibv_qp as Verb<*mut ibv_qp>
        = qp::create_ex(&opened(context)?, attr);
    fn create_srq_ex(
        context: *mut ibv_context,
        attr: *mut ibv_srq_init_attr_ex
    ) -> *mut ibv_srq as Verb<*mut ibv_srq> = srq::create_ex(&opened(context)?, attr);
    fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int as Verb<()> = {
        let srq = ours::<Srq, _>(srq)?;
        *number.as_mut().ok_or(EINVAL)? = srq.open.device.srq_num(srq.handle)?;
        Ok(())
    };
    fn open_xrcd(
        context: *mut ibv_context,
        attr: *mut ibv_xrcd_init_attr
    ) -> *mut ibv_xrcd as Verb<*mut ibv_xrcd> = xrcd::open(&*opened(context)?, given(attr)?);
    fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int as Verb<()> = end::<Xrcd, _>(xrcd, xrcd::close);
}

/// Writes a structure that the program knows `len` bytes of: what we know of it, and zeros.
unsafe fn put_sized<T>(place: *mut T, len: usize, known: &T) -> Verb<()> {
    if place.is_null() {
        return Err(EINVAL);
    }
    let bytes = len.min(size_of::<T>());
    // SAFETY: the caller's: so many bytes may be written there.
    unsafe {
        place.cast::<u8>().write_bytes(0, len);
        place.cast::<u8>().copy_from_nonoverlapping((&raw const *known).cast(), bytes);
    }
    Ok(())
}
