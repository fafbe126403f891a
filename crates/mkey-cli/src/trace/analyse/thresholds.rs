//! What findings are held against. All that is a matter of judgement stands here.

/// Entries that a list of the report has at most; how many more there are is told.
pub const MOST: usize = 10;
/// Frames that a place tells at most, inwards and outwards.
pub const MOST_FRAMES: usize = 5;
/// Buckets of time that the report has at most.
pub const MOST_BUCKETS: u64 = 100;
/// Of the wall time, in thousandths: from here on a cost is worth a change; below it is told only.
pub const WORTH_A_CHANGE: u64 = 10;
/// Of the wall time, in thousandths: from here on all of registration together is a finding.
pub const COSTLY: u64 = 50;
/// Calls: from so many on a habit is one, whatever it costs here; another device may take longer.
pub const HABIT: u64 = 100;
/// Bytes: regions below it are small, and a NIC would rather have one large one.
pub const SMALL: u64 = 1 << 20;
/// Bytes between two regions that count as adjacent: no more than the rest of a page.
pub const ADJACENT: u64 = 4096;
/// The same on transparent huge pages; on reserved ones, which are there anyway, all of a mapping is.
pub const ADJACENT_THP: u64 = 2 << 20;
/// Bytes of regions never used, or left at exit, from which on they are worth a change.
pub const MUCH: u64 = 1 << 20;
/// Causes of a failure that are told.
pub const CAUSES: usize = 2;
/// Nanoseconds: memory that was freed or unmapped while registered, and deregistered by then, was most likely
/// that of a cache of registrations, which is told of it just then.
pub const SOON: u64 = 10_000_000;
