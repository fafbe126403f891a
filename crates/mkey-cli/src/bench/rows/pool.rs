//! A pool registered once: the peer writes into a buffer of the pool, and the data is copied out
//! to where the application wants it.

use super::region::{WRITABLE, write_all};
use super::{Context, Strategy, target};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::Result;
use crate::bench::link::Link;
use crate::bench::report::Figures;
use mkey_core::data_plane::DataPlane;
use mkey_os::mapping::PageKind;
use std::time::Duration;

struct Pool<'a, D: DataPlane> {
    link: &'a Link<'a, D>,
    memory: &'a Arena,
    registration: Registration<'a, D, &'a Arena>,
    application: &'a Arena,
    io_bytes: u64,
    /// Offsets of free buffers, the last freed on top: it is the one still in the cache.
    free: Vec<u64>,
}

impl<D: DataPlane> Strategy for Pool<'_, D> {
    fn io(&mut self, offsets: &[u64]) -> Result<()> {
        let first = self.free.len().saturating_sub(offsets.len());
        let buffers = self.free.get(first..).unwrap_or_default();
        let rkey = self.registration.info.rkey;
        let block = |buffer: &u64| target(self.memory.at(*buffer).0, rkey, self.io_bytes);
        write_all(self.link, buffers.iter().map(block))?;
        for (offset, buffer) in offsets.iter().zip(buffers) {
            self.application.copy_from(*offset, self.memory, *buffer, self.io_bytes)?;
        }
        Ok(())
    }

    fn memory(&self) -> Result<&Arena> {
        Ok(self.application)
    }

    fn map_step(&self) -> Option<u64> {
        Some(self.io_bytes)
    }

    fn map(&mut self, offset: u64) -> Result<()> {
        let Some(buffer) = self.free.pop() else { return Ok(()) };
        self.application.copy_from(offset, self.memory, buffer, self.io_bytes)?;
        self.free.push(buffer);
        Ok(())
    }
}

/// Measures it with the pool on pages of `kind` and the application on 4 KiB pages.
///
/// # Errors
/// As the memory or the device refuses.
pub fn measure<D: DataPlane>(
    context: &Context<'_, D>,
    kind: PageKind,
    time: Duration,
) -> Result<Figures> {
    let link = Link::connect(context.device, context.source)?;
    let (register, memory) = context.register_all(&link, kind, WRITABLE, time / 2)?;
    let application = context.populated(context.io.working_set, PageKind::Base)?;
    let registration = memory.register(context.device, link.pd, 0, context.memory, WRITABLE)?;
    let io_bytes = context.io.bytes;
    let buffers = context.memory / io_bytes.max(1);
    let mut strategy = Pool {
        link: &link,
        memory: &memory,
        registration,
        application: &application,
        io_bytes,
        free: (0..buffers).rev().map(|n| n * io_bytes).collect(),
    };
    let figures = context.io(&mut strategy, &application, time / 2)?;
    Ok(Figures {
        register: Some(register),
        map_is: "take a buffer, copy one I/O out of it, give it back".to_owned(),
        ..figures
    })
}
