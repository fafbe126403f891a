//! Rows 1 and 2: the access check, hot.

use super::Setup;
use crate::bare;
use crate::measure::{alternate, timed};
use crate::report::{Aim, Line, Unit};
use crate::second::beside_second;
use crate::station::RIGHTS;
use anyhow::{Context, Result};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::engine::{
    Access, Backing, Engine, EngineConfig, Executor, Executors, Registered, Registration,
};
use mkey_core::key::Key;
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::Want;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;

/// Accesses of one round.
const ACCESSES: u64 = 20_000;

pub const PD: PdId = PdId(1);
pub const QP: QpId = QpId(7);

/// An engine for so many keys.
pub fn engine(max_keys: u32) -> Engine {
    Engine::new(EngineConfig { max_keys, seed: 3 }, Executors::new())
}

/// A slot of an engine.
pub fn executor(engine: &Engine) -> Result<Executor> {
    engine.executors().enter().context("no executor slot is free")
}

/// Registers memory that nobody will touch.
pub fn register(engine: &Engine, host: u64, length: u64) -> Result<Registered> {
    let backing = Backing::Plain { host: HostAddr(host) };
    let what = Registration { iova: IoAddr(host), length, rights: RIGHTS, backing };
    engine.register(PD, &what).ok().context("the engine is full")
}

/// A write of 8 bytes by a peer.
pub fn write_to(key: Key, host: u64) -> Access {
    let (address, want) = (IoAddr(host), Want::RemoteWrite);
    Access { key, pd: PD, qp: QP, address, length: 8, want }
}

/// Opens for an access; whether that succeeded is seen by who asked for it first.
#[inline(always)]
pub fn open(engine: &Engine, executor: &mut Executor, access: &Access) {
    if let Ok(guard) = engine.open(&mut executor.target, access) {
        black_box(guard.single());
    }
}

/// An engine with one key, and an access through it that is allowed.
fn one_key() -> Result<(Engine, Access)> {
    let engine = engine(1 << 16);
    let region = register(&engine, 0x10_0000, 1 << 20)?;
    let access = write_to(region.rkey.0, 0x10_0040);
    let mut executor = executor(&engine)?;
    engine.open(&mut executor.target, &access).ok().context("the access is refused")?;
    Ok((engine, access))
}

/// Row 1.
pub fn hot(setup: &Setup) -> Result<Vec<Line>> {
    let (engine, access) = one_key()?;
    let mut executor = executor(&engine)?;
    let word = AtomicU64::new(0);
    let [check, floor] = alternate(
        setup.rounds,
        [&mut || timed(ACCESSES, || open(&engine, &mut executor, black_box(&access))), &mut || {
            timed(ACCESSES, || bare::publish(black_box(&word)))
        }],
    );
    let line = Line::new(
        "check + guard + translation",
        Aim::AtMost(10.0),
        Unit::Nanoseconds,
        check.median(),
    );
    let reference =
        format!("store, fence, store: {:.1} ns; instructions: xtask gates", floor.median());
    Ok(vec![line.beside(reference)])
}

/// Row 2.
pub fn two_threads(setup: &Setup) -> Result<Vec<Line>> {
    let (work, aim, unit) = ("two threads on one key, each", Aim::AtMost(1.4), Unit::Times);
    let [here, there, ..] = setup.cpus[..] else {
        let why = "there is one processor".to_owned();
        return Ok(vec![Line::not_measured(work, aim, unit, why)]);
    };
    let (engine, access) = one_key()?;
    let (mut own, mut other) = (executor(&engine)?, executor(&engine)?);
    let work_there = || open(&engine, &mut other, black_box(&access));
    let [two, one] = beside_second(setup.rounds, [here, there], work_there, || {
        timed(ACCESSES, || open(&engine, &mut own, black_box(&access)))
    })?;
    let line = Line::new(work, aim, unit, two.over(&one));
    let reference = format!("two threads: {:.1} ns, one: {:.1} ns", two.median(), one.median());
    Ok(vec![line.beside(reference)])
}
