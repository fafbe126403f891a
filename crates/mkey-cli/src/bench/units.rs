//! Figures as short text: three digits and a unit.

/// Nanoseconds as `0.42ns`, `83.1ns`, `1.24us`, `18.0ms`, `1.61s`: three digits.
pub fn time(ns: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
    if !ns.is_finite() || ns < 0.0 {
        return "?".to_owned();
    }
    // 999.6 ns would round to 1000ns: the next unit starts where three digits end.
    let (scale, unit) =
        UNITS.into_iter().find(|(scale, _)| ns >= scale * 0.9995).unwrap_or((1.0, "ns"));
    format!("{}{unit}", three_digits(ns / scale))
}

/// Bytes as `64 KiB`, `1 GiB`, `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} B"),
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
    }
}

/// Bytes a second as `12.3 GB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{} GB/s", three_digits(bytes_per_second / 1e9))
}

/// How often a second as `950`, `12.3k`, `1.23M`: three digits.
pub fn per_second(rate: f64) -> String {
    match rate {
        _ if !rate.is_finite() || rate < 0.0 => "?".to_owned(),
        0.0..999.5 => format!("{rate:.0}"),
        999.5..999_500.0 => format!("{}k", three_digits(rate / 1e3)),
        _ => format!("{}M", three_digits(rate / 1e6)),
    }
}

/// A count as `950`, `12k`, `3.4M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{}k", n / 1000),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0.0, "0.00ns"),
            (0.417, "0.42ns"),
            (83.14, "83.1ns"),
            (185.0, "185ns"),
            (999.4, "999ns"),
            (999.6, "1.00us"),
            (1240.0, "1.24us"),
            (18_000_000.0, "18.0ms"),
            (1.613e9, "1.61s"),
            (123.4e9, "123s"),
            (f64::NAN, "?"),
            (-1.0, "?"),
        ] {
            assert_eq!(time(ns), text, "{ns}");
        }
    }

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in [
            (0.0, "0"),
            (950.4, "950"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (999_600.0, "1.00M"),
            (1_234_567.0, "1.23M"),
            (f64::NAN, "?"),
            (-1.0, "?"),
        ] {
            assert_eq!(per_second(rate), text, "{rate}");
        }
    }

    #[test]
    fn sizes_rates_counts() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(64 << 10), "64 KiB");
        assert_eq!(size(1 << 30), "1 GiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(rate(12.34e9), "12.3 GB/s");
        assert_eq!(
            [count(950), count(12_345), count(3_400_000)],
            ["950".to_owned(), "12k".to_owned(), "3.4M".to_owned()]
        );
    }
}
