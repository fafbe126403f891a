//! The memory that a script is played on.

use super::layout::{Area, Block, Layout};
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::populate;
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use crate::bench::units::size;
use mkey_os::mapping::PageKind;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

/// The areas of a layout, mapped and brought in.
#[derive(Debug, Default)]
pub struct Memory {
    /// For each area its memory; `None`: there was no room.
    pub areas: Vec<Option<Arc<Arena>>>,
    /// What is otherwise than it was asked for, a sentence each.
    pub notes: Vec<String>,
}

impl Memory {
    /// Maps the areas in their order as far as `room` goes, which shrinks by them, and brings them in.
    /// A kind of pages that can not be had is told, and the next smaller one taken.
    ///
    /// # Errors
    /// `Stopped`.
    pub fn obtain(
        layout: &Layout,
        room: &mut u64,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<Self> {
        let mut memory = Self::default();
        for (number, area) in layout.areas.iter().enumerate() {
            stop.check()?;
            let blocks = layout.blocks.iter().filter(|block| block.area == number);
            let ends = blocks.map(|block| block.start.saturating_add(block.bytes()));
            let fits = ends.filter(|end| *end <= *room).max();
            let mapped = match fits {
                Some(bytes) => map(Area { bytes, ..*area }, stop, progress)?,
                None => None,
            };
            let (got, arena) = match mapped {
                Some((arena, refused)) => {
                    if let Some(why) = refused {
                        let (got, bytes) = (arena.mapping().page_kind(), size(arena.bytes()));
                        let asked = area.pages;
                        let note = format!("{bytes} are on {got} pages, not on {asked}: {why}");
                        memory.notes.push(note);
                    }
                    *room = room.saturating_sub(arena.bytes());
                    (fits.unwrap_or(0), Some(Arc::new(arena)))
                }
                None => (0, None),
            };
            if got < area.bytes {
                let missing = size(area.bytes.saturating_sub(got));
                memory
                    .notes
                    .push(format!("{missing} of memory on {} pages do not fit here", area.pages));
            }
            memory.areas.push(arena);
        }
        Ok(memory)
    }

    /// The memory of a block, and its offset there.
    pub fn block(&self, block: &Block) -> Option<(&Arc<Arena>, u64)> {
        let arena = self.areas.get(block.area)?.as_ref()?;
        let end = block.start.checked_add(block.bytes())?;
        (end <= arena.bytes()).then_some((arena, block.start))
    }
}

/// An area on its kind of pages or the next smaller one that can be had; why not on its own.
/// `None`: on none.
fn map(area: Area, stop: &Stop, progress: &Progress) -> Result<Option<(Arena, Option<String>)>> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut refused = None;
    for kind in PageKind::LADDER.into_iter().filter(|kind| *kind <= area.pages) {
        let mapped = populate::map(area.bytes, kind)
            .and_then(|arena| populate::prefault(&arena, threads, stop, progress).map(|()| arena));
        match mapped {
            Ok(arena) => return Ok(Some((arena, refused))),
            Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
            Err(error) => refused = refused.or(Some(error.missing().what)),
        }
    }
    Ok(None)
}
