//! The four mechanisms, placed by this run's figures.

use super::report::{Figures, Mechanism, Report};

/// A time as an order of magnitude, in words.
pub fn class(ns: f64) -> &'static str {
    match ns {
        _ if ns.is_nan() => "unknown",
        _ if ns < 10.0 => "nanoseconds",
        _ if ns < 100.0 => "tens of ns",
        _ if ns < 1e3 => "hundreds of ns",
        _ if ns < 1e4 => "microseconds",
        _ if ns < 1e5 => "tens of us",
        _ if ns < 1e6 => "hundreds of us",
        _ if ns < 1e7 => "milliseconds",
        _ if ns < 1e8 => "tens of ms",
        _ if ns < 1e9 => "hundreds of ms",
        _ => "seconds",
    }
}

const NOT_MEASURED: &str = "not measured";

/// The class of a figure of a row.
fn of(report: &Report, id: &str, figure: impl Fn(&Figures) -> Option<f64>) -> &'static str {
    report.figures(id).and_then(figure).map_or(NOT_MEASURED, class)
}

/// The mechanisms, from the rows of `report`.
pub fn place(report: &Report) -> Vec<Mechanism> {
    let verb = |figures: &Figures| figures.register.map(|register| register.verb.median_ns);
    let map = |figures: &Figures| figures.map.map(|map| map.median_ns);
    let allocate = |figures: &Figures| figures.allocate.map(|allocate| allocate.median_ns);
    let whole = super::units::size(report.memory.bytes);
    let small = super::units::size(report.io.bytes);
    let mechanism = |name: &str, what_for: &str, cost: String, needs: &str| Mechanism {
        name: name.to_owned(),
        what_for: what_for.to_owned(),
        cost,
        needs: needs.to_owned(),
    };
    vec![
        mechanism(
            "MR",
            "buffers that live long: register once, in huge pages, and reuse (a pool, a cache)",
            format!(
                "{whole}: {} on 4 KiB pages, {} on 2 MiB; {small} there and back: {}",
                of(report, "mr-4k", verb),
                of(report, "mr-2m", verb),
                of(report, "mr-per-io", map)
            ),
            "any RDMA device",
        ),
        mechanism(
            "MW type 2",
            "a peer's access to part of an MR for one request, revoked before the buffer is reused",
            format!(
                "allocate: {}; bind + invalidate: {}",
                of(report, "mw-type2", allocate),
                of(report, "mw-type2", map)
            ),
            "a NIC with type 2B windows (ConnectX, soft-RoCE); libibverbs",
        ),
        mechanism(
            "FRMR",
            "scattered buffers as one range under a key of their own, for one request",
            format!(
                "allocate: {}; register + invalidate: {}",
                of(report, "frmr-pool", allocate),
                of(report, "frmr-pool", map)
            ),
            "memory management extensions: in the kernel any such NIC (REG_MR), from user space \
             mlx5 (UMR by mlx5dv), which lists lkeys, not pages",
        ),
        mechanism(
            "ODP",
            "memory too large or too varied to pin, where rare slow accesses are acceptable",
            format!(
                "{whole}: {}; page fault: {}; prefetch of {small}: {}",
                of(report, "odp-first-touch", verb),
                of(report, "odp-first-touch", map),
                of(report, "odp-prefetch", map)
            ),
            "a NIC with ODP (mlx5) or soft-RoCE of Linux 6.15 (explicit only)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;

    #[test]
    fn classes_are_orders_of_magnitude() {
        for (ns, expected) in [
            (0.0, "nanoseconds"),
            (9.9, "nanoseconds"),
            (10.0, "tens of ns"),
            (250.0, "hundreds of ns"),
            (1_000.0, "microseconds"),
            (16_000.0, "tens of us"),
            (185_000.0, "hundreds of us"),
            (1e6, "milliseconds"),
            (18e6, "tens of ms"),
            (242e6, "hundreds of ms"),
            (1e9, "seconds"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(class(ns), expected, "{ns}");
        }
    }

    #[test]
    fn classes_follow_the_figures() {
        let mut report = sample::report();
        let window = |report: &Report| place(report)[1].cost.clone();
        assert_eq!(window(&report), "allocate: hundreds of ns; bind + invalidate: tens of ns");
        sample::figures(&mut report, "mw-type2").map.as_mut().unwrap().median_ns = 2_000.0;
        assert_eq!(window(&report), "allocate: hundreds of ns; bind + invalidate: microseconds");
        report.rows.clear();
        assert_eq!(window(&report), "allocate: not measured; bind + invalidate: not measured");
    }
}
