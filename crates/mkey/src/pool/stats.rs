//! What a pool counts.

/// A snapshot of a pool. Counts go up for ever, the rest is of now.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Bytes registered.
    pub registered_bytes: u64,
    /// Bytes handed out, whole blocks.
    pub in_use_bytes: u64,
    /// Bytes that are free but rest in threads' magazines.
    pub resting_bytes: u64,
    /// The most bytes that were handed out or resting at a time.
    pub high_water_bytes: u64,
    /// Registered slabs.
    pub slabs: u64,
    /// Allocations that succeeded.
    pub allocations: u64,
    /// Those of them that were served from the thread's own magazines: no lock, no system call.
    pub fast_allocations: u64,
    /// Allocations that had to wait.
    pub waits: u64,
    /// Allocations that failed, those that timed out included.
    pub failures: u64,
    /// Requests waiting now.
    pub waiting: u64,
    /// Bytes of the largest free block.
    pub largest_free_bytes: u64,
    /// How scattered the free memory is: 1 - largest free block / free bytes; 0 without free bytes.
    /// Several empty slabs count as scattered.
    pub fragmentation: f64,
    /// Slabs registered since the pool was made, the first ones included.
    pub grows: u64,
    /// Slabs deregistered while the pool was open.
    pub shrinks: u64,
}
