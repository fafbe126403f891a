//! The checksum of IPv4 and UDP: the complement of the sum in ones' complement (RFC 1071).

/// A sum in the making, over bytes that need not lie in one piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    sum: u64,
    /// Whether an odd number of bytes was summed: the next one is a low one.
    odd: bool,
}

impl Sum {
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        // 2^48 words would have to come for it to overflow.
        if self.odd
            && let Some((low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(*low);
            self.odd = false;
            bytes = rest;
        }
        let (words, last) = bytes.as_chunks();
        self.sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [high] = last {
            self.sum += u64::from(*high) << 8;
            self.odd = true;
        }
    }

    pub(crate) fn checksum(self) -> u16 {
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        for pieces in [&[8_usize][..], &[1, 7], &[3, 2, 3], &[0, 8], &[5, 1, 1, 1]] {
            let mut sum = Sum::default();
            let mut rest = &bytes[..];
            for piece in pieces {
                let (head, tail) = rest.split_at(*piece);
                sum.update(head);
                rest = tail;
            }
            assert!(rest.is_empty());
            assert_eq!(sum.checksum(), !0xddf2, "in pieces of {pieces:?}");
        }
    }
}
