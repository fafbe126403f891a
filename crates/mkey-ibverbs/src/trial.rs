//! What a device can do, tried.
//!
//! Each trial makes an object and ends it again; none leaves anything behind, and none sends
//! anything. What can not be tried without a second party or a special file is said to be untried.

use crate::advice;
use crate::attributes::limit;
use crate::context::Context;
use crate::failure::{create, not_offered};
use crate::fast_mr;
use mkey_core::device::Capability;
use mkey_core::rights::Rights;
use mkey_os::mapping::{Mapping, PageKind};
use mkey_sys::inline;
use mkey_sys::types::*;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;

/// What came of trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It was done and undone.
    Works,
    /// The device, its driver or the kernel refused.
    Refused {
        /// The errno.
        errno: i32,
    },
    /// Not tried, and why.
    Untried(&'static str),
}

impl Trial {
    /// Whether it was done.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    /// Whether a program may count on it: it was done, or was not tried and the device `says` so,
    /// or failed for want of room, which says nothing about the device.
    pub(crate) fn or_says(&self, says: bool) -> bool {
        match *self {
            Self::Works => true,
            Self::Refused { .. } => says && self.wants_room(),
            Self::Untried(_) => says,
        }
    }

    /// Whether it failed for want of room.
    fn wants_room(&self) -> bool {
        matches!(self, Self::Refused { errno: libc::ENOMEM | libc::EAGAIN | libc::EPERM })
    }

    fn of<T>(answer: &Result<T, i32>) -> Self {
        match *answer {
            Ok(_) => Self::Works,
            Err(errno) => Self::Refused { errno },
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Works => f.write_str("tried, works"),
            Self::Refused { errno } if not_offered(errno) => f.write_str("tried, not offered"),
            Self::Refused { errno } => {
                write!(f, "tried, refused: {}", io::Error::from_raw_os_error(errno))
            }
            Self::Untried(why) => write!(f, "not tried: {why}"),
        }
    }
}

/// What a device can do, tried one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// A pinned memory region.
    pub mr: Trial,
    /// One whose addresses count from 0.
    pub zero_based: Trial,
    /// Changing the rights of one.
    pub rereg: Trial,
    /// A memory window of type 1.
    pub window1: Trial,
    /// A memory window of type 2.
    pub window2: Trial,
    /// An on-demand region of a range.
    pub on_demand: Trial,
    /// The on-demand region of the whole address space.
    pub on_demand_implicit: Trial,
    /// Advice on an on-demand region.
    pub advise: Trial,
    /// The null memory region.
    pub null_mr: Trial,
    /// Registration of a dma-buf.
    pub dma_buf: Trial,
    /// A memory region that peers may flush.
    pub flush: Trial,
    /// A memory key written by work requests.
    pub fast_mr: Trial,
    /// A shared receive queue.
    pub srq: Trial,
    /// A reliable connected queue pair.
    pub rc: Trial,
    /// An unreliable connected queue pair.
    pub uc: Trial,
    /// A queue pair for datagrams.
    pub ud: Trial,
    /// Bytes of inline data that a reliable connected queue pair takes.
    pub max_inline: u32,
}

/// What there is to try with. Its fields end in this order.
struct Bench<'a> {
    context: &'a Context,
    pd: NonNull<ibv_pd>,
    page: Mapping,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing that was made on it is left.
        let _ = unsafe { self.context.verbs.ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// Tries everything. What nothing can be tried without is refused for all.
pub(crate) fn try_all(context: &Context, attr: &ibv_device_attr_ex) -> Tried {
    match bench(context) {
        Ok(bench) => bench.all(attr),
        Err(errno) => Tried::refused(errno),
    }
}

fn bench(context: &Context) -> Result<Bench<'_>, i32> {
    let size = mkey_os::limits::page_size();
    let page = Mapping::new(size, PageKind::Base).map_err(|error| error.errno.raw_os_error())?;
    // SAFETY: the device is open.
    let pd = create(|| unsafe { context.verbs.ibv_alloc_pd(context.raw()) })?;
    Ok(Bench { context, pd, page })
}

impl Tried {
    fn refused(errno: i32) -> Self {
        let no = || Trial::Refused { errno };
        Self {
            mr: no(),
            zero_based: no(),
            rereg: no(),
            window1: no(),
            window2: no(),
            on_demand: no(),
            on_demand_implicit: no(),
            advise: no(),
            null_mr: no(),
            dma_buf: no(),
            flush: no(),
            fast_mr: no(),
            srq: no(),
            rc: no(),
            uc: no(),
            ud: no(),
            max_inline: 0,
        }
    }

    fn each(&mut self) -> [&mut Trial; 16] {
        [
            &mut self.mr,
            &mut self.zero_based,
            &mut self.rereg,
            &mut self.window1,
            &mut self.window2,
            &mut self.on_demand,
            &mut self.on_demand_implicit,
            &mut self.advise,
            &mut self.null_mr,
            &mut self.dma_buf,
            &mut self.flush,
            &mut self.fast_mr,
            &mut self.srq,
            &mut self.rc,
            &mut self.uc,
            &mut self.ud,
        ]
    }

    /// Whether trying again would show no more.
    pub(crate) fn is_settled(&self) -> bool {
        let mut all = self.clone();
        all.each().iter().all(|trial| !trial.wants_room())
    }

    /// This, where it showed something, and else what a `later` trial did.
    pub(crate) fn settled_by(mut self, mut later: Self) -> Self {
        self.max_inline = self.max_inline.max(later.max_inline);
        for (trial, later) in self.each().into_iter().zip(later.each()) {
            if trial.wants_room() || matches!(trial, Trial::Untried(_)) {
                *trial = later.clone();
            }
        }
        self
    }

    /// What came of trying `capability`, where it is tried by itself.
    pub fn of(&self, capability: Capability) -> Option<&Trial> {
        Some(match capability {
            Capability::Window1 => &self.window1,
            Capability::Window2 => &self.window2,
            Capability::FastMr => &self.fast_mr,
            Capability::OnDemand => &self.on_demand,
            Capability::OnDemandImplicit => &self.on_demand_implicit,
            Capability::Advise => &self.advise,
            Capability::NullMr => &self.null_mr,
            Capability::Rereg => &self.rereg,
            Capability::Srq => &self.srq,
            Capability::ZeroBased => &self.zero_based,
            Capability::DmaBuf => &self.dma_buf,
            Capability::Flush => &self.flush,
            _ => return None,
        })
    }
}

impl Bench<'_> {
    fn all(&self, attr: &ibv_device_attr_ex) -> Tried {
        let (rc, max_inline) = self.queue_pairs(IBV_QPT_RC);
        let on_demand = self.region(Rights::LOCAL_WRITE | Rights::ON_DEMAND, |_| Ok(()));
        let advise = match on_demand {
            Trial::Works => {
                self.region(Rights::LOCAL_WRITE | Rights::ON_DEMAND, |mr| self.advise(mr))
            }
            _ => Trial::Untried("there is no on-demand memory to advise on"),
        };
        Tried {
            mr: self.region(Rights::LOCAL_WRITE, |_| Ok(())),
            zero_based: self.zero_based(),
            rereg: self.region(Rights::LOCAL_WRITE, |mr| self.rereg(mr)),
            window1: self.window(IBV_MW_TYPE_1),
            window2: self.window(IBV_MW_TYPE_2),
            on_demand,
            on_demand_implicit: self.implicit(attr),
            advise,
            null_mr: self.null_region(),
            dma_buf: self.dma_buf(),
            flush: self.region(Rights::LOCAL_WRITE | Rights::FLUSH_GLOBAL, |_| Ok(())),
            fast_mr: self.fast_mr(),
            srq: self.shared_queue(attr),
            rc,
            uc: self.queue_pairs(IBV_QPT_UC).0,
            ud: self.queue_pairs(IBV_QPT_UD).0,
            max_inline,
        }
    }

    /// Registers the page, does something with the region, and deregisters it.
    fn region(
        &self,
        rights: Rights,
        then: impl FnOnce(NonNull<ibv_mr>) -> Result<(), i32>,
    ) -> Trial {
        let (pd, verbs) = (self.pd.as_ptr(), self.context.verbs);
        let (address, length) = (self.page.as_ptr().cast(), self.page.len());
        // SAFETY: the domain is live, and the page is longer than the region.
        let mr =
            create(|| unsafe { inline::ibv_reg_mr(verbs, pd, address, length, rights.bits()) });
        self.ended(mr, then)
    }

    fn ended(
        &self,
        mr: Result<NonNull<ibv_mr>, i32>,
        then: impl FnOnce(NonNull<ibv_mr>) -> Result<(), i32>,
    ) -> Trial {
        let answer = mr.and_then(|mr| {
            let done = then(mr);
            // SAFETY: made above, or by the caller for this, and ended once.
            let _ = unsafe { self.context.verbs.ibv_dereg_mr(mr.as_ptr()) };
            done
        });
        Trial::of(&answer)
    }

    fn zero_based(&self) -> Trial {
        let (pd, verbs) = (self.pd.as_ptr(), self.context.verbs);
        let (address, length) = (self.page.as_ptr().cast(), self.page.len());
        let access = Rights::LOCAL_WRITE.bits();
        let mr = create(|| {
            // SAFETY: as in `region`.
            let made = unsafe { inline::ibv_reg_mr_iova(verbs, pd, address, length, 0, access) };
            made.unwrap_or_else(|_| unsupported())
        });
        self.ended(mr, |_| Ok(()))
    }

    fn rereg(&self, mr: NonNull<ibv_mr>) -> Result<(), i32> {
        let access = (Rights::LOCAL_WRITE | Rights::REMOTE_READ).bits().cast_signed();
        let (pd, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        let flags = IBV_REREG_MR_CHANGE_ACCESS;
        // SAFETY: a live region, of which only the rights change.
        match unsafe { self.context.verbs.ibv_rereg_mr(mr.as_ptr(), flags, pd, none, 0, access) } {
            0 => Ok(()),
            _ => Err(crate::failure::last_errno()),
        }
    }

    fn advise(&self, mr: NonNull<ibv_mr>) -> Result<(), i32> {
        // SAFETY: a live region.
        let lkey = unsafe { mr.as_ref().lkey };
        let range = ibv_sge { addr: self.page.as_ptr().addr() as u64, length: 1, lkey };
        let (advice, flags) = (IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH);
        // SAFETY: the domain is live.
        unsafe { advice::advise(self.context, self.pd.as_ptr(), advice, flags, &mut [range]) }
    }

    fn window(&self, kind: ibv_mw_type) -> Trial {
        // SAFETY: the domain is live.
        let mw = create(|| unsafe { inline::ibv_alloc_mw(self.pd.as_ptr(), kind) });
        if let Ok(mw) = mw {
            // SAFETY: made above, and ended once.
            let _ = unsafe { inline::ibv_dealloc_mw(mw.as_ptr()) };
        }
        Trial::of(&mw)
    }

    fn implicit(&self, attr: &ibv_device_attr_ex) -> Trial {
        if attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT == 0 {
            // It would open the whole address space for a moment.
            return Trial::Untried("the device does not say that it has it");
        }
        let (pd, verbs) = (self.pd.as_ptr(), self.context.verbs);
        let access = (Rights::LOCAL_WRITE | Rights::ON_DEMAND).bits();
        let (address, length) = (std::ptr::null_mut(), usize::MAX);
        // SAFETY: the domain is live; the region has no peers, and no work names it.
        let mr = create(|| unsafe { inline::ibv_reg_mr(verbs, pd, address, length, access) });
        self.ended(mr, |_| Ok(()))
    }

    fn null_region(&self) -> Trial {
        // SAFETY: the domain is live.
        let mr = create(|| unsafe { inline::ibv_alloc_null_mr(self.pd.as_ptr()) });
        self.ended(mr, |_| Ok(()))
    }

    /// Without a dma-buf it is told by the answer to a descriptor that is none: a device that takes
    /// dma-bufs looks at it.
    fn dma_buf(&self) -> Trial {
        const NONE: c_int = -1;
        let Ok(reg_dmabuf) = self.context.verbs.ibv_reg_dmabuf_mr() else {
            return Trial::Refused { errno: libc::EOPNOTSUPP };
        };
        let (pd, length) = (self.pd.as_ptr(), self.page.len());
        // SAFETY: the domain is live.
        let mr = create(|| unsafe { reg_dmabuf(pd, 0, length, 0, NONE, 0) });
        match mr {
            Err(libc::EBADF) => Trial::Works,
            mr => self.ended(mr, |_| Ok(())),
        }
    }

    fn fast_mr(&self) -> Trial {
        let Some(mlx5) = self.context.mlx5 else {
            return Trial::Refused { errno: libc::EOPNOTSUPP };
        };
        let key = fast_mr::Mkey::create(mlx5, self.pd.as_ptr(), 1);
        if let Ok(key) = &key {
            let _ = key.destroy();
        }
        Trial::of(&key)
    }

    fn shared_queue(&self, attr: &ibv_device_attr_ex) -> Trial {
        let mut init: ibv_srq_init_attr = bytemuck::Zeroable::zeroed();
        (init.attr.max_wr, init.attr.max_sge) = (1, 1.min(limit(attr.orig_attr.max_srq_sge)));
        let verbs = self.context.verbs;
        // SAFETY: the domain is live, and the attributes are ours.
        let srq = create(|| unsafe { verbs.ibv_create_srq(self.pd.as_ptr(), &raw mut init) });
        if let Ok(srq) = srq {
            // SAFETY: made above, and ended once.
            let _ = unsafe { verbs.ibv_destroy_srq(srq.as_ptr()) };
        }
        Trial::of(&srq)
    }

    /// Whether a queue pair of this type can be made, and the most inline data that one was made
    /// with.
    fn queue_pairs(&self, kind: ibv_qp_type) -> (Trial, u32) {
        let (verbs, context) = (self.context.verbs, self.context.raw());
        let (none, channel) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the device is open.
        let cq = match create(|| unsafe { verbs.ibv_create_cq(context, 1, none, channel, 0) }) {
            Ok(cq) => cq,
            Err(errno) => return (Trial::Refused { errno }, 0),
        };
        let mut answer = (Trial::Untried("no size of inline data was tried"), 0);
        for inline in [8192, 4096, 2048, 1024, 512, 256, 128, 64, 0] {
            let mut init: ibv_qp_init_attr = bytemuck::Zeroable::zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (cq.as_ptr(), cq.as_ptr(), kind);
            (init.cap.max_send_wr, init.cap.max_recv_wr) = (1, 1);
            (init.cap.max_send_sge, init.cap.max_recv_sge) = (1, 1);
            init.cap.max_inline_data = inline;
            // SAFETY: the domain and the queue are live, and the attributes are ours.
            let qp = create(|| unsafe { verbs.ibv_create_qp(self.pd.as_ptr(), &raw mut init) });
            answer = (Trial::of(&qp), init.cap.max_inline_data);
            if let Ok(qp) = qp {
                // SAFETY: made above, and ended once.
                let _ = unsafe { verbs.ibv_destroy_qp(qp.as_ptr()) };
                break;
            }
        }
        // SAFETY: made above, and ended once, after the queue pairs on it.
        let _ = unsafe { verbs.ibv_destroy_cq(cq.as_ptr()) };
        answer
    }
}

/// What a function that a library lacks would answer.
pub(crate) fn unsupported<T>() -> *mut T {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_room_says_nothing_about_the_device() {
        assert!(Trial::Works.or_says(false));
        assert!(Trial::Refused { errno: libc::ENOMEM }.or_says(true));
        assert!(!Trial::Refused { errno: libc::ENOMEM }.or_says(false));
        assert!(!Trial::Refused { errno: libc::EOPNOTSUPP }.or_says(true));
        assert!(Trial::Untried("").or_says(true) && !Trial::Untried("").or_says(false));
    }
}
