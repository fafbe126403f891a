//! A real device as a subject: both sides are queue pairs of one device, time is the machine's.

use crate::deviations::{self, Deviation};
use crate::fixture::Subject;
use mkey_core::device::Device;
use mkey_ibverbs::IbvDevice;
use mkey_os::kernel::version;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Opens a device of this machine anew for each test, since events come to whoever opened it.
///
/// The tests that limit pinned memory limit this whole process for the while: with others beside
/// them they, and these, show nothing. So tests over it run one after the other, as root.
#[derive(Clone, Debug)]
pub struct Ibverbs {
    name: String,
    driver: Arc<OnceLock<String>>,
}

/// Whether the process is limited, by a test that is over.
static LIMITED: AtomicBool = AtomicBool::new(false);

impl Ibverbs {
    /// The device of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), driver: Arc::default() }
    }

    /// The kernel's driver of it, which is what deviations are known by.
    pub fn driver(&self) -> &str {
        self.driver.get_or_init(|| self.device().capabilities().driver.clone())
    }

    /// The kernel of this machine, as `uname -r` says.
    pub fn kernel(&self) -> String {
        rustix::system::uname().release().to_string_lossy().into_owned()
    }

    /// What the page of results calls it: its driver, and the kernel that it is in.
    pub fn about(&self) -> String {
        format!("{}, Linux {}", self.driver(), self.kernel())
    }

    #[track_caller]
    fn device(&self) -> Arc<IbvDevice> {
        IbvDevice::open(&self.name).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Subject for Ibverbs {
    type Device = IbvDevice;

    fn open(&self) -> (Arc<IbvDevice>, Arc<IbvDevice>) {
        if LIMITED.swap(false, Ordering::Relaxed) {
            limit(hard(), true);
        }
        let device = self.device();
        (Arc::clone(&device), device)
    }

    fn open_limited(&self, memlock: u64) -> Arc<IbvDevice> {
        let device = self.device();
        hard();
        LIMITED.store(true, Ordering::Relaxed);
        limit(Some(memlock), false);
        device
    }

    fn deviations(&self) -> Vec<&'static Deviation> {
        version(&self.kernel())
            .map(|kernel| deviations::of(self.driver(), kernel))
            .unwrap_or_default()
    }

    /// Timers of the tests are of milliseconds; what a machine is busy with beside them is not.
    fn limit(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// A machine that is busy does not answer within a millisecond: 537 ms.
    fn timeout(&self, asked: u8) -> u8 {
        if asked == 0 { 0 } else { asked.max(17) }
    }

    fn pass(&self, _: &IbvDevice, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The limit as it was when it was first asked for.
fn hard() -> Option<u64> {
    static FIRST: OnceLock<Option<u64>> = OnceLock::new();
    *FIRST.get_or_init(|| getrlimit(Resource::Memlock).current)
}

/// Sets how much may be pinned, by a thread with or without the privilege to pin more.
#[track_caller]
fn limit(memlock: Option<u64>, ipc_lock: bool) {
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: memlock, maximum }).expect("setrlimit");
    let mut sets = capabilities(None).expect("capget");
    sets.effective.set(CapabilitySet::IPC_LOCK, ipc_lock);
    sets.effective &= sets.permitted;
    set_capabilities(None, sets).expect("capset");
}
