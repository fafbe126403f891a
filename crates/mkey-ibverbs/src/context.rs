//! Finding and opening a device.

use crate::driver::{self, Driver};
use crate::failure::{errno_of, group_is_full};
use mkey_core::error::{Error, Reason, Result};
use mkey_os::kernel::{self, version};
use mkey_os::rdma_cgroup::Resource;
use mkey_sys::devices::text;
use mkey_sys::mlx5dv::{MLX5DV_CONTEXT_FLAGS_DEVX, mlx5dv_context_attr};
use mkey_sys::types::*;
use mkey_sys::{LoadError, Mlx5, Verbs};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open device of libibverbs, closed with its last user.
pub(crate) struct Context {
    pub(crate) verbs: &'static Verbs,
    /// libmlx5, for a device of that kind.
    pub(crate) mlx5: Option<&'static Mlx5>,
    pub(crate) name: String,
    /// Why libmlx5 is not used, where it could not be or did not open the device.
    pub(crate) no_mlx5: Option<String>,
    /// The kernel's driver of it, where it tells.
    pub(crate) driver: Option<String>,
    /// Whether it has no hardware.
    pub(crate) software: bool,
    pub(crate) fork: Fork,
    context: NonNull<ibv_context>,
    gone: AtomicBool,
    /// Readable once the device is gone: who waits for it is to look.
    gone_bell: OwnedFd,
    /// The folder that the kernel has for the device's file, for as long as the device is there.
    /// Unlike its name it does not change.
    folder: PathBuf,
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
        let driver = driver::of(&name).name;
        Listed { name, driver }
    });
    Ok(names.collect())
}

impl Context {
    /// Opens the device `name` of a library.
    pub(crate) fn open(
        verbs: &'static Verbs,
        mlx5: std::result::Result<&'static Mlx5, String>,
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
        let bell = crate::events::bell()
            .map_err(|errno| refused(std::io::Error::from_raw_os_error(errno).to_string()))?;
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
        let mut no_mlx5 = mlx5.as_ref().err().cloned();
        // SAFETY: a device of the list above, asked of the library that drives it.
        let mlx5 = mlx5.ok().filter(|mlx5| unsafe { mlx5.mlx5dv_is_supported(device) });
        let special = mlx5.and_then(|mlx5| {
            // Memory keys of one's own are commands of this interface.
            let mut attr = mlx5dv_context_attr { flags: MLX5DV_CONTEXT_FLAGS_DEVX, comp_mask: 0 };
            // SAFETY: as above; the attributes are ours.
            let opened = NonNull::new(unsafe { mlx5.mlx5dv_open_device(device, &raw mut attr) });
            if opened.is_none() {
                let errno = std::io::Error::last_os_error();
                no_mlx5 = Some(format!("mlx5dv_open_device with DEVX: {errno}"));
            }
            opened
        });
        let (context, mlx5) = match special {
            Some(context) => (context, mlx5),
            // SAFETY: a device of the list above.
            None => (unsafe { verbs.open_device(device) }.map_err(not_opened)?, None),
        };
        let name = name.to_owned();
        let Driver { name: driver, software } = driver::of(&name);
        // SAFETY: a device of the list above.
        let folder = PathBuf::from(unsafe { text(&(*device).dev_path) });
        let this = Self {
            verbs,
            mlx5,
            name,
            no_mlx5,
            driver,
            software,
            fork,
            context,
            gone: AtomicBool::new(false),
            gone_bell: bell,
            folder,
        };
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

    /// The device said that it failed or was removed. All waits for it end.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
        crate::events::ring(&self.gone_bell);
    }

    /// A descriptor that is readable once the device has said so.
    pub(crate) fn gone_bell(&self) -> RawFd {
        self.gone_bell.as_raw_fd()
    }

    /// Whether the device has said so.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether an EIO or ENODEV is to be understood so: it has said so, or the kernel does not know
    /// it any more.
    pub(crate) fn looks_gone(&self) -> bool {
        let known = self.folder.as_os_str().is_empty() || self.folder.exists();
        if !self.is_gone() && !known {
            self.set_gone();
        }
        self.is_gone()
    }

    /// Whether this errno is to be understood so.
    pub(crate) fn means_gone(&self, errno: i32) -> bool {
        self.is_gone() || matches!(errno, libc::EIO | libc::ENODEV) && self.looks_gone()
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

/// Asks libibverbs to keep registered pages out of forked children, but only where the kernel does
/// not copy them: `MADV_DONTFORK` splits mappings, until a process that registers much has no more
/// of them.
fn protect_forks(verbs: &Verbs) -> Fork {
    let status = match verbs.ibv_is_fork_initialized() {
        // SAFETY: takes nothing.
        Ok(ask) => unsafe { ask() },
        Err(_) if copies_pinned_pages(kernel::release().as_deref()) => IBV_FORK_UNNEEDED,
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

/// Whether a kernel of this release copies pinned pages as a process forks: from 5.12 on.
fn copies_pinned_pages(release: Option<&str>) -> bool {
    release.and_then(version).is_some_and(|version| version >= (5, 12))
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
}
