//! The part of a queue pair's state that its peers read without a lock, in one word.

use crate::link::lease;
use mkey_core::queue_pair::QpState;
use mkey_core::rights::{Rights, Want};
use std::sync::atomic::{AtomicU64, Ordering};

const STATE: u64 = 0xf;
/// READs and atomics may come in (`max_dest_rd_atomic` is not 0).
const READS: u64 = 1 << 4;
/// A first message has come while the state was RTR.
const ESTABLISHED: u64 = 1 << 5;
const DESTROYED: u64 = 1 << 6;
const RIGHTS_SHIFT: u32 = 8;
const EPOCH_SHIFT: u32 = 32;

/// State, rights, and how often the connection was made anew.
#[derive(Debug)]
pub(crate) struct Gate(AtomicU64);

/// A queue pair's connection as a message found it, which may end before the message does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection<'a> {
    gate: &'a Gate,
    epoch: u32,
}

impl Connection<'_> {
    /// Whether the queue pair takes messages still, and the same ones.
    #[inline(always)]
    pub(crate) fn holds(self) -> bool {
        let view = self.gate.view();
        view.receives() && view.epoch() == self.epoch
    }

    /// Whether the queue pair is in ERR, and has not been made anew since.
    pub(crate) fn failed(self) -> bool {
        let view = self.gate.view();
        view.state() == QpState::Err && view.epoch() == self.epoch
    }
}

/// The word as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View(u64);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View {
        View(self.0.load(Ordering::Acquire))
    }

    /// The connection that was made then.
    #[inline(always)]
    pub(crate) fn connection(&self, epoch: u32) -> Connection<'_> {
        Connection { gate: self, epoch }
    }

    /// Changes the word; called with the receive side locked.
    pub(crate) fn change(&self, change: impl Fn(View) -> View) {
        let update = |word| Some(change(View(word)).0);
        if let Ok(word) = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, update) {
            let before = View(word);
            if before.is_ended_by(change(before)) {
                // What peers may do by themselves was allowed as it was before.
                lease::end();
            }
        }
    }

    /// Notes the first message; whether this was it.
    pub(crate) fn establish(&self) -> bool {
        self.0.fetch_or(ESTABLISHED, Ordering::AcqRel) & ESTABLISHED == 0
    }
}

impl View {
    #[inline(always)]
    pub(crate) fn state(self) -> QpState {
        match self.0 & STATE {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::Rtr,
            3 => QpState::Rts,
            4 => QpState::Sqd,
            5 => QpState::Sqe,
            _ => QpState::Err,
        }
    }

    /// Whether messages are taken in.
    #[inline(always)]
    pub(crate) fn receives(self) -> bool {
        matches!(self.0 & STATE, 2..=5) && self.0 & DESTROYED == 0
    }

    pub(crate) fn destroyed(self) -> bool {
        self.0 & DESTROYED != 0
    }

    #[inline(always)]
    pub(crate) fn allows(self, want: Want) -> bool {
        (self.0 >> RIGHTS_SHIFT) as u8 & want.right().bits() as u8 == want.right().bits() as u8
    }

    /// Whether something that a peer was let in to before is not allowed any more.
    fn is_ended_by(self, next: View) -> bool {
        let less = self.rights().difference(next.rights());
        self.receives() && (!next.receives() || next.epoch() != self.epoch() || !less.is_empty())
    }

    pub(crate) fn rights(self) -> Rights {
        Rights::from_bits_truncate((self.0 >> RIGHTS_SHIFT) as u8 as u32)
    }

    #[inline(always)]
    pub(crate) fn reads(self) -> bool {
        self.0 & READS != 0
    }

    #[inline(always)]
    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> EPOCH_SHIFT) as u32
    }

    #[must_use]
    pub(crate) fn with_state(self, state: QpState) -> Self {
        Self(self.0 & !STATE | state as u64)
    }

    #[must_use]
    pub(crate) fn with_rights(self, rights: Rights) -> Self {
        let bits = u64::from(rights.bits() as u8) << RIGHTS_SHIFT;
        Self(self.0 & !(0xff << RIGHTS_SHIFT) | bits)
    }

    #[must_use]
    pub(crate) fn with_reads(self, reads: bool) -> Self {
        Self(if reads { self.0 | READS } else { self.0 & !READS })
    }

    /// Another connection: links made before do not hold any more.
    #[must_use]
    pub(crate) fn anew(self) -> Self {
        Self((self.0 & !ESTABLISHED).wrapping_add(1 << EPOCH_SHIFT))
    }

    #[must_use]
    pub(crate) fn dead(self) -> Self {
        Self(self.0 | DESTROYED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_let_in_is_ended_by_less_only() {
        let write = Rights::REMOTE_WRITE;
        let open = View(0).with_state(QpState::Rtr).with_rights(write).anew();
        for same in [
            open,
            open.with_state(QpState::Rts),
            open.with_state(QpState::Sqe),
            open.with_reads(true),
            open.with_rights(write | Rights::REMOTE_READ),
        ] {
            assert!(!open.is_ended_by(same), "{same:?}");
        }
        for less in [
            open.with_state(QpState::Err),
            open.with_state(QpState::Reset),
            open.with_rights(Rights::REMOTE_READ),
            open.anew(),
            open.dead(),
        ] {
            assert!(open.is_ended_by(less), "{less:?}");
        }
        let init = View(0).with_state(QpState::Init).with_rights(write);
        assert!(!init.is_ended_by(init.with_state(QpState::Rtr).anew()), "nobody was let in");
    }
}
