//! What checks look at.

use super::launcher::Launcher;
use super::memlock;
use crate::files::{Files, Unread, garbage, no_line};
use crate::interfaces::DEVICES;
use crate::process::{self, IPC_LOCK, field, has_capability, in_initial_namespace};
use mkey_os::kernel;

/// Where the kernel tells its release.
pub const RELEASE: &str = "proc/sys/kernel/osrelease";

/// A host, a process on it, and what was asked about them.
#[derive(Clone, Debug)]
pub struct Context {
    /// The host's files.
    pub files: Files,
    /// The process' folder below `proc`: its number, or `self`.
    pub process: String,
    /// It is doctor's own process, on this machine: what can be tried is.
    pub probes: bool,
    /// How it was started.
    pub launcher: Launcher,
    /// The only device that was asked about.
    pub device: Option<String>,
    /// The user that was asked about.
    pub user: Option<String>,
}

impl Context {
    /// A file of the process.
    pub fn of_process(&self, name: &str) -> String {
        format!("proc/{}/{name}", self.process)
    }

    /// The devices to look at, in order; none where the kernel shows none.
    pub fn devices(&self) -> Vec<String> {
        let names = self.files.names(DEVICES).unwrap_or_default();
        names.into_iter().filter(|name| self.wanted(name)).collect()
    }

    /// Whether a device was asked about.
    pub fn wanted(&self, device: &str) -> bool {
        self.device.as_deref().is_none_or(|wanted| wanted == device)
    }

    /// Whether a device is hardware: those of the kernel's own (rxe, siw) have no bus.
    pub fn is_hardware(&self, device: &str) -> bool {
        self.files.exists(&format!("{DEVICES}/{device}/device/vendor"))
            || self.files.exists(&format!("{DEVICES}/{device}/device/driver"))
    }

    /// The ports of a device, in order.
    pub fn ports(&self, device: &str) -> Vec<String> {
        let mut ports = self.files.names(&format!("{DEVICES}/{device}/ports")).unwrap_or_default();
        ports.retain(|port| port.parse::<u32>().is_ok());
        ports
    }

    /// Whether the process lives in the user namespace that the kernel booted with; `None` if that can
    /// not be seen.
    pub fn in_initial_namespace(&self) -> Option<bool> {
        let link = self.files.link_name(&self.of_process("ns/user"));
        let map = self.files.text(&self.of_process("uid_map")).ok();
        in_initial_namespace(link.as_deref(), map.as_deref())
    }

    /// What `status` of the process says behind a name.
    pub fn of_status(&self, name: &str) -> Option<String> {
        let status = self.files.text(&self.of_process("status")).ok()?;
        field(&status, name).map(str::to_owned)
    }

    /// Whether system calls of the process are filtered.
    pub fn is_filtered(&self) -> bool {
        self.of_status("Seccomp").is_some_and(|mode| mode != "0")
    }

    /// Whether a capability of the process is effective.
    pub fn has_capability(&self, bit: u32) -> bool {
        let status = self.files.text(&self.of_process("status")).unwrap_or_default();
        has_capability(&status, "CapEff", bit) == Some(true)
    }

    /// The release of the kernel. Of this machine's own it is known without any file, too.
    ///
    /// # Errors
    /// [`Unread`].
    pub fn kernel(&self) -> Result<String, Unread> {
        let told = self.files.line(RELEASE).and_then(|release| {
            let known = kernel::version(&release).is_some();
            if known { Ok(release) } else { Err(garbage(RELEASE, &release)) }
        });
        told.or_else(|unread| {
            if !self.files.live() {
                return Err(unread);
            }
            let system = rustix::system::uname();
            let release = system.release().to_string_lossy().into_owned();
            if kernel::version(&release).is_some() { Ok(release) } else { Err(unread) }
        })
    }

    /// What no verdict can do without and can not be read: the kernel's release, the process' status, its
    /// limits.
    pub fn essential(&self) -> Vec<Unread> {
        let of = |name: &str, says: &dyn Fn(&str, &str) -> Result<(), Unread>| {
            let path = self.of_process(name);
            self.files.text(&path).and_then(|text| says(&path, &text)).err()
        };
        let status = of("status", &|path, text| {
            let told = has_capability(text, "CapEff", IPC_LOCK);
            told.map(|_| ()).ok_or_else(|| no_line(path, "CapEff"))
        });
        let limits = of("limits", &|path, text| {
            let told = process::limit(text, memlock::LIMIT);
            told.map(|_| ()).ok_or_else(|| process::no_limit(path, text, memlock::LIMIT))
        });
        self.kernel().err().into_iter().chain(status).chain(limits).collect()
    }
}
