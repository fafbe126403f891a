//! Choices, and what memory is filled with.

/// A number that looks like chance, made of another: the finaliser of splitmix64.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The choices of one thread.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, thread: u64) -> Self {
        Self(mix(mix(seed) ^ mix(thread)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Removes one of them.
    pub fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let at = self.below(from.len());
        Some(from.swap_remove(at))
    }
}

/// What names a filling: of one thread, and rising.
pub struct Serials(u64);

impl Serials {
    pub fn new(thread: u64) -> Self {
        Self((thread + 1) << 48)
    }

    pub fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// The word at `index` of what an owner writes: the first one tells the serial.
pub fn owners(serial: u64, index: usize) -> u64 {
    match index {
        0 => serial,
        index => mix(serial ^ mix(index as u64)),
    }
}

/// The word at `index` of what a peer writes that was granted something.
pub fn peers(serial: u64, index: usize) -> u64 {
    mix(!serial ^ mix(index as u64))
}

/// `count` words by `of`, from the word `first` on.
pub fn filled(first: usize, count: usize, of: impl Fn(usize) -> u64) -> Vec<u8> {
    (first..first + count).flat_map(|index| of(index).to_ne_bytes()).collect()
}

/// The first word that `fits` does not let by, in words.
pub fn misfit(bytes: &[u8], fits: impl Fn(usize, u64) -> bool) -> Option<String> {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let (index, word) = words.enumerate().find(|&(index, word)| !fits(index, word))?;
    Some(format!("word {index} of {} is {word:#x}", bytes.len() / 8))
}
