//! The same random programs over the software RNIC and over the kernel's own device.

use mkey_conformance::differential::campaign::Campaign;
use mkey_conformance::differential::deviations;
use mkey_conformance::differential::record::{self, Record};
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::soft::Soft;

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_kernels_device_shows_what_the_software_rnic_shows() {
    let usual = Campaign::USUAL;
    let number = |name, usual| match std::env::var(name) {
        Ok(number) => number.parse().unwrap_or_else(|_| panic!("{name}={number} is no number")),
        Err(_) => usual,
    };
    let programs = number("MKEY_PROGRAMS", usual.programs);
    let campaign = Campaign { first: number("MKEY_SEED", usual.first), programs, ..usual };
    let device = Ibverbs::new("rxe0");
    let (driver, kernel) = (device.driver(), device.kernel());
    let table = deviations::of(driver, &kernel);
    let tally = campaign
        .run(&table, || (Soft::new(), device.clone()), |_| ())
        .unwrap_or_else(|found| panic!("{}", found.concat()));
    let seen = Record::of(driver, &kernel, &table, &tally);
    println!("{seen:#?}");
    assert_eq!(seen.programs, programs);
    assert!(seen.whole * 3 > programs * 2, "only {} were compared whole", seen.whole);
    assert!(seen.unsteady * 50 <= programs, "{} were not steady", seen.unsteady);
    if campaign != usual {
        return;
    }
    let (file, recorded) = record::find(driver, &kernel).expect("what is recorded");
    assert_eq!(recorded.programs, programs, "{file} is old, record anew (CONTRIBUTING.md)");
    for deviation in table.iter().filter(|deviation| !deviation.by_chance()) {
        let name = deviation.name();
        assert!(seen.met.contains_key(&name), "not met any more, so it has to go: {name}");
        assert!(recorded.met.contains_key(&name), "{file} does not have `{name}`: record anew");
    }
}
