//! The files whose code is mapped, and which addresses are code.

use super::log::Log;
use super::memory;
use crate::raw::{self, Head};
use rustix::fs::{CWD, readlinkat_raw};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of the map of what is code, at most.
const BITS: usize = 1 << 17;

/// How many libraries were ever loaded and unloaded: what is known of them holds while this does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    loaded: u64,
    unloaded: u64,
}

/// Which addresses are code, to the page or, where libraries lie far apart, more coarsely.
pub struct Code {
    pub loads: Loads,
    /// The program itself, which lies far from the libraries.
    program: Range<u64>,
    libraries: Range<u64>,
    /// Pages of 2 to this power have a bit each.
    shift: u32,
    bits: &'static Bits,
}

/// Room for the bits.
pub type Bits = [AtomicU64];

/// New room.
pub fn bits() -> Option<&'static Bits> {
    // The range has two ends, which the size of a page rounds outwards.
    Some(memory::zeros::<AtomicU64>(BITS / 64 + 2)?)
}

/// Loads so far.
pub fn loads() -> Loads {
    let mut loads = Loads::default();
    each(|module| {
        loads = module.loads;
        false
    });
    loads
}

impl Code {
    /// As things are now, with its bits in this room.
    pub fn now(bits: &'static Bits) -> Self {
        let (mut loads, mut first) = (Loads::default(), true);
        let (mut program, mut libraries) = (0..0, 0..0);
        each(|module| {
            loads = module.loads;
            for code in module.code() {
                let hull = if first { &mut program } else { &mut libraries };
                let begin =
                    if hull.start >= hull.end { code.start } else { hull.start.min(code.start) };
                *hull = begin..hull.end.max(code.end);
            }
            first = false;
            true
        });
        let mut shift = 12;
        while (libraries.end - libraries.start) >> shift >= BITS as u64 {
            shift += 1;
        }
        // The range and its two ends, which the size of a page rounds outwards.
        libraries.start = libraries.start >> shift << shift;
        let places = (libraries.end - libraries.start) >> shift;
        bits.iter().take(places as usize / 64 + 1).for_each(|word| word.store(0, Relaxed));
        let mut first = true;
        each(|module| {
            if !std::mem::take(&mut first) {
                for code in module.code() {
                    let begin = code.start.saturating_sub(libraries.start) >> shift;
                    let last = code.end.saturating_sub(1).saturating_sub(libraries.start) >> shift;
                    for bit in begin..=last {
                        if let Some(word) = bits.get(bit as usize / 64) {
                            word.fetch_or(1 << (bit % 64), Relaxed);
                        }
                    }
                }
            }
            true
        });
        Self { loads, program, libraries, shift, bits }
    }

    /// Whether an address is code.
    #[inline(always)]
    pub fn has(&self, address: u64) -> bool {
        let from = address.wrapping_sub(self.libraries.start);
        if from < self.libraries.end - self.libraries.start {
            let bit = from >> self.shift;
            return self
                .bits
                .get((bit / 64) as usize)
                .is_some_and(|word| word.load(Relaxed) >> (bit % 64) & 1 == 1);
        }
        address.wrapping_sub(self.program.start) < self.program.end - self.program.start
    }
}

/// Writes the list of modules. `program` is room for the path of the program.
pub fn write(log: &Log, epoch: u32, program: &mut [u8]) {
    each(|module| {
        let code = module.code().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let Some(code) = code else { return true };
        let mut name = module.name;
        if name.is_empty() {
            // The program itself has none here.
            let len = readlinkat_raw(CWD, c"/proc/self/exe", &mut *program).unwrap_or(0);
            name = program.get(..len).unwrap_or_default();
        }
        let fixed = raw::Module {
            head: Head { len: 0, kind: 0, zero: 0 },
            epoch,
            name: name.len() as u32,
            bias: module.bias,
            start: code.start,
            end: code.end,
            rest: [0; 3],
        };
        // One byte more: the zero.
        if let Some(mut room) = log.room::<raw::Module>(name.len() + 1) {
            room.tail().iter_mut().zip(name).for_each(|(to, from)| *to = *from);
            room.finish(fixed);
        }
        true
    });
}

struct Module<'a> {
    loads: Loads,
    name: &'a [u8],
    bias: u64,
    headers: &'a [libc::Elf64_Phdr],
}

impl Module<'_> {
    fn code(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let bias = self.bias;
        let code = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        self.headers.iter().filter(code).map(move |header| {
            let start = bias.wrapping_add(header.p_vaddr);
            start..start.saturating_add(header.p_memsz)
        })
    }
}

/// Calls `f` with each module, the program first, until it says `false`.
fn each<F: FnMut(&Module<'_>) -> bool>(mut f: F) {
    unsafe extern "C" fn one<F: FnMut(&Module<'_>) -> bool>(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        f: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader gives what it knows of a module, valid for this call, and `f` as `each` gave
        // it, which borrows it alone meanwhile. The name is null or ends with a zero.
        let (info, f) = unsafe { (&*info, &mut *f.cast::<F>()) };
        let name = if info.dlpi_name.is_null() {
            &[]
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
        };
        let headers = if info.dlpi_phdr.is_null() {
            &[][..]
        } else {
            // SAFETY: so many headers are there while the module is loaded, which it is during this call.
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
        };
        let loads = Loads { loaded: info.dlpi_adds, unloaded: info.dlpi_subs };
        c_int::from(!f(&Module { loads, name, bias: info.dlpi_addr, headers }))
    }
    // SAFETY: `one` takes what it is given here, and does not unwind: none of the closures panics.
    unsafe { libc::dl_iterate_phdr(Some(one::<F>), (&raw mut f).cast()) };
}
