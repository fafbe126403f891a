//! Why real devices are not usable here, each with what mends it.

use std::io;
use std::path::PathBuf;

pub use crate::elf::Machine;

/// Why libibverbs, libmlx5 or a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such library.
    #[error(
        "{} is not there ({dlerror}); install {package}, or name the file in {variable}",
        path.display()
    )]
    Absent {
        /// The file, or the name that the dynamic loader was asked for.
        path: PathBuf,
        /// The dynamic loader's words.
        dlerror: String,
        /// The environment variable that names another file.
        variable: &'static str,
        /// The packages that have it.
        package: &'static str,
    },
    /// The library is there, but for machines of another kind.
    #[error(
        "{} is for {found}, which this program is not; install {package} of this program's \
         architecture",
        path.display()
    )]
    WrongArchitecture {
        /// The file.
        path: PathBuf,
        /// What it is for.
        found: Machine,
        /// The packages that have it.
        package: &'static str,
    },
    /// The library is there and cannot be loaded: it is damaged, or needs another that is absent.
    #[error(
        "{} cannot be loaded: {dlerror}; {}",
        path.display(),
        mend_load(*named_by)
    )]
    Unloadable {
        /// The file, or the name that the dynamic loader was asked for.
        path: PathBuf,
        /// The dynamic loader's words.
        dlerror: String,
        /// The environment variable that names it; `None` for what the loader finds itself.
        named_by: Option<&'static str>,
    },
    /// The library lacks a function that every usable version has.
    #[error(
        "{} has no function `{symbol}`: it is not the library it should be, or too old",
        path.display()
    )]
    MissingSymbol {
        /// What was loaded.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// The kernel has no RDMA support, or it is not loaded.
    #[error(
        "the kernel offers no RDMA to programs: {} is not there; load the driver of the device \
         and `ib_uverbs` (`modprobe rdma_rxe` for soft-RoCE), then start the program again",
        missing.display()
    )]
    NoKernelSupport {
        /// What would be there.
        missing: PathBuf,
    },
    /// The kernel has RDMA support and no device.
    #[error(
        "the kernel knows no RDMA device: {} is empty; load the driver of the card, or make a \
         device in software (`rdma link add rxe0 type rxe netdev eth0`)",
        folder.display()
    )]
    NoDevice {
        /// Where devices would be.
        folder: PathBuf,
    },
    /// The kernel has a device that no provider library of libibverbs drives.
    #[error(
        "libibverbs has no provider for {device}{}; install ibverbs-providers (Debian, Ubuntu) \
         or libibverbs (Fedora, RHEL)",
        of_driver(driver.as_deref())
    )]
    NoProvider {
        /// The device, such as `mlx5_0`.
        device: String,
        /// The kernel's driver of it, if it names one.
        driver: Option<String>,
    },
    /// The devices cannot be listed, for another reason.
    #[error("libibverbs cannot list the devices: {source}")]
    NotListed {
        /// Why.
        source: io::Error,
    },
    /// The file that a device is opened by is not there, as in a container without it.
    #[error(
        "{device} cannot be opened: {} is not there; let the container have it \
         (`--device /dev/infiniband`)",
        path.display()
    )]
    NoDeviceFile {
        /// The device.
        device: String,
        /// The file.
        path: PathBuf,
    },
    /// The file that a device is opened by refuses this user.
    #[error(
        "{device} cannot be opened: no permission on {} (mode {mode:04o}, owner {uid}:{gid}); \
         make it readable and writable for this user (a udev rule, `chmod 666`), or let the \
         container have it (`--device /dev/infiniband`)",
        path.display()
    )]
    NoPermission {
        /// The device.
        device: String,
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A device cannot be opened, for another reason.
    #[error("{device} cannot be opened: {source}")]
    NotOpened {
        /// The device.
        device: String,
        /// Why.
        source: io::Error,
    },
}

fn mend_load(named_by: Option<&str>) -> String {
    match named_by {
        Some(variable) => {
            format!("{variable} names it: name the library's file there, or unset it")
        }
        None => "install its package anew, with all that it needs".to_owned(),
    }
}

fn of_driver(driver: Option<&str>) -> String {
    driver.map(|driver| format!(" (driver {driver})")).unwrap_or_default()
}

/// A function that the loaded library is too old for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{symbol}` is not in this library: it needs rdma-core >= {needs}")]
pub struct Missing {
    /// The function.
    pub symbol: &'static str,
    /// The first rdma-core with it.
    pub needs: u16,
}

/// An operation that a queue was not made with, or that its provider does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue does not offer `{operation}`")]
pub struct NotOffered {
    /// The operation.
    pub operation: &'static str,
}
