//! What stands in a block, so that an I/O that did not move its bytes is found out.
//!
//! The first word names the block, the last one counts its writes, and the words between are those
//! of one pattern. The two ends of every I/O are checked, all of one in [`WHOLE`].

use crate::bench::error::Result;

/// Of so many I/Os one is checked to its last word.
pub const WHOLE: u64 = 256;

/// Bytes of a word.
pub const WORD: usize = 8;

/// The words of one block, wherever it lies.
pub trait Words {
    /// The word at a byte position, a multiple of 8.
    ///
    /// # Errors
    /// Outside of the block.
    fn word(&self, at: usize) -> Result<u64>;

    /// Sets it.
    ///
    /// # Errors
    /// As [`Words::word`].
    fn set_word(&mut self, at: usize, value: u64) -> Result<()>;
}

/// What a block holds after `version` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The block's number on the disk.
    pub block: u64,
    /// How often it was written.
    pub version: u64,
    /// Bytes, a multiple of 8 and at least 16.
    pub bytes: usize,
}

impl Content {
    /// Writes the first and the last word; those between are to be there.
    ///
    /// # Errors
    /// As the memory refuses.
    pub fn stamp(&self, words: &mut dyn Words) -> Result<()> {
        words.set_word(0, self.first())?;
        words.set_word(self.bytes.saturating_sub(WORD), self.last())
    }

    /// Makes both ends wrong, and all between if `whole`, so that what is right later has come.
    ///
    /// # Errors
    /// As the memory refuses.
    pub fn spoil(&self, words: &mut dyn Words, whole: bool) -> Result<()> {
        words.set_word(0, !self.first())?;
        words.set_word(self.bytes.saturating_sub(WORD), !self.last())?;
        for at in self.between().filter(|_| whole) {
            words.set_word(at, !body(at))?;
        }
        Ok(())
    }

    /// Whether both ends are right, and all between if `whole`.
    ///
    /// # Errors
    /// As the memory refuses.
    pub fn is_in(&self, words: &dyn Words, whole: bool) -> Result<bool> {
        if words.word(0)? != self.first()
            || words.word(self.bytes.saturating_sub(WORD))? != self.last()
        {
            return Ok(false);
        }
        for at in self.between().filter(|_| whole) {
            if words.word(at)? != body(at) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All of it, as bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let between = self.between().map(body);
        let words = std::iter::once(self.first()).chain(between).chain([self.last()]);
        words.flat_map(u64::to_ne_bytes).collect()
    }

    fn between(&self) -> impl Iterator<Item = usize> + use<> {
        (WORD..self.bytes.saturating_sub(WORD)).step_by(WORD)
    }

    fn first(&self) -> u64 {
        mix(self.block ^ 0x626c_6f63_6b00_0000)
    }

    fn last(&self) -> u64 {
        mix(self.version ^ 0x7772_6974_6500_0000)
    }
}

fn body(at: usize) -> u64 {
    mix(at as u64)
}

/// Makes unlike words of like numbers.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number ^ number >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(Vec<u64>);

    impl Words for Plain {
        fn word(&self, at: usize) -> Result<u64> {
            Ok(self.0[at / WORD])
        }

        fn set_word(&mut self, at: usize, value: u64) -> Result<()> {
            self.0[at / WORD] = value;
            Ok(())
        }
    }

    fn plain(content: Content) -> Plain {
        let bytes = content.to_bytes();
        let words =
            bytes.chunks_exact(WORD).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        Plain(words.collect())
    }

    #[test]
    fn any_wrong_word_is_found() {
        let content = Content { block: 5, version: 2, bytes: 512 };
        let right = plain(content);
        assert_eq!(right.0.len(), 64);
        assert!(content.is_in(&right, true).unwrap());
        for at in 0..64 {
            let mut words = Plain(right.0.clone());
            words.0[at] ^= 1 << 40;
            assert!(!content.is_in(&words, true).unwrap(), "{at}");
            let is_end = at == 0 || at == 63;
            assert_eq!(content.is_in(&words, false).unwrap(), !is_end, "{at}");
        }
    }

    #[test]
    fn another_block_or_version_is_another_content() {
        let content = Content { block: 5, version: 2, bytes: 512 };
        for other in [Content { block: 6, ..content }, Content { version: 3, ..content }] {
            assert!(!other.is_in(&plain(content), false).unwrap(), "{other:?}");
        }
    }

    #[test]
    fn what_is_spoilt_must_come_again() {
        let content = Content { block: 1, version: 0, bytes: 512 };
        let mut words = plain(content);
        content.spoil(&mut words, true).unwrap();
        let right = plain(content);
        assert!(words.0.iter().zip(&right.0).all(|(spoilt, right)| spoilt != right));
        content.stamp(&mut words).unwrap();
        assert!(content.is_in(&words, false).unwrap() && !content.is_in(&words, true).unwrap());
    }
}
