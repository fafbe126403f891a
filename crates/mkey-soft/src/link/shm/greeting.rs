//! How a pair begins: who connects says who it is and hands over the memory.

use mkey_core::device::Gid;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{PidfdFlags, pidfd_open};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

/// What is said first.
const MAGIC: [u8; 8] = *b"mkey-l2\n";
/// After that the port's address, and the block of numbers of the process that connects.
const LEN: usize = 8 + 16 + 4;

/// Says who this process is.
pub(super) fn send(socket: &OwnedFd, gid: Gid, block: u32, memory: &OwnedFd) -> io::Result<()> {
    let mut hello = MAGIC.to_vec();
    hello.extend(gid.0);
    hello.extend(block.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [memory.as_fd()];
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
}

/// What came of listening to who has connected.
pub(super) enum Met {
    /// It has said nothing yet.
    Silent,
    Visitor(Visitor),
    /// It has hung up, or does not belong here.
    Nobody,
}

/// Listens to who has connected.
pub(super) fn meet(socket: &OwnedFd) -> Met {
    let mut none = [0u8; 1];
    let peek = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    if let Err(Errno::AGAIN) = rustix::net::recv(socket, &mut none[..], peek) {
        return Met::Silent;
    }
    listen(socket).map_or(Met::Nobody, Met::Visitor)
}

fn listen(socket: &OwnedFd) -> Option<Visitor> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    if peer.uid != rustix::process::geteuid() {
        return None;
    }
    let mut hello = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut into = [IoSliceMut::new(&mut hello)];
    let said = rustix::net::recvmsg(socket, &mut into, &mut control, flags).ok()?;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })?;
    let (magic, rest) = hello.split_first_chunk::<8>()?;
    let (gid, block) = rest.split_first_chunk::<16>()?;
    if said.bytes != LEN || *magic != MAGIC {
        return None;
    }
    let block = u32::from_le_bytes(block.try_into().ok()?);
    Some(Visitor { process: process_of(socket), gid: Gid(*gid), block, memory })
}

/// The process at the other end, if it can be waited for.
pub(super) fn process_of(socket: &OwnedFd) -> Option<OwnedFd> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}
