//! Widely copied claims beside this run's figures, and why they differ.

use super::report::{Claim, Register, Report};
use super::units::{size, time};

/// The claims, with the figures of `report`.
pub fn beside(report: &Report) -> Vec<Claim> {
    let row = |id: &str| report.figures(id);
    let registered = |id: &str| {
        row(id).and_then(|figures| figures.register).map_or("not measured".to_owned(), |register| {
            let Register { bytes, verb, .. } = register;
            let mut text = format!("{} for {}", time(verb.median_ns), size(bytes));
            if bytes != 1 << 30 {
                let gib = verb.median_ns * (1u64 << 30) as f64 / bytes.max(1) as f64;
                text.push_str(&format!(" ({} per GiB)", time(gib)));
            }
            text
        })
    };
    // How much the claimed time suffices for, at the rate measured.
    let suffices = |id: &str, claimed_ns: f64| {
        row(id).and_then(|figures| figures.register).map_or(String::new(), |register| {
            let bytes = register.bytes as f64 * claimed_ns / register.verb.median_ns.max(1.0);
            format!("; here that is enough for {:.1} MiB", bytes / f64::from(1 << 20))
        })
    };
    let map = |id: &str| row(id).and_then(|f| f.map).map(|map| time(map.median_ns));
    let or_not = |text: Option<String>| text.unwrap_or_else(|| "not measured".to_owned());
    let mkeys = report.device.is_mkeys();
    let claim = |claim: &str, measured: String, why: &str| Claim {
        claim: claim.to_owned(),
        measured,
        why: why.to_owned(),
    };
    vec![
        claim(
            "1 GiB on 4 KiB pages registers in 185 us",
            registered("mr-4k"),
            &format!(
                "185 us would be 0.7 ns for each of 262,144 pages, each of which has to be looked \
                 up, counted and pinned{}. A NIC's table {}.",
                suffices("mr-4k", 185e3),
                if report.device.software { "comes on top" } else { "is in it" }
            ),
        ),
        claim(
            "1 GiB on 2 MiB pages registers in 12.6 us",
            registered("mr-2m"),
            if mkeys {
                "Pinning 512 huge pages is quick, and the software RNIC's table is one entry; a NIC \
                 adds firmware commands and a table entry a page (see --command-cost)."
            } else {
                "Pinning 512 huge pages is quick; the rest is the driver's, and on a NIC firmware \
                 commands. bench registration --stages tells them apart."
            },
        ),
        claim(
            "FRWR (another name of FRMR) maps in 250 ns",
            format!("{} (REG_MR of one entry + LOCAL_INV)", or_not(map("frmr-pool"))),
            if mkeys {
                "Here both are function calls that write a table in memory; on a NIC they are work \
                 requests that it fetches and executes. From user space there is no REG_MR of \
                 pages: mlx5's UMR lists lkeys of memory registered before."
            } else {
                "From user space there is no REG_MR of pages: mlx5's UMR lists lkeys of memory \
                 registered before, and other devices have nothing of the kind."
            },
        ),
        claim(
            "an ODP page fault costs 1.5 us",
            match (map("odp-first-touch"), map("odp-warm")) {
                (Some(fault), Some(warm)) => {
                    format!("{fault} (8-byte WRITE to an untouched page; {warm} once it is in)")
                }
                (fault, _) => or_not(fault),
            },
            if report.device.software {
                "Here the fault is the kernel's, taken on this CPU. A NIC's fault stalls the queue \
                 pair, interrupts the host and writes the NIC's table: not measured here."
            } else {
                "The fault stalls the queue pair, interrupts the host and writes the NIC's table."
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;

    #[test]
    fn what_is_mkeys_own_is_not_said_of_another_device() {
        let mut report = sample::report();
        for software in [true, false] {
            report.device.name = "other0".to_owned();
            report.device.software = software;
            for claim in beside(&report) {
                for word in ["the software RNIC", "--command-cost", "function calls"] {
                    assert!(!claim.why.contains(word), "{claim:?}");
                }
            }
        }
        assert!(beside(&report)[0].why.ends_with("A NIC's table is in it."));
    }

    #[test]
    fn figures_stand_beside_the_claims() {
        let mut report = sample::report();
        let claims = beside(&report);
        assert_eq!(claims[0].measured, "18.0ms for 1 GiB");
        assert!(claims[0].why.contains("; here that is enough for 10.5 MiB."), "{:?}", claims[0]);
        assert_eq!(claims[2].measured, "90.0ns (REG_MR of one entry + LOCAL_INV)");
        let register = sample::figures(&mut report, "mr-4k").register.as_mut().unwrap();
        register.bytes = 64 << 20;
        assert_eq!(beside(&report)[0].measured, "18.0ms for 64 MiB (288ms per GiB)");
        report.rows.clear();
        assert_eq!(beside(&report)[0].measured, "not measured");
        assert!(beside(&report)[0].why.contains("counted and pinned. A NIC"));
    }
}
