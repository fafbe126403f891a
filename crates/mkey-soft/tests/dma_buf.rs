//! A file descriptor's memory as the software RNIC holds it: mapped for as long as the region lives,
//! and never the cause of a crash. (What the verbs require is in the conformance suite.)
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::*;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, DmaBufSpec, MrInfo};
use mkey_core::error::{Error, Reason};
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{RemAccessErr, Success};
use mkey_core::work::{RemoteAddr, SendOp};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const PLAIN: Rights = Rights::DMA_BUF.difference(Rights::RELAXED_ORDERING);

fn memfd(name: &str, flags: u32, len: u64) -> File {
    let name = CString::new(name).unwrap();
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) };
    assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len).unwrap();
    file
}

fn reg(
    side: &Side,
    file: &File,
    offset: u64,
    length: u64,
    rights: Rights,
) -> Result<MrInfo, Error> {
    let spec = DmaBufSpec { fd: file.as_fd(), offset, length, iova: IoAddr(offset), rights };
    unsafe { side.device.reg_dmabuf_mr(side.pd, &spec) }
}

fn at(info: &MrInfo, address: u64) -> RemoteAddr {
    RemoteAddr { address: IoAddr(address), rkey: info.rkey }
}

/// How many mappings of a memfd of this name the process has.
fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(&format!("memfd:{name} "))).count()
}

#[test]
fn the_mapping_lives_as_long_as_the_region() {
    let name = "mkey-lives";
    let file = memfd(name, 0, 8 * PAGE);
    let (_a, b) = pair(QpKind::Rc);
    let first = reg(&b, &file, PAGE, 2 * PAGE, PLAIN).unwrap();
    let second = reg(&b, &file, 0, 8 * PAGE, Rights::empty()).unwrap();
    assert!(reg(&b, &file, 0, 8 * PAGE + 1, PLAIN).is_err());
    assert_eq!(mappings(name), 2);
    b.device.dereg_mr(first.handle).unwrap();
    assert_eq!(mappings(name), 1);
    b.device.dereg_mr(second.handle).unwrap();
    assert_eq!(mappings(name), 0);
    // Of a device that is closed, too.
    reg(&b, &file, 0, 8 * PAGE, PLAIN).unwrap();
    assert_eq!(mappings(name), 1);
    drop((_a, b));
    assert_eq!(mappings(name), 0);
}

#[test]
fn a_file_that_may_only_be_read_is_registered_for_reading() {
    let (a, b) = pair(QpKind::Rc);
    let file = memfd("mkey-read", 0, PAGE);
    file.write_all_at(b"only to be read", 0).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = File::open(path).unwrap();
    let error = reg(&b, &file, 0, PAGE, PLAIN).unwrap_err();
    assert_eq!(error.reason, Reason::System { call: "mmap", errno: libc::EACCES });
    let info = reg(&b, &file, 0, PAGE, Rights::REMOTE_READ).unwrap();
    let own = a.buffer(ALL);
    a.post(1, SendOp::Read(at(&info, 0)), &[own.sge(0, 15)]);
    assert_eq!(a.done(), [(1, Success)]);
    let got: Vec<u8> = (0..15).map(|i| own.get(i)).collect();
    assert_eq!(got, b"only to be read");
}

#[test]
fn a_file_that_shrinks_is_refused_there_and_no_crash() {
    let (a, b) = pair(QpKind::Rc);
    let file = memfd("mkey-shrinks", 0, 4 * PAGE);
    let info = reg(&b, &file, 0, 4 * PAGE, PLAIN).unwrap();
    file.set_len(PAGE).unwrap();
    let own = a.buffer(ALL);
    a.post(1, SendOp::Write(at(&info, 0)), &[own.sge(0, 64)]);
    a.post(2, SendOp::Write(at(&info, 2 * PAGE)), &[own.sge(0, 64)]);
    assert_eq!(a.done(), [(1, Success), (2, RemAccessErr)]);
}

#[test]
fn huge_pages_are_mapped_at_their_borders() {
    const HUGE: u64 = 2 << 20;
    let _reserved = match mkey_os::hugepages::reserve(HUGE as usize, 4) {
        Ok(reserved) => reserved,
        Err(error) => {
            assert_ne!(unsafe { libc::geteuid() }, 0, "{error}");
            eprintln!("SKIPPED: huge pages cannot be reserved here");
            return;
        }
    };
    let (a, b) = pair(QpKind::Rc);
    let file = memfd("mkey-huge", libc::MFD_HUGETLB | libc::MFD_HUGE_2MB, 2 * HUGE);
    let offset = HUGE - 3 * PAGE;
    let info = reg(&b, &file, offset, 6 * PAGE, PLAIN).unwrap();
    let own = a.buffer(ALL);
    own.set(0, 0x5a);
    a.post(1, SendOp::Write(at(&info, HUGE - 1)), &[own.sge(0, 2)]);
    a.post(2, SendOp::Read(at(&info, HUGE - 1)), &[own.sge(100, 1)]);
    assert_eq!(a.done(), [(1, Success), (2, Success)]);
    assert_eq!(own.get(100), 0x5a);
    b.device.dereg_mr(info.handle).unwrap();
    assert_eq!(mappings("mkey-huge"), 0);
}

#[test]
fn what_can_not_be_mapped_says_why() {
    let (_a, b) = pair(QpKind::Rc);
    let directory = File::open("/").unwrap();
    let error = reg(&b, &directory, 0, 0, Rights::empty()).unwrap_err();
    assert!(
        matches!(error.reason, Reason::System { call: "mmap", errno: libc::ENODEV }),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.starts_with("reg_dmabuf_mr(fd ") && text.contains("mmap failed"), "{text}");
    let empty = memfd("mkey-empty", 0, 0);
    let error = reg(&b, &empty, 0, 1, PLAIN).unwrap_err();
    assert_eq!(error.reason, Reason::OutsideFile { offset: 0, length: 1, size: 0 });
    // As with memory of the process, R-REG-06.
    reg(&b, &empty, 0, 0, PLAIN).unwrap();
}
