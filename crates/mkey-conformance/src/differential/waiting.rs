//! After each step: waits for all that it began, by polling.
//!
//! Work requests complete, a queue pair that has to fail fails, what was posted to one that failed
//! is flushed. What a device does not do it is not waited for long; then the trace shows that it
//! did not come.

use super::interpret::{Posted, Run};
use super::program::{End, Kind};
use super::trace::{Detail, Done};
use super::traits::Traits;
use crate::fixture::Subject;
use mkey_core::data_plane::CompletionQueue;
use mkey_core::key::Rkey;
use mkey_core::queue_pair::QpState;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::Completion;
use std::time::Duration;

/// How long a work request may take, in the device's own time.
const LONG: Duration = Duration::from_secs(2);
/// How long that may take which not all devices do.
const SHORT: Duration = Duration::from_millis(20);
/// How far time goes on between two looks.
const STEP: Duration = Duration::from_micros(200);
/// Looks before time is let go on: a device on another processor needs none.
const LOOKS: u32 = 50;

impl<S: Subject> Run<'_, S> {
    /// Waits for all that was begun.
    pub(super) fn settle(&mut self) {
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        let mut idle_since = Duration::ZERO;
        let settled = loop {
            if self.take_completions() {
                idle_since = waited;
                looks = 0;
            }
            let busy = self.halves.iter().any(|half| !half.sent.is_empty());
            if !busy && !self.may_be_busy() {
                break true;
            }
            let enough = if busy { LONG } else { SHORT } * self.patience;
            if waited - idle_since >= enough {
                break false;
            }
            looks += 1;
            if looks > LOOKS {
                self.pass(STEP);
                waited += STEP;
            } else {
                std::thread::yield_now();
            }
        };
        for end in [End::A, End::B] {
            // A receive that was waited for in vain is not waited for again.
            let given_up = !settled && self.state(end) == QpState::Err;
            let half = self.half_mut(end);
            (half.owed, half.fails, half.cut) = (0, false, None);
            half.given_up = if given_up { half.received.len() } else { 0 };
        }
    }

    /// Whether something is not done that most devices do.
    fn may_be_busy(&self) -> bool {
        [End::A, End::B].into_iter().any(|end| {
            let half = self.half(end);
            let flushes = half.received.len() > half.given_up;
            half.owed > 0
                || half.cut.is_some()
                || (half.fails || flushes) && {
                    let failed = self.state(end) == QpState::Err;
                    half.fails && !failed || flushes && failed
                }
        })
    }

    /// Polls both queues of both ends; whether something came.
    pub(super) fn take_completions(&mut self) -> bool {
        let mut any = false;
        for end in [End::A, End::B] {
            for queue in 0..2 {
                loop {
                    let mut taken = [Completion::BLANK; 16];
                    let polled = self.half(end).cqs[queue].1.poll(&mut taken).unwrap_or(0);
                    for completion in taken.iter().take(polled) {
                        any = true;
                        if queue == 0 {
                            self.take_sent(end, completion);
                        } else {
                            self.take_received(end, completion);
                        }
                    }
                    if polled == 0 {
                        break;
                    }
                }
            }
        }
        any
    }

    fn take_sent(&mut self, end: End, completion: &Completion) {
        let ok = completion.status == WcStatus::Success;
        let (mut kind, mut traits) = (Kind::Send, Traits::empty());
        if let Some(cut) = self.half_mut(end).cut.take_if(|cut| cut.wr == completion.wr_id) {
            self.half_mut(end).sent.push_back(cut);
        }
        // One completion stands for all before it (R-ORD-05).
        while let Some(posted) = self.half_mut(end).sent.pop_front() {
            let last = posted.wr == completion.wr_id;
            if ok || !last {
                self.succeeded(end, &posted);
            }
            if last {
                (kind, traits) = (posted.kind, posted.traits);
                break;
            }
        }
        self.half_mut(end).fails |= !ok;
        let remote = [WcStatus::RemAccessErr, WcStatus::RemInvReqErr, WcStatus::RemOpErr];
        self.half_mut(end.peer()).fails |= remote.contains(&completion.status);
        let reads = [WcOpcode::RdmaRead, WcOpcode::FetchAdd, WcOpcode::CompSwap];
        let counts = reads.contains(&completion.opcode);
        self.tell(end.index(), (kind, traits), completion, counts, None);
    }

    fn succeeded(&mut self, end: End, posted: &Posted) {
        if let Some((slot, key, base)) = posted.binds
            && let Some(Some(window)) = self.windows.get_mut(slot)
            && window.live
        {
            (window.before, window.key) = (window.key, key);
            (window.base, window.by, window.bound) = (base, end, true);
        }
        if posted.takes {
            self.half_mut(end.peer()).owed += 1;
        }
    }

    fn take_received(&mut self, end: End, completion: &Completion) {
        let ok = completion.status == WcStatus::Success;
        let half = self.half_mut(end);
        let posted = half.received.iter().position(|(wr, _)| *wr == completion.wr_id);
        let traits = posted.and_then(|at| half.received.remove(at)).map(|(_, traits)| traits);
        half.owed -= i64::from(ok);
        half.fails |= !ok;
        let named = |key: Rkey| self.windows.iter().flatten().any(|window| window.key == key.0);
        let invalidated = completion.invalidated.map(named);
        let what = (Kind::Receive, traits.unwrap_or_default());
        self.tell(2 + end.index(), what, completion, true, invalidated);
    }

    fn tell(
        &mut self,
        queue: usize,
        (kind, traits): (Kind, Traits),
        completion: &Completion,
        counts: bool,
        invalidated: Option<bool>,
    ) {
        let Completion { wr_id: wr, status, opcode, byte_len, .. } = *completion;
        // Of a send none is defined.
        let imm = completion.imm.filter(|_| kind == Kind::Receive);
        let byte_len = counts.then_some(byte_len);
        let detail = Detail { opcode, byte_len, imm, invalidated };
        let detail = (status == WcStatus::Success).then_some(detail);
        if let Some(queue) = self.done.get_mut(queue) {
            queue.push(Done { wr, kind, traits, status, detail });
        }
    }
}
