//! A network of the tests' own.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Moves this process, and those that it starts, to a network where it has the loopback device for
/// itself: processes that share an address share its UDP port, too, and the packets of another run
/// of these tests, which meets somewhere else, would be handed to this one.
///
/// # Errors
/// If it has not the right to do so, also as the one user of a world of its own: it stays where it is.
pub fn own() -> io::Result<()> {
    unshare(libc::CLONE_NEWNET).or_else(|_| {
        // SAFETY: these ask for numbers.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
    })?;
    loopback_up()
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: no other thread runs yet.
    match unsafe { libc::unshare(what) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: it makes a descriptor, or fails.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made just now and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: a structure of plain numbers, for which all zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: it reads the structure.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
