//! The pool over memory that only says it is registered.

mod basics;
mod model;
mod threads;
mod waiting;

use super::source::{Obtained, Source};
use super::{Pool, PoolError, PoolOptions, PoolStats, Request, SlabReport};
use crate::keep::{Hold, Shared};
use crate::pd::PdTag;
use crate::slice::Slice;
use mkey_core::address::IoAddr;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::{Key, Lkey};
use mkey_core::rights::Rights;
use mkey_os::mapping::PageKind;
use mkey_os::numa::Binding;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// I/O addresses are this far from host addresses.
const IOVA_OFFSET: u64 = 1 << 50;

/// What is registered now, and whether the next registrations fail.
#[derive(Default)]
struct Ledger {
    /// Start, length, key of each slab.
    slabs: Vec<(usize, usize, Lkey)>,
    next_key: u32,
    fail: u32,
}

/// A source of plain memory, `skew` bytes after two pages.
#[derive(Clone, Default)]
struct Fake {
    ledger: Arc<Mutex<Ledger>>,
    skew: usize,
}

/// A slab of it: gone from the ledger before its memory goes.
struct Memory {
    ledger: Arc<Mutex<Ledger>>,
    start: usize,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory of its own.
unsafe impl Send for Memory {}
// SAFETY: nothing can be done through a shared one.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut ledger = self.ledger.lock().expect("ledger");
        ledger.slabs.retain(|(start, ..)| *start != self.start);
        drop(ledger);
        // SAFETY: allocated with this layout, freed once.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl Source for Fake {
    fn obtain(&self, len: usize, _most: usize) -> Result<Obtained> {
        let mut ledger = self.ledger.lock().expect("ledger");
        if ledger.fail > 0 {
            ledger.fail -= 1;
            let reason = Reason::MemlockLimit { needed: len as u64, used: 0, limit: 0 };
            return Err(Error::new("reg_mr", len, reason));
        }
        let layout = Layout::from_size_align(len + self.skew, 8192).expect("layout");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory");
        // SAFETY: the memory is `skew` bytes longer.
        let start = unsafe { base.add(self.skew) };
        ledger.next_key += 1;
        let lkey = Lkey(Key(ledger.next_key));
        let address = start.as_ptr().addr();
        ledger.slabs.push((address, len, lkey));
        let ledger = Arc::clone(&self.ledger);
        let iova = IoAddr(address as u64 + IOVA_OFFSET);
        let hold = Hold::shared(Arc::new(Memory { ledger, start: address, base, layout }));
        let (rkey, rights, pd) = (None, Rights::LOCAL_WRITE, PdTag::default());
        let (private, mapped) = (true, false);
        let memory = Slice { start, len, iova, lkey, rkey, rights, pd, private, mapped, hold };
        let (refused, numa) = (Vec::new(), Binding::NotAsked);
        let report = SlabReport { bytes: len, page_kind: PageKind::Base, refused, numa };
        Ok(Obtained { memory, report })
    }
}

impl Shared for Memory {
    fn is_sole(&mut self) -> bool {
        true
    }
}

impl Fake {
    fn pool(&self, region: usize, options: PoolOptions) -> Pool {
        Pool::over(Box::new(self.clone()), region, &options).expect("a pool")
    }

    fn registered(&self) -> usize {
        self.ledger.lock().expect("ledger").slabs.iter().map(|(_, len, _)| len).sum()
    }

    fn fail_next(&self, times: u32) {
        self.ledger.lock().expect("ledger").fail = times;
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A pool that can not grow: one slab of `blocks` blocks of 4 KiB.
fn fixed(blocks: usize) -> (Fake, Pool) {
    let fake = Fake::default();
    let bytes = blocks * 4 * KIB;
    let pool = fake.pool(bytes, PoolOptions::default().slab(bytes).ceiling(bytes));
    (fake, pool)
}

/// Everything of a pool that can not grow, in blocks of 4 KiB.
fn drain(pool: &Pool) -> Vec<Slice> {
    let mut blocks = Vec::new();
    loop {
        match pool.alloc(4 * KIB) {
            Ok(block) => blocks.push(block),
            Err(PoolError::Full(_)) => return blocks,
            Err(error) => panic!("{error}"),
        }
    }
}

fn write(block: &Slice, value: u8) {
    // SAFETY: the block is ours.
    unsafe { block.start.write_bytes(value, block.len) };
}

fn holds_only(block: &Slice, value: u8) -> bool {
    // SAFETY: the block is ours, and the memory was zeroed when it was made.
    let bytes = unsafe { std::slice::from_raw_parts(block.start.as_ptr(), block.len) };
    bytes.iter().all(|byte| *byte == value)
}
