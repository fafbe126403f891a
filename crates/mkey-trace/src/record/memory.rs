//! Memory of the recorder's own: from the kernel, never from the program's heap, and never given back.

use super::lock::Spin;
use super::thread::Inside;
use bytemuck::Zeroable;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr::null_mut;

/// What is mapped at a time for small pieces.
const CHUNK: usize = 1 << 20;
/// Pieces from this size on are mapped by themselves.
const LARGE: usize = CHUNK / 4;
/// Every piece begins at a multiple of this: two never share a cache line.
const ALIGN: usize = 64;

/// The rest of the chunk that pieces are cut from.
#[derive(Clone, Copy)]
struct Rest {
    at: usize,
    left: usize,
}

static REST: Spin<Rest> = Spin::new(Rest { at: 0, left: 0 });

/// `count` zeros that are this caller's until the process ends. Pages are taken when they are first touched.
/// `None`: the kernel has no more.
pub fn zeros<T: Zeroable>(count: usize) -> Option<&'static mut [T]> {
    const { assert!(align_of::<T>() <= ALIGN) };
    let bytes = count.checked_mul(size_of::<T>())?.checked_next_multiple_of(ALIGN)?;
    if bytes == 0 {
        return Some(&mut []);
    }
    let at = if bytes >= LARGE { map(bytes)? } else { cut(bytes)? };
    // SAFETY: `at` is the beginning of `bytes` bytes of private zeros, aligned to `ALIGN`, which are given
    // to no one else and never unmapped; `count` values of `T` fit, and zeros are one of its values.
    Some(unsafe { std::slice::from_raw_parts_mut(at as *mut T, count) })
}

/// A value that stays until the process ends.
pub fn keep<T>(value: T) -> Option<&'static mut T> {
    const { assert!(align_of::<T>() <= ALIGN) };
    let bytes = zeros::<u8>(size_of::<T>().max(1))?;
    let at = bytes.as_mut_ptr().cast::<T>();
    // SAFETY: `bytes` are as many as a `T` has, aligned to `ALIGN`, and this caller's alone for ever.
    unsafe {
        at.write(value);
        Some(&mut *at)
    }
}

/// In a forked child, before it does anything else: another thread may have been amid [`zeros`].
///
/// # Safety
/// The caller is the child's only thread, and amid nothing of this module.
pub unsafe fn forked() {
    // SAFETY: as the caller promises; whatever `Rest` was left as is written over below.
    unsafe { REST.break_open() };
    *REST.lock() = Rest { at: 0, left: 0 };
}

fn cut(bytes: usize) -> Option<usize> {
    // A signal handler that gives memory back meanwhile does not come here.
    let _inside = Inside::enter();
    let mut rest = REST.lock();
    if rest.left < bytes {
        *rest = Rest { at: map(CHUNK)?, left: CHUNK };
    }
    let at = rest.at;
    *rest = Rest { at: at + bytes, left: rest.left - bytes };
    Some(at)
}

fn map(bytes: usize) -> Option<usize> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
    let at = unsafe {
        mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    at.ok().map(|at| at as usize)
}
