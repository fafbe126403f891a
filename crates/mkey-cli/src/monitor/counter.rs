//! A counter, and how fast it goes: from two readings.

use super::known::{self, Class, Meaning, Rule};
use super::told::Told;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// A counter as it was read, with its rate once it was read before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counter {
    /// As its driver calls it.
    pub name: String,
    /// What it is about.
    pub class: Class,
    /// What it stands at.
    pub value: Told<u64>,
    /// How much more a second; nothing at the first reading.
    pub per_second: Option<Told<f64>>,
    /// When that is worth a look.
    #[serde(skip)]
    pub rule: Rule,
}

/// How a counter went on between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// By so much more.
    Up(u64),
    /// It counts anew: a reset, or another object of the same name.
    Anew,
}

/// How a counter went from `before` to `now`. One that went down has wrapped if it stood in the upper
/// half of 32 or of 64 bits and has not come half way round; else it was set back.
pub fn step(before: u64, now: u64) -> Step {
    if let Some(more) = now.checked_sub(before) {
        return Step::Up(more);
    }
    if before <= u64::from(u32::MAX) {
        let more = (1u64 << 32).saturating_sub(before).saturating_add(now);
        return if before >= 1 << 31 && more < 1 << 31 { Step::Up(more) } else { Step::Anew };
    }
    let more = now.wrapping_sub(before);
    if before >= 1 << 63 && more < 1 << 63 { Step::Up(more) } else { Step::Anew }
}

impl Counter {
    /// A counter, read for the first time.
    pub fn new(name: String, value: Told<u64>, meaning: Meaning) -> Self {
        let Meaning { class, rule } = meaning;
        Self { name, class, value, per_second: None, rule }
    }

    /// Whether it may go down.
    pub fn is_gauge(&self) -> bool {
        known::is_gauge(&self.name)
    }

    /// Sets the rate, by what it stood at `passed` ago.
    pub fn compare(&mut self, before: &Self, passed: Duration) {
        let seconds = passed.as_secs_f64();
        let (Told::Is(before), Told::Is(now)) = (&before.value, &self.value) else { return };
        if self.is_gauge() || seconds <= 0.0 {
            return;
        }
        self.per_second = Some(match step(*before, *now) {
            Step::Up(more) => Told::Is(more as f64 / seconds),
            Step::Anew => Told::not("it counts anew"),
        });
    }

    /// The rate, where there is one.
    pub fn rate(&self) -> Option<f64> {
        self.per_second.as_ref().and_then(Told::value).copied()
    }
}

/// Sets the rates of counters by an earlier reading of them, whatever their order.
pub fn compare(now: &mut [Counter], before: &[Counter], passed: Duration) {
    let before: HashMap<&str, &Counter> =
        before.iter().map(|counter| (counter.name.as_str(), counter)).collect();
    for counter in now {
        if let Some(earlier) = before.get(counter.name.as_str()) {
            counter.compare(earlier, passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counters_of_32_and_64_bits_wrap_and_others_were_set_back() {
        for (before, now, expected) in [
            (5, 5, Step::Up(0)),
            (5, 9, Step::Up(4)),
            (0xffff_fff0, 0x10, Step::Up(0x20)),
            (u64::MAX, 0, Step::Up(1)),
            (u64::MAX - 1, 5, Step::Up(7)),
            // From the lower half nothing wraps in one interval.
            (1000, 3, Step::Anew),
            (0x7fff_ffff, 0, Step::Anew),
            (0x8000_0000, 0x7fff_fff0, Step::Anew),
            (1 << 40, 7, Step::Anew),
            // Three quarters of the way round: no counter does that.
            (1 << 63, 1 << 62, Step::Anew),
        ] {
            assert_eq!(step(before, now), expected, "{before:#x} to {now:#x}");
        }
    }

    fn counter(name: &str, value: Told<u64>) -> Counter {
        Counter::new(name.to_owned(), value, known::of_port(name))
    }

    #[test]
    fn rates_are_of_the_time_that_passed() {
        let mut now = [
            counter("out_of_sequence", Told::Is(40)),
            counter("rnr_nak_retry_err", Told::Is(2)),
            counter("new", Told::Is(9)),
            counter("active_mrs", Told::Is(3)),
            counter("unread", Told::not("gone")),
        ];
        let before = [
            counter("unread", Told::Is(1)),
            counter("active_mrs", Told::Is(7)),
            counter("rnr_nak_retry_err", Told::Is(5)),
            counter("out_of_sequence", Told::Is(10)),
            counter("gone", Told::Is(10)),
        ];
        compare(&mut now, &before, Duration::from_millis(500));
        let rates: Vec<_> = now.iter().map(|counter| counter.per_second.clone()).collect();
        let anew = Some(Told::not("it counts anew"));
        assert_eq!(rates, [Some(Told::Is(60.0)), anew, None, None, None]);
        compare(&mut now, &before, Duration::ZERO);
        assert_eq!(now[0].rate(), Some(60.0));
    }

    proptest! {
        #[test]
        fn a_counter_that_goes_up_by_less_than_half_is_followed(
            start in any::<u32>(), more in 0..1u64 << 31,
        ) {
            let start = u64::from(start);
            let wrapped = (start + more) & 0xffff_ffff;
            let expected = if wrapped >= start || start >= 1 << 31 { Step::Up(more) } else { Step::Anew };
            prop_assert_eq!(step(start, wrapped), expected);
        }

        #[test]
        fn no_reading_panics(before in any::<u64>(), now in any::<u64>()) {
            let _ = step(before, now);
        }
    }
}
