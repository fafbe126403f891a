//! What kind of pages memory is on, as `/proc/PID/smaps` tells it.

use mkey_trace::format::Pages;
use std::io::{self, BufRead, Read as _};

/// No line of the kernel's is as long as this, in bytes.
const LONGEST: u64 = 64 << 10;

/// A mapping: neighbours that differ in nothing that is told here are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it begins and ends.
    pub start: u64,
    /// See `start`.
    pub end: u64,
    /// What it is on.
    pub pages: Pages,
}

/// Reads a list; only mappings of which a part is `wanted` are kept. They are in the order of their
/// addresses.
///
/// # Errors
/// As of `from`. What is no such list gives none.
pub fn read(
    mut from: impl BufRead,
    mut wanted: impl FnMut(u64, u64) -> bool,
) -> io::Result<Vec<Mapping>> {
    let mut list: Vec<Area> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = line.trim_ascii_end();
        if let Some(area) = Area::of(text) {
            list.push(area);
        } else if let Some(last) = list.last_mut() {
            last.add(text);
        }
    }
    let mut all: Vec<Area> = Vec::new();
    for area in list {
        match all.last_mut() {
            Some(last) if last.goes_on_in(&area) => last.unite(&area),
            _ => all.push(area),
        }
    }
    let base = mkey_os::limits::page_size() as u64;
    let all = all.into_iter().filter(|area| wanted(area.start, area.end));
    let told = |area: Area| Mapping { start: area.start, end: area.end, pages: area.pages(base) };
    Ok(all.map(told).collect())
}

/// The pages of a range, and the mappings that it lies in: what most of it is on. `None` unless all of it
/// is mapped. `list` is in the order of addresses.
pub fn pages_of(list: &[Mapping], start: u64, len: u64) -> Option<(Pages, (u64, u64))> {
    let end = start.checked_add(len.max(1))?;
    let first = list.partition_point(|mapping| mapping.end <= start);
    let mut bytes: Vec<(Pages, u64)> = Vec::new();
    let mut at = start;
    let mut around = None;
    for mapping in list.get(first..)? {
        if mapping.start > at {
            return None;
        }
        let until = mapping.end.min(end);
        let (from, _) = *around.get_or_insert((mapping.start, 0));
        around = Some((from, mapping.end));
        let here = until.saturating_sub(at);
        match bytes.iter_mut().find(|(pages, _)| *pages == mapping.pages) {
            Some((_, sum)) => *sum = sum.saturating_add(here),
            None => bytes.push((mapping.pages, here)),
        }
        at = until;
        if at >= end {
            let (pages, _) = bytes.into_iter().max_by_key(|(_, sum)| *sum)?;
            return Some((pages, around?));
        }
    }
    None
}

/// A mapping as the kernel lists it.
#[derive(Clone, Debug)]
struct Area {
    start: u64,
    end: u64,
    permissions: [u8; 4],
    path: Vec<u8>,
    /// Bytes.
    page: u64,
    resident: u64,
    anonymous: u64,
    huge: u64,
}

impl Area {
    /// The line that a mapping begins with: `7f00-7f10 rw-p 00000000 00:01 1234    /path`.
    fn of(line: &[u8]) -> Option<Self> {
        if !line.first().is_some_and(u8::is_ascii_hexdigit) {
            return None;
        }
        let text = std::str::from_utf8(line.get(..line.len().min(120))?).unwrap_or_else(|e| {
            let valid = e.valid_up_to();
            std::str::from_utf8(line.get(..valid).unwrap_or_default()).unwrap_or_default()
        });
        let mut words = text.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let permissions = words.next()?.as_bytes().try_into().ok()?;
        let rest: Vec<&str> = words.collect();
        // Offset, device and inode come before it.
        let path = rest.get(3..).unwrap_or_default().join(" ").into_bytes();
        (start < end).then_some(Self {
            start,
            end,
            permissions,
            path,
            page: 0,
            resident: 0,
            anonymous: 0,
            huge: 0,
        })
    }

    /// A line of it: `Rss:    4 kB`.
    fn add(&mut self, line: &[u8]) {
        let field = match line.split(|byte| *byte == b':').next() {
            Some(b"KernelPageSize") => &mut self.page,
            Some(b"Rss") => &mut self.resident,
            Some(b"Anonymous") => &mut self.anonymous,
            Some(b"AnonHugePages") => &mut self.huge,
            _ => return,
        };
        let digits = line.iter().filter(|byte| byte.is_ascii_digit());
        let number = digits.fold(0u64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        });
        *field = number.saturating_mul(1024);
    }

    fn goes_on_in(&self, other: &Self) -> bool {
        self.end == other.start
            && self.permissions == other.permissions
            && self.page == other.page
            && self.path == other.path
    }

    fn unite(&mut self, other: &Self) {
        self.end = other.end;
        self.resident = self.resident.saturating_add(other.resident);
        self.anonymous = self.anonymous.saturating_add(other.anonymous);
        self.huge = self.huge.saturating_add(other.huge);
    }

    fn pages(&self, base: u64) -> Pages {
        let begins = |with: &str| self.path.starts_with(with.as_bytes());
        if self.page > base {
            return if self.page >= 1 << 30 { Pages::Huge1G } else { Pages::Huge2M };
        }
        let shared = ["/memfd:", "/dev/shm/", "/SYSV", "/dev/zero"];
        if shared.into_iter().any(begins) {
            return Pages::Shared;
        }
        if ["/dev/", "/dmabuf", "anon_inode:"].into_iter().any(begins) {
            return Pages::Device;
        }
        // Of a private one, pages that were written to are memory of the process.
        let own = self.permissions.get(3) == Some(&b'p')
            && self.anonymous > 0
            && self.anonymous >= self.resident / 2;
        if self.path.first() == Some(&b'/') && !own {
            return Pages::File;
        }
        if self.huge > 0 && self.huge >= self.resident / 2 { Pages::Thp } else { Pages::Small }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn area(head: &str, fields: &[(&str, u64)]) -> String {
        let mut text = format!("{head}\n");
        for (name, kib) in fields {
            text += &format!("{name}:         {kib} kB\n");
        }
        text + "VmFlags: rd wr mr mw me ac\n"
    }

    fn kinds(text: &str) -> Vec<(u64, u64, Pages)> {
        let list = read(text.as_bytes(), |_, _| true).unwrap();
        list.into_iter().map(|one| (one.start, one.end, one.pages)).collect()
    }

    #[test]
    fn kinds_of_pages_are_told_apart() {
        let small = [("KernelPageSize", 4), ("Rss", 64), ("Anonymous", 64), ("AnonHugePages", 0)];
        let huge = [("KernelPageSize", 4), ("Rss", 4096), ("AnonHugePages", 2048)];
        let text = [
            area("10000-20000 rw-p 00000000 00:00 0    [heap]", &small),
            area("200000-600000 rw-p 00000000 00:00 0 ", &huge),
            area(
                "800000-a00000 rw-s 00000000 00:0f 7    /anon_hugepage (deleted)",
                &[("KernelPageSize", 2048)],
            ),
            area(
                "40000000-80000000 rw-p 00000000 00:10 7    /mnt/huge/x",
                &[("KernelPageSize", 1_048_576)],
            ),
            area("90000000-90001000 rw-s 00000000 00:01 8    /memfd:a b (deleted)", &small),
            area("90002000-90003000 rw-s 00000000 00:01 8    /SYSV00000000 (deleted)", &small),
            area("90004000-90005000 r--s 00000000 08:01 8    /var/data", &[("Rss", 4)]),
            area("90006000-90007000 rw-p 00000000 08:01 8    /usr/lib/x.so", &small),
            area("90008000-90009000 rw-s 00000000 00:05 8    /dev/nvidia0", &[("Rss", 0)]),
        ];
        let expected = [
            (0x10000, 0x20000, Pages::Small),
            (0x20_0000, 0x60_0000, Pages::Thp),
            (0x80_0000, 0xa0_0000, Pages::Huge2M),
            (0x4000_0000, 0x8000_0000, Pages::Huge1G),
            (0x9000_0000, 0x9000_1000, Pages::Shared),
            (0x9000_2000, 0x9000_3000, Pages::Shared),
            (0x9000_4000, 0x9000_5000, Pages::File),
            (0x9000_6000, 0x9000_7000, Pages::Small),
            (0x9000_8000, 0x9000_9000, Pages::Device),
        ];
        assert_eq!(kinds(&text.concat()), expected);
    }

    /// As MADV_DONTFORK of libibverbs' fork protection does it.
    #[test]
    fn a_mapping_that_was_split_is_one() {
        let fields = [("KernelPageSize", 4), ("Rss", 4), ("AnonHugePages", 0)];
        let text = [
            area("1000-2000 rw-p 00000000 00:00 0 ", &fields),
            area("2000-3000 rw-p 00000000 00:00 0 ", &fields),
            area("3000-4000 r--p 00000000 00:00 0 ", &fields),
            area("5000-6000 r--p 00000000 00:00 0 ", &fields),
        ];
        let list = read(text.concat().as_bytes(), |_, _| true).unwrap();
        let ranges: Vec<_> = list.iter().map(|one| (one.start, one.end)).collect();
        assert_eq!(ranges, [(0x1000, 0x3000), (0x3000, 0x4000), (0x5000, 0x6000)]);
        assert_eq!(pages_of(&list, 0x1800, 0x1000), Some((Pages::Small, (0x1000, 0x3000))));
        assert_eq!(pages_of(&list, 0x2800, 0x1000), Some((Pages::Small, (0x1000, 0x4000))));
        assert_eq!(pages_of(&list, 0x3000, 0x1001), None, "its end is not mapped");
        assert_eq!(pages_of(&list, 0x800, 0x1000), None, "its beginning is not mapped");
        assert_eq!(pages_of(&list, 0x5000, u64::MAX), None);
        let some = read(text.concat().as_bytes(), |start, _| start == 0x5000).unwrap();
        assert_eq!(some.len(), 1);
    }

    #[test]
    fn the_list_of_this_process_is_read() {
        let file = std::fs::File::open("/proc/self/smaps").unwrap();
        let here = vec![1u8; 1 << 16];
        let at = here.as_ptr() as u64;
        let list = read(io::BufReader::new(file), |start, end| start <= at && at < end).unwrap();
        let (pages, (start, end)) = pages_of(&list, at, 1 << 16).unwrap();
        assert!(start <= at && at + (1 << 16) <= end, "{list:?}");
        assert!(matches!(pages, Pages::Small | Pages::Thp), "{pages:?}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..400), at: u64, len: u64) {
            let list = read(&*text, |_, _| true).unwrap();
            let _ = pages_of(&list, at, len);
        }

        #[test]
        fn no_lines_panic(
            lines in proptest::collection::vec(
                "([0-9a-f]{1,17}-[0-9a-f]{1,17} [rwxps-]{3,5} .{0,20}|(Rss|KernelPageSize): *[0-9]{1,22} kB)", 0..20
            ),
            at: u64,
            len: u64
        ) {
            let list = read(lines.join("\n").as_bytes(), |_, _| true).unwrap();
            let _ = pages_of(&list, at, len);
        }
    }
}
