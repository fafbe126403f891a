//! Base transport header: the first of every packet.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::opcode::Opcode;
use crate::u24::{Psn, Qpn};

/// Its length in bytes.
pub const LEN: usize = 12;

const SOLICITED: u8 = 0x80;
const MIGRATION: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUEST: u8 = 0x80;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Bth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// The opcode, which need not be one that is defined.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Solicited event: the receiver's completion is to wake who waits for such.
    pub fn solicited(&self) -> bool {
        self.0[1] & SOLICITED != 0
    }

    /// Migration state: set where the path is migrated.
    pub fn migration(&self) -> bool {
        self.0[1] & MIGRATION != 0
    }

    /// Bytes of pad behind the payload, 0 to 3.
    pub fn pad_count(&self) -> u8 {
        self.0[1] >> 4 & 3
    }

    /// Transport header version; there is only 0.
    pub fn version(&self) -> u8 {
        self.0[1] & 0xf
    }

    /// Partition key; bit 15 is full membership.
    pub fn pkey(&self) -> u16 {
        u16::from_be_bytes(get::<2, _, _>(self.0))
    }

    /// Forward explicit congestion notification.
    pub fn fecn(&self) -> bool {
        self.0[4] & FECN != 0
    }

    /// Backward explicit congestion notification.
    pub fn becn(&self) -> bool {
        self.0[4] & BECN != 0
    }

    /// The queue pair that it is for.
    pub fn dest_qp(&self) -> Qpn {
        Qpn::from_be_bytes(get::<5, _, _>(self.0))
    }

    /// Whether the sender wants an acknowledgement.
    pub fn ack_request(&self) -> bool {
        self.0[8] & ACK_REQUEST != 0
    }

    /// Packet sequence number.
    pub fn psn(&self) -> Psn {
        Psn::from_be_bytes(get::<9, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Transport and operation.
    pub opcode: Opcode,
    /// Bytes of pad behind the payload, 0 to 3; higher bits are not written.
    pub pad_count: u8,
    /// The rest.
    pub fields: Fields,
}

/// The fields that follow neither from the operation nor from the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Solicited event: the receiver's completion is to wake who waits for such.
    pub solicited: bool,
    /// Migration state: set where the path is migrated.
    pub migration: bool,
    /// Partition key; bit 15 is full membership.
    pub pkey: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// Whether the sender wants an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Fields {
    /// Those of a packet of the default partition (0xffff), with no flag set.
    pub const fn new(dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            solicited: false,
            migration: false,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }
}

impl Repr {
    /// Reads the header.
    ///
    /// # Errors
    /// `Unexpected`: an opcode that is not defined, or a version that is not 0.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Error> {
        if packet.version() != 0 {
            return Err(Header::Bth.unexpected("version", u64::from(packet.version())));
        }
        let byte = packet.opcode();
        let opcode =
            Opcode::from_byte(byte).ok_or(Header::Bth.unexpected("opcode", u64::from(byte)))?;
        Ok(Self {
            opcode,
            pad_count: packet.pad_count(),
            fields: Fields {
                solicited: packet.solicited(),
                migration: packet.migration(),
                pkey: packet.pkey(),
                fecn: packet.fecn(),
                becn: packet.becn(),
                dest_qp: packet.dest_qp(),
                ack_request: packet.ack_request(),
                psn: packet.psn(),
            },
        })
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        let flag = |set, bit| if set { bit } else { 0 };
        let Fields { solicited, migration, pkey, fecn, becn, dest_qp, ack_request, psn } =
            self.fields;
        let flags =
            flag(solicited, SOLICITED) | flag(migration, MIGRATION) | (self.pad_count & 3) << 4;
        put::<0, _, _>(buffer, [self.opcode.byte(), flags]);
        put::<2, _, _>(buffer, pkey.to_be_bytes());
        put::<4, _, _>(buffer, [flag(fecn, FECN) | flag(becn, BECN)]);
        put::<5, _, _>(buffer, dest_qp.to_be_bytes());
        put::<8, _, _>(buffer, [flag(ack_request, ACK_REQUEST)]);
        put::<9, _, _>(buffer, psn.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use crate::opcode::Operation;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] =
        [0x17, 0xa0, 0xff, 0xfe, 0x40, 0x00, 0x00, 0x12, 0x80, 0x9a, 0xbc, 0xde];

    fn repr() -> Repr {
        Repr {
            opcode: Opcode::Rc(Operation::SendOnlyInv),
            pad_count: 2,
            fields: Fields {
                solicited: true,
                pkey: 0xfffe,
                becn: true,
                ack_request: true,
                ..Fields::new(Qpn::wrapping(0x12), Psn::wrapping(0x9abcde))
            },
        }
    }

    #[test]
    fn bytes_and_value() {
        let (packet, rest) = Packet::new_checked(&BYTES).expect("12 bytes");
        assert!(rest.is_empty());
        assert_eq!(Repr::parse(&packet), Ok(repr()));
        let mut buffer = [0xff; LEN];
        repr().emit(&mut buffer);
        assert_eq!(buffer, BYTES);
        assert_eq!(repr().buffer_len(), LEN);
    }

    #[test]
    fn each_flag_is_a_bit_of_its_own() {
        type Flag = (fn(&mut Fields), usize, u8);
        let flags: [Flag; 5] = [
            (|f| f.solicited = true, 1, 0x80),
            (|f| f.migration = true, 1, 0x40),
            (|f| f.fecn = true, 4, 0x80),
            (|f| f.becn = true, 4, 0x40),
            (|f| f.ack_request = true, 8, 0x80),
        ];
        for (set, byte, bit) in flags {
            let mut repr = Repr {
                opcode: Opcode::Cnp,
                pad_count: 0,
                fields: Fields::new(Qpn::wrapping(0), Psn::wrapping(0)),
            };
            let mut expected = [0; LEN];
            repr.emit(&mut expected);
            expected[byte] |= bit;
            set(&mut repr.fields);
            let mut buffer = [0; LEN];
            repr.emit(&mut buffer);
            assert_eq!(buffer, expected);
            let (packet, _) = Packet::new_checked(&buffer).expect("12 bytes");
            assert_eq!(Repr::parse(&packet), Ok(repr));
        }
    }

    #[test]
    fn reserved_bits_are_not_looked_at() {
        let mut bytes = BYTES;
        bytes[4] |= 0x3f;
        bytes[8] |= 0x7f;
        let (packet, _) = Packet::new_checked(&bytes).expect("12 bytes");
        assert_eq!(Repr::parse(&packet), Ok(repr()));
    }

    #[test]
    fn a_version_or_opcode_that_there_is_not_is_refused() {
        let refused = |at: usize, byte| {
            let mut bytes = BYTES;
            bytes[at] = byte;
            let (packet, _) = Packet::new_checked(&bytes).expect("12 bytes");
            Repr::parse(&packet)
        };
        let reason = Reason::Unexpected { field: "version", value: 1 };
        assert_eq!(refused(1, 0x01), Err(Error { header: Header::Bth, reason }));
        let reason = Reason::Unexpected { field: "opcode", value: 0x15 };
        assert_eq!(refused(0, 0x15), Err(Error { header: Header::Bth, reason }));
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(
            opcode in any::<u8>().prop_filter_map("defined", Opcode::from_byte),
            pad_count in 0_u8..4,
            flags: [bool; 5],
            pkey: u16,
            numbers: [u32; 2],
        ) {
            let [solicited, migration, fecn, becn, ack_request] = flags;
            let (dest_qp, psn) = (Qpn::wrapping(numbers[0]), Psn::wrapping(numbers[1]));
            let fields =
                Fields { solicited, migration, pkey, fecn, becn, dest_qp, ack_request, psn };
            let repr = Repr { opcode, pad_count, fields };
            let mut buffer = [0xff; LEN];
            repr.emit(&mut buffer);
            let (packet, _) = Packet::new_checked(&buffer).expect("12 bytes");
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
        }
    }
}
