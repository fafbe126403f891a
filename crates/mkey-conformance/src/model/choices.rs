//! Decisions read from bytes.

/// Bytes of one operation: a sequence shrinks and mutates operation by operation.
pub const BLOCK: usize = 48;

/// The bytes of one operation, read from the front. Past the end all are 0.
pub(super) struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn below(&mut self, many: usize) -> usize {
        usize::from(self.byte()) % many
    }

    /// True in one of `many` cases, never for 0.
    pub fn rarely(&mut self, many: usize) -> bool {
        self.below(many) == many - 1
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes([(); 4].map(|()| self.byte()))
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A range in `[base, base + length)`, of at least one byte.
    pub fn within(&mut self, base: u64, length: u64) -> (u64, u64) {
        let len = (u64::from(self.byte()) * u64::from(self.byte())).min(length).max(1);
        let room = length.saturating_sub(len).saturating_add(1);
        let skip = u64::from(self.byte()) << (self.byte() % 12);
        (base.wrapping_add(skip % room), len)
    }

    /// A range near `[base, base + length)`: within, at its borders, one past them, wrapping.
    pub fn range(&mut self, base: u64, length: u64) -> (u64, u64) {
        let len = match self.below(12) {
            0 | 1 => 1,
            2 | 3 => 8,
            4 => length,
            5 => length.wrapping_add(1),
            6 => length / 2,
            7 => 4096,
            8 => u64::from(self.u32()),
            9 if self.rarely(4) => self.u64(),
            _ => u64::from(self.byte()),
        };
        let len = len.max(1);
        let room = length.saturating_sub(len);
        let address = match self.below(16) {
            0 | 1 => base,
            2 | 3 => base.wrapping_add(room),
            4 => base.wrapping_sub(1),
            5 => base.wrapping_add(room).wrapping_add(1),
            6 => base.wrapping_add(length),
            7 => u64::MAX - u64::from(self.byte()),
            8 => self.u64(),
            _ => base.wrapping_add(u64::from(self.u32()) % room.saturating_add(1)),
        };
        (address, len)
    }
}
