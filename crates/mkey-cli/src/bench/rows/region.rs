//! A memory region: registered once, then used for all I/O.

use super::{Context, Strategy, target};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::Result;
use crate::bench::link::{Link, MOST, Target};
use crate::bench::report::Figures;
use mkey_core::data_plane::DataPlane;
use mkey_core::key::Rkey;
use mkey_core::rights::Rights;
use mkey_os::mapping::PageKind;
use std::time::Duration;

/// What a peer needs to write.
pub const WRITABLE: Rights = Rights::LOCAL_WRITE.union(Rights::REMOTE_WRITE);

struct Region<'a, D: DataPlane> {
    link: &'a Link<'a, D>,
    arena: &'a Arena,
    registration: Registration<'a, D, &'a Arena>,
    io_bytes: u64,
}

impl<D: DataPlane> Strategy for Region<'_, D> {
    fn io(&mut self, offsets: &[u64]) -> Result<()> {
        let rkey = self.registration.info.rkey;
        let block = |offset: &u64| target(self.arena.at(*offset).0, rkey, self.io_bytes);
        write_all(self.link, offsets.iter().map(block))
    }

    fn memory(&self) -> Result<&Arena> {
        Ok(self.arena)
    }

    fn map_step(&self) -> Option<u64> {
        None
    }
}

/// The peer writes into all targets, in chains.
///
/// # Errors
/// As the device refuses.
#[inline]
pub fn write_all<D: DataPlane>(
    link: &Link<'_, D>,
    targets: impl Iterator<Item = Target>,
) -> Result<()> {
    let mut chain = [target(0, Rkey::default(), 0); MOST];
    let mut filled = 0;
    for target in targets {
        if filled == chain.len() {
            link.write(&chain)?;
            filled = 0;
        }
        if let Some(slot) = chain.get_mut(filled) {
            *slot = target;
            filled += 1;
        }
    }
    link.write(chain.get(..filled).unwrap_or_default())
}

/// Measures a region on pages of `kind`.
///
/// # Errors
/// As the memory or the device refuses.
pub fn measure<D: DataPlane>(
    context: &Context<'_, D>,
    kind: PageKind,
    time: Duration,
) -> Result<Figures> {
    let link = Link::connect(context.device, context.source)?;
    let (register, arena) = context.register_all(&link, kind, WRITABLE, time * 7 / 10)?;
    let registration = arena.register(context.device, link.pd, 0, context.memory, WRITABLE)?;
    let io_bytes = context.io.bytes;
    let mut region = Region { link: &link, arena: &arena, registration, io_bytes };
    let figures = context.io(&mut region, &arena, time * 3 / 10)?;
    Ok(Figures {
        register: Some(register),
        map_is: "nothing: registered once".to_owned(),
        ..figures
    })
}
