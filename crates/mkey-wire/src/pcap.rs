//! Writing captures: the classic format of libpcap, with times in nanoseconds.

use std::io::{self, Write};
use std::time::Duration;

/// What a captured frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LinkType {
    /// An Ethernet header (`LINKTYPE_ETHERNET`).
    Ethernet = 1,
    /// An IP header, of version 4 or 6 (`LINKTYPE_RAW`).
    Raw = 101,
    /// Linux's own header, which tells sender from receiver (`LINKTYPE_LINUX_SLL`):
    /// [`crate::cooked`].
    Cooked = 113,
}

/// Says the byte order, which is little-endian here, and that fractions of a second are in
/// nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// The version of the format, 2.4.
const VERSION: [u16; 2] = [2, 4];
/// Bytes of a frame that are kept at most: all.
const SNAP_LEN: u32 = 262_144;

/// Bytes of what a capture begins with.
pub const HEADER: usize = 24;

/// What a capture that is written here begins with.
pub fn header(link: LinkType) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let fields = MAGIC
        .to_le_bytes()
        .into_iter()
        .chain(VERSION.into_iter().flat_map(u16::to_le_bytes))
        // Time zone and accuracy, which nobody uses.
        .chain([0; 8])
        .chain(SNAP_LEN.to_le_bytes())
        .chain((link as u32).to_le_bytes());
    header.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
    header
}

/// Whether a file that begins so is a capture: of either byte order, with micro- or nanoseconds, or pcapng.
pub fn is_capture(start: &[u8]) -> bool {
    let classic = [MAGIC, 0xa1b2_c3d4].into_iter().flat_map(|magic| [magic, magic.swap_bytes()]);
    let ng = 0x0a0d_0d0a_u32;
    classic.chain([ng]).any(|magic| start.starts_with(&magic.to_le_bytes()))
}

/// Writes frames into a capture.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// A record in the making.
    record: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a capture.
    ///
    /// # Errors
    /// Those of writing.
    pub fn new(mut out: W, link: LinkType) -> io::Result<Self> {
        out.write_all(&header(link))?;
        Ok(Self::resume(out))
    }

    /// Goes on with a capture that was begun.
    pub fn resume(out: W) -> Self {
        Self { out, record: Vec::new() }
    }

    /// Adds the frame that the pieces make, seen at `time` since 1970. It is one write, so that a
    /// process that dies leaves whole frames behind.
    ///
    /// # Errors
    /// `InvalidInput` if the format can not say the time (from 2106 on) or the length (above
    /// 262,144 bytes); those of writing.
    pub fn write(&mut self, time: Duration, frame: &[&[u8]]) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let seconds = u32::try_from(time.as_secs())
            .map_err(|_| invalid(format!("a capture can not say the time {time:?}")))?;
        let length: usize = frame.iter().map(|piece| piece.len()).sum();
        let length = u32::try_from(length)
            .ok()
            .filter(|length| *length <= SNAP_LEN)
            .ok_or_else(|| invalid(format!("a frame of {length} bytes, at most {SNAP_LEN}")))?;
        self.record.clear();
        for word in [seconds, time.subsec_nanos(), length, length] {
            self.record.extend(word.to_le_bytes());
        }
        frame.iter().for_each(|piece| self.record.extend_from_slice(piece));
        self.out.write_all(&self.record)
    }

    /// What it writes to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Ends the capture.
    pub fn into_inner(self) -> W {
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_capture() {
        let mut capture = Writer::new(Vec::new(), LinkType::Raw).expect("memory");
        let time = Duration::new(0x6543_2101, 0x0102_0304);
        capture.write(time, &[&[0x45, 1], &[], &[2, 3, 4]]).expect("memory");
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0,
            0, //
            0x01, 0x21, 0x43, 0x65, 0x04, 0x03, 0x02, 0x01, 5, 0, 0, 0, 5, 0, 0, 0, //
            0x45, 1, 2, 3, 4,
        ];
        assert_eq!(capture.into_inner(), expected);
    }

    #[test]
    fn captures_of_all_tools_are_known_as_such() {
        for start in [
            [0x4d, 0x3c, 0xb2, 0xa1],
            [0xa1, 0xb2, 0x3c, 0x4d],
            [0xd4, 0xc3, 0xb2, 0xa1],
            [0xa1, 0xb2, 0xc3, 0xd4],
            [0x0a, 0x0d, 0x0d, 0x0a],
        ] {
            assert!(is_capture(&start), "{start:x?}");
            assert!(!is_capture(&start[..3]));
        }
        assert!(is_capture(&header(LinkType::Cooked)));
        assert!(!is_capture(b"text"));
    }

    #[test]
    fn a_capture_goes_on_where_it_was_left() {
        let time = Duration::new(1, 2);
        let mut whole = Writer::new(Vec::new(), LinkType::Raw).expect("memory");
        whole.write(time, &[&[1]]).expect("memory");
        let begun = whole.get_mut().clone();
        whole.write(time, &[&[2]]).expect("memory");
        let mut resumed = Writer::resume(begun);
        resumed.write(time, &[&[2]]).expect("memory");
        assert_eq!(resumed.into_inner(), whole.into_inner());
    }

    #[test]
    fn what_the_format_can_not_say_is_refused_and_nothing_of_it_written() {
        let mut capture = Writer::new(Vec::new(), LinkType::Ethernet).expect("memory");
        let before = capture.get_mut().clone();
        let late = capture.write(Duration::from_secs(1 << 32), &[&[1]]).expect_err("in 2106");
        assert_eq!(late.kind(), io::ErrorKind::InvalidInput);
        let long = capture.write(Duration::ZERO, &[&[0; 262_145]]).expect_err("too long");
        assert_eq!(long.to_string(), "a frame of 262145 bytes, at most 262144");
        assert_eq!(capture.into_inner(), before);
    }
}
