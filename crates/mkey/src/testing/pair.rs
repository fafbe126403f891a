//! Two connected sides in one process, on virtual time.

use crate::cq::Cq;
use crate::device::Device;
use crate::pd::Pd;
use crate::plane::Plane;
use crate::qp::{Qp, QpBuilder};
use crate::testing::{Faults, Refused};
use mkey_core::data_plane::PostError;
use mkey_core::error::{Error, Result};
use mkey_core::queue_pair::{QpModify, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::Completion;
use mkey_soft::{Clock, SoftDevice, SoftOptions, VirtualClock};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any work of a sound test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two connected sides in one process. Time stands still but for [`Pair::advance`] and for what
/// waits on the pair itself.
#[derive(Debug)]
pub struct Pair {
    /// The side that usually asks.
    pub a: Side,
    /// The side that is usually asked.
    pub b: Side,
    clock: Arc<VirtualClock>,
    /// One, or one of each side.
    devices: Vec<Arc<SoftDevice>>,
    faults: Option<Faults>,
}

/// One side of a [`Pair`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Side {
    /// Its queue pair, connected.
    pub qp: Qp,
    /// Where all its completions go.
    pub cq: Cq,
    /// Its protection domain.
    pub pd: Pd,
    /// Its device.
    pub device: Device,
}

impl Pair {
    /// Two sides on one device, seeded with 0.
    ///
    /// # Errors
    /// As [`PairBuilder::connect`].
    pub fn new() -> Result<Self> {
        Self::builder().connect()
    }

    /// The same with choices.
    pub fn builder() -> PairBuilder {
        PairBuilder {
            options: SoftOptions { seed: Some(0), ..SoftOptions::default() },
            cq_depth: 1024,
            two_devices: false,
            faults: None,
            qp: Box::new(|qp| qp),
        }
    }

    /// The time on the pair's clock, since it was made.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Lets time pass: every timer that is due within it fires at its own time, and completions
    /// that a fault delayed until then can be polled.
    pub fn advance(&self, by: Duration) {
        let end = self.now().saturating_add(by);
        while self.step(end) {}
        self.go_to(end);
    }

    /// The next completion of `side`; lets the time pass that it takes.
    ///
    /// # Panics
    /// If none comes: nothing is due any more, or nothing has come of a minute of retries. If the
    /// completion queue has overrun.
    #[track_caller]
    pub fn next(&self, side: &Side) -> Completion {
        let end = self.now().saturating_add(PATIENCE);
        loop {
            let mut one = [Completion::BLANK];
            match (side.cq.poll(&mut one), one) {
                (Ok(0), _) => {}
                (Ok(_), [completion]) => return completion,
                (Err(error), _) => panic!("the completion queue failed: {error}"),
            }
            assert!(self.step(end), "no completion comes: {}", self.idle(end));
        }
    }

    /// The completions of `side` that are there now; no time passes.
    ///
    /// # Panics
    /// If the completion queue has overrun.
    #[track_caller]
    pub fn done(&self, side: &Side) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut some = [Completion::BLANK; 16];
        loop {
            match side.cq.poll(&mut some) {
                Ok(0) => return all,
                Ok(taken) => all.extend(some.iter().take(taken)),
                Err(error) => panic!("the completion queue failed: {error}"),
            }
        }
    }

    /// Posts work that must be refused, and waits until it is; time passes as needed. The queue
    /// pairs are in ERR then: [`Pair::reconnect`].
    ///
    /// # Panics
    /// If posting itself fails, if no work is refused, or if it fails otherwise than by a refusal
    /// (as by a timeout).
    #[track_caller]
    pub fn expect_refusal(
        &self,
        work: impl FnOnce(&Side, &Side) -> std::result::Result<(), PostError>,
    ) -> Refused {
        if let Err(error) = work(&self.a, &self.b) {
            panic!("a refusal by the device was expected, but posting failed: {}", error.error);
        }
        let end = self.now().saturating_add(PATIENCE);
        let mut well = 0;
        loop {
            for side in [&self.a, &self.b] {
                for completion in self.done(side) {
                    match completion.status {
                        WcStatus::Success => well += 1,
                        _ => return refused(side, completion),
                    }
                }
            }
            let idle = || self.idle(end);
            assert!(self.step(end), "nothing was refused: {well} completed well; {}", idle());
        }
    }

    /// Takes both queue pairs through RESET and connects them anew. Their work of the past ends,
    /// and completions that were not polled are lost.
    ///
    /// # Errors
    /// As the device refuses.
    ///
    /// # Panics
    /// If a completion queue has overrun.
    #[track_caller]
    pub fn reconnect(&self) -> Result<()> {
        for side in [&self.a, &self.b] {
            side.qp.fail()?;
            self.done(side);
            let reset = QpModify { state: Some(QpState::Reset), ..QpModify::default() };
            side.qp.modify(&reset)?;
        }
        self.a.qp.connect(&self.b.qp.endpoint())?;
        self.b.qp.connect(&self.a.qp.endpoint())
    }

    /// Goes to where the next thing is due, if that is not after `end`.
    fn step(&self, end: Duration) -> bool {
        if let Some(faults) = &self.faults {
            faults.look();
        }
        let timers = self.devices.iter().filter_map(|device| device.next_timer());
        let late = self.faults.iter().filter_map(|faults| faults.next_release(self.now()));
        let Some(due) = timers.chain(late).min().filter(|&due| due <= end) else { return false };
        // What is overdue is done now, and time goes on all the same.
        self.go_to(due.max(self.now().saturating_add(Duration::from_nanos(1))));
        true
    }

    fn go_to(&self, now: Duration) {
        self.clock.advance_to(now);
        for device in &self.devices {
            device.advance(now);
        }
        if let Some(faults) = &self.faults {
            faults.look();
            faults.wake();
        }
    }

    fn idle(&self, end: Duration) -> String {
        if self.now() >= end || self.devices.iter().any(|device| device.next_timer().is_some()) {
            format!("it is tried again and again, for {PATIENCE:?} so far")
        } else {
            "nothing is due on either side any more".to_owned()
        }
    }
}

#[track_caller]
fn refused(side: &Side, completion: Completion) -> Refused {
    let reports = side.device.control().refusals().unwrap_or_default();
    let report = reports.into_iter().find(|report| report.number == completion.vendor_err);
    match report {
        Some(report) => Refused::new(completion, report),
        None => panic!("the work failed, but nothing refused it: {}", completion.status),
    }
}

/// How a [`Pair`] is made.
pub struct PairBuilder {
    options: SoftOptions,
    cq_depth: u32,
    two_devices: bool,
    faults: Option<Faults>,
    qp: Box<ChangeQp>,
}

type ChangeQp = dyn for<'a> Fn(QpBuilder<'a>) -> QpBuilder<'a>;

impl PairBuilder {
    /// Makes keys and queue pair numbers, and so the whole run, repeatable: 0 unless told otherwise.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = Some(seed);
        self
    }

    /// Each side on a device of its own, instead of one for both.
    pub fn two_devices(mut self) -> Self {
        self.two_devices = true;
        self
    }

    /// How the devices are opened: limits, pinning, what stale registrations meet. Their clock is
    /// the pair's, whatever is set here.
    pub fn options(mut self, change: impl FnOnce(SoftOptions) -> SoftOptions) -> Self {
        self.options = change(self.options);
        self
    }

    /// How both queue pairs are made: depths, transport, what the peer may do.
    pub fn qp(mut self, change: impl for<'a> Fn(QpBuilder<'a>) -> QpBuilder<'a> + 'static) -> Self {
        self.qp = Box::new(change);
        self
    }

    /// Completions that each side's queue holds: 1024 unless told otherwise.
    pub fn cq_depth(mut self, depth: u32) -> Self {
        self.cq_depth = depth;
        self
    }

    /// What goes wrong on side a's device, which is also b's unless there are two. Rules that are
    /// there already meet the making of the pair, too.
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = Some(faults.clone());
        self
    }

    /// Opens the devices, makes the queue pairs and connects them.
    ///
    /// # Errors
    /// As [`Device::soft`], [`Pd::new`], [`Cq::new`], [`QpBuilder::create`] and [`Qp::connect`].
    pub fn connect(self) -> Result<Pair> {
        let clock = Arc::new(VirtualClock::new());
        let mut devices = Vec::new();
        let mut open = |name: &str, seed: u64| -> Result<Device> {
            let mut options = SoftOptions { clock: clock.clone(), ..self.options.clone() };
            options.seed = options.seed.map(|own| own.wrapping_add(seed));
            options.name = name.to_owned();
            let soft = SoftDevice::open(options)?;
            devices.push(soft.clone());
            // All work on it is posted through the library: only timers are taken from it here.
            Ok(Device::new(soft.clone(), Plane::Soft(soft)))
        };
        let first = open("a", 0)?;
        let second = if self.two_devices { open("b", 1)? } else { first.clone() };
        let (a, b) = match &self.faults {
            None => (first, second),
            Some(faults) if self.two_devices => (faults.around(&first), second),
            Some(faults) => {
                let faulty = faults.around(&first);
                (faulty.clone(), faulty)
            }
        };
        let (a, b) = (self.side(a)?, self.side(b)?);
        a.qp.connect(&b.qp.endpoint())?;
        b.qp.connect(&a.qp.endpoint())?;
        Ok(Pair { a, b, clock, devices, faults: self.faults })
    }

    fn side(&self, device: Device) -> std::result::Result<Side, Error> {
        let pd = Pd::new(&device)?;
        let cq = Cq::new(&device, self.cq_depth)?;
        let qp = (self.qp)(Qp::builder(&pd, &cq)).create()?;
        Ok(Side { qp, cq, pd, device })
    }
}

impl fmt::Debug for PairBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("PairBuilder");
        debug.field("options", &self.options).field("two_devices", &self.two_devices);
        debug.field("faults", &self.faults).finish_non_exhaustive()
    }
}
