//! Packet sequence numbers in one direction: what is new, what is missing, what comes again.
//!
//! A packet is *new* if its number comes after all that were seen. What it leaves out is a *gap*. One
//! whose number comes before the highest that was seen is, by what is known of it:
//!
//! * a *duplicate*: the same packet as one of the last [`RECENT`], not more than [`AT_ONCE`] away from it,
//!   with nothing between that made its sender send it again. Networks make such, and captures at two
//!   places;
//! * *sent again*, if its number was seen before and it is no duplicate;
//! * *reordered*, if it fills a gap not later than [`AT_ONCE`] after it was seen, with nothing between that made its sender send
//!   it again; else it was *sent again*, too, the first one having been lost before it got here.
//!
//! What makes a sender send again is told by [`Sequence::asked`]: a negative acknowledgement, or data of
//! a READ that is missing.

use mkey_wire::u24::Psn;

/// Packets that a duplicate is looked for among.
pub const RECENT: usize = 8;
/// What comes again within this time, in nanoseconds, is not sent again unless it was asked for: no
/// timeout that is in use is as short.
pub const AT_ONCE: u64 = 100_000;
/// Gaps that are remembered; of more, the oldest is forgotten.
pub const MOST_GAPS: usize = 64;
/// A number that is so far ahead is that of another connection, or of the same one after a pause of the
/// capture.
pub const AHEAD: u32 = 1 << 16;
/// So far back a request may be sent again though no longer one is outstanding.
pub const BACK: u32 = 1 << 16;

/// What a packet is to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The next one.
    New,
    /// New, and so many are missing before it.
    Gap(u32),
    /// Missing until now, overtaken on the way.
    Reordered,
    /// The same once more.
    Duplicate,
    /// Sent again; the first one was seen.
    Again,
    /// Sent again; the first one never got here.
    Filled,
    /// The first of a sequence that has nothing to do with the one before.
    Restart,
}

impl Place {
    /// Whether it was not seen before.
    pub fn is_first(self) -> bool {
        !matches!(self, Self::Duplicate | Self::Again)
    }
}

/// What a packet that comes after the highest number must leave out for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Every number has its packet: all that are left out are missing.
    All,
    /// The next number is missing, if this is not it.
    First,
    /// The number before this is missing, if it is not the highest that was seen.
    Before,
    /// Nothing: numbers may be left out.
    Free,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// Its number.
    pub psn: Psn,
    /// How many numbers it takes: those of a READ's answer, else 1.
    pub count: u32,
    /// How many more it may take.
    pub slack: u32,
    /// What follows which.
    pub follows: Follows,
    /// How far back a packet may be sent again.
    pub back: u32,
    /// When.
    pub time: Option<u64>,
    /// What tells two packets of one number apart.
    pub identity: u64,
}

/// The numbers of one direction.
#[derive(Debug, Default)]
pub struct Sequence {
    /// Behind the highest number that was seen.
    next: Option<Psn>,
    slack: u32,
    gaps: Vec<Gap>,
    recent: [Option<Recent>; RECENT],
    at: usize,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    first: Psn,
    count: u32,
    since: Option<u64>,
    asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    psn: Psn,
    identity: u64,
    time: Option<u64>,
}

impl Sequence {
    /// The number behind the highest that was seen.
    pub fn next(&self) -> Option<Psn> {
        self.next
    }

    /// How many numbers may follow that belong to what was seen.
    pub fn slack(&self) -> u32 {
        self.slack
    }

    /// What follows is known by now: numbers that were left open belong to what was seen, up to this one.
    pub fn settle(&mut self, next: Psn) {
        if self.slack > 0 {
            (self.next, self.slack) = (Some(next), 0);
        }
    }

    /// Gaps that were forgotten: what fills them counts as sent again.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// What came until now may be sent again from now on.
    pub fn asked(&mut self) {
        self.recent = [None; RECENT];
        self.gaps.iter_mut().for_each(|gap| gap.asked = true);
    }

    /// A packet comes.
    pub fn see(&mut self, packet: Numbered) -> Place {
        let place = self.place(&packet);
        let slot = Recent { psn: packet.psn, identity: packet.identity, time: packet.time };
        if let Some(recent) = self.recent.get_mut(self.at % RECENT) {
            *recent = Some(slot);
        }
        self.at = (self.at + 1) % RECENT;
        place
    }

    fn place(&mut self, packet: &Numbered) -> Place {
        let Some(next) = self.next else {
            self.start(packet);
            return Place::New;
        };
        let past = packet.psn.past(next);
        if past > AHEAD as i32 || past.unsigned_abs() > packet.back.max(BACK) && past < 0 {
            self.start(packet);
            return Place::Restart;
        }
        if past < 0 {
            return self.before(packet, next);
        }
        let left_out = past.unsigned_abs();
        let missing = match packet.follows {
            Follows::All if left_out <= self.slack => None,
            Follows::All => Some((next, left_out)),
            Follows::First => Some((next, left_out.min(1))),
            Follows::Before => Some((packet.psn.minus(left_out.min(1)), left_out.min(1))),
            Follows::Free => None,
        };
        self.advance(packet);
        match missing {
            Some((first, count @ 1..)) => {
                self.remember(Gap { first, count, since: packet.time, asked: false });
                Place::Gap(count)
            }
            _ => Place::New,
        }
    }

    fn start(&mut self, packet: &Numbered) {
        self.gaps.clear();
        self.recent = [None; RECENT];
        self.advance(packet);
    }

    fn advance(&mut self, packet: &Numbered) {
        self.next = Some(packet.psn.plus(packet.count));
        self.slack = packet.slack;
    }

    fn remember(&mut self, gap: Gap) {
        if self.gaps.len() >= MOST_GAPS {
            self.gaps.remove(0);
            self.forgotten += 1;
        }
        self.gaps.push(gap);
    }

    /// One that comes after others of higher numbers.
    fn before(&mut self, packet: &Numbered, next: Psn) -> Place {
        let end = packet.psn.plus(packet.count);
        if next.is_before(end) {
            self.advance(packet);
        }
        if let Some(gap) = self.fill(packet.psn, packet.count) {
            let soon = apart(gap.since, packet.time) <= AT_ONCE;
            return if soon && !gap.asked { Place::Reordered } else { Place::Filled };
        }
        let same = |recent: &Recent| {
            recent.psn == packet.psn
                && recent.identity == packet.identity
                && apart(recent.time, packet.time) <= AT_ONCE
        };
        if self.recent.iter().flatten().any(same) { Place::Duplicate } else { Place::Again }
    }

    /// Takes numbers out of the gap that has the first of them.
    fn fill(&mut self, psn: Psn, count: u32) -> Option<Gap> {
        let within = |gap: &Gap| u32::try_from(psn.past(gap.first)).is_ok_and(|at| at < gap.count);
        let index = self.gaps.iter().position(within)?;
        let gap = self.gaps.remove(index);
        let before = psn.past(gap.first).unsigned_abs();
        let filled = count.min(gap.count - before);
        let after = gap.count - before - filled;
        let parts =
            [Gap { count: before, ..gap }, Gap { first: psn.plus(filled), count: after, ..gap }];
        for part in parts.into_iter().filter(|part| part.count > 0) {
            self.remember(part);
        }
        Some(gap)
    }
}

/// Nanoseconds between two times, whichever is the later; 0 if one is not known. Where a clock was set back
/// between two packets, they are as far apart as their times.
fn apart(one: Option<u64>, other: Option<u64>) -> u64 {
    one.zip(other).map_or(0, |(one, other)| one.abs_diff(other))
}

/// Nanoseconds from one time to a later one; 0 if a clock went back, or one is not known.
pub fn elapsed(from: Option<u64>, to: Option<u64>) -> u64 {
    from.zip(to).map_or(0, |(from, to)| to.saturating_sub(from))
}

#[cfg(test)]
mod tests;
