//! The protection engine: what a NIC keeps in its protection and translation tables, and the one
//! function that decides whether an access is allowed.
//!
//! * [`Engine::open`] is that function. It takes no lock and writes nothing that other threads
//!   write; the use of a key is published in the thread's own executor slot.
//! * Revocation is exact: once [`Engine::finish`] has answered [`Progress::Quiet`] for a
//!   deregistration, invalidation or rebind, no access through the old key touches memory, nor
//!   does one that had passed its check on another thread before. The engine itself never waits.
//! * Keys are not guessable for practical purposes: a keyed permutation in front of dense slots,
//!   random first variants, lkey and rkey apart, and freed indices rest before they are used
//!   again. This is obfuscation; domains and windows are the protection.
//!
//! One entry of 64 bytes to a key, plus a page list for on-demand regions and FRMR. The rules are
//! those of the conformance list (`docs/conformance.md`).
//!
//! ```
//! use mkey_core::address::{HostAddr, IoAddr};
//! use mkey_core::engine::*;
//! use mkey_core::refusal::{PdId, QpId, Refusal};
//! use mkey_core::rights::{Rights, Want};
//!
//! let executors = Executors::new();
//! let mut executor = executors.enter().expect("a slot is free");
//! let engine = Engine::new(EngineConfig { max_keys: 1024, seed: 1 }, executors);
//! let (pd, qp) = (PdId(1), QpId(1));
//! let region = engine
//!     .register(pd, &Registration {
//!         iova: IoAddr(0x1000),
//!         length: 4096,
//!         rights: Rights::REMOTE_READ,
//!         backing: Backing::Plain { host: HostAddr(0x7f00_0000_1000) },
//!     })
//!     .expect("there is room");
//!
//! let read = Access {
//!     key: region.rkey.0,
//!     pd,
//!     qp,
//!     address: IoAddr(0x1ff8),
//!     length: 8,
//!     want: Want::RemoteRead,
//! };
//! let guard = engine.open(&mut executor.source, &read).expect("it may be read");
//! let segment = guard.single().expect("it is contiguous");
//! assert_eq!(segment.place, Place::Memory(HostAddr(0x7f00_0000_1ff8)));
//! drop(guard);
//!
//! let past = Access { length: 9, ..read };
//! let denied = engine.open(&mut executor.source, &past).expect_err("one byte too many");
//! assert!(matches!(denied, Denied::Refused(Refusal::PastEnd { by: 1, .. })));
//! ```

#![forbid(unsafe_code)]

mod access;
mod change;
mod check;
mod detach;
mod entry;
mod executor;
mod fast_mr;
mod invalidate;
mod on_demand;
mod permutation;
mod range;
mod region;
mod running;
mod runs;
mod sync;
mod table;
mod window;

pub use access::{Denied, Guard, Place, Segment};
pub use change::{Change, Progress};
pub use check::{Access, atomic_alignment};
pub use executor::{Executor, Executors, Lane};
pub use on_demand::{Fault, FaultCause};
pub use region::{Backing, ObjectError, ObjectId, Registered, Registration, Remap, TableFull};
pub use running::Running;
pub use window::QpScope;

use std::collections::HashMap;
use std::sync::Arc;

/// How an engine is made.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Keys that may be live at a time, at most [`MAX_KEYS`](crate::key::MAX_KEYS).
    pub max_keys: u32,
    /// What indices and variants are drawn from. Take it from the operating system's randomness,
    /// unless a test wants to repeat itself.
    pub seed: u64,
}

/// The protection and translation tables of one device.
#[derive(Debug)]
pub struct Engine {
    table: table::Table,
    runs: runs::Runs,
    executors: Arc<Executors>,
    tag: u64,
    /// The pages that are gone, by slot. Whoever takes pages away or gives a region another
    /// translation holds this lock, so that neither meets the other half way. Accesses take it,
    /// too, so nothing is freed under it while accesses run: the allocator may unmap memory, and
    /// whoever hears of that waits for the accesses.
    detached: sync::Mutex<HashMap<u32, detach::Gone>>,
    /// Counts the translations of on-demand regions.
    translations: sync::AtomicU32,
    seed: u64,
}

impl Engine {
    /// An engine without keys, whose accesses come from threads of `executors`.
    pub fn new(config: EngineConfig, executors: Arc<Executors>) -> Self {
        Self {
            table: table::Table::new(config.max_keys, config.seed),
            runs: runs::Runs::new(),
            tag: executors.engine_tag(),
            executors,
            detached: sync::Mutex::new(HashMap::new()),
            translations: sync::AtomicU32::new(0),
            seed: config.seed.rotate_left(32) ^ 0x5bd1_e995,
        }
    }

    /// The threads whose accesses this engine knows.
    pub fn executors(&self) -> &Arc<Executors> {
        &self.executors
    }

    /// Objects that live: regions, windows, FRMR.
    pub fn live(&self) -> u32 {
        self.table.live()
    }

    /// Bytes that the protection and translation tables take.
    pub fn table_bytes(&self) -> u64 {
        self.table.bytes() + self.runs.bytes()
    }
}
