//! How a pair begins: who connects says who it is and hands over the memory and the doorbells.
#![allow(unsafe_code)]

use mkey_core::device::Gid;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// What is said first.
const MAGIC: [u8; 8] = *b"mkey-l4\n";
/// After that the port's address, and the block of numbers of the process that connects.
const LEN: usize = 8 + 16 + 4;
/// And with it the memory, the doorbell of who connects, and that of the other.
const FILES: usize = 3;

/// Descriptors that wake threads: ours waits on `own`, and that of the peer on `peer`.
#[derive(Debug)]
pub(super) struct Doorbells {
    pub(super) own: OwnedFd,
    pub(super) peer: OwnedFd,
}

impl Doorbells {
    pub(super) fn new() -> io::Result<Self> {
        // Nobody ever takes the counts out: a thread waits for the edge of each.
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { own: bell()?, peer: bell()? })
    }
}

/// Says who this process is.
pub(super) fn send(
    socket: &OwnedFd,
    gid: Gid,
    block: u32,
    memory: &OwnedFd,
    doorbells: &Doorbells,
) -> io::Result<()> {
    let mut hello = MAGIC.to_vec();
    hello.extend(gid.0);
    hello.extend(block.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [memory.as_fd(), doorbells.own.as_fd(), doorbells.peer.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&hello)], &mut control, flags)?;
    Ok(())
}

/// A process that has connected.
pub(super) struct Visitor {
    pub(super) process: Option<OwnedFd>,
    pub(super) gid: Gid,
    pub(super) block: u32,
    pub(super) memory: OwnedFd,
    pub(super) doorbells: Doorbells,
}

/// What came of listening to who has connected.
pub(super) enum Met {
    /// It has said nothing yet.
    Silent,
    /// There is no descriptor left for what it hands over: it goes on to wait.
    NoRoom,
    Visitor(Visitor),
    /// It has hung up, or does not belong here.
    Nobody,
}

/// Listens to who has connected.
pub(super) fn meet(socket: &OwnedFd) -> Met {
    match hear(socket, RecvFlags::PEEK) {
        Err(Errno::AGAIN) => return Met::Silent,
        Ok(Said { cut: true, files, .. }) if files.len() < FILES => return Met::NoRoom,
        // Those that were handed over on looking are closed again.
        _ => {}
    }
    listen(socket).map_or(Met::Nobody, Met::Visitor)
}

/// What was said.
struct Said {
    hello: [u8; LEN],
    length: usize,
    files: Vec<OwnedFd>,
    /// More files were handed over than there were descriptors for, or than there may be.
    cut: bool,
}

fn hear(socket: &OwnedFd, flags: RecvFlags) -> rustix::io::Result<Said> {
    let mut hello = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut hello)];
    let said = rustix::net::recvmsg(socket, &mut into, &mut control, flags)?;
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    let (files, cut) = (files.collect(), said.flags.contains(ReturnFlags::CTRUNC));
    Ok(Said { hello, length: said.bytes, files, cut })
}

fn listen(socket: &OwnedFd) -> Option<Visitor> {
    if credentials(socket)?.uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let Said { hello, length, files, .. } = hear(socket, RecvFlags::empty()).ok()?;
    let [memory, peer, own] = <[OwnedFd; FILES]>::try_from(files).ok()?;
    // Whoever rings is not to wait: a pipe may have to, and ends who writes to it when nobody reads.
    let kind = rustix::fs::fstat(&peer).ok()?.st_mode & libc::S_IFMT;
    if kind != 0 || !rustix::fs::fcntl_getfl(&peer).ok()?.contains(OFlags::NONBLOCK) {
        return None;
    }
    let (magic, rest) = hello.split_first_chunk::<8>()?;
    let (gid, block) = rest.split_first_chunk::<16>()?;
    if length != LEN || *magic != MAGIC {
        return None;
    }
    let block = u32::from_le_bytes(block.try_into().ok()?);
    let doorbells = Doorbells { own, peer };
    Some(Visitor { process: process_of(socket), gid: Gid(*gid), block, memory, doorbells })
}

/// The process at the other end, if it can be waited for.
pub(super) fn process_of(socket: &OwnedFd) -> Option<OwnedFd> {
    let pid = i32::try_from(pid_of(socket)?).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Its number; `None` for one outside of this namespace of processes.
pub(super) fn pid_of(socket: &OwnedFd) -> Option<u32> {
    u32::try_from(credentials(socket)?.pid).ok().filter(|&pid| pid != 0)
}

/// Not by `rustix`, whose type has no place for a number of 0.
fn credentials(socket: &OwnedFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: it writes at most so many bytes there, of a structure of plain numbers.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut peer).cast(), &raw mut size)
    };
    (done == 0).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A socket as a process that was connected to has it, and the other end.
    fn connected() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    fn memory() -> OwnedFd {
        rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
    }

    /// Says this, with so many files.
    fn say(socket: &OwnedFd, hello: &[u8], files: usize) {
        let memory = memory();
        let files = vec![memory.as_fd(); files];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let hello = [IoSlice::new(hello)];
        rustix::net::sendmsg(socket, &hello, &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn who_says_who_it_is_is_a_visitor() {
        let (own, peer) = connected();
        assert!(matches!(meet(&own), Met::Silent));
        let memory = memory();
        let doorbells = Doorbells::new().unwrap();
        send(&peer, Gid([7; 16]), 0x0102_0304, &memory, &doorbells).unwrap();
        let Met::Visitor(visitor) = meet(&own) else { panic!("it is one") };
        assert_eq!((visitor.gid, visitor.block), (Gid([7; 16]), 0x0102_0304));
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&visitor.memory), inode(&memory), "the memory that it has handed over");
        for (bell, other) in
            [(&visitor.doorbells.own, &doorbells.peer), (&doorbells.own, &visitor.doorbells.peer)]
        {
            rustix::io::write(bell, &1u64.to_ne_bytes()).unwrap();
            assert_eq!(
                rustix::io::read(other, &mut [0; 8]),
                Ok(8),
                "one rings what the other hears"
            );
        }
        assert!(matches!(meet(&own), Met::Silent), "there is nothing more");
    }

    #[test]
    fn who_says_anything_else_or_hangs_up_is_nobody() {
        let right = [&MAGIC[..], &[7; 16], &[0; 4]].concat();
        let mut hellos: Vec<_> = (0..FILES).map(|files| (right.clone(), files)).collect();
        // Its doorbells are none.
        hellos.push((right.clone(), FILES));
        hellos.push((b"mkey-l0\n".repeat(4)[..LEN].to_vec(), FILES));
        for length in 1..LEN {
            hellos.push((right[..length].to_vec(), FILES));
            hellos.push((vec![0xff; length], FILES + 1));
        }
        for (hello, files) in hellos {
            let (own, peer) = connected();
            say(&peer, &hello, files);
            assert!(matches!(meet(&own), Met::Nobody), "{hello:?} with {files} files");
        }
        let (own, peer) = connected();
        drop(peer);
        assert!(matches!(meet(&own), Met::Nobody));
    }
}
