//! Starting a program with the library before its own.

use super::args::RunArgs;
use super::program::About;
use crate::exit::End;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, absolute};
use std::process::Command;

/// The variable by which the loader is asked.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// The program with its environment.
pub fn command(
    args: &RunArgs,
    program: &OsStr,
    arguments: &[OsString],
    library: &Path,
    about: &About,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(LD_PRELOAD, preload(library, about, env::var_os(LD_PRELOAD)));
    command.env("MKEY_DEVICES", args.devices.to_string());
    command.env("MKEY_ADDRESS", args.address.to_string());
    command.env("MKEY_ONLY", if args.only { "1" } else { "0" });
    command.env("MKEY_LINK", args.link.to_string());
    // The program may go to another folder.
    let capture = args.capture.as_ref().map(|path| absolute(path).unwrap_or_else(|_| path.clone()));
    let settings: [(&str, Option<OsString>); 3] = [
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
    command
}

/// The list of libraries: a sanitizer's runtime first, as it asks for, then ours, then what was there.
fn preload(library: &Path, about: &About, before: Option<OsString>) -> OsString {
    let mut list = OsString::new();
    if let Some(asan) = &about.asan {
        list.push(asan);
        list.push(":");
    }
    list.push(library);
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
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
            preload(library, &about, before.map(OsString::from))
        };
        assert_eq!(list(None, None), "/lib/ours.so");
        assert_eq!(list(None, Some("")), "/lib/ours.so");
        assert_eq!(
            list(Some("libasan.so.8"), Some("libjemalloc.so")),
            "libasan.so.8:/lib/ours.so:libjemalloc.so"
        );
    }
}
