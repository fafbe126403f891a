//! `stale = nic`: what a NIC does with pages that the program has taken away. It goes on using the
//! pages that were pinned, whatever the program has at their addresses now, and reports success.

use crate::core::Core;
use crate::memory::{self, Atomic, Failed};
use crate::options::Stale;
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
    from: &Core,
    source: &Access,
    to: &Core,
    target: &Access,
) -> Result<(), Failed> {
    let mut bytes = vec![0u8; source.length as usize];
    read(executor, from, source, &mut bytes).map_err(Failed::Source)?;
    write(executor, to, target, &bytes).map_err(Failed::Target)
}

/// An atomic on a detached word.
#[cold]
pub(crate) fn atomic(
    executor: &mut Executor,
    core: &Core,
    access: &Access,
    operation: Atomic,
) -> Result<u64, Refusal> {
    let _turn = core.unaligned_atomics();
    let mut word = [0u8; 8];
    read(executor, core, access, &mut word)?;
    let old = u64::from_ne_bytes(word);
    if let Some(new) = operation.apply(old) {
        write(executor, core, access, &new.to_ne_bytes())?;
    }
    Ok(old)
}

fn read(
    executor: &mut Executor,
    core: &Core,
    access: &Access,
    into: &mut [u8],
) -> Result<(), Refusal> {
    let refusal = match memory::to_bytes(executor, core, access, into) {
        Ok(()) => return Ok(()),
        Err(refusal) => refusal,
    };
    match pinned(core, access, refusal)? {
        Part::Whole(range) => with_pin(core, access, refusal, range, |pin| {
            pin.read_pinned(range.start.0 as usize, into).is_ok()
        }),
        Part::Some => {
            let (first, second) = halves(access);
            let (now, later) = into.split_at_mut(first.length as usize);
            read(executor, core, &first, now)?;
            read(executor, core, &second, later)
        }
    }
}

pub(crate) fn write(
    executor: &mut Executor,
    core: &Core,
    access: &Access,
    from: &[u8],
) -> Result<(), Refusal> {
    let refusal = match memory::from_bytes(executor, core, access, from) {
        Ok(()) => return Ok(()),
        Err(refusal) => refusal,
    };
    match pinned(core, access, refusal)? {
        Part::Whole(range) => with_pin(core, access, refusal, range, |pin| {
            pin.write_pinned(range.start.0 as usize, from).is_ok()
        }),
        Part::Some => {
            let (first, second) = halves(access);
            let (now, later) = from.split_at(first.length as usize);
            write(executor, core, &first, now)?;
            write(executor, core, &second, later)
        }
    }
}

/// How much of an access is detached.
enum Part {
    Whole(HostRange),
    Some,
}

fn pinned(core: &Core, access: &Access, refusal: Refusal) -> Result<Part, Refusal> {
    match refusal {
        Refusal::Detached { range, .. } if serves(core, &refusal) => {
            Ok(if range.len == access.length { Part::Whole(range) } else { Part::Some })
        }
        refusal => Err(refusal),
    }
}

/// An access of more than one byte, in two; one of a single byte is detached as a whole or not.
fn halves(access: &Access) -> (Access, Access) {
    let half = access.length / 2;
    let address = IoAddr(access.address.0.wrapping_add(half));
    (
        Access { length: half, ..*access },
        Access { address, length: access.length - half, ..*access },
    )
}

/// Only the kernel keeps pages that were unmapped; of others the refusal stands.
fn with_pin(
    core: &Core,
    access: &Access,
    refusal: Refusal,
    range: HostRange,
    work: impl FnOnce(&PinGuard) -> bool,
) -> Result<(), Refusal> {
    match core.registrations.with_pin(access.key, range, work) {
        Some(true) => Ok(()),
        _ => Err(refusal),
    }
}
