//! What a peer gets.

use mkey_core::address::IoAddr;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::{Key, Rkey};
use mkey_core::work::RemoteAddr;
use std::fmt;

/// Memory that a peer may access: a remote key, an address, a length. Plain data that travels in a
/// message; it keeps nothing alive and holds no local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Wire", from = "Wire"))]
pub struct RemoteKey {
    /// The remote key.
    pub key: Rkey,
    /// First byte, as the key's owner counts.
    pub address: IoAddr,
    /// Length in bytes.
    pub length: u64,
}

impl RemoteKey {
    /// Bytes of [`RemoteKey::to_bytes`].
    pub const BYTES: usize = 20;

    /// Address, length and key, each in network byte order.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (address, rest) = bytes.split_at_mut(8);
        let (length, key) = rest.split_at_mut(8);
        address.copy_from_slice(&self.address.0.to_be_bytes());
        length.copy_from_slice(&self.length.to_be_bytes());
        key.copy_from_slice(&self.key.0.0.to_be_bytes());
        bytes
    }

    /// What [`RemoteKey::to_bytes`] made. Any bytes are a key; the device refuses those that are
    /// not right.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, l4, l5, l6, l7, k0, k1, k2, k3] =
            *bytes;
        Self {
            key: Rkey(Key(u32::from_be_bytes([k0, k1, k2, k3]))),
            address: IoAddr(u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7])),
            length: u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]),
        }
    }

    /// `length` bytes of it from `offset`.
    ///
    /// # Errors
    /// `OutOfRange` beyond its end.
    pub fn part(self, offset: u64, length: u64) -> Result<Self> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        match self.address.checked_add(offset) {
            Some(address) if inside => Ok(Self { address, length, ..self }),
            _ => {
                let what = format_args!("{length} bytes at {offset} of {}", self.length);
                let address = IoAddr(self.address.0.wrapping_add(offset));
                Err(Error::new("part", what, Reason::OutOfRange { address, length }))
            }
        }
    }

    /// As work requests name it.
    pub(crate) fn remote(self) -> RemoteAddr {
        RemoteAddr { address: self.address, rkey: self.key }
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {} by key {}", self.length, self.address, self.key)
    }
}

#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
struct Wire {
    key: u32,
    address: u64,
    length: u64,
}

#[cfg(feature = "serde")]
impl From<RemoteKey> for Wire {
    fn from(remote: RemoteKey) -> Self {
        Self { key: remote.key.0.0, address: remote.address.0, length: remote.length }
    }
}

#[cfg(feature = "serde")]
impl From<Wire> for RemoteKey {
    fn from(wire: Wire) -> Self {
        Self { key: Rkey(Key(wire.key)), address: IoAddr(wire.address), length: wire.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> RemoteKey {
        RemoteKey { key: Rkey(Key(0x0102_0304)), address: IoAddr(0x1000), length: 0x100 }
    }

    #[test]
    fn bytes_there_and_back() {
        assert_eq!(RemoteKey::from_bytes(&key().to_bytes()), key());
        assert_eq!(key().to_bytes()[16..], [1, 2, 3, 4]);
    }

    #[test]
    fn it_reads_as_a_sentence() {
        assert_eq!(key().to_string(), "256 bytes at 0x1000 by key 0x01020304");
    }

    #[test]
    fn a_part_lies_within() {
        let part = key().part(0x10, 0xf0).expect("within");
        assert_eq!((part.address, part.length), (IoAddr(0x1010), 0xf0));
        for (offset, length) in [(0x10, 0xf1), (0x101, 0), (u64::MAX, 2)] {
            assert!(key().part(offset, length).is_err());
        }
    }
}
