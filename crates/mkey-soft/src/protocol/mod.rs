//! The protocol of packets between two queue pairs, as state machines: a [`Requester`] and a
//! [`Responder`] for each queue pair whose peer is reached by a link.
//!
//! They know no memory, no sockets and no clock. What arrives is handed to them with the time, what
//! they want sent is asked of them, and they say which bytes of which message a packet carries; the
//! queue pair moves those through the protection engine as it does for a peer in this process.
//! Sequence numbers are counted on without end inside, and are 24 bits on the wire
//! ([`sequence`]).
#![forbid(unsafe_code)]

mod replies;
mod requester;
mod responder;
mod retry;
mod sequence;
#[cfg(test)]
mod tests;

pub(crate) use replies::{Piece, Reply};
pub(crate) use requester::{Ending, Heard, Kind, Message, Next, Outgoing, Requester, Transport};
pub(crate) use responder::{Admit, Answered, Responder};
pub(crate) use retry::Patience;
