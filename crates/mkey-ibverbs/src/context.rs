//! Finding and opening a device.

use crate::failure::{errno_of, group_is_full};
use mkey_core::error::{Error, Reason, Result};
use mkey_os::rdma_cgroup::Resource;
use mkey_sys::mlx5dv::{MLX5DV_CONTEXT_FLAGS_DEVX, mlx5dv_context_attr};
use mkey_sys::types::*;
use mkey_sys::{LoadError, Mlx5, Verbs};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open device of libibverbs, closed with its last user.
pub(crate) struct Context {
    pub(crate) verbs: &'static Verbs,
    /// libmlx5, for a device of that kind.
    pub(crate) mlx5: Option<&'static Mlx5>,
    pub(crate) name: String,
    /// The kernel's driver of it, where it tells.
    pub(crate) driver: Option<String>,
    pub(crate) fork: Fork,
    context: NonNull<ibv_context>,
    gone: AtomicBool,
}

// SAFETY: an open device may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Who keeps a forked child's copy-on-write away from registered pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// The kernel copies pinned pages when a process forks.
    Kernel,
    /// libibverbs takes registered pages out of the child (`MADV_DONTFORK`).
    Library,
    /// Nobody: registrations must not be used in a process that forks.
    Nobody,
}

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name, as in `mlx5_0`.
    pub name: String,
    /// The kernel's driver of it, where it tells: `mlx5_core`, `rxe`.
    pub driver: Option<String>,
}

/// The RDMA devices of this machine that libibverbs can drive, at least one.
///
/// # Errors
/// Why there is none, and what mends it.
pub fn list() -> std::result::Result<Vec<Listed>, LoadError> {
    let devices = Verbs::load()?.devices()?;
    let names = devices.as_slice().iter().map(|&device| {
        // SAFETY: a device of a list that is not freed yet.
        let name = unsafe { text(&(*device).name) };
        let driver = driver(Path::new("/"), &name);
        Listed { name, driver }
    });
    Ok(names.collect())
}

impl Context {
    /// Opens the device `name` of a library.
    pub(crate) fn open(
        verbs: &'static Verbs,
        mlx5: Option<&'static Mlx5>,
        name: &str,
    ) -> Result<Self> {
        let refused =
            |why: String| Error::new("open_device", name, Reason::NoDevice { why: why.into() });
        let devices = verbs.devices().map_err(|error| refused(error.to_string()))?;
        // SAFETY: devices of a list that lives until the end of this function.
        let of = |device: *mut ibv_device| unsafe { text(&(*device).name) };
        let found = devices.as_slice().iter().copied().find(|&device| of(device) == name);
        let Some(device) = found else {
            let names: Vec<_> = devices.as_slice().iter().map(|&device| of(device)).collect();
            return Err(refused(format!(
                "there is no such device; there are: {}",
                names.join(", ")
            )));
        };
        let not_opened = |error: LoadError| match &error {
            LoadError::NotOpened { source, .. } if source.raw_os_error() == Some(libc::EAGAIN) => {
                let full = group_is_full(name, Resource::Handle);
                full.map_or(refused(error.to_string()), |full| {
                    Error::new("open_device", name, full)
                })
            }
            _ => refused(error.to_string()),
        };
        let fork = protect_forks(verbs);
        // SAFETY: a device of the list above, asked of the library that drives it.
        let mlx5 = mlx5.filter(|mlx5| unsafe { mlx5.mlx5dv_is_supported(device) });
        let special = mlx5.and_then(|mlx5| {
            // Memory keys of one's own are commands of this interface.
            let mut attr = mlx5dv_context_attr { flags: MLX5DV_CONTEXT_FLAGS_DEVX, comp_mask: 0 };
            // SAFETY: as above; the attributes are ours.
            NonNull::new(unsafe { mlx5.mlx5dv_open_device(device, &raw mut attr) })
        });
        let (context, mlx5) = match special {
            Some(context) => (context, mlx5),
            // SAFETY: a device of the list above.
            None => (unsafe { verbs.open_device(device) }.map_err(not_opened)?, None),
        };
        let name = name.to_owned();
        let driver = driver(Path::new("/"), &name);
        let gone = AtomicBool::new(false);
        let this = Self { verbs, mlx5, name, driver, fork, context, gone };
        // SAFETY: the device is open.
        let events = unsafe { (*context.as_ptr()).async_fd };
        crate::events::never_block(events)
            .map_err(|errno| refused(std::io::Error::from_raw_os_error(errno).to_string()))?;
        Ok(this)
    }

    /// To hand to verbs.
    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The device said that it failed or was removed.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether the device has said so.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether an error is to be understood so: it has said so, or the kernel does not know it any
    /// more.
    pub(crate) fn looks_gone(&self) -> bool {
        if !self.is_gone() && !Path::new("/sys/class/infiniband").join(&self.name).exists() {
            self.set_gone();
        }
        self.is_gone()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the last user is gone, and objects are destroyed before. What could not be
        // destroyed is never touched again; the kernel frees its part as the device closes.
        let _ = unsafe { self.verbs.ibv_close_device(self.context.as_ptr()) };
    }
}

/// A C string in a field of fixed size, up to its zero or its end.
pub(crate) fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&c| c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// The kernel's driver of a device below `root`: of a device on a bus its name, of one in software
/// how it calls itself.
pub(crate) fn driver(root: &Path, name: &str) -> Option<String> {
    let entry = root.join("sys/class/infiniband").join(name);
    if let Ok(link) = std::fs::read_link(entry.join("device/driver")) {
        return Some(link.file_name()?.to_str()?.to_owned());
    }
    let words = std::fs::read_to_string(entry.join("node_desc")).ok()?;
    Some(words.trim().to_owned()).filter(|words| !words.is_empty())
}

/// Asks libibverbs to keep registered pages out of forked children, but only where the kernel does
/// not copy them: `MADV_DONTFORK` splits mappings, until a process that registers much has no more
/// of them.
fn protect_forks(verbs: &Verbs) -> Fork {
    let status = match verbs.ibv_is_fork_initialized() {
        // SAFETY: takes nothing.
        Ok(ask) => unsafe { ask() },
        Err(_) if copies_pinned_pages(kernel_release().as_deref()) => IBV_FORK_UNNEEDED,
        Err(_) => IBV_FORK_DISABLED,
    };
    match status {
        IBV_FORK_UNNEEDED => Fork::Kernel,
        IBV_FORK_ENABLED => Fork::Library,
        // SAFETY: takes nothing; it answers EINVAL if it comes too late.
        _ => match errno_of(unsafe { verbs.ibv_fork_init() }) {
            0 => Fork::Library,
            _ => Fork::Nobody,
        },
    }
}

fn kernel_release() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()
}

/// Whether a kernel of this release copies pinned pages as a process forks: from 5.12 on.
fn copies_pinned_pages(release: Option<&str>) -> bool {
    let mut numbers = release.unwrap_or_default().split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    (number(), number()) >= (5, 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_copy_pinned_pages() {
        for (release, copies) in [
            ("6.1.0-50-amd64", true),
            ("5.12.0", true),
            ("5.4.0-42-generic", false),
            ("4.18.0", false),
            ("7.3", true),
            ("", false),
        ] {
            assert_eq!(copies_pinned_pages(Some(release)), copies, "{release}");
        }
        assert!(!copies_pinned_pages(None));
    }

    #[test]
    fn the_driver_of_a_device() {
        let root = std::env::temp_dir().join(format!("mkey-driver-{}", std::process::id()));
        let (mlx5, rxe) =
            (root.join("sys/class/infiniband/mlx5_0"), root.join("sys/class/infiniband/rxe0"));
        std::fs::create_dir_all(mlx5.join("device")).unwrap();
        std::fs::create_dir_all(&rxe).unwrap();
        std::os::unix::fs::symlink("/sys/drivers/mlx5_core", mlx5.join("device/driver")).unwrap();
        std::fs::write(rxe.join("node_desc"), "rxe\n").unwrap();
        assert_eq!(driver(&root, "mlx5_0").as_deref(), Some("mlx5_core"));
        assert_eq!(driver(&root, "rxe0").as_deref(), Some("rxe"));
        assert_eq!(driver(&root, "none"), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
