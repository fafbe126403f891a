//! Memory windows of type 1: bound by any queue pair of their protection domain, and open to the
//! peers of all of them. What is open to one peer for one request is a [`Grant`](crate::Grant).

use crate::access::PeerAccess;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::remote::RemoteKey;
use crate::slice::Slice;
use crate::sync::lock;
use crate::work::Work;
use mkey_core::device::{MwHandle, MwKind};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{BindMw, SendOp};
use std::sync::{Arc, Mutex};

/// A memory window of type 1. It keeps the slice that it is bound to, until another binding or an
/// unbinding has completed; dropping it ends what it grants, and then lets the slice go.
#[derive(Debug)]
pub struct Mw {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    handle: MwHandle,
    state: Mutex<State>,
    pd: Pd,
}

#[derive(Debug)]
struct State {
    key: Rkey,
    bound: Option<Slice>,
    /// What a posted work request binds it to, or unbinds.
    posted: Option<Option<Slice>>,
    /// How a binding failed: nothing is certain then but that freeing it ends all.
    failed: Option<WcStatus>,
}

impl Mw {
    /// Allocates a window, unbound.
    ///
    /// # Errors
    /// `Unsupported` where the device has no type 1 windows, `TableFull`.
    pub fn new(pd: &Pd) -> Result<Self> {
        let info = pd.device().control().alloc_mw(pd.handle(), MwKind::Type1)?;
        let state = State { key: info.rkey, bound: None, posted: None, failed: None };
        let (handle, state, pd) = (info.handle, Mutex::new(state), pd.clone());
        Ok(Self { inner: Arc::new(Inner { handle, state, pd }) })
    }

    /// Binds it to exactly `slice`, instead of what it was bound to: posted on `qp`, any queue pair
    /// of the domain, before whatever is posted there later (R-MW-26). The key is the returned
    /// one from then on, and the former one is refused (R-MW-09).
    ///
    /// # Errors
    /// `RightMissing` (the region lacks `MW_BIND`, or LOCAL_WRITE for changes by the peer:
    /// R-MW-13, R-MW-14), `OtherPd`, `Argument` for an empty slice, `StillUsed` until the
    /// completion of an earlier binding has been polled, `Ended` after one that failed; as
    /// [`Qp::post`] refuses.
    pub fn bind(&self, qp: &Qp, slice: &Slice, access: PeerAccess) -> Result<RemoteKey> {
        let needs = Rights::MW_BIND | access.of_registration() & Rights::LOCAL_WRITE;
        let fail = |reason| Err(Error::new("bind_mw", format_args!("{slice:?}, {access}"), reason));
        let missing = needs - slice.rights;
        if !missing.is_empty() {
            return fail(Reason::RightMissing { missing });
        }
        if slice.pd != self.inner.pd.tag() || !qp.pd().is(&self.inner.pd) {
            return fail(Reason::OtherPd);
        }
        if slice.is_empty() {
            let allowed = "at least 1; unbinding is a method of its own";
            return fail(Reason::Argument { what: "length", value: 0, allowed });
        }
        let (length, rights) = (slice.len() as u64, access.rights());
        let key = self.post(qp, Some(slice.clone()), |key| BindMw {
            mw: key,
            new_key: key,
            mr: slice.lkey,
            address: slice.iova,
            length,
            rights,
        })?;
        Ok(RemoteKey { key, address: slice.iova, length })
    }

    /// Unbinds it, by a binding of no length (R-MW-25), posted on `qp`. The slice is let go of when
    /// its completion is polled.
    ///
    /// # Errors
    /// As [`Mw::bind`].
    pub fn unbind(&self, qp: &Qp) -> Result<()> {
        let bound = lock(&self.inner.state).bound.clone();
        let (mr, address) = bound.map(|slice| (slice.lkey, slice.iova)).unwrap_or_default();
        let rights = Rights::empty();
        self.post(qp, None, |key| BindMw {
            mw: key,
            new_key: key,
            mr,
            address,
            length: 0,
            rights,
        })?;
        Ok(())
    }

    /// Whether a binding or unbinding has not been seen to complete.
    pub fn is_pending(&self) -> bool {
        lock(&self.inner.state).posted.is_some()
    }

    fn post(
        &self,
        qp: &Qp,
        slice: Option<Slice>,
        bind: impl FnOnce(Rkey) -> BindMw,
    ) -> Result<Rkey> {
        let fail =
            |reason| Err(Error::new("bind_mw", format_args!("{:?}", self.inner.handle), reason));
        // Held over posting: what has completed is told only then.
        let mut state = lock(&self.inner.state);
        if state.failed.is_some() {
            return fail(Reason::Ended { what: "window" });
        }
        if state.posted.is_some() {
            return fail(Reason::StillUsed { what: "window" });
        }
        let op = SendOp::BindMw1(bind(state.key));
        qp.post(&[Work::of_window(op, &self.inner)]).map_err(|error| error.error)?;
        state.posted = Some(slice);
        state.key = Rkey(state.key.0.next());
        Ok(state.key)
    }
}

impl Inner {
    /// A binding has completed, or was flushed. Called without any lock of the queues held.
    pub(crate) fn completed(&self, status: WcStatus) {
        let mut state = lock(&self.state);
        let over = match state.posted.take() {
            Some(slice) if status == WcStatus::Success => {
                std::mem::replace(&mut state.bound, slice)
            }
            posted => {
                state.failed = Some(status);
                // Neither is known not to be open: both are kept until the window is freed.
                state.posted = posted;
                None
            }
        };
        drop(state);
        drop(over);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = self.pd.device();
        if let Err(error) = device.control().dealloc_mw(self.handle) {
            device.failed_drop(&error);
            let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            // Peers may have access still: memory, registration and domain stay for ever.
            std::mem::forget((state.bound.take(), state.posted.take(), self.pd.clone()));
        }
    }
}
