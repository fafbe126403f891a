//! Which kernel runs.

/// Its release, as in `6.1.0-50-amd64`, where it tells.
pub fn release() -> Option<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned())
}

/// Major and minor version of a release; `None` for what is none.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_of_a_version() {
        for (release, of) in [
            ("6.1.0-50-amd64", Some((6, 1))),
            ("6.18.44-fc-v857", Some((6, 18))),
            ("7.3.4+deb13-amd64", Some((7, 3))),
            ("7.3+deb13-amd64", Some((7, 3))),
            ("7.3-rc1", Some((7, 3))),
            ("5.12", Some((5, 12))),
            ("seven", None),
            ("7", None),
            ("", None),
        ] {
            assert_eq!(version(release), of, "{release}");
        }
        assert!(release().is_some_and(|release| version(&release).is_some()));
    }
}
