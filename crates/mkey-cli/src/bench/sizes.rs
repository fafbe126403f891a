//! Sizes as they are written on command lines.

/// Sizes in bytes, ascending, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<u64>);

/// Single sizes and ranges `A..B` that double from A to B, with commas between; each size as
/// `size` reads it.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_sizes(
    text: &str,
    size: impl Fn(&str) -> Result<u64, String>,
) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => sizes.push(size(part)?),
            Some((from, to)) => {
                let (from, to) = (size(from)?, size(to.trim_start_matches('='))?);
                if from > to {
                    return Err(format!("{part:?} ends below its beginning"));
                }
                let double = |size: &u64| size.checked_mul(2).filter(|size| *size <= to);
                sizes.extend(std::iter::successors(Some(from), double));
            }
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(Sizes(sizes))
}

/// Bytes in fio's manner: `k`, `m`, `g`, `t`, `p` and `e` are powers of 1024, also when written `kb` or
/// `KiB`. Fractions are cut off.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(format!("{text} is a negative number"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return Err(format!("{unit:?} is no unit: k, m, g, t, p or e, please")),
    };
    let no_number = "a number with a unit, as in 4k, please";
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().map_err(|_| no_number)?;
    if fraction.contains('.') {
        return Err(no_number.to_owned());
    }
    let fraction: f64 = format!("0.{fraction}").parse().map_err(|_| no_number)?;
    let unit = 1u64 << shift;
    // Below one unit.
    let rest = (fraction * unit as f64) as u64;
    let bytes = whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(rest));
    bytes.ok_or_else(|| "that is too much".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_k_is_1024_however_it_is_written() {
        for (text, bytes) in [
            ("512", 512),
            ("512B", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KiB", 4096),
            (" 4 KiB ", 4096),
            ("1m", 1 << 20),
            ("1.5GiB", 3 << 29),
            ("0.5k", 512),
            ("1PiB", 1 << 50),
            ("1EiB", 1 << 60),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "x", "4x", "-1k", "1.2.3k", ".5k", "1e3", "99999999999999999999k"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        for bad in ["18446744073709551615g", "16384p", "16e"] {
            assert_eq!(parse_bytes(bad), Err("that is too much".to_owned()), "{bad}");
        }
    }

    #[test]
    fn ranges_double() {
        let parsed = |text| parse_sizes(text, parse_bytes).map(|sizes| sizes.0);
        assert_eq!(parsed("4k..32k"), Ok(vec![4096, 8192, 16384, 32768]));
        assert_eq!(parsed("1m,4k..10k,4k"), Ok(vec![4096, 8192, 1 << 20]));
        for bad in ["", ",", "x", "1g..4k", "4k..", "..", "4k..8k..1m"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
