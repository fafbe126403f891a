//! The rules of the module's head, beside a model that keeps everything.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Numbers as they are when they do not wrap, and all that was ever seen.
struct Model {
    next: Option<i64>,
    history: Vec<(i64, u64, u64)>,
    /// Packets before these do not explain what comes again.
    since_asked: usize,
    /// Since when each is missing, and whether it was asked for.
    missing: BTreeMap<i64, (u64, bool)>,
}

impl Model {
    fn asked(&mut self) {
        self.since_asked = self.history.len();
        self.missing.values_mut().for_each(|missing| missing.1 = true);
    }

    fn see(&mut self, number: i64, count: i64, identity: u64, time: u64) -> Place {
        let place = match self.next {
            None => Place::New,
            Some(next) if number == next => Place::New,
            Some(next) if number > next => {
                (next..number).for_each(|missing| {
                    self.missing.insert(missing, (time, false));
                });
                Place::Gap((number - next) as u32)
            }
            Some(_) => match self.missing.remove(&number) {
                Some((since, false)) if time - since <= 100_000 => Place::Reordered,
                Some(_) => Place::Filled,
                None => {
                    let from = self.history.len().saturating_sub(8).max(self.since_asked);
                    let twice = self.history[from..].iter().any(|(before, of, at)| {
                        *before == number && *of == identity && time - at <= 100_000
                    });
                    if twice { Place::Duplicate } else { Place::Again }
                }
            },
        };
        self.next = self.next.max(Some(number + count));
        self.history.push((number, identity, time));
        place
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// The next packet, of so many numbers, after so many that are left out.
    Ahead {
        left_out: i64,
        count: i64,
        identity: u64,
    },
    /// One of a number that is so far back.
    Back {
        by: i64,
        identity: u64,
    },
    Asked,
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (prop_oneof![4 => Just(0), 1 => 1..6i64], prop_oneof![4 => Just(1), 1 => 2..5i64], 0..2u64)
            .prop_map(|(left_out, count, identity)| Event::Ahead { left_out, count, identity }),
        4 => (1..24i64, 0..2u64).prop_map(|(by, identity)| Event::Back { by, identity }),
        1 => Just(Event::Asked),
        3 => prop_oneof![1..2_000u64, 90_000..110_000u64].prop_map(Event::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Around the wrap of 24 bits, too.
    #[test]
    fn places_are_those_of_a_model_that_keeps_everything(
        start in prop_oneof![-40..40i64, 0..0x100_0000i64],
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut sequence = Sequence::default();
        let mut model = Model { next: None, history: Vec::new(), since_asked: 0, missing: BTreeMap::new() };
        let mut time = 1_000_000;
        for event in events {
            let (number, count, identity) = match event {
                Event::Ahead { left_out, count, identity } => {
                    (model.next.map_or(start, |next| next + left_out), count, identity)
                }
                Event::Back { by, identity } => match model.next {
                    // Before the first packet nothing is known.
                    Some(next) if next - by >= start => (next - by, 1, identity),
                    _ => continue,
                },
                Event::Asked => {
                    sequence.asked();
                    model.asked();
                    continue;
                }
                Event::Wait(by) => {
                    time += by;
                    continue;
                }
            };
            let place = sequence.see(Numbered {
                psn: Psn::wrapping(number as u32),
                count: count as u32,
                slack: 0,
                follows: Follows::All,
                back: 0,
                time: Some(time),
                identity,
            });
            prop_assert_eq!(place, model.see(number, count, identity, time), "{} at {}", number, time);
            prop_assert_eq!(sequence.next(), model.next.map(|next| Psn::wrapping(next as u32)));
        }
        prop_assert_eq!(sequence.forgotten(), 0);
    }

    /// Any packets at all: memory stays what it is.
    #[test]
    fn nothing_grows(packets in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), 0..4u8, any::<Option<u64>>()), 0..400)) {
        let mut sequence = Sequence::default();
        for (psn, count, slack, follows, time) in packets {
            let follows = [Follows::All, Follows::First, Follows::Before, Follows::Free][usize::from(follows)];
            let psn = Psn::wrapping(psn >> 16);
            let packet = Numbered { psn, count: count >> 12, slack, follows, back: slack, time, identity: 0 };
            sequence.see(packet);
            prop_assert!(sequence.gaps.len() <= MOST_GAPS);
        }
    }
}

fn see(sequence: &mut Sequence, psn: u32, follows: Follows) -> Place {
    let psn = Psn::wrapping(psn);
    let time = Some(1);
    sequence.see(Numbered { psn, count: 1, slack: 0, follows, back: 0, time, identity: 0 })
}

#[test]
fn another_connection_of_the_same_queue_pair_is_no_gap() {
    let mut sequence = Sequence::default();
    assert_eq!(see(&mut sequence, 0xff_ffff, Follows::All), Place::New);
    assert_eq!(see(&mut sequence, AHEAD, Follows::All), Place::Gap(AHEAD));
    assert_eq!(see(&mut sequence, 2 * AHEAD + 2, Follows::All), Place::Restart);
    assert_eq!(see(&mut sequence, 2 * AHEAD + 3, Follows::All), Place::New);
    assert_eq!(see(&mut sequence, AHEAD + 3, Follows::All), Place::Restart);
}

#[test]
fn numbers_may_be_left_out_where_that_means_nothing() {
    let mut sequence = Sequence::default();
    assert_eq!(see(&mut sequence, 10, Follows::Free), Place::New);
    assert_eq!(see(&mut sequence, 20, Follows::Free), Place::New);
    // The last packet of one answer and the first of the next are missing.
    assert_eq!(see(&mut sequence, 30, Follows::First), Place::Gap(1));
    assert_eq!(see(&mut sequence, 40, Follows::Before), Place::Gap(1));
    assert_eq!(see(&mut sequence, 21, Follows::All), Place::Reordered);
    assert_eq!(see(&mut sequence, 39, Follows::All), Place::Reordered);
    assert_eq!(see(&mut sequence, 41, Follows::Before), Place::New);
}

#[test]
fn a_read_whose_answer_may_take_more_numbers_leaves_room() {
    let mut sequence = Sequence::default();
    let read = Numbered {
        psn: Psn::wrapping(5),
        count: 2,
        slack: 14,
        follows: Follows::All,
        back: 0,
        time: None,
        identity: 0,
    };
    assert_eq!(sequence.see(read), Place::New);
    assert_eq!(see(&mut sequence, 21, Follows::All), Place::New);
    assert_eq!(see(&mut sequence, 24, Follows::All), Place::Gap(2));
}
