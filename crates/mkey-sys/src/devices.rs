//! Listing and opening devices, and why that fails.
//!
//! libibverbs answers with an errno or an empty list; the reason is read off the kernel's folders.

use std::ffi::{CStr, c_char};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::slice;

use crate::error::LoadError;
use crate::types::{ibv_context, ibv_device};
use crate::verbs::Verbs;

impl Verbs {
    /// The devices that libibverbs has a provider for, at least one.
    pub fn devices(&self) -> Result<Devices<'_>, LoadError> {
        let mut count = 0;
        // SAFETY: the count is ours to be written.
        let list = unsafe { self.ibv_get_device_list(&raw mut count) };
        let errno = io::Error::last_os_error();
        let Some(list) = NonNull::new(list) else {
            return Err(why_none(Path::new("/"), Some(errno)));
        };
        let devices = Devices { verbs: self, list, count: usize::try_from(count).unwrap_or(0) };
        if devices.count == 0 {
            return Err(why_none(Path::new("/"), None));
        }
        Ok(devices)
    }

    /// Opens a device.
    ///
    /// # Safety
    /// `device` is of a list of this library that has not been freed.
    pub unsafe fn open_device(
        &self,
        device: *mut ibv_device,
    ) -> Result<NonNull<ibv_context>, LoadError> {
        // SAFETY: the caller's.
        let context = unsafe { self.ibv_open_device(device) };
        let errno = io::Error::last_os_error();
        NonNull::new(context).ok_or_else(|| {
            // SAFETY: the caller's: a live device, which nobody writes to.
            let (name, file) = unsafe { (text(&(*device).name), text(&(*device).dev_name)) };
            why_closed(Path::new("/"), name, &file, errno)
        })
    }
}

/// A list of devices, freed when it is dropped. A device that is open stays valid.
#[derive(Debug)]
pub struct Devices<'a> {
    verbs: &'a Verbs,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl Devices<'_> {
    /// The devices, valid while the list is.
    pub fn as_slice(&self) -> &[*mut ibv_device] {
        // SAFETY: libibverbs gave the list with this count, and it is freed with `self`.
        unsafe { slice::from_raw_parts(self.list.as_ptr(), self.count) }
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is libibverbs' and is freed once.
        unsafe { self.verbs.ibv_free_device_list(self.list.as_ptr()) }
    }
}

/// A C string in a field of fixed size, up to its zero or its end.
pub fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&c| c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Why there is no device to list, by what the kernel shows below `root`.
fn why_none(root: &Path, errno: Option<io::Error>) -> LoadError {
    let core = root.join("sys/class/infiniband");
    let verbs = root.join("sys/class/infiniband_verbs");
    if let Some(missing) = [&core, &verbs].into_iter().find(|folder| !folder.exists()) {
        return LoadError::NoKernelSupport { missing: missing.clone() };
    }
    if let Some(source) = errno {
        return LoadError::NotListed { source };
    }
    let entries = fs::read_dir(&verbs).into_iter().flatten().filter_map(Result::ok);
    let unserved = entries.filter_map(|entry| {
        let device = fs::read_to_string(entry.path().join("ibdev")).ok()?.trim().to_owned();
        Some((device, entry.path()))
    });
    let Some((device, entry)) = unserved.min() else {
        return LoadError::NoDevice { folder: core };
    };
    // libibverbs leaves a device without its file out of the list.
    let file = root.join("dev/infiniband").join(entry.file_name().unwrap_or_default());
    if !file.exists() {
        return LoadError::NoDeviceFile { device, path: file };
    }
    let driver = fs::read_link(entry.join("device/driver")).ok();
    let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
    LoadError::NoProvider { device, driver }
}

/// Why a device does not open, by the file `/dev/infiniband/FILE` below `root`.
///
/// libibverbs opens it, and if that fails in whatever way seeks it elsewhere and answers that
/// it is not there. So it is opened once more to learn the reason.
fn why_closed(root: &Path, device: String, file: &str, errno: io::Error) -> LoadError {
    let path = root.join("dev/infiniband").join(file);
    let again = OpenOptions::new().read(true).write(true).open(&path);
    let source = again.err().unwrap_or(errno);
    match (source.kind(), fs::metadata(&path)) {
        (io::ErrorKind::NotFound, Err(_)) => LoadError::NoDeviceFile { device, path },
        (io::ErrorKind::PermissionDenied, Ok(found)) => LoadError::NoPermission {
            device,
            path,
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
        },
        _ => LoadError::NotOpened { device, source },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn enosys() -> Option<io::Error> {
        Some(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    fn root(folders: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in folders {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        root
    }

    #[test]
    fn a_kernel_without_rdma_is_named_by_the_first_folder_that_is_not_there() {
        let bare = root(&["sys/class"]);
        for errno in [enosys(), None] {
            let said = why_none(bare.path(), errno).to_string();
            assert!(said.contains("sys/class/infiniband is not there"), "{said}");
            assert!(said.contains("modprobe"), "{said}");
        }
        let core = root(&["sys/class/infiniband"]);
        let said = why_none(core.path(), enosys()).to_string();
        assert!(said.contains("sys/class/infiniband_verbs is not there"), "{said}");
    }

    #[test]
    fn a_kernel_without_a_device_says_so() {
        let root = root(&["sys/class/infiniband", "sys/class/infiniband_verbs"]);
        fs::write(root.path().join("sys/class/infiniband_verbs/abi_version"), "6").unwrap();
        let error = why_none(root.path(), None);
        assert!(matches!(error, LoadError::NoDevice { .. }), "{error}");
        assert!(error.to_string().contains("rdma link add"), "{error}");
    }

    #[test]
    fn a_list_that_fails_with_the_kernel_ready_keeps_its_errno() {
        let root = root(&["sys/class/infiniband", "sys/class/infiniband_verbs"]);
        let error = why_none(root.path(), Some(io::Error::from_raw_os_error(libc::EMFILE)));
        let LoadError::NotListed { source } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(libc::EMFILE));
    }

    #[test]
    fn a_device_without_provider_is_named_with_its_driver() {
        let uverbs = "sys/class/infiniband_verbs/uverbs0";
        let device = format!("{uverbs}/device");
        let root = root(&["sys/class/infiniband", &device, "drivers/mlx5_core", "dev/infiniband"]);
        fs::write(root.path().join("dev/infiniband/uverbs0"), "").unwrap();
        fs::write(root.path().join(uverbs).join("ibdev"), "mlx5_0\n").unwrap();
        let driver = root.path().join("drivers/mlx5_core");
        symlink(driver, root.path().join(uverbs).join("device/driver")).unwrap();
        let said = why_none(root.path(), None).to_string();
        assert!(said.contains("no provider for mlx5_0 (driver mlx5_core);"), "{said}");
        assert!(said.contains("install ibverbs-providers"), "{said}");
    }

    #[test]
    fn a_device_of_software_has_no_driver_to_name() {
        let uverbs = "sys/class/infiniband_verbs/uverbs0";
        let root = root(&["sys/class/infiniband", uverbs, "dev/infiniband"]);
        fs::write(root.path().join("dev/infiniband/uverbs0"), "").unwrap();
        fs::write(root.path().join(uverbs).join("ibdev"), "rxe0\n").unwrap();
        let said = why_none(root.path(), None).to_string();
        assert!(said.contains("no provider for rxe0; install"), "{said}");
    }

    #[test]
    fn a_device_that_is_not_listed_for_want_of_its_file_says_so() {
        let uverbs = "sys/class/infiniband_verbs/uverbs0";
        let root = root(&["sys/class/infiniband", uverbs]);
        fs::write(root.path().join(uverbs).join("ibdev"), "rxe0\n").unwrap();
        let said = why_none(root.path(), None).to_string();
        assert!(said.contains("dev/infiniband/uverbs0 is not there"), "{said}");
    }

    #[test]
    fn no_permission_names_the_file_its_mode_and_its_owner() {
        let root = root(&["dev/infiniband"]);
        let file = root.path().join("dev/infiniband/uverbs3");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        for errno in [libc::EACCES, libc::EPERM] {
            let errno = io::Error::from_raw_os_error(errno);
            let said = why_closed(root.path(), "mlx5_0".into(), "uverbs3", errno).to_string();
            assert!(said.contains("no permission on"), "{said}");
            assert!(said.contains("dev/infiniband/uverbs3 (mode 0600, owner "), "{said}");
            assert!(said.contains("chmod 666"), "{said}");
        }
    }

    #[test]
    fn a_device_file_that_is_not_there_is_told_from_one_that_refuses() {
        let root = root(&["dev"]);
        // As libibverbs says it in either case.
        let errno = io::Error::from_raw_os_error(libc::ENOENT);
        let error = why_closed(root.path(), "mlx5_0".into(), "uverbs0", errno);
        assert!(matches!(error, LoadError::NoDeviceFile { .. }), "{error}");
    }

    #[test]
    fn another_failure_to_open_keeps_its_errno() {
        let root = root(&["dev/infiniband"]);
        fs::write(root.path().join("dev/infiniband/uverbs0"), "").unwrap();
        let errno = io::Error::from_raw_os_error(libc::ENOMEM);
        let error = why_closed(root.path(), "mlx5_0".into(), "uverbs0", errno);
        let LoadError::NotOpened { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn the_reason_is_that_of_the_file_whatever_libibverbs_says() {
        let root = root(&["dev/infiniband/uverbs0"]);
        let errno = io::Error::from_raw_os_error(libc::ENOENT);
        let error = why_closed(root.path(), "mlx5_0".into(), "uverbs0", errno);
        let LoadError::NotOpened { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn a_field_is_text_up_to_its_zero_or_its_end() {
        let field = |bytes: &[u8]| bytes.iter().map(|&b| b as c_char).collect::<Vec<_>>();
        assert_eq!(text(&field(b"rxe0\0junk")), "rxe0");
        assert_eq!(text(&field(b"rxe0")), "rxe0");
    }
}
