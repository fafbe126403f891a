//! That a test leaves nothing behind.

use crate::device::{Device, DeviceStats};
use mkey_os::limits::{self, Held};

/// Remembers what is registered on a device when it is made, and panics when it is finished or
/// dropped unless things are as they were then.
///
/// A thread that panics already is not disturbed.
#[derive(Debug)]
#[must_use = "dropped at once it checks nothing"]
pub struct LeakCheck {
    device: Device,
    before: DeviceStats,
    /// What the process had pinned, if that is checked.
    held: Option<Held>,
    done: bool,
}

impl LeakCheck {
    /// Checks what the library did on `device`: registrations, registered bytes, registrations kept
    /// because the device would not end them, objects it would not free.
    pub fn new(device: &Device) -> Self {
        let (device, before) = (device.clone(), device.stats());
        Self { device, before, held: None, done: false }
    }

    /// Checks also what the kernel says of the whole process: bytes pinned (`VmPin`) and locked
    /// (`VmLck`). For a test that is alone in its process, or nothing else pins meanwhile.
    ///
    /// # Panics
    /// If `/proc/self/status` can not be read.
    pub fn of_process(device: &Device) -> Self {
        let held = match limits::held() {
            Ok(held) => held,
            Err(error) => panic!("what the process has pinned is not known: {error}"),
        };
        let mut this = Self::new(device);
        this.held = Some(held);
        this
    }

    /// What is left, a sentence each; none if all is as it was.
    pub fn leaks(&self) -> Vec<String> {
        let (before, now) = (&self.before, self.device.stats());
        let mut left = Vec::new();
        let live = |stats: &DeviceStats| stats.registrations.saturating_sub(stats.deregistrations);
        let kept = now.kept.saturating_sub(before.kept);
        let more = live(&now).saturating_sub(live(before));
        if more > kept {
            let bytes = now.registered_bytes.saturating_sub(before.registered_bytes);
            left.push(format!(
                "{} more registered than at the start ({bytes} bytes in all): a region, a slice, \
                 a grant or posted work whose completion was not polled still holds it",
                count(more - kept, "memory region is", "memory regions are"),
            ));
        }
        if kept > 0 {
            let why = self.device.kept();
            let why = why.get(before.kept as usize..).unwrap_or(&why).join("; ");
            left.push(format!(
                "the device would not deregister {}, which stay with their memory: {why}",
                count(kept, "memory region", "memory regions"),
            ));
        }
        let failed = now.failed_drops.saturating_sub(before.failed_drops);
        if failed > kept {
            left.push(format!(
                "the device would not free {} when dropped: something else still used them",
                count(failed - kept, "object", "objects"),
            ));
        }
        if let Some(held) = self.held {
            left.extend(still_held(held));
        }
        left
    }

    /// Checks now.
    ///
    /// # Panics
    /// If something is left, with a sentence for each.
    #[track_caller]
    pub fn finish(mut self) {
        self.check();
    }

    #[track_caller]
    fn check(&mut self) {
        if std::mem::replace(&mut self.done, true) || std::thread::panicking() {
            return;
        }
        let left = self.leaks();
        assert!(left.is_empty(), "left behind on {}: {}", self.device.name(), left.join("; "));
    }
}

impl Drop for LeakCheck {
    fn drop(&mut self) {
        self.check();
    }
}

fn still_held(before: Held) -> Vec<String> {
    let now = match limits::held() {
        Ok(now) => now,
        Err(error) => return vec![format!("what the process has pinned is not known: {error}")],
    };
    let pairs = [
        (before.pinned, now.pinned, "pinned (VmPin)"),
        (before.locked, now.locked, "locked (VmLck)"),
    ];
    let more = pairs.into_iter().filter(|(before, now, _)| now > before);
    more.map(|(before, now, how)| format!("{} bytes more are {how}", now - before)).collect()
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
