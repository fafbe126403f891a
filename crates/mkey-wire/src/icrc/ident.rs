//! Checking the ICRC of a datagram from an IPv4 socket, which does not say the identification that
//! the datagram had.
//!
//! The ICRC covers the identification, so without it half the check is lost, but only half: of all
//! 2^32 ICRCs that a datagram may carry, 2^16 are right for some identification. A CRC is linear.
//! The difference between the ICRC that was received and that for identification 0 is what the 16
//! bits of the identification make of it, carried on over the bytes behind them; carried back, it
//! must be a number of 16 bits, the identification.

use super::{LEN, of_datagram};
use crate::error::Error;
use crate::udp_ip::{Ip, Repr};
use crate::{ipv4, udp};

/// The IPv4 identification with which the datagram's ICRC is right between these headers,
/// whose own identification is not looked at. `None` if there is none: the datagram was
/// damaged, or is too short to be a packet.
///
/// Damage goes unnoticed once in 2^16 times; where the identification is known, compare the ICRC
/// itself, of which [`of_datagram`] is the right one.
///
/// # Errors
/// `Long` if no UDP datagram is that long.
pub fn ident_of(ip: ipv4::Repr, udp: udp::Repr, datagram: &[u8]) -> Result<Option<u16>, Error> {
    let ip = Ip::V4(ipv4::Repr { ident: 0, ..ip });
    let around = Repr { ip, udp }.headers(datagram.len())?;
    let Some((computed, (_, received))) =
        of_datagram(&around, datagram).zip(datagram.split_last_chunk::<LEN>())
    else {
        return Ok(None);
    };
    // From the identification, bytes 4 and 5 of the IP header, to the ICRC.
    let bytes = ipv4::LEN - 4 + udp::LEN + datagram.len() - LEN;
    let back = carried_back(computed ^ u32::from_le_bytes(*received), bytes);
    // Its high byte comes first and so is the low one of the CRC's state.
    Ok(u16::try_from(back).ok().map(u16::swap_bytes))
}

/// The polynomial. Bit 31 of a number is the coefficient of x^0.
const POLYNOMIAL: u32 = 0xedb8_8320;
const ONE: u32 = 1 << 31;

/// x to the power of -8 * 2^i, which carries a state back over 2^i bytes.
const BACK: [u32; 17] = {
    // 1 / x: what times x is 1. Times x shifts right, and takes away the polynomial where a bit
    // falls out, which sets bit 31.
    let inverse = (ONE ^ POLYNOMIAL) << 1 | 1;
    let mut power = inverse;
    let mut square = 0;
    while square < 3 {
        power = product(power, power);
        square += 1;
    }
    let mut powers = [0; 17];
    let mut i = 0;
    while i < powers.len() {
        powers[i] = power;
        power = product(power, power);
        i += 1;
    }
    powers
};

/// The state that is `state` once `bytes` zeros, below 2^17, have followed.
fn carried_back(state: u32, bytes: usize) -> u32 {
    let powers = BACK.iter().enumerate().filter(|(i, _)| bytes >> i & 1 == 1);
    powers.fold(state, |state, (_, power)| product(state, *power))
}

const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut bit = ONE;
    while bit != 0 {
        if a & bit != 0 {
            sum ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { b >> 1 ^ POLYNOMIAL };
        bit >>= 1;
    }
    sum
}
