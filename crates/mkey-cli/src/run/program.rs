//! What kind of file a program is: whether a library can be loaded before its own.

use crate::exit::End;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Write, stderr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What is of interest in a program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Why the library will not be loaded into it, if that can be told.
    pub unreachable: Option<String>,
    /// The address sanitizer's runtime, which has to be the first library of all.
    pub asan: Option<OsString>,
}

/// The file that the shell would run for this name.
///
/// # Errors
/// `Status` 127 if there is none, 126 if there are some that may not be run.
pub fn find(program: &OsStr) -> Result<PathBuf, End> {
    let shown = program.display();
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let places: Vec<PathBuf> = match program.as_bytes().contains(&b'/') {
        true => vec![program.into()],
        false => {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path).map(|folder| folder.join(program)).collect()
        }
    };
    if let Some(found) = places.iter().find(|path| is_program(path)) {
        return Ok(found.clone());
    }
    match places.iter().find(|path| path.exists()) {
        Some(path) => {
            Err(End::status(126, format_args!("{}: not a program that may be run", path.display())))
        }
        None => Err(End::status(127, format_args!("{shown}: no such program"))),
    }
}

impl About {
    /// Looks into a file. What is not to be told, such as of a script, is nothing to say.
    pub fn of(path: &Path) -> Self {
        let Ok(bytes) = fs::read(path) else { return Self::default() };
        let mut about = Self::of_bytes(&bytes);
        if about.unreachable.is_none() && path.metadata().is_ok_and(|file| is_set_id(&file)) {
            let why = "it takes the rights of its owner or group, and the loader preloads nothing \
                       into such programs";
            about.unreachable = Some(why.into());
        }
        about
    }

    /// Tells standard error of what can not be reached.
    pub fn warn(&self) {
        if let Some(why) = &self.unreachable {
            // If standard error is closed there is nobody to tell.
            let _ = writeln!(
                stderr(),
                "mkey: the program itself will find no device of mkey's: {why}; the programs that it \
                 starts may"
            );
        }
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let Ok(header) = elf::FileHeader64::<object::Endianness>::parse(bytes) else {
            let unreachable = is_elf(bytes).then(|| "it is for a machine of another kind".into());
            return Self { unreachable, asan: None };
        };
        look(header, bytes).unwrap_or_default()
    }
}

fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

fn is_set_id(file: &fs::Metadata) -> bool {
    const SET_ID: u32 = 0o6000;
    // Who has these rights already does not take them.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    file.mode() & SET_ID != 0 && (file.uid() != user.as_raw() || file.gid() != group.as_raw())
}

/// `None` if the file is not as its header says.
fn look(header: &elf::FileHeader64<object::Endianness>, bytes: &[u8]) -> Option<About> {
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let interpreted = segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    if !interpreted {
        let go = header
            .sections(endian, bytes)
            .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some());
        let why = match go {
            true => "it is a Go program without the C library, into which nothing can be loaded",
            false => "it is linked statically, and nothing can be loaded into it",
        };
        return Some(About { unreachable: Some(why.into()), asan: None });
    }
    let sections = header.sections(endian, bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let asan = entries
        .iter()
        .filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED))
        .filter_map(|entry| entry.string(endian, strings).ok())
        .find(|name| name.starts_with(b"libasan.so"));
    let asan = asan.map(|name| OsString::from_vec(name.to_vec()));
    Some(About { unreachable: None, asan })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_is_reached() {
        assert_eq!(About::of(&env::current_exe().unwrap()), About::default());
    }

    #[test]
    fn a_script_is_reached_by_its_interpreter() {
        assert_eq!(About::of_bytes(b"#!/bin/sh\nexit 0\n"), About::default());
    }

    #[test]
    fn a_program_without_a_loader_is_not_reached() {
        let mut bytes = fs::read(env::current_exe().unwrap()).unwrap();
        let header = elf::FileHeader64::<object::Endianness>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let segments = header.program_headers(endian, &*bytes).unwrap();
        let at = segments.iter().position(|s| s.p_type(endian) == elf::PT_INTERP).unwrap();
        let at = header.e_phoff.get(endian) as usize + at * size_of_val(&segments[0]);
        // PT_NULL.
        bytes[at..at + 4].fill(0);
        let why = About::of_bytes(&bytes).unreachable.unwrap();
        assert!(why.contains("statically"), "{why}");
    }

    #[test]
    fn a_program_that_is_cut_off_is_nobody_s_fault() {
        let bytes = fs::read(env::current_exe().unwrap()).unwrap();
        for length in [4, 40, 64, 100, 1000] {
            About::of_bytes(&bytes[..length]);
        }
    }

    #[test]
    fn what_is_no_program_is_told_from_what_is_not_there() {
        let status = |name: &str| match find(name.as_ref()) {
            Err(End::Status(status, _)) => status,
            other => panic!("{other:?}"),
        };
        assert_eq!(status("no-such-program-anywhere"), 127);
        assert_eq!(status("/no/such/program"), 127);
        assert_eq!(status("/etc/passwd"), 126);
        assert!(find("sh".as_ref()).unwrap().is_absolute());
    }
}
