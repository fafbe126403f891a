//! Protection domains, parent domains, thread domains.

use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb};
use crate::context::Open;
use crate::objects::{Found, Kind, Object, Spares, of};
use crate::structs;
use mkey_core::device::{Device, PdHandle};
use mkey_sys::types::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain, or a parent domain that stands for one.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) handle: PdHandle,
    /// Parent domains on it.
    parents: AtomicU32,
    /// What a parent domain was made of.
    made_of: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    pd: &'static Object<Pd>,
    td: Option<&'static Object<Td>>,
}

/// A thread domain: a promise that only one thread at a time uses what is in it. Nothing comes of it
/// here, as queues take their locks anyway.
#[derive(Debug)]
pub(crate) struct Td {
    parents: AtomicU32,
}

static PDS: Spares<Pd> = Spares::new();
static TDS: Spares<Td> = Spares::new();

// SAFETY: `ibv_pd` begins with its context.
unsafe impl Kind for Pd {
    type Base = ibv_pd;

    fn spares() -> &'static Spares<Self> {
        &PDS
    }
}

// SAFETY: `ibv_td` begins with its context.
unsafe impl Kind for Td {
    type Base = ibv_td;

    fn spares() -> &'static Spares<Self> {
        &TDS
    }
}

/// `ibv_alloc_pd`.
pub(crate) fn alloc(open: &Arc<Open>) -> Verb<*mut ibv_pd> {
    let handle = open.device.alloc_pd()?;
    Ok(show(open, handle, None))
}

fn show(open: &Open, handle: PdHandle, made_of: Option<Parts>) -> *mut ibv_pd {
    let base = ibv_pd { context: open.base(), handle: handle.0 as u32 };
    Object::new(open.number, base, Pd { handle, parents: AtomicU32::new(0), made_of }).base()
}

/// `ibv_dealloc_pd`.
pub(crate) fn dealloc(pd: &Found<Pd>) -> Verb<()> {
    if pd.parents.load(Ordering::Acquire) > 0 {
        return Err(Errno(libc::EBUSY));
    }
    match &pd.made_of {
        None => pd.open.device.dealloc_pd(pd.handle)?,
        Some(parts) => {
            for parents in [parts.pd.own().map(|pd| &pd.parents), parts.td_parents()] {
                parents.map(|parents| parents.fetch_sub(1, Ordering::AcqRel));
            }
        }
    }
    pd.object.end();
    Ok(())
}

impl Parts {
    fn td_parents(&self) -> Option<&AtomicU32> {
        self.td.and_then(Object::own).map(|td| &td.parents)
    }
}

/// `ibv_alloc_td`.
pub(crate) fn alloc_td(open: &Arc<Open>, attr: &ibv_td_init_attr) -> Verb<*mut ibv_td> {
    if attr.comp_mask != 0 {
        return Err(EINVAL);
    }
    let base = ibv_td { context: open.base() };
    Ok(Object::new(open.number, base, Td { parents: AtomicU32::new(0) }).base())
}

/// `ibv_dealloc_td`.
pub(crate) fn dealloc_td(td: &Found<Td>) -> Verb<()> {
    if td.parents.load(Ordering::Acquire) > 0 {
        return Err(Errno(libc::EBUSY));
    }
    td.object.end();
    Ok(())
}

/// `ibv_alloc_parent_domain`. The program's allocators would be for a driver's queues in its memory,
/// which there are none of.
///
/// # Safety
/// The domains in `attr` are null or live or ended objects of libibverbs' kind.
pub(crate) unsafe fn alloc_parent(
    open: &Arc<Open>,
    attr: *const ibv_parent_domain_init_attr,
) -> Verb<*mut ibv_pd> {
    // SAFETY: the caller's.
    let attr = unsafe { structs::parent_init(attr) }?;
    let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if attr.comp_mask & !known != 0 {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: the caller's.
    let pd = unsafe { of::<Pd, _>(open, attr.pd) }?;
    let td = match attr.td.is_null() {
        true => None,
        // SAFETY: the caller's.
        false => Some(unsafe { of::<Td, _>(open, attr.td) }?.object),
    };
    let parts = Parts { pd: pd.object, td };
    pd.parents.fetch_add(1, Ordering::AcqRel);
    parts.td_parents().map(|parents| parents.fetch_add(1, Ordering::AcqRel));
    Ok(show(open, pd.handle, Some(parts)))
}
