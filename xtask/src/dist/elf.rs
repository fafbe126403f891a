//! What a binary asks of the C library, and what it exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym};

/// The highest version of glibc's symbols that a binary needs.
///
/// # Errors
/// If it cannot be read, needs none at all, or needs a version that is no number, such as those of
/// glibc's own programs.
pub fn needed_glibc(path: &Path) -> Result<(u32, u32)> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let needed = needed_versions(&bytes).with_context(|| path.display().to_string())?;
    let highest = highest_glibc(needed.iter().map(String::as_str))?;
    highest.with_context(|| format!("{} needs no version of glibc", path.display()))
}

fn needed_versions(bytes: &[u8]) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let Some((mut libraries, strings)) = sections.gnu_verneed(endian, bytes)? else {
        return Ok(Vec::new());
    };
    let strings = sections.strings(endian, bytes, strings)?;
    let mut needed = Vec::new();
    while let Some((_, mut versions)) = libraries.next()? {
        while let Some(version) = versions.next()? {
            needed.push(String::from_utf8_lossy(version.name(endian, strings)?).into_owned());
        }
    }
    Ok(needed)
}

fn highest_glibc<'a>(versions: impl Iterator<Item = &'a str>) -> Result<Option<(u32, u32)>> {
    let mut highest = None;
    for version in versions {
        let Some(number) = version.strip_prefix("GLIBC_") else { continue };
        let mut parts = number.splitn(3, '.').map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => highest = highest.max(Some((major, minor))),
            _ => bail!("{version} is no version of glibc's"),
        }
    }
    Ok(highest)
}

/// What a library exports: names, versions, and whether each is the default one.
pub fn exports(path: &Path) -> Result<BTreeSet<(String, String, bool)>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let header = FileHeader64::<Endianness>::parse(&*bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, &*bytes)?;
    let symbols = sections.symbols(endian, &*bytes, elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, &*bytes)?.context("no symbol has a version")?;
    let mut exports = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        // A version itself is an absolute symbol.
        if symbol.is_undefined(endian) || symbol.is_absolute(endian) || symbol.is_local() {
            continue;
        }
        let place = versions.version_index(endian, index);
        let version = versions.version(place)?.map_or(&b""[..], |version| version.name());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = text(symbol.name(endian, symbols.strings())?);
        exports.insert((name, text(version), !place.is_hidden()));
    }
    ensure!(!exports.is_empty(), "{} exports nothing", path.display());
    Ok(exports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let versions = ["GLIBC_2.2.5", "GCC_3.0", "GLIBC_2.28", "GLIBC_2.9", "IBVERBS_1.15"];
        assert_eq!(highest_glibc(versions.into_iter()).unwrap(), Some((2, 28)));
        assert_eq!(highest_glibc(["GCC_3.0"].into_iter()).unwrap(), None);
        assert!(highest_glibc(["GLIBC_PRIVATE"].into_iter()).is_err());
        assert!(highest_glibc(["GLIBC_ABI_DT_RELR"].into_iter()).is_err());
    }

    #[test]
    fn a_program_of_this_machine_needs_its_c_library() {
        let needed = needed_glibc(&std::env::current_exe().unwrap()).unwrap();
        assert!(needed > (2, 0), "{needed:?}");
    }
}
