//! Whole replays in rounds: each strategy once a round, so that drift meets them alike.

use super::left::{Left, Why};
use super::player;
use super::report::{Figures, Row};
use super::script::{Act, Step};
use super::stage::Stage;
use super::strategy::Strategy;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::{Budget, Samples, median, nanoseconds};
use crate::bench::progress::Progress;
use crate::bench::report::{Missing, Outcome};
use crate::bench::stop::Stop;
use std::time::{Duration, Instant};

/// Rounds where the time is too short for more.
const LEAST: u64 = 3;
/// Rounds at most.
const MOST: u64 = 1_000;
/// Steps after which a signal is looked for.
const LOOK: usize = 1024;

/// When the calls of a script are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Speed {
    /// One after the other, without a pause
    Asap,
    /// At the times of the recording
    Recorded,
}

/// A strategy in the making.
struct Playing {
    strategy: Strategy,
    /// By stage: the steps that it plays.
    steps: Vec<Vec<Step>>,
    left: Left,
    register: Samples,
    deregister: Samples,
    rounds: Vec<Round>,
    refused: Option<String>,
    failed: Option<Missing>,
}

/// What one replay took.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begin: u64,
    calls: u64,
    end: u64,
    made: u64,
    most_bytes: u64,
    /// Registrations that were not refused.
    played: u64,
    refused: u64,
}

impl Round {
    fn total(&self) -> u64 {
        self.begin.saturating_add(self.calls).saturating_add(self.end)
    }

    fn add(&mut self, other: &Self) {
        self.begin += other.begin;
        self.calls += other.calls;
        self.end += other.end;
        self.made += other.made;
        self.played += other.played;
        self.refused += other.refused;
        // Processes are played one after the other, and ran beside each other.
        self.most_bytes = self.most_bytes.saturating_add(other.most_bytes);
    }
}

/// Plays the stages by each strategy, `as-recorded` among them, for about `time`.
///
/// # Errors
/// `Stopped`; if nothing at all is played, why. Whatever else keeps a strategy from being measured stands in its
/// row.
pub fn play(
    stages: &[Stage],
    strategies: &[Strategy],
    speed: Speed,
    time: Duration,
    stop: &Stop,
    progress: &Progress,
) -> Result<Vec<Row>> {
    let mut all: Vec<Playing> = strategies.iter().map(|s| Playing::new(*s, stages)).collect();
    let whole = Playing::new(Strategy::AsRecorded, stages);
    if whole.registrations() == 0 {
        return Err(nothing(stages, &whole));
    }
    let whole = whole.registrations() as u64;
    all.iter_mut().for_each(|playing| playing.only_if_all(playing.registrations() as u64, whole));
    let least = if speed == Speed::Recorded { 1 } else { LEAST };
    let budget = Budget::new(time, least, MOST);
    let mut round = 0;
    while budget.more(round) {
        // Who goes first takes turns.
        let count = all.len().max(1);
        for place in 0..all.len() {
            let number = (place + round as usize) % count;
            let Some(playing) = all.get_mut(number) else { continue };
            if playing.failed.is_some() {
                continue;
            }
            stop.check()?;
            progress.row(place, &format!("round {}, {}", round + 1, playing.strategy));
            match playing.round(stages, speed, stop) {
                Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
                Err(error) => playing.failed = Some(error.missing()),
                Ok(of_round) => playing.rounds.push(of_round),
            }
        }
        round += 1;
    }
    let mut reference = Vec::new();
    let recorded = all.iter_mut().find(|playing| playing.strategy == Strategy::AsRecorded);
    if let Some(recorded) = recorded.filter(|playing| playing.failed.is_none()) {
        recorded.count_refused();
        if recorded.played() == Some(0) {
            return Err(nothing(stages, recorded));
        }
        reference = recorded.rounds.iter().map(|round| round.total() as f64).collect();
        let whole = recorded.played();
        for playing in all.iter_mut().filter(|other| other.strategy != Strategy::AsRecorded) {
            playing.count_refused();
            if let (Some(played), Some(whole)) = (playing.played(), whole) {
                playing.only_if_all(played, whole);
            }
        }
    }
    Ok(all.into_iter().map(|playing| playing.row(&reference)).collect())
}

/// That nothing is played, and why not.
fn nothing(stages: &[Stage], playing: &Playing) -> RowError {
    let mut left = playing.left.clone();
    stages.iter().for_each(|stage| left.merge(&stage.script.left));
    let why = left.sentences().chain(playing.refused.clone()).collect::<Vec<_>>().join("; ");
    RowError::Missing(Missing::plain(format!("nothing of this recording can be replayed: {why}")))
}

impl Playing {
    fn new(strategy: Strategy, stages: &[Stage]) -> Self {
        let mut left = Left::default();
        let steps = stages.iter().map(|stage| {
            let (steps, of_stage) = stage.steps(strategy);
            left.merge(&of_stage);
            steps
        });
        let steps: Vec<Vec<Step>> = steps.collect();
        let (register, deregister) = (Samples::new(1), Samples::new(1));
        let (rounds, refused, failed) = (Vec::new(), None, None);
        Self { strategy, steps, left, register, deregister, rounds, refused, failed }
    }

    /// How many registrations are played.
    fn registrations(&self) -> usize {
        let steps = self.steps.iter().flatten();
        steps.filter(|step| step.act == Act::Register).count()
    }

    /// How many of them were not refused, in the round with the fewest; `None`: there was no round.
    fn played(&self) -> Option<u64> {
        self.rounds.iter().map(|round| round.played).min()
    }

    /// Counts what the device refused.
    fn count_refused(&mut self) {
        let refused = self.rounds.iter().map(|round| round.refused).max().unwrap_or(0);
        if refused > 0 {
            self.left.add(Why::Refused, refused, 0);
        }
    }

    /// What plays other than the `whole` registrations that `as-recorded` plays can not be compared with it.
    fn only_if_all(&mut self, played: u64, whole: u64) {
        if played == whole || self.failed.is_some() {
            return;
        }
        let what = match played < whole {
            true => {
                let why = self.left.sentences().chain(self.refused.clone());
                let why = why.collect::<Vec<_>>().join("; ");
                format!("plays {played} of {whole} registrations; {why}")
            }
            false => format!("plays {played} registrations, and as-recorded {whole}"),
        };
        self.failed = Some(Missing::plain(what));
    }

    fn round(&mut self, stages: &[Stage], speed: Speed, stop: &Stop) -> Result<Round> {
        let mut sum = Round::default();
        for number in 0..stages.len() {
            let Some(stage) = stages.get(number) else { continue };
            sum.add(&self.replay(stage, number, speed, stop)?);
        }
        Ok(sum)
    }

    fn replay(&mut self, stage: &Stage, number: usize, speed: Speed, stop: &Stop) -> Result<Round> {
        let steps = self.steps.get(number).map(Vec::as_slice).unwrap_or_default();
        let mut player = player::start(self.strategy, stage)?;
        let mut round = Round::default();
        let start = Instant::now();
        player.begin()?;
        round.begin = nanoseconds(start.elapsed());
        let clock = Instant::now();
        let first = steps.first().map_or(0, |step| step.at);
        for (done, step) in steps.iter().enumerate() {
            if done % LOOK == 0 {
                stop.check()?;
            }
            if speed == Speed::Recorded {
                let due = Duration::from_nanos(step.at.saturating_sub(first));
                let early = due.saturating_sub(clock.elapsed());
                sleep(early, stop)?;
            }
            let start = Instant::now();
            let outcome = match step.act {
                Act::Register => player.register(step.range),
                Act::Deregister => player.deregister(step.range),
            };
            let took = nanoseconds(start.elapsed());
            round.calls = round.calls.saturating_add(took);
            match (outcome, step.act) {
                (Ok(()), Act::Register) => {
                    round.played += 1;
                    self.register.record_ns(took);
                }
                (Ok(()), Act::Deregister) => self.deregister.record_ns(took),
                (Err(error), _) if error.is_failure() => return Err(error),
                (Err(error), _) => {
                    round.refused += 1;
                    self.refused.get_or_insert_with(|| error.to_string());
                }
            }
        }
        let start = Instant::now();
        player.finish()?;
        round.end = nanoseconds(start.elapsed());
        (round.made, round.most_bytes) = (player.made(), player.most_bytes());
        Ok(round)
    }

    fn row(mut self, reference: &[f64]) -> Row {
        let strategy = self.strategy;
        let of = |part: fn(&Round) -> u64| {
            let mut values: Vec<f64> = self.rounds.iter().map(|round| part(round) as f64).collect();
            median(&mut values)
        };
        let totals = self.rounds.iter().map(|round| round.total() as f64);
        let pairs: Vec<(f64, f64)> = totals.zip(reference.iter().copied()).collect();
        let mut ratios: Vec<f64> = pairs.iter().map(|(own, other)| own / other.max(1.0)).collect();
        let mut savings: Vec<f64> = pairs.iter().map(|(own, other)| other - own).collect();
        let figures = || {
            Some(Figures {
                rounds: self.rounds.len() as u64,
                total_ns: of(Round::total)?,
                begin_ns: of(|round| round.begin)?,
                end_ns: of(|round| round.end)?,
                ratio: median(&mut ratios)?,
                saving_ns: median(&mut savings)?,
                register: self.register.summary(),
                deregister: self.deregister.summary(),
                made: self.rounds.iter().map(|round| round.made).max()?,
                most_bytes: self.rounds.iter().map(|round| round.most_bytes).max()?,
                left: self.left.clone(),
                refused: self.refused.clone(),
            })
        };
        let outcome = match (self.failed.take(), figures) {
            (Some(missing), _) => Outcome::NotMeasured(missing),
            (None, mut figures) => match figures() {
                Some(figures) => Outcome::Measured(Box::new(figures)),
                None => {
                    let why = "as-recorded, which it is compared with, was not measured";
                    Outcome::NotMeasured(Missing::plain(why))
                }
            },
        };
        Row { strategy, outcome }
    }
}

/// Sleeps in parts, to hear of a signal.
fn sleep(mut time: Duration, stop: &Stop) -> Result<()> {
    const PART: Duration = Duration::from_millis(100);
    while !time.is_zero() {
        stop.check()?;
        let part = time.min(PART);
        std::thread::sleep(part);
        time -= part;
    }
    Ok(())
}
