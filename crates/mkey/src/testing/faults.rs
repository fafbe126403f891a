//! What goes wrong, by rules and a seed.

use crate::device::Device;
use crate::plane::Plane;
use crate::sync::lock;
use crate::testing::control::FaultyControl;
use crate::testing::data::FaultyCq;
use event_listener::Event;
use mkey_core::device::{Capabilities, QpHandle};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::status::WcOpcode;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Faults to inject into a device: rules, each of which says what goes wrong and when.
///
/// Each rule counts what it applies to, from 1, and decides by that number and the seed alone: the
/// same calls meet the same faults, in every run. Where several rules apply to one call all of them
/// count it, and the first that says so has its way. Clones are the same faults.
///
/// Nothing is made up: work that shall fail is posted with a key that names nothing, and a queue
/// pair that shall fail is put into ERR, so that the device itself refuses, flushes and keeps its
/// order.
///
/// ```
/// use mkey::testing::{Call, Faults, Pair, When};
/// use mkey::{Mr, Reason, Region};
///
/// # fn main() -> mkey::Result<()> {
/// let faults = Faults::new(7);
/// let no_memory = Reason::System { call: "ioctl", errno: 12 };
/// faults.refuse(Call::RegMr, no_memory, When::Nth(2));
/// let pair = Pair::builder().faults(&faults).connect()?;
/// let first = Mr::new(&pair.a.pd, Region::new(4096)?)?;
/// let error = Mr::new(&pair.a.pd, Region::new(4096)?).expect_err("the second");
/// assert_eq!(error.errno(), 12);
/// assert_eq!(faults.injected().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    seed: u64,
    stopped: bool,
    lack: Vec<Change>,
    rules: Vec<Rule>,
    injected: Vec<Injected>,
    /// Queue pairs by their number: completions name them so.
    qps: HashMap<u32, QpHandle>,
    /// When delayed completions come.
    releases: BTreeSet<Duration>,
    cqs: Vec<Weak<FaultyCq>>,
    waiters: Vec<Weak<Event>>,
}

/// Takes something away from what a device offers.
type Change = Box<dyn Fn(&mut Capabilities) + Send>;

struct Rule {
    fault: Fault,
    when: When,
    seen: u64,
}

/// What goes wrong.
#[derive(Clone, Debug)]
enum Fault {
    Refuse { call: Call, reason: Reason },
    Fail { what: Option<WcOpcode> },
    Break { what: Option<WcOpcode> },
    Delay { what: Option<WcOpcode>, by: Duration },
    Lose { what: Option<WcOpcode> },
}

/// When a rule has its way, of the calls that it applies to, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// Each time.
    Always,
    /// This time only.
    Nth(u64),
    /// Each so many times: the `n`th, the `2n`th, ...
    Every(u64),
    /// This time and from then on.
    From(u64),
    /// With this probability, from 0 to 1, each time anew.
    Chance(f64),
}

impl When {
    fn applies(self, number: u64, draw: impl FnOnce() -> u64) -> bool {
        match self {
            Self::Always => true,
            Self::Nth(nth) => number == nth,
            Self::Every(every) => number.checked_rem(every) == Some(0),
            Self::From(first) => number >= first,
            // 53 bits: what a double holds.
            Self::Chance(chance) => ((draw() >> 11) as f64) < chance * (1u64 << 53) as f64,
        }
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $verb:literal;)*) => {
        /// A verb that can be refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Call { $($(#[$doc])* $name,)* }

        impl Call {
            /// Its name in libibverbs, without the `ibv_`.
            pub const fn verb(self) -> &'static str {
                match self { $(Self::$name => $verb,)* }
            }
        }
    };
}

calls! {
    /// Allocation of a protection domain.
    AllocPd = "alloc_pd";
    /// Its end.
    DeallocPd = "dealloc_pd";
    /// Registration.
    RegMr = "reg_mr";
    /// Re-registration; the region stays as it was.
    ReregMr = "rereg_mr";
    /// Deregistration; the region stays.
    DeregMr = "dereg_mr";
    /// The null region.
    AllocNullMr = "alloc_null_mr";
    /// Advice.
    AdviseMr = "advise_mr";
    /// Allocation of a window.
    AllocMw = "alloc_mw";
    /// Its end; it stays.
    DeallocMw = "dealloc_mw";
    /// Allocation of a region for fast registration.
    AllocFastMr = "alloc_mr";
    /// Creation of a completion channel.
    CreateCompChannel = "create_comp_channel";
    /// Creation of a completion queue.
    CreateCq = "create_cq";
    /// Its end; it stays.
    DestroyCq = "destroy_cq";
    /// Creation of a shared receive queue.
    CreateSrq = "create_srq";
    /// Its end; it stays.
    DestroySrq = "destroy_srq";
    /// Creation of a queue pair.
    CreateQp = "create_qp";
    /// A change of its attributes or state.
    ModifyQp = "modify_qp";
    /// A question for them.
    QueryQp = "query_qp";
    /// Its end; it stays.
    DestroyQp = "destroy_qp";
    /// Creation of an address handle.
    CreateAh = "create_ah";
    /// Its end; it stays.
    DestroyAh = "destroy_ah";
    /// A work request of a chain for the send queue: those before it are posted.
    PostSend = "post_send";
    /// A work request of a chain for the receive queue: those before it are posted.
    PostRecv = "post_recv";
}

/// A fault that was injected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Injected {
    /// Which rule did it, by the order in which they were made, from 0.
    pub rule: usize,
    /// Which of the calls that the rule applies to, from 1.
    pub number: u64,
    /// What went wrong, in words.
    pub what: String,
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rule {}, number {})", self.what, self.rule, self.number)
    }
}

impl Faults {
    /// No faults yet. `seed` decides where chance does ([`When::Chance`]).
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            seed,
            stopped: false,
            lack: Vec::new(),
            rules: Vec::new(),
            injected: Vec::new(),
            qps: HashMap::new(),
            releases: BTreeSet::new(),
            cqs: Vec::new(),
            waiters: Vec::new(),
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// `call` fails with `reason`, and has done nothing.
    pub fn refuse(&self, call: Call, reason: Reason, when: When) -> &Self {
        self.rule(Fault::Refuse { call, reason }, when)
    }

    /// Send work fails as such work fails: RDMA and atomics because the peer's key names nothing,
    /// others because a local key does. The queue pair goes into ERR by that. `what` narrows it to
    /// one kind of work.
    pub fn fail(&self, what: impl Into<Option<WcOpcode>>, when: When) -> &Self {
        self.rule(Fault::Fail { what: what.into() }, when)
    }

    /// The queue pair goes into ERR right before this work is posted to its send queue: the work
    /// is flushed.
    pub fn break_qp(&self, what: impl Into<Option<WcOpcode>>, when: When) -> &Self {
        self.rule(Fault::Break { what: what.into() }, when)
    }

    /// A good completion comes `by` later than it is there (as seen when work is posted, completions
    /// are polled, or a pair's time passes); those of its queue that follow wait for it. It comes
    /// at once when the queue pair leaves RTS.
    pub fn delay(&self, what: impl Into<Option<WcOpcode>>, by: Duration, when: When) -> &Self {
        self.rule(Fault::Delay { what: what.into(), by }, when)
    }

    /// The peer has done the work, but its answer is lost: the completion, and those of its queue
    /// that follow, come only when the queue pair has left RTS, as flushed. Receives are not lost.
    pub fn lose(&self, what: impl Into<Option<WcOpcode>>, when: When) -> &Self {
        self.rule(Fault::Lose { what: what.into() }, when)
    }

    /// The device offers less than it does, or has lower limits: for devices made from now on by
    /// [`Faults::around`] or a pair. Windows, fast registration, on-demand paging and regions that
    /// it does not offer it refuses.
    pub fn lack(&self, change: impl Fn(&mut Capabilities) + Send + 'static) -> &Self {
        lock(&self.inner).lack.push(Box::new(change));
        self
    }

    /// The faults injected so far, in order.
    pub fn injected(&self) -> Vec<Injected> {
        lock(&self.inner).injected.clone()
    }

    /// From now on nothing goes wrong, and nothing is counted. What went wrong before stays so.
    pub fn stop(&self) {
        lock(&self.inner).stopped = true;
    }

    /// The rules count again.
    pub fn resume(&self) {
        lock(&self.inner).stopped = false;
    }

    /// The device, as one that has these faults. Objects made on it meet them; objects of `device`
    /// itself do not.
    pub fn around(&self, device: &Device) -> Device {
        let control = device.control().clone();
        let mut offers = control.capabilities().clone();
        for change in &lock(&self.inner).lack {
            change(&mut offers);
        }
        let plane = Plane::Faulty(Box::new(device.plane().clone()), control.clone(), self.clone());
        Device::new(Arc::new(FaultyControl::new(control, offers, self.clone())), plane)
    }

    /// Refuses `call` if a rule says so.
    pub(super) fn allow(&self, call: Call, arguments: impl fmt::Display) -> Result<()> {
        let reason = self.first(|fault| match fault {
            Fault::Refuse { call: refused, reason } if *refused == call => Some(reason.clone()),
            _ => None,
        });
        reason.map_or(Ok(()), |reason| Err(Error::new(call.verb(), arguments, reason)))
    }

    /// What becomes of send work of this kind.
    pub(super) fn of_work(&self, what: WcOpcode) -> Option<WorkFault> {
        self.first(|fault| match fault {
            Fault::Fail { what: of } if of.is_none_or(|of| of == what) => Some(WorkFault::Fail),
            Fault::Break { what: of } if of.is_none_or(|of| of == what) => Some(WorkFault::Break),
            _ => None,
        })
    }

    /// What becomes of a good completion of this kind.
    pub(super) fn of_completion(&self, what: WcOpcode) -> Option<Late> {
        let recv = matches!(what, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        self.first(|fault| match fault {
            Fault::Delay { what: of, by } if of.is_none_or(|of| of == what) => Some(Late::By(*by)),
            Fault::Lose { what: of } if !recv && of.is_none_or(|of| of == what) => Some(Late::Lost),
            _ => None,
        })
    }

    pub(super) fn made_qp(&self, qp_num: u32, handle: QpHandle) {
        lock(&self.inner).qps.insert(qp_num, handle);
    }

    pub(super) fn qp(&self, qp_num: u32) -> Option<QpHandle> {
        lock(&self.inner).qps.get(&qp_num).copied()
    }

    /// A completion comes at this time.
    pub(super) fn releases(&self, at: Duration) {
        lock(&self.inner).releases.insert(at);
    }

    /// When the next delayed completion comes, after `now`.
    pub(super) fn next_release(&self, now: Duration) -> Option<Duration> {
        let mut inner = lock(&self.inner);
        while inner.releases.first().is_some_and(|&at| at <= now) {
            inner.releases.pop_first();
        }
        inner.releases.first().copied()
    }

    /// Who waits for completions is woken when some may come that the device itself makes no event
    /// for.
    pub(crate) fn wakes(&self, event: &Arc<Event>) {
        let mut inner = lock(&self.inner);
        inner.waiters.retain(|waiter| waiter.strong_count() > 0);
        inner.waiters.push(Arc::downgrade(event));
    }

    pub(super) fn made_cq(&self, cq: &Arc<FaultyCq>) {
        let mut inner = lock(&self.inner);
        inner.cqs.retain(|cq| cq.strong_count() > 0);
        inner.cqs.push(Arc::downgrade(cq));
    }

    /// Sees what completions there are, so that the time of those that come late begins.
    pub(super) fn look(&self) {
        let cqs: Vec<_> = lock(&self.inner).cqs.iter().filter_map(Weak::upgrade).collect();
        for cq in cqs {
            cq.look();
        }
    }

    pub(super) fn wake(&self) {
        for waiter in lock(&self.inner).waiters.iter().filter_map(Weak::upgrade) {
            waiter.notify(usize::MAX);
        }
    }

    fn rule(&self, fault: Fault, when: When) -> &Self {
        lock(&self.inner).rules.push(Rule { fault, when, seen: 0 });
        self
    }

    /// The first rule that applies, by `pick`, and says that it is time.
    fn first<T>(&self, pick: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let mut inner = lock(&self.inner);
        let Inner { seed, stopped, rules, injected, .. } = &mut *inner;
        if *stopped {
            return None;
        }
        let mut first = None;
        for (index, rule) in rules.iter_mut().enumerate() {
            let Some(picked) = pick(&rule.fault) else { continue };
            rule.seen += 1;
            let draw = || mix(mix(*seed ^ mix(index as u64)) ^ rule.seen);
            if rule.when.applies(rule.seen, draw) && first.is_none() {
                let (number, what) = (rule.seen, rule.fault.to_string());
                injected.push(Injected { rule: index, number, what });
                first = Some(picked);
            }
        }
        first
    }
}

/// What becomes of send work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkFault {
    Fail,
    Break,
}

/// When a completion comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    By(Duration),
    Lost,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |what: &Option<WcOpcode>| what.map_or("work".to_owned(), |what| what.to_string());
        match self {
            Self::Refuse { call, reason } => write!(f, "{}: {reason}", call.verb()),
            Self::Fail { what } => write!(f, "{} failed", of(what)),
            Self::Break { what } => write!(f, "the queue pair failed before {}", of(what)),
            Self::Delay { what, by } => write!(f, "{} completed {by:?} later", of(what)),
            Self::Lose { what } => write!(f, "the completion of {} was lost", of(what)),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = lock(&self.inner);
        let rules: Vec<_> = inner.rules.iter().map(|rule| (&rule.fault, rule.when)).collect();
        f.debug_struct("Faults").field("seed", &inner.seed).field("rules", &rules).finish()
    }
}

/// A number that looks like chance, made of another: the finaliser of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_from_one() {
        let of = |when: When| (1..=6).filter(|&n| when.applies(n, || 0)).collect::<Vec<_>>();
        assert_eq!(of(When::Always), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(When::Nth(3)), [3]);
        assert_eq!(of(When::Every(2)), [2, 4, 6]);
        assert_eq!(of(When::Every(0)), [0; 0]);
        assert_eq!(of(When::From(5)), [5, 6]);
    }

    #[test]
    fn chance_is_as_likely_as_it_says_and_repeats() {
        let run = |seed, chance| {
            let faults = Faults::new(seed);
            faults.refuse(Call::RegMr, Reason::MemlockForbidden, When::Chance(chance));
            (0..1000).map(|_| faults.allow(Call::RegMr, "").is_err()).collect::<Vec<_>>()
        };
        let hits = run(1, 0.1).iter().filter(|&&hit| hit).count();
        assert!((70..130).contains(&hits), "{hits}");
        assert_eq!(run(1, 0.1), run(1, 0.1));
        assert_ne!(run(1, 0.1), run(2, 0.1));
        assert!(run(1, 0.0).iter().all(|&hit| !hit) && run(1, 1.0).iter().all(|&hit| hit));
    }

    #[test]
    fn all_rules_count_and_the_first_has_its_way() {
        let faults = Faults::new(0);
        faults.refuse(Call::RegMr, Reason::MemlockForbidden, When::Nth(2));
        faults.refuse(Call::RegMr, Reason::PinnedReadOnly, When::Every(2));
        faults.refuse(Call::DeregMr, Reason::OtherPd, When::Always);
        let reasons: Vec<_> =
            (0..4).map(|_| faults.allow(Call::RegMr, "").err().map(|error| error.reason)).collect();
        let (first, second) = (Reason::MemlockForbidden, Reason::PinnedReadOnly);
        assert_eq!(reasons, [None, Some(first), None, Some(second)]);
        faults.stop();
        assert!(faults.allow(Call::DeregMr, "").is_ok());
        let injected: Vec<_> = faults.injected().iter().map(|i| (i.rule, i.number)).collect();
        assert_eq!(injected, [(0, 2), (1, 4)]);
    }
}
