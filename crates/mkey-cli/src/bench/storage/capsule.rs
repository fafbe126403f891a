//! What initiator and target say to each other: a request of 40 bytes, a response of 8.

use mkey::RemoteKey;

/// What an I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Disk to initiator: the target RDMA WRITEs into the initiator's buffer.
    Read,
    /// Initiator to disk: the target RDMA READs the initiator's buffer.
    Write,
}

/// A request: what to do, where on the disk, and the key of the initiator's buffer, whose length is
/// that of the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// The initiator's name for it, which comes back.
    pub tag: u32,
    /// First byte on the disk.
    pub offset: u64,
    /// The initiator's buffer.
    pub buffer: RemoteKey,
}

impl Request {
    /// Its length in bytes.
    pub const BYTES: usize = 16 + RemoteKey::BYTES + 4;

    /// In network byte order; the last 4 bytes are 0.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let op = match self.op {
            Op::Read => 1u32,
            Op::Write => 2,
        };
        let fields: [&[u8]; 4] = [
            &op.to_be_bytes(),
            &self.tag.to_be_bytes(),
            &self.offset.to_be_bytes(),
            &self.buffer.to_bytes(),
        ];
        let mut rest = &mut bytes[..];
        for field in fields {
            // The fields fill less than the array.
            let Some((place, after)) = rest.split_at_mut_checked(field.len()) else { break };
            place.copy_from_slice(field);
            rest = after;
        }
        bytes
    }

    /// What [`Request::to_bytes`] made; `None`: no such thing.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (op, rest) = bytes.split_first_chunk::<4>()?;
        let (tag, rest) = rest.split_first_chunk::<4>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (buffer, _) = rest.split_first_chunk::<{ RemoteKey::BYTES }>()?;
        let op = match u32::from_be_bytes(*op) {
            1 => Op::Read,
            2 => Op::Write,
            _ => return None,
        };
        Some(Self {
            op,
            tag: u32::from_be_bytes(*tag),
            offset: u64::from_be_bytes(*offset),
            buffer: RemoteKey::from_bytes(buffer),
        })
    }
}

/// A response: the request's tag, and that it was done.
pub const DONE: u32 = 0x600d;

/// The response's bytes.
pub fn response(tag: u32) -> [u8; 8] {
    (u64::from(DONE) << 32 | u64::from(tag)).to_be_bytes()
}

/// The tag in a response that was received as one word of the CPU; `None`: no response.
pub fn tag_of(word: u64) -> Option<u32> {
    let value = u64::from_be_bytes(word.to_ne_bytes());
    (value >> 32 == u64::from(DONE)).then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey::{IoAddr, Key, Rkey};

    #[test]
    fn requests_there_and_back() {
        let buffer = RemoteKey { key: Rkey(Key(7)), address: IoAddr(0x1000), length: 4096 };
        for op in [Op::Read, Op::Write] {
            let request = Request { op, tag: 3, offset: 1 << 40, buffer };
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        assert_eq!(Request::from_bytes(&[0; Request::BYTES]), None);
        assert_eq!(Request::from_bytes(&[0xff; Request::BYTES]), None);
    }

    #[test]
    fn responses_there_and_back() {
        assert_eq!(tag_of(u64::from_ne_bytes(response(9))), Some(9));
        assert_eq!(tag_of(0), None);
    }
}
