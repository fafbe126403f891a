//! On-demand paging: registered without pinning; pages fault in when an access touches them, or
//! when a prefetch asks for them.

use super::region::{WRITABLE, write_all};
use super::{Context, Strategy, target};
use crate::bench::arena::{Arena, Registration};
use crate::bench::error::{Result, RowError};
use crate::bench::link::Link;
use crate::bench::report::{Figures, Missing};
use mkey_core::address::IoAddr;
use mkey_core::data_plane::DataPlane;
use mkey_core::device::Advice;
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use mkey_os::mapping::PageKind;
use std::time::Duration;

/// How the pages come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// By the access itself, the first one ever.
    FirstTouch,
    /// They are in.
    Warm,
    /// By a prefetch of each I/O's range before it, the first one ever.
    Prefetched,
}

const RIGHTS: Rights = WRITABLE.union(Rights::ON_DEMAND);
const BASE_PAGE: u64 = 4096;

struct OnDemand<'a, 'c, D: DataPlane> {
    context: &'a Context<'c, D>,
    link: &'a Link<'a, D>,
    pages: Pages,
    region: Option<Registration<'a, D, Arena>>,
}

impl<D: DataPlane> OnDemand<'_, '_, D> {
    fn region(&self) -> Result<&Registration<'_, D, Arena>> {
        let none = || RowError::Missing(Missing::plain("no memory is registered"));
        self.region.as_ref().ok_or_else(none)
    }

    #[inline]
    fn prefetch(&self, region: &Registration<'_, D, Arena>, offset: u64) -> Result<()> {
        let block = [Sge {
            address: IoAddr(region.arena().at(offset).0),
            length: u32::try_from(self.context.io.bytes).unwrap_or(u32::MAX),
            lkey: region.info.lkey,
        }];
        let device = self.link.device();
        Ok(device.advise_mr(self.link.pd, Advice::PrefetchWrite, true, &block)?)
    }

    /// The peer writes `length` bytes at each offset.
    #[inline]
    fn write(&self, offsets: &[u64], length: u64) -> Result<()> {
        let region = self.region()?;
        let block = |offset: &u64| target(region.arena().at(*offset).0, region.info.rkey, length);
        write_all(self.link, offsets.iter().map(block))
    }
}

impl<D: DataPlane> Strategy for OnDemand<'_, '_, D> {
    fn ready(&mut self) -> Result<()> {
        if self.region.is_some() && self.pages == Pages::Warm {
            return Ok(());
        }
        // New memory, so that each first touch is one.
        self.region = None;
        let bytes = self.context.io.working_set;
        let arena = self.context.map(bytes, PageKind::Base)?;
        let (device, pd) = (self.link.device(), self.link.pd);
        self.region = Some(Registration::new(arena, device, pd, 0, bytes, RIGHTS)?);
        if self.pages == Pages::Warm {
            let pages: Vec<u64> = (0..bytes / BASE_PAGE).map(|page| page * BASE_PAGE).collect();
            self.write(&pages, 8)?;
        }
        Ok(())
    }

    fn io(&mut self, offsets: &[u64]) -> Result<()> {
        if self.pages == Pages::Prefetched {
            let region = self.region()?;
            offsets.iter().try_for_each(|offset| self.prefetch(region, *offset))?;
        }
        self.write(offsets, self.context.io.bytes)
    }

    fn memory(&self) -> Result<&Arena> {
        Ok(self.region()?.arena())
    }

    fn map_step(&self) -> Option<u64> {
        Some(match self.pages {
            Pages::FirstTouch | Pages::Warm => BASE_PAGE,
            Pages::Prefetched => self.context.io.bytes,
        })
    }

    fn map(&mut self, offset: u64) -> Result<()> {
        match self.pages {
            Pages::FirstTouch | Pages::Warm => self.write(&[offset], 8),
            Pages::Prefetched => self.prefetch(self.region()?, offset),
        }
    }
}

/// Measures it on 4 KiB pages.
///
/// # Errors
/// As the memory or the device refuses.
pub fn measure<D: DataPlane>(
    context: &Context<'_, D>,
    pages: Pages,
    time: Duration,
) -> Result<Figures> {
    let link = Link::connect(context.device, context.source)?;
    let (register, _) = context.register_all(&link, PageKind::Base, RIGHTS, time / 5)?;
    // Bare copies go into memory that is in: what first touches cost shows against it.
    let bare = context.populated(context.io.working_set, PageKind::Base)?;
    let mut strategy = OnDemand { context, link: &link, pages, region: None };
    let figures = context.io(&mut strategy, &bare, time * 4 / 5)?;
    Ok(Figures {
        register: Some(register),
        map_is: match pages {
            Pages::FirstTouch => "an 8-byte WRITE to a page never touched: the fault and the WRITE",
            Pages::Warm => "an 8-byte WRITE to a page that is in, as a fault's reference",
            Pages::Prefetched => "advise_mr of one I/O never touched, until all pages are in",
        }
        .to_owned(),
        ..figures
    })
}
