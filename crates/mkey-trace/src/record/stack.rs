//! Places in the program: registers, and the top of the stack, copied once for each place.
//!
//! Two calls are from one place if the stack pointer is the same and so are the words of the top of the
//! stack that are addresses of code: return addresses, mostly.

use super::log::Log;
use super::memory;
use super::modules::{self, Code, Loads};
use super::table::Table;
use super::{lock::Spin, thread};
use crate::raw::{self, Head, STACK, Slot};
use rustix::process::getpid;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Bytes of the stack by which places are told apart.
const TOLD_BY: usize = 4 << 10;
/// Places, at most; further calls have none.
const MOST: usize = 8192;
/// Where the words in between vary, as they do where a function has a large buffer that it has not written to,
/// this many are kept of those that agree in the first words that are code; further ones count as the first.
const ALIKE: u64 = 32;
/// So many words.
const FIRST_WORDS: u32 = 12;
/// Bytes of a path, at most.
const PATH: usize = 4096;
/// Size of a page, at least.
const PAGE: usize = 4096;

/// Registers.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    ip: u64,
    sp: u64,
    fp: u64,
    lr: u64,
}

/// All places so far.
pub struct Stacks {
    known: Table,
    /// By their first words: how many are alike, and the first of them.
    alike: Table,
    code: AtomicPtr<Code>,
    state: Spin<State>,
}

struct State {
    /// The list of modules that was written last, and its number.
    written: Option<Loads>,
    epoch: u32,
    /// Rooms for what is code, and the one in use.
    rooms: [Option<&'static modules::Bits>; 2],
    turn: usize,
    /// Room for the path of the program.
    path: Option<&'static mut [u8]>,
}

impl State {
    fn path(&mut self) -> Option<&mut [u8]> {
        if self.path.is_none() {
            self.path = memory::zeros(PATH);
        }
        self.path.as_deref_mut()
    }
}

/// The registers as they are in the function that this becomes a part of.
#[inline(always)]
pub fn here() -> Here {
    let (ip, sp, fp): (u64, u64, u64);
    #[cfg(target_arch = "x86_64")]
    let lr = 0;
    // SAFETY: reads registers into others.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            ip = out(reg) ip,
            sp = out(reg) sp,
            fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    let lr: u64;
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "adr {ip}, .",
            "mov {sp}, sp",
            "mov {fp}, x29",
            "mov {lr}, x30",
            ip = out(reg) ip,
            sp = out(reg) sp,
            fp = out(reg) fp,
            lr = out(reg) lr,
            options(nomem, nostack, preserves_flags),
        );
    }
    Here { ip, sp, fp, lr }
}

impl Stacks {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            known: Table::new(MOST),
            alike: Table::new(MOST),
            code: AtomicPtr::new(null_mut()),
            state: Spin::new(State {
                written: None,
                epoch: 0,
                rooms: [None; 2],
                turn: 0,
                path: None,
            }),
        }
    }

    /// The place with these registers, which are of the calling thread, in a function that has not returned.
    /// `ask`: what is not known of the thread may be asked for, which allocates. 0: there is no room for it.
    pub fn place(&self, log: &Log, here: &Here, ask: bool) -> Slot {
        let own = thread::stack(ask);
        let sp = here.sp as usize;
        let top = if own.contains(&sp) { own.end } else { (sp | (PAGE - 1)) + 1 };
        let Some(code) = self.code() else { return 0 };
        let read = top.min(sp.saturating_add(TOLD_BY));
        let key = key(here, read, code, u32::MAX);
        if let Some(stack) =
            self.known.get(key).and_then(|slot| log.placed::<raw::Stack>(slot as Slot))
        {
            stack.word::<{ offset_of!(raw::Stack, times) }>().fetch_add(1, Relaxed);
            return stack.slot;
        }
        let alike = self::key(here, read, code, FIRST_WORDS);
        self.new_place(log, here, [key, alike], own.contains(&sp).then_some(top))
    }

    /// What is code now.
    fn code(&self) -> Option<&'static Code> {
        let loads = modules::loads();
        // SAFETY: it is null or was kept for ever.
        let code = unsafe { self.code.load(Acquire).as_ref() };
        if code.is_some_and(|code| code.loads == loads) {
            return code;
        }
        let mut state = self.state.lock();
        // Another thread may have looked meanwhile.
        // SAFETY: as above.
        let code = unsafe { self.code.load(Acquire).as_ref() };
        if code.is_some_and(|code| code.loads == loads) {
            return code;
        }
        // Two rooms in turn: who still reads the one before finds what it was, and a thread that was stopped
        // for longer takes a place for another one, once.
        state.turn ^= 1;
        let turn = state.turn;
        let room = state.rooms.get_mut(turn)?;
        if room.is_none() {
            *room = modules::bits();
        }
        let new: &'static Code = memory::keep(Code::now((*room)?))?;
        self.code.store(std::ptr::from_ref(new).cast_mut(), Release);
        Some(new)
    }

    #[cold]
    fn new_place(&self, log: &Log, here: &Here, keys: [u64; 2], top: Option<usize>) -> Slot {
        let [key, alike] = keys;
        let mut state = self.state.lock();
        if let Some(known) = self.known.get(key) {
            return known as Slot;
        }
        let others = self.alike.get(alike).unwrap_or(0);
        let (many, first) = (others >> 32, others as Slot);
        if many >= ALIKE || self.known.insert(key, 0).is_err() {
            if let Some(first) = log.placed::<raw::Stack>(first) {
                first.word::<{ offset_of!(raw::Stack, times) }>().fetch_add(1, Relaxed);
            }
            return first;
        }
        let loads = modules::loads();
        if state.written != Some(loads) {
            state.epoch += 1;
            let epoch = state.epoch;
            if let Some(path) = state.path() {
                modules::write(log, epoch, path);
            }
            state.written = Some(loads);
        }
        let most = top.map_or(STACK, |top| top.saturating_sub(here.sp as usize).min(STACK)) & !7;
        let written = log.room::<raw::Stack>(most).map(|mut room| {
            let to = room.tail().get_mut(..most).unwrap_or_default();
            let bytes = match top {
                Some(_) => copy(here.sp, to),
                None => copy_tolerantly(here.sp, to),
            };
            room.finish(raw::Stack {
                head: Head { len: 0, kind: 0, zero: 0 },
                ip: here.ip,
                sp: here.sp,
                fp: here.fp,
                lr: here.lr,
                epoch: state.epoch,
                bytes: bytes as u32,
                times: 1,
                rest: 0,
            })
        });
        let Some(written) = written else {
            self.known.remove(key);
            return 0;
        };
        // The key is there: there is a place for it.
        let _ = self.known.insert(key, written.slot.into());
        let first = if first == 0 { written.slot } else { first };
        // There are no more of these than of the others.
        let _ = self.alike.insert(alike, (many + 1) << 32 | u64::from(first));
        written.slot
    }
}

/// What tells a place from others: the words from `sp` on to `top` that are code, so many of them at most.
#[inline(always)]
fn key(here: &Here, top: usize, code: &Code, mut most: u32) -> u64 {
    let mut key = here.sp ^ here.ip.rotate_left(32);
    let mut at = (here.sp as usize + 7) & !7;
    while at + 8 <= top && most > 0 {
        // SAFETY: `at` lies between the stack pointer of the calling thread and the end of its stack, or
        // of the page that the pointer is in: memory that is there. It is read as numbers of whatever value,
        // and volatile, since what lies there is not known to the compiler.
        let word = unsafe { (at as *const u64).read_volatile() };
        if code.has(word) {
            key = (key ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            most -= 1;
        }
        at += 8;
    }
    key | 1
}

/// Copies words from the calling thread's own stack: by hand, since `memcpy` may be one that checks what it
/// is given.
fn copy(from: u64, to: &mut [u8]) -> usize {
    let mut at = from as usize;
    for word in to.as_chunks_mut::<8>().0 {
        // SAFETY: the caller has seen that so many bytes from `from` on are on the thread's stack; the rest
        // as in `key`, and a stack pointer is a multiple of 8.
        *word = unsafe { (at as *const u64).read_volatile() }.to_ne_bytes();
        at += 8;
    }
    to.len()
}

/// Copies what can be read, up to a page that can not, and says how much that was.
fn copy_tolerantly(from: u64, to: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: to.len() };
    let pid = getpid().as_raw_nonzero().get();
    // SAFETY: the kernel writes into `to` at most; what it reads it checks.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if let Ok(read) = usize::try_from(read) {
        return read & !7;
    }
    // A filter of system calls denies it: to the end of the page.
    let page = ((from as usize | (PAGE - 1)) + 1 - from as usize).min(to.len()) & !7;
    copy(from, to.get_mut(..page).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{File, Record};

    /// A place whose stack has a word that is code, `code + of * 16`, amid a buffer.
    #[inline(never)]
    fn place(stacks: &Stacks, log: &Log, of: u64) -> Slot {
        let mut buffer = [0_u64; 64];
        // After the return address there are as many that never vary as make places alike.
        buffer[..32].fill(place as *const () as u64);
        buffer[40] = place as *const () as u64 + of * 16;
        let place = stacks.place(log, &here(), true);
        std::hint::black_box(&buffer);
        place
    }

    #[test]
    fn a_place_is_one_and_where_words_vary_without_end_a_few_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path(), 32 << 20).unwrap();
        log.begin(|_| {});
        let stacks = Stacks::new();
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..10 {
            places.insert(place(&stacks, &log, 0));
        }
        assert_eq!(places.len(), 1);
        for of in 0..1000 {
            places.insert(place(&stacks, &log, of));
        }
        assert_eq!(places.len(), ALIKE as usize);
        assert!(!places.contains(&0));
        let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(file).unwrap();
        let file = File::parse(&bytes).unwrap();
        let times = file.records().filter_map(|(_, record)| match record {
            Record::Stack(stack, bytes) => {
                assert_eq!(stack.bytes as usize, bytes.len());
                assert!(bytes.len() > 512 && stack.ip != 0);
                Some(stack.times)
            }
            _ => None,
        });
        assert_eq!(times.sum::<u64>(), 1010);
    }

    #[test]
    fn another_stack_than_the_threads_own_is_read_as_far_as_it_can_be() {
        let page = PAGE * 2;
        // SAFETY: a new mapping; half of it is taken away again.
        let at = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(null_mut(), page, protection, flags, -1, 0);
            assert!(at != libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            at as u64
        };
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path(), 32 << 20).unwrap();
        log.begin(|_| {});
        let here = Here { sp: at + PAGE as u64 - 256, ..here() };
        let slot = Stacks::new().place(&log, &here, true);
        let stack = log.placed::<raw::Stack>(slot).unwrap();
        assert_eq!(stack.half::<{ offset_of!(raw::Stack, bytes) }>().load(Relaxed), 256);
    }
}
