//! Runs a command as a container would: `under_docker_seccomp [--user nobody|ID]
//! [--memlock BYTES] [--no-seccomp] -- COMMAND [ARGUMENT...]`.
//!
//! Exit status: the command's; 125 if it could not be confined or started, as `docker run` does.

use std::process::ExitCode;
#[cfg(target_arch = "x86_64")]
use {
    mkey_os::confine, std::ffi::OsString, std::os::unix::process::CommandExt, std::process::Command,
};

#[cfg(not(target_arch = "x86_64"))]
fn main() -> ExitCode {
    eprintln!("under_docker_seccomp: the profile is written for x86-64 only");
    ExitCode::from(125)
}

#[cfg(target_arch = "x86_64")]
fn main() -> ExitCode {
    // Only on failure does it come back.
    let Err(message) = confined_exec(std::env::args_os().skip(1));
    eprintln!("under_docker_seccomp: {message}");
    ExitCode::from(125)
}

#[cfg(target_arch = "x86_64")]
fn confined_exec(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<std::convert::Infallible, String> {
    let (mut user, mut memlock, mut seccomp) = (None, None, true);
    loop {
        let option = arguments.next().ok_or("no command; separate it by --")?;
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or_else(|| format!("{} wants a value", option.display()))
        };
        match option.to_str() {
            Some("--user") => {
                let name = value()?;
                let id = if name == "nobody" { Ok(confine::NOBODY) } else { name.parse() };
                user = Some(id.map_err(|_| format!("{name} is neither nobody nor an id"))?);
            }
            Some("--memlock") => {
                let bytes = value()?;
                let bytes = bytes.parse().map_err(|_| format!("{bytes} is no number of bytes"))?;
                memlock = Some(bytes);
            }
            Some("--no-seccomp") => seccomp = false,
            Some("--") => break,
            _ => return Err(format!("unknown option {}", option.display())),
        }
    }
    let program = arguments.next().ok_or("no command after --")?;
    if let Some(bytes) = memlock {
        confine::limit_memlock(bytes).map_err(|error| error.to_string())?;
    }
    if let Some(id) = user {
        confine::become_user(id).map_err(|error| error.to_string())?;
    }
    if seccomp {
        confine::docker_seccomp().map_err(|error| error.to_string())?;
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(format!("{}: {error}", program.display()))
}
