//! The pool of registered memory: registered once in large slabs, handed out in blocks.
//!
//! A block that was freed rests with the thread that freed it and is handed out again there
//! without a lock, a system call or an allocation; everything else goes through one lock. No
//! record of any kind lies in the registered memory, where a peer may be able to write. A block is
//! one hold ([`Hold`](crate::keep::Hold)): its last holder gives it back, once, from whatever
//! thread. Blocks outlive the pool.
//!
//! | part | what it does |
//! |---|---|
//! | `magazine`, `local` | blocks resting with threads, and how they are called back |
//! | `record` | the count of a block's holders |
//! | `runs`, `arena` | which bytes of which slab are free |
//! | `source` | where slabs come from |
//! | `queue`, `waiting` | who waits, in order |
//! | `state`, `shared` | the lock and what it guards; growth, shrinking |

mod arena;
mod error;
mod local;
mod magazine;
mod options;
mod queue;
mod record;
mod runs;
mod shared;
mod source;
mod state;
mod stats;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;

pub use error::{Limit, PoolError, Shortage};
pub use options::PoolOptions;
pub use source::SlabReport;
pub use stats::PoolStats;

use crate::pd::Pd;
use crate::slice::Slice;
use magazine::Class;
use record::Idle;
use shared::Shared;
use source::Source;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use waiting::Next;

/// How much memory is asked for: a length, and an alignment of its first byte in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    len: usize,
    align: usize,
}

impl Request {
    /// `len` bytes, aligned as the pool's smallest block is.
    pub const fn new(len: usize) -> Self {
        Self { len, align: 1 }
    }

    /// At a multiple of `align` bytes: a power of two up to 2 MiB.
    pub const fn aligned(self, align: usize) -> Self {
        Self { align, ..self }
    }
}

impl From<usize> for Request {
    #[inline]
    fn from(len: usize) -> Self {
        Self::new(len)
    }
}

/// A pool of registered memory: registered once, in slabs, and handed out in [`Slice`]s. Cloning a
/// handle shares the pool. A slice goes back when its last clone is gone (posted work counts), also
/// from other threads, also after the pool.
#[derive(Clone)]
pub struct Pool(Arc<Open>);

/// The pool as long as somebody has a handle of it.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Pool {
    /// A pool of memory registered in `pd`, with its floor registered.
    ///
    /// # Errors
    /// [`PoolError::Option`]; [`PoolError::Source`] where the floor can not be had or not be
    /// registered.
    pub fn new(pd: &Pd, options: &PoolOptions) -> Result<Self, PoolError> {
        let most = pd.device().capabilities().max_mr_size;
        let region = usize::try_from(most).unwrap_or(usize::MAX);
        Self::over(Box::new(options.registrar(pd)), region, options)
    }

    /// A pool over `source`. `region` is the largest memory region that the device registers, in
    /// bytes.
    fn over(
        source: Box<dyn Source>,
        region: usize,
        options: &PoolOptions,
    ) -> Result<Self, PoolError> {
        let shared = Shared::new(source, options.check(region)?)?;
        Ok(Self(Arc::new(Open(shared))))
    }

    /// A block. What it holds is what was there.
    ///
    /// # Errors
    /// [`PoolError::Full`] where there is no room and none may be made, or others wait already;
    /// [`PoolError::Source`] where the pool could not grow; the others for a request that never
    /// can be served.
    #[inline]
    pub fn alloc(&self, request: impl Into<Request>) -> Result<Slice, PoolError> {
        let Request { len, align } = request.into();
        let shared = &*self.0.0;
        let hot = shared.hot();
        if let Some(class) = Class::holding(len.wrapping_sub(1) >> hot.shift)
            && (align == 1 || align.is_power_of_two() && align >> hot.shift <= 1)
            && let Some(Some(pointer)) = local::with(hot.id, |own| own.take(&hot.recall, class))
        {
            // SAFETY: it was put there by `Idle::pointer`, and is out of there now.
            return Ok(unsafe { Idle::from_pointer(pointer) }.slice(len));
        }
        Self::alloc_slow(shared, len, align)
    }

    /// As [`alloc`](Self::alloc), with all bytes zero.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&self, request: impl Into<Request>) -> Result<Slice, PoolError> {
        let slice = self.alloc(request)?;
        // SAFETY: the bytes are mapped and writable as long as the slice lives, which is new:
        // nobody else has it, and no reference to the bytes exists.
        unsafe { slice.start.write_bytes(0, slice.len) };
        Ok(slice)
    }

    #[cold]
    fn alloc_slow(shared: &Shared, len: usize, align: usize) -> Result<Slice, PoolError> {
        let need = shared.need(len, align).map_err(|error| shared.failed(error))?;
        Ok(shared.allocate(&need)?.slice(len))
    }

    /// As [`alloc`](Self::alloc), but waits up to `timeout` for room; first come, first served.
    ///
    /// # Errors
    /// [`PoolError::TimedOut`]; [`PoolError::Full`] or [`PoolError::Source`] where all blocks are
    /// back and there is no room all the same; the others at once.
    pub fn alloc_within(
        &self,
        request: impl Into<Request>,
        timeout: Duration,
    ) -> Result<Slice, PoolError> {
        let Request { len, align } = request.into();
        let shared = &*self.0.0;
        let need = shared.need(len, align).map_err(|error| shared.failed(error))?;
        let start = Instant::now();
        let turns = match shared.allocate_or_queue(&need)? {
            Next::Got(idle) => return Ok(idle.slice(len)),
            Next::Wait(turns) => turns,
        };
        // A time that is past all clocks has no end.
        let deadline = start.checked_add(timeout);
        loop {
            use event_listener::Listener;
            let listener = turns.event().listen();
            if let Some(answer) = turns.turn() {
                return answer.map(|idle| idle.slice(len));
            }
            match deadline {
                None => listener.wait(),
                // However often it is told to try again.
                Some(deadline)
                    if Instant::now() >= deadline || listener.wait_deadline(deadline).is_none() =>
                {
                    return Err(turns.timed_out(start.elapsed()));
                }
                Some(_) => {}
            }
        }
    }

    /// As [`alloc`](Self::alloc), but waits for room; first come, first served. Dropping the future
    /// gives the place in the queue up. Registering a slab, where the pool may grow, blocks the
    /// thread; a floor that covers the load avoids it.
    ///
    /// # Errors
    /// As [`alloc_within`](Self::alloc_within), but for the time.
    pub async fn alloc_async(&self, request: impl Into<Request>) -> Result<Slice, PoolError> {
        let Request { len, align } = request.into();
        let shared = &*self.0.0;
        let need = shared.need(len, align).map_err(|error| shared.failed(error))?;
        let turns = match shared.allocate_or_queue(&need)? {
            Next::Got(idle) => return Ok(idle.slice(len)),
            Next::Wait(turns) => turns,
        };
        loop {
            let listener = turns.event().listen();
            if let Some(answer) = turns.turn() {
                return answer.map(|idle| idle.slice(len));
            }
            listener.await;
        }
    }

    /// Gives all slabs that are empty and above the floor back; how many bytes that were.
    pub fn trim(&self) -> usize {
        self.0.0.trim()
    }

    /// What its slabs lie on now, in the order in which they serve.
    pub fn slabs(&self) -> Vec<SlabReport> {
        self.0.0.reports()
    }

    /// What the pool has counted.
    pub fn stats(&self) -> PoolStats {
        self.0.0.stats()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.stats()).finish()
    }
}
