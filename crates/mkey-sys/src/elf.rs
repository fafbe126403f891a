//! For which machine a library was built: the first bytes of an ELF file.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The machine of this program, as its own file says.
fn own() -> Option<Machine> {
    machine(Path::new("/proc/self/exe")).ok()
}

/// The machine that a file is for, if it is another than this program's.
pub(crate) fn foreign(path: &Path) -> io::Result<Option<Machine>> {
    let found = machine(path)?;
    Ok(own().is_some_and(|own| own != found).then_some(found))
}

/// A kind of machine, as ELF files number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The width of a pointer: 32 or 64.
    pub bits: u8,
    /// `e_machine`.
    pub number: u16,
}

impl Machine {
    const X86: u16 = 3;
    const ARM: u16 = 40;
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number, self.bits) {
            (Self::X86, _) => f.write_str("x86 (32 bits)"),
            (Self::ARM, _) => f.write_str("ARM (32 bits)"),
            (Self::X86_64, 32) => f.write_str("x86-64 with 32-bit pointers"),
            (Self::X86_64, _) => f.write_str("x86-64"),
            (Self::AARCH64, _) => f.write_str("aarch64"),
            (number, bits) => write!(f, "machine {number} ({bits} bits)"),
        }
    }
}

/// The machine that a file is for.
fn machine(path: &Path) -> io::Result<Machine> {
    let mut header = [0; 20];
    File::open(path)?.read_exact(&mut header)?;
    parse(&header).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an ELF file"))
}

fn parse(header: &[u8; 20]) -> Option<Machine> {
    let [0x7f, b'E', b'L', b'F', class, order, .., low, high] = *header else { return None };
    let bits = match class {
        1 => 32,
        2 => 64,
        _ => return None,
    };
    let number = match order {
        1 => u16::from_le_bytes([low, high]),
        2 => u16::from_be_bytes([low, high]),
        _ => return None,
    };
    Some(Machine { bits, number })
}

/// A library of this name for another machine, where distributions put libraries below `root`.
pub(crate) fn of_other_architecture(root: &Path, soname: &str) -> Option<(PathBuf, Machine)> {
    let plain = ["lib", "lib32", "lib64", "libx32"].map(|folder| root.join("usr").join(folder));
    let per_machine = fs::read_dir(root.join("usr/lib")).into_iter().flatten();
    let per_machine = per_machine.filter_map(|entry| Some(entry.ok()?.path()));
    plain.into_iter().chain(per_machine.filter(|path| path.is_dir())).find_map(|folder| {
        let path = folder.join(soname);
        let found = foreign(&path).ok()??;
        Some((path, found))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a library for 64-bit `number`.
    fn header(number: u16) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        bytes.extend([3, 0]);
        bytes.extend(number.to_le_bytes());
        bytes
    }

    #[test]
    fn this_program_is_for_this_machine() {
        assert!(own().is_some());
        assert_eq!(foreign(&std::env::current_exe().unwrap()).unwrap(), None);
    }

    #[test]
    fn machines_are_named() {
        let named =
            |number| parse(header(number).as_slice().try_into().unwrap()).unwrap().to_string();
        assert_eq!(named(Machine::AARCH64), "aarch64");
        assert_eq!(named(Machine::X86_64), "x86-64");
        assert_eq!(named(243), "machine 243 (64 bits)");
    }

    #[test]
    fn what_is_no_elf_file_has_no_machine() {
        for bytes in [*b"#!/bin/sh\nexit 0 0 0", *b"\x7fELF\x09\x01aaaaaaaaaaaaaa", [0; 20]] {
            assert_eq!(parse(&bytes), None);
        }
        assert!(machine(Path::new("/dev/null")).is_err(), "too short");
    }

    #[test]
    fn only_a_library_for_another_machine_is_of_another_architecture() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str, number| {
            let folder = root.path().join("usr").join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libx.so.1"), header(number)).unwrap();
        };
        put("lib64", own().unwrap().number);
        assert_eq!(of_other_architecture(root.path(), "libx.so.1"), None);
        put("lib/riscv64-linux-gnu", 243);
        let (path, found) = of_other_architecture(root.path(), "libx.so.1").unwrap();
        assert!(path.ends_with("usr/lib/riscv64-linux-gnu/libx.so.1"));
        assert_eq!(found, Machine { bits: 64, number: 243 });
        assert_eq!(of_other_architecture(root.path(), "liby.so.1"), None);
    }
}
