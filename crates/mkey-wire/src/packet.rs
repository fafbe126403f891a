//! A whole packet: the payload of a UDP datagram, from BTH to ICRC.

use crate::body::Body;
use crate::bytes::{append, get, take};
use crate::error::{Error, Header, Reason};
use crate::opcode::Opcode;
use crate::{bth, icrc, udp_ip};

/// Bytes of the longest headers, BTH included: those of an atomic on an extended reliable
/// connection.
pub const MAX_HEADER_LEN: usize = bth::LEN + crate::xrceth::LEN + crate::atomic_eth::LEN;

/// The headers of a packet as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// What the base transport header says beside opcode and pad.
    pub fields: bth::Fields,
    /// Transport, operation and extended headers.
    pub body: Body,
}

impl Repr {
    /// Reads the headers at the start of a datagram, which may be cut behind them; gives what
    /// follows them, too: payload, pad and ICRC.
    ///
    /// # Errors
    /// `Short` of the header that is cut, `Unexpected` of the BTH.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (repr, _, rest) = parse_with_pad(datagram)?;
        Ok((repr, rest))
    }

    /// Bytes of the headers.
    pub const fn header_len(&self) -> usize {
        bth::LEN + self.body.buffer_len()
    }

    /// Bytes of the whole packet with `payload_len` bytes of payload.
    pub const fn buffer_len(&self, payload_len: usize) -> usize {
        self.header_len() + payload_len + pad_len(payload_len) + icrc::LEN
    }

    /// Writes the headers of a packet with `payload_len` bytes of payload to the start of
    /// `buffer`; gives how many bytes they are. Payload, [pad](pad_len) and ICRC come behind.
    ///
    /// # Errors
    /// `Short` of the header that did not fit (`buffer` is written in part then), `Payload` if the
    /// operation does not have that much, `Unexpected` if the transport does not have the
    /// operation.
    pub fn emit(&self, payload_len: usize, mut buffer: &mut [u8]) -> Result<usize, Error> {
        check_payload(&self.body, payload_len)?;
        let opcode = self.body.opcode();
        if Opcode::from_byte(opcode.byte()).is_none() {
            return Err(Header::Bth.unexpected("opcode", u64::from(opcode.byte())));
        }
        let pad_count = pad_len(payload_len) as u8;
        let bth = bth::Repr { opcode, pad_count, fields: self.fields };
        bth.emit(take(Header::Bth, &mut buffer)?);
        self.body.emit(&mut buffer)?;
        Ok(self.header_len())
    }
}

/// A packet, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The headers.
    pub repr: Repr,
    /// The payload, without pad.
    pub payload: &'a [u8],
    /// The invariant CRC that it carries, right or not.
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Splits a datagram. The ICRC is not checked, since what it covers is not all here:
    /// [`icrc::of_datagram`].
    ///
    /// # Errors
    /// `Short` of the part that is cut, `Unexpected` of the BTH, `Unaligned`, `Pad`, or `Payload`
    /// where the opcode asks for another length.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Error> {
        let (repr, pad, rest) = parse_with_pad(datagram)?;
        let reason = Reason::Short { needed: icrc::LEN, have: rest.len() };
        let (padded, icrc) =
            rest.split_last_chunk().ok_or(Error { header: Header::Icrc, reason })?;
        let have = padded.len();
        let wrong = |reason| Error { header: Header::Payload, reason };
        if !have.is_multiple_of(4) {
            return Err(wrong(Reason::Unaligned { length: have }));
        }
        let payload = have
            .checked_sub(pad)
            .and_then(|length| padded.get(..length))
            .ok_or(wrong(Reason::Pad { pad, have }))?;
        check_payload(&repr.body, payload.len())?;
        Ok(Self { repr, payload, icrc: u32::from_le_bytes(*icrc) })
    }

    /// A packet of these headers and this payload, with its ICRC as it is between the addresses of
    /// `around`.
    ///
    /// # Errors
    /// Those of [`Repr::emit`]; `Long` if no UDP datagram holds it.
    pub fn sealed(repr: Repr, payload: &'a [u8], around: &udp_ip::Repr) -> Result<Self, Error> {
        let mut headers = [0; MAX_HEADER_LEN];
        let length = repr.emit(payload.len(), &mut headers)?;
        let around = around.headers(repr.buffer_len(payload.len()))?;
        let mut icrc = icrc::Icrc::new(&around, &get::<0, _, _>(&headers));
        icrc.update(headers.get(bth::LEN..length).unwrap_or_default());
        icrc.update(payload);
        icrc.update(pad(payload.len()));
        Ok(Self { repr, payload, icrc: icrc.finish() })
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        self.repr.buffer_len(self.payload.len())
    }

    /// Writes the packet, with the ICRC that it carries, to the start of `buffer`; gives how many
    /// bytes it is.
    ///
    /// # Errors
    /// Those of [`Repr::emit`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let at = self.repr.emit(self.payload.len(), buffer)?;
        let mut behind = buffer.get_mut(at..).unwrap_or_default();
        append(Header::Payload, &mut behind, self.payload)?;
        append(Header::Payload, &mut behind, pad(self.payload.len()))?;
        append(Header::Icrc, &mut behind, &self.icrc.to_le_bytes())?;
        Ok(self.buffer_len())
    }
}

/// Bytes of pad behind `payload_len` bytes of payload: to the next multiple of 4.
pub const fn pad_len(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// The pad behind `payload_len` bytes of payload.
pub const fn pad(payload_len: usize) -> &'static [u8] {
    match pad_len(payload_len) {
        0 => &[],
        1 => &[0],
        2 => &[0, 0],
        _ => &[0, 0, 0],
    }
}

fn parse_with_pad(datagram: &[u8]) -> Result<(Repr, usize, &[u8]), Error> {
    let (packet, rest) = bth::Packet::new_checked(datagram)?;
    let bth::Repr { opcode, pad_count, fields } = bth::Repr::parse(&packet)?;
    let (body, rest) = Body::parse(opcode, rest)?;
    Ok((Repr { fields, body }, usize::from(pad_count), rest))
}

fn check_payload(body: &Body, have: usize) -> Result<(), Error> {
    match body.payload_len() {
        Some(expected) if expected != have => {
            let reason = Reason::Payload { expected, have };
            Err(Error { header: Header::Payload, reason })
        }
        _ => Ok(()),
    }
}
