//! Work requests over slices.

use crate::lease::{Lease, Step};
use crate::mw;
use crate::remote::RemoteKey;
use crate::slice::Slice;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use mkey_core::work::{SendFlags, SendOp, UdDest};
use std::sync::Arc;

/// A send work request. What it names stays alive until its completion has been polled.
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing before it is posted"]
pub struct Work<'a> {
    pub(crate) id: u64,
    pub(crate) op: SendOp<'a>,
    pub(crate) data: Data<'a>,
    pub(crate) flags: SendFlags,
    pub(crate) dest: Option<UdDest>,
    /// What the peer's memory must be long enough for.
    pub(crate) remote: Option<RemoteKey>,
    /// One of the library's own: who hears of it, instead of the user.
    pub(crate) own: Option<Own<'a>>,
    /// Nothing is to be posted: what it is about needs no work request.
    pub(crate) idle: bool,
}

/// The local side of the data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    Slices(&'a [Slice]),
    Inline(&'a [u8]),
}

/// Who hears how a work request of the library's own ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Own<'a> {
    Lease(Hook<'a>),
    Window(&'a Arc<mw::Inner>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook<'a> {
    pub(crate) lease: &'a Arc<Lease>,
    pub(crate) step: Step,
    /// Which of its handles.
    pub(crate) turn: u32,
    /// The lease has been asked, and reckons with it.
    pub(crate) claimed: bool,
}

impl<'a> Work<'a> {
    fn new(op: SendOp<'a>, data: Data<'a>) -> Self {
        let flags = SendFlags::SIGNALED;
        Self { id: 0, op, data, flags, dest: None, remote: None, own: None, idle: false }
    }

    /// SEND of a slice, or of several one after the other.
    pub fn send(from: &'a (impl AsRef<[Slice]> + ?Sized)) -> Self {
        Self::new(SendOp::Send, Data::Slices(from.as_ref()))
    }

    /// SEND of bytes that are copied at posting, not registered: up to the queue pair's
    /// `max_inline`.
    pub fn send_inline(bytes: &'a [u8]) -> Self {
        Self::new(SendOp::Send, Data::Inline(bytes))
    }

    /// With immediate data, for SEND and RDMA WRITE; of no effect on others.
    pub fn immediate(mut self, value: u32) -> Self {
        self.op = match self.op {
            SendOp::Send => SendOp::SendImm(value),
            SendOp::Write(remote) => SendOp::WriteImm(remote, value),
            other => other,
        };
        self
    }

    /// A SEND that also ends a grant or a fast registration of the receiver, by its remote key
    /// (R-INV-12); of no effect on others.
    pub fn invalidating(mut self, key: Rkey) -> Self {
        if let SendOp::Send = self.op {
            self.op = SendOp::SendInv(key);
        }
        self
    }

    /// RDMA WRITE of a slice, or of several one after the other.
    pub fn write(from: &'a (impl AsRef<[Slice]> + ?Sized), to: RemoteKey) -> Self {
        let work = Self::new(SendOp::Write(to.remote()), Data::Slices(from.as_ref()));
        Self { remote: Some(to), ..work }
    }

    /// RDMA WRITE of bytes that are copied at posting, not registered.
    pub fn write_inline(bytes: &'a [u8], to: RemoteKey) -> Self {
        let work = Self::new(SendOp::Write(to.remote()), Data::Inline(bytes));
        Self { remote: Some(to), ..work }
    }

    /// RDMA READ of all of the slices' bytes, into one or several.
    pub fn read(into: &'a (impl AsRef<[Slice]> + ?Sized), from: RemoteKey) -> Self {
        let work = Self::new(SendOp::Read(from.remote()), Data::Slices(into.as_ref()));
        Self { remote: Some(from), ..work }
    }

    /// Adds to the first 8 bytes of `remote`; `old`, 8 bytes, gets what was there.
    pub fn fetch_add(old: &'a Slice, remote: RemoteKey, add: u64) -> Self {
        let op = SendOp::FetchAdd { remote: remote.remote(), add };
        let work = Self::new(op, Data::Slices(std::slice::from_ref(old)));
        Self { remote: Some(remote), ..work }
    }

    /// Swaps the first 8 bytes of `remote` if they are `compare`; `old`, 8 bytes, gets what was
    /// there.
    pub fn compare_swap(old: &'a Slice, remote: RemoteKey, compare: u64, swap: u64) -> Self {
        let op = SendOp::CompareSwap { remote: remote.remote(), compare, swap };
        let work = Self::new(op, Data::Slices(std::slice::from_ref(old)));
        Self { remote: Some(remote), ..work }
    }

    /// One of the library's own: `hook` hears how it ends.
    pub(crate) fn own(op: SendOp<'a>, hook: Hook<'a>) -> Self {
        Self { own: Some(Own::Lease(hook)), ..Self::new(op, Data::Slices(&[])) }
    }

    /// Binds or unbinds a window of type 1, which hears how it ends.
    pub(crate) fn of_window(op: SendOp<'a>, window: &'a Arc<mw::Inner>) -> Self {
        Self { own: Some(Own::Window(window)), ..Self::new(op, Data::Slices(&[])) }
    }

    /// One that is not posted.
    pub(crate) fn idle() -> Self {
        Self { idle: true, ..Self::new(SendOp::Send, Data::Slices(&[])) }
    }

    pub(crate) fn flags(self, flags: SendFlags) -> Self {
        Self { flags, ..self }
    }

    /// Comes back in the completion.
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// No completion when it succeeds. Its place in the queue, and what it names, are free once a
    /// completion of later signaled work of that queue pair has been polled: a queue of unsignaled
    /// work alone fills up.
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Starts after all earlier READs and atomics are done (R-ORD-01).
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// The receiver's completion is a solicited event.
    pub fn solicited(mut self) -> Self {
        self.flags.insert(SendFlags::SOLICITED);
        self
    }

    /// Where a datagram goes: unreliable datagrams only.
    pub fn to(mut self, dest: UdDest) -> Self {
        self.dest = Some(dest);
        self
    }

    /// Refuses what would run past the end of the peer's memory, before the device is asked.
    pub(crate) fn fits(&self) -> Result<()> {
        let Some(remote) = self.remote else { return Ok(()) };
        let length = match (self.op, self.data) {
            (SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }, _) => 8,
            (_, Data::Slices(slices)) => {
                slices.iter().fold(0u64, |sum, slice| sum.saturating_add(slice.len as u64))
            }
            (_, Data::Inline(bytes)) => bytes.len() as u64,
        };
        if length <= remote.length {
            return Ok(());
        }
        let what = format_args!("{length} bytes, of the peer's {}", remote.length);
        let reason = Reason::OutOfRange { address: remote.address, length };
        Err(Error::new("post_send", what, reason))
    }
}

/// A receive work request. Its slices stay alive until its completion has been polled.
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing before it is posted"]
pub struct Recv<'a> {
    pub(crate) id: u64,
    pub(crate) into: &'a [Slice],
}

impl<'a> Recv<'a> {
    /// A message may land in this slice, or in these, in their order.
    pub fn new(into: &'a (impl AsRef<[Slice]> + ?Sized)) -> Self {
        Self { id: 0, into: into.as_ref() }
    }

    /// Comes back in the completion.
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }
}
