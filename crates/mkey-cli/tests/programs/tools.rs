//! The tools of rdma-core.

use crate::{has, mkey_run, succeeds};

#[test]
fn ibv_devices_lists_each_device_with_a_guid_of_its_own() {
    if !has("ibv_devices_lists_each_device_with_a_guid_of_its_own", "ibv_devices") {
        return;
    }
    let text = succeeds(&mut mkey_run(&["--devices", "3", "ibv_devices"]));
    let mut guids = Vec::new();
    for name in ["mkey0", "mkey1", "mkey2"] {
        let line =
            text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
        guids.push(line.split_whitespace().last().unwrap());
    }
    guids.sort_unstable();
    guids.dedup();
    assert_eq!(guids.len(), 3, "{text}");
    assert!(!guids.contains(&"0000000000000000"), "{text}");
}

#[test]
fn ibv_devinfo_tells_all_there_is() {
    if !has("ibv_devinfo_tells_all_there_is", "ibv_devinfo") {
        return;
    }
    let text = succeeds(&mut mkey_run(&["--address", "10.1.2.3", "ibv_devinfo", "-v"]));
    for said in [
        "hca_id:\tmkey0",
        "MEM_WINDOW_TYPE_2B",
        "ODP_SUPPORT_IMPLICIT",
        "atomic_cap:\t\t\tATOMIC_HCA",
        "state:\t\t\tPORT_ACTIVE (4)",
        "max_mtu:\t\t4096 (5)",
        "link_layer:\t\tEthernet",
        "GID[  0]:\t\t::ffff:10.1.2.3, RoCE v2",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
}

#[test]
fn a_device_that_is_not_there_is_not_found() {
    if !has("a_device_that_is_not_there_is_not_found", "ibv_devinfo") {
        return;
    }
    let (code, _, stderr) = crate::ended(&mut mkey_run(&["ibv_devinfo", "-d", "mkey7"]));
    assert_ne!(code, 0);
    assert!(stderr.contains("mkey7"), "{stderr}");
}
