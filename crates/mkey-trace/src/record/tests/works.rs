//! Work is counted, and followed from its post to its completion.

use super::*;
use crate::raw::{Remote, Window};
use proptest::prelude::*;
use std::collections::VecDeque;

const AT: u64 = 0x7000_0000;

#[test]
fn entries_count_by_what_they_are_used_for() {
    let traced = traced();
    let queue = traced.queue(16, 16);
    traced.reg(1, AT, 1 << 20);
    for (id, op) in [Op::Send, Op::Write, Op::Read, Op::Atomic, Op::Recv].into_iter().enumerate() {
        traced.post(
            queue,
            op,
            id as u64,
            &[(AT + 64 * id as u64, 8, 1), (AT + 65536, 8, 1), (0, 0, 9)],
        );
    }
    traced.post(queue, Op::LocalInv, 7, &[]);
    traced.post(queue, Op::Bind, 8, &[(AT, 4096, 1)]);
    let inlined = Work {
        id: 9,
        op: Op::Send,
        signaled: false,
        inlined: true,
        invalidates: true,
        entries: &[Entry { addr: AT, len: 8, lkey: 77 }],
        remote: None,
    };
    queue.post(traced.recorder, &inlined);
    let mr = traced.mrs()[0];
    assert_eq!((mr.uses, mr.done), ([2, 2, 4, 2, 0], 0));
    let record = traced.queues()[0];
    assert_eq!(record.posted, [2, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((record.inlined, record.invalidations, record.lost), (1, 1, 0));
    let threads = traced.all(|r| if let Record::Thread(thread) = r { Some(thread) } else { None });
    assert_eq!(threads.iter().map(|t| t.posts).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_completion_is_one_of_all_unsignaled_work_before_it() {
    let traced = traced();
    let queue = traced.queue(16, 0);
    traced.reg(1, AT, 1 << 20);
    for id in 0..6 {
        let number = if id < 3 { 5 } else { id };
        traced.post_as(queue, Op::Write, number, id % 3 == 2, &[(AT, 8, 1), (AT, 8, 1)]);
    }
    queue.completed(traced.recorder, 5, false, 0, 0);
    assert_eq!(in_flight(&traced.mrs()[0]), 6);
    // In error each has one.
    queue.completed(traced.recorder, 3, false, 5, 0);
    assert_eq!(in_flight(&traced.mrs()[0]), 4);
    queue.completed(traced.recorder, 4, false, 5, 0x81);
    queue.completed(traced.recorder, 5, false, 5, 0);
    assert_eq!(in_flight(&traced.mrs()[0]), 0);
    let failures = traced.all(|r| if let Record::Failure(f) = r { Some(f) } else { None });
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].status, failures[0].times, failures[0].op), (5, 3, Op::Write as u32));
    let record = traced.queues()[0];
    assert_eq!((record.completed, record.failed, record.lost), (4, 3, 0));
}

#[test]
fn an_error_of_unsignaled_work_whose_number_others_have_ends_following() {
    let traced = traced();
    let queue = traced.queue(16, 0);
    traced.reg(1, AT, 1 << 20);
    (0..5).for_each(|_| traced.post_as(queue, Op::Write, 7, false, &[(AT, 8, 1)]));
    // The third fails, the two after it are flushed.
    for status in [10, 5, 5] {
        queue.completed(traced.recorder, 7, false, status, 0);
    }
    traced.dereg(1);
    assert_eq!((traced.wrongs(), traced.queues()[0].lost), (vec![], 1));
    // Where each is signaled the oldest is meant.
    let queue = traced.queue(16, 0);
    traced.reg(2, AT, 1 << 20);
    (0..5).for_each(|_| traced.post(queue, Op::Write, 7, &[(AT, 8, 2)]));
    queue.completed(traced.recorder, 7, false, 10, 0);
    queue.completed(traced.recorder, 7, false, 5, 0);
    assert_eq!((in_flight(&traced.mrs()[1]), traced.queues()[1].lost), (3, 0));
    traced.dereg(2);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);
}

#[test]
fn receives_of_a_shared_queue_complete_in_any_order() {
    let traced = traced();
    let init = QueueInit { number: 0, kind: 0, ..traced.init(0, 4) };
    let queue = traced.recorder.queue(&init).unwrap();
    traced.reg(1, AT, 1 << 20);
    // One stays at the front for ever, others come and go.
    for id in 0..4 {
        traced.post(queue, Op::Recv, id, &[(AT + 64 * id, 64, 1)]);
    }
    for id in 4..10_000 {
        queue.completed(traced.recorder, if id == 4 { 3 } else { id - 1 }, true, 0, 0);
        traced.post(queue, Op::Recv, id, &[(AT + 64 * (id % 1000), 64, 1)]);
    }
    let mr = traced.mrs()[0];
    assert_eq!((mr.uses[3], in_flight(&mr), traced.queues()[0].lost), (10_000, 4, 0));
    queue.completed(traced.recorder, 0, true, 0, 0);
    queue.completed(traced.recorder, 9999, true, 0, 0);
    assert_eq!(in_flight(&traced.mrs()[0]), 2);
}

#[test]
fn what_was_not_posted_is_taken_back() {
    let traced = traced();
    let queue = traced.queue(16, 16);
    traced.reg(1, AT, 1 << 20);
    for id in 0..4 {
        traced.post(queue, Op::Send, id, &[(AT, 8, 1), (AT, 8, 1)]);
    }
    queue.not_posted(traced.recorder, 2, false);
    let mr = traced.mrs()[0];
    assert_eq!((mr.uses[0], mr.done, traced.queues()[0].posted[0]), (4, 0, 2));
    // Another thread's stays, wherever it lies.
    traced.post(queue, Op::Send, 10, &[(AT, 8, 1)]);
    std::thread::scope(|scope| {
        scope.spawn(|| traced.post(queue, Op::Send, 11, &[(AT, 8, 1)]));
    });
    queue.not_posted(traced.recorder, 1, false);
    assert_eq!(traced.queues()[0].posted[0], 3);
    queue.completed(traced.recorder, 11, false, 0, 0);
    let mr = traced.mrs()[0];
    assert_eq!((mr.uses[0], mr.done), (5, 5));
    // Nor is it counted as inline, or to invalidate.
    let entries = [Entry { addr: AT, len: 8, lkey: lkey(1) }; 2];
    let work = Work {
        id: 1,
        op: Op::Send,
        signaled: true,
        inlined: true,
        invalidates: true,
        entries: &entries,
        remote: None,
    };
    queue.post(traced.recorder, &work);
    queue.post(traced.recorder, &work);
    queue.not_posted(traced.recorder, 1, false);
    assert_eq!((traced.queues()[0].inlined, traced.queues()[0].invalidations), (1, 1));
    queue.completed(traced.recorder, 1, false, 0, 0);
    // A receive that was not posted is not in flight.
    traced.post(queue, Op::Recv, 1, &[(AT, 8, 1)]);
    queue.not_posted(traced.recorder, 1, true);
    traced.post(queue, Op::Recv, 1, &[(AT, 8, 1)]);
    assert_eq!(traced.wrongs(), []);
}

#[test]
fn more_than_fits_ends_following_but_not_counting_and_is_not_in_flight() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 1 << 20);
    for id in 0..1000 {
        traced.post(queue, Op::Send, id, &[(AT, 8, 1)]);
    }
    let (mr, record) = (traced.mrs()[0], traced.queues()[0]);
    assert_eq!((mr.uses[0], in_flight(&mr), record.posted[0], record.lost), (1000, 0, 1000, 1));
    queue.completed(traced.recorder, 1, false, 0, 0);
    traced.dereg(1);
    assert_eq!((traced.wrongs(), traced.queues()[0].completed), (vec![], 1));
}

#[test]
fn completions_of_work_that_is_not_there_end_following() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 1 << 20);
    traced.post(queue, Op::Send, 1, &[(AT, 8, 1)]);
    (0..100).for_each(|_| queue.completed(traced.recorder, 99, false, 0, 0));
    assert_eq!((in_flight(&traced.mrs()[0]), traced.queues()[0].lost), (0, 1));
}

#[test]
fn a_queue_that_ended_is_used_again_for_another_record() {
    let traced = traced();
    traced.reg(1, AT, 1 << 20);
    let first = traced.queue(8, 8);
    traced.post(first, Op::Send, 1, &[(AT, 8, 1)]);
    first.completed(traced.recorder, 1, false, 12, 0);
    first.end(traced.recorder);
    let second = traced.queue(8, 8);
    assert!(std::ptr::eq(first, second));
    traced.post(second, Op::Write, 1, &[(AT, 8, 1)]);
    second.completed(traced.recorder, 1, false, 12, 0);
    let posted: Vec<_> =
        traced.queues().iter().map(|q| (q.posted[0], q.posted[1], q.failed)).collect();
    assert_eq!(posted, [(1, 0, 1), (0, 1, 1)]);
    let failures =
        traced.all(|r| if let Record::Failure(f) = r { Some((f.queue, f.times)) } else { None });
    assert_eq!(failures.len(), 2);
    assert!(failures[0].0 != failures[1].0);
}

#[test]
fn queues_that_come_and_go_take_no_more_memory_than_there_are_at_a_time() {
    let traced = traced();
    let mut live: std::collections::VecDeque<_> = (0..600).map(|_| traced.queue(8, 8)).collect();
    let made = traced.recorder.queues.all().count();
    for _ in 0..3000 {
        // The oldest first; twice is once.
        let oldest = live.pop_front().unwrap();
        oldest.end(traced.recorder);
        oldest.end(traced.recorder);
        let queue = traced.queue(8, 8);
        assert!(live.iter().all(|other| !std::ptr::eq(*other, queue)));
        live.push_back(queue);
    }
    assert_eq!(traced.recorder.queues.all().count(), made);
}

#[test]
fn a_peers_key_has_what_was_done_with_it_by_all_queues() {
    let traced = traced();
    let (one, two) = (traced.queue(8, 8), traced.queue(8, 8));
    let work = |op, rkey, addr| Work {
        id: 1,
        op,
        signaled: true,
        inlined: false,
        invalidates: false,
        entries: &[Entry { addr: 0, len: 100, lkey: 3 }],
        remote: Some((rkey, addr)),
    };
    one.post(traced.recorder, &work(Op::Write, 5, 1000));
    two.post(traced.recorder, &work(Op::Read, 5, 400));
    one.post(traced.recorder, &work(Op::Atomic, 6, 8));
    one.post(traced.recorder, &work(Op::Write, 5, 2000));
    let mut seen: Vec<Remote> =
        traced.all(|r| if let Record::Remote(r) = r { Some(r) } else { None });
    seen.sort_by_key(|remote| remote.rkey);
    let seen: Vec<_> =
        seen.iter().map(|r| (r.rkey, r.low, r.high, r.writes, r.reads, r.atomics)).collect();
    assert_eq!(seen, [(5, 400, 2100, 2, 1, 0), (6, 8, 108, 0, 0, 1)]);
}

#[test]
fn windows_count_binds_unbinds_and_invalidations() {
    let traced = traced();
    traced.reg(1, AT, 1 << 20);
    let mut alloc = traced.blank(Verb::AllocMw, 0xAA);
    (alloc.rkey, alloc.detail) = (0x100, 2);
    traced.call(alloc);
    let recorder = traced.recorder;
    recorder.bound(traced.device, 0xAA, 0x101, lkey(1), 4096);
    recorder.invalidated(traced.device, 0x101);
    recorder.invalidated(traced.device, 0x100);
    recorder.bound(traced.device, 0xAA, 0x102, 0, 0);
    traced.call(traced.blank(Verb::DeallocMw, 0xAA));
    recorder.invalidated(traced.device, 0x102);
    let windows: Vec<Window> =
        traced.all(|r| if let Record::Window(w) = r { Some(w) } else { None });
    let [window] = windows[..] else { panic!("{windows:?}") };
    assert_eq!((window.kind, window.binds, window.unbinds, window.invalidations), (2, 2, 1, 1));
    assert!(window.alloc != 0 && window.dealloc != 0 && window.mr != 0);
    assert_eq!(traced.mrs()[0].uses, [0, 0, 0, 0, 1]);
    // A bind is not in flight.
    traced.dereg(1);
    assert_eq!(traced.wrongs(), []);
}

/// Whoever named a region or a key first counts apart from the others: together they count all.
#[test]
fn what_many_threads_do_with_one_region_and_one_key_is_counted_to_the_last() {
    const THREADS: u64 = 4;
    const TIMES: u64 = 5000;
    let traced = traced();
    traced.reg(1, AT, 1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let traced = &traced;
            scope.spawn(move || {
                let queue = traced.queue(8, 8);
                let entries = [Entry { addr: AT + thread * 64, len: 8, lkey: lkey(1) }];
                for id in 0..TIMES {
                    for op in [Op::Write, Op::Recv] {
                        let work = Work {
                            id,
                            op,
                            signaled: true,
                            inlined: false,
                            invalidates: false,
                            entries: &entries,
                            remote: (op == Op::Write).then_some((5, 0)),
                        };
                        queue.post(traced.recorder, &work);
                        queue.completed(traced.recorder, id, op == Op::Recv, 0, 0);
                    }
                }
            });
        }
    });
    let mr = traced.mrs()[0];
    assert_eq!(mr.uses, [0, THREADS * TIMES, 0, THREADS * TIMES, 0]);
    assert_eq!(mr.done, 2 * THREADS * TIMES);
    let remotes = traced.all(|r| if let Record::Remote(r) = r { Some(r.writes) } else { None });
    assert_eq!(remotes, [THREADS * TIMES]);
    let queues = traced.queues();
    assert_eq!(queues.len() as u64, THREADS);
    assert!(queues.iter().all(|queue| queue.completed == 2 * TIMES && queue.lost == 0));
    // Nothing is in flight: it may be deregistered.
    traced.dereg(1);
    assert_eq!(traced.wrongs(), []);
}

#[test]
fn measuring_leaves_no_records() {
    let traced = traced();
    assert_eq!((traced.mrs().len(), traced.queues().len()), (0, 0));
    let bytes = traced.bytes();
    let header = File::parse(&bytes).unwrap().header();
    assert!(header.post_overhead > 0 && header.lost == 0 && header.unfollowed == 0);
}

proptest! {
    /// Whatever is posted, completed and not posted after all, what is in flight is what a list says.
    #[test]
    fn in_flight_is_what_was_posted_and_is_not_complete(
        steps in prop::collection::vec((0..6_u8, 0..3_u64, 0..4_usize, any::<bool>()), 1..300),
    ) {
        let traced = traced();
        let queue = traced.queue(1000, 0);
        traced.reg(1, AT, 1 << 20);
        // Number, signaled, entries.
        let mut model: VecDeque<(u64, bool, usize)> = VecDeque::new();
        let (mut used, mut failed, mut unknown) = (0, false, false);
        for (kind, id, entries, signaled) in steps {
            match kind {
                0..3 => {
                    traced.post_as(queue, Op::Send, id, signaled, &vec![(AT, 8, 1); entries]);
                    model.push_back((id, signaled, entries));
                    used += entries;
                }
                3 => {
                    let count = entries.min(model.len());
                    queue.not_posted(traced.recorder, count as u32, false);
                    used -= model.drain(model.len() - count..).map(|w| w.2).sum::<usize>();
                }
                _ => {
                    let status = if kind == 4 { 0 } else { 5 };
                    let found = model.iter().position(|w| w.0 == id && (w.1 || status != 0));
                    if let Some(found) = found {
                        // The failed one is none behind the first that is signaled.
                        let may = model.iter().position(|w| w.1).map_or(model.len(), |at| at + 1);
                        let alike = model.iter().take(may).filter(|w| w.0 == id).count();
                        unknown |= status != 0 && !failed && alike > 1;
                        failed = status != 0;
                        queue.completed(traced.recorder, id, false, status, 0);
                        model.drain(..=found);
                        if unknown {
                            break;
                        }
                    }
                }
            }
        }
        let mr = traced.mrs()[0];
        prop_assert_eq!(mr.uses[0], used as u64);
        let known = model.iter().map(|w| w.2 as u64).sum::<u64>();
        prop_assert_eq!(in_flight(&mr), if unknown { 0 } else { known });
    }
}
