//! A capture file, record by record: the classic format of libpcap in both byte orders, with micro-
//! or nanoseconds, and pcapng with any number of sections and interfaces.
//!
//! Memory is bounded by the longest block that is taken, [`LONGEST`]. What is wrong is told with
//! where in the file it is; everything before it has been given out by then.

use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{
    InterfaceDescriptionBlock, OptionCode, PcapHeader, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header,
};
use serde::Serialize;
use std::fmt;
use std::io::{self, Read};

/// Bytes of the longest block or record: more than any tool captures of a frame. What claims to be
/// longer is damage.
pub const LONGEST: usize = 16 << 20;
/// Interfaces of a section at most; frames of others have no link type.
pub const MOST_INTERFACES: usize = 1 << 16;

/// Bytes that are asked of the input at once: few enough to be in the cache when they are looked at.
const CHUNK: usize = 256 << 10;
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP_HEADER: usize = 24;

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where its record is in the file, in bytes.
    pub offset: u64,
    /// When it was captured, in nanoseconds since 1970, if the file says so.
    pub time: Option<u64>,
    /// The number of its link type (`LINKTYPE_`); `None` if it is of no interface of the file.
    pub link: Option<u16>,
    /// As much of it as was captured.
    pub bytes: &'a [u8],
}

/// Why a file could not be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong, in words.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

/// A file that is being read.
pub struct Capture<R> {
    window: Window<R>,
    format: Format,
}

enum Format {
    Pcap { header: PcapHeader },
    PcapNg { big: bool, interfaces: Vec<Interface> },
}

/// What a section says of one of its interfaces.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    snap_len: u32,
    clock: Clock,
}

/// A frame before its bytes are lent: where they are in the window.
struct Found {
    record: usize,
    from: usize,
    to: usize,
    time: Option<u64>,
    link: Option<u16>,
}

impl<R: Read> Capture<R> {
    /// Begins with a file.
    ///
    /// # Errors
    /// [`Damage`] if it is no capture.
    pub fn new(input: R) -> Result<Self, Damage> {
        let mut window =
            Window { input, bytes: vec![0; CHUNK], from: 0, to: 0, offset: 0, end: false };
        if !window.have(PCAP_HEADER)? && window.unread().len() < 4 {
            return Err(window.damage(match window.unread().len() {
                0 => "the file is empty".to_owned(),
                few => format!("no capture: {few} bytes"),
            }));
        }
        let start = window.unread();
        if start.starts_with(&SECTION) {
            return Ok(Self {
                window,
                format: Format::PcapNg { big: false, interfaces: Vec::new() },
            });
        }
        match parse_pcap_header(start) {
            Ok((_, header)) => {
                window.consume(PCAP_HEADER);
                Ok(Self { window, format: Format::Pcap { header } })
            }
            Err(pcap_parser::nom::Err::Incomplete(_)) => {
                let have = start.len();
                Err(window.damage(format!("the header is cut: {have} of {PCAP_HEADER} bytes")))
            }
            Err(_) => {
                let what = unknown(start);
                Err(window.damage(what))
            }
        }
    }

    /// The next frame; `None` at the end.
    ///
    /// # Errors
    /// [`Damage`]: nothing can be read behind it.
    pub fn read(&mut self) -> Result<Option<Record<'_>>, Damage> {
        let found = match &mut self.format {
            Format::Pcap { header } => legacy(&mut self.window, header)?,
            Format::PcapNg { big, interfaces } => loop {
                match block(&mut self.window, big, interfaces)? {
                    Step::End => break None,
                    Step::Frame(found) => break Some(found),
                    Step::Other(length) => self.window.consume(length),
                }
            },
        };
        let Some(Found { record, from, to, time, link }) = found else { return Ok(None) };
        let offset = self.window.offset;
        let bytes = self.window.take(record).get(from..to).unwrap_or_default();
        Ok(Some(Record { offset, time, link, bytes }))
    }

    /// Bytes of the file that were gone through.
    pub fn offset(&self) -> u64 {
        self.window.offset
    }
}

/// What a file that is no capture may be.
fn unknown(start: &[u8]) -> String {
    let packed =
        [(&[0x1f, 0x8b][..], "zcat"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"), (b"BZh", "bzcat")]
            .into_iter()
            .chain([(&[0xfd, b'7', b'z', b'X', b'Z'][..], "xzcat")]);
    match packed.into_iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, program)) => format!("compressed; {program} FILE | mkey pcap - reads it"),
        None => "neither pcap nor pcapng".to_owned(),
    }
}

/// A record of the classic format.
fn legacy<R: Read>(window: &mut Window<R>, header: &PcapHeader) -> Result<Option<Found>, Damage> {
    let (head, big) = (if header.is_modified_format() { 24 } else { 16 }, header.is_bigendian());
    if !window.have(head)? {
        return match window.unread().len() {
            0 => Ok(None),
            have => Err(window
                .damage(format!("the file is cut: {have} of {head} bytes of a record's header"))),
        };
    }
    let captured = number(window.unread(), 8, big);
    let length = captured as usize;
    if length > LONGEST {
        return Err(window.damage(format!(
            "a record that claims {captured} bytes: the file is damaged here, or cut and continued"
        )));
    }
    let record = head + length;
    if !window.have(record)? {
        let have = window.unread().len();
        return Err(window.damage(format!("the file is cut: {have} of {record} bytes of a record")));
    }
    let parse = match (header.is_modified_format(), big) {
        (true, _) => parse_pcap_frame_modified,
        (false, true) => parse_pcap_frame_be,
        (false, false) => parse_pcap_frame,
    };
    let whole = window.unread().get(..record).unwrap_or_default();
    let Ok((_, frame)) = parse(whole) else {
        return Err(window.damage("a record that can not be read".to_owned()));
    };
    let unit = if header.is_nanosecond_precision() { 1 } else { 1000 };
    let time = u64::from(frame.ts_sec) * 1_000_000_000 + u64::from(frame.ts_usec) * unit;
    // The upper half says whether frames have a check sequence at their end, which is no matter here.
    let link = Some((header.network.0 & 0xffff) as u16);
    Ok(Some(Found { record, from: head, to: record, time: Some(time), link }))
}

/// What a block of pcapng is.
enum Step {
    End,
    Frame(Found),
    /// None with a frame, of so many bytes.
    Other(usize),
}

fn block<R: Read>(
    window: &mut Window<R>,
    big: &mut bool,
    interfaces: &mut Vec<Interface>,
) -> Result<Step, Damage> {
    if !window.have(12)? {
        return match window.unread().len() {
            0 => Ok(Step::End),
            have => Err(window.damage(format!("the file is cut: {have} of 12 bytes of a block"))),
        };
    }
    let section = window.unread().starts_with(&SECTION);
    if section {
        *big = window.unread().get(8..12) == Some(&[0x1a, 0x2b, 0x3c, 0x4d]);
    }
    let claimed = number(window.unread(), 4, *big);
    let length = claimed as usize;
    if length < 12 || !length.is_multiple_of(4) || length > LONGEST {
        return Err(
            window.damage(format!("a block that claims {claimed} bytes: the file is damaged here"))
        );
    }
    if !window.have(length)? {
        let have = window.unread().len();
        return Err(window.damage(format!("the file is cut: {have} of {length} bytes of a block")));
    }
    let whole = window.unread().get(..length).unwrap_or_default();
    let parsed = if *big { parse_block_be(whole) } else { parse_block_le(whole) };
    let frame = |from: usize, bytes: usize, time, link| {
        Step::Frame(Found { record: length, from, to: from + bytes, time, link })
    };
    let step = match parsed {
        Ok((_, Block::EnhancedPacket(packet))) => {
            let interface = interfaces.get(packet.if_id as usize);
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let time = interface.map(|interface| interface.clock.nanoseconds(ticks));
            frame(28, packet.packet_data().len(), time, interface.map(|interface| interface.link))
        }
        Ok((_, Block::SimplePacket(packet))) => {
            let interface = interfaces.first();
            let most = interface.map_or(0, |interface| interface.snap_len);
            let most = if most == 0 { usize::MAX } else { most as usize };
            let bytes = packet.packet_data().len().min(most);
            frame(12, bytes, None, interface.map(|interface| interface.link))
        }
        Ok((_, Block::InterfaceDescription(described))) => {
            if interfaces.len() < MOST_INTERFACES {
                interfaces.push(Interface {
                    link: (described.linktype.0 & 0xffff) as u16,
                    snap_len: described.snaplen,
                    clock: Clock::of(&described, *big),
                });
            }
            Step::Other(length)
        }
        Ok((_, Block::SectionHeader(_))) => {
            interfaces.clear();
            Step::Other(length)
        }
        Ok(_) => Step::Other(length),
        // Names, statistics and the like may be of a form that is not known; frames follow them.
        Err(_) if !section && !matches!(number(whole, 0, *big), 1 | 3 | 6) => Step::Other(length),
        Err(_) => {
            return Err(window.damage(
                "a block whose parts contradict each other: the file is damaged here".to_owned(),
            ));
        }
    };
    Ok(step)
}

/// How an interface's times are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    /// As the option `if_tsresol` says it: 10^-n seconds, or 2^-n if the highest bit is set.
    resolution: u8,
    /// Seconds to add.
    offset: i64,
}

impl Clock {
    fn of(described: &InterfaceDescriptionBlock<'_>, big: bool) -> Self {
        let value = |code| {
            let mut options = described.options.iter();
            options.find(|option| option.code == code).map(|option| option.value())
        };
        let resolution = value(OptionCode::IfTsresol).and_then(|value| value.first().copied());
        let offset = value(OptionCode::IfTsoffset).and_then(|value| value.first_chunk().copied());
        let offset = offset.map(if big { i64::from_be_bytes } else { i64::from_le_bytes });
        Self { resolution: resolution.unwrap_or(6), offset: offset.unwrap_or(0) }
    }

    /// Nanoseconds since 1970, as far as 64 bits hold them.
    fn nanoseconds(self, ticks: u64) -> u64 {
        let wide = u128::from(ticks);
        let time = match self.resolution {
            6 => wide * 1000,
            9 => wide,
            decimal @ 0..=127 => {
                let power = |n: u8| 10u128.checked_pow(u32::from(n)).unwrap_or(u128::MAX);
                if decimal < 9 { wide * power(9 - decimal) } else { wide / power(decimal - 9) }
            }
            binary => (wide * 1_000_000_000).checked_shr(u32::from(binary & 127)).unwrap_or(0),
        };
        let time = i128::try_from(time).unwrap_or(i128::MAX);
        let time = time.saturating_add(i128::from(self.offset) * 1_000_000_000);
        u64::try_from(time.max(0)).unwrap_or(u64::MAX)
    }
}

/// The number of 4 bytes at an offset; 0 if they are not there.
fn number(bytes: &[u8], at: usize, big: bool) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
    if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

/// What has been read of the input and not gone through.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// Where in the file the unread bytes begin.
    offset: u64,
    end: bool,
}

impl<R: Read> Window<R> {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }

    /// Reads until there are at least so many bytes; false if the input ends before.
    fn have(&mut self, wanted: usize) -> Result<bool, Damage> {
        while self.to - self.from < wanted {
            if self.end {
                return Ok(false);
            }
            if self.from + wanted > self.bytes.len() {
                self.bytes.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
                if wanted > self.bytes.len() {
                    // Grows as far as bytes are really there: a length that is a lie costs nothing.
                    let longer = wanted.min(self.bytes.len() * 2);
                    self.bytes.resize(longer, 0);
                }
            }
            let space = self.bytes.get_mut(self.to..).unwrap_or_default();
            match self.input.read(space) {
                Ok(0) => self.end = true,
                Ok(read) => self.to = (self.to + read).min(self.bytes.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.damage(error.to_string())),
            }
        }
        Ok(true)
    }

    fn consume(&mut self, count: usize) {
        self.from = (self.from + count).min(self.to);
        self.offset += count as u64;
    }

    /// The next bytes, which are gone through by that.
    fn take(&mut self, count: usize) -> &[u8] {
        let from = self.from;
        self.consume(count);
        self.bytes.get(from..self.from).unwrap_or_default()
    }

    fn damage(&self, what: String) -> Damage {
        Damage { offset: self.offset, what }
    }
}
