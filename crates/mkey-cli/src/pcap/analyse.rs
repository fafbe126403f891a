//! From a capture to what is known of its traffic.

use super::file::{Capture, Damage};
use super::flows::Flows;
use super::frame::{Found, find};
use super::packet::{Icrc, Seen};
use super::stream::Tally;
use std::io::Read;

/// What is looked at, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// UDP port that RoCEv2 packets are sent to.
    pub port: u16,
    /// Whether ICRCs are checked. A packet with a wrong one is followed no further.
    pub check_icrc: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { port: mkey_wire::udp::ROCE_PORT, check_icrc: true }
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Totals {
    /// UDP port that RoCEv2 packets are sent to.
    pub port: u16,
    /// Frames in the capture.
    pub frames: u64,
    /// Bytes of them that were captured.
    pub captured: u64,
    /// Bytes of the file up to its end, or to where it could not be read further.
    pub file_bytes: u64,
    /// The earliest and the latest time of a frame, in nanoseconds since 1970.
    pub times: Option<(u64, u64)>,
    /// Frames whose time is before that of the frame in front of them by more than [`BACK`], and the
    /// longest such way back, in nanoseconds.
    pub back: (u64, u64),
    /// RoCE packets, each once.
    pub roce: Tally,
    /// RoCEv1 among them.
    pub version_1: u64,
    /// RoCE packets once more, captured at their other end.
    pub copies: u64,
    /// RoCE packets that were not captured whole.
    pub cut: u64,
    /// Frames with something else.
    pub other: u64,
    /// Parts of IP packets.
    pub fragments: u64,
    /// Frames whose headers were not captured whole.
    pub cut_headers: u64,
    /// Frames of a link type that is not known here, and one such type.
    pub unknown_link: (u64, Option<u16>),
    /// What was sent to RoCE's port and is no RoCE packet.
    pub malformed: u64,
    /// The first of these: where in the file, and what is wrong.
    pub first_malformed: Option<(u64, String)>,
    /// Why the file could not be read to its end.
    pub damage: Option<Damage>,
}

/// Captures of several queues or interfaces are out of order by less than this, in nanoseconds.
pub const BACK: u64 = 1_000_000;

/// Frames between two tellings of how far it is.
const TELL: u64 = 4096;

/// Goes through a capture to its end; `tell` is told now and then how many bytes that was.
pub fn analyse<R: Read>(
    capture: &mut Capture<R>,
    options: Options,
    mut tell: impl FnMut(u64),
) -> (Totals, Flows) {
    let mut totals = Totals { port: options.port, ..Totals::default() };
    let mut flows = Flows::default();
    let mut before = None;
    loop {
        let record = match capture.read() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(damage) => {
                totals.damage = Some(damage);
                break;
            }
        };
        totals.frames += 1;
        totals.captured += record.bytes.len() as u64;
        if let Some(time) = record.time {
            let (first, last) = totals.times.unwrap_or((time, time));
            totals.times = Some((first.min(time), last.max(time)));
            let back = before.replace(time).map_or(0, |before: u64| before.saturating_sub(time));
            if back > BACK {
                totals.back = (totals.back.0 + 1, totals.back.1.max(back));
            }
        }
        match find(record.link, record.bytes, options.port) {
            Found::Roce(datagram) => match Seen::read(&datagram, record.time, options.check_icrc) {
                Ok(seen) => {
                    packet(&mut totals, &mut flows, &seen, datagram.missing > 0);
                }
                // A packet that is cut in its first header says nothing of itself.
                Err(_) if datagram.missing > 0 && datagram.bytes.len() < mkey_wire::bth::LEN => {
                    totals.cut_headers += 1;
                }
                Err(error) => malformed(&mut totals, record.offset, error.to_string()),
            },
            Found::Wrong(what) => malformed(&mut totals, record.offset, what.to_owned()),
            Found::Fragment => totals.fragments += 1,
            Found::Other => totals.other += 1,
            Found::Cut => totals.cut_headers += 1,
            Found::UnknownLink => {
                let (count, kind) = totals.unknown_link;
                totals.unknown_link = (count + 1, kind.or(record.link));
            }
        }
        if totals.frames.is_multiple_of(TELL) {
            tell(capture.offset());
        }
    }
    totals.file_bytes = capture.offset();
    (totals, flows)
}

fn packet(totals: &mut Totals, flows: &mut Flows, seen: &Seen, cut: bool) {
    let counts = match seen.icrc {
        Icrc::Right | Icrc::Unchecked => flows.see(seen),
        Icrc::Wrong => flows.damaged(seen),
    };
    if !counts {
        totals.copies += 1;
        return;
    }
    totals.roce.see(seen);
    totals.version_1 += u64::from(seen.source_port.is_none());
    totals.cut += u64::from(cut);
}

fn malformed(totals: &mut Totals, offset: u64, what: String) {
    totals.malformed += 1;
    totals.first_malformed.get_or_insert((offset, what));
}
