//! Fast registration on mlx5: memory keys whose scatter list is written by UMR work requests.
//!
//! Not run on hardware. The rules are those of the manual pages `mlx5dv_create_mkey` and
//! `mlx5dv_wr_post`; that they are kept is tested over a stand-in for libmlx5.
//!
//! Such a key counts from 0: its `iova` is 0. Its variant may be changed by the work request that
//! writes it. A device whose keys keep theirs has no fast registration: a key that was invalidated
//! would come back with the next registration.

use crate::context::Context;
use crate::failure::{create, errno_of, not_offered};
use mkey_core::device::Capability;
use mkey_core::error::Reason;
use mkey_core::refusal::ManageRefusal;
use mkey_core::rights::Rights;
use mkey_core::work::{RegMr, SendFlags};
use mkey_sys::mlx5dv::*;
use mkey_sys::types::*;
use mkey_sys::{Mlx5, NotOffered, inline};
use smallvec::SmallVec;
use std::ffi::c_int;
use std::ptr::NonNull;

/// Entries of a scatter list: what fits into a work request beside its other parts.
pub(crate) const MOST_ENTRIES: u32 = 16;
/// Inline bytes that a queue pair is made with, so that its work requests hold such a list: what a
/// UMR work request has before the list, and the list.
const INLINE: u32 = 112 + MOST_ENTRIES * size_of::<ibv_sge>() as u32;

/// The rights that `mlx5dv_wr_mr_list` takes.
const RIGHTS: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC);

/// A memory key of mlx5.
#[derive(Debug)]
pub(crate) struct Mkey {
    /// What it was made by.
    mlx5: &'static Mlx5,
    key: NonNull<mlx5dv_mkey>,
    most: u16,
}

impl Mkey {
    /// Makes a key that points to nothing.
    pub(crate) fn create(mlx5: &'static Mlx5, pd: *mut ibv_pd, most: u16) -> Result<Self, i32> {
        let make = |create_flags| {
            let mut attr = mlx5dv_mkey_init_attr { pd, create_flags, max_entries: most };
            // SAFETY: the domain is live, by the caller, and the attributes are ours.
            create(|| unsafe { mlx5.mlx5dv_create_mkey(&raw mut attr) })
        };
        let wish = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG;
        let made = match make(wish | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE) {
            // Without it peers can not end a registration.
            Err(errno) if not_offered(errno) => make(wish),
            made => made,
        };
        made.map(|key| Self { mlx5, key, most })
    }

    /// Destroys the key; the errno if it is refused and lives on.
    pub(crate) fn destroy(&self) -> Result<(), i32> {
        // SAFETY: a live key: it is taken out of its table before it is destroyed.
        match unsafe { self.mlx5.mlx5dv_destroy_mkey(self.key.as_ptr()) } {
            0 => Ok(()),
            errno => Err(errno_of(errno)),
        }
    }

    /// Its keys, local and remote.
    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: a live key. It is written only by posts, with the table of regions locked.
        unsafe { ((*self.key.as_ptr()).lkey, (*self.key.as_ptr()).rkey) }
    }
}

/// A queue pair that takes UMR work requests.
#[derive(Debug)]
pub(crate) struct Umr {
    plain: NonNull<ibv_qp_ex>,
    special: NonNull<mlx5dv_qp_ex>,
}

// SAFETY: other views of a queue pair, used only as that queue pair is used.
unsafe impl Send for Umr {}
// SAFETY: as above.
unsafe impl Sync for Umr {}

impl Umr {
    /// Makes a reliable connected queue pair that takes UMR work requests, and says its sizes in
    /// `init`; `None` where it can not be had, so that a plain one is made.
    pub(crate) fn create_qp(
        context: &Context,
        pd: *mut ibv_pd,
        init: &mut ibv_qp_init_attr,
    ) -> Option<(NonNull<ibv_qp>, Self)> {
        let mlx5 = context.mlx5?;
        let to_ex = context.verbs.ibv_qp_to_qp_ex().ok()?;
        let mut attr: ibv_qp_init_attr_ex = bytemuck::Zeroable::zeroed();
        (attr.qp_context, attr.qp_type, attr.sq_sig_all) =
            (init.qp_context, init.qp_type, init.sq_sig_all);
        (attr.send_cq, attr.recv_cq, attr.srq, attr.pd) =
            (init.send_cq, init.recv_cq, init.srq, pd);
        attr.cap = init.cap;
        attr.cap.max_inline_data = init.cap.max_inline_data.max(INLINE);
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_LOCAL_INV;
        let mut special: mlx5dv_qp_init_attr = bytemuck::Zeroable::zeroed();
        special.comp_mask =
            MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        // Small answers in the completion itself would pass by the key.
        special.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
        special.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST;
        // SAFETY: the device is open and what the attributes name is live, by the caller.
        let qp = create(|| unsafe {
            mlx5.mlx5dv_create_qp(context.raw(), &raw mut attr, &raw mut special)
        });
        let qp = qp.ok()?;
        // SAFETY: the queue pair is live, and these are views of it.
        let views = unsafe {
            NonNull::new(to_ex(qp.as_ptr())).and_then(|plain| {
                let special = NonNull::new(mlx5.mlx5dv_qp_ex_from_ibv_qp_ex(plain.as_ptr()))?;
                Some(Self { plain, special })
            })
        };
        let Some(views) = views else {
            // SAFETY: made above, and ended once.
            let _ = unsafe { context.verbs.ibv_destroy_qp(qp.as_ptr()) };
            return None;
        };
        // What was not asked for is not promised: the list needs it.
        let asked = init.cap.max_inline_data;
        init.cap = attr.cap;
        init.cap.max_inline_data = attr.cap.max_inline_data.min(asked);
        Some((qp, views))
    }

    /// Posts one fast registration; what the device answered. The caller uses the queue pair alone
    /// and has the table of regions locked.
    pub(crate) fn post(
        &self,
        wr_id: u64,
        flags: SendFlags,
        key: &Mkey,
        reg: &RegMr<'_>,
    ) -> Result<c_int, Reason> {
        let given = reg.entries.len();
        let Some(count) = u16::try_from(given).ok().filter(|count| (1..=key.most).contains(count))
        else {
            let most = u32::from(key.most);
            return Err(Reason::Refused(ManageRefusal::Entries { given, most }));
        };
        if reg.iova.0 != 0 {
            let (what, value) = ("iova", reg.iova.0);
            let allowed = "0: such a key counts from 0 on this device";
            return Err(Reason::Argument { what, value, allowed });
        }
        reg.rights.validate()?;
        // A device drops the optional ones that it does not know (R-REG-03).
        let rights = reg.rights - Rights::from_bits_truncate(Rights::OPTIONAL_BITS);
        if !RIGHTS.contains(rights) {
            return Err(Reason::UnfitRights { rights: rights - RIGHTS });
        }
        let entry = |sge: &mkey_core::work::Sge| ibv_sge {
            addr: sge.address.0,
            length: sge.length,
            lkey: sge.lkey.0.0,
        };
        let mut entries: SmallVec<[ibv_sge; MOST_ENTRIES as usize]> =
            reg.entries.iter().map(entry).collect();
        // SAFETY: a live key and a live queue pair, used alone; the list is copied by the call.
        let answer = unsafe {
            (*key.key.as_ptr()).lkey = reg.key.0;
            (*key.key.as_ptr()).rkey = reg.key.0;
            let (plain, special) = (self.plain.as_ptr(), self.special.as_ptr());
            let built = (|| {
                inline::ibv_wr_start(plain)?;
                (*plain).wr_id = wr_id;
                (*plain).wr_flags = flags.bits() | IBV_SEND_INLINE;
                let (key, rights) = (key.key.as_ptr(), rights.bits());
                let built = mlx5dv_wr_mr_list(special, key, rights, count, entries.as_mut_ptr());
                if built.is_err() {
                    // What was begun holds the queue's lock.
                    inline::ibv_wr_abort(plain)?;
                }
                built
            })();
            built.map(|()| inline::ibv_wr_complete(plain))
        };
        answer.map_err(|NotOffered { .. }| Reason::Unsupported { capability: Capability::FastMr })
    }
}
