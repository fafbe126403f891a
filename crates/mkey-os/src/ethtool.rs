//! What the driver of a network interface counts, as `ethtool -S` prints it: pause frames of
//! priorities and how long they held, among others. Asked by the ioctl `SIOCETHTOOL`
//! (include/uapi/linux/ethtool.h), for which no privilege is needed.

use crate::error::{Errno, OsError};
use crate::mapping::{Mapping, PageKind};
use crate::rdma_netlink::Counter;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsRawFd, OwnedFd};

const GET_STRINGS: u32 = 0x1b;
const GET_STATS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// The set of strings that names the statistics.
const SET_STATS: u32 = 1;
/// Bytes of a string.
const STRING: usize = 32;
/// More than any driver counts; what claims more is not asked for.
const MOST: u32 = 1 << 20;
/// How often it is asked anew where what is counted changes meanwhile.
const TRIES: u32 = 4;

/// The statistics of an interface, in its driver's order; none where its driver has none.
///
/// # Errors
/// [`OsError`]: `ENODEV` for no such interface; `EINVAL` for a name that none can have, or an answer
/// that is not what the rules allow.
pub fn statistics(interface: &str) -> Result<Vec<Counter>, OsError> {
    let kind = SocketType::DGRAM;
    let fd = net::socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)
        .map_err(|errno| OsError::new("socket", errno))?;
    let interface = Interface { fd, name: name(interface)? };
    for _ in 0..TRIES {
        let count = interface.count()?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let names = interface.ask(&[GET_STRINGS, SET_STATS, count], 2, count, STRING)?;
        let values = interface.ask(&[GET_STATS, count], 1, count, size_of::<u64>())?;
        if let (Some(names), Some(values)) = (names, values) {
            return Ok(counters(&names, &values));
        }
    }
    Err(OsError::new("ioctl(SIOCETHTOOL): statistics that do not come to rest", Errno::AGAIN))
}

/// An interface's name as the kernel takes it, with a zero at its end.
fn name(text: &str) -> Result<[libc::c_char; libc::IFNAMSIZ], OsError> {
    let mut name = [0; libc::IFNAMSIZ];
    if text.is_empty() || text.len() >= name.len() || text.contains('\0') {
        return Err(OsError::new("ioctl(SIOCETHTOOL)", Errno::INVAL));
    }
    for (to, from) in name.iter_mut().zip(text.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(name)
}

fn counters(names: &[u8], values: &[u8]) -> Vec<Counter> {
    let names = names.chunks_exact(STRING).map(|name| {
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    });
    let (values, _) = values.as_chunks();
    let counters = names.zip(values);
    counters.map(|(name, value)| Counter { name, value: u64::from_ne_bytes(*value) }).collect()
}

struct Interface {
    fd: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Interface {
    /// How many statistics there are.
    fn count(&self) -> Result<u32, OsError> {
        // struct ethtool_sset_info: the command, 4 bytes, a mask of sets, and a count for each.
        let buffer = Buffer::new(20)?;
        buffer.put(0, &GET_SET_INFO.to_ne_bytes());
        buffer.put(8, &(1u64 << SET_STATS).to_ne_bytes());
        match self.ioctl(&buffer) {
            // A driver without any.
            Err(OsError { errno: Errno::OPNOTSUPP, .. }) => return Ok(0),
            other => other?,
        }
        // Without the set in the mask the driver has none.
        if buffer.u32_at(8) >> SET_STATS & 1 == 0 {
            return Ok(0);
        }
        match buffer.u32_at(16) {
            count if count > MOST => Err(OsError::new("ioctl(SIOCETHTOOL)", Errno::INVAL)),
            count => Ok(count),
        }
    }

    /// Asks for `count` items of `size` bytes by a command of 32-bit words, one of which, `at`, the
    /// kernel replaces by the number of items that it gives; `None` if that is another number.
    fn ask(
        &self,
        words: &[u32],
        at: usize,
        count: u32,
        size: usize,
    ) -> Result<Option<Vec<u8>>, OsError> {
        let head = size_of_val(words);
        let bytes = (count as usize).saturating_mul(size);
        let buffer = Buffer::new(head.saturating_add(bytes))?;
        for (n, word) in words.iter().enumerate() {
            buffer.put(n * 4, &word.to_ne_bytes());
        }
        match self.ioctl(&buffer) {
            // More than there is room for.
            Err(OsError { errno: Errno::FAULT, .. }) => return Ok(None),
            other => other?,
        }
        Ok((buffer.u32_at(at * 4) == count).then(|| buffer.get(head, bytes)))
    }

    fn ioctl(&self, buffer: &Buffer) -> Result<(), OsError> {
        // SAFETY: all zeroes is a value of this structure of numbers and pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = buffer.start().cast();
        let code = libc::SIOCETHTOOL;
        // SAFETY: the kernel reads the request, and reads and writes from the buffer's start on. How
        // far the driver decides, upwards: it ends with EFAULT at the page after the buffer, which
        // may not be accessed, before it could reach other memory.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), code as _, &raw mut request) } {
            0 => Ok(()),
            _ => Err(OsError::last("ioctl(SIOCETHTOOL)")),
        }
    }
}

/// Memory that a driver may write more to than it said: its end is the end of a page, and after it
/// lies one that may not be accessed.
struct Buffer {
    mapping: Mapping,
    /// Where it begins in the mapping.
    offset: usize,
    length: usize,
}

impl Buffer {
    /// `length` bytes of zeroes, to the next multiple of 8.
    fn new(length: usize) -> Result<Self, OsError> {
        let page = PageKind::Base.size();
        let length = length.saturating_add(8) / 8 * 8;
        let mapping = Mapping::new(length.saturating_add(page), PageKind::Base)?;
        let used = mapping.len().saturating_sub(page);
        // SAFETY: the last page of a mapping that is ours, which nothing refers to.
        let closed = unsafe {
            let guard = mapping.as_ptr().add(used);
            rustix::mm::mprotect(guard.cast(), page, rustix::mm::MprotectFlags::empty())
        };
        closed.map_err(|errno| OsError::new("mprotect", errno))?;
        let offset = used.saturating_sub(length);
        Ok(Self { mapping, offset, length })
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: within the mapping, by `new`.
        unsafe { self.mapping.as_ptr().add(self.offset) }
    }

    /// Writes bytes where they fit.
    fn put(&self, at: usize, bytes: &[u8]) {
        if at.checked_add(bytes.len()).is_some_and(|end| end <= self.length) {
            // SAFETY: within the buffer, which is this thread's alone.
            unsafe { self.start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// The bytes there; nothing beyond the end.
    fn get(&self, at: usize, length: usize) -> Vec<u8> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Vec::new();
        }
        let mut bytes = vec![0; length];
        // SAFETY: within the buffer, which is this thread's alone, and into as many bytes.
        unsafe { self.start().add(at).copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
        bytes
    }

    fn u32_at(&self, at: usize) -> u32 {
        self.get(at, 4).first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_put_together() {
        let mut names = vec![0; 2 * STRING];
        names[..15].copy_from_slice(b"rx_prio3_pause\0");
        names[STRING..].fill(b'x');
        names[STRING] = 0xff;
        let values = [7u64.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat();
        let read = counters(&names, &values);
        assert_eq!(read[0], Counter { name: "rx_prio3_pause".to_owned(), value: 7 });
        assert_eq!(read[1].name, format!("\u{fffd}{}", "x".repeat(31)));
        assert_eq!((read[1].value, read.len()), (u64::MAX, 2));
    }

    #[test]
    fn a_buffer_ends_where_a_page_may_not_be_accessed() {
        for length in [20, 4096, 40_000] {
            let buffer = Buffer::new(length).unwrap();
            assert!(buffer.length >= length);
            let end = buffer.start() as usize + buffer.length;
            let guard = crate::proc::Maps::open().unwrap().vma_at(end).unwrap().unwrap();
            assert!(!guard.readable && !guard.writable && guard.range.start == end);
            buffer.put(length - 4, &[1, 0, 0, 0]);
            assert_eq!(buffer.u32_at(length - 4), u32::from_ne_bytes([1, 0, 0, 0]));
            buffer.put(buffer.length, &[1]);
            assert_eq!(buffer.get(buffer.length, 1), []);
        }
    }

    #[test]
    fn the_loopback_interface_has_none_or_refuses_and_others_are_not_there() {
        assert!(statistics("lo").is_ok_and(|all| all.is_empty()));
        assert_eq!(statistics("no-such0").unwrap_err().errno, Errno::NODEV);
        for odd in ["", "a name that is far too long", "a\0b"] {
            assert_eq!(statistics(odd).unwrap_err().errno, Errno::INVAL, "{odd:?}");
        }
    }

    #[test]
    fn every_interface_of_this_machine_is_read_or_says_why_not() {
        let names: Vec<_> = std::fs::read_dir("/sys/class/net").unwrap().flatten().collect();
        assert!(!names.is_empty());
        for name in names {
            let name = name.file_name().into_string().unwrap();
            match statistics(&name) {
                Ok(all) => assert!(all.iter().all(|one| !one.name.is_empty()), "{name}: {all:?}"),
                Err(error) => assert!(error.call.contains("SIOCETHTOOL"), "{name}: {error}"),
            }
        }
    }
}
