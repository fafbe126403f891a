//! The functions that are bound, in the libraries of this system.

use std::fs;
use std::path::PathBuf;

use mkey_sys::{LoadError, Mlx5, Verbs};

/// The library of this system. A machine without it must install it for these tests; the message
/// says which package.
fn verbs() -> &'static Verbs {
    Verbs::load().unwrap_or_else(|error| panic!("{error}"))
}

/// The rdma-core that a loaded library is of: the third number of its file's name.
fn rdma_core(name: &str) -> u16 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let file = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])))
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name))
        .unwrap_or_else(|| panic!("{name} is not mapped"));
    let file = file.file_name().unwrap().to_str().unwrap().to_owned();
    let numbers = file.strip_prefix(name).unwrap();
    let version = numbers.split('.').filter(|part| !part.is_empty()).nth(2);
    version.and_then(|version| version.parse().ok()).unwrap_or_else(|| panic!("{file}"))
}

#[test]
fn libibverbs_has_every_required_function_and_the_optional_ones_of_its_version() {
    let missing = verbs().missing();
    let installed = rdma_core("libibverbs.so");
    for missing in &missing {
        assert!(missing.needs > installed, "{missing}; this is {installed}");
    }
    assert!(installed < 36 || missing.is_empty(), "{missing:?} of {installed}");
}

#[test]
fn libmlx5_has_every_required_function_and_the_optional_ones_of_its_version() {
    let mlx5 = Mlx5::load(verbs()).unwrap_or_else(|error| panic!("{error}"));
    let missing = mlx5.missing();
    let installed = rdma_core("libmlx5.so");
    for missing in &missing {
        assert!(missing.needs > installed, "{missing}; this is {installed}");
    }
    assert_eq!(mlx5.mlx5dv_reg_dmabuf_mr().is_ok(), installed >= 54, "{installed}");
    if installed < 54 {
        let said = mlx5.mlx5dv_reg_dmabuf_mr().unwrap_err().to_string();
        assert_eq!(said, "`mlx5dv_reg_dmabuf_mr` is not in this library: it needs rdma-core >= 54");
    }
}

#[test]
fn the_library_is_loaded_once() {
    assert!(std::ptr::eq(verbs(), verbs()));
}

#[test]
fn the_library_speaks() {
    use mkey_sys::types::{IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS};
    for (status, said) in
        [(IBV_WC_SUCCESS, "success"), (IBV_WC_REM_ACCESS_ERR, "remote access error")]
    {
        // SAFETY: the function takes any number and answers a string that lives for ever.
        let text = unsafe { std::ffi::CStr::from_ptr(verbs().ibv_wc_status_str(status)) };
        assert_eq!(text.to_str().unwrap().to_lowercase(), said);
    }
}

/// Every machine gives one of these answers; each is checked against what the kernel shows.
#[test]
fn devices_are_listed_or_it_is_said_why_there_are_none() {
    let kernel = |folder: &str| fs::read_dir(format!("/sys/class/{folder}")).ok();
    match verbs().devices() {
        Ok(devices) => {
            assert!(!devices.as_slice().is_empty());
            for &device in devices.as_slice() {
                // SAFETY: a device of a live list.
                let name = unsafe { std::ffi::CStr::from_ptr(verbs().ibv_get_device_name(device)) };
                let folder = format!("/sys/class/infiniband/{}", name.to_str().unwrap());
                assert!(fs::exists(&folder).unwrap(), "{folder}");
            }
        }
        Err(error @ LoadError::NoKernelSupport { .. }) => {
            assert!(
                kernel("infiniband").is_none() || kernel("infiniband_verbs").is_none(),
                "{error}"
            );
            let said = error.to_string();
            assert!(said.contains("the kernel offers no RDMA to programs"), "{said}");
            assert!(said.contains("/sys/class/infiniband"), "{said}");
        }
        Err(error @ LoadError::NoDevice { .. }) => {
            assert_eq!(kernel("infiniband").unwrap().count(), 0, "{error}");
        }
        Err(error @ LoadError::NoProvider { .. }) => {
            assert!(kernel("infiniband").unwrap().count() > 0, "{error}");
        }
        Err(LoadError::NoDeviceFile { path, .. }) => assert!(!path.exists()),
        Err(error) => panic!("{error}"),
    }
}
