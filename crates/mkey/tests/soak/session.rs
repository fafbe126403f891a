//! One end of a connection that breaks again and again.

use crate::link::{End, Link, Missed};
use crate::numbers::Random;
use crate::watch::Seen;
use crate::world::World;
use mkey::{Completion, Cq, Pd, PostError, Qp, QpState, Recv, Work};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Posted work that has no completion for so long will have none.
const PATIENCE: Duration = Duration::from_millis(30);

pub struct Session<'a> {
    pub world: &'a World,
    pub watched: &'a Seen,
    link: &'a Link,
    end: End,
    pd: &'a Pd,
    cq: Cq,
    qp: Option<Qp>,
    round: u64,
    next_id: u64,
    /// Signaled work whose completion has not come.
    waited: HashMap<u64, Instant>,
}

impl<'a> Session<'a> {
    pub fn new(world: &'a World, link: &'a Link, end: End, pd: &'a Pd, watched: &'a Seen) -> Self {
        let cq = Cq::new(&world.device, 4096).expect("cq");
        link.broken(0);
        let (qp, round, next_id, waited) = (None, 0, 0, HashMap::new());
        Self { world, watched, link, end, pd, cq, qp, round, next_id, waited }
    }

    /// Connects again if that is wanted; whether it was. All work posted before has ended then.
    pub fn meet(&mut self, random: &mut Random) -> Result<bool, Missed> {
        let mut again = false;
        while self.link.wanted() > self.round {
            if self.world.stopped() {
                return Err(Missed::Closed);
            }
            let round = self.link.wanted();
            self.watched.step("leaving a connection");
            self.waited.clear();
            let Some(qp) = self.renew(random) else { continue };
            self.watched.step("connecting");
            let met =
                self.link.offer(self.end, round, qp.endpoint(), self.watched).and_then(|peer| {
                    if qp.connect(&peer).is_err() {
                        self.link.broken(round);
                        return Err(Missed::Again);
                    }
                    self.link.ready(self.end, round, self.watched)
                });
            self.qp = Some(qp);
            match met {
                Ok(()) => {
                    self.world.counts.connected.add();
                    (self.round, again) = (round, true);
                }
                Err(Missed::Again) => {}
                Err(Missed::Closed) => return Err(Missed::Closed),
            }
        }
        Ok(again)
    }

    /// A queue pair without work: the one there is, reset, or another.
    fn renew(&mut self, random: &mut Random) -> Option<Qp> {
        if let Some(qp) = self.qp.take()
            && random.one_in(2)
            && qp.fail().is_ok()
        {
            if random.one_in(2) {
                self.poll();
            }
            let change = mkey_core::queue_pair::QpModify {
                state: Some(QpState::Reset),
                ..mkey_core::queue_pair::QpModify::default()
            };
            if qp.modify(&change).is_ok() {
                return Some(qp);
            }
        }
        self.world.counts.destroyed.add();
        Qp::builder(self.pd, &self.cq).depth(64, 64).create().ok()
    }

    pub fn qp(&self) -> Option<&Qp> {
        self.qp.as_ref()
    }

    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// A number for work.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Posts to the send queue; work of these numbers makes a completion.
    pub fn post(&mut self, chain: &[Work<'_>], signaled: &[u64]) -> Result<(), PostError> {
        let Some(qp) = &self.qp else { return Ok(()) };
        let posted = qp.post(chain);
        if posted.is_ok() {
            let now = Instant::now();
            self.waited.extend(signaled.iter().map(|id| (*id, now)));
        } else {
            self.world.counts.not_posted.add();
        }
        posted
    }

    pub fn post_recv(&mut self, chain: &[Recv<'_>]) -> bool {
        self.qp.as_ref().is_some_and(|qp| qp.post_recv(chain).is_ok())
    }

    /// What has completed. The connection is given up if some of it failed.
    pub fn poll(&mut self) -> Vec<Completion> {
        let mut some = [Completion::BLANK; 32];
        let taken = match self.cq.poll(&mut some) {
            Ok(taken) => taken,
            Err(error) => {
                self.world.fail(format!("a completion queue failed: {error}"));
                0
            }
        };
        some.iter().take(taken).copied().inspect(|done| self.seen(done)).collect()
    }

    /// Notes that a completion was seen.
    pub fn seen(&mut self, done: &Completion) {
        self.waited.remove(&done.wr_id);
        if done.status != mkey::WcStatus::Success {
            self.broken();
        }
    }

    /// Gives the connection up.
    pub fn broken(&self) {
        self.link.broken(self.round);
    }

    /// Gives it up if nothing comes any more.
    pub fn look(&mut self) {
        let now = Instant::now();
        if self.waited.values().any(|since| now.duration_since(*since) > PATIENCE) {
            self.world.counts.stalled.add();
            self.waited.clear();
            self.broken();
        }
    }

    /// Leaves: the queue pair is destroyed.
    pub fn close(&mut self) {
        self.qp = None;
        self.waited.clear();
    }

    /// Puts the queue pair into ERR with whatever is in flight.
    pub fn fail(&self) {
        self.world.counts.failed.add();
        if self.qp.as_ref().is_some_and(|qp| qp.fail().is_ok()) {
            self.broken();
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.link.close();
    }
}
