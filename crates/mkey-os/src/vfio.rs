//! Memory mapped for DMA through an IOMMU, by VFIO (Documentation/driver-api/vfio.rst): what a
//! NIC's registration pays behind an IOMMU beyond the pin, without the NIC.
//!
//! A [`Container`] takes one group of devices, all of them bound to `vfio-pci` or to no driver. No
//! device is opened, so that nothing reads or writes what is mapped.

use crate::error::{Errno, OsError};
use linux_raw_sys::ioctl::{
    VFIO_GROUP_GET_STATUS, VFIO_GROUP_SET_CONTAINER, VFIO_IOMMU_MAP_DMA, VFIO_IOMMU_UNMAP_DMA,
    VFIO_SET_IOMMU,
};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;

/// Why memory can not be mapped through a group's IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VfioError {
    /// `/dev/vfio/vfio` can not be opened.
    #[error("no VFIO: /dev/vfio/vfio: {errno}")]
    NoVfio {
        /// Why not.
        errno: Errno,
    },
    /// The group's file can not be opened.
    #[error("no group for VFIO: /dev/vfio/{group}: {errno}")]
    NoGroup {
        /// The group.
        group: u32,
        /// Why not.
        errno: Errno,
    },
    /// A device of the group belongs to another driver.
    #[error("group {group} has a device that is bound to a driver of the kernel's own")]
    NotViable {
        /// The group.
        group: u32,
    },
    /// The kernel refuses a step.
    #[error(transparent)]
    System(#[from] OsError),
}

impl VfioError {
    /// The command that would mend it, where one would.
    pub fn mend(&self) -> Option<String> {
        match self {
            Self::NoVfio { .. } => {
                Some("sudo modprobe -a vfio_pci vfio_iommu_type1  # and run as root".to_owned())
            }
            Self::NoGroup { .. } => Some(
                "echo VENDOR DEVICE | sudo tee /sys/bus/pci/drivers/vfio-pci/new_id  # one that \
                 nobody uses; its group: ls -l /sys/bus/pci/drivers/vfio-pci/*/iommu_group"
                    .to_owned(),
            ),
            Self::NotViable { group } => {
                Some(format!("ls -l /sys/kernel/iommu_groups/{group}/devices/*/driver"))
            }
            Self::System(_) => None,
        }
    }
}

/// An address space of an IOMMU.
#[derive(Debug)]
pub struct Container {
    // The group leaves the container before that is closed.
    _group: File,
    container: File,
}

/// Memory in a [`Container`]; dropping it unmaps.
#[derive(Debug)]
pub struct Mapped<'a> {
    container: &'a Container,
    bytes: u64,
}

/// Where memory is mapped: above what the low 4 GiB hold (interrupts, reserved ranges).
const IOVA: u64 = 1 << 32;
/// `VFIO_TYPE1v2_IOMMU`.
const TYPE_1_V2: libc::c_ulong = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`.
const VIABLE: u32 = 1;
/// `VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE`.
const READ_WRITE: u32 = 3;

/// `struct vfio_group_status`.
#[repr(C)]
struct GroupStatus {
    argsz: u32,
    flags: u32,
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap`.
#[repr(C)]
struct DmaUnmap {
    argsz: u32,
    flags: u32,
    iova: u64,
    size: u64,
}

impl Container {
    /// The address space of the group `group`, empty.
    ///
    /// # Errors
    /// [`VfioError`].
    pub fn open(group: u32) -> Result<Self, VfioError> {
        let open = |path: &str| {
            let file = OpenOptions::new().read(true).write(true).open(path);
            file.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let container = open("/dev/vfio/vfio").map_err(|errno| VfioError::NoVfio { errno })?;
        let path = format!("/dev/vfio/{group}");
        let file = open(&path).map_err(|errno| VfioError::NoGroup { group, errno })?;
        let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
        let call = "VFIO_GROUP_GET_STATUS";
        // SAFETY: takes a `vfio_group_status`, and writes no more than it says it is long.
        answer(call, unsafe {
            libc::ioctl(file.as_raw_fd(), VFIO_GROUP_GET_STATUS.into(), &raw mut status)
        })?;
        if status.flags & VIABLE == 0 {
            return Err(VfioError::NotViable { group });
        }
        let fd = container.as_raw_fd();
        // SAFETY: takes a pointer to a descriptor, which it reads.
        answer("VFIO_GROUP_SET_CONTAINER", unsafe {
            libc::ioctl(file.as_raw_fd(), VFIO_GROUP_SET_CONTAINER.into(), &raw const fd)
        })?;
        // SAFETY: takes a number.
        answer("VFIO_SET_IOMMU (type 1)", unsafe {
            libc::ioctl(fd, VFIO_SET_IOMMU.into(), TYPE_1_V2)
        })?;
        Ok(Self { _group: file, container })
    }

    /// Pins memory, whole pages, and maps it.
    ///
    /// # Errors
    /// As the kernel refuses: what is no memory, what is beyond what may be locked, what overlaps
    /// memory that is mapped already (all is mapped at one place).
    pub fn map(&self, address: usize, bytes: u64) -> Result<Mapped<'_>, OsError> {
        let mut request = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: READ_WRITE,
            vaddr: address as u64,
            iova: IOVA,
            size: bytes,
        };
        // SAFETY: takes a `vfio_iommu_type1_dma_map`. The kernel pins the pages and nothing touches
        // them: no device of the group is opened.
        answer("VFIO_IOMMU_MAP_DMA", unsafe {
            libc::ioctl(self.container.as_raw_fd(), VFIO_IOMMU_MAP_DMA.into(), &raw mut request)
        })?;
        Ok(Mapped { container: self, bytes })
    }

    fn unmap(&self, bytes: u64) -> Result<(), OsError> {
        let argsz = size_of::<DmaUnmap>() as u32;
        let mut request = DmaUnmap { argsz, flags: 0, iova: IOVA, size: bytes };
        // SAFETY: takes a `vfio_iommu_type1_dma_unmap`, and writes what it unmapped to its end.
        answer("VFIO_IOMMU_UNMAP_DMA", unsafe {
            libc::ioctl(self.container.as_raw_fd(), VFIO_IOMMU_UNMAP_DMA.into(), &raw mut request)
        })
    }
}

impl Mapped<'_> {
    /// Unmaps, and says whether that worked.
    ///
    /// # Errors
    /// As the kernel refuses.
    pub fn unmap(self) -> Result<(), OsError> {
        let this = std::mem::ManuallyDrop::new(self);
        this.container.unmap(this.bytes)
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        // What is left goes with the container.
        let _ = self.container.unmap(self.bytes);
    }
}

fn answer(call: &'static str, answer: libc::c_int) -> Result<(), OsError> {
    if answer < 0 { Err(OsError::last(call)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_not_there_is_told_with_what_makes_one() {
        let error = Container::open(u32::MAX).unwrap_err();
        let told = error.to_string();
        match error {
            VfioError::NoVfio { .. } => assert!(error.mend().unwrap().contains("modprobe")),
            _ => {
                assert!(matches!(error, VfioError::NoGroup { group: u32::MAX, .. }), "{told}");
                assert!(error.mend().unwrap().contains("vfio-pci/new_id"));
            }
        }
        assert!(told.contains("/dev/vfio/"), "{told}");
    }
}
