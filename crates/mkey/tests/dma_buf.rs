//! Memory of a file descriptor, which need not be mapped here.

use mkey::testing::Pair;
use mkey::{IoAddr, Mr, Reason, SharedMemory, WcStatus, Work};
use std::os::fd::{AsFd, OwnedFd};

fn file(bytes: &[u8]) -> (SharedMemory, OwnedFd) {
    let shared = SharedMemory::new("dma-buf", 8192).expect("memfd");
    let fd = shared.as_fd().try_clone_to_owned().expect("a descriptor");
    let pair = Pair::new().expect("pair");
    let mr = Mr::new(&pair.a.pd, shared).expect("mr");
    mr.whole().write(4096, bytes).expect("within");
    let memory = mr.close().expect("nothing holds it");
    drop(memory);
    let again = SharedMemory::open(fd.try_clone().expect("a descriptor")).expect("sealed");
    (again, fd)
}

#[test]
fn r_reg_26_a_peer_reads_a_file_that_is_not_mapped() {
    let pair = Pair::new().expect("pair");
    let (_, fd) = file(b"in the file");
    let mr = Mr::builder(&pair.b.pd).remote_read().register_dma_buf(fd, 4096, 4096).expect("mr");
    let key = mr.remote_key(..11).expect("exposed");
    assert_eq!(key.address, IoAddr(4096));
    let into = Mr::new(&pair.a.pd, mkey::Region::new(4096).expect("memory")).expect("mr");
    let into = into.slice(..11).expect("within");
    pair.a.qp.post(&[Work::read(&into, key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    assert_eq!(into.to_vec().expect("bytes"), b"in the file");
}

#[test]
fn its_slices_are_named_by_work_and_not_read_here() {
    let pair = Pair::new().expect("pair");
    let (shared, fd) = file(b"");
    let mr = Mr::builder(&pair.a.pd).register_dma_buf(fd, 0, 8192).expect("mr");
    let error = mr.whole().read(0, &mut [0; 4]).expect_err("no address here");
    assert!(matches!(error.reason, Reason::NotHere { .. }), "{error}");
    let (slice, error) = mr.slice(8..16).expect("within").into_local().expect_err("shared");
    assert_eq!(error.reason, Reason::Exposed);
    let sink = Mr::builder(&pair.b.pd).remote_read().register(shared).expect("mr");
    sink.whole().write(0, b"12345678").expect("within");
    let key = sink.remote_key(..8).expect("exposed");
    pair.a.qp.post(&[Work::read(&slice, key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    assert_eq!(sink.whole().part(8..16).expect("within").to_vec().expect("bytes"), b"12345678");
}

#[test]
fn r_reg_24_and_25_offsets_are_checked() {
    let pair = Pair::new().expect("pair");
    let (_, fd) = file(b"");
    let again = || fd.try_clone().expect("a descriptor");
    let builder = || Mr::builder(&pair.a.pd);
    let error = builder().iova(IoAddr(1)).register_dma_buf(again(), 0, 4096).expect_err("offset");
    assert!(matches!(error.reason, Reason::FileOffset { .. }), "{error}");
    let error = builder().register_dma_buf(again(), 4096, 8192).expect_err("beyond the end");
    assert!(matches!(error.reason, Reason::OutsideFile { .. }), "{error}");
    let error = builder().windows().register_dma_buf(again(), 0, 4096).expect_err("rights");
    assert!(matches!(error.reason, Reason::UnfitRights { .. }), "{error}");
    assert_eq!(pair.a.device.stats().registrations, 0);
}
