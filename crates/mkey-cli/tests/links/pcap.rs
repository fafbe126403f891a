//! Captures.

use std::fs;
use std::path::Path;

/// The frames of a capture in the classic format, of this machine's byte order.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while let Some((record, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (frame, after) = after.split_at(length);
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}
