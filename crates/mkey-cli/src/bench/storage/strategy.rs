//! How the initiator lets the target access the buffer of one I/O: one file a strategy.

mod bounce;
mod cache;
mod fixed;
mod frmr;
mod grant;
mod per_io;

use super::args::Name;
use super::capsule::Op;
use super::content::{Content, WORD, Words};
use super::side::Side;
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use mkey::{Access, Mr, PageKind, PeerAccess, Region, RemoteKey, Slice, Work};
use std::sync::Arc;

/// What one I/O looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of an I/O.
    pub block: usize,
    /// I/Os at a time.
    pub depth: usize,
}

/// A strategy with the buffers of all I/Os that are in flight at a time, numbered from 0.
pub trait Strategy: Send {
    /// Opens a buffer to the target, for an I/O that is about to be asked for.
    ///
    /// # Errors
    /// As the device refuses.
    fn open(&mut self, side: &Side, slot: usize, op: Op) -> Result<RemoteKey>;

    /// What opens the buffer, to be posted with the request; `None`: it is open.
    fn opening(&self, _slot: usize) -> Option<Work<'_>> {
        None
    }

    /// The I/O is done: closes the buffer, so that its bytes are the application's own.
    ///
    /// # Errors
    /// As the device refuses.
    fn close(&mut self, slot: usize, op: Op) -> Result<()>;

    /// Whether the target ends the key with its response.
    fn is_invalidated_by_target(&self) -> bool {
        false
    }

    /// The application's buffer of an I/O.
    ///
    /// # Errors
    /// If there is no such buffer.
    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words>;

    /// What one I/O needs besides its data, in words.
    fn how(&self) -> String;

    /// The pages that registered memory lies on.
    fn pages(&self) -> PageKind;
}

/// Sets a strategy up.
///
/// # Errors
/// As the memory or the device refuses.
pub fn set_up(name: Name, side: &Side, shape: Shape) -> Result<Box<dyn Strategy>> {
    let mut strategy: Box<dyn Strategy> = match name {
        Name::Static => Box::new(fixed::Static::new(side, shape)?),
        Name::Bounce => Box::new(bounce::Bounce::new(side, shape)?),
        Name::Cache => Box::new(cache::Cached::new(side, shape)?),
        Name::Frmr => Box::new(frmr::Frmr::new(side, shape)?),
        Name::Grant => Box::new(grant::Granted::new(side, shape)?),
        Name::MrPerIo => Box::new(per_io::PerIo::new(side, shape, false)?),
        Name::MrPerIoPinned => Box::new(per_io::PerIo::new(side, shape, true)?),
    };
    // What applications write is there before the first I/O.
    for slot in 0..shape.depth {
        let buffer = strategy.buffer(slot)?;
        let content = Content { block: 0, version: 0, bytes: shape.block };
        let bytes = content.to_bytes();
        for (number, word) in bytes.chunks_exact(WORD).enumerate() {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            buffer.set_word(number * WORD, word)?;
        }
    }
    Ok(strategy)
}

/// What the target does to the initiator's buffer.
fn access(op: Op) -> PeerAccess {
    match op {
        Op::Read => PeerAccess::WRITE,
        Op::Write => PeerAccess::READ,
    }
}

/// All buffers in one registration on the largest pages that can be had, and these pages.
fn registered(side: &Side, shape: Shape, access: Access) -> Result<(Vec<Slice>, PageKind)> {
    let stride = stride(shape);
    let region = Region::builder(stride.saturating_mul(shape.depth)).map_prefaulted(1)?;
    let pages = region.page_kind();
    let mr = Mr::builder(&side.pd).access(access).register(region)?;
    let buffer = |slot: usize| mr.slice(slot * stride..slot * stride + shape.block);
    let buffers = (0..shape.depth).map(buffer).collect::<mkey::Result<Vec<_>>>()?;
    Ok((buffers, pages))
}

/// The distance of buffers: whole pages, so that no two registrations share one.
fn stride(shape: Shape) -> usize {
    shape.block.next_multiple_of(PageKind::Base.size())
}

fn no_buffer() -> RowError {
    RowError::Protocol("an I/O that was not asked for")
}

impl Words for Slice {
    fn word(&self, at: usize) -> Result<u64> {
        Ok(self.load(at)?)
    }

    fn set_word(&mut self, at: usize, value: u64) -> Result<()> {
        Ok(self.store(at, value)?)
    }
}

impl Words for Vec<u8> {
    fn word(&self, at: usize) -> Result<u64> {
        let word = self.get(at..).and_then(|rest| rest.first_chunk::<WORD>());
        word.map(|word| u64::from_ne_bytes(*word)).ok_or_else(no_buffer)
    }

    fn set_word(&mut self, at: usize, value: u64) -> Result<()> {
        let word = self.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<WORD>());
        *word.ok_or_else(no_buffer)? = value.to_ne_bytes();
        Ok(())
    }
}

impl Words for Arc<Arena> {
    fn word(&self, at: usize) -> Result<u64> {
        Arena::word(self, at as u64)
    }

    fn set_word(&mut self, at: usize, value: u64) -> Result<()> {
        Arena::set_word(self, at as u64, value)
    }
}
