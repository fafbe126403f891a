//! Row 3: the access check over many keys, and what the keys take.

use super::Setup;
use super::check::{engine, executor, open, register, write_to};
use crate::bare::Lines;
use crate::machine;
use crate::measure::{Sequence, alternate, median};
use crate::report::{Aim, Line, Unit};
use anyhow::{Context, Result};
use mkey_core::engine::Access;
use mkey_core::key::{Key, MAX_KEYS};
use std::hint::black_box;
use std::time::Instant;

/// Accesses of one round.
const BATCH: usize = 4096;
/// Bytes of an entry of the protection table.
const ENTRY: u64 = 64;
/// Registrations that are timed together.
const BLOCK: usize = 1 << 14;

/// Row 3.
pub fn measure(setup: &Setup) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, keys) in [("8 M", 8 << 20), ("16.7 M", MAX_KEYS)] {
        lines.extend(over(setup, name, keys)?);
    }
    Ok(lines)
}

fn over(setup: &Setup, name: &str, keys: u32) -> Result<Vec<Line>> {
    let work = format!("random over {name} keys");
    let (aim, unit) = (Aim::AtMost(2.0), Unit::Times);
    let need = u64::from(keys) * (2 * ENTRY + 8) + (512 << 20);
    let available = machine::available_memory()?;
    if available < need {
        let why = format!("it needs {} MiB of memory, {} are there", need >> 20, available >> 20);
        return Ok(vec![Line::not_measured(work, aim, unit, why)]);
    }
    let engine = engine(keys);
    let mut executor = executor(&engine)?;
    let mut names: Vec<Key> = vec![Key(0); keys as usize];
    let before = machine::resident()?;
    let mut blocks = Vec::new();
    for block in names.chunks_mut(BLOCK) {
        let start = Instant::now();
        for name in block.iter_mut() {
            *name = register(&engine, 0x10_0000, 4096)?.rkey.0;
        }
        blocks.push(start.elapsed().as_nanos() as f64 / block.len() as f64);
    }
    let resident = machine::resident()?.saturating_sub(before);
    let memory = Line::new(
        format!("memory per key, {name} keys"),
        Aim::None,
        Unit::Count,
        engine.table_bytes() as f64 / f64::from(keys),
    )
    .beside(format!("bytes of tables; resident: {:.1} bytes", resident as f64 / f64::from(keys)));

    let table = Lines::new(keys as usize);
    let accesses = Batches::new(keys);
    let (mut for_check, mut for_loads, mut for_chain) =
        (accesses.clone(), accesses.clone(), accesses);
    let access = |at: u32| -> Access { write_to(names[at as usize], 0x10_0040) };
    let mut first = Batches::new(keys);
    for at in first.next() {
        let opened = engine.open(&mut executor.target, &access(*at));
        opened.ok().context("an access is refused")?;
    }
    let [check, loads, chain] = alternate(
        setup.rounds,
        [
            &mut || {
                let batch: Vec<Access> = for_check.next().iter().map(|at| access(*at)).collect();
                let start = Instant::now();
                batch.iter().for_each(|access| open(&engine, &mut executor, access));
                start.elapsed().as_nanos() as f64 / BATCH as f64
            },
            &mut || {
                let batch = for_loads.next();
                let start = Instant::now();
                for at in batch {
                    black_box(table.load(*at as usize));
                }
                start.elapsed().as_nanos() as f64 / BATCH as f64
            },
            &mut || {
                let batch = for_chain.next();
                let start = Instant::now();
                // The table holds zeros, which the compiler does not know.
                let mut last = 0;
                for at in batch {
                    last = table.load(*at as usize ^ last as usize);
                }
                black_box(last);
                start.elapsed().as_nanos() as f64 / BATCH as f64
            },
        ],
    );
    let line = Line::new(work, aim, unit, check.over(&chain)).beside(format!(
        "check: {:.1} ns; a bare load of 64 bytes: {:.1} ns, {:.1} where loads overlap",
        check.median(),
        chain.median(),
        loads.median()
    ));

    let at = |percent: usize| {
        let middle = blocks.len() * percent / 100;
        let from = middle.saturating_sub(2);
        median(blocks.get(from..(from + 5).min(blocks.len())).unwrap_or_default())
    };
    let (early, half, full) = (at(1), at(50), at(99));
    let slowdown = Line::new(
        format!("register as the table fills, {name} keys"),
        Aim::AtMost(1.25),
        Unit::Times,
        half.max(full) / early,
    )
    .beside(format!("at 1 %: {early:.0} ns, at 50 %: {half:.0} ns, at 99 %: {full:.0} ns"));
    Ok(vec![line, memory, slowdown])
}

/// Random places, the same whoever asks.
#[derive(Clone)]
struct Batches {
    sequence: Sequence,
    keys: u32,
    batch: Vec<u32>,
}

impl Batches {
    fn new(keys: u32) -> Self {
        Self { sequence: Sequence::new(), keys, batch: Vec::new() }
    }

    fn next(&mut self) -> &[u32] {
        self.batch.clear();
        let (sequence, bound) = (&mut self.sequence, u64::from(self.keys));
        self.batch.extend((0..BATCH).map(|_| sequence.below(bound) as u32));
        &self.batch
    }
}
