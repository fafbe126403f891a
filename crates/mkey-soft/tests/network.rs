//! Queue pairs that reach each other by packets, over a network that loses, doubles, reorders, delays
//! and damages them: what they do is what they do when both are in one process.

mod common;

use common::*;
use mkey_core::device::Device;
use mkey_core::event::AsyncEvent;
use mkey_core::key::Lkey;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RemoteAddr, SendOp, Sge};
use mkey_soft::{
    Capture, Direction, Faults, Link, SoftDevice, SoftOptions, VirtualClock, VirtualNetwork,
};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a buffer of a [`Side`].
const LEN: u64 = 4 * 4096;
/// READs are apart from what is written, on both sides.
const HALF: u64 = LEN / 2;

/// Options of a device of a network.
fn on(network: &Arc<VirtualNetwork>, clock: &Arc<VirtualClock>, host: u8) -> SoftOptions {
    let options = SoftOptions::new("soft0", Ipv4Addr::new(10, 0, 0, host).into());
    SoftOptions { clock: clock.clone(), link: Link::Virtual(network.clone()), ..options }
}

/// Two connected sides on two devices.
fn networked(kind: QpKind, change: impl Fn(SoftOptions) -> SoftOptions) -> (Side, Side) {
    let (network, clock) = (VirtualNetwork::new(), Arc::new(VirtualClock::new()));
    let side = |host| {
        let device = SoftDevice::open(change(on(&network, &clock, host))).unwrap();
        Side::new(&device, |_| {}, kind)
    };
    let (a, b) = (side(1), side(2));
    connect_patiently(&a, &b);
    (a, b)
}

/// As [`connect`], with more tries than a network is likely to thwart.
fn connect_patiently(a: &Side, b: &Side) {
    for side in [a, b] {
        side.to_init();
    }
    a.to_rtr(b);
    b.to_rtr(a);
    for side in [a, b] {
        side.to_rts_with(7, 2);
    }
}

/// Lets time go on until nothing waits for it.
fn settle(sides: [&Side; 2]) {
    for _ in 0..100_000 {
        let next = sides.iter().filter_map(|side| side.device.next_timer()).min();
        let Some(next) = next else { return };
        sides[0].device.advance(next);
        sides[1].device.advance(next);
    }
    panic!("it does not come to rest");
}

#[derive(Clone, Copy, Debug)]
enum What {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    Add,
    Swap,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Of the peer's memory.
    Key,
    /// The range goes beyond the end.
    Range,
    /// Of its own memory.
    OwnKey,
    /// No receive is posted for it.
    Receive,
    /// The receive is too short.
    Short,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    length: u32,
    offset: u64,
    wrong: Wrong,
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        Just(What::Send),
        Just(What::SendImm),
        Just(What::Write),
        Just(What::WriteImm),
        Just(What::Read),
        Just(What::Add),
        Just(What::Swap),
    ]
}

/// Mostly nothing is wrong.
fn wrong() -> impl Strategy<Value = Wrong> {
    prop_oneof![
        40 => Just(Wrong::Nothing),
        1 => Just(Wrong::Key),
        1 => Just(Wrong::Range),
        1 => Just(Wrong::OwnKey),
        1 => Just(Wrong::Receive),
        1 => Just(Wrong::Short),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![Just(0u32), 1u32..64, 1000u32..1050, 2000u32..4000];
    let step = (what(), length, 0u64..64, wrong()).prop_map(|(what, length, offset, wrong)| Step {
        what,
        length,
        offset,
        wrong,
    });
    prop::collection::vec(step, 1..30)
}

/// All that can be seen of a run.
#[derive(Debug, PartialEq)]
struct Seen {
    sent: Vec<Completion>,
    received: Vec<Completion>,
    states: (QpState, QpState),
    events: Vec<bool>,
    memory: Vec<u8>,
}

/// Without what differs from run to run.
fn bare(completions: Vec<Completion>) -> Vec<Completion> {
    let bare = |completion: Completion| Completion { qp_num: 0, vendor_err: 0, ..completion };
    completions.into_iter().map(bare).collect()
}

/// Carries steps out on a pair of sides.
fn run(a: &Side, b: &Side, steps: &[Step]) -> Seen {
    let (own, far, sink) = (a.buffer(ALL), b.buffer(ALL), b.buffer(ALL));
    for at in 0..LEN as usize {
        own.set(at, (at * 7 % 251) as u8);
        far.set(at, (at * 11 % 241) as u8);
    }
    let receives = |what| matches!(what, What::Send | What::SendImm | What::WriteImm);
    for (number, step) in steps.iter().enumerate().filter(|(_, step)| receives(step.what)) {
        let room = match step.wrong {
            Wrong::Receive => break,
            Wrong::Short => step.length.saturating_sub(1),
            _ => step.length,
        };
        b.receive(number as u64, &[sink.sge(number as u64 * 8, room)]);
    }
    for (number, step) in steps.iter().enumerate() {
        let Step { what, length, offset, wrong } = *step;
        let word = matches!(what, What::Add | What::Swap);
        // A READ that is asked for once more may read what was written after it: it reads where
        // nobody writes.
        let mut remote = match what {
            What::Add | What::Swap => far.remote(offset / 8 * 8),
            What::Read => far.remote(HALF + offset),
            _ => far.remote(offset),
        };
        match wrong {
            Wrong::Key => {
                remote = RemoteAddr {
                    address: remote.address,
                    ..far.remote_by(mkey_core::key::Rkey(far.info.rkey.0.next()))
                }
            }
            Wrong::Range => remote.address.0 += LEN,
            _ => {}
        }
        let landing = matches!(what, What::Read) || word;
        let at = if landing { HALF + offset } else { offset };
        let length = if word { 8 } else { length };
        let mut sge: Sge = own.sge(at, length);
        if wrong == Wrong::OwnKey {
            sge.lkey = Lkey(sge.lkey.0.next());
        }
        let number = number as u64;
        let op = match what {
            What::Send => SendOp::Send,
            What::SendImm => SendOp::SendImm(number as u32),
            What::Write => SendOp::Write(remote),
            What::WriteImm => SendOp::WriteImm(remote, number as u32),
            What::Read => SendOp::Read(remote),
            What::Add => SendOp::FetchAdd { remote, add: 3 },
            What::Swap => SendOp::CompareSwap { remote, compare: 1, swap: 2 },
        };
        a.post(number, op, &[sge]);
        // What an operation does after one whose answer could not be put down is left open.
        if landing && wrong == Wrong::OwnKey {
            break;
        }
    }
    settle([a, b]);
    let memory = |buffer: &Buffer| (0..LEN as usize).map(|at| buffer.get(at)).collect::<Vec<_>>();
    let (sent, received) = (bare(a.poll()), bare(b.poll()));
    let all: Vec<_> = [&own, &far, &sink].into_iter().flat_map(memory).collect();
    let events = b.events();
    Seen {
        sent,
        received,
        states: (a.state(), b.state()),
        events: events.iter().map(|event| matches!(event, AsyncEvent::QpAccessErr(_))).collect(),
        memory: all,
    }
}

/// A message in parts may have placed some of its bytes when the part comes that does not fit, and a
/// refusal may be tied to the receive only where the message is one packet.
fn is_told_apart(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step.wrong {
        Wrong::Short => matches!(step.what, What::Send | What::SendImm) && step.length > 1024,
        Wrong::Key | Wrong::Range => matches!(step.what, What::WriteImm) && step.length > 1024,
        Wrong::Receive => matches!(step.what, What::WriteImm) && step.length > 1024,
        Wrong::Nothing | Wrong::OwnKey => false,
    })
}

/// A responder that has failed repeats its refusal, but does not answer READs and atomics again that
/// came before.
fn needs_its_answers(steps: &[Step]) -> bool {
    let fails = |step: &Step| matches!(step.wrong, Wrong::Key | Wrong::Range | Wrong::Short);
    let answers = |step: &Step| matches!(step.what, What::Read | What::Add | What::Swap);
    steps.iter().rposition(fails).is_some_and(|at| steps[..at].iter().any(answers))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_arrives_by_packets_is_what_arrives_inline(
        steps in steps(),
        faults in (0u32..50_000, 0u32..50_000, 0u32..100_000, 0u32..20_000, 0u64..50, any::<u64>())
            .prop_map(|(loss, duplication, reordering, corruption, delay, seed)| Faults {
                loss, duplication, reordering, corruption, delay: Duration::from_micros(delay), seed,
            }),
    ) {
        prop_assume!(!is_told_apart(&steps));
        let faults = match needs_its_answers(&steps) {
            true => Faults { loss: 0, reordering: 0, corruption: 0, ..faults },
            false => faults,
        };
        let inline = {
            let (device, kind) = (SoftDevice::open(options()).unwrap(), QpKind::Rc);
            let side = || Side::new(&device, |_| {}, kind);
            let (a, b) = (side(), side());
            connect_patiently(&a, &b);
            run(&a, &b, &steps)
        };
        let (a, b) = networked(QpKind::Rc, |options| SoftOptions { faults: Some(faults), ..options });
        let packets = run(&a, &b, &steps);
        prop_assert_eq!(&packets.sent, &inline.sent);
        prop_assert_eq!(&packets.received, &inline.received);
        prop_assert_eq!(packets.states, inline.states);
        prop_assert_eq!(&packets.events, &inline.events);
        prop_assert!(packets.memory == inline.memory, "the bytes differ");
    }
}

/// Remembers what it is shown.
#[derive(Debug, Default)]
struct Album(Mutex<Vec<(Direction, Vec<u8>)>>);

impl Capture for Album {
    fn packet(&self, direction: Direction, packet: &[u8]) {
        self.0.lock().unwrap().push((direction, packet.to_vec()));
    }
}

/// Each packet is shown as it is on a wire, to whoever sends and to whoever receives it.
#[test]
fn captures_show_every_packet() {
    let albums = [Arc::new(Album::default()), Arc::new(Album::default())];
    let (network, clock) = (VirtualNetwork::new(), Arc::new(VirtualClock::new()));
    let sides: Vec<_> = (1..)
        .zip(&albums)
        .map(|(host, album)| {
            let capture: Arc<dyn Capture> = album.clone();
            let options = SoftOptions { capture: Some(capture), ..on(&network, &clock, host) };
            Side::new(&SoftDevice::open(options).unwrap(), |_| {}, QpKind::Rc)
        })
        .collect();
    let (a, b) = (&sides[0], &sides[1]);
    connect(a, b);
    let (own, far) = (a.buffer(ALL), b.buffer(ALL));
    a.post(1, SendOp::Write(far.remote(0)), &[own.sge(0, 3000)]);
    a.post(2, SendOp::Read(far.remote(0)), &[own.sge(0, 100)]);
    settle([a, b]);
    assert_eq!(a.done(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    let [at_a, at_b] = albums.map(|album| album.0.lock().unwrap().clone());
    // Three of the WRITE and the READ; one acknowledgement and the bytes of the READ.
    let opcodes: Vec<_> = at_a.iter().map(|(direction, packet)| (direction, packet[28])).collect();
    assert_eq!(opcodes.len(), 4 + 2, "{opcodes:x?}");
    let of = |all: &[(Direction, Vec<u8>)], direction| {
        let mut packets: Vec<_> = all.iter().filter(|(of, _)| *of == direction).cloned().collect();
        packets.iter_mut().for_each(|(direction, _)| *direction = Direction::Sent);
        packets
    };
    assert_eq!(of(&at_a, Direction::Sent), of(&at_b, Direction::Received));
    assert_eq!(of(&at_b, Direction::Sent), of(&at_a, Direction::Received));
    for (_, packet) in &at_a {
        let frame = mkey_wire::frame::Frame::parse(mkey_wire::pcap::LinkType::Raw, packet).unwrap();
        assert_eq!(frame.icrc(), Some(frame.packet().unwrap().icrc));
    }
}

/// UC and UD tell nobody of what is lost, and what arrives is whole.
#[test]
fn unreliable_transports_lose_messages_whole() {
    for kind in [QpKind::Uc, QpKind::Ud] {
        let faults = Faults { loss: 100_000, seed: 3, ..Faults::default() };
        let (a, b) = networked(kind, |options| SoftOptions { faults: Some(faults), ..options });
        let (own, sink) = (a.buffer(ALL), b.buffer(ALL));
        let (length, header) = if kind == QpKind::Ud { (1000, 40) } else { (3000, 0) };
        let ah = (kind == QpKind::Ud).then(|| a.device.create_ah(a.pd, &b.ah()).unwrap());
        let dest = ah.map(|ah| mkey_core::work::UdDest { ah, qp_num: b.info.qp_num, qkey: QKEY });
        for number in 0..100 {
            b.receive(number, &[sink.sge(0, length + header)]);
            let sges = [own.sge(0, length)];
            let wr = mkey_core::work::SendWr::new(number, SendOp::Send, &sges);
            use mkey_core::data_plane::QueuePair;
            a.qp.post_send(&[mkey_core::work::SendWr { dest, ..wr }]).unwrap();
        }
        settle([&a, &b]);
        assert!(a.poll().iter().all(|done| done.status == WcStatus::Success), "{kind}");
        let received = b.poll();
        assert!((40..99).contains(&received.len()), "{kind}: {} arrived", received.len());
        assert!(
            received
                .iter()
                .all(|done| done.status == WcStatus::Success && done.byte_len == length + header)
        );
    }
}

/// The peer is there, but says nothing: each try takes its time, and then it ends.
#[test]
fn r_ord_07_nothing_arrives() {
    let faults = Faults { loss: 1_000_000, ..Faults::default() };
    let (a, b) = networked(QpKind::Rc, |options| SoftOptions { faults: Some(faults), ..options });
    let far = b.buffer(ALL);
    let begun = a.device.now();
    a.post(1, SendOp::Write(far.remote(0)), &[]);
    a.post(2, SendOp::Write(far.remote(0)), &[]);
    settle([&a, &b]);
    assert_eq!(a.done(), [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(a.device.now() - begun, TIMEOUT * 8);
}

/// A queue pair in SQD finishes what has begun, and begins nothing.
#[test]
fn sqd_holds_messages_back() {
    let (a, b) = networked(QpKind::Rc, |options| options);
    let (own, sink) = (a.buffer(ALL), b.buffer(ALL));
    a.post(1, SendOp::Send, &[own.sge(0, 3000)]);
    a.device.advance(a.device.now());
    a.go(QpState::Sqd);
    a.post(2, SendOp::Send, &[own.sge(0, 8)]);
    assert_eq!(a.events(), [], "the first is not done: there is no receive");
    b.receive(3, &[sink.sge(0, 3000)]);
    b.receive(4, &[sink.sge(0, 3000)]);
    settle([&a, &b]);
    assert_eq!(a.done(), [(1, WcStatus::Success)]);
    assert_eq!(a.events(), [AsyncEvent::SqDrained(a.handle())]);
    a.go(QpState::Rts);
    settle([&a, &b]);
    assert_eq!(a.done(), [(2, WcStatus::Success)]);
    assert_eq!(b.done(), [(3, WcStatus::Success), (4, WcStatus::Success)]);
}

/// What answers a long READ goes out in turns, but all of it: it is not asked for once more.
#[test]
fn a_long_read_is_answered_to_its_end() {
    const LONG: u32 = 300_000;
    let (a, b) = networked(QpKind::Rc, |options| options);
    let buffer = |side: &Side| Buffer::new(&side.device, side.pd, LONG as usize, ALL);
    let (own, far) = (buffer(&a), buffer(&b));
    far.set(LONG as usize - 1, 7);
    let begun = a.device.now();
    a.post(1, SendOp::Read(far.remote(0)), &[own.sge(0, LONG)]);
    a.pass(Duration::ZERO);
    assert_eq!(a.done(), [(1, WcStatus::Success)]);
    assert_eq!(a.device.now(), begun, "no time has gone by");
    assert_eq!(own.get(LONG as usize - 1), 7);
}

/// Two sides, of which `b` has lost what answers a READ that it has carried out.
fn with_a_lost_answer() -> (Side, Side, Buffer, Buffer) {
    let (network, clock) = (VirtualNetwork::new(), Arc::new(VirtualClock::new()));
    let side = |host, faults| {
        let options = SoftOptions { faults, ..on(&network, &clock, host) };
        Side::new(&SoftDevice::open(options).unwrap(), |_| {}, QpKind::Rc)
    };
    // The first packet is lost and the second one is not.
    let faults = Faults { loss: 500_000, seed: 3, ..Faults::default() };
    let (a, b) = (side(1, None), side(2, Some(faults)));
    connect(&a, &b);
    let (own, far) = (a.buffer(ALL), b.buffer(ALL));
    a.post(1, SendOp::Read(far.remote(0)), &[own.sge(0, 100)]);
    a.pass(Duration::ZERO);
    assert_eq!(a.done(), [], "the answer is lost");
    (a, b, own, far)
}

#[test]
fn r_ra_21_a_lost_answer_to_a_read_is_given_once_more() {
    let (a, b, _own, _far) = with_a_lost_answer();
    settle([&a, &b]);
    assert_eq!(a.done(), [(1, WcStatus::Success)]);
}

/// A READ that comes once more, late, does no harm: the memory may be nobody's by now, as the requester
/// that had its answer has said so.
#[test]
fn r_ra_21_a_late_duplicate_of_a_read_fails_nobody() {
    let (a, b, _own, far) = with_a_lost_answer();
    b.device.dereg_mr(far.handle()).unwrap();
    b.events();
    settle([&a, &b]);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    assert_eq!(a.done(), [(1, WcStatus::RetryExcErr)]);
}

/// What the queue pair lets nobody read any more it does not give once more either.
#[test]
fn r_ra_02_a_duplicate_of_a_read_needs_the_right_still() {
    let (a, b, _own, _far) = with_a_lost_answer();
    let rights = Some(ALL.difference(mkey_core::rights::Rights::REMOTE_READ));
    b.modify(mkey_core::queue_pair::QpModify { rights, ..Default::default() });
    b.events();
    settle([&a, &b]);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    assert_eq!(a.done(), [(1, WcStatus::RetryExcErr)]);
}
