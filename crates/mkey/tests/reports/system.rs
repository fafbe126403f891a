//! What the operating system has to do with it. Whole processes are looked at here, so each test
//! has one of its own.

use crate::common::{alone, skip};
use crate::memory::{PAGE, part};
use mkey::testing::{LeakCheck, Pair};
use mkey::{Device, Mr, PageKind, Pd, Reason, Region, SharedMemory, SoftOptions, WcStatus, Work};
use mkey_os::limits;
use std::sync::Arc;

/// Registers in a process with this limit of locked memory, as a user without privileges.
#[cfg(target_arch = "x86_64")]
fn confined(test: &str, user: u32, memlock: u64, body: impl FnOnce(&Device, &Pd)) {
    if !rustix::process::geteuid().is_root() && std::env::var_os("MKEY_TEST_ALONE").is_none() {
        return skip(test, "only root can become another user");
    }
    let confine = || {
        mkey_os::confine::limit_memlock(memlock).expect("lowered");
        mkey_os::confine::become_user(user).expect("root may");
    };
    alone(test, confine, || {
        let device = Device::soft(SoftOptions::default()).expect("a software RNIC");
        let pd = Pd::new(&device).expect("pd");
        body(&device, &pd);
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn nvidia_container_toolkit_2037_the_memlock_error_tells_the_figures() {
    let name = "system::nvidia_container_toolkit_2037_the_memlock_error_tells_the_figures";
    confined(name, 60_101, 64 << 10, |device, pd| {
        let leaks = LeakCheck::of_process(device);
        let base = |len| Region::builder(len).pages(PageKind::Base).map().expect("memory");
        let small = Mr::new(pd, base(16 << 10)).expect("within the limit");
        let error = Mr::new(pd, base(1 << 20)).expect_err("beyond the limit");
        let figures = Reason::MemlockLimit { needed: 1 << 20, used: 16 << 10, limit: 64 << 10 };
        assert_eq!(error.reason, figures);
        assert_eq!(error.errno(), 12, "ENOMEM, as the verbs report it");
        let text = error.to_string();
        for said in ["1048576 bytes more", "16384 in use", "65536 bytes", "prlimit", "CAP_IPC_LOCK"]
        {
            assert!(text.contains(said), "{said}: {text}");
        }
        // Nothing was done by halves: what fits is registered still.
        let rest = Mr::new(pd, base(48 << 10)).expect("up to the limit");
        drop((small, rest));
        leaks.finish();
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn kubekey_2609_a_limit_of_nothing_is_told_apart() {
    let name = "system::kubekey_2609_a_limit_of_nothing_is_told_apart";
    confined(name, 60_102, 0, |_, pd| {
        let error =
            Mr::new(pd, Region::new(PAGE).expect("memory")).expect_err("nothing is allowed");
        assert_eq!((&error.reason, error.errno()), (&Reason::MemlockForbidden, 1));
        assert!(error.to_string().contains("RLIMIT_MEMLOCK is 0"), "{error}");
        let mr = Mr::builder(pd).on_demand().register(Region::new(PAGE).expect("memory"));
        mr.expect("what is not pinned needs no such right");
    });
}

#[test]
fn mooncake_3639_alternate_pages_do_not_use_up_the_mappings() {
    const COUNT: usize = 2000;
    let name = "system::mooncake_3639_alternate_pages_do_not_use_up_the_mappings";
    alone(
        name,
        || (),
        || {
            let pair = Pair::new().expect("connected");
            let leaks = LeakCheck::of_process(&pair.a.device);
            let builder = Region::builder(2 * COUNT * PAGE).pages(PageKind::Base);
            let region = Arc::new(builder.map_prefaulted(1).expect("memory"));
            // What the first registration of a process sets up is not counted.
            drop(Mr::new(&pair.a.pd, part(&region, 0, PAGE)).expect("mr"));
            let before = limits::map_count().expect("readable");
            let registered: Vec<_> = (0..COUNT)
                .map(|at| Mr::new(&pair.a.pd, part(&region, 2 * at * PAGE, PAGE)).expect("mr"))
                .collect();
            let during = limits::map_count().expect("readable");
            drop(registered);
            let after = limits::map_count().expect("readable");
            // Some of the process's own: heap, thread stacks.
            assert!(
                during < before + 50,
                "{before} mappings before, {during} with {COUNT} regions"
            );
            assert!(after < before + 50, "{before} mappings before, {after} after");
            drop(region);
            leaks.finish();
        },
    );
}

#[test]
fn rdma_core_1222_a_forked_child_has_all_of_the_memory() {
    let name = "system::rdma_core_1222_a_forked_child_has_all_of_the_memory";
    alone(
        name,
        || (),
        || {
            let pair = Pair::new().expect("connected");
            let region = Arc::new(Region::new(PAGE).expect("memory"));
            // Less than a page is registered; its neighbours are none of the device's business.
            let mr = Mr::builder(&pair.b.pd).remote_write().register(part(&region, 64, 64));
            let mr = mr.expect("mr");
            let start = mkey::Memory::range(&*region).0.as_ptr();
            // SAFETY: nobody else is in the region; its bytes are initialised.
            unsafe { start.add(1000).write_volatile(5) };
            // SAFETY: the child only touches memory, and leaves without a look back.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: the child's own copy of the region.
                let right = unsafe {
                    start.write_volatile(9);
                    start.add(70).write_volatile(9);
                    start.add(1000).read_volatile() == 5 && start.add(70).read_volatile() == 9
                };
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!right)) };
            }
            let mut status = -1;
            // SAFETY: waits for the child; the status is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child reads and writes all of the page");
            // The parent's memory is the one that peers write, and no byte of the child's came over.
            let key = mr.remote_key(..).expect("exposed");
            pair.a.qp.post(&[Work::write_inline(b"parent", key)]).expect("posted");
            assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
            assert_eq!(mr.whole().to_vec().expect("mapped")[..7], *b"parent\0");
            // SAFETY: as above.
            assert_eq!(unsafe { start.read_volatile() }, 0);
        },
    );
}

#[test]
fn kubernetes_71233_pages_that_are_promised_are_there() {
    // Far more huge pages than any pool of this machine has: a step down, with the reason.
    let pool = mkey_os::hugepages::pool(2 << 20);
    let available = pool.map_or(0, |pool| pool.available());
    let len = (available as usize + 4) * (2 << 20);
    let error = Region::builder(len).pages(PageKind::Huge2M).map_prefaulted(1);
    let error = error.expect_err("the pool has not so many");
    assert!(matches!(error.reason, Reason::System { call: "mmap", .. }), "{error}");
    assert!(error.to_string().contains("available"), "{error}");
    let region = Region::builder(len).map_prefaulted(2).expect("on smaller pages");
    assert!(!matches!(region.page_kind(), PageKind::Huge1G | PageKind::Huge2M));
    let why = region.refused().iter().find(|refused| refused.kind == PageKind::Huge2M);
    assert!(why.is_some_and(|why| why.to_string().contains("available")), "{:?}", region.refused());
    // All of it can be touched: nothing is promised that is not there.
    let pair = Pair::new().expect("connected");
    let mut local =
        Mr::new(&pair.a.pd, region).expect("mr").into_slice().into_local().expect("own");
    local.chunks_mut(PAGE).for_each(|page| page[0] = 1);
}

#[test]
fn libfabric_12828_registrations_use_up_no_file_descriptors() {
    let name = "system::libfabric_12828_registrations_use_up_no_file_descriptors";
    alone(
        name,
        || (),
        || {
            let open = || std::fs::read_dir("/proc/self/fd").expect("readable").count();
            let pair = Pair::new().expect("connected");
            let shared: Arc<dyn mkey::Memory> =
                Arc::new(SharedMemory::new("libfabric 12828", 64 * PAGE).expect("memfd"));
            let register = || Mr::builder(&pair.a.pd).register_shared(shared.clone()).expect("mr");
            // What the first registration of a process sets up is not counted.
            let first = register();
            let before = open();
            let all: Vec<_> = (0..256).map(|_| register()).collect();
            assert_eq!(open(), before);
            drop((first, all));
            assert_eq!(open(), before);
        },
    );
}

#[test]
fn ucx_8475_no_code_is_patched() {
    let name = "system::ucx_8475_no_code_is_patched";
    alone(
        name,
        || (),
        || {
            let code = || {
                let functions: [*const u8; 6] = [
                    libc::mmap as *const u8,
                    libc::munmap as *const u8,
                    libc::mremap as *const u8,
                    libc::madvise as *const u8,
                    libc::brk as *const u8,
                    libc::free as *const u8,
                ];
                // SAFETY: code of the C library, which is longer than that and readable.
                functions.map(|start| unsafe { start.cast::<[u8; 16]>().read_unaligned() })
            };
            let before = code();
            let pair = Pair::new().expect("connected");
            let mr =
                Mr::builder(&pair.b.pd).remote_write().register(Region::new(PAGE).expect("memory"));
            let key = mr.as_ref().expect("mr").remote_key(..).expect("exposed");
            pair.a.qp.post(&[Work::write_inline(b"x", key)]).expect("posted");
            assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
            assert_eq!(code(), before, "with a registration live");
            drop(mr);
            assert_eq!(code(), before);
        },
    );
}
