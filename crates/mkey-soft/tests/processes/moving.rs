//! What is moved from process to process.

use crate::end::{End, RETRIES, Setting, TIMEOUT};
use crate::servant::Servant;
use mkey_core::data_plane::{CompletionQueue, QueuePair};
use mkey_core::device::Device;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, SendOp, SendWr};
use std::time::{Duration, Instant};

/// A test over one link.
pub type Test = fn(&Setting);

/// Tests over each link.
pub const TESTS: &[(&str, Test)] = &[
    ("every_operation_moves_every_byte", every_operation_moves_every_byte),
    ("uc_moves_every_byte", uc_moves_every_byte),
    ("datagrams_come_with_their_header", datagrams_come_with_their_header),
    ("r_ord_06_a_receive_that_comes_late_is_waited_for", a_late_receive),
    ("r_ra_04_a_wrong_key_is_refused_there", a_wrong_key),
    ("r_ord_07_nobody_there", nobody_there),
    ("a_stopped_process_is_not_waited_for_longer_than_agreed", a_stopped_process),
    ("what_a_program_has_seen_is_answered_though_it_ends_at_once", an_end_at_once),
    ("a_message_is_answered_before_what_the_program_sends_back", an_echo),
    ("many_processes_at_once", many_processes),
    ("who_waits_for_an_event_is_woken", events),
];

/// Where each process has a port of its own. Of one port the other process may have taken the packet in,
/// and hands it on late, as any network may; it says nothing of its connection.
pub const OWN_PORT: &[(&str, Test)] = &[
    ("packets_of_a_former_connection_are_not_heard", a_former_connection),
    ("idle_costs_nothing", idle),
];

/// Tests that no link makes a difference to.
pub const ONCE: &[(&str, Test)] = &[
    ("numbers_tell_processes_apart", numbers),
    ("who_waits_for_a_processor_is_not_lost", a_peer_without_a_processor),
    ("without_descriptors_nobody_is_let_in_and_the_processor_rests", no_descriptors),
    ("both_sides_of_a_pair_may_be_in_one_process_too", one_process),
];

const SIZES: [usize; 17] = [
    0, 1, 7, 8, 9, 63, 64, 65, 255, 1024, 4097, 61_439, 61_440, 61_441, 65_536, 200_003, 2_000_001,
];

fn every_operation_moves_every_byte(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    for (seed, size) in SIZES.into_iter().enumerate() {
        let (seed, length) = (seed as u64 * 10, size as u32);
        end.fill(3, size, seed);
        end.succeeds(SendOp::Write(end.remote(5)), &[end.memory.sge(3, length)]);
        assert_eq!(servant.tell(&format!("holds 5 {size} {seed}")), "true", "WRITE of {size}");
        servant.tell(&format!("fill 9 {size} {}", seed + 1));
        end.succeeds(SendOp::Read(end.remote(9)), &[end.memory.sge(1, length)]);
        assert!(end.holds(1, size, seed + 1), "READ of {size}");
        servant.tell(&format!("receive 4 17 {size}"));
        end.fill(2, size, seed + 2);
        let halves = [
            end.memory.sge(2, length / 3),
            end.memory.sge(2 + u64::from(length / 3), length - length / 3),
        ];
        end.succeeds(SendOp::SendImm(9), &halves);
        assert_eq!(servant.tell("next"), format!("4 Success {size} Some(9)"));
        assert_eq!(
            servant.tell(&format!("holds 17 {size} {}", seed + 2)),
            "true",
            "SEND of {size}"
        );
        servant.tell("receive 5 0 0");
        end.fill(2, size, seed + 3);
        end.succeeds(SendOp::WriteImm(end.remote(33), 3), &[end.memory.sge(2, length)]);
        assert_eq!(servant.tell("next"), format!("5 Success {size} Some(3)"));
        assert_eq!(servant.tell(&format!("holds 33 {size} {}", seed + 3)), "true");
    }
    // The other way round, without this process polling for it.
    servant.tell("fill 100 200000 5");
    assert_eq!(servant.tell("write 100 200000"), "Success");
    assert!(end.holds(100, 200_000, 5));
    let word = [end.memory.sge(0, 8)];
    (0..8).for_each(|at| end.memory.set(at, 0));
    end.memory.set(0, 41);
    end.succeeds(SendOp::Write(end.remote(64)), &word);
    for before in 41..45 {
        end.succeeds(SendOp::FetchAdd { remote: end.remote(64), add: 1 }, &word);
        assert_eq!(end.memory.get(0), before);
    }
    let swap = SendOp::CompareSwap { remote: end.remote(64), compare: 45, swap: 7 };
    end.succeeds(swap, &word);
    assert_eq!((end.memory.get(0), servant.tell("byte 64")), (45, "7".to_owned()));
}

fn uc_moves_every_byte(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "uc");
    for (seed, size) in SIZES.into_iter().enumerate() {
        servant.tell(&format!("receive 4 17 {size}"));
        end.fill(2, size, seed as u64);
        let heard = servant.hear_from(&end, 2, size as u32);
        assert_eq!(heard, format!("4 Success {size} None"));
        assert_eq!(servant.tell(&format!("holds 17 {size} {seed}")), "true", "SEND of {size}");
    }
}

fn datagrams_come_with_their_header(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "ud");
    for (seed, size) in [0, 1, 40, 1000, 4096].into_iter().enumerate() {
        servant.tell(&format!("receive 4 0 {}", size + 40));
        end.fill(2, size, seed as u64);
        let heard = servant.hear_from(&end, 2, size as u32);
        assert_eq!(heard, format!("4 Success {} None", size + 40));
        assert_eq!(servant.tell(&format!("holds 40 {size} {seed}")), "true");
        // Version and length of an IPv4 header in the last 20 bytes; traffic class; time to live;
        // addresses. Or the same of an IPv6 header.
        let (v4, v6): (&[_], &[_]) = (
            &[(20, 0x45), (21, 0x20), (28, 64), (32, 127), (36, 127)],
            &[(0, 0x62), (7, 64), (23, 1), (39, 1)],
        );
        for (at, byte) in if end.address().ip.is_ipv4() { v4 } else { v6 } {
            assert_eq!(servant.tell(&format!("byte {at}")), format!("{byte}"), "byte {at}");
        }
    }
}

fn a_late_receive(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    end.post(1, SendOp::Send, &[end.memory.sge(0, 100)]);
    let mut none = [Completion::BLANK];
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(50) {
        assert_eq!(end.cqs.poll(&mut none).unwrap(), 0, "there is no receive yet");
    }
    servant.tell("receive 2 0 100");
    assert_eq!(end.next().status, WcStatus::Success);
    assert_eq!(servant.tell("next"), "2 Success 100 None");
}

fn a_wrong_key(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    servant.tell("receive 6 0 10");
    let mut remote = end.remote(0);
    remote.rkey.0 = remote.rkey.0.next();
    assert_eq!(
        end.run(SendOp::Write(remote), &[end.memory.sge(0, 8)]).status,
        WcStatus::RemAccessErr
    );
    assert_eq!(end.state(), QpState::Err);
    assert_eq!(servant.tell("state"), "ERR");
    assert!(servant.tell("events").contains("QpAccessErr"));
    assert_eq!(servant.tell("next"), "6 WrFlushErr 0 None");
    // It is mended as on any device.
    end.reset();
    servant.tell("reset");
    let mut end = end;
    servant.connect(&mut end);
    end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
}

/// Whether so much time is what tries without an answer take, and what comes before them, on a machine
/// that is busy.
fn is_the_agreed_time(elapsed: Duration, before: Duration) {
    let agreed = before + TIMEOUT.1 * (u32::from(RETRIES) + 1);
    assert!(elapsed >= agreed, "too soon: {elapsed:?} of {agreed:?}");
    assert!(elapsed < agreed + Duration::from_secs(2), "too late: {elapsed:?} of {agreed:?}");
}

fn nobody_there(setting: &Setting) {
    let mut servant = Servant::start(setting, "rc");
    let mut end = End::new(&setting.device(), QpKind::Rc);
    // Another number of the same process, and then no process.
    for _ in 0..2 {
        let nobody = crate::end::Address { qp_num: servant.address.qp_num ^ 1, ..servant.address };
        end.connect(nobody);
        let since = Instant::now();
        let done = end.run(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
        assert_eq!(done.status, WcStatus::RetryExcErr);
        is_the_agreed_time(since.elapsed(), Duration::ZERO);
        end.reset();
        servant.kill();
    }
}

fn a_stopped_process(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
    servant.stop();
    // More than the ring holds.
    let sges = [end.memory.sge(0, 2_000_000)];
    let since = Instant::now();
    end.post(1, SendOp::Write(end.remote(0)), &sges);
    end.post(2, SendOp::Write(end.remote(0)), &sges);
    assert_eq!(end.next().status, WcStatus::RetryExcErr);
    // By shared memory it is known not to have looked, so it may be that it waits for a processor.
    let patience = if setting.is_of_host() { 5 } else { 0 };
    is_the_agreed_time(since.elapsed(), Duration::from_secs(patience));
    assert_eq!(end.next().status, WcStatus::WrFlushErr);
    servant.go_on();
    // What it finds in the ring when it goes on is for a connection that is there still; then both
    // begin anew.
    assert_eq!(servant.tell("state"), "RTS");
    end.reset();
    servant.tell("reset");
    let mut end = end;
    servant.connect(&mut end);
    end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
}

/// A peer that gets no processor for longer than all tries take ends no connection by shared memory:
/// nothing is lost there, and that it is alive is known.
fn a_peer_without_a_processor(setting: &Setting) {
    let (end, servant) = Servant::connected(setting, "rc");
    end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
    servant.stop();
    end.post(1, SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
    let since = Instant::now();
    while since.elapsed() < 3 * TIMEOUT.1 * (u32::from(RETRIES) + 1) {
        assert_eq!(end.poll(), None);
    }
    servant.go_on();
    assert_eq!(end.next().status, WcStatus::Success);
}

fn a_former_connection(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    let mut end = end;
    for round in 0..20 {
        servant.tell("fill 0 8 1");
        servant.stop();
        // Lies in the ring while the other process is stopped, with the numbers of the next
        // connection's first packets.
        end.fill(0, 8, 2);
        end.post(1, SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
        // Where both have one UDP port, it may have come to this process, which passes it on.
        assert_eq!(end.poll(), None);
        end.reset();
        servant.go_on();
        servant.tell("reset");
        servant.tell("fill 0 8 3");
        servant.connect(&mut end);
        end.fill(100, 8, 4);
        end.succeeds(SendOp::Write(end.remote(100)), &[end.memory.sge(100, 8)]);
        assert_eq!(servant.tell("holds 100 8 4"), "true");
        assert_eq!(servant.tell("holds 0 8 3"), "true", "round {round}: an old packet was heard");
        end.reset();
        servant.tell("reset");
        servant.connect(&mut end);
    }
}

/// The thread may have shown the completion and not answered yet when the program ends the connection.
fn an_end_at_once(setting: &Setting) {
    let (mut end, mut servant) = Servant::connected(setting, "rc");
    for round in 0..4000 {
        servant.tell("receive 1 0 10");
        servant.say("last");
        let done = end.run(SendOp::Send, &[end.memory.sge(0, 10)]);
        assert_eq!(done.status, WcStatus::Success, "round {round}");
        assert_eq!(servant.answer(), "1 Success 10 None");
        end.reset();
        servant.connect(&mut end);
    }
}

/// Programs with a send queue of one entry count on it: the end of a send is there when its echo is.
fn an_echo(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    let rounds = 2000;
    assert_eq!(servant.tell(&format!("echo {rounds}")), "ready");
    for round in 0..rounds {
        end.receive(2, 100, 10);
        end.post(1, SendOp::Send, &[end.memory.sge(0, 10)]);
        let came = [end.next(), end.next()].map(|done| (done.wr_id, done.status));
        let expected = [(1, WcStatus::Success), (2, WcStatus::Success)];
        assert_eq!(came, expected, "round {round}: the send's end, then its echo");
    }
    assert_eq!(servant.answer(), "echoed");
}

fn many_processes(setting: &Setting) {
    let device = setting.device();
    let mut pairs: Vec<_> = (0..6)
        .map(|_| {
            let mut end = End::new(&device, QpKind::Rc);
            let mut servant = Servant::start(setting, "rc");
            servant.connect(&mut end);
            (end, servant)
        })
        .collect();
    for round in 0..5u64 {
        for (number, (end, _)) in pairs.iter().enumerate() {
            end.fill(0, 100_000, round * 100 + number as u64);
            end.post(number as u64, SendOp::Write(end.remote(0)), &[end.memory.sge(0, 100_000)]);
        }
        for (number, (end, servant)) in pairs.iter_mut().enumerate() {
            assert_eq!(end.next().status, WcStatus::Success);
            let seed = round * 100 + number as u64;
            assert_eq!(servant.tell(&format!("holds 0 100000 {seed}")), "true");
        }
    }
}

fn numbers(setting: &Setting) {
    let servants: Vec<_> = (0..3).map(|_| Servant::start(setting, "rc")).collect();
    let mut blocks: Vec<_> = servants.iter().map(|servant| servant.address.qp_num >> 12).collect();
    let device = setting.device();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(1, None).unwrap();
    // More queue pairs than a block has numbers.
    let init = mkey_core::queue_pair::QpInit {
        max_send_wr: 1,
        max_recv_wr: 1,
        ..mkey_core::queue_pair::QpInit::new(QpKind::Rc, cq)
    };
    let own: Vec<_> = (0..5000).map(|_| device.create_qp(pd, &init).unwrap()).collect();
    let mut numbers: Vec<_> = own.iter().map(|info| info.qp_num).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 5000);
    let mut owned: Vec<_> = numbers.iter().map(|number| number >> 12).collect();
    owned.dedup();
    blocks.extend(owned);
    let all = blocks.len();
    blocks.sort();
    blocks.dedup();
    assert_eq!(blocks.len(), all, "a block is of one process");
    assert!(!blocks.contains(&0));
}

fn events(setting: &Setting) {
    let device = setting.device();
    let channel = device.create_comp_channel().unwrap();
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(64, Some(channel)).unwrap();
    let mut end = End::on(&device, QpKind::Rc, pd, cq);
    let mut servant = Servant::start(setting, "rc");
    servant.connect(&mut end);
    for round in 0..20 {
        // Now and then it has polled without end before.
        if round % 3 == 0 {
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(2) {
                assert_eq!(end.cqs.poll(&mut [Completion::BLANK]).unwrap(), 0);
            }
        }
        end.cqs.request_notify(false).unwrap();
        servant.tell("receive 1 0 10");
        end.qp.post_send(&[SendWr::new(round, SendOp::Send, &[end.memory.sge(0, 10)])]).unwrap();
        let event = device.get_cq_event(channel, Some(Duration::from_secs(10))).unwrap();
        assert_eq!(event, Some(cq), "round {round}");
        assert_eq!(end.next().status, WcStatus::Success);
        servant.tell("next");
    }
}

fn idle(setting: &Setting) {
    let (end, mut servant) = Servant::connected(setting, "rc");
    // It has polled without end, too, before it is idle.
    for _ in 0..3 {
        end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
        servant.tell("receive 1 0 10");
        end.succeeds(SendOp::Send, &[end.memory.sge(0, 10)]);
        servant.tell("next");
    }
    let time = |servant: &mut Servant| servant.tell("time").parse::<u64>().unwrap();
    // Where processes share a port, it hands on what came for those of other tests.
    let mut used = Vec::new();
    // Answering the question costs something, too.
    while used.last().is_none_or(|&used| used >= 2000) {
        assert!(used.len() < 5, "{used:?} us of processor time in idle seconds");
        let before = time(&mut servant);
        std::thread::sleep(Duration::from_secs(1));
        used.push(time(&mut servant) - before);
    }
}

/// Who can not let a peer in for want of a descriptor leaves it waiting, and lets it in later.
fn no_descriptors(setting: &Setting) {
    let mut end = End::new(&setting.device(), QpKind::Rc);
    let mut servant = Servant::start(setting, "rc");
    servant.connect(&mut end);
    assert!(servant.tell("descriptors 1").parse::<u64>().unwrap() > 0);
    let time = |servant: &mut Servant| servant.tell("time").parse::<u64>().unwrap();
    let before = time(&mut servant);
    let done = end.run(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
    assert_eq!(done.status, WcStatus::RetryExcErr);
    let used = time(&mut servant) - before;
    assert!(used < 30_000, "{used} us of processor time while it lets nobody in");
    servant.tell("descriptors 0");
    end.reset();
    servant.tell("reset");
    servant.connect(&mut end);
    end.succeeds(SendOp::Write(end.remote(0)), &[end.memory.sge(0, 8)]);
}

fn one_process(setting: &Setting) {
    let device = setting.device();
    let (mut a, mut b) = (End::new(&device, QpKind::Rc), End::new(&device, QpKind::Rc));
    let (at_a, at_b) = (a.address(), b.address());
    a.connect(at_b);
    b.connect(at_a);
    a.fill(0, 100, 1);
    a.succeeds(SendOp::Write(a.remote(0)), &[a.memory.sge(0, 100)]);
    assert!(b.holds(0, 100, 1));
}
