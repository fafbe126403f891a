//! Netlink's messages and attributes: requests written, answers read.
//!
//! A message is a head (length, type, flags, sequence number, sender) and attributes; an attribute
//! a head (length, type) and its value, which may be attributes again. All begin at multiples of 4
//! (include/uapi/linux/netlink.h).

use super::Unreadable;

// Commands (`enum rdma_nldev_command`) and attributes (`enum rdma_nldev_attr`).
pub(super) const GET: u16 = 1;
pub(super) const SYS_GET: u16 = 6;
pub(super) const RES_GET: u16 = 9;
pub(super) const RES_QP_GET: u16 = 10;
pub(super) const RES_CQ_GET: u16 = 12;
pub(super) const RES_MR_GET: u16 = 13;
pub(super) const RES_PD_GET: u16 = 14;
pub(super) const GET_CHARDEV: u16 = 15;
pub(super) const STAT_GET: u16 = 17;
pub(super) const DEV_INDEX: u16 = 1;
pub(super) const DEV_NAME: u16 = 2;
pub(super) const RES_SUMMARY: u16 = 15;
pub(super) const RES_SUMMARY_ENTRY: u16 = 16;
pub(super) const RES_SUMMARY_ENTRY_NAME: u16 = 17;
pub(super) const RES_SUMMARY_ENTRY_CURR: u16 = 18;
pub(super) const RES_QP: u16 = 19;
pub(super) const RES_QP_ENTRY: u16 = 20;
pub(super) const RES_PID: u16 = 28;
pub(super) const RES_KERN_NAME: u16 = 29;
pub(super) const RES_CQ: u16 = 35;
pub(super) const RES_CQ_ENTRY: u16 = 36;
pub(super) const RES_MR: u16 = 40;
pub(super) const RES_MR_ENTRY: u16 = 41;
pub(super) const RES_LKEY: u16 = 43;
pub(super) const RES_MRLEN: u16 = 45;
pub(super) const RES_PD: u16 = 46;
pub(super) const RES_PD_ENTRY: u16 = 47;
pub(super) const RES_MRN: u16 = 62;
pub(super) const SYS_NETNS_MODE: u16 = 66;
pub(super) const CHARDEV_TYPE: u16 = 69;
pub(super) const UVERBS_DRIVER_ID: u16 = 73;
pub(super) const STAT_RES: u16 = 75;
pub(super) const STAT_HWCOUNTERS: u16 = 80;
pub(super) const STAT_HWCOUNTER_ENTRY: u16 = 81;
pub(super) const STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
pub(super) const STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
pub(super) const SYS_COPY_ON_FORK: u16 = 93;
pub(super) const RES_SUMMARY_ENTRY_MAX: u16 = 118;

/// Commands of devices and their objects (`RDMA_NL_NLDEV`), in the upper bits of a message's type.
const NLDEV: u16 = 5 << 10;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Whether the value of an attribute is attributes, and whether it is in network order.
const FLAGS: u16 = 0xc000;

/// A request.
pub(super) struct Request {
    command: u16,
    flags: u16,
    attributes: Vec<u8>,
}

/// A request for all objects that `command` is about.
pub(super) fn dump(command: u16) -> Request {
    Request { flags: NLM_F_REQUEST | NLM_F_DUMP, ..Request::new(command) }
}

impl Request {
    /// A request for one object. The kernel ends its answer with a word of its own.
    pub(super) fn new(command: u16) -> Self {
        Self { command, flags: NLM_F_REQUEST | NLM_F_ACK, attributes: Vec::new() }
    }

    pub(super) fn u32(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// A text, which ends with a zero.
    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute, a few bytes long, with its padding.
    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.attributes.extend_from_slice(&length.to_ne_bytes());
        self.attributes.extend_from_slice(&kind.to_ne_bytes());
        self.attributes.extend_from_slice(value);
        self.attributes.resize(self.attributes.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn bytes(&self, sequence: u32) -> Vec<u8> {
        // A few short attributes.
        let length = u32::try_from(HEAD + self.attributes.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEAD + self.attributes.len());
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&(NLDEV | self.command).to_ne_bytes());
        bytes.extend_from_slice(&self.flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&0u32.to_ne_bytes());
        bytes.extend_from_slice(&self.attributes);
        bytes
    }
}

/// Bytes of a message's head.
const HEAD: usize = 16;

/// A message of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// An object: its attributes, and whether the list of which it is changed meanwhile.
    Object { payload: &'a [u8], changed: bool },
    /// The end, and whether the list changed.
    Done { changed: bool },
    /// The request is refused.
    Refused(i32),
    /// To another request, or of no meaning here.
    Other,
}

/// The messages in `bytes` that answer the request `sequence`.
pub(super) fn answers(
    mut bytes: &[u8],
    sequence: u32,
) -> impl Iterator<Item = Result<Answer<'_>, Unreadable>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let read = message(bytes, sequence);
        bytes = match &read {
            Some((_, rest)) => rest,
            None => &[],
        };
        Some(read.map(|(answer, _)| answer).ok_or(Unreadable("a message longer than its piece")))
    })
}

/// The first message and what follows it.
fn message(bytes: &[u8], sequence: u32) -> Option<(Answer<'_>, &[u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
    let payload = bytes.get(HEAD..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    // Both ends tell an errno, negative, or 0.
    let errno = || u32_at(payload, 0).map_or(0, |word| word.cast_signed().saturating_neg());
    let changed = flags & NLM_F_DUMP_INTR != 0;
    let answer = match kind {
        _ if u32_at(bytes, 8)? != sequence => Answer::Other,
        NLMSG_DONE | NLMSG_ERROR if errno() == 0 => Answer::Done { changed },
        NLMSG_DONE | NLMSG_ERROR => Answer::Refused(errno()),
        kind if kind & 0xfc00 == NLDEV => Answer::Object { payload, changed },
        _ => Answer::Other,
    };
    Some((answer, rest))
}

/// Attributes one after the other.
#[derive(Clone, Copy)]
pub(super) struct Attributes<'a>(&'a [u8]);

/// The attributes in `bytes`.
pub(super) fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes(bytes)
}

impl<'a> Attributes<'a> {
    /// The values of all attributes of this kind.
    pub(super) fn all(self, kind: u16) -> impl Iterator<Item = Result<&'a [u8], Unreadable>> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            while !left.is_empty() {
                let Some((found, value, rest)) = attribute(left) else {
                    left = &[];
                    return Some(Err(Unreadable("an attribute longer than what holds it")));
                };
                left = rest;
                if found == kind {
                    return Some(Ok(value));
                }
            }
            None
        })
    }

    /// The value of the first attribute of this kind.
    pub(super) fn get(self, kind: u16) -> Result<Option<&'a [u8]>, Unreadable> {
        self.all(kind).next().transpose()
    }

    pub(super) fn u8(self, kind: u16) -> Result<Option<u8>, Unreadable> {
        let Some(value) = self.get(kind)? else { return Ok(None) };
        value.first().copied().map(Some).ok_or(Unreadable("a number without a byte"))
    }

    pub(super) fn u32(self, kind: u16) -> Result<Option<u32>, Unreadable> {
        let Some(value) = self.get(kind)? else { return Ok(None) };
        let value = value.try_into().map_err(|_| Unreadable("a number that has not 4 bytes"))?;
        Ok(Some(u32::from_ne_bytes(value)))
    }

    pub(super) fn u64(self, kind: u16) -> Result<Option<u64>, Unreadable> {
        let Some(value) = self.get(kind)? else { return Ok(None) };
        let value = value.try_into().map_err(|_| Unreadable("a number that has not 8 bytes"))?;
        Ok(Some(u64::from_ne_bytes(value)))
    }

    /// A name, up to its zero; what is not UTF-8 in it is replaced, as one object that is called
    /// oddly must not hide the others.
    pub(super) fn name(self, kind: u16) -> Result<Option<String>, Unreadable> {
        let Some(value) = self.get(kind)? else { return Ok(None) };
        let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }

    /// A text, up to its zero.
    pub(super) fn text(self, kind: u16) -> Result<Option<&'a str>, Unreadable> {
        let Some(value) = self.get(kind)? else { return Ok(None) };
        let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(text).map(Some).map_err(|_| Unreadable("a text that is not UTF-8"))
    }
}

/// The first attribute, its kind and value, and what follows it.
fn attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16_at(bytes, 0)?);
    let kind = u16_at(bytes, 2)? & !FLAGS;
    let value = bytes.get(4..length)?;
    Some((kind, value, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: [u8; 16] = *b"\x0a\0\x02\0hello\0\0\0\x04\0\x50\x80";

    #[test]
    fn a_request_is_a_head_and_its_attributes() {
        let bytes = Request::new(STAT_GET).u32(DEV_INDEX, 7).bytes(9);
        let mut expected = vec![24, 0, 0, 0, 17, 20, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([8, 0, 1, 0, 7, 0, 0, 0]);
        assert_eq!(bytes, expected);
        assert_eq!(dump(GET).bytes(1)[4..8], [1, 20, 1, 3]);
        let bytes = Request::new(GET_CHARDEV).text(CHARDEV_TYPE, "uverbs").bytes(9);
        assert_eq!(bytes[..4], [28, 0, 0, 0]);
        assert_eq!(bytes[16..], *b"\x0b\0\x45\0uverbs\0\0");
    }

    #[test]
    fn attributes_are_aligned_and_flags_are_no_part_of_their_kind() {
        let read = attributes(&HELLO);
        assert_eq!(read.text(DEV_NAME), Ok(Some("hello")));
        assert_eq!(read.get(STAT_HWCOUNTERS), Ok(Some(&[][..])));
        assert_eq!(read.u32(DEV_INDEX), Ok(None));
        assert!(read.u32(DEV_NAME).is_err() && read.u64(DEV_NAME).is_err());
        // The last one may end without its padding.
        assert_eq!(attributes(&HELLO[..10]).text(DEV_NAME), Ok(Some("hello")));
        for cut in 1..10 {
            assert!(attributes(&HELLO[..cut]).text(DEV_NAME).is_err(), "{cut}");
        }
    }

    /// A message of this type, with these flags.
    fn message_of(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEAD + payload.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Result<Answer<'_>, Unreadable>> {
        answers(bytes, 5).collect()
    }

    #[test]
    fn answers_are_objects_ends_and_refusals() {
        let mut bytes = message_of(NLDEV | GET, 0, 5, &HELLO);
        bytes.extend(message_of(NLDEV | GET, NLM_F_DUMP_INTR, 5, &HELLO));
        bytes.extend(message_of(NLDEV | GET, 0, 4, &HELLO));
        bytes.extend(message_of(NLMSG_DONE, 0, 5, &[0; 4]));
        let object = |changed| Ok(Answer::Object { payload: &HELLO, changed });
        let done = Ok(Answer::Done { changed: false });
        assert_eq!(read(&bytes), [object(false), object(true), Ok(Answer::Other), done]);
        let refused = message_of(NLMSG_ERROR, 0, 5, &(-22i32).to_ne_bytes());
        assert_eq!(read(&refused), [Ok(Answer::Refused(22))]);
        for cut in 1..refused.len() {
            assert!(read(&refused[..cut])[0].is_err(), "{cut}");
        }
    }

    #[test]
    fn a_length_shorter_than_the_head_is_an_end_not_a_loop() {
        assert_eq!(read(&[0; 64]).len(), 1);
        assert_eq!(attributes(&[0; 64]).all(DEV_NAME).count(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for answer in answers(&bytes, 0).take(201) {
                if let Ok(Answer::Object { payload, .. }) = answer {
                    prop_assert!(payload.len() <= bytes.len());
                }
            }
            let read = attributes(&bytes);
            prop_assert!(read.all(1).count() <= 51);
            let _ = (read.u32(1), read.u64(2), read.text(3));
        }
    }
}
