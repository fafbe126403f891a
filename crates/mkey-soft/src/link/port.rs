//! A device's side of its link: handing packets to queue pairs, and queue pairs that wait for room.

use super::capture::{self, Tapped};
use super::faults::Weather;
use super::ways::Ways;
use super::{Capture, Inbound, Path};
use crate::core::{Core, find_qp, generation, with_executor};
use crate::driver::Driver;
use crate::options::SoftOptions;
use crate::qp::{After, Qp, Todo};
use crate::sync::{Turns, lock};
use mkey_core::device::Gid;
use mkey_core::engine::Executor;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Membership in a partition is bit 15 of its key; there is only the default partition.
const PARTITION: u16 = 0x7fff;
/// Packets that are dropped at most when a connection is made: as many as any link holds.
const STALE_ROUNDS: usize = 1024;
/// Who has let others go first goes on after this time, if nobody looks for packets before.
const TURN: Duration = Duration::from_millis(1);

/// Of so many posts one takes packets in, too, for a program that posts and does not poll.
const POSTS: u32 = 8;

/// A device's link.
#[derive(Debug)]
pub(crate) struct Port {
    gid: Gid,
    ways: Ways,
    /// Whether packets may come at all.
    active: AtomicBool,
    driver: OnceLock<&'static Driver>,
    weather: Option<Arc<Weather>>,
    capture: Option<Arc<dyn Capture>>,
    blocked: Mutex<Vec<Weak<Qp>>>,
    any_blocked: AtomicBool,
    /// Some of them wait for no room, but for their turn.
    any_waits_its_turn: AtomicBool,
    posts: Turns,
    /// A forked child has no link by its parent's devices.
    born: u32,
}

impl Port {
    /// The port of a device that is opened so; `None` if it has no link.
    pub(crate) fn new(options: &SoftOptions) -> Option<Self> {
        let gid = options.gid;
        let ways = match options.clock.is_virtual() {
            true => Ways::in_memory(&options.link, gid)?,
            false => Ways::new(&options.link, gid)?,
        };
        let weather = options.faults.map(|faults| Weather::new(faults, options.clock.clone()));
        Some(Self {
            gid,
            active: AtomicBool::new(ways.network().is_some()),
            ways,
            driver: OnceLock::new(),
            weather,
            capture: options.capture.clone(),
            blocked: Mutex::default(),
            any_blocked: AtomicBool::new(false),
            any_waits_its_turn: AtomicBool::new(false),
            posts: Turns::default(),
            born: generation(),
        })
    }

    /// The device is open.
    pub(crate) fn open(&self, core: &Arc<Core>) {
        if let Some(network) = self.ways.network() {
            network.drive(core);
        }
    }

    /// A number for a queue pair that is not of another process: which, `counter` tells. `tries`
    /// numbers were in use.
    pub(crate) fn number(&self, counter: u32, tries: u32) -> Option<u32> {
        self.ways.number(counter, tries)
    }

    /// What of the link there is not although there was to be, in words.
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.ways.troubles()
    }

    /// Why a peer may not have answered, in words.
    pub(crate) fn why_no_answer(&self, gid: Gid, qp_num: u32) -> String {
        match self.is_of_this_process() {
            true => self.ways.why_no_answer(gid, qp_num),
            false => "this process was forked: it needs a device that it opens itself".to_owned(),
        }
    }

    /// Whether it was not inherited by a forked child.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.born == generation()
    }

    /// Whether there is anything to drive, in the process that it is of: of what a forked child has
    /// inherited its parent goes on to take packets.
    fn is_ours(&self) -> bool {
        self.is_active() && self.is_of_this_process()
    }

    /// Whether there is anything to drive.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether peers in this process are reached by packets, too.
    pub(crate) fn carries_all(&self) -> bool {
        self.ways.network().is_some()
    }

    /// A queue pair is about to be connected to this peer, or to anybody. What is on its way to it
    /// still was meant for a connection that it had before, and does not reach it any more.
    pub(crate) fn expect(&self, core: &Arc<Core>, peer: Option<(Gid, u32)>) {
        if peer.is_none_or(|(gid, qp_num)| self.is_elsewhere(gid, qp_num)) {
            self.activate(core, peer);
        }
        if !self.is_ours() {
            return;
        }
        for _ in 0..STALE_ROUNDS {
            if !self.take_in(true) {
                break;
            }
        }
    }

    fn is_elsewhere(&self, gid: Gid, qp_num: u32) -> bool {
        !self.ways.owns(gid, qp_num) && find_qp(gid, qp_num).is_none()
    }

    /// This peer, or any, is to reach this port.
    fn activate(&self, core: &Arc<Core>, peer: Option<(Gid, u32)>) {
        if self.born != generation() || self.ways.network().is_some() {
            return;
        }
        if let Some(driver) = Driver::get()
            && self.ways.open(driver, peer)
        {
            driver.join(core);
            let _ = self.driver.set(driver);
            self.active.store(true, Ordering::Release);
        }
    }

    /// As [`super::Link::path`].
    pub(crate) fn path(
        &self,
        core: &Arc<Core>,
        gid: Gid,
        qp_num: u32,
        lasting: bool,
    ) -> Option<Arc<dyn Path>> {
        if !self.is_active() && self.is_elsewhere(gid, qp_num) {
            self.activate(core, Some((gid, qp_num)));
        }
        if !self.is_ours() {
            return None;
        }
        Some(self.as_it_is(self.ways.path(gid, qp_num, lasting)?, gid))
    }

    /// The same path with the faults that it is to have, and with whoever looks at it.
    pub(crate) fn as_it_is(&self, mut path: Arc<dyn Path>, to: Gid) -> Arc<dyn Path> {
        if let Some(capture) = &self.capture {
            path = Arc::new(Tapped { capture: capture.clone(), path, from: self.gid, to });
        }
        match &self.weather {
            Some(weather) => weather.over(path),
            None => path,
        }
    }

    /// When [`Port::release`] has something to do.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.weather.as_ref()?.next()
    }

    /// Sends what was kept until now, as its faults had it; whether there was any.
    pub(crate) fn release(&self, now: Duration) -> bool {
        self.weather.as_ref().is_some_and(|weather| weather.release(now))
    }

    /// Notes that a queue pair waits for room on a path.
    pub(crate) fn block(&self, qp: Weak<Qp>) {
        lock(&self.blocked).push(qp);
        self.any_blocked.store(true, Ordering::Release);
        // Room that was made before this was told to nobody.
        if let Some(driver) = self.driver.get() {
            driver.look_again();
        }
    }

    /// Notes that a queue pair has more to send, and lets others go first.
    pub(crate) fn take_turns(&self, qp: Weak<Qp>) {
        self.block(qp);
        self.any_waits_its_turn.store(true, Ordering::Release);
        // The program, if this is its thread, may poll no more.
        if let Some(driver) = self.driver.get() {
            driver.hurry(TURN);
        }
    }

    /// The program posts; whether [`Port::drive`] is due.
    #[inline]
    pub(crate) fn posted(&self) -> bool {
        self.posts.has_turn(POSTS) || self.carries_all()
    }

    /// Takes in what has arrived, and sends what that makes possible, on the calling thread, which is
    /// the program's.
    #[cold]
    pub(crate) fn drive(&self, core: &Core) {
        if !self.is_of_this_process() {
            return;
        }
        if let Some(network) = self.ways.network() {
            return network.settle();
        }
        let Some(driver) = self.driver.get() else { return };
        let begun = driver.poll_begins();
        let any = core.turn();
        driver.polled(begun, any);
    }

    /// The program is about to sleep until an event comes.
    pub(crate) fn rest(&self) {
        if self.is_of_this_process()
            && let Some(driver) = self.driver.get()
        {
            driver.program_rests();
        }
    }

    /// As [`Port::drive`], of this port only and on any thread; whether anything had arrived, or is to
    /// be sent still.
    pub(crate) fn turn(&self) -> bool {
        if !self.is_ours() {
            return false;
        }
        let any = self.take_in(false);
        self.any_waits_its_turn.swap(false, Ordering::AcqRel) || any
    }

    fn take_in(&self, wait: bool) -> bool {
        let mut any = false;
        with_executor(|executor| {
            let mut touched = Touched::default();
            any = self.ways.receive(wait, &mut |inbound| touched.deliver(executor, inbound));
            if self.any_blocked.load(Ordering::Relaxed)
                && self.any_blocked.swap(false, Ordering::AcqRel)
            {
                for qp in std::mem::take(&mut *lock(&self.blocked)) {
                    touched.add(qp.upgrade(), Todo::ALL);
                }
            }
            touched.go_on(executor);
        });
        any
    }

    /// As [`super::Link::hang_bells`].
    pub(crate) fn hang_bells(&self) -> bool {
        self.is_ours() && self.ways.hang_bells()
    }

    /// As [`super::Link::take_bells_down`].
    pub(crate) fn take_bells_down(&self, program_polls: bool) {
        if self.is_ours() {
            self.ways.take_bells_down(program_polls);
        }
    }
}

/// Queue pairs that packets have come for. What they have to say they say when all packets that were
/// there are dealt with: one acknowledgement may tell of many.
#[derive(Default)]
struct Touched(SmallVec<[(Arc<Qp>, Todo); 4]>);

impl Touched {
    fn deliver(&mut self, executor: &mut Executor, inbound: &Inbound<'_>) {
        let fields = &inbound.repr.fields;
        if fields.pkey & PARTITION != PARTITION {
            return;
        }
        let Some(qp) = find_qp(inbound.to, fields.dest_qp.get()) else { return };
        if let Some(capture) = qp.core.port.as_ref().and_then(|port| port.capture.as_deref()) {
            capture::show(capture, inbound);
        }
        let mut after = After::default();
        let todo = qp.arrive(executor, inbound, &mut after);
        after.run();
        self.add(Some(qp), todo);
    }

    fn add(&mut self, qp: Option<Arc<Qp>>, todo: Todo) {
        let Some(qp) = qp.filter(|_| todo != Todo::default()) else { return };
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &qp)) {
            Some((_, known)) => *known = known.and(todo),
            None => self.0.push((qp, todo)),
        }
    }

    fn go_on(self, executor: &mut Executor) {
        for (qp, todo) in self.0 {
            let mut after = After::default();
            qp.go_on(executor, todo, &mut after);
            after.run();
        }
    }
}
