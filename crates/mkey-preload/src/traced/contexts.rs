//! Opened devices: the pointers of their contexts are ours from `ibv_open_device` to
//! `ibv_close_device`.

use crate::devices;
use crate::exports;
use crate::traced::queues::{self, COMPLETIONS, PAIRS, SHARED};
use crate::traced::table::{Mark, Place, Table};
use crate::traced::{build, operations, poll, post};
use mkey_sys::inline::verbs_get_ctx;
use mkey_sys::types::*;
use mkey_trace::raw::Slot;
use mkey_trace::record::Recorder;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Contexts, by their addresses and 0.
pub(super) static CONTEXTS: Table<Opened, 64> = Table::new();

/// A context.
pub(super) struct Opened {
    device: AtomicU32,
    /// Whether it is one of ours, whose objects' memory is never given back.
    soft: AtomicBool,
    /// What its pointers led to.
    ops: UnsafeCell<ibv_context_ops>,
    extended: UnsafeCell<verbs_context>,
}

// SAFETY: the pointers are written while the context is known to nobody but the thread that opens it; who
// uses a context that another thread closes breaks the verbs' own rule.
unsafe impl Sync for Opened {}

impl Default for Opened {
    fn default() -> Self {
        Self {
            device: AtomicU32::new(0),
            soft: AtomicBool::new(false),
            ops: UnsafeCell::new(bytemuck::Zeroable::zeroed()),
            extended: UnsafeCell::new(bytemuck::Zeroable::zeroed()),
        }
    }
}

impl Opened {
    #[inline]
    pub(super) fn device(&self) -> Slot {
        self.device.load(Ordering::Relaxed)
    }

    /// What the pointers of the context led to.
    #[inline]
    pub(super) fn ops(&self) -> &ibv_context_ops {
        // SAFETY: as for `Sync`.
        unsafe { &*self.ops.get() }
    }

    /// What those of the extended context led to.
    #[inline]
    pub(super) fn extended(&self) -> &verbs_context {
        // SAFETY: as for `Sync`.
        unsafe { &*self.extended.get() }
    }
}

/// What a context is known by, for an operation that is called with one of its objects.
///
/// # Safety
/// The pointer is null or points to an object of libibverbs', all of which begin with their context.
#[inline]
pub(super) unsafe fn of<T>(object: *const T) -> Option<&'static Opened> {
    // SAFETY: the caller's.
    let context = unsafe { object.cast::<*const ibv_context>().as_ref() }?;
    Some(&CONTEXTS.get(*context, 0)?.value)
}

/// Takes a pointer of C's over, or gives it back; C may call by it at the same time.
macro_rules! take {
    ($place:expr, $keep:expr, $ours:expr) => {
        $keep = $place;
        if $keep.is_some() {
            // The compiler may not tear the store of a word.
            (&raw mut $place).write_volatile(Some($ours));
        }
    };
}
pub(super) use take;

macro_rules! give_back {
    ($place:expr, $kept:expr) => {
        if $kept.is_some() {
            (&raw mut $place).write_volatile($kept);
        }
    };
}
pub(super) use give_back;

/// The pointers that are taken, with what takes their places: those of all contexts, and those of
/// extended ones, each if the library that made the context knows of it.
macro_rules! pointers {
    (all { $($op:ident = $ours:path;)* } extended { $($more:ident = $theirs:path;)* }) => {
        unsafe fn take_all(context: *mut ibv_context, opened: &Opened) {
            // SAFETY: the caller's: a context that nobody else knows yet, in memory that its maker
            // writes to as well.
            unsafe {
                let ops = &mut *opened.ops.get();
                $(take!((*context).ops.$op, ops.$op, $ours);)*
                let kept = &mut *opened.extended.get();
                *kept = bytemuck::Zeroable::zeroed();
                if let Some(extended) = verbs_get_ctx(context) {
                    $(if has(extended, offset_of!(verbs_context, $more)) {
                        take!((*extended).$more, kept.$more, $theirs);
                    })*
                }
            }
        }

        unsafe fn give_all_back(context: *mut ibv_context, opened: &Opened) {
            // SAFETY: the caller's: a context that is open still.
            unsafe {
                $(give_back!((*context).ops.$op, opened.ops().$op);)*
                if let Some(extended) = verbs_get_ctx(context) {
                    $(give_back!((*extended).$more, opened.extended().$more);)*
                }
            }
        }
    };
}

pointers! {
    all {
        post_send = post::send;
        post_recv = post::recv;
        post_srq_recv = post::srq_recv;
        poll_cq = poll::poll_cq;
        alloc_mw = operations::alloc_mw;
        bind_mw = operations::bind_mw;
        dealloc_mw = operations::dealloc_mw;
    }
    extended {
        advise_mr = operations::advise_mr;
        alloc_null_mr = operations::alloc_null_mr;
        reg_dm_mr = operations::reg_dm_mr;
        alloc_parent_domain = operations::alloc_parent_domain;
        create_cq_ex = operations::create_cq_ex;
        create_qp_ex = operations::create_qp_ex;
        create_srq_ex = operations::create_srq_ex;
        open_qp = operations::open_qp;
    }
}

/// Whether a context has the field that begins there: they grow upwards.
unsafe fn has(extended: *mut verbs_context, field: usize) -> bool {
    // SAFETY: the caller's: an extended context.
    unsafe { (*extended).sz >= size_of::<verbs_context>() - field }
}

/// A device was opened: its pointers are taken.
///
/// # Safety
/// The context is open, and nobody else knows it yet.
pub(super) unsafe fn opened(recorder: &Recorder, context: *mut ibv_context) -> Slot {
    // SAFETY: the caller's; a context has a device, and devices have names.
    let (device, name, guid) = unsafe {
        let device = (*context).device;
        let name = exports::ibv_get_device_name(device);
        let name = if name.is_null() { c"" } else { CStr::from_ptr(name) };
        (device, name, exports::ibv_get_device_guid(device))
    };
    let soft = devices::is_ours(device);
    let slot = recorder.device(context.addr() as u64, name.to_bytes(), guid, soft);
    CONTEXTS.insert(context, 0, |opened| {
        opened.device.store(slot, Ordering::Relaxed);
        opened.soft.store(soft, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { take_all(context, opened) };
    });
    slot
}

/// A device that is being closed.
pub(super) struct Closing {
    place: &'static Place<Opened>,
    mark: Mark,
    context: *mut ibv_context,
    device: Slot,
    soft: bool,
}

/// A device is about to be closed: its pointers are given back.
///
/// # Safety
/// The pointer is null or points to a context, which may have been closed if it is one of ours.
pub(super) unsafe fn closing(context: *mut ibv_context) -> Option<Closing> {
    let place = CONTEXTS.get(context, 0)?;
    let mark = place.mark();
    // SAFETY: it is open still; the caller's.
    unsafe { give_all_back(context, &place.value) };
    let (device, soft) = (place.value.device(), place.value.soft.load(Ordering::Relaxed));
    Some(Closing { place, mark, context, device, soft })
}

/// It could not be closed.
///
/// # Safety
/// As for [`closing`].
pub(super) unsafe fn open_still(closing: &Closing) {
    // SAFETY: an open context, as it was not closed.
    unsafe { take_all(closing.context, &closing.place.value) };
}

/// It was closed: its queues are followed no more. One that was opened since may have its address, and is
/// another device to the recorder; one of a forked child's may be the same device to the child's.
pub(super) fn closed(closing: &Closing) {
    let Closing { place, mark, context, device, soft } = *closing;
    for pair in PAIRS.all().filter(|pair| pair.is_with(place) && pair.value.is_of(device)) {
        if soft && pair.address() == context.addr() {
            // SAFETY: the memory of our objects is never given back.
            unsafe { build::give_back(&pair.value) };
        }
        queues::pair_ended(pair.is_own(), (pair.value.queue(), pair.value.shared()));
        pair.remove(pair.mark());
    }
    for shared in SHARED.all().filter(|shared| shared.is_with(place) && shared.value.is_of(device))
    {
        queues::end(shared.is_own(), shared.value.queue());
        shared.remove(shared.mark());
    }
    for polled in
        COMPLETIONS.all().filter(|polled| polled.is_with(place) && polled.value.is_of(device))
    {
        if soft {
            // SAFETY: as above.
            unsafe { poll::give_back(&polled.value) };
        }
        polled.remove(polled.mark());
    }
    place.remove(mark);
}
