//! What a cache has done, and what it holds now.

/// What a cache has done since it was built, and what it holds now. Counted by each thread apart
/// and summed up here, so that uses going on meanwhile may or may not be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Requests: all of `fast_hits`, `slow_hits`, `misses`, `negative_hits` and `refused`.
    pub gets: u64,
    /// Requests served from the thread's own table, without a lock.
    pub fast_hits: u64,
    /// Requests served from the shared index.
    pub slow_hits: u64,
    /// Requests that went to register.
    pub misses: u64,
    /// Requests that waited for another thread registering what they wanted; each then counts as
    /// what came of it.
    pub waits: u64,
    /// Requests answered with a remembered failure.
    pub negative_hits: u64,
    /// Requests refused because of a limit of the cache, an invalid one, or with the error of the
    /// thread they waited for.
    pub refused: u64,
    /// Registrations given up because a later one does all they do.
    pub merged: u64,
    /// Registrations given up to make room.
    pub evictions: u64,
    /// Events heard of, by range.
    pub events: u64,
    /// Registrations ended because of events.
    pub invalidated_by_events: u64,
    /// Registrations ended by `invalidate` and `flush`.
    pub invalidated_explicitly: u64,
    /// Registrations made for one request only, as nothing would tell that their memory has gone.
    pub unwatched: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Registrations that the device refused; after making room, each try counts.
    pub failures: u64,
    /// Deregistrations done.
    pub deregistrations: u64,
    /// Gauge: registrations that there are, being made and being ended included.
    pub registered: u64,
    /// Gauge: their bytes.
    pub registered_bytes: u64,
    /// Gauge: registrations that serve no more requests and are still in use.
    pub invalid_in_use: u64,
    /// Gauge: their bytes.
    pub invalid_in_use_bytes: u64,
    /// Gauge: ranges of events that wait for the next request or `maintain`; at most 64.
    pub queued: u64,
    /// Gauge: the bytes of these ranges: what may be registered still although its memory is gone.
    pub queued_bytes: u64,
    /// Bytes invalidated beyond what events named, as the queue was full.
    pub queue_widened_bytes: u64,
}
