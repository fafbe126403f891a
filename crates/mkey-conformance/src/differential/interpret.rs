//! Runs a program on a device.

use super::offer::Offer;
use super::program::*;
use super::trace::{Answer, Done, Outcome, Trace};
use super::traits::{MTU, Traits};
use crate::fixture::Subject;
use crate::memory::Memory;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{DataPlane, QueuePair};
use mkey_core::device::*;
use mkey_core::error::{Error, Result};
use mkey_core::key::{Key as Bits, Lkey, Rkey};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};
use std::collections::VecDeque;
use std::time::Duration;

/// How long an answer may take, as the attribute has it: 67 ms. A machine that is busy with other
/// things, too, does not answer in much less.
const TIMEOUT: u8 = 14;
/// An index that nothing has: tables hand out others.
const NOTHING: u32 = 0x00fe_dcba;
/// Makes words of the memory that differ in all bytes.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A device with the memory that programs use on it. It runs one program after the other.
pub struct Machine<'s, S: Subject> {
    subject: &'s S,
    device: std::sync::Arc<S::Device>,
    memory: Memory,
    /// What is done on it.
    pub(super) offer: Offer,
}

impl<'s, S: Subject> Machine<'s, S> {
    /// Opens a device.
    pub fn new(subject: &'s S) -> Self {
        let (device, _) = subject.open();
        let pages = (HOLE as usize + 4096) / 4096;
        let memory = Memory::filled(pages);
        memory.make_read_only(READ_ONLY as usize..HOLE as usize);
        memory.unmap(HOLE as usize..HOLE as usize + 4096);
        let offer = Offer::of(device.capabilities());
        Self { subject, device, memory, offer }
    }

    /// The device.
    pub fn device(&self) -> &S::Device {
        &self.device
    }

    /// Runs a program. Nothing of it is left on the device. What does not come is waited for
    /// `patience` times as long as most things need.
    ///
    /// # Errors
    /// What could not be set up for it.
    pub fn run(&self, program: &Program, patience: u32) -> Result<Trace> {
        self.memory.fill(0..READ_ONLY as usize, |at| (at as u64 + 1).wrapping_mul(SPREAD));
        let mut run = Run::new(self, patience)?;
        let mut trace = Trace::new();
        for step in &program.steps {
            trace.push(run.step(step));
        }
        trace.push(run.clean_up());
        Ok(trace)
    }
}

/// What a slot for a region has or had.
#[derive(Clone, Copy)]
struct Region {
    info: MrInfo,
    /// The address of its first byte in work requests.
    base: u64,
    length: u64,
    live: bool,
}

/// What a slot for a window has or had.
#[derive(Clone, Copy)]
pub(super) struct Window {
    info: MwInfo,
    type2: bool,
    /// Its present key, as far as the device has said that binding succeeded.
    pub(super) key: Bits,
    /// The key before.
    pub(super) before: Bits,
    /// Where what it was bound to begins.
    pub(super) base: u64,
    /// By which queue pair it was bound last.
    pub(super) by: End,
    pub(super) bound: bool,
    pub(super) live: bool,
}

/// A posted work request.
#[derive(Clone, Copy)]
pub(super) struct Posted {
    pub(super) wr: u64,
    pub(super) kind: Kind,
    pub(super) traits: Traits,
    /// Takes a receive of the peer.
    pub(super) takes: bool,
    /// The window that it binds, the key that it gets and where that begins.
    pub(super) binds: Option<(usize, Bits, u64)>,
    /// Of a bind, whether it names a window of its type and a region.
    names: bool,
}

pub(super) struct Half<D: DataPlane> {
    qp: QpInfo,
    data: D::Qp,
    pub(super) cqs: [(CqHandle, D::Cq); 2],
    pub(super) sent: VecDeque<Posted>,
    pub(super) received: VecDeque<(u64, Traits)>,
    /// Receives that the peer's successful work has to have taken.
    pub(super) owed: i64,
    /// It has to be in ERR.
    pub(super) fails: bool,
    /// Something unsignaled is under way, whose end nothing tells unless it fails.
    pub(super) cut: Option<Posted>,
    /// So many receives were waited for in vain.
    pub(super) given_up: usize,
}

pub(super) struct Run<'m, S: Subject> {
    machine: &'m Machine<'m, S>,
    pub(super) patience: u32,
    pds: [PdHandle; 2],
    pub(super) halves: [Half<S::Device>; 2],
    regions: [Option<Region>; REGIONS],
    pub(super) windows: [Option<Window>; WINDOWS],
    /// The keys that the slots' former regions had.
    stale: [Bits; REGIONS],
    /// Regions and windows that were displaced from their slots.
    displaced: (Vec<MrHandle>, Vec<MwHandle>),
    next: u64,
    pub(super) done: [Vec<Done>; 4],
}

impl<'m, S: Subject> Run<'m, S> {
    fn new(machine: &'m Machine<'m, S>, patience: u32) -> Result<Self> {
        let device = machine.device();
        let pds = [device.alloc_pd()?, device.alloc_pd()?];
        let half = || {
            let queue = || {
                let handle = device.create_cq(256, None)?;
                Ok::<_, Error>((handle, device.cq(handle)?))
            };
            let cqs = [queue()?, queue()?];
            let init = QpInit {
                send_cq: cqs[0].0,
                recv_cq: cqs[1].0,
                max_send_wr: 64,
                max_recv_wr: 64,
                ..QpInit::new(QpKind::Rc, cqs[0].0)
            };
            let qp = device.create_qp(pds[0], &init)?;
            let data = device.qp(qp.handle)?;
            let (sent, received) = (VecDeque::new(), VecDeque::new());
            let (owed, fails, cut, given_up) = (0, false, None, 0);
            Ok::<_, Error>(Half { qp, data, cqs, sent, received, owed, fails, cut, given_up })
        };
        let halves = [half()?, half()?];
        let (regions, windows, stale) = Default::default();
        let displaced = Default::default();
        let done = Default::default();
        let next = 1;
        let mut run =
            Self { machine, patience, pds, halves, regions, windows, stale, displaced, next, done };
        run.connect();
        Ok(run)
    }

    fn device(&self) -> &'m S::Device {
        self.machine.device()
    }

    pub(super) fn half(&self, end: End) -> &Half<S::Device> {
        &self.halves[end.index()]
    }

    pub(super) fn half_mut(&mut self, end: End) -> &mut Half<S::Device> {
        &mut self.halves[end.index()]
    }

    /// Lets time go on.
    pub(super) fn pass(&self, time: Duration) {
        self.machine.subject.pass(self.device(), time);
    }

    fn pd(&self, apart: bool) -> PdHandle {
        self.pds[usize::from(apart)]
    }

    // Steps.

    fn step(&mut self, step: &Step) -> Outcome {
        let answer = match step {
            Step::Register(register) => self.register(register),
            Step::Reregister { region, rights } => self.reregister(*region, *rights),
            Step::Deregister { region } => self.deregister(*region),
            Step::Allocate { window, type2, apart } => self.allocate(*window, *type2, *apart),
            Step::Free { window } => self.free(*window),
            Step::Post { from, chain } => self.post(*from, chain),
            Step::Receive { at, chain } => self.receive(*at, chain),
            Step::Modify { at, to, without } => self.modify(*at, *to, *without),
            Step::Connect => {
                for end in [End::A, End::B] {
                    self.modify(end, State::Err, None);
                }
                self.settle();
                for end in [End::A, End::B] {
                    self.modify(end, State::Reset, None);
                }
                let errno = self.connect();
                Answer { kind: Kind::Connect, traits: Traits::empty(), errno, posted: 0 }
            }
        };
        self.settle();
        self.outcome(answer)
    }

    fn register(&mut self, register: &Register) -> Answer {
        let Register { region, apart, offset, length, iova, rights } = *register;
        let address = HostAddr(self.machine.memory.address() + offset);
        let spec = MrSpec { address, length, iova: iova.map(IoAddr), rights };
        // SAFETY: memory of the machine, which outlives the run, or ranges past it, which a device
        // has to refuse; it is only accessed volatile.
        let made = unsafe { self.device().reg_mr(self.pd(apart), &spec) };
        let mut answer = answer(Kind::Register, made.as_ref().map(|_| ()));
        answer.traits.set(Traits::NO_PAGE, length == 0 && address.0.is_multiple_of(4096));
        if let (Ok(info), Some(slot)) = (made, self.regions.get_mut(usize::from(region))) {
            let base = iova.unwrap_or(address.0);
            let old = slot.replace(Region { info, base, length, live: true });
            if let Some(old) = old.filter(|old| old.live) {
                self.displaced.0.push(old.info.handle);
            }
        }
        answer
    }

    fn reregister(&mut self, region: u8, rights: Rights) -> Answer {
        let handle = self.region(region).map_or(MrHandle(u64::MAX), |region| region.info.handle);
        let change = MrChange { rights: Some(rights), ..MrChange::default() };
        // SAFETY: as for registration.
        let made = unsafe { self.device().rereg_mr(handle, &change) };
        let made = made.map_err(|refused| refused.error);
        let answer = answer(Kind::Reregister, made.as_ref().map(|_| ()));
        if let (Ok(info), Some(Some(slot))) = (made, self.regions.get_mut(usize::from(region))) {
            slot.info = info;
        }
        answer
    }

    fn deregister(&mut self, region: u8) -> Answer {
        let slot = self.region(region);
        let handle = slot.map_or(MrHandle(u64::MAX), |region| region.info.handle);
        let gone = self.device().dereg_mr(handle);
        if gone.is_ok()
            && let Some(Some(slot)) = self.regions.get_mut(usize::from(region))
        {
            slot.live = false;
            if let Some(stale) = self.stale.get_mut(usize::from(region)) {
                *stale = slot.info.lkey.0;
            }
        }
        answer(Kind::Deregister, gone.as_ref().copied())
    }

    fn allocate(&mut self, window: u8, type2: bool, apart: bool) -> Answer {
        let kind = if type2 { MwKind::Type2 } else { MwKind::Type1 };
        let made = self.device().alloc_mw(self.pd(apart), kind);
        let answer = answer(Kind::Allocate, made.as_ref().map(|_| ()));
        if let (Ok(info), Some(slot)) = (made, self.windows.get_mut(usize::from(window))) {
            let (key, base) = (info.rkey.0, 0);
            let (by, bound, live) = (End::A, false, true);
            let new = Window { info, type2, key, before: key.next(), base, by, bound, live };
            if let Some(old) = slot.replace(new).filter(|old| old.live) {
                self.displaced.1.push(old.info.handle);
            }
        }
        answer
    }

    fn free(&mut self, window: u8) -> Answer {
        let slot = self.window(window);
        let handle = slot.map_or(MwHandle(u64::MAX), |window| window.info.handle);
        let gone = self.device().dealloc_mw(handle);
        if gone.is_ok()
            && let Some(Some(slot)) = self.windows.get_mut(usize::from(window))
        {
            (slot.live, slot.bound) = (false, false);
        }
        answer(Kind::Free, gone.as_ref().copied())
    }

    // Names.

    fn region(&self, slot: u8) -> Option<Region> {
        self.regions.get(usize::from(slot)).copied().flatten()
    }

    fn window(&self, slot: u8) -> Option<Window> {
        self.windows.get(usize::from(slot)).copied().flatten()
    }

    fn lkey(&self, slot: u8, key: Key) -> Bits {
        let current = self.region(slot).map_or(Bits(0), |region| region.info.lkey.0);
        let stale = self.stale.get(usize::from(slot)).copied().unwrap_or_default();
        changed(current, stale, key)
    }

    fn rkey(&self, owner: Owner, key: Key) -> Bits {
        match owner {
            Owner::Region(slot) => {
                let current = self.region(slot).map_or(Bits(0), |region| region.info.rkey.0);
                let stale = self.stale.get(usize::from(slot)).copied().unwrap_or_default();
                changed(current, stale, key)
            }
            Owner::Window(slot) => {
                self.window(slot).map_or(Bits(0), |window| changed(window.key, window.before, key))
            }
        }
    }

    fn sge(&self, entry: &Entry) -> Sge {
        let base = self.region(entry.region).map_or(0, |region| region.base);
        let address = IoAddr(base.wrapping_add_signed(entry.at));
        Sge { address, length: entry.length, lkey: Lkey(self.lkey(entry.region, entry.key)) }
    }

    fn remote(&self, target: &Target) -> RemoteAddr {
        let base = match target.owner {
            Owner::Region(slot) => self.region(slot).map_or(0, |region| region.base),
            Owner::Window(slot) => self.window(slot).map_or(0, |window| window.base),
        };
        let address = IoAddr(base.wrapping_add_signed(target.at));
        RemoteAddr { address, rkey: Rkey(self.rkey(target.owner, target.key)) }
    }

    /// The key of what is to be invalidated.
    fn invalidating(&mut self, owner: Owner, key: Key) -> Bits {
        let named = self.rkey(owner, key);
        if let Owner::Window(slot) = owner
            && let Some(Some(window)) = self.windows.get_mut(usize::from(slot))
        {
            let bound = window.bound && window.type2;
            if named == window.key {
                window.bound = false;
            }
            if !bound && window.type2 && !self.machine.offer.contains(Offer::UNBOUND) {
                return changed(named, named, Key::Unknown);
            }
        }
        named
    }

    fn op(&mut self, op: &Op) -> (SendOp<'static>, Posted) {
        let wr = self.next;
        self.next += 1;
        let (kind, traits) = (op.kind(true), Traits::empty());
        let mut posted = Posted { wr, kind, traits, takes: false, binds: None, names: true };
        let op = match op {
            Op::Send => SendOp::Send,
            Op::SendImm(imm) => SendOp::SendImm(*imm),
            Op::SendInv(owner, key) => SendOp::SendInv(Rkey(self.invalidating(*owner, *key))),
            Op::Write(target) => SendOp::Write(self.remote(target)),
            Op::WriteImm(target, imm) => SendOp::WriteImm(self.remote(target), *imm),
            Op::Read(target) => SendOp::Read(self.remote(target)),
            Op::FetchAdd(target, add) => {
                SendOp::FetchAdd { remote: self.remote(target), add: *add }
            }
            Op::CompareSwap(target, compare, swap) => {
                let (remote, compare, swap) = (self.remote(target), *compare, *swap);
                SendOp::CompareSwap { remote, compare, swap }
            }
            Op::LocalInv(owner, key) => SendOp::LocalInv(self.invalidating(*owner, *key)),
            Op::Bind(bind) => {
                posted.names = self.names(bind);
                let (type2, bind, slot) = self.bind(bind);
                posted.kind = if type2 { Kind::Bind2 } else { Kind::Bind1 };
                let key = if type2 {
                    bind.mw.0.with_variant(bind.new_key.0.variant())
                } else {
                    bind.mw.0.next()
                };
                let zero_based = type2 && bind.rights.contains(Rights::ZERO_BASED);
                posted.binds = Some((slot, key, if zero_based { 0 } else { bind.address.0 }));
                if type2 { SendOp::BindMw(bind) } else { SendOp::BindMw1(bind) }
            }
        };
        let takes = matches!(
            op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) | SendOp::WriteImm(..)
        );
        (op, Posted { takes, ..posted })
    }

    /// Whether the bind is one of type 2, the bind, and the window's slot.
    fn bind(&self, bind: &Bind) -> (bool, BindMw, usize) {
        let window = self.window(bind.window);
        let type2 = window.is_none_or(|window| window.type2) != bind.wrong_type;
        let mw = self.rkey(Owner::Window(bind.window), bind.key);
        let base = self.region(bind.region).map_or(0, |region| region.base);
        let bind_mw = BindMw {
            mw: Rkey(mw),
            new_key: Rkey(mw.with_variant(mw.variant().wrapping_add(bind.step))),
            mr: Lkey(self.lkey(bind.region, bind.region_key)),
            address: IoAddr(base.wrapping_add_signed(bind.at)),
            length: bind.length,
            rights: bind.rights,
        };
        (type2, bind_mw, usize::from(bind.window))
    }

    /// Whether a bind names a window of its type and a region, whatever the variant of the
    /// window's key.
    fn names(&self, bind: &Bind) -> bool {
        let window = self.window(bind.window).is_some_and(|window| window.live);
        let region = self.region(bind.region).is_some_and(|region| region.live);
        let no_key = matches!(bind.key, Key::Zero | Key::Unknown);
        window && region && !bind.wrong_type && !no_key && bind.region_key == Key::Current
    }

    /// Whether an operation invalidates what the queue pair that does it has not bound.
    fn is_others(&self, from: End, op: &Op) -> bool {
        let (window, by) = match *op {
            Op::LocalInv(Owner::Window(slot), _) => (self.window(slot), from),
            Op::SendInv(Owner::Window(slot), _) => (self.window(slot), from.peer()),
            _ => return false,
        };
        window.is_some_and(|window| window.type2 && window.by != by)
    }

    /// Whether an operation binds a zero-based window to bytes that are not all in the region,
    /// though no more than it has.
    fn is_beyond(&self, op: &Op) -> bool {
        let Op::Bind(bind) = op else { return false };
        self.region(bind.region).is_some_and(|region| {
            let room = region.length.checked_sub(bind.length);
            let inside = |room| u64::try_from(bind.at).is_ok_and(|at| at <= room);
            bind.rights.contains(Rights::ZERO_BASED) && room.is_some_and(|room| !inside(room))
        })
    }

    // Work.

    fn post(&mut self, from: End, chain: &[Request]) -> Answer {
        let inline: Vec<u8> = (0..MESSAGE).map(|at| (at % 253) as u8).collect();
        let count = chain.len();
        let name = |(at, request): (usize, &Request)| {
            let sges: Vec<_> = match &request.data {
                Data::Entries(entries) => entries.iter().map(|entry| self.sge(entry)).collect(),
                Data::Inline(_) => Vec::new(),
            };
            let (op, mut posted) = self.op(&request.op);
            posted.traits = Traits::of(request, &op, &sges, posted.names);
            posted.traits.set(Traits::OTHERS, self.is_others(from, &request.op));
            posted.traits.set(Traits::BEYOND, self.is_beyond(&request.op));
            posted.traits.set(Traits::UNSIGNALED, !request.signaled && at + 1 < count);
            ((op, posted), sges)
        };
        let named: Vec<_> = chain.iter().enumerate().map(name).collect();
        let wrs: Vec<_> = chain
            .iter()
            .zip(&named)
            .map(|(request, ((op, posted), sges))| {
                let payload = match &request.data {
                    Data::Entries(_) => Payload::Sges(sges),
                    Data::Inline(length) => {
                        Payload::Inline(inline.get(..*length as usize).unwrap_or(&inline))
                    }
                };
                let mut flags = SendFlags::empty();
                flags.set(SendFlags::SIGNALED, !posted.traits.contains(Traits::UNSIGNALED));
                flags.set(SendFlags::FENCE, request.fence);
                SendWr { wr_id: posted.wr, op: *op, payload, flags, dest: None, srq: None }
            })
            .collect();
        let (posted, errno) = match self.half(from).data.post_send(&wrs) {
            Ok(()) => (count, 0),
            Err(refused) => (refused.posted, refused.error.errno()),
        };
        // The request that was refused, or else the first.
        let told = named.get(if errno == 0 { 0 } else { posted }).map(|((_, posted), _)| posted);
        let (kind, traits) = told.map_or_else(Default::default, |told| (told.kind, told.traits));
        for ((_, request), _) in named.iter().take(posted) {
            self.half_mut(from).sent.push_back(*request);
        }
        // The last one that was posted may be unsignaled, where the chain was cut: its end shows
        // in what comes later.
        if posted < count
            && let Some(request) = chain.get(posted.wrapping_sub(1))
            && !request.signaled
        {
            let half = self.half_mut(from);
            half.cut = half.sent.pop_back();
        }
        Answer { kind, traits, errno, posted }
    }

    fn receive(&mut self, at: End, chain: &[Vec<Entry>]) -> Answer {
        let first = self.next;
        self.next += chain.len() as u64;
        let sges: Vec<Vec<_>> = chain
            .iter()
            .map(|entries| entries.iter().map(|entry| self.sge(entry)).collect())
            .collect();
        let wrs: Vec<_> =
            sges.iter().zip(first..).map(|(sges, wr_id)| RecvWr { wr_id, sges }).collect();
        let (posted, errno) = match self.half(at).data.post_recv(&wrs) {
            Ok(()) => (chain.len(), 0),
            Err(refused) => (refused.posted, refused.error.errno()),
        };
        let traits = |sges: &Vec<Sge>| {
            let bytes: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
            let parts = sges.len() > 1 || bytes > MTU.into();
            if parts { Traits::PARTS } else { Traits::empty() }
        };
        let received = (first..).zip(sges.iter().map(traits)).take(posted);
        self.half_mut(at).received.extend(received);
        Answer { kind: Kind::Receive, traits: Traits::empty(), errno, posted }
    }

    // States.

    fn modify(&mut self, at: End, to: State, without: Option<Attribute>) -> Answer {
        let unless = |attribute| without != Some(attribute);
        let dest = self.half(at.peer()).qp.qp_num;
        let ah = self.machine.subject.address(self.device());
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC;
        let plain = QpModify::default();
        let change = match to {
            State::Reset => QpModify { state: Some(QpState::Reset), ..plain },
            State::Err => QpModify { state: Some(QpState::Err), ..plain },
            State::Init => QpModify {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: unless(Attribute::Port).then_some(1),
                rights: unless(Attribute::Rights).then_some(rights),
                ..plain
            },
            State::Rtr => QpModify {
                state: Some(QpState::Rtr),
                path_mtu: Some(MTU),
                dest_qp_num: Some(dest),
                rq_psn: unless(Attribute::RqPsn).then_some(0x00ab_cdef),
                ah: unless(Attribute::Path).then_some(ah),
                max_dest_rd_atomic: Some(4),
                min_rnr_timer: unless(Attribute::MinRnrTimer).then_some(1),
                ..plain
            },
            State::Rts => QpModify {
                state: Some(QpState::Rts),
                sq_psn: unless(Attribute::SqPsn).then_some(0x00ab_cdef),
                timeout: unless(Attribute::Timeout).then_some(TIMEOUT),
                retry_cnt: Some(2),
                rnr_retry: Some(1),
                max_rd_atomic: Some(4),
                ..plain
            },
        };
        let handle = self.half(at).qp.handle;
        let changed = self.device().modify_qp(handle, &change);
        if changed.is_ok() && to == State::Reset {
            // What was posted and what has completed is gone.
            self.take_completions();
            let half = self.half_mut(at);
            (half.owed, half.fails, half.cut) = (0, false, None);
            half.sent.clear();
            half.received.clear();
        }
        answer(Kind::Modify, changed.as_ref().copied())
    }

    /// Both from RESET to RTS; the first errno.
    fn connect(&mut self) -> i32 {
        let mut errno = 0;
        for to in [State::Init, State::Rtr, State::Rts] {
            for end in [End::A, End::B] {
                let answer = self.modify(end, to, None);
                errno = if errno == 0 { answer.errno } else { errno };
            }
        }
        errno
    }

    pub(super) fn state(&self, of: End) -> QpState {
        let attributes = self.device().query_qp(self.half(of).qp.handle);
        attributes.map_or(QpState::Sqe, |attributes| attributes.state)
    }

    // Results.

    fn outcome(&mut self, answer: Answer) -> Outcome {
        let completions = std::mem::take(&mut self.done);
        let states = [self.state(End::A), self.state(End::B)];
        let memory = self.machine.memory.hash(0..READ_ONLY as usize);
        Outcome { answer, completions, states, memory }
    }

    /// Frees everything, windows before what they are bound on.
    fn clean_up(mut self) -> Outcome {
        let device = self.device();
        let states = [self.state(End::A), self.state(End::B)];
        let mut errno = 0;
        let mut freed = |result: Result<()>| {
            if let (Err(error), 0) = (result, errno) {
                errno = error.errno();
            }
        };
        let live = self.windows.iter().flatten().filter(|window| window.live);
        for window in live.map(|window| window.info.handle).chain(self.displaced.1) {
            freed(device.dealloc_mw(window));
        }
        for half in &self.halves {
            freed(device.destroy_qp(half.qp.handle));
        }
        let live = self.regions.iter().flatten().filter(|region| region.live);
        for region in live.map(|region| region.info.handle).chain(self.displaced.0) {
            freed(device.dereg_mr(region));
        }
        for half in &self.halves {
            for (handle, _) in &half.cqs {
                freed(device.destroy_cq(*handle));
            }
        }
        for pd in self.pds {
            freed(device.dealloc_pd(pd));
        }
        let answer = Answer { kind: Kind::CleanUp, traits: Traits::empty(), errno, posted: 0 };
        let memory = self.machine.memory.hash(0..READ_ONLY as usize);
        self.done = Default::default();
        Outcome { answer, completions: self.done, states, memory }
    }
}

fn answer(kind: Kind, result: std::result::Result<(), &Error>) -> Answer {
    let errno = result.err().map_or(0, |error| error.errno());
    Answer { kind, traits: Traits::empty(), errno, posted: 0 }
}

/// A key as a program asks for it.
fn changed(current: Bits, stale: Bits, key: Key) -> Bits {
    match key {
        Key::Current => current,
        Key::Stale => stale,
        Key::Variant => current.with_variant(current.variant() ^ 0x55),
        Key::Zero => Bits(0),
        Key::Unknown => Bits::new(NOTHING, current.variant()),
    }
}
