//! Why a registration failed: what its errno leaves open is read off the process and its limits.

use mkey_core::address::{HostAddr, HostRange};
use mkey_core::error::{Object, Reason};
use mkey_core::rights::Rights;
use mkey_os::accounting::{AccountError, Allowance, Case, PAGE, account};
use mkey_os::proc::{Maps, Vma};

/// The limits that a registration may run into, and how much of each is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) allowance: Allowance,
    /// Bytes of this process that drivers hold in place.
    pub(crate) pinned: u64,
    /// Mappings of this process, and the most it may have, where they matter: libibverbs splits
    /// them to keep registered pages out of forked children.
    pub(crate) mappings: Option<(u64, u64)>,
    /// Regions that this device has here, and the most it may have in all.
    pub(crate) regions: (u64, u64),
}

impl Limits {
    /// As they are now.
    pub(crate) fn now(regions: (u64, u64), forks_split: bool) -> Self {
        let allowance =
            Allowance::of_system().unwrap_or(Allowance { memlock: None, ipc_lock: true });
        let pinned = mkey_os::limits::held().map_or(0, |held| held.pinned);
        let count =
            || Some((mkey_os::limits::map_count().ok()?, mkey_os::limits::max_map_count().ok()?));
        let mappings = if forks_split { count() } else { None };
        Self { allowance, pinned, mappings, regions }
    }

    /// The limit that a registration which answered ENOMEM, EPERM or EAGAIN ran into, if it did.
    pub(crate) fn met(&self, address: HostAddr, length: u64, pins: bool) -> Option<Reason> {
        let case = Case {
            addr: address.0,
            len: length,
            pinned: self.pinned / PAGE,
            allowance: self.allowance,
        };
        match account(&case) {
            Err(AccountError::Forbidden) if pins => return Some(Reason::MemlockForbidden),
            Err(AccountError::Limit { pages, pinned, limit }) if pins => {
                let (needed, used) = (pages.saturating_mul(PAGE), pinned.saturating_mul(PAGE));
                return Some(Reason::MemlockLimit { needed, used, limit });
            }
            _ => {}
        }
        // A registration splits at most two mappings into three each.
        if let Some((used, most)) = self.mappings.filter(|(used, most)| used + 4 > *most) {
            return Some(Reason::Exhausted {
                what: "process's table of mappings (sysctl vm.max_map_count)",
                asked: 2,
                free: most.saturating_sub(used),
                limit: most,
            });
        }
        let (regions, most) = self.regions;
        (most > 0 && regions >= most).then_some(Reason::TableFull { object: Object::Mr, most })
    }
}

/// Why memory answered EFAULT, by the mappings of this process.
pub(crate) fn bad_memory(range: HostRange, rights: Rights) -> Option<Reason> {
    let maps = Maps::open().ok()?;
    let at = |address| maps.vma_at(address).ok().flatten();
    bad_range(range, rights, at)
}

fn bad_range(
    range: HostRange,
    rights: Rights,
    at: impl Fn(usize) -> Option<Vma>,
) -> Option<Reason> {
    let end = usize::try_from(range.start.0.checked_add(range.len)?).ok()?;
    let mut address = usize::try_from(range.start.0).ok()?;
    let part = |from: usize, to: usize| HostRange {
        start: HostAddr(from as u64),
        len: to.saturating_sub(from) as u64,
    };
    let mut file = false;
    while address < end {
        match at(address) {
            Some(vma) if vma.readable && vma.range.end > address => {
                let to = vma.range.end.min(end);
                if !vma.writable && rights.intersects(Rights::NEED_WRITABLE) {
                    return Some(Reason::NotWritable { range: part(address, to) });
                }
                file |= vma.shared && vma.inode != 0;
                address = to;
            }
            _ => return Some(Reason::NotMapped { range: part(address, end) }),
        }
    }
    file.then_some(Reason::System {
        call: "pinning a shared mapping of a file, whose file system must allow that: a private \
               copy, a memfd or on-demand paging does",
        errno: libc::EFAULT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Limits = Limits {
        allowance: Allowance { memlock: Some(64 << 10), ipc_lock: false },
        pinned: 0,
        mappings: None,
        regions: (0, 0),
    };

    fn met(limits: &Limits) -> Option<Reason> {
        limits.met(HostAddr(0x10_0fff), 0x1002, true)
    }

    #[test]
    fn enomem_of_the_memory_lock_says_how_much_is_missing() {
        assert_eq!(met(&FREE), None);
        let used = Limits { pinned: 56 << 10, ..FREE };
        let expected = Reason::MemlockLimit { needed: 3 << 12, used: 56 << 10, limit: 64 << 10 };
        assert_eq!(met(&used), Some(expected));
        let none = Allowance { memlock: Some(0), ipc_lock: false };
        assert_eq!(met(&Limits { allowance: none, ..FREE }), Some(Reason::MemlockForbidden));
        let root = Allowance { memlock: Some(0), ipc_lock: true };
        assert_eq!(met(&Limits { allowance: root, ..used }), None);
        assert_eq!(used.met(HostAddr(0), 1 << 30, false), None, "on-demand memory is not pinned");
    }

    #[test]
    fn enomem_of_the_table_of_mappings_names_its_limit() {
        let full = Limits { mappings: Some((65_529, 65_530)), ..FREE };
        let reason = met(&full).unwrap();
        assert!(reason.to_string().contains("vm.max_map_count"), "{reason}");
        assert_eq!(met(&Limits { mappings: Some((100, 65_530)), ..FREE }), None);
    }

    #[test]
    fn enomem_of_the_device_is_a_full_table() {
        let full = Limits { regions: (2048, 2048), ..FREE };
        assert_eq!(met(&full), Some(Reason::TableFull { object: Object::Mr, most: 2048 }));
        assert_eq!(met(&Limits { regions: (2047, 2048), ..FREE }), None);
    }

    #[test]
    fn r_reg_08_and_10_efault_is_found_in_the_mappings() {
        let vma = |range: std::ops::Range<usize>, writable, shared| Vma {
            range,
            readable: true,
            writable,
            shared,
            page_size: 4096,
            inode: u64::from(shared),
        };
        let maps = [
            vma(0x1000..0x3000, true, false),
            vma(0x3000..0x5000, false, false),
            vma(0x8000..0x9000, true, true),
        ];
        let at = |address| maps.iter().find(|vma| vma.range.contains(&address)).cloned();
        let ask =
            |start, len, rights| bad_range(HostRange { start: HostAddr(start), len }, rights, at);
        let range = |start, len| HostRange { start: HostAddr(start), len };
        assert_eq!(ask(0x1000, 0x2000, Rights::LOCAL_WRITE), None);
        let read_only = Reason::NotWritable { range: range(0x3000, 0x100) };
        assert_eq!(ask(0x2f00, 0x200, Rights::MW_BIND), Some(read_only));
        assert_eq!(ask(0x2f00, 0x200, Rights::REMOTE_READ), None);
        let hole = Reason::NotMapped { range: range(0x5000, 0x1000) };
        assert_eq!(ask(0x4000, 0x2000, Rights::empty()), Some(hole));
        let file = ask(0x8000, 0x1000, Rights::LOCAL_WRITE).unwrap();
        assert!(file.to_string().contains("shared mapping of a file"), "{file}");
    }
}
