//! The memory that a script is played on.

use super::layout::{Block, Layout};
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::populate;
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use crate::bench::units::size;
use mkey_os::mapping::PageKind;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Blocks of a layout, mapped and brought in.
#[derive(Debug, Default)]
pub struct Memory {
    /// For each block its memory; `None`: there was no room.
    pub blocks: Vec<Option<Arc<Arena>>>,
    /// What is otherwise than it was asked for, a sentence each.
    pub notes: Vec<String>,
}

/// Blocks that lie on other pages than they should, and why.
#[derive(Default)]
struct Lower {
    blocks: u64,
    bytes: u64,
    why: String,
}

impl Memory {
    /// Maps the blocks in their order as far as `room` goes, which shrinks by them, and brings them
    /// in. A kind of pages that can not be had is told, and the next smaller one taken.
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
        let mut lower: BTreeMap<(PageKind, PageKind), Lower> = BTreeMap::new();
        let (mut without, mut missing) = (0u64, 0u64);
        for block in &layout.blocks {
            stop.check()?;
            let mapped = match block.bytes() <= *room {
                true => map(block, stop, progress)?,
                false => None,
            };
            let Some((arena, refused)) = mapped else {
                (without, missing) = (without + 1, missing.saturating_add(block.bytes()));
                memory.blocks.push(None);
                continue;
            };
            let got = arena.mapping().page_kind();
            if let Some(why) = refused {
                let lower = lower.entry((block.pages, got)).or_default();
                lower.blocks += 1;
                lower.bytes = lower.bytes.saturating_add(block.bytes());
                lower.why = why;
            }
            *room = room.saturating_sub(arena.bytes());
            memory.blocks.push(Some(Arc::new(arena)));
        }
        for ((asked, got), Lower { blocks, bytes, why }) in lower {
            let bytes = size(bytes);
            memory.notes.push(format!(
                "{blocks} blocks of memory ({bytes}) are on {got} pages, not on {asked}: {why}"
            ));
        }
        if without > 0 {
            let bytes = size(missing);
            memory.notes.push(format!("{without} blocks of memory ({bytes}) do not fit here"));
        }
        Ok(memory)
    }

    /// The memory of a block.
    pub fn block(&self, block: usize) -> Option<&Arc<Arena>> {
        self.blocks.get(block)?.as_ref()
    }
}

/// A block on its kind of pages or the next smaller one that can be had; why not on its own.
/// `None`: on none.
fn map(block: &Block, stop: &Stop, progress: &Progress) -> Result<Option<(Arena, Option<String>)>> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    let mut refused = None;
    for kind in PageKind::LADDER.into_iter().filter(|kind| *kind <= block.pages) {
        let mapped = populate::map(block.bytes(), kind)
            .and_then(|arena| populate::prefault(&arena, threads, stop, progress).map(|()| arena));
        match mapped {
            Ok(arena) => return Ok(Some((arena, refused))),
            Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
            Err(error) => refused = refused.or(Some(error.missing().what)),
        }
    }
    Ok(None)
}
