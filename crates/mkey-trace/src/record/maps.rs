//! What mappings registered memory lies in, as `/proc/self/smaps` tells.

use super::log::Log;
use super::{memory, now};
use crate::raw::{Head, Header, Maps, Mr};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of text, at most.
const MOST: usize = 1 << 20;
/// Regions that are looked for, at most: the first ones.
const REGIONS: usize = 1 << 14;
/// Bytes read at a time.
const READ: usize = 64 << 10;
/// After the first time one part in so many of the time of the process is spent, at most.
const SHARE: u64 = 100;

/// Has been looked at how often, and how long that took.
pub struct Looks {
    times: AtomicU64,
    last: AtomicU64,
}

impl Looks {
    /// Not yet.
    pub const fn new() -> Self {
        Self { times: AtomicU64::new(0), last: AtomicU64::new(0) }
    }

    /// Looks for the first time, if this is.
    pub fn first(&self, log: &Log) {
        if self.times.load(Relaxed) == 0 && self.times.swap(1, Relaxed) == 0 {
            self.look(log);
        }
    }

    /// Looks once more, if that takes no more than its share.
    pub fn again(&self, log: &Log) {
        let began = log.header().word::<{ offset_of!(Header, began) }>().load(Relaxed);
        let spent = log.header().word::<{ offset_of!(Header, maps_overhead) }>().load(Relaxed);
        let more = spent + self.last.load(Relaxed);
        if self.times.fetch_add(1, Relaxed) == 0 || more <= now().saturating_sub(began) / SHARE {
            self.look(log);
        }
    }

    fn look(&self, log: &Log) {
        let begin = now();
        if let Some((spans, text)) = registered(log).zip(memory::zeros::<u8>(MOST)) {
            let bytes = entries(spans, text).unwrap_or(0);
            if bytes > 0 {
                let head = Head { len: 0, kind: 0, zero: 0 };
                let fixed = Maps { head, at: begin, bytes: bytes as u64, rest: [0; 5] };
                log.write(fixed, text.get(..bytes).unwrap_or_default());
            }
        }
        let took = now().saturating_sub(begin);
        self.last.store(took, Relaxed);
        log.header().word::<{ offset_of!(Header, maps_overhead) }>().fetch_add(took, Relaxed);
    }
}

/// Where regions were, by where they begin: that, and how far they and those before reach.
fn registered(log: &Log) -> Option<&'static [[u64; 2]]> {
    let spans = memory::zeros::<[u64; 2]>(REGIONS)?;
    let mut count = 0;
    for (place, mr) in spans.iter_mut().zip(log.all::<Mr>()) {
        let addr = mr.word::<{ offset_of!(Mr, addr) }>().load(Relaxed);
        let len = mr.word::<{ offset_of!(Mr, len) }>().load(Relaxed);
        // All of the address space is no piece of memory.
        *place = [addr, if len == u64::MAX { addr } else { addr.saturating_add(len) }];
        count += 1;
    }
    let spans = spans.get_mut(..count)?;
    spans.sort_unstable();
    let mut reach = 0;
    for [_, end] in spans.iter_mut() {
        reach = reach.max(*end);
        *end = reach;
    }
    Some(spans)
}

fn overlaps(spans: &[[u64; 2]], start: u64, end: u64) -> bool {
    let before = spans.partition_point(|[begin, _]| *begin < end);
    let last = before.checked_sub(1).and_then(|last| spans.get(last));
    last.is_some_and(|[_, reach]| *reach > start)
}

/// Reads `/proc/self/smaps` and keeps the entries that overlap, whole: how many bytes they have.
fn entries(spans: &[[u64; 2]], text: &mut [u8]) -> Result<usize, Errno> {
    if spans.is_empty() {
        return Ok(0);
    }
    let file = open(c"/proc/self/smaps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let buffer = memory::zeros::<u8>(READ).ok_or(Errno::NOMEM)?;
    let mut filled = 0;
    let mut kept = Kept { spans, text, whole: 0, end: 0, keep: false };
    loop {
        let got = read(&file, buffer.get_mut(filled..).unwrap_or_default())?;
        if got == 0 {
            break;
        }
        filled += got;
        let mut begin = 0;
        while let Some(rest) = buffer.get(begin..filled)
            && let Some(len) = rest.iter().position(|byte| *byte == b'\n')
        {
            if !kept.line(rest.get(..=len).unwrap_or_default()) {
                return Ok(kept.whole);
            }
            begin += len + 1;
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        if filled == buffer.len() {
            // No line is so long.
            return Err(Errno::INVAL);
        }
    }
    Ok(kept.end)
}

struct Kept<'a> {
    spans: &'a [[u64; 2]],
    text: &'a mut [u8],
    /// Bytes of the entries before this one, and with what there is of this one.
    whole: usize,
    end: usize,
    keep: bool,
}

impl Kept<'_> {
    /// Takes the next line. `false`: there is no room for it.
    fn line(&mut self, line: &[u8]) -> bool {
        if let Some((start, end)) = mapping(line) {
            self.whole = self.end;
            self.keep = overlaps(self.spans, start, end);
        }
        if !self.keep {
            return true;
        }
        let Some(to) = self.text.get_mut(self.end..self.end + line.len()) else { return false };
        to.copy_from_slice(line);
        self.end += line.len();
        true
    }
}

/// The range of a line that an entry begins with: `7f0000000000-7f0000001000 rw-p ..`.
fn mapping(line: &[u8]) -> Option<(u64, u64)> {
    let range = line.split(|byte| *byte == b' ').next()?;
    let (start, end) = std::str::from_utf8(range).ok()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_kept_whole_and_only_those_that_overlap() {
        let spans = [[0x2000, 0x3000], [0x2800, 0x2801]];
        let mut text = [0; 64];
        let mut kept = Kept { spans: &spans, text: &mut text, whole: 0, end: 0, keep: false };
        for line in [
            "1000-2000 rw-p\n",
            "Rss: 4 kB\n",
            "2000-4000 rw-p\n",
            "Rss: 8 kB\n",
            "4000-5000 r\n",
            "a: 1\n",
        ] {
            assert!(kept.line(line.as_bytes()));
        }
        let end = kept.end;
        assert_eq!(&text[..end], b"2000-4000 rw-p\nRss: 8 kB\n");
    }

    #[test]
    fn this_process_has_an_entry_for_what_lies_on_its_stack() {
        let here = 7_u8;
        let at = std::ptr::from_ref(&here) as u64;
        let mut text = vec![0; MOST];
        let bytes = entries(&[[at, at + 1]], &mut text).unwrap();
        let text = std::str::from_utf8(&text[..bytes]).unwrap();
        let entry = mapping(text.as_bytes()).unwrap();
        assert!(entry.0 <= at && at < entry.1 && text.contains("KernelPageSize:"), "{text}");
        assert_eq!(text.matches("KernelPageSize:").count(), 1);
    }
}
