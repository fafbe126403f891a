//! `stale = nic`: what a NIC does with pages that the program has taken away. It goes on using the
//! pages that were pinned, whatever the program has at their addresses now, and reports success.

use crate::core::Core;
use crate::memory::{self, Atomic, Failed, Missed, Site};
use crate::options::Stale;
use crate::payload::{Bytes, Room};
use mkey_core::address::{HostRange, IoAddr};
use mkey_core::engine::{Access, Executor};
use mkey_core::refusal::Refusal;
use mkey_os::pin::PinGuard;

/// Whether a refusal is about detached pages which the device shall serve all the same.
#[inline]
pub(crate) fn serves(core: &Core, refusal: &Refusal) -> bool {
    core.options.stale == Stale::Nic && matches!(refusal, Refusal::Detached { .. })
}

/// A chunk of which at least one side is detached, by way of a buffer.
#[cold]
pub(crate) fn chunk(
    executor: &mut Executor,
    source: &Site<'_>,
    target: &Site<'_>,
) -> Result<(), Failed> {
    let mut bytes = vec![0u8; source.access.length as usize];
    read(executor, source, Room::of(&mut bytes)).map_err(Missed::source)?;
    write(executor, target, Bytes::of(&bytes)).map_err(Missed::target)
}

/// An atomic on a detached word.
#[cold]
pub(crate) fn atomic(
    executor: &mut Executor,
    site: &Site<'_>,
    operation: Atomic,
) -> Result<u64, Missed> {
    let _turn = site.core.unaligned_atomics();
    let mut word = [0u8; 8];
    read(executor, site, Room::of(&mut word))?;
    let old = u64::from_ne_bytes(word);
    if let Some(new) = operation.apply(old) {
        write(executor, site, Bytes::of(&new.to_ne_bytes()))?;
    }
    Ok(old)
}

pub(crate) fn read(
    executor: &mut Executor,
    site: &Site<'_>,
    mut into: Room<'_>,
) -> Result<(), Missed> {
    let missed = match memory::to_room(executor, site, into.again()) {
        Ok(()) => return Ok(()),
        Err(missed) => missed,
    };
    match pinned(site, missed)? {
        Part::Whole(range) => {
            let mut bytes = vec![0; into.len()];
            with_pin(site, missed, range, |pin| {
                pin.read_pinned(range.start.0 as usize, &mut bytes).is_ok()
            })?;
            into.put(Bytes::of(&bytes));
            Ok(())
        }
        Part::Some => {
            let (first, second) = halves(site);
            let (now, later) = into.split(first.access.length as usize);
            read(executor, &first, now)?;
            read(executor, &second, later)
        }
    }
}

pub(crate) fn write(
    executor: &mut Executor,
    site: &Site<'_>,
    from: Bytes<'_>,
) -> Result<(), Missed> {
    let missed = match memory::from_bytes(executor, site, from) {
        Ok(()) => return Ok(()),
        Err(missed) => missed,
    };
    match pinned(site, missed)? {
        Part::Whole(range) => {
            let bytes = from.to_vec();
            with_pin(site, missed, range, |pin| {
                pin.write_pinned(range.start.0 as usize, &bytes).is_ok()
            })
        }
        Part::Some => {
            let (first, second) = halves(site);
            let (now, later) = from.split(first.access.length as usize);
            write(executor, &first, now)?;
            write(executor, &second, later)
        }
    }
}

/// How much of an access is detached.
enum Part {
    Whole(HostRange),
    Some,
}

fn pinned(site: &Site<'_>, missed: Missed) -> Result<Part, Missed> {
    match missed {
        Missed::Refused(refusal @ Refusal::Detached { range, .. })
            if serves(site.core, &refusal) =>
        {
            Ok(if range.len == site.access.length { Part::Whole(range) } else { Part::Some })
        }
        missed => Err(missed),
    }
}

/// An access of more than one byte, in two; one of a single byte is detached as a whole or not.
fn halves<'a>(site: &Site<'a>) -> (Site<'a>, Site<'a>) {
    let access = site.access;
    let half = access.length / 2;
    let address = IoAddr(access.address.0.wrapping_add(half));
    let first = Access { length: half, ..access };
    let second = Access { address, length: access.length - half, ..access };
    (Site { access: first, ..*site }, Site { access: second, ..*site })
}

/// Only the kernel keeps pages that were unmapped; of others the refusal stands.
fn with_pin(
    site: &Site<'_>,
    missed: Missed,
    range: HostRange,
    work: impl FnOnce(&PinGuard) -> bool,
) -> Result<(), Missed> {
    // The regions are locked meanwhile, which stands for the guard: see `drain`.
    let work = |pin: &PinGuard| if site.ended() { Err(Missed::Ended) } else { Ok(work(pin)) };
    match site.core.registrations.with_pin(site.access.key, range, work) {
        Some(Ok(true)) => Ok(()),
        Some(Err(ended)) => Err(ended),
        _ => Err(missed),
    }
}
