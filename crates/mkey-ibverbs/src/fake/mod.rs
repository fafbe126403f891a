//! A libibverbs and a libmlx5 made up for tests: what they answer is scripted, what they are asked
//! is noted. They hold the code above them to its order: what is in use is not destroyed.

mod library;
mod tests;

use crate::device::IbvDevice;
use mkey_sys::types::*;
use mkey_sys::{Mlx5, Verbs};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_char, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a device is scripted to answer, and what it was asked.
pub(super) struct Script {
    /// Errnos that the next calls of a verb answer; then it works.
    pub(super) fails: HashMap<&'static str, VecDeque<i32>>,
    /// Asynchronous events to come, one byte in the pipe for each.
    pub(super) events: VecDeque<ibv_async_event>,
    /// Completions to come.
    pub(super) completions: VecDeque<ibv_wc>,
    /// Posted work is done at once; else it never is.
    pub(super) completes: bool,
    /// A refused post says which request it was.
    pub(super) names_bad: bool,
    /// The one key that advice does not know; without one there is no advice.
    pub(super) unknown_lkey: Option<u32>,
    /// Verbs and work requests, in order.
    pub(super) log: Vec<String>,
    /// Objects that are not destroyed.
    pub(super) live: i32,
    pub(super) attr: ibv_device_attr,
    pub(super) pipe: [OwnedFd; 2],
    pub(super) next_key: u32,
}

/// A device; libibverbs' part comes first, so that a pointer to it is one to the whole.
#[repr(C)]
pub(super) struct FakeDevice {
    pub(super) device: ibv_device,
    pub(super) script: Mutex<Script>,
}

static DEVICES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl FakeDevice {
    /// A device that is listed from now on, for the rest of the program. Its name begins so.
    pub(super) fn plug_in(kind: &str) -> &'static Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{kind}_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut device: ibv_device = bytemuck::Zeroable::zeroed();
        for (to, from) in device.name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        // What the kernel had of a device that was pulled out.
        let folder = if kind == "pulled" { "/sys/class/infiniband_verbs/pulled" } else { "" };
        for (to, from) in device.dev_path.iter_mut().zip(folder.bytes()) {
            *to = from as c_char;
        }
        let mut attr: ibv_device_attr = bytemuck::Zeroable::zeroed();
        (attr.max_mr, attr.max_mr_size, attr.max_pd, attr.max_qp_wr) = (1000, 1 << 40, 10, 16);
        (attr.max_sge, attr.max_cqe, attr.page_size_cap) = (4, 64, 0x1000);
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors, which are ours alone.
        let pipe = unsafe {
            assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
            fds.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let script = Script {
            fails: HashMap::new(),
            events: VecDeque::new(),
            completions: VecDeque::new(),
            completes: true,
            names_bad: true,
            unknown_lkey: None,
            log: Vec::new(),
            live: 0,
            attr,
            pipe,
            next_key: 1,
        };
        let device: &'static Self =
            Box::leak(Box::new(Self { device, script: Mutex::new(script) }));
        let listed = (&raw const device.device).expose_provenance();
        DEVICES.lock().unwrap_or_else(PoisonError::into_inner).push(listed);
        device
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens it by the libraries of this module.
    pub(super) fn open(&self) -> Arc<IbvDevice> {
        let (verbs, mlx5) = libraries();
        self.open_by(verbs, Ok(mlx5))
    }

    /// Opens it without libmlx5, for this reason.
    pub(super) fn open_plain(&self, why: &str) -> Arc<IbvDevice> {
        self.open_by(libraries().0, Err(why.to_owned()))
    }

    fn open_by(
        &self,
        verbs: &'static Verbs,
        mlx5: Result<&'static Mlx5, String>,
    ) -> Arc<IbvDevice> {
        let name = mkey_sys::devices::text(&self.device.name);
        IbvDevice::open_by(verbs, mlx5, &name).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Lets the next calls of a verb fail.
    pub(super) fn fail(&self, verb: &'static str, errnos: &[i32]) {
        self.script().fails.entry(verb).or_default().extend(errnos);
    }

    /// Sends an asynchronous event.
    pub(super) fn send(&self, event: ibv_event_type) {
        use std::os::fd::AsRawFd;
        let mut script = self.script();
        let element = ibv_async_event_element { port_num: 1 };
        script.events.push_back(ibv_async_event { element, event_type: event });
        // SAFETY: one byte that is there.
        assert_eq!(unsafe { libc::write(script.pipe[1].as_raw_fd(), [0u8].as_ptr().cast(), 1) }, 1);
    }

    /// Completes with an error what never was done.
    pub(super) fn complete(&self, wr_id: u64, status: ibv_wc_status) {
        let mut wc: ibv_wc = bytemuck::Zeroable::zeroed();
        (wc.wr_id, wc.status) = (wr_id, status);
        self.script().completions.push_back(wc);
    }
}

/// The libraries of this module, loaded.
pub(super) fn libraries() -> (&'static Verbs, &'static Mlx5) {
    let find = |name: &str, _: &str| -> *mut c_void { library::find(name) };
    // SAFETY: what is found has the types of the headers, for as long as the program runs.
    unsafe {
        let verbs = Verbs::from_symbols(Path::new("made up"), find);
        let mlx5 = Mlx5::from_symbols(Path::new("made up"), find);
        let verbs = Box::leak(Box::new(verbs.unwrap_or_else(|error| panic!("{error}"))));
        (verbs, Box::leak(Box::new(mlx5.unwrap_or_else(|error| panic!("{error}")))))
    }
}

/// Whether a thread of this process sleeps; one that has ended does not.
pub(crate) fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let state = stat.unwrap_or_default();
    state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}
