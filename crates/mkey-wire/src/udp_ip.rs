//! What is around a packet: the headers of UDP and IP.

use crate::checksum::Sum;
use crate::error::{Error, Header, Reason};
use crate::{ipv4, ipv6, udp};

/// One thing for each version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip<V4, V6> {
    /// Version 4.
    V4(V4),
    /// Version 6.
    V6(V6),
}

/// The headers as a value, but for the lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Of IP.
    pub ip: Ip<ipv4::Repr, ipv6::Repr>,
    /// Of UDP.
    pub udp: udp::Repr,
}

impl Repr {
    /// The headers around a datagram of `datagram_len` bytes.
    ///
    /// # Errors
    /// `Long` if their length fields can not say it.
    pub fn headers(&self, datagram_len: usize) -> Result<Headers, Error> {
        // The length fields are of 16 bits; IPv4's counts its own header, too.
        let (header, own) = match self.ip {
            Ip::V4(_) => (Header::Ipv4, ipv4::LEN),
            Ip::V6(_) => (Header::Ipv6, 0),
        };
        let most = usize::from(u16::MAX) - own - udp::LEN;
        let length = u16::try_from(datagram_len)
            .ok()
            .filter(|length| usize::from(*length) <= most)
            .ok_or(Error { header, reason: Reason::Long { length: datagram_len, most } })?;
        let udp_length = length + udp::LEN as u16;
        let ip = match self.ip {
            Ip::V4(repr) => {
                let mut bytes = [0; ipv4::LEN];
                repr.emit(udp_length + ipv4::LEN as u16, &mut bytes);
                Ip::V4(bytes)
            }
            Ip::V6(repr) => {
                let mut bytes = [0; ipv6::LEN];
                repr.emit(udp_length, &mut bytes);
                Ip::V6(bytes)
            }
        };
        let mut udp = [0; udp::LEN];
        self.udp.emit(udp_length, &mut udp);
        Ok(Headers { ip, udp })
    }

    /// The checksum of a datagram, given in pieces, between these headers. Over IPv6 a datagram
    /// must have one (RFC 8200), over IPv4 it need not.
    ///
    /// # Errors
    /// `Long` as [`headers`](Self::headers).
    pub fn checksum(&self, datagram: &[&[u8]]) -> Result<u16, Error> {
        let udp = udp::Repr { checksum: 0, ..self.udp };
        let length = datagram.iter().map(|piece| piece.len()).sum();
        let headers = Self { udp, ..*self }.headers(length)?;
        let mut sum = Sum::default();
        match self.ip {
            Ip::V4(ip) => {
                sum.update(&ip.source.octets());
                sum.update(&ip.destination.octets());
            }
            Ip::V6(ip) => {
                sum.update(&ip.source.octets());
                sum.update(&ip.destination.octets());
            }
        }
        sum.update(&[0, ipv4::UDP]);
        // The length once more, as the pseudo-header has it.
        let [.., high, low] = (length + udp::LEN).to_be_bytes();
        sum.update(&[high, low]);
        sum.update(headers.udp());
        datagram.iter().for_each(|piece| sum.update(piece));
        // 0 would say that there is none; all ones are the same number.
        Ok(match sum.checksum() {
            0 => u16::MAX,
            checksum => checksum,
        })
    }
}

/// The headers as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    ip: Ip<[u8; ipv4::LEN], [u8; ipv6::LEN]>,
    udp: [u8; udp::LEN],
}

impl Headers {
    /// The headers as they were captured. What they say is not looked at.
    pub const fn captured(ip: Ip<[u8; ipv4::LEN], [u8; ipv6::LEN]>, udp: [u8; udp::LEN]) -> Self {
        Self { ip, udp }
    }

    /// The header of IP.
    pub const fn ip(&self) -> &Ip<[u8; ipv4::LEN], [u8; ipv6::LEN]> {
        &self.ip
    }

    /// The same, whichever version it is.
    pub const fn ip_bytes(&self) -> &[u8] {
        match &self.ip {
            Ip::V4(bytes) => bytes,
            Ip::V6(bytes) => bytes,
        }
    }

    /// The header of UDP.
    pub const fn udp(&self) -> &[u8; udp::LEN] {
        &self.udp
    }
}
