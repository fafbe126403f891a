//! As in a container: an ordinary user, little locked memory, and a filter of system calls like Docker's.

use mkey_os::confine;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives up what a container does not have, and becomes the command. For a child of its own, which a test
/// is started again as. `memlock` is in bytes.
pub fn become_confined(command: &mut Command, memlock: u64) -> ! {
    confine::limit_memlock(memlock).unwrap();
    if rustix::process::geteuid().is_root() {
        confine::become_user(confine::NOBODY).unwrap();
    }
    confine::docker_seccomp().unwrap();
    let error = command.exec();
    panic!("{command:?}: {error}");
}
