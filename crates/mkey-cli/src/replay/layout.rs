//! Where the ranges of a script lie: blocks of memory that keep their relative places, one after the
//! other in one area for each kind of page.

use super::script::{PAGE, Registered};
use mkey_os::mapping::PageKind;
use std::ops::Range;

/// Ranges that share a page or touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it was, relative; whole pages of its kind.
    pub at: Range<u64>,
    /// The pages that most of what is in it lay on.
    pub pages: PageKind,
    /// Its area.
    pub area: usize,
    /// Its offset there.
    pub start: u64,
}

/// Memory to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its pages.
    pub pages: PageKind,
    /// Bytes.
    pub bytes: u64,
}

impl Block {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.at.end.saturating_sub(self.at.start)
    }
}

/// Blocks, in the order of their addresses, and where each range lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The blocks. Distances between them are not kept.
    pub blocks: Vec<Block>,
    /// One a kind of page.
    pub areas: Vec<Area>,
    /// For each range its block and its offset in it.
    pub places: Vec<(usize, u64)>,
}

impl Layout {
    /// Of ranges, on the pages that they lay on, or all on pages of one kind.
    pub fn of(ranges: &[Registered], on: Option<PageKind>) -> Self {
        let pages = |range: &Registered| on.unwrap_or(range.pages);
        let mut order: Vec<(Range<u64>, usize)> = ranges
            .iter()
            .enumerate()
            .map(|(index, range)| (rounded(&range.around(), pages(range)), index))
            .collect();
        order.sort_by_key(|(at, index)| (at.start, at.end, *index));
        let mut layout = Self { places: vec![(0, 0); ranges.len()], ..Self::default() };
        let mut open: Option<(Range<u64>, Weights)> = None;
        for (at, index) in order {
            let Some(range) = ranges.get(index) else { continue };
            match &mut open {
                Some((block, weights)) if at.start <= block.end => {
                    block.end = block.end.max(at.end);
                    weights.add(pages(range), range.bytes());
                }
                _ => {
                    layout.close(open.take());
                    let mut weights = Weights::default();
                    weights.add(pages(range), range.bytes());
                    open = Some((at, weights));
                }
            }
            if let Some(place) = layout.places.get_mut(index) {
                place.0 = layout.blocks.len();
            }
        }
        layout.close(open);
        for ((block, offset), range) in layout.places.iter_mut().zip(ranges) {
            let start = layout.blocks.get(*block).map_or(0, |block| block.at.start);
            *offset = range.addr.saturating_sub(start);
        }
        layout
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(Block::bytes).fold(0, u64::saturating_add)
    }

    fn close(&mut self, open: Option<(Range<u64>, Weights)>) {
        if let Some((at, weights)) = open {
            let pages = weights.most();
            // Two blocks may then have been on one large page: they are apart here.
            let at = rounded(&at, pages);
            let known = self.areas.iter().position(|area| area.pages == pages);
            let area = known.unwrap_or_else(|| {
                self.areas.push(Area { pages, bytes: 0 });
                self.areas.len() - 1
            });
            let Some(of_kind) = self.areas.get_mut(area) else { return };
            let start = of_kind.bytes;
            of_kind.bytes = start.saturating_add(at.end.saturating_sub(at.start));
            self.blocks.push(Block { at, pages, area, start });
        }
    }
}

/// Bytes by kind of page, smallest first.
#[derive(Default)]
struct Weights([(u64, Option<PageKind>); 4]);

impl Weights {
    fn add(&mut self, pages: PageKind, bytes: u64) {
        let slot = self.0.iter_mut().find(|(_, kind)| kind.is_none_or(|kind| kind == pages));
        if let Some((sum, kind)) = slot {
            *sum = sum.saturating_add(bytes);
            *kind = Some(pages);
        }
    }

    fn most(&self) -> PageKind {
        let most = self.0.iter().filter(|(_, kind)| kind.is_some()).max_by_key(|(sum, _)| *sum);
        most.and_then(|(_, kind)| *kind).unwrap_or(PageKind::Base)
    }
}

/// Out to whole pages.
fn rounded(at: &Range<u64>, pages: PageKind) -> Range<u64> {
    let page = (pages.size() as u64).max(PAGE);
    let end = at.end.checked_next_multiple_of(page).unwrap_or(u64::MAX - u64::MAX % page);
    at.start - at.start % page..end
}
