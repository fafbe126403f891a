//! Starting a program with the library before its own.

use super::args::SoftArgs;
use super::library::{NAME, VARIABLE};
use super::program::About;
use crate::exit::End;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, absolute};
use std::process::{Command, Stdio};

/// The variable by which the loader is asked.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The program with its environment: so many devices, of this kind; these libraries before its own.
///
/// # Errors
/// `Failed` if the loader can not be told of a library.
pub fn command(
    (devices, args): (u8, &SoftArgs),
    program: &OsStr,
    arguments: &[OsString],
    libraries: &[&Path],
    about: &About,
) -> Result<Command, End> {
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(LD_PRELOAD, preload(libraries, about, env::var_os(LD_PRELOAD))?);
    command.env("MKEY_DEVICES", devices.to_string());
    command.env("MKEY_ADDRESS", args.address.to_string());
    command.env("MKEY_LINK", args.link.to_string());
    // The program may go to another folder.
    let capture = args.capture.as_ref().map(|path| absolute(path).unwrap_or_else(|_| path.clone()));
    let settings: [(&str, Option<OsString>); 5] = [
        ("MKEY_ONLY", args.only.then(|| "1".into())),
        ("MKEY_DIRECT", args.direct.then(|| "1".into())),
        ("MKEY_MTU", args.mtu.map(|bytes| bytes.to_string().into())),
        ("MKEY_FAULTS", args.faults.as_ref().map(OsString::from)),
        ("MKEY_CAPTURE", capture.map(OsString::from)),
    ];
    for (name, value) in settings {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("MKEY_PIN", args.pin.mode().to_string());
    command.env("MKEY_STALE", args.stale.to_string());
    command.env("MKEY_COMMAND_COST", format!("{}ns", args.command_cost.as_nanos()));
    match &args.refusals {
        // As above.
        Some(path) if path != "-" => {
            let path = absolute(path).map_or_else(|_| path.clone(), OsString::from);
            command.env("MKEY_REFUSALS", path);
        }
        Some(standard_error) => {
            command.env("MKEY_REFUSALS", standard_error);
        }
        None => {
            command.env_remove("MKEY_REFUSALS");
        }
    }
    Ok(command)
}

/// What the loader takes for the end of a name in its list, or for a name of its own.
const NOT_IN_A_NAME: [char; 5] = [':', ' ', '\t', '\n', '$'];

/// The list of libraries: a sanitizer's runtime first, as it asks for, then ours, then what was there.
fn preload(ours: &[&Path], about: &About, before: Option<OsString>) -> Result<OsString, End> {
    // Bytes that are no text stand for themselves.
    let untold = |library: &&&Path| library.to_string_lossy().contains(NOT_IN_A_NAME);
    if let Some(library) = ours.iter().find(untold) {
        return Err(End::failed(format_args!(
            "{}: the loader takes no library whose path has a space, a colon or a \"$\"; put {NAME} at \
             another place and name it in {VARIABLE}",
            library.display()
        )));
    }
    let before = before.unwrap_or_default();
    let is_ours = |name: &OsStr| ours.iter().any(|library| *library == name);
    let names = before.as_bytes().split(|&byte| b": ".contains(&byte)).map(OsStr::from_bytes);
    let (first, others): (Vec<_>, Vec<_>) =
        names.filter(|name| !name.is_empty() && !is_ours(name)).partition(|name| is_asan(name));
    let asan = about.asan.iter().map(OsString::as_os_str).filter(|name| !first.contains(name));
    let list: Vec<_> = first
        .iter()
        .copied()
        .chain(asan)
        .chain(ours.iter().map(|library| library.as_os_str()))
        .chain(others)
        .collect();
    Ok(list.join(OsStr::new(":")))
}

/// Whether a library is a sanitizer's runtime that asks to come first.
fn is_asan(library: &OsStr) -> bool {
    let name = Path::new(library).file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libasan.") || name.starts_with("libclang_rt.asan")
}

/// Has the loader load the library into a program of ours: it ends a program when it can not.
///
/// # Errors
/// `Failed`, with what the loader says.
pub fn check_loads(library: &Path) -> Result<(), End> {
    // Where that can not be tried there is nothing to say.
    let Ok(own) = env::current_exe() else { return Ok(()) };
    let mut command = Command::new(own);
    command.arg("--version").env(LD_PRELOAD, preload(&[library], &About::default(), None)?);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let Ok(output) = command.output() else { return Ok(()) };
    let said = String::from_utf8_lossy(&output.stderr);
    // One that is not there at all is left out, with a warning.
    if output.status.success() && !said.contains("cannot be preloaded") {
        return Ok(());
    }
    let mend = match said.contains("libibverbs.so.1") {
        true => {
            "; it is in the package libibverbs1 of Debian, Ubuntu and SUSE, libibverbs of others"
        }
        false => "",
    };
    Err(End::failed(format_args!("{} can not be loaded: {}{mend}", library.display(), said.trim())))
}

/// Takes the program's place: signals and the exit status are its own. Comes back only if that fails.
pub fn become_it(mut command: Command, program: &OsStr) -> End {
    let error = command.exec();
    not_begun(program, &error)
}

/// Why a program did not begin.
pub fn not_begun(program: &OsStr, error: &std::io::Error) -> End {
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    End::status(status, format_args!("{}: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sanitizer_comes_first_and_others_last() {
        let library = Path::new("/lib/ours.so");
        let list = |asan: Option<&str>, before: Option<&str>| {
            let about = About { asan: asan.map(OsString::from), ..About::default() };
            preload(&[library], &about, before.map(OsString::from)).unwrap()
        };
        assert_eq!(list(None, None), "/lib/ours.so");
        assert_eq!(list(None, Some("")), "/lib/ours.so");
        assert_eq!(
            list(Some("libasan.so.8"), Some("libjemalloc.so")),
            "libasan.so.8:/lib/ours.so:libjemalloc.so"
        );
        // One that was there already stays in front, and ours is there once.
        let before = "/lib/ours.so:libjemalloc.so /usr/lib/libasan.so.8";
        assert_eq!(list(None, Some(before)), "/usr/lib/libasan.so.8:/lib/ours.so:libjemalloc.so");
    }

    #[test]
    fn a_path_that_the_loader_would_not_take_is_refused() {
        for path in ["/a b/ours.so", "/a:b/ours.so", "/$LIB/ours.so"] {
            match preload(&[Path::new(path)], &About::default(), None) {
                Err(End::Failed(why)) => assert!(why.contains(path), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(preload(&[Path::new("/a-b_c.d/ours.so")], &About::default(), None).is_ok());
    }
}
