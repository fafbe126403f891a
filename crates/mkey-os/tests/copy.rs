//! The tolerant copy: exact up to the faulting byte, ascending, words whole, last word last.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::{PAGE, Pages, memfd_pages};
use mkey_os::copy::{CopyFault, Installed, Side, install, portable};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Copy = unsafe fn(*mut u8, *const u8, usize) -> Result<(), CopyFault>;

unsafe fn by_fix_up(dst: *mut u8, src: *const u8, len: usize) -> Result<(), CopyFault> {
    unsafe { install().unwrap().copy(dst, src, len) }
}

unsafe fn unseen(dst: *mut u8, src: *const u8, len: usize) -> Result<(), CopyFault> {
    unsafe { install().unwrap().copy_unseen(dst, src, len) }
}

const METHODS: [(&str, Copy); 3] =
    [("fix-up", by_fix_up), ("unseen", unseen), ("portable", portable::copy)];

fn tolerant() -> Installed {
    install().unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8 | 1).collect()
}

#[test]
fn copies_every_length_at_every_alignment() {
    let source = pattern(1024);
    for (name, copy) in METHODS {
        for dst_at in 0..16 {
            for src_at in 0..16 {
                for len in (0..90).chain([127, 128, 255, 256, 257, 700]) {
                    let mut target = vec![0u8; 1024];
                    unsafe {
                        copy(target.as_mut_ptr().add(dst_at), source.as_ptr().add(src_at), len)
                    }
                    .unwrap();
                    assert_eq!(
                        target[dst_at..dst_at + len],
                        source[src_at..src_at + len],
                        "{name} {dst_at} {src_at} {len}"
                    );
                    assert!(target[..dst_at].iter().all(|&b| b == 0), "{name} before");
                    assert!(target[dst_at + len..].iter().all(|&b| b == 0), "{name} after");
                }
            }
        }
    }
}

#[test]
fn destination_fault_stops_at_the_border_exactly() {
    let source = pattern(600);
    for (name, copy) in METHODS {
        for good in 0..150usize {
            for shift in [0usize, 1, 5, 8] {
                let pages = Pages::new(2);
                pages.protect(1, 1, libc::PROT_READ);
                let dst = pages.page(1).wrapping_sub(good);
                let fault =
                    unsafe { copy(dst, source.as_ptr().add(shift), good + 70) }.unwrap_err();
                assert_eq!(fault.side, Side::Destination, "{name} {good}");
                assert_eq!(fault.address, Some(pages.page(1) as usize), "{name} {good}");
                // The kernel moves whole iovec elements or pages; the assembly every byte.
                assert_eq!(fault.copied, good, "{name}");
                assert_eq!(pages.bytes(PAGE - good, good), source[shift..shift + good]);
                assert_eq!(pages.bytes(PAGE - good - 8, 8), [0; 8]);
            }
        }
    }
}

#[test]
fn source_fault_stops_at_the_border_exactly() {
    for (name, copy) in METHODS {
        for good in 0..150usize {
            for dst_at in [0usize, 1, 3, 8] {
                let pages = Pages::new(2);
                pages.fill(0x5a);
                pages.protect(1, 1, libc::PROT_NONE);
                let mut target = vec![0u8; 400];
                let fault = unsafe {
                    copy(
                        target.as_mut_ptr().add(dst_at),
                        pages.page(1).wrapping_sub(good),
                        good + 100,
                    )
                }
                .unwrap_err();
                assert_eq!(fault.side, Side::Source, "{name} {good}");
                assert_eq!(fault.copied, good, "{name} {good} {dst_at}");
                assert_eq!(fault.address, Some(pages.page(1) as usize), "{name}");
                assert!(target[dst_at..dst_at + good].iter().all(|&b| b == 0x5a), "{name}");
                assert!(target[dst_at + good..].iter().all(|&b| b == 0), "{name}");
            }
        }
    }
}

/// So many bytes that they are copied by one instruction, where nobody looks at them.
#[test]
fn a_long_copy_stops_at_the_border_exactly() {
    const LONG: usize = 6 * PAGE;
    let source = pattern(LONG);
    for good in (0..70).chain([2047, 2048, 2049, PAGE, PAGE + 1, 2 * PAGE - 1]) {
        for (side, protection) in
            [(Side::Destination, libc::PROT_READ), (Side::Source, libc::PROT_NONE)]
        {
            let pages = Pages::new(3);
            pages.fill(0x5a);
            pages.protect(2, 1, protection);
            let border = pages.page(2).wrapping_sub(good);
            let mut target = vec![0; LONG];
            let copied = match side {
                Side::Destination => unsafe { unseen(border, source.as_ptr(), LONG) },
                _ => unsafe { unseen(target.as_mut_ptr(), border, LONG) },
            };
            let address = Some(pages.page(2) as usize);
            assert_eq!(copied.unwrap_err(), CopyFault { copied: good, side, address }, "{good}");
            if side == Side::Destination {
                assert_eq!(pages.bytes(2 * PAGE - good, good), source[..good]);
            } else {
                assert!(target[..good].iter().all(|&byte| byte == 0x5a));
                assert!(target[good..].iter().all(|&byte| byte == 0));
            }
        }
    }
    let mut target = vec![0; LONG];
    unsafe { unseen(target.as_mut_ptr(), source.as_ptr(), LONG) }.unwrap();
    assert_eq!(target, source);
}

#[test]
fn a_truncated_file_faults_by_sigbus_on_both_sides() {
    for (name, copy) in METHODS {
        let pages = memfd_pages(2, 1);
        unsafe { std::ptr::write_bytes(pages.addr, 1, PAGE) };
        let mut buffer = vec![7u8; 64];
        let at = pages.page(1).wrapping_sub(24);
        let read = unsafe { copy(buffer.as_mut_ptr(), at, 64) }.unwrap_err();
        assert_eq!((read.copied, read.side), (24, Side::Source), "{name}");
        let write = unsafe { copy(at, buffer.as_ptr(), 64) }.unwrap_err();
        assert_eq!((write.copied, write.side), (24, Side::Destination), "{name}");
    }
}

#[test]
fn null_maximal_and_non_canonical_addresses_are_refused() {
    let mut byte = 0u8;
    for (name, copy) in METHODS {
        for bad in [0usize, 1, 0x7fff_ffff_f000, 1 << 47, 1 << 63, usize::MAX - 7, usize::MAX] {
            let read = unsafe { copy(&mut byte, bad as *const u8, 1) }.unwrap_err();
            assert_eq!((read.copied, read.side), (0, Side::Source), "{name} {bad:#x}");
            let write = unsafe { copy(bad as *mut u8, &byte, 1) }.unwrap_err();
            assert_eq!((write.copied, write.side), (0, Side::Destination), "{name} {bad:#x}");
            let both = unsafe { copy(bad as *mut u8, bad as *const u8, 64) };
            assert_eq!(both.unwrap_err().copied, 0, "{name} {bad:#x}");
        }
    }
}

#[test]
fn touch_and_atomics_answer_faults() {
    let tolerant = tolerant();
    let pages = Pages::new(2);
    let word = pages.addr.cast::<u64>();
    unsafe {
        assert_eq!(tolerant.fetch_add(word, 5), Ok(0));
        assert_eq!(tolerant.fetch_add(word, u64::MAX), Ok(5));
        assert_eq!(tolerant.compare_exchange(word, 9, 1), Ok(4));
        assert_eq!(tolerant.compare_exchange(word, 4, 1), Ok(4));
        assert_eq!(word.read(), 1);
        assert_eq!(portable::fetch_add(word, 2), Ok(1));
        assert_eq!(portable::compare_exchange(word, 3, 8), Ok(3));
        assert_eq!(word.read(), 8);
    }
    pages.protect(0, 1, libc::PROT_READ);
    let address = Some(word as usize);
    let refused = CopyFault { copied: 0, side: Side::Destination, address };
    unsafe {
        assert_eq!(tolerant.fetch_add(word, 5), Err(refused));
        assert_eq!(tolerant.compare_exchange(word, 99, 5), Err(refused));
        assert_eq!(tolerant.touch_write(pages.addr), Err(refused));
        assert_eq!(portable::fetch_add(word, 5), Err(refused));
        assert_eq!(portable::touch_write(pages.addr), Err(refused));
    }
    assert_eq!(tolerant.touch_read(pages.addr), Ok(()));
    assert_eq!(portable::touch_read(pages.addr), Ok(()));
    pages.protect(0, 1, libc::PROT_NONE);
    let refused = CopyFault { copied: 0, side: Side::Source, address };
    assert_eq!(tolerant.touch_read(pages.addr), Err(refused));
    assert_eq!(portable::touch_read(pages.addr), Err(refused));
}

#[test]
fn touching_brings_pages_in() {
    let pages = Pages::new(2);
    let present = || {
        let mut vec = [0u8; 2];
        assert_eq!(unsafe { libc::mincore(pages.addr.cast(), pages.len, vec.as_mut_ptr()) }, 0);
        vec.map(|v| v & 1)
    };
    assert_eq!(present(), [0, 0]);
    unsafe { tolerant().touch_write(pages.page(1)) }.unwrap();
    assert_eq!(present(), [0, 1]);
}

#[test]
fn overlapping_towards_lower_addresses_is_a_move() {
    for distance in [1usize, 7, 8, 15, 16, 63, 64, 100] {
        let mut bytes = pattern(1000);
        let expected = bytes[distance..].to_vec();
        let start = bytes.as_mut_ptr();
        unsafe { tolerant().copy(start, start.add(distance), 1000 - distance) }.unwrap();
        assert_eq!(bytes[..1000 - distance], expected, "{distance}");
    }
}

/// Words in the buffer that one thread copies to and another looks at.
const WORDS: usize = 100;

/// Copies a growing number to all words again and again, while another thread looks at the last
/// word and at once at an earlier one; counts words seen torn and earlier words seen older.
fn violations(copy: Copy, rounds: u32, enough: usize) -> usize {
    let target: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let mut looks = 0usize;
    let mut wrong = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut source = vec![0u8; (WORDS + 1) * 8];
            for round in 1..=rounds {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // A source some bytes off makes loads straddle words.
                let part = &mut source[(round & 7) as usize..][..WORDS * 8];
                let word = (u64::from(!round) << 32) | u64::from(round);
                part.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&word.to_ne_bytes()));
                unsafe { copy(target.as_ptr() as *mut u8, part.as_ptr(), WORDS * 8) }.unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        // All zero before the first round.
        let whole = |word: u64| word == 0 || (word >> 32) as u32 == !(word as u32);
        while !stop.load(Ordering::Relaxed) {
            let last = target[WORDS - 1].load(Ordering::Acquire);
            let earlier = target[looks % (WORDS - 1)].load(Ordering::Acquire);
            let older = (earlier as u32) < last as u32;
            wrong += usize::from(!whole(last) || !whole(earlier) || older);
            looks += 1;
            if wrong >= enough {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    assert!(looks > 0);
    wrong
}

/// The wrong order: the last word first.
unsafe fn last_word_first(dst: *mut u8, src: *const u8, len: usize) -> Result<(), CopyFault> {
    unsafe {
        tolerant().copy(dst.add(len - 8), src.add(len - 8), 8)?;
        tolerant().copy(dst, src, len - 8)
    }
}

/// Torn words: byte by byte.
unsafe fn byte_by_byte(dst: *mut u8, src: *const u8, len: usize) -> Result<(), CopyFault> {
    (0..len).try_for_each(|i| unsafe { tolerant().copy(dst.add(i), src.add(i), 1) })
}

/// Who sees the last word sees everything before it, and no aligned word is ever seen torn.
#[test]
fn words_are_whole_and_the_last_one_is_last() {
    assert_eq!(violations(by_fix_up, 100_000, 1), 0);
    // The same look must catch copies that break the order.
    assert_eq!(violations(last_word_first, u32::MAX, 10), 10);
    assert_eq!(violations(byte_by_byte, u32::MAX, 10), 10);
}

#[test]
fn faults_on_many_threads_do_not_disturb_each_other_or_errno() {
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            scope.spawn(move || {
                let pages = Pages::new(2);
                pages.protect(1, 1, libc::PROT_NONE);
                let source = pattern(512);
                for round in 0..2_000usize {
                    let good = (round * 13 + thread) % 300;
                    unsafe { *libc::__errno_location() = 77 };
                    let at = pages.page(1).wrapping_sub(good);
                    let fault = unsafe { tolerant().copy(at, source.as_ptr(), 400) }.unwrap_err();
                    assert_eq!(unsafe { *libc::__errno_location() }, 77);
                    assert_eq!(fault.copied, good);
                }
            });
        }
    });
}
