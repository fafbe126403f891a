//! The functions of libibverbs that are ours: those that are given an object, or make one.
//!
//! Each looks whose the object is: of a real device, the real function is called. What is not here
//! (names of numbers, rates, readers of files) is found in the real library.

use crate::ah::{self, Ah};
use crate::boundary::{
    Answer, EINVAL, EOPNOTSUPP, Errno, NOT_HERE, OrMinusErrno, OrMinusOne, Verb, plain, set_errno,
    verb,
};
use crate::channel::{self, Channel};
use crate::cq::{self, Cq};
use crate::devices::{self, Listed};
use crate::dm::Dm;
use crate::mr::{self, Mr};
use crate::objects::{Found, Whose, readable, whose, whose_context};
use crate::pd::{self, Pd};
use crate::qp::{self, Qp};
use crate::settings::settings;
use crate::srq::{self, Srq};
use crate::structs::{self, given, put};
use crate::{attributes, context, gids, qp_state, real};
use mkey_sys::types::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Calls the real function of this name: `required` of every libibverbs, `optional` of newer ones.
macro_rules! real {
    ($answer:ty, required $name:ident($($arg:ident),*)) => {
        match real::verbs() {
            // SAFETY: the caller's: the real function is called as ours was.
            Some(real) => unsafe { real.$name($($arg),*) },
            None => <$answer as Answer<_>>::failed(EOPNOTSUPP),
        }
    };
    ($answer:ty, optional $name:ident($($arg:ident),*)) => {
        match real::verbs().map(|real| real.$name()) {
            // SAFETY: as above.
            Some(Ok(function)) => unsafe { function($($arg),*) },
            _ => <$answer as Answer<_>>::failed(EOPNOTSUPP),
        }
    };
}

/// Functions that look whose their first argument is, found by `$whose`. `end` ends an object: of the
/// parent's there is nothing to end in a forked child. All may be called as their manual pages say.
macro_rules! functions {
    ($(
        $need:ident fn $name:ident(
            $first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)* $(,)?
        ) -> $ret:ty as $answer:ty = $whose:path, $parents:expr, |$found:ident| $body:expr;
    )*) => {$(
        #[allow(unused_unsafe, reason = "not all bodies need it")]
        pub(crate) unsafe extern "C" fn $name($first: $first_ty $(, $arg: $ty)*) -> $ret {
            // SAFETY: the caller's.
            let whose = sure(|| unsafe { $whose($first) });
            if let Whose::Real = whose {
                return real!($answer, $need $name($first $(, $arg)*));
            }
            verb::<$ret, $answer>(|| match whose {
                // SAFETY: the caller's.
                Whose::Ours($found) => unsafe { $body },
                Whose::Parents => $parents,
                Whose::Nobodys(errno) => Err(errno),
                Whose::Real => Err(EOPNOTSUPP),
            })
        }
    )*};
}

/// Looks whose an object is. A panic, which would be a mistake of ours, makes it nobody's.
fn sure<T>(look: impl FnOnce() -> Whose<T>) -> Whose<T> {
    plain(Whose::Nobodys(Errno(libc::EIO)), look)
}

/// The device, if it is one of ours.
fn listed(device: *const ibv_device) -> Option<&'static Listed> {
    plain(None, || devices::find(device))
}

functions! {
    required fn ibv_close_device(context: *mut ibv_context) -> c_int as Verb<()>
        = whose_context, Ok(()), |open| context::close(&open);
    required fn ibv_query_device(
        context: *mut ibv_context,
        attr: *mut ibv_device_attr,
    ) -> c_int as Verb<()>
        = readable, Err(NOT_HERE), |open| put(attr, attributes::device(&open));
    required fn ibv_query_port(
        context: *mut ibv_context,
        port: u8,
        attr: *mut _compat_ibv_port_attr,
    ) -> c_int as Verb<()> = readable, Err(NOT_HERE), |open| {
        // What programs of old have room for.
        const OLD: usize = 48;
        let known = attributes::port(&open, port)?;
        if attr.is_null() {
            return Err(EINVAL);
        }
        attr.cast::<u8>().copy_from_nonoverlapping((&raw const known).cast(), OLD);
        Ok(())
    };
    required fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int as Verb<OrMinusOne> = readable, Err(NOT_HERE), |open| {
        put(gid, gids::query(&open, port, index)?)?;
        Ok(OrMinusOne(0))
    };
    required fn ibv_query_pkey(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        pkey: *mut be16,
    ) -> c_int as Verb<OrMinusOne> = readable, Err(NOT_HERE), |_open| {
        put(pkey, gids::query_pkey(port, index)?)?;
        Ok(OrMinusOne(0))
    };
    optional fn ibv_get_pkey_index(
        context: *mut ibv_context,
        port: u8,
        pkey: be16,
    ) -> c_int as Verb<OrMinusOne>
        = readable, Err(NOT_HERE), |_open| gids::pkey_index(port, pkey);
    optional fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        size: usize,
    ) -> c_int as Verb<()> = readable, Err(NOT_HERE), |open| {
        put(entry, gids::query_ex(&open, port, index, flags, size)?)
    };
    optional fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        most: usize,
        flags: u32,
        size: usize,
    ) -> isize as Verb<OrMinusErrno<isize>> = readable, Err(NOT_HERE), |open| {
        gids::query_table(&open, entries, most, flags, size)
    };
    required fn ibv_get_async_event(
        context: *mut ibv_context,
        event: *mut ibv_async_event,
    ) -> c_int as Verb<OrMinusOne>
        = whose_context, Err(NOT_HERE), |open| channel::get_async_event(&open, event);

    required fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd as Verb<*mut ibv_pd>
        = whose_context, Err(NOT_HERE), |open| pd::alloc(&open);
    required fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int as Verb<()>
        = whose::<Pd, _>, Ok(()), |pd| pd::dealloc(&pd);

    required fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| mr::reg(&pd, addr, length, None, access as u32);
    optional fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| mr::reg(&pd, addr, length, Some(iova), access as u32);
    optional fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| mr::reg(&pd, addr, length, Some(iova), access);
    optional fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| mr::reg_dmabuf(&pd, offset, length, iova, fd, access);
    required fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int as Verb<()>
        = whose::<Mr, _>, Ok(()), |mr| mr::dereg(&mr);

    required fn ibv_create_comp_channel(
        context: *mut ibv_context,
    ) -> *mut ibv_comp_channel as Verb<*mut ibv_comp_channel>
        = whose_context, Err(NOT_HERE), |open| channel::create(&open);
    required fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int as Verb<()>
        = whose::<Channel, _>, Ok(()), |channel| channel::destroy(&channel);
    required fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int as Verb<OrMinusOne>
        = whose::<Channel, _>, Err(NOT_HERE),
        |channel| channel::get_cq_event(&channel, cq, cq_context);
    required fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq as Verb<*mut ibv_cq> = whose_context, Err(NOT_HERE), |open| {
        let cqe = u32::try_from(cqe).map_err(|_| EINVAL)?;
        cq::create(&open, &cq::Init { cqe, cq_context, channel, comp_vector, wc_flags: 0 })
    };
    required fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int as Verb<()>
        = whose::<Cq, _>, Err(NOT_HERE), |cq| cq::resize(&cq, cqe);
    required fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int as Verb<()>
        = whose::<Cq, _>, Ok(()), |cq| cq::destroy(&cq);

    required fn ibv_create_srq(
        pd: *mut ibv_pd,
        init: *mut ibv_srq_init_attr,
    ) -> *mut ibv_srq as Verb<*mut ibv_srq> = whose::<Pd, _>, Err(NOT_HERE), |pd| {
        let init = given(init)?;
        srq::create(&pd, init.srq_context, &init.attr)
    };
    required fn ibv_modify_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        mask: c_int,
    ) -> c_int as Verb<()>
        = whose::<Srq, _>, Err(NOT_HERE), |srq| srq::modify(&srq, given(attr)?, mask);
    required fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int as Verb<()>
        = whose::<Srq, _>, Err(NOT_HERE), |srq| put(attr, srq::query(&srq)?);
    required fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int as Verb<()>
        = whose::<Srq, _>, Ok(()), |srq| srq::destroy(&srq);

    required fn ibv_create_qp(
        pd: *mut ibv_pd,
        init: *mut ibv_qp_init_attr,
    ) -> *mut ibv_qp as Verb<*mut ibv_qp>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| qp::create(&pd, given(init)?);
    required fn ibv_modify_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
    ) -> c_int as Verb<()>
        = whose::<Qp, _>, Err(NOT_HERE), |qp| qp_state::modify(&qp, &structs::qp_attr(attr)?, mask);
    required fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _mask: c_int,
        init: *mut ibv_qp_init_attr,
    ) -> c_int as Verb<()> = whose::<Qp, _>, Err(NOT_HERE), |qp| {
        let (known, made) = qp_state::query(&qp)?;
        structs::put_qp_attr(attr, &known)?;
        put(init, made)
    };
    required fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int as Verb<()>
        = whose::<Qp, _>, Ok(()), |qp| qp::destroy(&qp);
    optional fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex as Verb<*mut ibv_qp_ex>
        = whose::<Qp, _>, Err(NOT_HERE), |qp| qp::extended(&qp);
    optional fn ibv_query_qp_data_in_order(
        qp: *mut ibv_qp,
        op: ibv_wr_opcode,
        flags: u32,
    ) -> c_int as Verb<OrMinusOne> = whose::<Qp, _>, Ok(OrMinusOne(0)), |_qp| {
        // Copies are ascending, the last word last.
        let ordered = flags == 0
            && [IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ].contains(&op);
        Ok(OrMinusOne(c_int::from(ordered)))
    };
    // Nothing to agree upon beyond the standard: no options.
    optional fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int as Verb<()>
        = whose::<Qp, _>, Err(NOT_HERE), |_qp| put(ece, bytemuck::Zeroable::zeroed());
    optional fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int as Verb<()>
        = whose::<Qp, _>, Err(NOT_HERE), |_qp| {
            let ece = given(ece)?;
            if ece.comp_mask != 0 { Err(EINVAL) } else { Err(EOPNOTSUPP) }
        };
    required fn ibv_attach_mcast(qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int as Verb<()>
        = whose::<Qp, _>, Err(NOT_HERE), |_qp| Err(EOPNOTSUPP);
    required fn ibv_detach_mcast(qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int as Verb<()>
        = whose::<Qp, _>, Err(NOT_HERE), |_qp| Err(EOPNOTSUPP);

    required fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah as Verb<*mut ibv_ah>
        = whose::<Pd, _>, Err(NOT_HERE), |pd| ah::create(&pd, given(attr)?);
    required fn ibv_create_ah_from_wc(
        pd: *mut ibv_pd,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        port: u8,
    ) -> *mut ibv_ah as Verb<*mut ibv_ah> = whose::<Pd, _>, Err(NOT_HERE), |pd| {
        let attr = ah::from_wc(&pd.open, port, given(wc)?, grh.as_ref())?;
        ah::create(&pd, &attr)
    };
    required fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        attr: *mut ibv_ah_attr,
    ) -> c_int as Verb<OrMinusOne> = whose_context, Err(NOT_HERE), |open| {
        put(attr, ah::from_wc(&open, port, given(wc)?, grh.as_ref())?)?;
        Ok(OrMinusOne(0))
    };
    required fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int as Verb<()>
        = whose::<Ah, _>, Ok(()), |ah| ah::destroy(&ah);
    required fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        _attr: *mut ibv_ah_attr,
        _mac: *mut u8,
        _vid: *mut u16,
    ) -> c_int as Verb<()> = whose_context, Err(NOT_HERE), |_open| Err(EOPNOTSUPP);

    // Objects of other processes.
    optional fn ibv_import_pd(context: *mut ibv_context, _handle: u32) -> *mut ibv_pd as Verb<*mut ibv_pd>
        = whose_context, Err(NOT_HERE), |_open| Err(EOPNOTSUPP);
    optional fn ibv_import_mr(pd: *mut ibv_pd, _handle: u32) -> *mut ibv_mr as Verb<*mut ibv_mr>
        = whose::<Pd, _>, Err(NOT_HERE), |_pd| Err(EOPNOTSUPP);
    optional fn ibv_import_dm(context: *mut ibv_context, _handle: u32) -> *mut ibv_dm as Verb<*mut ibv_dm>
        = whose_context, Err(NOT_HERE), |_open| Err(EOPNOTSUPP);
    optional fn ibv_unimport_pd(pd: *mut ibv_pd) -> () as Verb<()>
        = whose::<Pd, _>, Ok(()), |_pd| Ok(());
    optional fn ibv_unimport_mr(mr: *mut ibv_mr) -> () as Verb<()>
        = whose::<Mr, _>, Ok(()), |_mr| Ok(());
    optional fn ibv_unimport_dm(dm: *mut ibv_dm) -> () as Verb<()>
        = whose::<Dm, _>, Ok(()), |_dm| Ok(());
}

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    verb::<_, Verb<_>>(|| devices::list(count))
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller's: lists come from the function above.
    plain((), || unsafe { devices::free(list) });
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    match listed(device) {
        Some(ours) => ours.name(),
        None => match real::verbs() {
            // SAFETY: the caller's.
            Some(real) => unsafe { real.ibv_get_device_name(device) },
            None => std::ptr::null(),
        },
    }
}

pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> be64 {
    match listed(device) {
        Some(ours) => ours.guid.to_be(),
        // SAFETY: the caller's.
        None => real::verbs().map_or(0, |real| unsafe { real.ibv_get_device_guid(device) }),
    }
}

pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    match listed(device) {
        // That of the kernel's numbering, in which ours have none.
        Some(_) => -1,
        None => real!(Verb<OrMinusOne>, optional ibv_get_device_index(device)),
    }
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    match listed(device) {
        Some(ours) => verb::<_, Verb<_>>(|| context::open(ours)),
        None => real!(Verb<*mut ibv_context>, required ibv_open_device(device)),
    }
}

pub(crate) unsafe extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    match plain(false, || context::is_command(fd)) {
        true => <Verb<_> as Answer<_>>::failed(EOPNOTSUPP),
        false => real!(Verb<*mut ibv_context>, optional ibv_import_device(fd)),
    }
}

/// Whether real devices are hidden.
fn only() -> bool {
    plain(false, || settings().only)
}

pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    match only() {
        true => 0,
        false => real!(Verb<()>, required ibv_fork_init()),
    }
}

pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    match real::verbs().map(|real| real.ibv_is_fork_initialized()) {
        // SAFETY: it takes nothing.
        Some(Ok(function)) if !only() => unsafe { function() },
        _ => IBV_FORK_UNNEEDED,
    }
}

pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's.
    let whose = sure(|| unsafe { whose::<Mr, _>(mr) });
    if let Whose::Real = whose {
        return real!(Verb<OrMinusOne>, required ibv_rereg_mr(mr, flags, pd, addr, length, access));
    }
    plain(IBV_REREG_MR_ERR_CMD.0, || {
        let failed = match whose {
            // SAFETY: the caller's.
            Whose::Ours(found) => unsafe { mr::rereg(&found, flags, pd, addr, length, access) },
            Whose::Nobodys(errno) => Err((errno, IBV_REREG_MR_ERR_INPUT)),
            Whose::Parents | Whose::Real => Err((NOT_HERE, IBV_REREG_MR_ERR_INPUT)),
        };
        match failed {
            Ok(()) => 0,
            Err((errno, code)) => {
                set_errno(errno);
                code.0
            }
        }
    })
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    // SAFETY: the caller's.
    match sure(|| unsafe { whose::<Cq, _>(cq) }) {
        Whose::Ours(cq) => plain((), || cq::acknowledge(&cq, count)),
        Whose::Real => {
            if let Some(real) = real::verbs() {
                // SAFETY: the caller's.
                unsafe { real.ibv_ack_cq_events(cq, count) };
            }
        }
        Whose::Parents | Whose::Nobodys(_) => {}
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the caller's: an event as it was given.
    let real = plain(false, || unsafe {
        let Some(event) = event.as_ref() else { return false };
        let element = event.element;
        match event.event_type {
            IBV_EVENT_CQ_ERR => acknowledge::<Cq>(element.cq, |cq| cq.async_events.acknowledge(1)),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                acknowledge::<Qp>(element.qp, |qp| qp.events.acknowledge(1))
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                acknowledge::<Srq>(element.srq, |srq| srq.events.acknowledge(1))
            }
            // Work queues are real ones' only; ports and devices need none.
            kind => kind == IBV_EVENT_WQ_FATAL,
        }
    });
    if let Some(verbs) = real::verbs().filter(|_| real) {
        // SAFETY: the caller's.
        unsafe { verbs.ibv_ack_async_event(event) };
    }
}

/// Acknowledges an event of an object of ours; whether it is a real one's.
unsafe fn acknowledge<K: crate::objects::Kind>(
    base: *mut impl Sized,
    ours: impl FnOnce(&Found<K>),
) -> bool {
    // SAFETY: the caller's.
    match unsafe { whose::<K, _>(base) } {
        Whose::Ours(found) => ours(&found),
        Whose::Real => return true,
        Whose::Parents | Whose::Nobodys(_) => {}
    }
    false
}

pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    // SAFETY: the caller's.
    match sure(|| unsafe { readable(context) }) {
        Whose::Real => match real::query_gid_type() {
            // SAFETY: the caller's.
            Some(function) => unsafe { function(context, port, index, kind) },
            None => <Verb<OrMinusOne> as Answer<_>>::failed(EOPNOTSUPP),
        },
        Whose::Ours(open) => verb::<_, Verb<_>>(|| {
            // SAFETY: the caller's.
            unsafe { put(kind, gids::query_type(&open, port, index)?) }?;
            Ok(OrMinusOne(0))
        }),
        Whose::Parents => <Verb<OrMinusOne> as Answer<_>>::failed(NOT_HERE),
        Whose::Nobodys(errno) => <Verb<OrMinusOne> as Answer<_>>::failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions themselves, as C calls them.
    #[test]
    fn null_is_nobody_s_object() {
        // SAFETY: null is what these take for no object.
        unsafe {
            assert_eq!(ibv_dereg_mr(std::ptr::null_mut()), libc::EINVAL);
            assert_eq!(ibv_close_device(std::ptr::null_mut()), libc::EINVAL);
            assert!(ibv_alloc_pd(std::ptr::null_mut()).is_null());
            ibv_free_device_list(std::ptr::null_mut());
            ibv_ack_async_event(std::ptr::null_mut());
            ibv_ack_cq_events(std::ptr::null_mut(), 1);
        }
    }
}
