//! Who waits, and who is served. Futures are polled by hand: every order is the test's.

use super::*;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Counts how often a future was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Waiter<'a> {
    future: Pin<Box<dyn Future<Output = std::result::Result<Slice, PoolError>> + Send + 'a>>,
    woken: Arc<Woken>,
}

impl<'a> Waiter<'a> {
    fn new(pool: &'a Pool, bytes: usize) -> Self {
        Self { future: Box::pin(pool.alloc_async(bytes)), woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<Slice> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => Some(answer.expect("room")),
            Poll::Pending => None,
        }
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_big_waiter_is_not_starved_by_small_ones() {
    let (_fake, pool) = fixed(8);
    let mut blocks = drain(&pool);
    let mut big = Waiter::new(&pool, 32 * KIB);
    assert!(big.poll().is_none());
    let mut small = Waiter::new(&pool, 4 * KIB);
    assert!(small.poll().is_none());
    assert_eq!(pool.stats().waiting, 2);

    // There is room for the small one, but it came later; and who does not wait comes last.
    blocks.truncate(4);
    assert!(small.poll().is_none());
    let Err(PoolError::Full(shortage)) = pool.alloc(4 * KIB) else { panic!("not its turn") };
    assert_eq!((shortage.free, shortage.waiting), (16 * KIB, 2));
    assert_eq!(big.woken(), 0, "woken without room");
    assert!(big.poll().is_none());

    blocks.clear();
    assert!(big.woken() > 0);
    assert!(small.poll().is_none());
    let got = big.poll().expect("its turn");
    drop(big);
    assert_eq!(pool.stats().waiting, 1);
    assert!(small.poll().is_none(), "all is taken");
    drop(got);
    assert!(small.woken() > 0);
    drop(small.poll().expect("its turn"));
    drop(small);
    assert_eq!((pool.stats().waits, pool.stats().waiting), (2, 0));
    // Nobody waits: blocks rest again.
    drop(pool.alloc(4 * KIB).expect("room"));
    assert!(pool.stats().resting_bytes > 0);
}

#[test]
fn a_waiting_future_that_is_dropped_wakes_the_next() {
    let (_fake, pool) = fixed(8);
    let mut blocks = drain(&pool);
    let mut big = Waiter::new(&pool, 32 * KIB);
    let mut small = Waiter::new(&pool, 4 * KIB);
    assert!(big.poll().is_none());
    assert!(small.poll().is_none());
    blocks.truncate(7);
    assert_eq!(small.woken(), 0);
    drop(big);
    assert!(small.woken() > 0);
    assert!(small.poll().is_some());
}

#[test]
fn a_future_dropped_after_it_was_woken_loses_nothing() {
    let (_fake, pool) = fixed(2);
    let blocks = drain(&pool);
    let mut first = Waiter::new(&pool, 4 * KIB);
    let mut second = Waiter::new(&pool, 4 * KIB);
    assert!(first.poll().is_none());
    assert!(second.poll().is_none());
    drop(blocks);
    assert!(first.woken() > 0);
    drop(first);
    assert!(second.woken() > 0);
    assert!(second.poll().is_some());
    drop(second);
    assert_eq!(drain(&pool).len(), 2);
}

#[test]
fn waiting_ends_at_its_time() {
    let (_fake, pool) = fixed(2);
    let blocks = drain(&pool);
    let timeout = Duration::from_millis(20);
    let error = pool.alloc_within(4 * KIB, timeout).expect_err("an error");
    let PoolError::TimedOut { waited, shortage } = error else { panic!("{error}") };
    assert!(waited >= timeout);
    assert_eq!((shortage.asked, shortage.free), (4 * KIB, 0));
    let stats = pool.stats();
    // `drain` ends with a failure.
    assert_eq!((stats.waits, stats.waiting, stats.failures), (1, 0, 2));
    drop(blocks);
    pool.alloc(4 * KIB).expect("the queue is empty");
}

#[test]
fn a_waiter_is_served_when_another_thread_frees_and_idles() {
    let (_fake, pool) = fixed(4);
    let mut blocks = drain(&pool);
    let block = blocks.pop();
    std::thread::scope(|scope| {
        let (done, idle) = std::sync::mpsc::channel::<()>();
        let pool = &pool;
        scope.spawn(move || {
            while pool.stats().waiting == 0 {
                std::thread::yield_now();
            }
            drop(block);
            // Lives on without freeing anything more.
            idle.recv().expect("the end");
        });
        pool.alloc_within(4 * KIB, Duration::MAX).expect("its turn");
        done.send(()).expect("a thread");
    });
}

#[test]
fn waiting_for_what_can_not_come_fails() {
    // The floor is all there may be, and no slab of it is large enough.
    let fake = Fake::default();
    let options = PoolOptions::default().slab(16 * KIB).floor(32 * KIB).ceiling(32 * KIB);
    let pool = fake.pool(MIB, options);
    let block = pool.alloc(4 * KIB).expect("room");
    let mut big = Box::pin(pool.alloc_async(32 * KIB));
    let mut context = Context::from_waker(Waker::noop());
    assert!(big.as_mut().poll(&mut context).is_pending());
    drop(block);
    let Poll::Ready(Err(PoolError::Full(shortage))) = big.as_mut().poll(&mut context) else {
        panic!("waits for ever");
    };
    assert_eq!((shortage.free, shortage.largest_free), (32 * KIB, 16 * KIB));
}

#[test]
fn empty_slabs_give_way_to_the_slab_of_who_waits() {
    let fake = Fake::default();
    let options = PoolOptions::default().slab(16 * KIB).floor(0).ceiling(48 * KIB);
    let pool = fake.pool(MIB, options);
    let mut blocks: Vec<_> = (0..3).map(|_| pool.alloc(16 * KIB).expect("room")).collect();
    let mut big = Waiter::new(&pool, 32 * KIB);
    assert!(big.poll().is_none());
    blocks.truncate(1);
    assert!(big.woken() > 0);
    let block = big.poll().expect("two empty slabs give way to one of its own");
    assert_eq!((block.len, fake.registered()), (32 * KIB, 48 * KIB));
    assert_eq!(pool.stats().slabs, 2);
}
