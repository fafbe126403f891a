//! Each kind of mistake is found where it is made, and not where it is not.

use super::*;

const AT: u64 = 0x7000_0000;

#[test]
fn dereg_in_flight_is_found_with_both_places_and_not_once_the_work_is_done() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 4096);
    traced.reg(2, AT + 8192, 4096);
    traced.post(queue, Op::Write, 1, &[(AT, 64, 1)]);
    traced.post(queue, Op::Write, 2, &[(AT + 8192, 64, 2)]);
    queue.completed(traced.recorder, 1, false, 0, 0);
    traced.dereg(1);
    assert_eq!(traced.wrongs(), []);
    traced.dereg(2);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);

    let (bytes, found) = (traced.bytes(), traced.findings()[0]);
    let file = File::parse(&bytes).unwrap();
    let mr: Mr = file.get(found.mr).unwrap();
    assert_eq!((mr.lkey, found.key, found.addr, found.len), (lkey(2), lkey(2), AT + 8192, 4096));
    let (reg, dereg): (Call, Call) = (file.get(mr.reg).unwrap(), file.get(mr.dereg).unwrap());
    assert_eq!((reg.verb, dereg.verb), (Verb::RegMr as u16, Verb::DeregMr as u16));
    assert_eq!(found.before, reg.stack);
    assert!(file.get::<raw::Stack>(found.before).is_some());
    assert!(file.get::<raw::Stack>(found.stack).is_some());
    assert!(file.get::<raw::Queue>(found.queue).is_some());
    assert!(file.get::<raw::Thread>(found.thread).is_some());
}

#[test]
fn rereg_to_other_memory_in_flight_is_dereg_in_flight_and_a_change_of_rights_is_not() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 4096);
    traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
    let mut call = traced.blank(Verb::ReregMr, object(1));
    (call.lkey, call.rkey, call.detail, call.access) = (lkey(1), lkey(1) + 1, 4, 1);
    traced.call(call);
    assert_eq!(traced.wrongs(), []);
    assert_eq!(traced.mrs().iter().map(|mr| mr.access).collect::<Vec<_>>(), [1]);
    (call.addr, call.len, call.detail) = (AT + 65536, 8192, 1);
    traced.call(call);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);

    let mrs = traced.mrs();
    let seen: Vec<_> =
        mrs.iter().map(|mr| (mr.addr, mr.len, mr.iova, mr.access, mr.dereg != 0)).collect();
    assert_eq!(seen, [(AT, 4096, AT, 1, true), (AT + 65536, 8192, AT + 65536, 1, false)]);
    assert_eq!((mrs[1].verb, mrs[1].reg), (Verb::ReregMr as u16, mrs[0].dereg));
    traced.post(queue, Op::Send, 2, &[(AT + 65536, 64, 1)]);
    assert_eq!(traced.mrs()[1].uses[0], 1);
}

#[test]
fn key_after_dereg_is_found_until_the_key_is_a_regions_again() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 4096);
    traced.dereg(1);
    traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
    traced.post(queue, Op::Send, 2, &[(AT, 64, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::KeyAfterDereg, 2)]);
    let (bytes, found) = (traced.bytes(), traced.findings()[0]);
    let file = File::parse(&bytes).unwrap();
    let mr: Mr = file.get(found.mr).unwrap();
    assert_eq!(found.before, file.get::<Call>(mr.dereg).unwrap().stack);
    assert_eq!((found.addr, found.len, found.key), (AT, 64, lkey(1)));

    traced.reg(1, AT, 4096);
    traced.post(queue, Op::Send, 3, &[(AT, 64, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::KeyAfterDereg, 2)]);
    // A key that never was is none of these.
    traced.post(queue, Op::Send, 4, &[(AT, 64, 77)]);
    assert_eq!(traced.wrongs(), [(Wrong::KeyAfterDereg, 2)]);
}

#[test]
fn the_last_1024_ended_keys_are_known() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    for number in 1..=1025 {
        traced.reg(number, AT, 4096);
        traced.dereg(number);
    }
    traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
    assert_eq!(traced.wrongs(), []);
    traced.post(queue, Op::Send, 1, &[(AT, 64, 2)]);
    assert_eq!(traced.wrongs(), [(Wrong::KeyAfterDereg, 1)]);
}

#[test]
fn freed_registered_is_found_if_the_block_has_the_whole_region() {
    let traced = traced();
    traced.reg(1, AT + 64, 1000);
    // An arena.
    traced.reg(2, AT, 1 << 20);
    traced.recorder.gone(AT + 2048, 2048, Wrong::FreedRegistered);
    traced.recorder.gone(AT, 512, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), []);
    traced.recorder.gone(AT + 48, 1040, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::FreedRegistered, 1)]);
    let found = traced.findings()[0];
    assert_eq!((found.addr, found.len, found.key), (AT + 64, 1000, lkey(1)));
    traced.dereg(1);
    traced.recorder.gone(AT + 48, 1040, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::FreedRegistered, 1)]);
}

#[test]
fn unmapped_registered_is_found_by_any_overlap() {
    let traced = traced();
    traced.reg(1, AT, 1 << 20);
    traced.recorder.gone(AT - 4096, 4096, Wrong::UnmappedRegistered);
    traced.recorder.gone(AT + (1 << 20), 4096, Wrong::UnmappedRegistered);
    assert_eq!(traced.wrongs(), []);
    traced.recorder.gone(AT + (1 << 20) - 4096, 1 << 30, Wrong::UnmappedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::UnmappedRegistered, 1)]);
    let found = traced.findings()[0];
    assert_eq!((found.addr, found.len), (AT + (1 << 20) - 4096, 4096));
}

#[test]
fn implicit_on_demand_and_memory_of_devices_are_never_gone() {
    let traced = traced();
    let mut call = traced.blank(Verb::RegMr, object(1));
    (call.addr, call.len, call.access, call.lkey) = (0, u64::MAX, 1 << 6, lkey(1));
    traced.call(call);
    let mut call = traced.blank(Verb::RegDmMr, object(2));
    (call.addr, call.len, call.lkey) = (AT, 4096, lkey(2));
    traced.call(call);
    traced.recorder.gone(AT, 1 << 30, Wrong::UnmappedRegistered);
    traced.recorder.gone(AT, 1 << 30, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), []);
    // All that it names lies within an implicit region.
    let queue = traced.queue(8, 8);
    traced.post(queue, Op::Send, 1, &[(AT, 4096, 1)]);
    assert_eq!((traced.wrongs(), traced.mrs()[0].uses[0]), (vec![], 1));
}

#[test]
fn gone_in_flight_is_found_by_what_work_names_even_within_an_arena() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 1 << 20);
    traced.post(queue, Op::Send, 1, &[(AT + 4096, 512, 1)]);
    traced.recorder.gone(AT + 8192, 4096, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), []);
    traced.recorder.gone(AT + 4096, 4096, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::GoneInFlight, 1)]);
    let found = traced.findings()[0];
    assert_eq!((found.addr, found.len), (AT + 4096, 4096));
    assert!(found.queue != 0);
    queue.completed(traced.recorder, 1, false, 0, 0);
    traced.recorder.gone(AT + 4096, 4096, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::GoneInFlight, 1)]);
}

#[test]
fn received_twice_is_found_while_the_first_is_in_flight() {
    let traced = traced();
    let (queue, other) = (traced.queue(0, 8), traced.queue(0, 8));
    traced.reg(1, AT, 1 << 20);
    traced.post(queue, Op::Recv, 1, &[(AT, 512, 1)]);
    traced.post(queue, Op::Recv, 2, &[(AT + 512, 512, 1)]);
    queue.completed(traced.recorder, 1, true, 0, 0);
    traced.post(queue, Op::Recv, 3, &[(AT, 512, 1)]);
    assert_eq!(traced.wrongs(), []);
    // On another queue too.
    traced.post(other, Op::Recv, 4, &[(AT + 512, 512, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::ReceivedTwice, 1)]);
    // The second one's end is not the first one's.
    other.completed(traced.recorder, 4, true, 0, 0);
    traced.post(other, Op::Recv, 5, &[(AT + 512, 512, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::ReceivedTwice, 2)]);
    // Nor is sending from there.
    let sender = traced.queue(8, 0);
    traced.post(sender, Op::Send, 6, &[(AT, 512, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::ReceivedTwice, 2)]);
    queue.reset(traced.recorder);
    other.end(traced.recorder);
    traced.post(queue, Op::Recv, 7, &[(AT + 512, 512, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::ReceivedTwice, 2)]);
}

#[test]
fn outside_is_told_by_the_address_that_the_device_knows() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    let mut call = traced.blank(Verb::RegMrIova, object(1));
    (call.addr, call.len, call.iova, call.lkey) = (AT, 4096, 0x10_0000, lkey(1));
    traced.call(call);
    let mut zero = traced.blank(Verb::RegMr, object(2));
    (zero.addr, zero.len, zero.access, zero.lkey) = (AT, 4096, 1 << 5, lkey(2));
    traced.call(zero);
    traced.post(queue, Op::Write, 1, &[(0x10_0000, 4096, 1), (0, 4096, 2)]);
    assert_eq!(traced.wrongs(), []);
    traced.post(queue, Op::Write, 2, &[(0x10_0001, 4096, 1)]);
    traced.post(queue, Op::Write, 3, &[(0xF_FFFF, 16, 1)]);
    traced.post(queue, Op::Write, 4, &[(AT, 16, 2)]);
    let mut wrongs = traced.findings();
    wrongs.sort_by_key(|found| found.key);
    let seen: Vec<_> =
        wrongs.iter().map(|f| (Wrong::of(f.wrong).unwrap(), f.key, f.times)).collect();
    assert_eq!(seen, [(Wrong::Outside, lkey(1), 2), (Wrong::Outside, lkey(2), 1)]);
    assert_eq!(traced.mrs().iter().map(|mr| mr.outside).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_null_region_has_no_outside() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    let mut call = traced.blank(Verb::NullMr, object(1));
    call.lkey = lkey(1);
    traced.call(call);
    traced.post(queue, Op::Recv, 1, &[(0x1234, 4096, 1)]);
    traced.post(queue, Op::Recv, 2, &[(0x1234, 4096, 1)]);
    assert_eq!((traced.wrongs(), traced.mrs()[0].uses), (vec![], [0, 0, 0, 2, 0]));
}

#[test]
fn an_object_that_another_thread_has_already_is_told_from_the_one_that_ends() {
    let traced = traced();
    traced.reg(1, AT, 4096);
    // A deregistration that another registration overtakes: its object and keys are in use again.
    let entered = traced.recorder.enter();
    let left = traced.recorder.leave();
    traced.reg(1, AT + 8192, 4096);
    traced.recorder.called(entered, left, &traced.blank(Verb::DeregMr, object(1)));
    let seen: Vec<_> = traced.mrs().iter().map(|mr| (mr.addr, mr.dereg != 0)).collect();
    assert_eq!(seen, [(AT, true), (AT + 8192, false)]);
    let queue = traced.queue(8, 8);
    traced.post(queue, Op::Send, 1, &[(AT + 8192, 64, 1)]);
    assert_eq!((traced.wrongs(), traced.mrs()[1].uses[0]), (vec![], 1));
    traced.recorder.gone(AT, 4096, Wrong::UnmappedRegistered);
    assert_eq!(traced.wrongs(), []);
}

#[test]
fn what_handlers_of_a_fork_free_is_not_found() {
    let traced = traced();
    traced.reg(1, AT, 4096);
    Recorder::forks();
    traced.recorder.gone(AT, 4096, Wrong::FreedRegistered);
    Recorder::has_forked();
    assert_eq!(traced.wrongs(), []);
    traced.recorder.gone(AT, 4096, Wrong::FreedRegistered);
    assert_eq!(traced.wrongs(), [(Wrong::FreedRegistered, 1)]);
    // Of a thread that was inside before it stays so.
    let inside = thread::Inside::enter();
    Recorder::forks();
    Recorder::has_forked();
    assert!(thread::Inside::enter().is_none());
    drop(inside);
    assert!(thread::Inside::enter().is_some());
}

#[test]
fn an_ended_key_is_known_by_its_last_end() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    traced.reg(1, AT, 4096);
    traced.dereg(1);
    for number in 2..=1023 {
        traced.reg(number, AT, 4096);
        traced.dereg(number);
    }
    traced.reg(1, AT, 4096);
    traced.dereg(1);
    // Its first end is among the last no more.
    traced.reg(1024, AT, 4096);
    traced.dereg(1024);
    traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
    assert_eq!(traced.wrongs(), [(Wrong::KeyAfterDereg, 1)]);
}

#[test]
fn findings_without_end_count_as_the_last_of_their_kind() {
    let traced = traced();
    let queue = traced.queue(8, 8);
    for round in 0..6000 {
        traced.reg(1, AT, 4096);
        traced.recorder.gone(AT, 4096, Wrong::FreedRegistered);
        traced.dereg(1);
        if round == 5000 {
            traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
        }
    }
    let wrongs = traced.wrongs();
    let of = |kind| wrongs.iter().filter(move |(wrong, _)| *wrong == kind).map(|(_, times)| *times);
    assert_eq!(of(Wrong::FreedRegistered).count(), 4096);
    assert_eq!(of(Wrong::FreedRegistered).sum::<u64>(), 6000);
    assert_eq!(of(Wrong::KeyAfterDereg).collect::<Vec<_>>(), [1]);
}

#[test]
fn in_flight_is_what_would_be_seen_to_complete() {
    let mut traced = traced();
    traced.device = traced.recorder.device(0xDF, b"mlx5_0", 0x1234, false);
    let queue = traced.queue(8, 8);
    // Of a queue that was never seen to complete anything: it may be polled past the recorder.
    traced.reg(1, AT, 4096);
    traced.post(queue, Op::Send, 1, &[(AT, 64, 1)]);
    traced.dereg(1);
    assert_eq!(traced.wrongs(), []);
    queue.completed(traced.recorder, 1, false, 0, 0);
    traced.reg(2, AT, 4096);
    traced.post(queue, Op::Send, 2, &[(AT, 64, 2)]);
    traced.dereg(2);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);
}

#[test]
fn receives_of_a_shared_queue_are_in_flight_while_it_has_pairs() {
    let traced = traced();
    let shared = QueueInit { number: 0, kind: 0, ..traced.init(0, 8) };
    let shared = traced.recorder.queue(&shared).unwrap();
    shared.joined();
    for number in [1, 2] {
        traced.reg(number, AT * u64::from(number), 4096);
        traced.post(shared, Op::Recv, 1, &[(AT * u64::from(number), 64, number)]);
    }
    traced.dereg(1);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);
    shared.left();
    shared.left();
    traced.dereg(2);
    assert_eq!(traced.wrongs(), [(Wrong::DeregInFlight, 1)]);
}
