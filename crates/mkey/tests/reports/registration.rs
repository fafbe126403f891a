//! What can be registered, and what an error says.

use crate::common::skip;
use crate::memory::{Mapped, PAGE, part};
use mkey::testing::{Faults, LeakCheck, Pair};
use mkey::{
    Access, Error, IoAddr, Mr, Object, PageKind, Reason, Region, RemoteKey, SharedMemory,
    SoftOptions, WcStatus, Work,
};
use std::sync::Arc;

const HUGE: usize = 2 << 20;

fn region(len: usize) -> Region {
    Region::new(len).expect("memory")
}

#[test]
fn mooncake_3845_huge_pages_are_registered_by_any_length() {
    let name = "mooncake_3845_huge_pages_are_registered_by_any_length";
    let pool = mkey_os::hugepages::reserve(HUGE, 2);
    let kept = match pool {
        Ok(kept) => kept,
        Err(error) => return skip(name, &error.to_string()),
    };
    let huge = Region::builder(2 * HUGE).pages(PageKind::Huge2M).map_prefaulted(1);
    let huge = Arc::new(huge.expect("two pages were reserved"));
    assert_eq!((huge.page_kind(), huge.len()), (PageKind::Huge2M, 2 * HUGE));
    let pair = Pair::new().expect("connected");
    let leaks = LeakCheck::new(&pair.b.device);
    for (offset, len) in [(0, HUGE + PAGE), (PAGE, PAGE), (HUGE - 1, 2), (0, 2 * HUGE)] {
        let mr = Mr::builder(&pair.b.pd).remote_write().register(part(&huge, offset, len));
        let mr = mr.expect("of any length");
        let last = mr.remote_key(len - 1..).expect("exposed");
        pair.a.qp.post(&[Work::write_inline(&[offset as u8], last)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success, "{len} bytes at {offset}");
    }
    leaks.finish();
    drop((huge, kept));
}

#[test]
fn mxl_516_read_only_memory_is_registered_with_the_rights_it_can_have() {
    let pair = Pair::new().expect("connected");
    let memory = Arc::new(Mapped::anonymous(2 * PAGE, libc::PROT_READ));
    let error = Mr::new(&pair.a.pd, memory.foreign()).expect_err("local write is asked for");
    let Reason::NotWritable { range } = error.reason else { panic!("{error}") };
    assert_eq!(range.start.0, memory.start().as_ptr().addr() as u64);
    assert!(error.to_string().contains("mapped read-only"), "{error}");
    assert_eq!(error.errno(), 14, "EFAULT, as the verbs report it");
    let builder = Mr::builder(&pair.b.pd).access(Access::local_read().remote_read());
    let mr = builder.register(memory.foreign()).expect("to read");
    let into = [Mr::new(&pair.a.pd, region(PAGE)).expect("mr").into_slice()];
    pair.a.qp.post(&[Work::read(&into, mr.remote_key(..).expect("exposed"))]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    assert_eq!(mr.access(), Access::local_read().remote_read(), "and no more than that");
}

#[test]
fn mooncake_2017_a_registration_is_never_clipped() {
    let faults = Faults::new(0);
    faults.lack(|offers| offers.max_mr_size = 1 << 20);
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let error = Mr::new(&pair.a.pd, region((1 << 20) + 1)).expect_err("longer than the limit");
    let Reason::Argument { what, value, allowed } = error.reason else { panic!("{error}") };
    assert_eq!((what, allowed), ("length", "at most the device's max_mr_size"));
    assert!(value > 1 << 20);
    assert_eq!(pair.a.device.stats().registrations, 0);
    // What fits is registered to its last byte, and that is what the key tells.
    let whole = region(1 << 20);
    let mr = Mr::builder(&pair.b.pd).remote_write().register(whole).expect("fits");
    let key = mr.remote_key(..).expect("exposed");
    assert_eq!(key.length, 1 << 20);
    let last = key.part((1 << 20) - 1, 1).expect("within");
    pair.a.qp.post(&[Work::write_inline(b"x", last)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
}

#[test]
fn aws_ofi_nccl_685_two_buffers_of_one_page_are_two_registrations() {
    let pair = Pair::new().expect("connected");
    let page = Arc::new(region(PAGE));
    let register = |at, len| {
        let mr = Mr::builder(&pair.b.pd).remote_write().register(part(&page, at, len));
        mr.expect("part of a page")
    };
    let (first, second) = (register(0, 100), register(100, 100));
    assert_ne!(first.info().rkey, second.info().rkey);
    for mr in [&first, &second] {
        let key = mr.remote_key(..).expect("exposed");
        pair.a.qp.post(&[Work::write_inline(&[1; 50], key)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    }
    // Exactly its bytes: the key of the first does not reach the second.
    let beyond = RemoteKey { length: 101, ..first.remote_key(..).expect("exposed") };
    let beyond = beyond.part(100, 1).expect("as it claims");
    let refused = pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"x", beyond)]));
    assert!(refused.to_string().contains("ends 1 bytes past the range of 100 bytes"), "{refused}");
}

#[test]
fn spdk_902_the_limit_of_regions_is_told_before_and_at_it() {
    let small = |options| SoftOptions { max_keys: 8, ..options };
    let pair = Pair::builder().options(small).connect().expect("connected");
    assert_eq!(pair.a.device.capabilities().max_mr, 8);
    let leaks = LeakCheck::new(&pair.a.device);
    let mut all = Vec::new();
    let error = loop {
        match Mr::new(&pair.a.pd, region(PAGE)) {
            Ok(mr) => all.push(mr),
            Err(error) => break error,
        }
        assert!(all.len() <= 8);
    };
    assert_eq!(error.reason, Reason::TableFull { object: Object::Mr, most: 8 });
    assert_eq!((all.len(), error.errno()), (8, 12));
    assert!(error.to_string().contains("no room for another memory region: 8 are in use"));
    // Parts of one registration need no more of them.
    let slices: Vec<_> = (0..64).map(|at| all[0].slice(at * 64..at * 64 + 64)).collect();
    assert!(slices.iter().all(Result::is_ok));
    drop((slices, all));
    Mr::new(&pair.a.pd, region(PAGE)).expect("there is room again");
    leaks.finish();
}

#[test]
fn disni_39_a_region_longer_than_2_gib_is_all_there() {
    const LEN: usize = (4 << 30) + 2 * PAGE;
    let pair = Pair::new().expect("connected");
    // Nothing of it is touched but what the test writes.
    let flags = libc::PROT_READ | libc::PROT_WRITE;
    let memory = Arc::new(Mapped::anonymous(LEN, flags));
    let builder = Mr::builder(&pair.b.pd).remote_write().on_demand();
    let mr = builder.register(memory.foreign()).expect("registered");
    assert_eq!(mr.len(), LEN);
    let key = mr.remote_key(..).expect("exposed");
    for at in [(2 << 30) - 4, (2 << 30) + 4, (4 << 30) - 4, LEN as u64 - 8] {
        let there = key.part(at, 8).expect("within");
        pair.a.qp.post(&[Work::write_inline(&at.to_le_bytes(), there)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
        let mut bytes = [0; 8];
        mr.whole().read(at as usize, &mut bytes).expect("within");
        assert_eq!(u64::from_le_bytes(bytes), at);
    }
    // A work request carries less than that, and says so instead of wrapping.
    let error = pair.b.qp.post(&[Work::send(&[mr.whole()])]).expect_err("too long for one");
    assert_eq!((error.posted, error.error.errno()), (0, 22));
    assert!(error.error.to_string().contains("less than 4 GiB in one work request"));
}

#[test]
fn spdk_2305_memory_of_files_is_registered_or_the_reason_told() {
    let pair = Pair::new().expect("connected");
    let shared = SharedMemory::new("spdk 2305", 2 * PAGE).expect("memfd");
    let mr = Mr::builder(&pair.b.pd).remote_write().register(shared).expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::write_inline(b"shared", key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    // A file of a disk, mapped for this process only, is memory like any other.
    let path = std::env::temp_dir().join(format!("mkey-spdk-2305-{}", std::process::id()));
    let options =
        std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = options.expect("a file");
    file.set_len(2 * PAGE as u64).expect("as long as that");
    std::fs::remove_file(&path).expect("its name is needed no more");
    let private = Arc::new(Mapped::file(&file, 2 * PAGE, libc::MAP_PRIVATE));
    Mr::new(&pair.a.pd, private.foreign()).expect("private memory of a file");
    // Mapped shared its pages can not be held in place: the error says that, and what to do.
    let shared = Arc::new(Mapped::file(&file, 2 * PAGE, libc::MAP_SHARED));
    let error = Mr::new(&pair.a.pd, shared.foreign()).expect_err("can not be pinned");
    assert!(matches!(error.reason, Reason::SharedFile { .. }), "{error}");
    assert_eq!(error.errno(), 14, "EFAULT, as the verbs report it");
    assert!(error.to_string().contains("use a memory file (memfd)"), "{error}");
    let mr = Mr::builder(&pair.b.pd).remote_write().on_demand().register(shared.foreign());
    let key = mr.as_ref().expect("on-demand").remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::write_inline(b"filed", key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    let mut filed = [0; 5];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut filed, 0).expect("readable");
    assert_eq!(filed, *b"filed");
    // Beyond the end of the file there are no pages, and that is an error at registration.
    let beyond = Arc::new(Mapped::file(&file, 4 * PAGE, libc::MAP_PRIVATE));
    let error = Mr::new(&pair.a.pd, beyond.foreign()).expect_err("no pages there");
    assert!(matches!(error.reason, Reason::NotMapped { .. }), "{error}");
}

#[test]
fn ucx_11584_page_offsets_that_differ_are_refused_before_the_device() {
    let pair = Pair::new().expect("connected");
    let region = Arc::new(region(2 * PAGE));
    let at = |iova| Mr::builder(&pair.a.pd).iova(IoAddr(iova)).register(part(&region, 8, 100));
    let error = at(0x10000).expect_err("another offset within the page");
    assert!(matches!(error.reason, Reason::PageOffset { iova: IoAddr(0x10000), .. }), "{error}");
    assert!(error.to_string().contains("they must agree there"), "{error}");
    let mr = at(0x10008).expect("the same offset");
    assert_eq!(mr.whole().iova(), IoAddr(0x10008));
}

#[test]
fn ucx_11584_errno_524_has_a_name() {
    let reason = Reason::System { call: "ioctl", errno: 524 };
    let text = Error::new("reg_mr", "a dma-buf", reason).to_string();
    assert!(text.ends_with("[MK0027, ENOTSUPP]"), "{text}");
}
