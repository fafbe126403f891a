//! Which mapping an address lies in, and what backs it.
//!
//! One question per address by the `PROCMAP_QUERY` ioctl (Linux 6.11), else by reading
//! `/proc/self/smaps` up to the address.

use crate::error::{Errno, OsError};
use linux_raw_sys::general::{page_region, pm_scan_arg, procmap_query};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// `_IOWR(PROCFS_IOCTL_MAGIC, 17, struct procmap_query)` of linux/fs.h.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// `_IOWR('f', 16, struct pm_scan_arg)` of linux/fs.h.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
/// A page mapped by a PMD or larger: a transparent huge page or hugetlb.
const PAGE_IS_HUGE: u64 = 1 << 6;

/// One mapping of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First address and one past the last.
    pub range: Range<usize>,
    /// PROT_READ.
    pub readable: bool,
    /// PROT_WRITE.
    pub writable: bool,
    /// MAP_SHARED.
    pub shared: bool,
    /// The size of the pages the kernel maps, in bytes: the huge page size for hugetlb, the base
    /// page size for everything else, transparent huge pages included.
    pub page_size: usize,
    /// The backing file's inode; 0 for anonymous memory.
    pub inode: u64,
}

/// A reader that keeps its file open. It shows the process that opened it: a forked child opens
/// its own.
#[derive(Debug)]
pub struct Maps {
    maps: File,
    query: bool,
}

impl Maps {
    /// Opens this process's map.
    ///
    /// # Errors
    /// [`OsError`] if `/proc/self/maps` cannot be opened.
    pub fn open() -> Result<Self, OsError> {
        const FILE: &str = "/proc/self/maps";
        let maps = File::open(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
        let mut this = Self { maps, query: true };
        let probe = &raw const this as usize;
        this.query = !matches!(this.by_query(probe), Err(OsError { errno: Errno::NOTTY, .. }));
        Ok(this)
    }

    /// The mapping that covers `addr`, if any.
    ///
    /// # Errors
    /// [`OsError`] if the kernel refuses to tell.
    pub fn vma_at(&self, addr: usize) -> Result<Option<Vma>, OsError> {
        if self.query { self.by_query(addr) } else { by_smaps(addr) }
    }

    fn by_query(&self, addr: usize) -> Result<Option<Vma>, OsError> {
        // SAFETY: an all-zero procmap_query is a valid value of the C struct.
        let mut query: procmap_query = unsafe { std::mem::zeroed() };
        query.size = size_of::<procmap_query>() as u64;
        query.query_addr = addr as u64;
        // SAFETY: the kernel reads and writes `query.size` bytes; no name buffer is given.
        let rc = unsafe { libc::ioctl(self.maps.as_raw_fd(), PROCMAP_QUERY, &mut query) };
        if rc != 0 {
            let error = OsError::last("ioctl(PROCMAP_QUERY)");
            return if error.errno == Errno::NOENT { Ok(None) } else { Err(error) };
        }
        let has = |flag: u64| query.vma_flags & flag != 0;
        Ok(Some(Vma {
            range: query.vma_start as usize..query.vma_end as usize,
            readable: has(1),
            writable: has(2),
            shared: has(8),
            page_size: query.vma_page_size as usize,
            inode: query.inode,
        }))
    }
}

fn by_smaps(addr: usize) -> Result<Option<Vma>, OsError> {
    const FILE: &str = "/proc/self/smaps";
    let file = File::open(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
    let mut found: Option<Vma> = None;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| OsError::from_io(FILE, &error))?;
        if let Some(vma) = &mut found {
            if let Some(rest) = line.strip_prefix("KernelPageSize:") {
                let kib = rest.split_whitespace().next().and_then(|n| n.parse::<usize>().ok());
                vma.page_size = kib.map_or(vma.page_size, |kib| kib.saturating_mul(1024));
                return Ok(found);
            }
        } else if let Some(vma) = parse_map_line(&line) {
            if vma.range.start > addr {
                return Ok(None);
            }
            if vma.range.contains(&addr) {
                found = Some(vma);
            }
        }
    }
    Ok(found)
}

/// The first line of a mapping in `/proc/self/smaps`; `None` for the lines between.
fn parse_map_line(line: &str) -> Option<Vma> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let rights = fields.next()?.as_bytes();
    let is = |at: usize, byte: u8| rights.get(at) == Some(&byte);
    Some(Vma {
        range: start..end,
        readable: is(0, b'r'),
        writable: is(1, b'w'),
        shared: is(3, b's'),
        page_size: crate::limits::page_size(),
        inode: fields.nth(2)?.parse().ok()?,
    })
}

/// How many bytes of `range` are mapped by huge pages now, transparent or hugetlb.
///
/// Asked of the page tables (`PAGEMAP_SCAN`, Linux 6.7); on older kernels the `AnonHugePages` of
/// the mappings in `range` (for hugetlb, all of them), which may count a neighbour merged into
/// one of them.
///
/// # Errors
/// [`OsError`] if neither can be read.
pub fn huge_bytes(range: Range<usize>) -> Result<usize, OsError> {
    match by_page_scan(&range) {
        Err(OsError { errno: Errno::NOTTY | Errno::INVAL, .. }) => by_anon_huge_pages(&range),
        other => other,
    }
}

/// Whether any mapping in `range` is locked by `mlock` (flag `lo`); true if the kernel does not
/// tell.
pub(crate) fn any_locked(range: &Range<usize>) -> bool {
    let Ok(file) = File::open("/proc/self/smaps") else { return true };
    let mut overlaps = false;
    for line in BufReader::new(file).lines() {
        let Ok(line) = line else { return true };
        if let Some(vma) = parse_map_line(&line) {
            if vma.range.start >= range.end {
                break;
            }
            overlaps = vma.range.end > range.start;
        } else if overlaps
            && line
                .strip_prefix("VmFlags:")
                .is_some_and(|f| f.split_whitespace().any(|f| f == "lo"))
        {
            return true;
        }
    }
    false
}

fn by_page_scan(range: &Range<usize>) -> Result<usize, OsError> {
    const FILE: &str = "/proc/self/pagemap";
    let pagemap = File::open(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
    let mut total = 0usize;
    let mut start = range.start as u64;
    let end = range.end as u64;
    while start < end {
        let mut regions = [page_region { start: 0, end: 0, categories: 0 }; 64];
        let mut scan = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: PAGE_IS_HUGE,
            category_anyof_mask: 0,
            return_mask: PAGE_IS_HUGE,
        };
        // SAFETY: the kernel fills at most `vec_len` regions and writes `walk_end`.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut scan) };
        let Ok(found) = usize::try_from(found) else {
            return Err(OsError::last("ioctl(PAGEMAP_SCAN)"));
        };
        for region in regions.iter().take(found) {
            total = total.saturating_add(region.end.saturating_sub(region.start) as usize);
        }
        if scan.walk_end <= start {
            break;
        }
        start = scan.walk_end;
    }
    Ok(total)
}

fn by_anon_huge_pages(range: &Range<usize>) -> Result<usize, OsError> {
    const FILE: &str = "/proc/self/smaps";
    let file = File::open(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
    let mut total = 0usize;
    let mut overlap = 0usize;
    let base = crate::limits::page_size();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(|error| OsError::from_io(FILE, &error))?;
        if let Some(vma) = parse_map_line(&line) {
            let start = vma.range.start.max(range.start);
            overlap = vma.range.end.min(range.end).saturating_sub(start);
            continue;
        }
        let kib = |rest: &str| {
            rest.split_whitespace().next().and_then(|n| n.parse::<usize>().ok()).unwrap_or(0)
        };
        if let Some(rest) = line.strip_prefix("AnonHugePages:") {
            total = total.saturating_add(kib(rest).saturating_mul(1024).min(overlap));
        } else if let Some(rest) = line.strip_prefix("KernelPageSize:")
            && kib(rest).saturating_mul(1024) > base
        {
            total = total.saturating_add(overlap);
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_mapping() {
        let maps = Maps::open().unwrap();
        let on_stack = 5u8;
        let on_heap = vec![1u8; 10_000_000];
        for addr in [&raw const on_stack as usize, on_heap.as_ptr() as usize + 4_000_000] {
            let vma = by_smaps(addr).unwrap().unwrap();
            assert!(vma.range.contains(&addr) && vma.readable && vma.writable && !vma.shared);
            assert_eq!(vma.page_size, crate::limits::page_size());
            if maps.query {
                assert_eq!(maps.vma_at(addr).unwrap().unwrap(), vma);
            } else {
                eprintln!("SKIPPED: no PROCMAP_QUERY on this kernel");
            }
        }
        let code = maps.vma_at(parse_map_line as *const () as usize).unwrap().unwrap();
        assert!(code.readable && !code.writable && code.inode != 0);
        assert_eq!(maps.vma_at(0).unwrap(), None);
        assert_eq!(by_smaps(0).unwrap(), None);
        assert_eq!(maps.vma_at(usize::MAX).unwrap(), None);
    }

    #[test]
    fn lines_of_maps() {
        let line = "7f01b000-7f01c000 r--s 00000000 08:02 173521  /usr/lib/x";
        let vma = parse_map_line(line).unwrap();
        assert_eq!(vma.range, 0x7f01_b000..0x7f01_c000);
        assert!(vma.readable && !vma.writable && vma.shared);
        assert_eq!(vma.inode, 173_521);
        for other in ["", "Rss: 4 kB", "AnonHugePages:  0 kB", "x-y rw-p", "1-2"] {
            assert_eq!(parse_map_line(other), None, "{other}");
        }
    }
}
