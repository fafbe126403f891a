//! What a program may do by mistake, or by bad luck in time, without memory being lent that
//! somebody else can reach, and without one part of it stopping another.

mod common;
mod peers;

use mkey::{
    Access, Completion, Cq, Device, GrantOptions, Memory, Mr, Pd, PeerAccess, Pool, PoolError,
    PoolOptions, Qp, Reason, Recv, Region, Slice, SoftOptions, Work,
};
use mkey_core::queue_pair::{QpModify, QpState};
use peers::{LONG, Side, connect, device, pair};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// The places of a completion queue are numbered in 16 bits by whom they are given to.
#[test]
fn a_completion_of_a_former_queue_pair_does_not_end_work_of_a_later_one() {
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let (cq, other) = (Cq::new(&device, 64).expect("cq"), Cq::new(&device, 64).expect("cq"));
    // Receives complete elsewhere, so that one place is given to one queue pair after the other.
    let new = || Qp::builder(&pd, &cq).recv_cq(&other).depth(4, 4).create().expect("qp");
    let old = new();
    old.connect(&old.endpoint()).expect("connected to itself");
    old.fail().expect("to ERR");
    old.post(&[Work::send_inline(b"flushed").id(1)]).expect("taken, and flushed");
    // Its completion stays in the queue.
    drop(old);
    for _ in 1..1 << 16 {
        drop(new());
    }
    let qp = new();
    qp.connect(&qp.endpoint()).expect("connected to itself");
    let slice = Mr::new(&pd, Region::new(4096).expect("memory")).expect("mr").into_slice();
    // It waits for a receive.
    qp.post(&[Work::send(&slice).id(2)]).expect("posted");
    let mut into = [Completion::BLANK; 4];
    assert_eq!(cq.poll(&mut into), Ok(0), "that of the former queue pair is nobody's");
    let (_, error) = slice.into_local().expect_err("work is in flight");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
}

#[test]
fn a_reset_lets_go_of_nothing_that_is_posted_after_it() {
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let cq = Cq::new(&device, 64).expect("cq");
    let mut slice = Mr::new(&pd, Region::new(4096).expect("memory")).expect("mr").into_slice();
    for round in 0..1000 {
        let qp = Qp::builder(&pd, &cq).depth(4, 4).create().expect("qp");
        let init = QpModify::init(mkey::Rights::empty());
        qp.modify(&init).expect("to INIT");
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                let reset = QpModify { state: Some(QpState::Reset), ..QpModify::default() };
                qp.modify(&reset).expect("to RESET");
            });
            start.wait();
            while qp.query().expect("attributes").state != QpState::Reset {
                std::hint::spin_loop();
            }
            qp.modify(&init).expect("to INIT");
            qp.post_recv(&[Recv::new(&slice)]).expect("posted");
        });
        slice = slice.into_local().map(drop).expect_err(&format!("posted, in round {round}")).0;
    }
}

#[test]
fn memory_that_somebody_else_can_register_is_not_lent() {
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let memory: Arc<dyn Memory> = Arc::new(Region::new(4096).expect("memory"));
    let stop = AtomicBool::new(false);
    let mr = Mr::builder(&pd).register_shared(memory.clone()).expect("mr");
    let mut slice = mr.into_slice();
    std::thread::scope(|scope| {
        let memory = memory;
        let stop = &stop;
        let hopper = scope.spawn(move || {
            // There is a weak pointer or a strong one, always.
            let mut strong = memory;
            while !stop.load(Ordering::Relaxed) {
                let weak = Arc::downgrade(&strong);
                drop(strong);
                strong = weak.upgrade().expect("registered");
            }
        });
        for _ in 0..2_000_000 {
            match slice.into_local() {
                Ok(_) => {
                    stop.store(true, Ordering::Relaxed);
                    panic!("lent, while another thread could register it for a peer");
                }
                Err((back, _)) => slice = back,
            }
            if hopper.is_finished() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        hopper.join().expect("it could always have registered it");
        drop(slice);
    });
}

#[test]
fn queues_deeper_than_the_device_has_are_refused() {
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let cq = Cq::new(&device, 16).expect("cq");
    for (send, recv) in [(u32::MAX, 1), (1, u32::MAX)] {
        let refused = Qp::builder(&pd, &cq).depth(send, recv).create().expect_err("too deep");
        assert!(matches!(refused.reason, Reason::Argument { .. }), "{refused}");
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_stops_no_other_waiter() {
    let (a, b) = pair();
    let mut into = [Completion::BLANK; 4];
    a.expects(1);
    {
        // Its listener is broken by the panic: it is left alone from then on.
        let future = a.cq.wait_async(&mut into);
        let mut future = std::mem::ManuallyDrop::new(Box::pin(future));
        let waker = Waker::from(Arc::new(Panics));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        b.qp.post(&[Work::send_inline(b"wakes it")]).expect("posted");
        // That the event has been delivered shows by another queue, whose event comes later.
        let (c, d) = (Side::new(&a.pd, 16), Side::new(&b.pd, 16));
        connect(&c.qp, &d.qp);
        c.expects(2);
        let (tell, told) = mpsc::channel();
        let cq = c.cq.clone();
        std::thread::spawn(move || {
            let mut into = [Completion::BLANK; 4];
            let _ = tell.send(cq.wait(&mut into, Duration::MAX));
        });
        std::thread::sleep(Duration::from_millis(200));
        d.qp.post(&[Work::send_inline(b"wakes the other")]).expect("posted");
        assert_eq!(told.recv_timeout(LONG).expect("it hears"), Ok(1));
    }
    assert_eq!(a.one().wr_id, 1);
}

static POOL: OnceLock<Mutex<Option<Pool>>> = OnceLock::new();
static HEARD: AtomicUsize = AtomicUsize::new(0);

/// Looks at a pool, and uses it, whenever something is logged on this thread.
struct Looks;

impl tracing::Subscriber for Looks {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        let pool = POOL.get().and_then(|pool| pool.lock().ok()?.clone());
        if let Some(pool) = pool {
            HEARD.fetch_add(1, Ordering::Relaxed);
            assert!(pool.stats().registered_bytes > 0);
            let _ = pool.trim();
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_subscriber_may_look_at_the_pool_that_grows() {
    let device = device();
    let pd = Pd::new(&device).expect("pd");
    let options = PoolOptions::default().slab(1 << 16).access(Access::local());
    let pool = Pool::new(&pd, &options).expect("pool");
    POOL.set(Mutex::new(Some(pool.clone()))).expect("once");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(Looks, || {
            let blocks: Vec<Slice> = (0..8).map(|_| pool.alloc(1 << 16).expect("grows")).collect();
            let _ = tell.send(blocks.len());
        });
    });
    assert_eq!(told.recv_timeout(LONG).expect("it goes on"), 8);
    assert!(HEARD.load(Ordering::Relaxed) >= 7);
    *POOL.get().expect("set").lock().expect("lock") = None;
}

/// The device has no room for a second slab, and all blocks of the first are out.
#[test]
fn who_waits_for_a_pool_that_can_not_grow_waits_no_longer_than_asked() {
    let device = Device::soft(SoftOptions { max_keys: 1, ..SoftOptions::default() });
    let pd = Pd::new(&device.expect("device")).expect("pd");
    let options = PoolOptions::default().slab(1 << 14).floor(0);
    let pool = Pool::new(&pd, &options).expect("pool");
    let blocks: Vec<Slice> = (0..4).map(|_| pool.alloc(1 << 12).expect("room")).collect();
    let (tell, told) = mpsc::channel();
    let waits = pool.clone();
    std::thread::spawn(move || {
        let refused = waits.alloc_within(1 << 12, Duration::from_millis(20)).map(drop);
        let _ = tell.send(refused.map_err(|error| matches!(error, PoolError::TimedOut { .. })));
        let mut future = pin!(waits.alloc_async(1 << 12));
        let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        let _ = tell.send(Err(pending));
    });
    assert_eq!(told.recv_timeout(LONG).expect("it gives up"), Err(true), "timed out");
    assert_eq!(told.recv_timeout(LONG).expect("it lets others run"), Err(true), "pending");
    drop(blocks);
}

/// A completion that says that the peer has ended a grant may be polled late: when the window has
/// been freed, and its key is another grant's by then.
#[test]
fn a_late_notice_of_an_end_ends_no_later_grant_of_the_same_key() {
    let options = SoftOptions { max_keys: 12, seed: Some(7), ..SoftOptions::default() };
    let device = Device::soft(options).expect("device");
    let (server, client) = peers::pair_on(&device, 64);
    let grants = server.pd.set_grants(GrantOptions::default().max(1)).expect("windows");
    let buffer = server.memory(4096);
    let received = server.memory(4096);
    server.qp.post_recv(&[Recv::new(&received).id(1)]).expect("posted");
    let first = buffer.grant(&server.qp, PeerAccess::READ).expect("grant");
    let key = first.remote_key().key;
    client.qp.post(&[Work::send_inline(b"").invalidating(key).id(2)]).expect("posted");
    assert_eq!(client.done(2), mkey::WcStatus::Success);
    // Its end has not been heard of, and is forced.
    first.await_peer().abandon().expect("freed");
    // Indices come round when 1024 others were freed, and each has 255 keys.
    for _ in 0..2_000_000 {
        let grant = buffer.prepare_grant(&server.qp, PeerAccess::READ).expect("grant");
        if grant.remote_key().key == key {
            server.qp.post(&[grant.bind()]).expect("posted");
            let notice = server.one();
            assert_eq!((notice.wr_id, notice.invalidated), (1, Some(key)));
            assert_eq!(grant.ended(), Ok(None), "it is open to the peer");
            return;
        }
        drop(grant);
    }
    assert!(grants.stats().renewed > 7000, "the index would have come round");
    assert_eq!(server.one().invalidated, Some(key));
}

/// Runs in a process of its own: what it takes away is the whole process's.
#[test]
fn a_thread_that_could_not_be_started_is_tried_again() {
    let test = "a_thread_that_could_not_be_started_is_tried_again";
    common::alone(
        test,
        || (),
        || {
            let (a, b) = pair();
            a.expects(1);
            let mut into = [Completion::BLANK; 4];
            let used = std::fs::read_to_string("/proc/self/statm").expect("statm");
            let pages: u64 = used.split(' ').next().and_then(|n| n.parse().ok()).expect("pages");
            let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: `before` is ours to write.
            assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut before) }, 0);
            // No room for the stack of a thread.
            let little = libc::rlimit { rlim_cur: pages * 4096 + (1 << 18), ..before };
            // SAFETY: `little` is a limit, which is read.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &little) }, 0);
            let refused = a.cq.wait(&mut into, Duration::from_millis(1));
            // SAFETY: as above.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &before) }, 0);
            let error = refused.expect_err("no thread can be started");
            assert!(matches!(error.reason, Reason::System { .. }), "{error}");
            b.qp.post(&[Work::send_inline(b"late")]).expect("posted");
            assert_eq!(a.cq.wait(&mut into, LONG), Ok(1));
        },
    );
}
