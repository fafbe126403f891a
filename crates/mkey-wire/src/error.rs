//! What is wrong with a packet, and in which header.

use std::fmt;

/// Why bytes are no RoCEv2 packet, or a value can not be written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header}: {reason}")]
pub struct Error {
    /// Where.
    pub header: Header,
    /// What.
    pub reason: Reason,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Too few bytes are left, to read it from or to write it to.
    #[error("{needed} bytes are needed, {have} are left")]
    Short {
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A field has a value that a RoCEv2 packet does not have.
    #[error("{field} is {value:#x}, which no RoCEv2 packet has")]
    Unexpected {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// Payload and pad are no multiple of 4 bytes.
    #[error("{length} bytes with the pad, which is no multiple of 4")]
    Unaligned {
        /// Bytes of both.
        length: usize,
    },
    /// More pad than there is payload with pad.
    #[error("the pad count is {pad}, {have} bytes are there")]
    Pad {
        /// The pad count.
        pad: usize,
        /// Bytes of payload with pad.
        have: usize,
    },
    /// The opcode asks for another length.
    #[error("the opcode asks for {expected} bytes, {have} are there")]
    Payload {
        /// Bytes that every packet of this opcode has.
        expected: usize,
        /// Bytes that this one has.
        have: usize,
    },
    /// A length field can not hold it.
    #[error("{length} bytes, at most {most} can be said")]
    Long {
        /// Bytes that there are.
        length: usize,
        /// Bytes that the field can say.
        most: usize,
    },
}

/// A part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Header {
    /// Ethernet, with its tag.
    Ethernet,
    /// Linux's header of captured packets.
    Cooked,
    /// IP version 4.
    Ipv4,
    /// IP version 6.
    Ipv6,
    /// UDP.
    Udp,
    /// Base transport header.
    Bth,
    /// Extended reliable connection extended transport header.
    Xrceth,
    /// Datagram extended transport header.
    Deth,
    /// Flush extended transport header.
    Feth,
    /// RDMA extended transport header.
    Reth,
    /// Atomic extended transport header.
    AtomicEth,
    /// Acknowledge extended transport header.
    Aeth,
    /// Atomic acknowledge extended transport header.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended transport header.
    Ieth,
    /// The 16 reserved bytes of a congestion notification packet.
    Cnp,
    /// The payload, with its pad.
    Payload,
    /// The invariant CRC.
    Icrc,
}

impl Header {
    /// The error that `field` of this header is `value`.
    pub(crate) const fn unexpected(self, field: &'static str, value: u64) -> Error {
        Error { header: self, reason: Reason::Unexpected { field, value } }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Cooked => "Linux's header",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Udp => "UDP",
            Self::Bth => "BTH",
            Self::Xrceth => "XRCETH",
            Self::Deth => "DETH",
            Self::Feth => "FETH",
            Self::Reth => "RETH",
            Self::AtomicEth => "AtomicETH",
            Self::Aeth => "AETH",
            Self::AtomicAckEth => "AtomicAckETH",
            Self::ImmDt => "ImmDt",
            Self::Ieth => "IETH",
            Self::Cnp => "CNP",
            Self::Payload => "payload",
            Self::Icrc => "ICRC",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_and_what() {
        let said = |header, reason| Error { header, reason }.to_string();
        assert_eq!(
            said(Header::Reth, Reason::Short { needed: 16, have: 3 }),
            "RETH: 16 bytes are needed, 3 are left"
        );
        assert_eq!(
            said(Header::Bth, Reason::Unexpected { field: "opcode", value: 0x55 }),
            "BTH: opcode is 0x55, which no RoCEv2 packet has"
        );
        assert_eq!(
            said(Header::Payload, Reason::Unaligned { length: 5 }),
            "payload: 5 bytes with the pad, which is no multiple of 4"
        );
        assert_eq!(
            said(Header::Payload, Reason::Pad { pad: 3, have: 0 }),
            "payload: the pad count is 3, 0 bytes are there"
        );
        assert_eq!(
            said(Header::Payload, Reason::Payload { expected: 0, have: 4 }),
            "payload: the opcode asks for 0 bytes, 4 are there"
        );
        assert_eq!(
            said(Header::Ipv4, Reason::Long { length: 70_000, most: 65_507 }),
            "IPv4: 70000 bytes, at most 65507 can be said"
        );
    }

    #[test]
    fn headers_are_called_what_the_specification_calls_them() {
        let names = [
            (Header::Ethernet, "Ethernet"),
            (Header::Ipv6, "IPv6"),
            (Header::Udp, "UDP"),
            (Header::Xrceth, "XRCETH"),
            (Header::Deth, "DETH"),
            (Header::Feth, "FETH"),
            (Header::AtomicEth, "AtomicETH"),
            (Header::Aeth, "AETH"),
            (Header::AtomicAckEth, "AtomicAckETH"),
            (Header::ImmDt, "ImmDt"),
            (Header::Ieth, "IETH"),
            (Header::Cnp, "CNP"),
            (Header::Icrc, "ICRC"),
        ];
        for (header, name) in names {
            assert_eq!(header.to_string(), name);
        }
    }
}
