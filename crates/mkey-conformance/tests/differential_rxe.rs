//! The same random programs over the software RNIC and over the kernel's own device.

use mkey_conformance::differential::campaign::Campaign;
use mkey_conformance::differential::deviations::{self, Linux, RXE};
use mkey_conformance::differential::document;
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
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (line, device) = (Linux::of(&release), "rxe0");
    let table = deviations::of(RXE, line);
    let tally = campaign
        .run(&table, || (Soft::new(), Ibverbs::new(device)), |_| ())
        .unwrap_or_else(|found| panic!("{}", found.concat()));
    let section = document::section(&Ibverbs::new(device).driver(), &release, &table, &tally);
    println!("{section}");
    assert_eq!(tally.programs, programs);
    assert!(tally.whole * 3 > programs * 2, "only {} were compared whole", tally.whole);
    assert!(tally.unsteady * 50 <= programs, "{} were not steady", tally.unsteady);
    if campaign != usual {
        return;
    }
    for (at, deviation) in table.iter().enumerate() {
        let met = tally.deviations.contains_key(&at);
        assert!(met, "not met any more, so it is to go from the table: {deviation:?}");
    }
    let page = include_str!("../../../docs/differential.md");
    let there = document::section_of(page, "rxe", line).unwrap_or_default();
    let (made, there) = (document::without_numbers(&section), document::without_numbers(there));
    assert_eq!(made, there, "docs/differential.md is old: tools/differential/document");
}
