//! Open devices.

use crate::boundary::{Errno, Verb};
use crate::channel::Channel;
use crate::cq::Cq;
use crate::devices::Listed;
use crate::file::status;
use crate::objects::Object;
use crate::operations;
use crate::qp::Qp;
use crate::settings::settings;
use crate::srq::Srq;
use crate::xrcd::Shared;
use crate::{fork, report};
use mkey_core::device::{CqHandle, Device, PdHandle, QpHandle, SrqHandle};
use mkey_os::count_fd::CountFd;
use mkey_soft::SoftDevice;
use mkey_sys::types::*;
use std::cell::UnsafeCell;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::thread::available_parallelism;

/// A context, never freed: see [`crate::objects`].
#[repr(C)]
pub(crate) struct Context {
    verbs: UnsafeCell<verbs_context>,
    /// The number of the opening; 0: closed.
    opening: AtomicU32,
    open: RwLock<Option<Arc<Open>>>,
}

// SAFETY: `verbs` is written before the context is shown, and again only when it has been closed and
// has rested; the rest is shared by design.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for Context {}

/// An opening of a device.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: u32,
    pub(crate) listed: &'static Listed,
    pub(crate) device: Arc<SoftDevice>,
    pub(crate) events: Arc<CountFd>,
    pub(crate) context: &'static Context,
    /// What the program may pass around as the kernel's descriptor.
    _command: File,
    /// What events are about, and what is to be ended with the device.
    queues: Mutex<Queues>,
}

/// Objects by their handles, of the kinds that keep something of the system's.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) channels: HashMap<usize, &'static Object<Channel>>,
    pub(crate) cqs: HashMap<CqHandle, &'static Object<Cq>>,
    pub(crate) srqs: HashMap<SrqHandle, &'static Object<Srq>>,
    pub(crate) qps: HashMap<QpHandle, &'static Object<Qp>>,
    /// XRC domains that files stand for.
    pub(crate) domains: Vec<Shared>,
    /// What the device wants of a queue pair that has none of its own.
    pub(crate) nothing: Option<(PdHandle, CqHandle)>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("opening", &self.opening).finish_non_exhaustive()
    }
}

impl Context {
    /// The context around what C calls one.
    ///
    /// It must be one of ours; these are never freed.
    #[inline]
    pub(crate) fn of(context: *mut ibv_context) -> &'static Self {
        // SAFETY: contexts of ours are in a `Context`, whose first field is the extended context.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<Self>() }
    }

    /// The number of the opening, 0 when it is closed.
    #[inline]
    pub(crate) fn opening(&self) -> u32 {
        self.opening.load(Ordering::Acquire)
    }

    pub(crate) fn open(&self) -> Option<Arc<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same without waiting; `None` where that can not be told.
    pub(crate) fn open_unless_locked(&self) -> Option<Option<Arc<Open>>> {
        match self.open.try_read() {
            Ok(open) => Some(open.clone()),
            Err(TryLockError::Poisoned(open)) => Some(open.into_inner().clone()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What C calls the context.
    pub(crate) fn base(&self) -> *mut ibv_context {
        // SAFETY: only an address is taken.
        unsafe { &raw mut (*self.verbs.get()).context }
    }

    /// One that is closed.
    fn spare() -> &'static Self {
        // Not waited for: after `fork` nobody may be there to unlock.
        let spare = SPARES
            .try_lock()
            .ok()
            .and_then(|mut spares| if spares.len() > REST { spares.pop_front() } else { None });
        spare.unwrap_or_else(|| {
            Box::leak(Box::new(Self {
                verbs: UnsafeCell::new(bytemuck::Zeroable::zeroed()),
                opening: AtomicU32::new(0),
                open: RwLock::new(None),
            }))
        })
    }
}

static SPARES: Mutex<VecDeque<&'static Context>> = Mutex::new(VecDeque::new());
/// So many closed contexts rest before the first of them is used again.
const REST: usize = 16;

/// `ibv_open_device`.
pub(crate) fn open(listed: &'static Listed) -> Verb<*mut ibv_context> {
    let system = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
    // Before anything that may fail: from now on a forked child knows what is not its own.
    let number = fork::opening();
    let device = SoftDevice::open(settings().options(&listed.text, number))?;
    let events = device.async_fd()?;
    let command = File::open("/dev/null").map_err(system)?;
    let context = Context::spare();
    let mut verbs: verbs_context = bytemuck::Zeroable::zeroed();
    operations::fill(&mut verbs);
    verbs.context.device = listed.base();
    verbs.context.cmd_fd = command.as_raw_fd();
    verbs.context.async_fd = events.as_fd().as_raw_fd();
    verbs.context.num_comp_vectors = available_parallelism().map_or(1, |count| count.get() as i32);
    // SAFETY: it is new, or closed and has rested, so nobody reads it.
    unsafe { context.verbs.get().write(verbs) };
    let open = Arc::new(Open {
        number,
        listed,
        device,
        events,
        context,
        _command: command,
        queues: Mutex::default(),
    });
    report::opened(&open);
    *context.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open);
    context.opening.store(number, Ordering::Release);
    Ok(context.base())
}

/// `ibv_close_device`: ends all that was made of it.
pub(crate) fn close(open: &Arc<Open>) -> Verb<()> {
    let context = open.context;
    let mut place = context.open.write().unwrap_or_else(PoisonError::into_inner);
    let Some(open) = place.take() else { return Err(Errno(libc::EINVAL)) };
    // All objects of it have ended with this.
    context.opening.store(0, Ordering::Release);
    drop(place);
    report::closed(&open);
    let Queues { channels, cqs, srqs, qps, .. } = std::mem::take(&mut *open.queues());
    for channel in channels.into_values() {
        channel.own().iter().for_each(|own| own.close());
        channel.end();
    }
    cqs.into_values().for_each(Object::end);
    srqs.into_values().for_each(Object::end);
    qps.into_values().for_each(Object::end);
    drop(open);
    if let Ok(mut spares) = SPARES.try_lock() {
        spares.push_back(context);
    }
    Ok(())
}

impl Open {
    pub(crate) fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn base(&self) -> *mut ibv_context {
        self.context.base()
    }

    /// A domain and a completion queue that nothing comes to, for queue pairs that have none.
    pub(crate) fn nothing(&self) -> Verb<(PdHandle, CqHandle)> {
        let mut queues = self.queues();
        if let Some(nothing) = queues.nothing {
            return Ok(nothing);
        }
        let made = (self.device.alloc_pd()?, self.device.create_cq(1, None)?);
        queues.nothing = Some(made);
        Ok(made)
    }

    /// How many completion vectors there are.
    pub(crate) fn vectors(&self) -> i32 {
        // SAFETY: set before the context was shown, and not changed while it is open.
        unsafe { (*self.base()).num_comp_vectors }
    }
}

/// Whether a descriptor is what programs are shown as the kernel's.
pub(crate) fn is_command(fd: std::ffi::c_int) -> bool {
    status(fd).is_some_and(|shown| {
        shown.st_mode & libc::S_IFMT == libc::S_IFCHR && shown.st_rdev == libc::makedev(1, 3)
    })
}
