//! A requester and a responder over a network that loses, doubles and reorders packets, in virtual
//! time: all messages are carried out once and in order, and end as they should.

use super::*;
use mkey_core::refusal::PdId;
use mkey_core::status::WcStatus;
use mkey_wire::bth::Fields;
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::{Credits, NakCode, Syndrome};
use mkey_wire::timer::RnrTimer;
use mkey_wire::u24::{Msn, Psn, Qpn};
use mkey_wire::{aeth, atomic_eth, reth};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1);
const DOMAIN: PdId = PdId(1);

fn psn(psn: u32) -> Psn {
    Psn::wrapping(psn)
}

/// A receiver that is not ready: 10 us.
fn rnr() -> RnrTimer {
    RnrTimer::from_code(1)
}

fn range(length: u64) -> reth::Repr {
    reth::Repr { address: 0, rkey: 0, length: length as u32 }
}

fn fetch_add() -> Request {
    Request::FetchAdd(atomic_eth::Repr { address: 0, rkey: 0, swap_or_add: 1, compare: 0 })
}

fn send(first: bool, last: bool) -> Request {
    Request::Send(match (first, last) {
        (true, true) => Send::Only(Tail::Plain),
        (true, false) => Send::First,
        (false, true) => Send::Last(Tail::Plain),
        (false, false) => Send::Middle,
    })
}

fn write(first: bool, last: bool, total: u64) -> Request {
    Request::Write(match (first, last) {
        (true, true) => Write::Only(range(total), None),
        (true, false) => Write::First(range(total)),
        (false, true) => Write::Last(None),
        (false, false) => Write::Middle,
    })
}

fn fields(at: Psn, ack_request: bool) -> Fields {
    Fields { ack_request, ..Fields::new(Qpn::default(), at) }
}

fn said(syndrome: Syndrome) -> Response {
    Response::Acknowledge(aeth::Repr { syndrome, msn: Msn::default() })
}

const DONE: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

/// What one of the messages is.
#[derive(Clone, Copy, Debug)]
enum Work {
    Send(u64),
    Write(u64),
    Read(u32),
    Atomic,
    Local { alone: bool },
}

/// A packet under way.
#[derive(Clone, Copy, Debug)]
enum Packet {
    /// Of which message, and which of its bytes.
    Request(Fields, Request, u64, u64, u64),
    Response(Psn, Response, u64),
}

/// How the network treats packets, in parts of 1000.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    loss: u64,
    double: u64,
    reorder: u64,
}

struct World {
    weather: Weather,
    dice: fastrand::Rng,
    now: Duration,
    under_way: BTreeMap<(Duration, u64), Packet>,
    count: u64,
    work: Vec<Work>,
    transport: Transport,
    requester: Requester,
    responder: Responder,
    /// How many SENDs find no receive first.
    unready: u64,
    /// The messages that the responder carried out, and how many bytes of each came.
    carried_out: Vec<(u64, u64)>,
    /// Bytes of the message that is coming in.
    coming: u64,
    landed: Vec<u64>,
    counter: u64,
    words: Vec<u64>,
    ended: Vec<Result<(), Ending>>,
    packets: u64,
}

impl World {
    fn new(seed: u64, weather: Weather, transport: Transport, answers: u8) -> Self {
        let patience = Patience { answers, receivers: 7, timeout: Some(TIMEOUT) };
        Self {
            weather,
            dice: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            under_way: BTreeMap::new(),
            count: 0,
            work: Vec::new(),
            transport,
            requester: Requester::new(transport, patience, 4),
            responder: Responder::new(transport.reliable, transport.psn, 4),
            unready: 0,
            carried_out: Vec::new(),
            coming: 0,
            landed: Vec::new(),
            counter: 0,
            words: Vec::new(),
            ended: Vec::new(),
            packets: 0,
        }
    }

    fn push(&mut self, work: Work) {
        let (kind, length) = match work {
            Work::Send(length) | Work::Write(length) => (Kind::Data, length),
            Work::Read(length) => (Kind::Read, u64::from(length)),
            Work::Atomic => (Kind::Atomic, 8),
            Work::Local { alone } => (Kind::Local { alone }, 0),
        };
        self.work.push(work);
        self.landed.push(0);
        self.requester.push(Message { kind, length, fence: false });
    }

    fn launch(&mut self, packet: Packet) {
        self.packets += 1;
        let mut copies = 1;
        if self.dice.u64(..1000) < self.weather.loss {
            copies = 0;
        } else if self.dice.u64(..1000) < self.weather.double {
            copies = 2;
        }
        for _ in 0..copies {
            let late = self.dice.u64(..1000) < self.weather.reorder;
            let takes = 10 + if late { self.dice.u64(..200) } else { 0 };
            let arrives = self.now + Duration::from_micros(takes);
            self.under_way.insert((arrives, self.count), packet);
            self.count += 1;
        }
    }

    fn send_what_can_be_sent(&mut self) {
        loop {
            // What ends may be what the next one waits for.
            while let Some(ended) = self.requester.take_ended() {
                if ended.is_err() {
                    self.requester.clear();
                }
                self.ended.push(ended);
            }
            match self.requester.next(self.now, false) {
                Next::Nothing => break,
                Next::Local(message) => {
                    self.carried_out.push((message, 0));
                    self.requester.executed(message);
                }
                Next::Packet(out) => {
                    self.requester.sent(self.now);
                    let (first, last) = (out.first, out.last);
                    let (request, bytes) = match self.work[out.message as usize] {
                        Work::Send(_) => (send(first, last), out.length),
                        Work::Write(total) => (write(first, last, total), out.length),
                        Work::Read(_) => (Request::Read(range(out.length)), 0),
                        _ => (fetch_add(), 0),
                    };
                    let fields = fields(out.psn, out.wants_ack);
                    self.launch(Packet::Request(fields, request, out.message, out.offset, bytes));
                }
            }
        }
        while let Some(reply) = self.responder.next() {
            self.responder.sent();
            let bytes = reply.bytes.map_or(0, |bytes| u64::from(bytes.reth.length));
            self.launch(Packet::Response(reply.psn, reply.response, bytes));
        }
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Response(psn, response, bytes) => {
                match self.requester.hear(psn, &response, bytes, self.now) {
                    Heard::Nothing => {}
                    Heard::Land { message, offset } => {
                        let landed = &mut self.landed[message as usize];
                        assert_eq!(*landed, offset, "in order and once");
                        *landed += bytes;
                    }
                    Heard::Word { original, .. } => self.words.push(original),
                }
            }
            Packet::Request(fields, request, message, offset, bytes) => {
                let mtu = self.transport.mtu;
                let answered = match self.responder.admit(fields.psn, &request, bytes, mtu) {
                    Admit::Nothing => return,
                    Admit::Again(reth) => {
                        return self.responder.replay(fields.psn, reth, mtu, DOMAIN);
                    }
                    Admit::Invalid => panic!("{request:?} of {:?}", self.work[message as usize]),
                    Admit::Send { before } | Admit::Write { before, .. } => {
                        let (first, last, send) = match request {
                            Request::Send(send) => (send.begins(), send.ends(), true),
                            Request::Write(write) => (write.begins(), write.ends(), false),
                            _ => unreachable!("only these come in parts"),
                        };
                        assert_eq!(before, offset);
                        if before == 0 && send && self.unready > 0 {
                            self.unready -= 1;
                            Answered::Nak(Syndrome::RnrNak(rnr()))
                        } else {
                            if first {
                                self.coming = 0;
                            }
                            assert_eq!(self.coming, offset, "no part is missing or comes twice");
                            self.coming += bytes;
                            if last {
                                self.carried_out.push((message, self.coming));
                            }
                            Answered::Done
                        }
                    }
                    Admit::Whole => {
                        // A long READ comes as many.
                        let begun = matches!(request, Request::Read(_))
                            && self.carried_out.contains(&(message, 0));
                        if !begun {
                            self.carried_out.push((message, 0));
                        }
                        match request {
                            Request::Read(_) => Answered::Done,
                            _ => {
                                self.counter += 1;
                                Answered::Original(self.counter - 1)
                            }
                        }
                    }
                };
                self.responder.answered(&fields, &request, bytes, mtu, DOMAIN, answered);
            }
        }
    }

    /// Runs until nothing is under way and nothing waits for the time; how many steps it took.
    fn run(&mut self) {
        for _ in 0..200_000 {
            self.send_what_can_be_sent();
            let arrival = self.under_way.first_key_value().map(|(&(at, _), _)| at);
            let deadline = self.requester.deadline();
            let Some(next) = arrival.into_iter().chain(deadline).min() else { return };
            self.now = self.now.max(next);
            while let Some(entry) = self.under_way.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let packet = entry.remove();
                self.arrive(packet);
            }
            self.requester.on_time(self.now);
        }
        panic!("it does not end");
    }
}

fn transport(mtu: u32, first: u32) -> Transport {
    Transport { reliable: true, mtu, psn: psn(first), window: 16 }
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        (0u64..2000).prop_map(Work::Send),
        (0u64..2000).prop_map(Work::Write),
        prop_oneof![0u32..2000, 0u32..12_000].prop_map(Work::Read),
        Just(Work::Atomic),
        any::<bool>().prop_map(|alone| Work::Local { alone }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// R-ORD-05, R-RA-18, R-RA-21: whatever the network does, each message is carried out once, in
    /// order and whole, and ends well.
    #[test]
    fn r_ord_05_what_arrives_is_what_was_asked(
        seed: u64,
        weather in (0u64..80, 0u64..80, 0u64..200)
            .prop_map(|(loss, double, reorder)| Weather { loss, double, reorder }),
        all in prop::collection::vec(work(), 1..40),
        psn in prop_oneof![Just(0u32), Just(0xff_fff0), 0u32..1 << 24],
        unready in 0u64..4,
    ) {
        let mut world = World::new(seed, weather, transport(256, psn), 200);
        world.unready = unready;
        for &work in &all {
            world.push(work);
        }
        world.run();
        prop_assert_eq!(&world.ended, &vec![Ok(()); all.len()]);
        let mut words = 0;
        let local = |number: usize| matches!(all[number], Work::Local { .. });
        let remote: Vec<_> =
            world.carried_out.iter().filter(|(number, _)| !local(*number as usize)).collect();
        let wanted: Vec<_> = (0..all.len()).filter(|&number| !local(number)).collect();
        prop_assert_eq!(remote.len(), wanted.len(), "each once");
        for (done, &number) in remote.iter().zip(&wanted) {
            prop_assert_eq!(done.0, number as u64);
            match all[number] {
                Work::Send(length) | Work::Write(length) => prop_assert_eq!(done.1, length),
                Work::Read(length) => prop_assert_eq!(world.landed[number], u64::from(length)),
                _ => words += 1,
            }
        }
        prop_assert_eq!(&world.words, &(0..words).collect::<Vec<_>>());
    }

    /// UC: what arrives is a part of what was sent, in order, and nothing is told.
    #[test]
    fn unreliable_messages_arrive_whole_or_not_at_all(
        seed: u64,
        loss in 0u64..300,
        all in prop::collection::vec((0u64..2000).prop_map(Work::Send), 1..40),
    ) {
        let transport = Transport { reliable: false, ..transport(256, 0xff_fffe) };
        let mut world = World::new(seed, Weather { loss, ..Weather::default() }, transport, 0);
        for &work in &all {
            world.push(work);
        }
        world.run();
        prop_assert_eq!(&world.ended, &vec![Ok(()); all.len()]);
        prop_assert!(world.carried_out.is_sorted_by_key(|&(number, _)| number));
        for (number, bytes) in &world.carried_out {
            let Work::Send(length) = all[*number as usize] else { unreachable!() };
            prop_assert_eq!(*bytes, length);
        }
        if loss == 0 {
            prop_assert_eq!(world.carried_out.len(), all.len());
        }
    }
}

#[test]
fn r_ord_07_tries_end_after_their_time() {
    let all_lost = Weather { loss: 1000, ..Weather::default() };
    let mut world = World::new(1, all_lost, transport(256, 7), 2);
    world.push(Work::Write(1000));
    world.push(Work::Local { alone: true });
    world.run();
    assert_eq!(world.now, TIMEOUT * 3, "the first try and two more");
    assert_eq!(world.ended, [Err(Ending::bare(WcStatus::RetryExcErr))]);
    assert_eq!(world.packets, 3 * 4);
}

#[test]
fn a_lost_packet_is_missed_at_once() {
    let mut world = World::new(1, Weather::default(), transport(256, 0xff_ffff), 1);
    world.push(Work::Send(256 * 8));
    world.send_what_can_be_sent();
    let third = *world.under_way.keys().nth(2).unwrap();
    world.under_way.remove(&third);
    world.run();
    assert_eq!(world.ended, [Ok(())]);
    assert!(world.now < TIMEOUT, "it was not waited for: {:?}", world.now);
    assert_eq!(world.packets, 8 + 1 + 6 + 1, "one NAK, the six from the third on, one ACK");
}

#[test]
fn r_ord_06_a_receiver_that_is_not_ready_is_waited_for() {
    let mut world = World::new(1, Weather::default(), transport(256, 0), 0);
    world.unready = 5;
    world.push(Work::Send(600));
    world.push(Work::Write(0));
    world.run();
    assert_eq!(world.ended, [Ok(()), Ok(())]);
    assert!(world.now >= rnr().time() * 5);
}

#[test]
fn r_ord_06_receiver_tries_end() {
    let mut world = World::new(1, Weather::default(), transport(256, 0), 0);
    let patience = Patience { answers: 0, receivers: 2, timeout: Some(TIMEOUT) };
    world.requester.set(patience, 1);
    world.unready = 3;
    world.push(Work::Send(0));
    world.run();
    assert_eq!(world.ended, [Err(Ending::bare(WcStatus::RnrRetryExcErr))]);
    assert_eq!(world.unready, 0);
}

/// As many READs and atomics are under way as was agreed on, and a fence waits for all of them.
#[test]
fn r_ord_01_reads_are_limited_and_fences_wait() {
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let mut requester = Requester::new(transport(256, 0), patience, 2);
    for kind in [Kind::Read, Kind::Atomic, Kind::Read, Kind::Data] {
        requester.push(Message { kind, length: 8, fence: kind == Kind::Data });
    }
    let sent = |requester: &mut Requester| {
        let mut all = VecDeque::new();
        while let Next::Packet(out) = requester.next(Duration::ZERO, false) {
            requester.sent(Duration::ZERO);
            all.push_back(out.message);
        }
        all
    };
    assert_eq!(sent(&mut requester), [0, 1]);
    let heard = requester.hear(psn(0), &Response::Read(ReadResponse::Middle), 8, Duration::ZERO);
    assert_eq!(heard, Heard::Land { message: 0, offset: 0 });
    assert_eq!(sent(&mut requester), [2]);
    requester.hear(psn(1), &word(0), 0, Duration::ZERO);
    assert_eq!(sent(&mut requester), [], "the fence waits for the second READ");
    requester.hear(psn(2), &Response::Read(ReadResponse::Middle), 8, Duration::ZERO);
    assert_eq!(sent(&mut requester), [3]);
}

/// As one lost response has all that follow it sent once more, READs are asked for as far as their
/// responses fit the window; a longer one is under way alone.
#[test]
fn reads_are_asked_for_as_far_as_their_answers_fit_the_window() {
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let transport = Transport { window: 4, ..transport(256, 0) };
    let mut requester = Requester::new(transport, patience, 16);
    for packets in [1, 3, 1, 5, 1] {
        requester.push(Message { kind: Kind::Read, length: 256 * packets, fence: false });
    }
    let sent = |requester: &mut Requester| {
        let mut all = VecDeque::new();
        while let Next::Packet(out) = requester.next(Duration::ZERO, false) {
            requester.sent(Duration::ZERO);
            all.push_back(out.message);
        }
        all
    };
    let mut landed = 0;
    let mut land = |requester: &mut Requester, count: u32| {
        for at in landed..landed + count {
            let response = Response::Read(ReadResponse::Middle);
            let heard = requester.hear(psn(at), &response, 256, Duration::ZERO);
            assert!(matches!(heard, Heard::Land { .. }), "{at}");
        }
        landed += count;
    };
    assert_eq!(sent(&mut requester), [0, 1]);
    land(&mut requester, 1);
    assert_eq!(sent(&mut requester), [2]);
    land(&mut requester, 3);
    assert_eq!(sent(&mut requester), [], "one is awaited, and five are too many");
    land(&mut requester, 1);
    assert_eq!(sent(&mut requester), [3]);
    land(&mut requester, 4);
    assert_eq!(sent(&mut requester), [4]);
    land(&mut requester, 2);
    for _ in 0..5 {
        assert_eq!(requester.take_ended(), Some(Ok(())));
    }
}

/// An answer that comes when its request is about to be sent again saves that, and no more.
#[test]
fn r_inv_11_local_work_is_not_passed_over() {
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let mut requester = Requester::new(transport(256, 0), patience, 1);
    requester.push(Message { kind: Kind::Read, length: 8, fence: false });
    requester.push(Message { kind: Kind::Local { alone: true }, length: 0, fence: false });
    assert!(matches!(requester.next(Duration::ZERO, false), Next::Packet(_)));
    requester.sent(Duration::ZERO);
    assert_eq!(requester.next(Duration::ZERO, false), Next::Nothing);
    requester.on_time(TIMEOUT);
    requester.hear(psn(0), &Response::Read(ReadResponse::Middle), 8, TIMEOUT);
    assert_eq!(requester.next(TIMEOUT, false), Next::Nothing, "the READ is not taken out yet");
    assert_eq!(requester.take_ended(), Some(Ok(())));
    assert_eq!(requester.next(TIMEOUT, false), Next::Local(1));
}

/// A response of the wrong length is no answer.
#[test]
fn a_read_response_of_another_length_is_a_bad_response() {
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let mut requester = Requester::new(transport(256, 0), patience, 1);
    requester.push(Message { kind: Kind::Read, length: 300, fence: false });
    assert!(matches!(requester.next(Duration::ZERO, false), Next::Packet(_)));
    requester.sent(Duration::ZERO);
    let heard = requester.hear(psn(0), &Response::Read(ReadResponse::Middle), 255, Duration::ZERO);
    assert_eq!(heard, Heard::Nothing);
    assert_eq!(requester.take_ended(), Some(Err(Ending::bare(WcStatus::BadRespErr))));
}

/// The peer judges a READ by its whole length, and knows what is asked for once more as a part of it.
#[test]
fn a_long_read_is_asked_for_at_once_and_what_is_missing_of_it_once_more() {
    const LENGTH: u64 = 256 * 30 + 1;
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let mut requester = Requester::new(transport(256, 0), patience, 1);
    requester.push(Message { kind: Kind::Read, length: LENGTH, fence: false });
    let asked = |requester: &mut Requester| match requester.next(Duration::ZERO, false) {
        Next::Packet(out) => {
            requester.sent(Duration::ZERO);
            Some((out.psn.get(), out.offset, out.length))
        }
        _ => None,
    };
    let answer = |requester: &mut Requester, at: u64| {
        let bytes = if at < 30 { 256 } else { 1 };
        requester.hear(psn(at as u32), &Response::Read(ReadResponse::Middle), bytes, Duration::ZERO)
    };
    assert_eq!(asked(&mut requester), Some((0, 0, LENGTH)));
    assert_eq!(asked(&mut requester), None);
    for at in 0..5 {
        assert_eq!(answer(&mut requester, at), Heard::Land { message: 0, offset: at * 256 });
    }
    assert_eq!(answer(&mut requester, 6), Heard::Nothing, "5 is missing");
    assert_eq!(asked(&mut requester), Some((5, 5 * 256, LENGTH - 5 * 256)));
    assert_eq!(asked(&mut requester), None);
    for at in 5..31 {
        assert_eq!(answer(&mut requester, at), Heard::Land { message: 0, offset: at * 256 });
    }
    assert_eq!(requester.take_ended(), Some(Ok(())));
}

/// Answers to what was never sent, and old ones, change nothing.
#[test]
fn answers_that_nobody_waits_for_are_not_heard() {
    let patience = Patience { answers: 1, receivers: 1, timeout: Some(TIMEOUT) };
    let mut requester = Requester::new(transport(256, 5), patience, 1);
    requester.push(Message { kind: Kind::Data, length: 600, fence: false });
    requester.next(Duration::ZERO, false);
    requester.sent(Duration::ZERO);
    for at in [4, 6, 7, 100, 0x80_0000, 0xff_ffff].map(psn) {
        for syndrome in [DONE, Syndrome::Nak(NakCode::PsnSequence), Syndrome::RnrNak(rnr())] {
            requester.hear(at, &said(syndrome), 0, Duration::ZERO);
            requester.hear(at, &Response::Read(ReadResponse::Middle), 256, Duration::ZERO);
            requester.hear(at, &word(1), 0, Duration::ZERO);
        }
    }
    assert_eq!(requester.take_ended(), None);
    let Next::Packet(out) = requester.next(Duration::ZERO, false) else { panic!("more is to go") };
    assert_eq!((out.psn, out.offset), (psn(6), 256));
}

fn word(original: u64) -> Response {
    let aeth = aeth::Repr { syndrome: DONE, msn: Msn::default() };
    Response::AtomicAcknowledge { aeth, original }
}

/// Lets a responder do what it is asked.
fn carry_out(responder: &mut Responder, at: u32, request: &Request, payload: u64) {
    let admit = responder.admit(psn(at), request, payload, 256);
    assert!(!matches!(admit, Admit::Nothing | Admit::Invalid), "{request:?}");
    let answered = match request {
        Request::FetchAdd(_) => Answered::Original(u64::from(at) + 70),
        _ => Answered::Done,
    };
    responder.answered(&fields(psn(at), true), request, payload, 256, DOMAIN, answered);
}

/// Asks a responder once more for what it has read before.
fn again(responder: &mut Responder, at: u32, request: &Request) {
    let Admit::Again(reth) = responder.admit(psn(at), request, 0, 256) else {
        panic!("it is not known: {request:?}")
    };
    responder.replay(psn(at), reth, 256, DOMAIN);
}

/// Requests, each with the bytes of its payload.
type Packets<'a> = &'a [(Request, u64)];

/// R-RA-13, R-RA-14, R-ERR-04: lengths and the order of parts.
#[test]
fn r_ra_14_packets_that_do_not_fit_are_invalid() {
    let read = Request::Read(range(1));
    let word = |address, length| Request::AtomicWrite(reth::Repr { address, ..range(length) });
    let bad: [(Packets<'_>, Request, u64); 15] = [
        (&[], send(true, false), 255),
        (&[], send(true, true), 257),
        (&[], send(false, false), 256),
        (&[], send(false, true), 1),
        (&[(send(true, false), 256)], send(false, true), 0),
        (&[(send(true, false), 256)], send(false, false), 100),
        (&[(send(true, false), 256)], send(true, true), 1),
        (&[(send(true, false), 256)], write(false, true, 0), 1),
        (&[(send(true, false), 256)], read, 0),
        (&[], write(true, true, 8), 7),
        (&[], write(true, false, 256), 256),
        (&[(write(true, false, 300), 256)], write(false, true, 0), 45),
        (&[], word(4, 8), 8),
        (&[], word(8, 4), 4),
        (&[(send(true, false), 256)], word(8, 8), 8),
    ];
    for (before, request, payload) in bad {
        let mut responder = Responder::new(true, psn(0), 1);
        for (at, (request, payload)) in before.iter().enumerate() {
            carry_out(&mut responder, at as u32, request, *payload);
        }
        let admit = responder.admit(psn(before.len() as u32), &request, payload, 256);
        assert_eq!(admit, Admit::Invalid, "{request:?}");
    }
}

/// R-RA-21: what was kept is replayed, what was not is not.
#[test]
fn r_ra_21_only_what_was_asked_last_is_replayed() {
    let mut responder = Responder::new(true, psn(0), 1);
    for at in 0..2 {
        carry_out(&mut responder, at, &fetch_add(), 0);
        responder.sent();
    }
    for at in [0, 1].map(psn) {
        assert_eq!(responder.admit(at, &fetch_add(), 0, 256), Admit::Nothing);
    }
    let reply = responder.next().unwrap();
    assert!(matches!(reply.response, Response::AtomicAcknowledge { original: 71, .. }));
    assert_eq!(reply.psn, psn(1));
    responder.sent();
    assert_eq!(responder.next(), None);
    carry_out(&mut responder, 2, &Request::Read(range(600)), 0);
    // All of it was sent; the last two packets were lost.
    for _ in 0..3 {
        responder.sent();
    }
    let rest = Request::Read(reth::Repr { address: 256, ..range(600 - 256) });
    again(&mut responder, 3, &rest);
    let mut replies = Vec::new();
    while let Some(reply) = responder.next() {
        responder.sent();
        let Response::Read(read) = reply.response else { panic!("{reply:?}") };
        let bytes = reply.bytes.unwrap().reth;
        replies.push((reply.psn.get(), read.begins(), read.ends(), bytes.address, bytes.length));
    }
    assert_eq!(replies, [(3, true, false, 256, 256), (4, false, true, 512, 88)]);
    // More than was read before.
    assert_eq!(responder.admit(psn(3), &Request::Read(range(600)), 0, 256), Admit::Nothing);
    assert_eq!(responder.next(), None);
}

/// Who asks once more for the rest of a READ does not wait for what is left of the first answer, and
/// what follows the READ is answered after it still.
#[test]
fn what_is_asked_once_more_is_answered_once() {
    let mut responder = Responder::new(true, psn(0), 4);
    carry_out(&mut responder, 0, &Request::Read(range(256 * 30)), 0);
    carry_out(&mut responder, 30, &send(true, true), 0);
    (0..10).for_each(|_| responder.sent());
    let rest = Request::Read(reth::Repr { address: 256 * 5, ..range(256 * 25) });
    again(&mut responder, 5, &rest);
    again(&mut responder, 5, &rest);
    let replies = std::iter::from_fn(|| {
        let reply = responder.next()?;
        responder.sent();
        Some((reply.psn.get(), reply.bytes.map(|bytes| bytes.reth.address)))
    });
    let wanted: Vec<_> = (5..30).map(|at| (at, Some(256 * u64::from(at)))).collect();
    assert_eq!(replies.collect::<Vec<_>>(), [wanted, vec![(30, None)]].concat());
}

/// A refusal that was lost on the way is told again; nothing else is, after a failure.
#[test]
fn a_refusal_is_told_again() {
    let mut responder = Responder::new(true, psn(3), 1);
    let only = send(true, true);
    assert_eq!(responder.admit(psn(3), &only, 0, 256), Admit::Send { before: 0 });
    let syndrome = Syndrome::Nak(NakCode::RemoteOperational);
    responder.answered(&fields(psn(3), true), &only, 0, 256, DOMAIN, Answered::Nak(syndrome));
    responder.sent();
    responder.after_failure(psn(2));
    responder.after_failure(psn(4));
    assert_eq!(responder.next(), None);
    responder.after_failure(psn(3));
    let (psn, response) = (psn(3), said(syndrome));
    assert_eq!(responder.next(), Some(Reply { psn, response, bytes: None }));
}

/// READ responses and acknowledgements that wait are told in order, acknowledgements by one.
#[test]
fn acknowledgements_are_told_by_one_packet_and_in_order() {
    let mut responder = Responder::new(true, psn(0xff_ffff), 4);
    let (only, read) = (send(true, true), Request::Read(range(1)));
    for (at, request) in [(0xff_ffff, only), (0, only), (1, read), (2, only), (3, only)] {
        carry_out(&mut responder, at, &request, 0);
    }
    let mut said = Vec::new();
    while let Some(reply) = responder.next() {
        responder.sent();
        let (Response::Acknowledge(aeth) | Response::Read(ReadResponse::Only(aeth))) =
            reply.response
        else {
            panic!("{reply:?}")
        };
        said.push((reply.psn.get(), aeth.msn.get()));
    }
    assert_eq!(said, [(0, 2), (1, 3), (3, 5)]);
}
