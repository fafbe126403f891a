//! Freeing what posted work is changing. The clock stands still and nobody polls, so what the work
//! waits for is found out by who frees the object or not at all.
#![allow(unsafe_code)]

use crate::clock::VirtualClock;
use crate::core::executors;
use crate::device::SoftDevice;
use crate::options::SoftOptions;
use crate::sync::lock;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{
    AhAttr, Device, MrHandle, MrInfo, MrSpec, MwHandle, MwKind, PdHandle, QpInfo,
};
use mkey_core::engine::{Access, Executor};
use mkey_core::key::Key;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::rights::{Rights, Want};
use mkey_core::status::WcStatus;
use mkey_core::work::{BindMw, Completion, RegMr, SendOp, SendWr, Sge};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::mpsc::channel;

const RIGHTS: Rights = Rights::REMOTE_READ.union(Rights::LOCAL_WRITE).union(Rights::MW_BIND);
const LAYOUT: Layout = match Layout::from_size_align(4096, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a page"),
};

/// A page of registered memory, and a queue pair that is connected to itself.
struct Rig {
    device: Arc<SoftDevice>,
    pd: PdHandle,
    qp: QpInfo,
    cq: crate::SoftCq,
    mr: MrInfo,
    page: *mut u8,
}

/// What lies on the page.
#[derive(Clone, Copy)]
enum Object {
    Fast(MrHandle),
    Window(MwHandle),
}

impl Rig {
    fn new() -> Self {
        let clock = Arc::new(VirtualClock::new());
        let options = SoftOptions { clock, watch: false, ..SoftOptions::default() };
        let device = SoftDevice::open(options).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(16, None).unwrap();
        let qp = device.create_qp(pd, &QpInit::new(QpKind::Rc, cq)).unwrap();
        let gid = device.port().gid;
        let ah = AhAttr { gid, gid_index: 0, port: 1, traffic_class: 0, hop_limit: 64 };
        let rtr = QpModify::rtr(ah, qp.qp_num, 1024, 7);
        for step in [QpModify::init(Rights::REMOTE_READ), rtr, QpModify::rts(7)] {
            device.modify_qp(qp.handle, &step).unwrap();
        }
        // SAFETY: the layout has a size.
        let page = unsafe { alloc_zeroed(LAYOUT) };
        assert!(!page.is_null());
        let address = HostAddr(page as u64);
        let spec = MrSpec { address, length: 4096, iova: None, rights: RIGHTS };
        // SAFETY: the page stays until the device is closed, and nobody makes a reference to it.
        let mr = unsafe { device.reg_mr(pd, &spec) }.unwrap();
        let cq = device.cq(cq).unwrap();
        Self { device, pd, qp, cq, mr, page }
    }

    fn post(&self, op: SendOp<'_>) {
        self.device.qp(self.qp.handle).unwrap().post_send(&[SendWr::new(1, op, &[])]).unwrap();
    }

    fn done(&self) -> Option<WcStatus> {
        let mut one = [Completion::BLANK];
        (self.cq.poll(&mut one).unwrap() > 0).then_some(one[0].status)
    }

    fn begun(&self, window: bool) -> (Object, Key) {
        let address = IoAddr(self.page as u64);
        let (object, key) = if window {
            let made = self.device.alloc_mw(self.pd, MwKind::Type2).unwrap();
            let (new, rights) = (made.rkey.0.next(), Rights::REMOTE_READ);
            let new_key = mkey_core::key::Rkey(new);
            let (mw, mr) = (made.rkey, self.mr.lkey);
            self.post(SendOp::BindMw(BindMw { mw, new_key, mr, address, length: 4096, rights }));
            (Object::Window(made.handle), new)
        } else {
            let made = self.device.alloc_fast_mr(self.pd, 1).unwrap();
            let (key, rights) = (made.rkey.0.next(), Rights::REMOTE_READ);
            let entries = [Sge { address, length: 4096, lkey: self.mr.lkey }];
            self.post(SendOp::RegMr(RegMr { key, iova: address, rights, entries: &entries }));
            (Object::Fast(made.handle), key)
        };
        assert_eq!(self.done(), Some(WcStatus::Success));
        (object, key)
    }

    fn access(&self, key: Key) -> Access {
        let core = &self.device.core;
        let qp = lock(&core.objects.qps).get(self.qp.handle.0).unwrap().clone();
        let (pd, qp, address) = (qp.pd, qp.id, IoAddr(self.page as u64));
        Access { key, pd, qp, address, length: 8, want: Want::RemoteRead }
    }

    fn free(&self, object: Object) {
        match object {
            Object::Fast(handle) => self.device.dereg_mr(handle),
            Object::Window(handle) => self.device.dealloc_mw(handle),
        }
        .expect("freed");
    }

    /// Nothing lies on the page any more.
    fn close(self) {
        self.device.dereg_mr(self.mr.handle).expect("free");
        drop(self.device);
        // SAFETY: allocated with this layout, and no device knows it any more.
        unsafe { dealloc(self.page, LAYOUT) }
    }
}

// SAFETY: the page is only touched by the device.
unsafe impl Sync for Rig {}

fn executor() -> Executor {
    executors().enter().expect("a slot")
}

/// The access that an invalidation waited for has ended, but nobody has told its queue pair so.
#[test]
fn r_fr_17_what_is_invalidated_is_freed_once_the_access_has_ended() {
    for window in [false, true] {
        let rig = Rig::new();
        let (object, key) = rig.begun(window);
        let (mut executor, access) = (executor(), rig.access(key));
        let guard = rig.device.core.engine.open(&mut executor.source, &access).expect("open");
        rig.post(SendOp::LocalInv(key));
        assert_eq!(rig.done(), None, "it waits for the access");
        drop(guard);
        rig.free(object);
        assert_eq!(rig.done(), Some(WcStatus::Success), "window: {window}");
        rig.close();
    }
}

/// The access runs still: freeing waits for it.
#[test]
fn r_mwu_11_what_is_invalidated_is_not_free_before_the_access_has_ended() {
    for window in [false, true] {
        let rig = Rig::new();
        let (object, key) = rig.begun(window);
        let (mut executor, access) = (executor(), rig.access(key));
        let guard = rig.device.core.engine.open(&mut executor.source, &access).expect("open");
        rig.post(SendOp::LocalInv(key));
        let (begins, begun) = channel();
        std::thread::scope(|scope| {
            let rig = &rig;
            let freeing = scope.spawn(move || {
                begins.send(()).unwrap();
                rig.free(object);
            });
            begun.recv().unwrap();
            for _ in 0..1000 {
                std::thread::yield_now();
                assert!(!freeing.is_finished(), "freed under an access, or refused");
            }
            drop(guard);
            freeing.join().expect("freed");
        });
        rig.close();
    }
}
