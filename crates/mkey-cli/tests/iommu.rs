//! What an IOMMU adds to a registration: in a virtual machine that has one, and behind it a device
//! that nobody uses (`cargo xtask vm --iommu`). Ignored unless asked for.

mod common;

use common::{alone, mkey, run};
use mkey_cli::bench::registration::report::Sweep;
use mkey_cli::model::report::Model;
use std::fs;
use std::process::Command;

/// qemu's `edu`.
const DEVICE: &str = "1234 11e8";
const DRIVER: &str = "/sys/bus/pci/drivers/vfio-pci";
const SIZES: [&str; 8] =
    ["--sizes", "4KiB..4MiB", "--pages", "4KiB", "--device", "mkey0", "--json", "-"];

/// Gives the device to VFIO; its group.
fn group() -> String {
    assert!(Command::new("modprobe").arg("vfio_pci").status().unwrap().success());
    // A second time it is there already.
    let _ = fs::write(format!("{DRIVER}/new_id"), DEVICE);
    let mut devices = fs::read_dir(DRIVER).unwrap().map(|entry| entry.unwrap().path());
    let group = devices.find_map(|path| fs::read_link(path.join("iommu_group")).ok());
    let group = group.expect("a device behind the IOMMU");
    group.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs an IOMMU and a device behind it: cargo xtask test --only vm"]
fn the_same_memory_is_mapped_through_the_iommu_and_pinned() {
    let _alone = alone();
    let group = group();
    let arguments = ["bench", "registration", "--time", "2s", "--iommu", &group];
    let (code, stdout, stderr) = run(mkey(&arguments).args(SIZES));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let sweep: Sweep = serde_json::from_str(&stdout).unwrap();
    assert_eq!(sweep.iommu.as_ref().map(|iommu| &iommu.missing), Some(&None));
    assert_eq!(sweep.rows.len(), 11);
    for row in &sweep.rows {
        let dma = row.figures().unwrap().dma.unwrap();
        assert!(dma.map.samples >= 5 && dma.unmap.median_ns > 0.0, "{row:?}");
        // A call of VFIO's is more than one of io_uring's, whatever the machine does meanwhile.
        assert!(row.bytes > 64 << 10 || dma.added_ns() > 0.0, "{row:?}");
    }
    let (code, text, _) = run(mkey(&arguments).args(&SIZES[..6]));
    assert!(code == 0 && text.contains("mapped through an IOMMU, by VFIO group"), "{text}");
}

#[test]
#[ignore = "needs an IOMMU and a device behind it: cargo xtask test --only vm"]
fn the_model_has_what_it_adds() {
    let _alone = alone();
    let group = group();
    let arguments = ["model", "--time", "4s", "--iommu", &group];
    let (code, stdout, stderr) = run(mkey(&arguments).args(SIZES));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    let model: Model = serde_json::from_str(&stdout).unwrap();
    let added = model.fits[0].fitted().unwrap().iommu.unwrap();
    assert!(added.fixed.value > 0.0, "{added:?}");
    println!("an IOMMU adds {} ns, and {} ns a page", added.fixed.value, added.page.value);
    let (code, text, _) = run(mkey(&arguments).args(&SIZES[..6]));
    assert!(code == 0 && text.contains("+ IOMMU map, by VFIO"), "{text}");
}

#[test]
#[ignore = "needs an IOMMU and a device behind it: cargo xtask test --only vm"]
fn a_group_that_is_not_there_is_told_and_the_rest_measured() {
    let _alone = alone();
    group();
    let arguments = ["bench", "registration", "--samples", "5", "--iommu", "4294967295"];
    let (code, stdout, stderr) = run(mkey(&arguments).args(SIZES));
    assert_eq!(code, 0, "{stdout}");
    assert!(stderr.contains("no group for VFIO") && stderr.contains("new_id"), "{stderr}");
    let sweep: Sweep = serde_json::from_str(&stdout).unwrap();
    assert!(sweep.iommu.unwrap().missing.is_some());
    assert!(sweep.rows.iter().all(|row| row.figures().unwrap().dma.is_none()));
}
