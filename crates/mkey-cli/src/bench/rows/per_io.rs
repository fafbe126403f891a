//! A memory region for each I/O: registered before, deregistered after.

use super::region::WRITABLE;
use super::{Context, Strategy, target};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::Result;
use crate::bench::link::{Link, Target};
use crate::bench::report::Figures;
use mkey_core::data_plane::DataPlane;
use mkey_os::mapping::PageKind;
use std::time::Duration;

struct PerIo<'a, D: DataPlane> {
    link: &'a Link<'a, D>,
    arena: &'a Arena,
    io_bytes: u64,
    live: Vec<Registration<'a, D, &'a Arena>>,
    targets: Vec<Target>,
}

impl<'a, D: DataPlane> PerIo<'a, D> {
    #[inline]
    fn register(&self, offset: u64) -> Result<Registration<'a, D, &'a Arena>> {
        self.arena.register(self.link.device(), self.link.pd, offset, self.io_bytes, WRITABLE)
    }
}

impl<D: DataPlane> Strategy for PerIo<'_, D> {
    fn io(&mut self, offsets: &[u64]) -> Result<()> {
        for offset in offsets {
            let registration = self.register(*offset)?;
            let address = self.arena.at(*offset).0;
            self.targets.push(target(address, registration.info.rkey, self.io_bytes));
            self.live.push(registration);
        }
        self.link.write(&self.targets)?;
        self.targets.clear();
        self.live.drain(..).try_for_each(Registration::deregister)
    }

    fn memory(&self) -> Result<&Arena> {
        Ok(self.arena)
    }

    fn map_step(&self) -> Option<u64> {
        Some(self.io_bytes)
    }

    fn map(&mut self, offset: u64) -> Result<()> {
        self.register(offset)?.deregister()
    }
}

/// Measures it on ordinary memory of the application, 4 KiB pages.
///
/// # Errors
/// As the memory or the device refuses.
pub fn measure<D: DataPlane>(context: &Context<'_, D>, time: Duration) -> Result<Figures> {
    let link = Link::connect(context.device, context.source)?;
    let arena = context.populated(context.io.working_set, PageKind::Base)?;
    let mut strategy = PerIo {
        link: &link,
        arena: &arena,
        io_bytes: context.io.bytes,
        live: Vec::with_capacity(context.io.depth),
        targets: Vec::with_capacity(context.io.depth),
    };
    let figures = context.io(&mut strategy, &arena, time)?;
    Ok(Figures { map_is: "reg_mr + dereg_mr of one I/O".to_owned(), ..figures })
}
