//! The program's structures. They may be those of other headers, which are shorter or longer than the
//! ones known here: no more of them is read than what the program says that it knows.

use crate::boundary::{EINVAL, Verb};
use bytemuck::Zeroable;
use mkey_sys::types::*;
use std::mem::{offset_of, size_of};

/// A structure that was the same in all headers.
///
/// # Safety
/// The pointer is null or points to one, unchanged for as long as the answer is used.
pub(crate) unsafe fn given<'a, T>(place: *const T) -> Verb<&'a T> {
    // SAFETY: the caller's.
    unsafe { place.as_ref() }.ok_or(EINVAL)
}

/// Writes a structure that was the same in all headers.
///
/// # Safety
/// The pointer is null or may be written to.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Verb<()> {
    if place.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: the caller's.
    unsafe { place.write(value) };
    Ok(())
}

/// The first bytes of a structure, the rest of it zeros.
///
/// # Safety
/// The pointer is null or points to so many bytes of a `T`.
unsafe fn head<T: Zeroable>(place: *const T, bytes: usize) -> Verb<T> {
    if place.is_null() {
        return Err(EINVAL);
    }
    let mut known = T::zeroed();
    // SAFETY: the caller's; whatever bytes a `T` has, `known` is one of C's structures still.
    unsafe {
        let into = (&raw mut known).cast::<u8>();
        into.copy_from_nonoverlapping(place.cast(), bytes.min(size_of::<T>()));
    }
    Ok(known)
}

/// The end of a field.
macro_rules! end_of {
    ($structure:ty, $field:ident : $ty:ty) => {
        offset_of!($structure, $field) + size_of::<$ty>()
    };
}

/// How much of a structure there is: what all headers have, and the fields whose bits are set.
fn extent(always: usize, mask: u32, fields: &[(u32, usize)]) -> usize {
    let named = fields.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, end)| *end);
    named.fold(always, usize::max)
}

/// What is known of the attributes of a queue pair.
///
/// # Safety
/// The pointer is null or points to the fields that its mask names.
pub(crate) unsafe fn qp_init(place: *const ibv_qp_init_attr_ex) -> Verb<ibv_qp_init_attr_ex> {
    type Init = ibv_qp_init_attr_ex;
    let always = end_of!(Init, comp_mask: u32);
    let fields = [
        (IBV_QP_INIT_ATTR_PD, end_of!(Init, pd: *mut ibv_pd)),
        (IBV_QP_INIT_ATTR_XRCD, end_of!(Init, xrcd: *mut ibv_xrcd)),
        (IBV_QP_INIT_ATTR_CREATE_FLAGS, end_of!(Init, create_flags: u32)),
        (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, end_of!(Init, send_ops_flags: u64)),
    ];
    // SAFETY: the caller's.
    unsafe { head(place, extent(always, head(place, always)?.comp_mask, &fields)) }
}

/// The same of a completion queue.
///
/// # Safety
/// As for [`qp_init`].
pub(crate) unsafe fn cq_init(place: *const ibv_cq_init_attr_ex) -> Verb<ibv_cq_init_attr_ex> {
    type Init = ibv_cq_init_attr_ex;
    let always = end_of!(Init, comp_mask: u32);
    let fields = [
        (IBV_CQ_INIT_ATTR_MASK_FLAGS, end_of!(Init, flags: u32)),
        (IBV_CQ_INIT_ATTR_MASK_PD, end_of!(Init, parent_domain: *mut ibv_pd)),
    ];
    // SAFETY: the caller's.
    unsafe { head(place, extent(always, head(place, always)?.comp_mask, &fields)) }
}

/// The same of a shared receive queue.
///
/// # Safety
/// As for [`qp_init`].
pub(crate) unsafe fn srq_init(place: *const ibv_srq_init_attr_ex) -> Verb<ibv_srq_init_attr_ex> {
    type Init = ibv_srq_init_attr_ex;
    let always = end_of!(Init, comp_mask: u32);
    let fields = [
        (IBV_SRQ_INIT_ATTR_TYPE, end_of!(Init, srq_type: ibv_srq_type)),
        (IBV_SRQ_INIT_ATTR_PD, end_of!(Init, pd: *mut ibv_pd)),
        (IBV_SRQ_INIT_ATTR_XRCD, end_of!(Init, xrcd: *mut ibv_xrcd)),
        (IBV_SRQ_INIT_ATTR_CQ, end_of!(Init, cq: *mut ibv_cq)),
    ];
    // SAFETY: the caller's.
    unsafe { head(place, extent(always, head(place, always)?.comp_mask, &fields)) }
}

/// The same of a parent domain. Its allocators are not looked at.
///
/// # Safety
/// As for [`qp_init`].
pub(crate) unsafe fn parent_init(
    place: *const ibv_parent_domain_init_attr,
) -> Verb<ibv_parent_domain_init_attr> {
    // SAFETY: the caller's.
    unsafe { head(place, end_of!(ibv_parent_domain_init_attr, comp_mask: u32)) }
}

/// What all headers have of a queue pair's attributes. The rate limit came later; no attribute that
/// is taken here lies behind it.
const QP_ATTR: usize = offset_of!(ibv_qp_attr, rate_limit);

/// A queue pair's attributes.
///
/// # Safety
/// The pointer is null or points to what all headers have of them.
pub(crate) unsafe fn qp_attr(place: *const ibv_qp_attr) -> Verb<ibv_qp_attr> {
    // SAFETY: the caller's.
    unsafe { head(place, QP_ATTR) }
}

/// Writes a queue pair's attributes.
///
/// # Safety
/// The pointer is null or what all headers have of them may be written there.
pub(crate) unsafe fn put_qp_attr(place: *mut ibv_qp_attr, known: &ibv_qp_attr) -> Verb<()> {
    if place.is_null() {
        return Err(EINVAL);
    }
    let bytes = (&raw const *known).cast::<u8>();
    // SAFETY: the caller's.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes, QP_ATTR) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocation of the bytes themselves: Miri and sanitizers see what is read beyond.
    fn exactly<T: Copy>(whole: &T, bytes: usize) -> Box<[u64]> {
        let mut place = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        // SAFETY: both are at least so long.
        unsafe {
            place.as_mut_ptr().cast::<u8>().copy_from((&raw const *whole).cast(), bytes);
        }
        place
    }

    #[test]
    fn what_lies_behind_the_named_fields_is_not_read() {
        let mut init = ibv_qp_init_attr_ex::zeroed();
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        init.sq_sig_all = 1;
        init.pd = std::ptr::without_provenance_mut(0x1000);
        init.send_ops_flags = u64::MAX;
        let end = end_of!(ibv_qp_init_attr_ex, pd: *mut ibv_pd);
        // The bytes behind are there, so that a read of them shows.
        // SAFETY: a whole structure.
        let known = unsafe { qp_init(&init) }.unwrap();
        assert_eq!((known.pd, known.sq_sig_all, known.send_ops_flags), (init.pd, 1, 0));
        let short = exactly(&init, end);
        // SAFETY: as much of it as its mask names.
        let known = unsafe { qp_init(short.as_ptr().cast()) }.unwrap();
        assert_eq!((known.pd, known.comp_mask), (init.pd, IBV_QP_INIT_ATTR_PD));
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        // SAFETY: a whole structure.
        assert_eq!(unsafe { qp_init(&init) }.unwrap().send_ops_flags, u64::MAX);
        // SAFETY: null.
        assert!(matches!(unsafe { qp_init(std::ptr::null()) }, Err(EINVAL)));
    }

    #[test]
    fn attributes_of_old_have_no_rate_limit() {
        assert_eq!((QP_ATTR, size_of::<ibv_qp_attr>()), (136, 144));
        let mut place = ibv_qp_attr::zeroed();
        place.rate_limit = 7;
        let mut known = ibv_qp_attr::zeroed();
        (known.qkey, known.rate_limit, known.rnr_retry) = (5, 9, 3);
        // SAFETY: a whole structure.
        unsafe { put_qp_attr(&mut place, &known) }.unwrap();
        assert_eq!((place.qkey, place.rate_limit, place.rnr_retry), (5, 7, 3));
        // SAFETY: as above.
        assert_eq!(unsafe { qp_attr(&place) }.unwrap().rate_limit, 0);
    }
}
