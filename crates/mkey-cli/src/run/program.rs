//! What kind of file a program is: whether a library can be loaded before its own.

use crate::exit::End;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
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
        let Ok(file) = fs::File::open(path) else { return Self::default() };
        // Programs may be large, and all that is of interest is at their beginning and end.
        let mut about = Self::of_data(&ReadCache::new(&file));
        let rights = match path.metadata().is_ok_and(|file| is_set_id(&file)) {
            true => Some("it takes the rights of its owner or group"),
            false => has_capabilities(path).then_some("its file gives it capabilities"),
        };
        if let (None, Some(rights)) = (&about.unreachable, rights) {
            let why = format!("{rights}, and the loader preloads nothing into such programs");
            about.unreachable = Some(why);
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

    fn of_data<'data>(data: impl ReadRef<'data>) -> Self {
        let of_another_kind = || "it is for a machine of another kind".to_owned();
        let Ok(header) = elf::FileHeader64::<object::Endianness>::parse(data) else {
            let is_elf = data.read_bytes_at(0, 4) == Ok(&elf::ELFMAG);
            return Self { unreachable: is_elf.then(of_another_kind), asan: None };
        };
        let machine = header.endian().map(|endian| header.e_machine(endian));
        match (machine, MACHINE) {
            (Ok(its), Some(ours)) if its != ours => {
                Self { unreachable: Some(of_another_kind()), asan: None }
            }
            _ => look(header, data).unwrap_or_default(),
        }
    }
}

/// The machine that this program is for, where it is known.
const MACHINE: Option<u16> = if cfg!(target_arch = "x86_64") {
    Some(elf::EM_X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(elf::EM_AARCH64)
} else {
    None
};

/// Whether the loader belongs to another C library than the one that the library is linked to.
fn is_foreign(loader: &[u8]) -> bool {
    let name = loader.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // musl's, and Android's.
    name.starts_with(b"ld-musl") || name == b"linker" || name == b"linker64"
}

/// Whether the program gets rights from its file. Who has all of them already takes none.
fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    !rustix::process::geteuid().is_root()
        && rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0)
}

fn is_set_id(file: &fs::Metadata) -> bool {
    const SET_ID: u32 = 0o6000;
    // Who has these rights already does not take them.
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    file.mode() & SET_ID != 0 && (file.uid() != user.as_raw() || file.gid() != group.as_raw())
}

const OF_GO: &str = "it is a Go program without the C library, and finds nothing in a library that is loaded into it";

/// Whether Go's linker made the file: by its note, which stays when a program is stripped of the table
/// of its sections, or by what its module is made of.
fn is_go<'data, R: ReadRef<'data>>(
    header: &'data elf::FileHeader64<object::Endianness>,
    endian: object::Endianness,
    bytes: R,
    segments: &'data [elf::ProgramHeader64<object::Endianness>],
) -> bool {
    let is_by_go = |segment: &elf::ProgramHeader64<object::Endianness>| {
        let Ok(Some(mut notes)) = segment.notes(endian, bytes) else { return false };
        std::iter::from_fn(|| notes.next().ok()?).any(|note| note.name() == b"Go")
    };
    segments.iter().any(is_by_go)
        || header
            .sections(endian, bytes)
            .is_ok_and(|sections| sections.section_by_name(endian, b".go.buildinfo").is_some())
}

/// `None` if the file is not as its header says.
fn look<'data, R: ReadRef<'data>>(
    header: &'data elf::FileHeader64<object::Endianness>,
    bytes: R,
) -> Option<About> {
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let loader = segments.iter().find_map(|segment| segment.interpreter(endian, bytes).ok()?);
    let Some(loader) = loader else {
        let why = match is_go(header, endian, bytes, segments) {
            true => OF_GO,
            false => "it is linked statically, and nothing can be loaded into it",
        };
        return Some(About { unreachable: Some(why.into()), asan: None });
    };
    if is_foreign(loader) {
        let loader = String::from_utf8_lossy(loader);
        let why = format!("its loader is {loader}, of another C library");
        return Some(About { unreachable: Some(why), asan: None });
    }
    let sections = header.sections(endian, bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let needed: Vec<_> = entries
        .iter()
        .filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED))
        .filter_map(|entry| strings.get(entry.val32(endian)?).ok())
        .collect();
    // Position-independent ones have a loader that only moves them.
    if needed.is_empty() && is_go(header, endian, bytes, segments) {
        return Some(About { unreachable: Some(OF_GO.into()), asan: None });
    }
    let asan = needed.iter().find(|name| name.starts_with(b"libasan.so"));
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
        assert_eq!(About::of_data(&b"#!/bin/sh\nexit 0\n"[..]), About::default());
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
        let why = About::of_data(&*bytes).unreachable.unwrap();
        assert!(why.contains("statically"), "{why}");
    }

    /// A program without a C library: a header, one segment of code, and if `go` the note that Go's
    /// linker leaves, of its build.
    fn without_the_c_library(go: bool) -> Vec<u8> {
        const HEADER: u16 = size_of::<elf::FileHeader64<object::NativeEndian>>() as u16;
        const SEGMENT: u16 = size_of::<elf::ProgramHeader64<object::NativeEndian>>() as u16;
        const BASE: u64 = 0x40_0000;
        let build = b"\x01\x02\x03\x04";
        let name = b"Go\0\0";
        let mut note = Vec::new();
        // The name's length counts its end; type 4 is that of a build.
        for word in [3, build.len() as u32, 4] {
            note.extend(word.to_ne_bytes());
        }
        note.extend(name);
        note.extend(build);
        let code = u64::from(HEADER) + 2 * u64::from(SEGMENT) + note.len() as u64;
        // exit_group(0), or what ends it as well.
        let ends: &[u8] = b"\x31\xff\xb8\xe7\x00\x00\x00\x0f\x05";
        let size = code + ends.len() as u64;

        let mut bytes = Vec::new();
        bytes.extend(elf::ELFMAG);
        let data = if cfg!(target_endian = "little") { elf::ELFDATA2LSB } else { elf::ELFDATA2MSB };
        bytes.extend([elf::ELFCLASS64, data, elf::EV_CURRENT]);
        bytes.resize(16, 0);
        let half = |bytes: &mut Vec<u8>, value: u16| bytes.extend(value.to_ne_bytes());
        let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_ne_bytes());
        let long = |bytes: &mut Vec<u8>, value: u64| bytes.extend(value.to_ne_bytes());
        half(&mut bytes, elf::ET_EXEC);
        half(&mut bytes, MACHINE.unwrap_or(elf::EM_NONE));
        word(&mut bytes, u32::from(elf::EV_CURRENT));
        long(&mut bytes, BASE + code);
        long(&mut bytes, u64::from(HEADER));
        long(&mut bytes, 0);
        word(&mut bytes, 0);
        for value in [HEADER, SEGMENT, 2, 0, 0, 0] {
            half(&mut bytes, value);
        }
        assert_eq!(bytes.len(), usize::from(HEADER));
        let start = u64::from(HEADER) + 2 * u64::from(SEGMENT);
        let kind = if go { elf::PT_NOTE } else { elf::PT_NULL };
        for (kind, flags, from, length) in [
            (elf::PT_LOAD, elf::PF_R | elf::PF_X, 0, size),
            (kind, elf::PF_R, start, note.len() as u64),
        ] {
            word(&mut bytes, kind);
            word(&mut bytes, flags);
            for value in [from, BASE + from, BASE + from, length, length, 4] {
                long(&mut bytes, value);
            }
        }
        bytes.extend(note);
        bytes.extend(ends);
        bytes
    }

    #[test]
    fn a_program_of_go_is_told_from_other_static_ones() {
        let why = |go| About::of_data(&*without_the_c_library(go)).unreachable.unwrap();
        assert!(why(true).contains("a Go program without the C library"), "{}", why(true));
        assert!(why(false).contains("linked statically"), "{}", why(false));
        // Wherever it is cut off, or a byte of it is another, it is looked at without harm.
        let whole = without_the_c_library(true);
        for at in 0..whole.len() {
            About::of_data(&whole[..at]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = whole.clone();
                other[at] = value;
                About::of_data(&*other);
            }
        }
    }

    /// It is run all the same: the programs that it starts may be reached.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_program_of_go_that_these_tests_make_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, without_the_c_library(true)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(About::of(&path).unreachable.unwrap().contains("Go"));
        // Another thread that forks just now may hold the file open for writing for a moment.
        let status =
            std::iter::repeat_with(|| std::process::Command::new(&path).status()).find(|status| {
                !status.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::ExecutableFileBusy)
            });
        assert!(status.unwrap().unwrap().success());
    }

    #[test]
    fn a_program_that_is_cut_off_is_nobody_s_fault() {
        let bytes = fs::read(env::current_exe().unwrap()).unwrap();
        for length in [4, 40, 64, 100, 1000] {
            About::of_data(&bytes[..length]);
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
    #[test]
    fn a_program_of_another_machine_or_c_library_is_not_reached() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        let mut other = own.clone();
        // `e_machine`: a machine that is none of the two.
        other[18..20].copy_from_slice(&elf::EM_RISCV.to_ne_bytes());
        let why = About::of_data(&*other).unreachable.unwrap();
        assert!(why.contains("another kind"), "{why}");

        let header = elf::FileHeader64::<object::Endianness>::parse(&*own).unwrap();
        let endian = header.endian().unwrap();
        let segments = header.program_headers(endian, &*own).unwrap();
        let segment = segments.iter().find(|s| s.p_type(endian) == elf::PT_INTERP).unwrap();
        let (at, len) = segment.file_range(endian);
        let (at, len) = (at as usize, len as usize);
        let mut other = own.clone();
        let name = b"/ld-musl.so.1\0";
        assert!(len >= name.len(), "the loader's name is short");
        other[at..at + len].fill(0);
        other[at..at + name.len()].copy_from_slice(name);
        let why = About::of_data(&*other).unreachable.unwrap();
        assert!(why.contains("/ld-musl.so.1, of another C library"), "{why}");
    }

    #[test]
    fn loaders_are_known_by_their_file_names() {
        for foreign in ["/lib/ld-musl-x86_64.so.1", "/system/bin/linker64", "/system/bin/linker"] {
            assert!(is_foreign(foreign.as_bytes()), "{foreign}");
        }
        let own = [
            "/lib64/ld-linux-x86-64.so.2",
            "/nix/store/x/lib/ld-linux-aarch64.so.1",
            "/x/ld-2.31.so",
        ];
        assert!(own.iter().all(|own| !is_foreign(own.as_bytes())));
    }
}
