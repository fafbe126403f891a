//! Waiting for completions: one channel and one sleeping thread per device, whatever the number of
//! completion queues, and started by the first that waits. Blocking and async waiters alike are
//! woken by it, so that no async runtime is asked for.

use crate::sync::lock;
use event_listener::Event;
use mkey_core::device::{ChannelHandle, CqHandle, Device};
use mkey_core::error::{Error, Reason, Result};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

/// The completion events of a device.
pub(crate) struct Events {
    device: Arc<dyn Device>,
    channel: Once<ChannelHandle>,
    thread: Once<()>,
    waiters: Arc<Waiters>,
}

/// Made once; one that could not be made is tried again.
struct Once<T> {
    made: OnceLock<T>,
    making: Mutex<()>,
}

impl<T: Copy> Once<T> {
    fn new() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(()) }
    }

    fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(made) = self.made.get() {
            return Ok(*made);
        }
        let _making = lock(&self.making);
        match self.made.get() {
            Some(made) => Ok(*made),
            None => make().map(|made| *self.made.get_or_init(|| made)),
        }
    }
}

type Waiters = Mutex<HashMap<CqHandle, Arc<Event>>>;

impl Events {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        let (channel, thread) = (Once::new(), Once::new());
        Self { device, channel, thread, waiters: Arc::default() }
    }

    /// The channel, to create completion queues on.
    pub(crate) fn channel(&self) -> Result<ChannelHandle> {
        self.channel.get_or_make(|| self.device.create_comp_channel())
    }

    /// The event of a completion queue on the channel.
    pub(crate) fn join(&self, cq: CqHandle) -> Arc<Event> {
        let event = Arc::new(Event::new());
        lock(&self.waiters).insert(cq, event.clone());
        event
    }

    pub(crate) fn leave(&self, cq: CqHandle) {
        lock(&self.waiters).remove(&cq);
    }

    /// Has events delivered from now on.
    pub(crate) fn start(&self) -> Result<()> {
        let channel = self.channel()?;
        let spawn = || {
            let (device, waiters) = (self.device.clone(), self.waiters.clone());
            let thread = std::thread::Builder::new().name("mkey events".to_owned());
            let spawned = thread.spawn(move || deliver(&*device, channel, &waiters));
            spawned.map(drop).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(0);
                Error::new("wait", "completion events", Reason::System { call: "clone", errno })
            })
        };
        self.thread.get_or_make(spawn)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.made.get() {
            // Ends the thread's wait. All completion queues are gone: each holds the device.
            let _ = self.device.destroy_comp_channel(*channel);
        }
    }
}

fn deliver(device: &dyn Device, channel: ChannelHandle, waiters: &Waiters) {
    // Without a limit it returns with an event, or with an error once the channel is gone.
    while let Ok(event) = device.get_cq_event(channel, None) {
        let waiting = event.and_then(|cq| lock(waiters).get(&cq).cloned());
        if let Some(waiting) = waiting {
            // A waker of the program's that panics stops no other queue's waiters.
            let _ = catch_unwind(AssertUnwindSafe(|| waiting.notify(usize::MAX)));
        }
    }
    // No events come any more: of a device that is gone polling tells that.
    let waiting: Vec<_> = lock(waiters).values().cloned().collect();
    for waiting in waiting {
        let _ = catch_unwind(AssertUnwindSafe(|| waiting.notify(usize::MAX)));
    }
}

#[cfg(all(test, feature = "soft", not(loom)))]
mod tests {
    use super::*;
    use event_listener::Listener;
    use mkey_soft::{SoftDevice, SoftOptions};
    use std::time::Duration;

    #[test]
    fn all_waiters_are_woken_when_no_events_come_any_more() {
        let device = SoftDevice::open(SoftOptions::default()).unwrap();
        let channel = device.create_comp_channel().unwrap();
        device.destroy_comp_channel(channel).unwrap();
        let (waiters, event) = (Waiters::default(), Arc::new(Event::new()));
        lock(&waiters).insert(CqHandle(1), event.clone());
        let listener = event.listen();
        deliver(&*device, channel, &waiters);
        assert!(listener.wait_timeout(Duration::from_secs(10)).is_some());
    }
}
