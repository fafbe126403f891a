//! What the kernel does with on-demand memory, by its own functions: soft-RoCE counts nothing.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

const ROOT: &str = "/sys/kernel/tracing";

/// Something that happened to pages of on-demand memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paging {
    /// An access, or advice, had them faulted in.
    Faulted(Range<u64>),
    /// What was present of them was taken in, and nothing faulted.
    LookedUp(Range<u64>),
    /// The kernel took them away from the device.
    Invalidated(Range<u64>),
}

/// Probes on the kernel's functions that fault pages in and take them away, whichever thread calls
/// them: soft-RoCE works in threads of the kernel. Removed when dropped.
pub struct Probes {
    group: String,
    instance: PathBuf,
}

/// Function, and what it is called with, of Linux 6.15 and later.
const FUNCTIONS: [(&str, &str); 2] = [
    ("faulted", "ib_umem_odp_map_dma_and_lock from=$arg2:u64 bytes=$arg3:u64 fault=$arg5:u8"),
    ("invalidated", "ib_umem_odp_unmap_dma_pages from=$arg2:u64 to=$arg3:u64"),
];

impl Probes {
    pub fn start() -> Self {
        let group = format!("mkey_odp_{}", std::process::id());
        let instance = PathBuf::from(format!("{ROOT}/instances/{group}"));
        fs::create_dir(&instance).expect("tracefs: root, and a kernel with kprobes");
        let probes = Self { group, instance };
        for (event, function) in FUNCTIONS {
            probes.define(&format!("p:{}/{event} {function}", probes.group));
        }
        fs::write(probes.instance.join("events").join(&probes.group).join("enable"), "1").unwrap();
        probes
    }

    /// What happened since the last call, in pages of `page` bytes.
    pub fn take(&self, page: u64) -> Vec<Paging> {
        let trace = self.instance.join("trace");
        let text = fs::read_to_string(&trace).unwrap();
        // Opening for truncation empties the buffer.
        fs::write(&trace, "").unwrap();
        text.lines().filter_map(|line| event(line, page)).collect()
    }

    fn define(&self, line: &str) {
        let mut file = OpenOptions::new().append(true).open(format!("{ROOT}/kprobe_events"));
        let written = file.as_mut().map(|file| writeln!(file, "{line}"));
        written.expect("kprobe_events").unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        fs::write(self.instance.join("events").join(&self.group).join("enable"), "0").unwrap();
        for (event, _) in FUNCTIONS {
            self.define(&format!("-:{}/{event}", self.group));
        }
        fs::remove_dir(&self.instance).unwrap();
    }
}

/// A line as `kworker/u8:1-40 [000] ..... 12.345678: faulted: (ib_umem_odp_map_dma_and_lock+0x0/0x4a0)
/// from=4096 bytes=5 fault=1`.
fn event(line: &str, page: u64) -> Option<Paging> {
    if line.starts_with('#') || line.is_empty() {
        return None;
    }
    let number = |name: &str| {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.unwrap_or_else(|| panic!("no {name} in {line}")).parse::<u64>().unwrap()
    };
    let from = number("from") / page * page;
    Some(if line.contains(": invalidated: ") {
        Paging::Invalidated(from..number("to").next_multiple_of(page))
    } else {
        assert!(line.contains(": faulted: "), "{line}");
        let pages = from..(number("from") + number("bytes")).next_multiple_of(page);
        if number("fault") == 0 { Paging::LookedUp(pages) } else { Paging::Faulted(pages) }
    })
}
