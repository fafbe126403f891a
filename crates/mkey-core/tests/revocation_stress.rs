//! Revocation is exact: the instant it is quiet, the memory is filled with a canary, and no access
//! that had begun before may break it or carry it away.
//!
//! One thread copies through two keys, with delays inside its guards; the other revokes now one
//! key, now the other, in every way there is. `MKEY_STRESS_REVOCATIONS` sets how often (300,000
//! if it is not set). Built with `--cfg mkey_break_fence` or `--cfg mkey_break_scan` it must fail.
#![cfg(not(loom))]
#![allow(missing_docs)]

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::*;
use mkey_core::key::{Key, Rkey};
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

const DEFAULT: u64 = 300_000;
const PD: PdId = PdId(1);
const BY: QpScope = QpScope { pd: PD, qp: QpId(7) };
const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::MW_BIND);
const WORDS: usize = 8;
const BYTES: u64 = WORDS as u64 * 8;
/// What no access may read or overwrite.
const CANARY: u64 = 1 << 63;

/// Memory that is registered and revoked, and the key by which it is reached now.
#[derive(Default)]
#[repr(align(128))]
struct Memory {
    words: [AtomicU64; WORDS],
    key: AtomicU32,
}

impl Memory {
    fn host(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }

    /// The words that a guard has opened.
    fn opened(&self, guard: &Guard<'_>) -> &[AtomicU64] {
        let segment = guard.single().expect("contiguous memory");
        let Place::Memory(host) = segment.place else { panic!("null memory") };
        let first = (host.0 - self.host()) as usize / 8;
        &self.words[first..first + segment.len as usize / 8]
    }

    fn fill(&self, value: u64) {
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn wait(&mut self, most: u64) {
        for _ in 0..self.below(most) {
            spin_loop();
        }
    }
}

#[derive(Default)]
struct Bed {
    source: Memory,
    target: Memory,
    stop: AtomicBool,
}

#[derive(Default)]
struct Copied {
    copies: u64,
    refused: u64,
    /// Canaries that were read through a guard.
    carried: u64,
}

/// Copies from the source to the target until told to stop.
fn copy(bed: &Bed, engine: &Engine, mut executor: Executor) -> Copied {
    let mut copied = Copied::default();
    let mut random = Random(0x9e37_79b9);
    // Stores to many cache lines keep the store buffer busy, so that a published use which no
    // fence pushes out stays invisible for long.
    let mut lines = vec![[0u64; 16]; 1 << 14];
    let access = |memory: &Memory, want| Access {
        key: Key(memory.key.load(Ordering::Acquire)),
        pd: PD,
        qp: BY.qp,
        address: IoAddr(0),
        length: BYTES,
        want,
    };
    while !bed.stop.load(Ordering::Relaxed) {
        let from = access(&bed.source, Want::RemoteRead);
        let to = access(&bed.target, Want::RemoteWrite);
        for _ in 0..random.below(12) {
            let at = random.below(1 << 14) as usize;
            lines[at][0] = random.0;
        }
        let Ok(source) = engine.open(&mut executor.source, &from) else {
            copied.refused += 1;
            continue;
        };
        let Ok(target) = engine.open(&mut executor.target, &to) else {
            copied.refused += 1;
            continue;
        };
        match random.below(4096) {
            0 => thread::yield_now(),
            1..1024 => random.wait(400),
            1024..2048 => random.wait(40),
            _ => {}
        }
        let (source, target) = (bed.source.opened(&source), bed.target.opened(&target));
        for (from, to) in source.iter().zip(target) {
            let word = from.load(Ordering::Relaxed);
            copied.carried += u64::from(word & CANARY != 0);
            to.store(word & !CANARY | 1, Ordering::Relaxed);
        }
        copied.copies += 1;
        if copied.carried > 0 {
            bed.stop.store(true, Ordering::Relaxed);
        }
    }
    copied
}

/// A way to grant access to memory, and to end it.
#[derive(Clone, Copy)]
enum Way {
    Region,
    Window1,
    Window2,
    FastMr,
}

struct Revoker<'a> {
    engine: &'a Engine,
    pending: u64,
}

impl Revoker<'_> {
    fn quiet(&mut self, mut change: Change) -> Change {
        let mut spins = 0u32;
        while self.engine.finish(&mut change) == Progress::Pending {
            self.pending += u64::from(spins == 0);
            spins += 1;
            // The copying thread may have lost its processor inside its guards.
            if spins.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
        }
        change
    }

    fn region(&self, memory: &Memory, rights: Rights) -> Registered {
        let backing = Backing::Plain { host: HostAddr(memory.host()) };
        let what = Registration { iova: IoAddr(0), length: BYTES, rights, backing };
        self.engine.register(PD, &what).expect("room")
    }
}

/// The objects by which a memory is granted, one at a time.
struct Grants {
    way: Way,
    /// Under windows and FRMR; itself it grants a peer nothing.
    base: Registered,
    region: ObjectId,
    window1: Rkey,
    window2: Rkey,
    fast: Key,
}

impl Grants {
    fn new(revoker: &mut Revoker<'_>, memory: &Memory) -> Self {
        let engine = revoker.engine;
        let base = revoker.region(memory, Rights::LOCAL_WRITE | Rights::MW_BIND);
        let mut grants = Self {
            way: Way::Region,
            base,
            region: base.id,
            window1: engine.allocate_window(PD, MwKind::Type1).expect("room").rkey,
            window2: engine.allocate_window(PD, MwKind::Type2).expect("room").rkey,
            fast: engine.allocate_fast_mr(PD, 1).expect("room").rkey.0,
        };
        grants.grant(Way::Region, revoker, memory);
        grants
    }

    fn bind(&self, mw: Rkey, length: u64) -> BindMw {
        let (address, rights) = (IoAddr(0), Rights::REMOTE_READ | Rights::REMOTE_WRITE);
        BindMw { mw, new_key: Rkey(mw.0.next()), mr: self.base.lkey, address, length, rights }
    }

    /// Grants the memory and tells the key.
    fn grant(&mut self, way: Way, revoker: &mut Revoker<'_>, memory: &Memory) {
        let engine = revoker.engine;
        self.way = way;
        let key = match way {
            Way::Region => {
                let region = revoker.region(memory, ALL);
                self.region = region.id;
                region.rkey.0
            }
            Way::Window1 => {
                let bind = engine.bind(BY, &self.bind(self.window1, BYTES), MwKind::Type1);
                self.window1 = revoker.quiet(bind.expect("a good bind")).rkey();
                self.window1.0
            }
            Way::Window2 => {
                let bind = engine.bind(BY, &self.bind(self.window2, BYTES), MwKind::Type2);
                self.window2 = revoker.quiet(bind.expect("a good bind")).rkey();
                self.window2.0
            }
            Way::FastMr => {
                let key = self.fast.next();
                let length = BYTES as u32;
                let entries = [Sge { address: IoAddr(0), length, lkey: self.base.lkey }];
                let what = RegMr { key, iova: IoAddr(0), rights: ALL, entries: &entries };
                let change = engine.fast_register(BY, &what).expect("a good list");
                self.fast = revoker.quiet(change).rkey().0;
                key
            }
        };
        memory.key.store(key.0, Ordering::Release);
    }

    /// Ends the grant, and takes the memory for the canary the instant it is quiet.
    fn revoke(&mut self, revoker: &mut Revoker<'_>, memory: &Memory, canary: u64) {
        let engine = revoker.engine;
        let change = match self.way {
            Way::Region => engine.deregister(self.region).expect("nothing lies on it"),
            Way::Window1 => {
                engine.bind(BY, &self.bind(self.window1, 0), MwKind::Type1).expect("a good unbind")
            }
            Way::Window2 => engine.invalidate(BY, self.window2.0).expect("bound"),
            Way::FastMr => engine.invalidate(BY, self.fast).expect("registered"),
        };
        let change = revoker.quiet(change);
        memory.fill(canary);
        if matches!(self.way, Way::Window1) {
            self.window1 = change.rkey();
        }
    }
}

#[test]
fn no_access_outlives_its_revocation() {
    let revocations = std::env::var("MKEY_STRESS_REVOCATIONS")
        .map_or(DEFAULT, |text| text.parse().expect("MKEY_STRESS_REVOCATIONS is a number"));
    let executors = Executors::new();
    let executor = executors.enter().expect("a slot");
    let engine = Engine::new(EngineConfig { max_keys: 1 << 12, seed: 5 }, executors);
    let bed = Bed::default();
    let mut revoker = Revoker { engine: &engine, pending: 0 };
    let mut broken = 0u64;
    let copied = thread::scope(|scope| {
        let copier = scope.spawn(|| copy(&bed, &engine, executor));
        let memories = [&bed.source, &bed.target];
        let mut grants = memories.map(|memory| Grants::new(&mut revoker, memory));
        let ways = [Way::Region, Way::Window2, Way::FastMr, Way::Window1];
        let mut random = Random(0x5bd1_e995);
        for round in 0..revocations {
            // The other memory stays reachable, so that copies go on.
            let which = round as usize % 2;
            let (memory, grants) = (memories[which], &mut grants[which]);
            random.wait(120);
            let canary = CANARY | round;
            grants.revoke(&mut revoker, memory, canary);
            random.wait(80);
            let whole = memory.words.iter().all(|word| word.load(Ordering::Relaxed) == canary);
            broken += u64::from(!whole);
            if broken > 0 || bed.stop.load(Ordering::Relaxed) {
                break;
            }
            memory.fill(0);
            grants.grant(ways[round as usize / 2 % ways.len()], &mut revoker, memory);
        }
        bed.stop.store(true, Ordering::Relaxed);
        copier.join().expect("the copier ends")
    });
    let Copied { copies, refused, carried } = copied;
    let pending = revoker.pending;
    println!(
        "{revocations} revocations, {pending} of them pending at first; {copies} copies, {refused} refused"
    );
    assert_eq!((broken, carried), (0, 0), "canaries broken, canaries carried away");
    assert!(copies > 0 && refused > 0 && pending > 0, "{copies}, {refused}, {pending}");
}
