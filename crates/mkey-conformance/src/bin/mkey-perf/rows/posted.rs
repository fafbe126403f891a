//! Rows 4 and 5: windows and fast registrations, as work requests.

use super::Setup;
use super::check;
use crate::measure::{Failed, alternate, once, timed};
use crate::report::{Aim, Line, Unit};
use crate::station::{Registered, Station, Write, memory};
use anyhow::{Context, Result, ensure};
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, MwKind};
use mkey_core::engine::{Change, Engine, Progress, QpScope};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, RegMr, SendOp, SendWr, Sge};
use mkey_os::mapping::PageKind;
use std::cell::{Cell, RefCell};

/// Executor slots that a revocation looks through.
const SLOTS: usize = 64;
/// Pairs of one round.
const PAIRS: u64 = 2000;
/// Work requests of one chain.
const CHAIN: usize = 32;
const PAGE: u64 = 4096;
const PAGES: u64 = 256;

/// The operation that binds `mw`, whose key is now `now`, to the second page of a region.
fn bind_of(now: Rkey, mr: Lkey, start: u64) -> BindMw {
    BindMw {
        mw: now,
        new_key: Rkey(now.0.next()),
        mr,
        address: IoAddr(start + PAGE),
        length: PAGE,
        rights: Rights::REMOTE_READ,
    }
}

/// A work request without data; `signaled` or not.
fn request<'a>(op: SendOp<'a>, signaled: bool) -> SendWr<'a> {
    let request = SendWr::new(1, op, &[]);
    if signaled { request } else { request.unsignaled() }
}

/// A device and a region on it.
struct Posting {
    region: Registered,
    station: Station,
}

impl Posting {
    fn new() -> Result<Self> {
        let station = Station::open()?;
        let mapping = memory((PAGES * PAGE) as usize, PageKind::Base)?;
        let region = station.register(&mapping, 0, (PAGES * PAGE) as usize)?;
        Ok(Self { region, station })
    }

    fn start(&self) -> u64 {
        self.region.sge(0, 0).address.0
    }
}

/// Row 4.
pub fn windows(setup: &Setup) -> Result<Vec<Line>> {
    let posting = Posting::new()?;
    let Posting { region, station } = &posting;
    let write = Write { from: region.sge(0, 8), to: region.remote(64) };
    let _sleepers = station.sleepers(SLOTS - 1, &write)?;
    let mw = station.device.alloc_mw(station.pd, MwKind::Type2)?;
    let (start, mr) = (posting.start(), region.info.lkey);
    // Both orders of posting use the window in turn; its key goes on.
    let now = Cell::new(mw.rkey);
    let next = || {
        let bind = bind_of(now.get(), mr, start);
        now.set(bind.new_key);
        (SendOp::BindMw(bind), SendOp::LocalInv(bind.new_key.0))
    };
    let failed = Failed::default();
    let mut bed = EngineBed::new()?;
    let [chained, single, engine] = alternate(
        setup.rounds,
        [
            &mut || {
                timed(PAIRS, || {
                    let (bind, invalidate) = next();
                    let chain = [request(bind, false), request(invalidate, true)];
                    failed.note(station.post(&chain).and_then(|()| station.reap(1)));
                })
            },
            &mut || {
                timed(PAIRS, || {
                    let (bind, invalidate) = next();
                    for op in [bind, invalidate] {
                        let post = station.post(&[request(op, true)]);
                        failed.note(post.and_then(|()| station.reap(1)));
                    }
                })
            },
            &mut || {
                timed(PAIRS, || {
                    failed.note(bed.window());
                })
            },
        ],
    );
    failed.check()?;
    let line = |work: &str, aim, figure| Line::new(work, aim, Unit::Nanoseconds, figure);
    Ok(vec![
        line("bind + invalidate, posted as a chain, polled", Aim::AtMost(100.0), chained.median())
            .beside(format!("the engine alone, {SLOTS} slots: {:.1} ns", engine.median())),
        line("the same, posted and polled one by one", Aim::None, single.median()),
    ])
}

/// Row 5.
pub fn fast_mr(setup: &Setup) -> Result<Vec<Line>> {
    let posting = Posting::new()?;
    let (many, one) = (Chains::new(&posting, 64)?, Chains::new(&posting, 1)?);
    let (mut bed_many, mut bed_one) = (EngineBed::new()?, EngineBed::new()?);
    bed_many.entries = 64;
    let failed = Failed::default();
    let noted = |result: Result<f64>| failed.note(result).unwrap_or(f64::NAN);
    let [reg_many, inv_many, reg_one, inv_one, engine_many, engine_one] = alternate(
        setup.rounds,
        [
            &mut || noted(many.register()),
            &mut || noted(many.invalidate()),
            &mut || noted(one.register()),
            &mut || noted(one.invalidate()),
            &mut || noted(bed_many.fast_registers()),
            &mut || noted(bed_one.fast_registers()),
        ],
    );
    failed.check()?;
    let inv = [inv_many.median(), inv_one.median()];
    let line =
        |work: &str, most, figure| Line::new(work, Aim::AtMost(most), Unit::Nanoseconds, figure);
    Ok(vec![
        line("REG_MR of 64 entries, chained", 250.0, reg_many.median())
            .beside(format!("the engine alone, with LOCAL_INV: {:.1} ns", engine_many.median())),
        line("REG_MR of 1 entry, chained", 80.0, reg_one.median())
            .beside(format!("the engine alone, with LOCAL_INV: {:.1} ns", engine_one.median())),
        line("LOCAL_INV, chained", 50.0, inv[0].max(inv[1]))
            .beside(format!("of 64 entries: {:.1} ns, of 1: {:.1} ns", inv[0], inv[1])),
    ])
}

/// Fast-registration regions that are registered and invalidated in chains.
struct Chains<'a> {
    station: &'a Station,
    entries: Vec<Sge>,
    keys: RefCell<Vec<Key>>,
    /// Chains of one round.
    rounds: usize,
    /// The time that the invalidations of the last round took, each.
    invalidated: Cell<f64>,
}

impl<'a> Chains<'a> {
    fn new(posting: &'a Posting, entries: u64) -> Result<Self> {
        let Posting { region, station } = posting;
        let keys = (0..CHAIN)
            .map(|_| Ok(station.device.alloc_fast_mr(station.pd, entries as u32)?.rkey.0))
            .collect::<Result<Vec<Key>>>()?;
        let entries = (0..entries).map(|at| region.sge(at * 2 * PAGE, PAGE as u32)).collect();
        Ok(Self {
            station,
            entries,
            keys: RefCell::new(keys),
            rounds: 32,
            invalidated: Cell::new(f64::NAN),
        })
    }

    /// A round of both; nanoseconds that a registration takes.
    fn register(&self) -> Result<f64> {
        let (mut registered, mut invalidated) = (0.0, 0.0);
        for _ in 0..self.rounds {
            self.keys.borrow_mut().iter_mut().for_each(|key| *key = key.next());
            let (iova, rights) = (IoAddr(0), Rights::LOCAL_WRITE | Rights::REMOTE_WRITE);
            let entries = &self.entries[..];
            let chain: Vec<SendWr<'_>> =
                self.chain(|key| SendOp::RegMr(RegMr { key, iova, rights, entries }));
            registered += self.run(&chain)?;
            invalidated += self.run(&self.chain(SendOp::LocalInv))?;
        }
        let count = (self.rounds * CHAIN) as f64;
        self.invalidated.set(invalidated / count);
        Ok(registered / count)
    }

    /// Nanoseconds that an invalidation of the last round took.
    fn invalidate(&self) -> Result<f64> {
        let time = self.invalidated.get();
        ensure!(!time.is_nan(), "nothing was registered");
        Ok(time)
    }

    /// A work request for each key, of which the last makes a completion.
    fn chain<'b>(&self, op: impl Fn(Key) -> SendOp<'b>) -> Vec<SendWr<'b>> {
        let keys = self.keys.borrow();
        keys.iter().enumerate().map(|(at, key)| request(op(*key), at + 1 == CHAIN)).collect()
    }

    fn run(&self, chain: &[SendWr<'_>]) -> Result<f64> {
        let (time, result) = once(|| self.station.post(chain).and_then(|()| self.station.reap(1)));
        result.map(|()| time)
    }
}

/// The same work asked of an engine directly.
struct EngineBed {
    engine: Engine,
    _slots: Vec<mkey_core::engine::Executor>,
    mr: Lkey,
    mw: Rkey,
    fast: Key,
    entries: usize,
}

const START: u64 = 0x10_0000;
const BY: QpScope = QpScope { pd: check::PD, qp: check::QP };

impl EngineBed {
    fn new() -> Result<Self> {
        let engine = check::engine(1 << 16);
        let slots = (0..SLOTS).map(|_| check::executor(&engine)).collect::<Result<Vec<_>>>()?;
        let mr = check::register(&engine, START, PAGES * PAGE)?.lkey;
        let mw = engine.allocate_window(check::PD, MwKind::Type2).ok().context("no window")?.rkey;
        let fast = engine.allocate_fast_mr(check::PD, 64).ok().context("no FRMR")?.rkey.0;
        Ok(Self { engine, _slots: slots, mr, mw, fast, entries: 1 })
    }

    fn window(&mut self) -> Result<()> {
        let bind = bind_of(self.mw, self.mr, START);
        self.mw = bind.new_key;
        let bound = self.engine.bind(BY, &bind, MwKind::Type2).ok().context("a bind is refused")?;
        self.finish(bound)?;
        self.invalidate(self.mw.0)
    }

    fn fast_registers(&mut self) -> Result<f64> {
        let sge =
            |at| Sge { address: IoAddr(START + 2 * PAGE * at), length: PAGE as u32, lkey: self.mr };
        let entries: Vec<Sge> = (0..self.entries as u64).map(sge).collect();
        let (time, result) = once(|| {
            for _ in 0..PAIRS {
                self.fast = self.fast.next();
                let (iova, rights) = (IoAddr(0), Rights::LOCAL_WRITE | Rights::REMOTE_WRITE);
                let what = RegMr { key: self.fast, iova, rights, entries: &entries };
                let registered = self.engine.fast_register(BY, &what);
                self.finish(registered.ok().context("a registration is refused")?)?;
                self.invalidate(self.fast)?;
            }
            Ok(())
        });
        result.map(|()| time / PAIRS as f64)
    }

    fn invalidate(&self, key: Key) -> Result<()> {
        self.finish(self.engine.invalidate(BY, key).ok().context("an invalidation is refused")?)
    }

    /// No access runs, so nothing has to be waited for.
    fn finish(&self, mut change: Change) -> Result<()> {
        let progress = self.engine.finish(&mut change);
        ensure!(progress == Progress::Quiet, "an access that never began is waited for");
        Ok(())
    }
}
