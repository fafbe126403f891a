//! Rule tests as data: a name, the rules it checks, what the device must offer, a function.

use crate::deviations::{Deviation, Effect, rule_of};
use crate::fixture::Subject;
use mkey_core::data_plane::DataPlane;
use mkey_core::device::{Capabilities, Capability, Device};
use mkey_core::status::WcStatus;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// One test of one rule or more, over devices of `S`.
pub struct RuleTest<S: Subject> {
    /// The function's name; it begins with the rule it checks.
    pub name: &'static str,
    /// Rules that it checks besides the one it is named after.
    pub also: &'static [&'static str],
    /// What the device must offer for it.
    pub needs: &'static [Capability],
    /// The test. It panics where the rule does not hold.
    pub run: fn(&S),
}

/// How a rule test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rule holds as far as the test looks.
    Held,
    /// It holds but for deviations from other rules, named by these, that were met on the way.
    HeldBut(Vec<String>),
    /// It does not hold, as is known; what was seen.
    Deviated(&'static Deviation, String),
    /// It does not hold; what was seen.
    Broken(String),
    /// It may not hold, by chance, as is known; it does as far as the test looks.
    ByChance(&'static Deviation),
    /// The device does not offer what the rule is about.
    NotOffered(Capability),
    /// It was not run, for what the device is known to do.
    NotRun(&'static Deviation),
}

impl<S: Subject> RuleTest<S> {
    /// The rule it is named after, as in `R-MW-07`.
    pub fn rule(&self) -> String {
        rule_of(self.name)
    }

    /// All the rules that it checks.
    pub fn rules(&self) -> Vec<String> {
        let mut rules = vec![self.rule()];
        rules.extend(self.also.iter().map(|rule| (*rule).to_owned()));
        rules
    }

    /// What the device lacks for it.
    pub fn lacks(&self, offered: &Capabilities) -> Option<Capability> {
        self.needs.iter().copied().find(|&need| !offers(offered, need))
    }

    /// Runs it over devices that `subject` opens.
    pub fn outcome(&self, subject: &S) -> Outcome {
        let deviations = subject.deviations();
        let known = deviations.iter().copied().find(|deviation| deviation.covers(self.name));
        if let Some(known) = known
            && known.effect == Effect::NotRun
        {
            return Outcome::NotRun(known);
        }
        if !self.needs.is_empty() {
            let (device, _) = subject.open();
            if let Some(lacking) = self.lacks(device.capabilities()) {
                return Outcome::NotOffered(lacking);
            }
        }
        let by_chance = known.is_some_and(|known| known.effect == Effect::ByChance);
        let fails = known.is_some() && !by_chance;
        RUNNING.set(Running { rules: self.rules(), deviations, fails, met: Vec::new() });
        let ended = watched(|| (self.run)(subject));
        let met = RUNNING.take().met;
        match (ended, known) {
            (Ok(()), Some(known)) if by_chance => Outcome::ByChance(known),
            (Ok(()), None) if met.is_empty() => Outcome::Held,
            (Ok(()), None) => Outcome::HeldBut(met),
            (Err(seen), None) => Outcome::Broken(seen),
            (Err(seen), Some(_)) if by_chance => Outcome::Broken(seen),
            (Ok(()), Some(known)) => Outcome::Broken(format!(
                "it holds, but the table of deviations says: {}",
                known.does
            )),
            (Err(seen), Some(known)) => Outcome::Deviated(known, seen),
        }
    }
}

/// What the test that runs on this thread has to know of the device.
#[derive(Default)]
struct Running {
    /// The rules that it checks.
    rules: Vec<String>,
    deviations: Vec<&'static Deviation>,
    /// Whether it fails, as is known.
    fails: bool,
    /// Rules whose deviations it has met.
    met: Vec<String>,
}

impl Running {
    /// The deviations that the test leaves room for: from rules other than its own, or by chance.
    fn met_on_the_way(&self) -> impl Iterator<Item = &'static Deviation> {
        let own = |deviation: &Deviation| {
            deviation.effect != Effect::ByChance
                && self.rules.iter().any(|rule| deviation.is_from(rule))
        };
        self.deviations.iter().copied().filter(move |deviation| !own(deviation))
    }
}

thread_local! {
    static RUNNING: RefCell<Running> = RefCell::default();
    /// Where a watched test of this thread panicked, and with what words.
    static SEEN: RefCell<Option<String>> = const { RefCell::new(None) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the test that runs here may ask the device for what `rule` demands: of a test of that
/// rule unless the device deviates by chance, and else if it is not known to deviate from it.
pub(crate) fn keeps(rule: &str) -> bool {
    RUNNING
        .with_borrow(|running| !running.met_on_the_way().any(|deviation| deviation.is_from(rule)))
}

/// Whether the test that runs here is known to fail, so that there is no need to wait for long.
pub(crate) fn fails() -> bool {
    RUNNING.with_borrow(|running| running.fails)
}

/// Whether a device that tells `status` where `right` would be is known for that, by another rule
/// than those of the test that runs here; notes that it was met.
pub(crate) fn known_for(status: WcStatus, right: WcStatus) -> bool {
    RUNNING.with_borrow_mut(|running| {
        let tells = |deviation: &&Deviation| match deviation.effect {
            Effect::Tells { status: told, for_any } => told == status && for_any.contains(&right),
            _ => false,
        };
        let Some(deviation) = running.met_on_the_way().find(tells) else { return false };
        let rule = deviation.rule();
        if !running.met.contains(&rule) {
            running.met.push(rule);
        }
        true
    })
}

/// Runs a test; if it panics, what it said and where, instead of a report on the terminal.
fn watched(test: impl FnOnce()) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let otherwise = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !WATCHED.get() {
                return otherwise(info);
            }
            let text = info.payload_as_str().unwrap_or("a panic without words");
            let place = info.location().map(|at| format!(" ({at})")).unwrap_or_default();
            SEEN.set(Some(format!("{text}{place}")));
        }));
    });
    WATCHED.set(true);
    let ended = catch_unwind(AssertUnwindSafe(test));
    WATCHED.set(false);
    ended.map_err(|_| SEEN.take().unwrap_or_default())
}

/// Whether a device offers something that tests may need.
fn offers(device: &Capabilities, need: Capability) -> bool {
    match need {
        Capability::Window1 => device.window1,
        Capability::Window2 => device.window2,
        Capability::FastMr => device.max_fast_mr_entries > 0,
        Capability::OnDemand => device.odp.explicit,
        Capability::OnDemandImplicit => device.odp.implicit,
        Capability::NullMr => device.null_mr,
        Capability::Rereg => device.rereg,
        Capability::Atomics => device.atomics,
        Capability::Srq => device.srq,
        Capability::DmaBuf => device.dma_buf,
        Capability::ZeroBased => device.zero_based,
        Capability::Flush => device.flush,
        Capability::Advise => device.advise,
        // Nothing that is told in advance; a test that needs more fails and says so.
        _ => true,
    }
}

/// Whether the device of a data plane offers `need`.
pub fn device_offers<D: DataPlane>(device: &D, need: Capability) -> bool {
    offers(Device::capabilities(device), need)
}

/// Lists the rule tests of a file: `name, name needs [Window2], name also ["R-MW-08"];`.
macro_rules! rule_tests {
    ($($name:ident $(needs [$($need:ident),+])? $(also [$($also:literal),+])?),+ $(,)?) => {
        /// The tests of this section.
        pub fn tests<S: $crate::fixture::Subject>() -> Vec<$crate::registry::RuleTest<S>> {
            vec![$($crate::registry::RuleTest {
                name: stringify!($name),
                also: &[$($($also),+)?],
                needs: &[$($(mkey_core::device::Capability::$need),+)?],
                run: $name::<S>,
            }),+]
        }
    };
}
pub(crate) use rule_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::Expect;
    use crate::soft::Soft;
    use mkey_core::status::WcStatus::{LocProtErr, WrFlushErr};
    use mkey_core::work::Completion;
    use mkey_soft::SoftDevice;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_panic_is_told_with_its_place() {
        assert_eq!(watched(|| ()), Ok(()));
        let seen = watched(|| panic!("{} is wrong", 7)).expect_err("it panics");
        assert!(seen.starts_with("7 is wrong (") && seen.contains("registry.rs:"), "{seen}");
    }

    /// A device with known deviations.
    struct Known(Vec<&'static Deviation>);

    impl Subject for Known {
        type Device = SoftDevice;

        fn open(&self) -> (Arc<SoftDevice>, Arc<SoftDevice>) {
            Soft::new().open()
        }

        fn open_limited(&self, memlock: u64) -> Arc<SoftDevice> {
            Soft::new().open_limited(memlock)
        }

        fn pass(&self, _: &SoftDevice, _: Duration) {}

        fn deviations(&self) -> Vec<&'static Deviation> {
            self.0.clone()
        }
    }

    const fn deviation(effect: Effect) -> Deviation {
        let of: &[&str] = &["R-KEY-01"];
        Deviation { of, kernels: (0, 0)..(1, 0), effect, does: "otherwise", source: "here" }
    }

    static FAILS: Deviation = deviation(Effect::Fails);
    static TELLS: Deviation =
        deviation(Effect::Tells { status: WrFlushErr, for_any: &[LocProtErr] });
    static NOT_RUN: Deviation = deviation(Effect::NotRun);

    fn outcome(name: &'static str, known: &'static Deviation, run: fn(&Known)) -> Outcome {
        RuleTest { name, also: &[], needs: &[], run }.outcome(&Known(vec![known]))
    }

    #[test]
    fn a_test_has_to_fail_exactly_if_the_table_says_so() {
        let fails: fn(&Known) = |_| panic!("it fails");
        let [own, other] = ["r_key_01_a_test", "r_key_02_a_test"];
        let deviated = outcome(own, &FAILS, fails);
        assert!(
            matches!(&deviated, Outcome::Deviated(known, seen)
                if **known == FAILS && seen.starts_with("it fails")),
            "{deviated:?}"
        );
        let broken = |outcome, words: &str| match outcome {
            Outcome::Broken(seen) => assert!(seen.contains(words), "{seen}"),
            other => panic!("{other:?}"),
        };
        broken(outcome(own, &FAILS, |_| ()), "it holds, but the table of deviations says");
        broken(outcome(other, &FAILS, fails), "it fails");
        assert_eq!(outcome(other, &FAILS, |_| ()), Outcome::Held);
        assert_eq!(outcome(own, &NOT_RUN, |_| unreachable!()), Outcome::NotRun(&NOT_RUN));
    }

    #[test]
    fn only_tests_of_other_rules_leave_out_what_the_device_does_not_keep() {
        let keeps: fn(&Known) = |_| assert!(super::keeps("R-KEY-01") && super::keeps("R-KEY-02"));
        assert!(matches!(outcome("r_key_02_a_test", &FAILS, keeps), Outcome::Broken(_)));
        let own = outcome("r_key_01_a_test", &FAILS, keeps);
        assert!(matches!(&own, Outcome::Broken(seen) if seen.starts_with("it holds")), "{own:?}");
        assert!(super::keeps("R-KEY-01"), "no test runs");
    }

    #[test]
    fn another_status_than_the_right_one_is_noted_where_it_is_known() {
        let told: fn(&Known) = |_| {
            let flushed = Completion { status: WrFlushErr, ..Completion::BLANK };
            flushed.is(LocProtErr);
            flushed.is(LocProtErr);
        };
        let but = Outcome::HeldBut(vec!["R-KEY-01".to_owned()]);
        assert_eq!(outcome("r_key_02_a_test", &TELLS, told), but);
        assert!(matches!(outcome("r_key_01_a_test", &TELLS, told), Outcome::Deviated(..)));
        assert!(matches!(outcome("r_key_02_a_test", &FAILS, told), Outcome::Broken(_)));
        let success: fn(&Known) = |_| {
            Completion { status: WrFlushErr, ..Completion::BLANK }.ok();
        };
        assert!(matches!(outcome("r_key_02_a_test", &TELLS, success), Outcome::Broken(_)));
    }
}
