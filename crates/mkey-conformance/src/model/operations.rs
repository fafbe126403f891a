//! Each operation, chosen from bytes.

use super::bed::{Bed, Mix};
use super::choices::Choices;
use super::object::{Gone, Memory, Object, kind_name};
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::{
    Access, Backing, Engine, FaultCause, ObjectError, ObjectId, Progress, QpScope, Registration,
    Remap, TableFull, atomic_alignment,
};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::refusal::{DetachCause, KeyKind, Refusal};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};
use std::time::Duration;

#[derive(Clone, Copy)]
enum Operation {
    Access,
    Register,
    Allocate,
    Bind,
    Invalidate,
    FastRegister,
    Deregister,
    Reregister,
    Detach,
    Advise,
    FaultIn,
    Pause,
    Ids,
    Churn,
}

use Operation as Op;

/// How often each comes, of 64.
const EVERYTHING: &[(Op, u8)] = &[
    (Op::Access, 24),
    (Op::Register, 6),
    (Op::Allocate, 5),
    (Op::Bind, 7),
    (Op::Invalidate, 3),
    (Op::FastRegister, 5),
    (Op::Deregister, 4),
    (Op::Reregister, 3),
    (Op::Detach, 1),
    (Op::Advise, 1),
    (Op::FaultIn, 2),
    (Op::Pause, 1),
    (Op::Ids, 1),
    (Op::Churn, 1),
];

const ACCESSES: &[(Op, u8)] = &[
    (Op::Access, 48),
    (Op::Register, 5),
    (Op::Allocate, 2),
    (Op::Bind, 2),
    (Op::FastRegister, 2),
    (Op::Deregister, 1),
    (Op::Reregister, 1),
    (Op::Detach, 1),
    (Op::FaultIn, 2),
];

const WORK_REQUESTS: &[(Op, u8)] = &[
    (Op::Bind, 16),
    (Op::Invalidate, 10),
    (Op::FastRegister, 16),
    (Op::Access, 6),
    (Op::Register, 6),
    (Op::Allocate, 6),
    (Op::Deregister, 3),
    (Op::Reregister, 1),
];

pub(super) const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::MW_BIND);

pub(super) const WANTS: [Want; 5] =
    [Want::RemoteRead, Want::RemoteWrite, Want::LocalRead, Want::LocalWrite, Want::RemoteAtomic];

impl Bed {
    pub fn operation(&mut self, c: &mut Choices<'_>, mix: Mix) {
        let weights = match mix {
            Mix::Everything => EVERYTHING,
            Mix::Accesses => ACCESSES,
            Mix::WorkRequests => WORK_REQUESTS,
        };
        let mut at = c.byte() % 64;
        let mut chosen = Op::Access;
        for &(operation, weight) in weights {
            chosen = operation;
            match at.checked_sub(weight) {
                Some(left) => at = left,
                None => break,
            }
        }
        if matches!(chosen, Op::Register | Op::Allocate | Op::Churn)
            && self.model.objects.len() > 20
            && !c.rarely(12)
        {
            chosen = Op::Deregister;
        }
        match chosen {
            Op::Access => self.some_access(c),
            Op::Register => self.register(c),
            Op::Allocate => self.allocate(c),
            Op::Bind => self.bind(c),
            Op::Invalidate => self.invalidate(c),
            Op::FastRegister => self.fast_register(c),
            Op::Deregister => self.some_deregistration(c),
            Op::Reregister => self.reregister(c),
            Op::Detach => self.detach(c),
            Op::Advise => self.advise(c),
            Op::FaultIn => self.fault_in(c),
            Op::Pause => self.pause(c),
            Op::Ids => self.ids(c),
            Op::Churn => self.churn(c),
        }
    }

    fn some_access(&mut self, c: &mut Choices<'_>) {
        let kind = c.pick(&[None, None, Some(KeyKind::FastMr), Some(KeyKind::Window2)]);
        let object =
            self.pick(c, |object| object.serves() && kind.is_none_or(|kind| kind == object.kind));
        let want = c.pick(&WANTS);
        let key = self.key(c, object, !matches!(want, Want::LocalRead | Want::LocalWrite));
        let mut scope = self.scope(c, object.map(|object| object.pd));
        if let Some(&Object { memory: Memory::Window { qp: Some(qp), .. }, pd, .. }) = object
            && !c.rarely(6)
        {
            scope = QpScope { pd, qp };
        }
        let (base, length) = object.map_or((0, 0), |object| (object.base, object.length));
        let (address, length) = match c.rarely(2) {
            true => c.range(base, length),
            false => c.within(base, length),
        };
        let address = IoAddr(address);
        self.access(&Access { key, pd: scope.pd, qp: scope.qp, address, length, want });
        let aligned = atomic_alignment(address);
        assert_eq!(aligned.is_ok(), address.0 & 7 == 0);
        assert!(aligned.is_ok() || aligned == Err(Refusal::Misaligned { address }));
    }

    fn register(&mut self, c: &mut Choices<'_>) {
        let pd = self.any_pd(c);
        let mut rights = Self::rights(c);
        let (mut iova, length, backing) = Self::translation(c, true);
        if matches!(backing, Backing::Plain { .. }) && c.rarely(6) {
            rights |= Rights::ZERO_BASED;
            iova = IoAddr(0);
        }
        let what = Registration { iova, length, rights, backing };
        let told = self.engine.register(pd, &what);
        if let Some(told) = self.unless_full(told) {
            self.model.registered(told, pd, &what);
            self.tally.count("register");
        }
    }

    fn allocate(&mut self, c: &mut Choices<'_>) {
        let pd = self.any_pd(c);
        let kind = c.pick(&[KeyKind::Window2, KeyKind::Window1, KeyKind::FastMr]);
        let room = c.pick(&[8, 4, 16, 8, 3, 1, 0, u32::MAX]);
        let told = match kind {
            KeyKind::Window1 => self.engine.allocate_window(pd, MwKind::Type1),
            KeyKind::Window2 => self.engine.allocate_window(pd, MwKind::Type2),
            _ => self.engine.allocate_fast_mr(pd, room),
        };
        if let Some(told) = self.unless_full(told) {
            let room = room.min(Engine::MAX_FAST_MR_ENTRIES);
            self.model.allocated(told, pd, kind, room);
            self.tally.count("allocate");
        }
    }

    fn unless_full<T>(&mut self, told: Result<T, TableFull>) -> Option<T> {
        let full = self.model.objects.len() as u64 >= u64::from(self.most);
        match told {
            Ok(told) => {
                assert!(!full, "an object beyond the most");
                Some(told)
            }
            Err(refused) => {
                assert!(full, "{refused:?} with {} objects", self.model.objects.len());
                assert_eq!(refused, TableFull { most: self.most });
                self.tally.count("table full");
                None
            }
        }
    }

    fn bind(&mut self, c: &mut Choices<'_>) {
        let window = self.pick(c, |object| {
            object.is_window() && (object.kind == KeyKind::Window1 || !object.serves())
        });
        let pd = window.map(|window| window.pd);
        let parent = self.pick(c, |object| {
            let fits = matches!(object.kind, KeyKind::Region | KeyKind::FastMr);
            fits && object.serves() && Some(object.pd) == pd
        });
        let (base, length) = parent.map_or((0, 0), |parent| (parent.base, parent.length));
        let (address, length) = match c.rarely(3) {
            true => c.range(base, length),
            false => c.within(base, length),
        };
        let length = if c.rarely(12) { 0 } else { length };
        let rights = match c.below(16) {
            0..=2 | 10.. => Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC,
            3 => Rights::REMOTE_READ,
            4 => Rights::REMOTE_WRITE,
            5 => Rights::empty(),
            6 => Rights::REMOTE_READ | Rights::LOCAL_WRITE,
            7 => Rights::REMOTE_READ | Rights::ZERO_BASED,
            8 => Rights::REMOTE_ATOMIC,
            9 => Rights::from_bits_truncate(c.u32()),
        };
        let what = BindMw {
            mw: Rkey(self.key(c, window, true)),
            new_key: Rkey(Key(c.u32())),
            mr: Lkey(self.key(c, parent, false)),
            address: IoAddr(address),
            length,
            rights,
        };
        let kind = match window.map(|window| window.kind) {
            Some(KeyKind::Window1) => MwKind::Type1,
            _ => MwKind::Type2,
        };
        let kind = match (c.rarely(16), kind) {
            (true, MwKind::Type2) => MwKind::Type1,
            (true, MwKind::Type1) => MwKind::Type2,
            (false, kind) => kind,
        };
        let by = self.scope(c, pd);
        let expected = self.model.bind(by, &what, kind);
        let id = self.model.by_index(what.mw.0).map(|object| object.id);
        let next = expected.clone().map(|effect| effect.memory);
        let running = c.rarely(2);
        let done = self.change("bind", id, next, running, |engine| engine.bind(by, &what, kind));
        if let (Some((_, rkey)), Ok(effect)) = (done, expected) {
            assert_eq!(rkey, effect.rkey, "R-MW-09, R-MW-11: the key after {what:?}");
            self.revoked(what.mw.0);
            self.model.changed(effect);
        }
    }

    fn invalidate(&mut self, c: &mut Choices<'_>) {
        let object = self.pick(c, |object| {
            object.kind == KeyKind::FastMr || object.kind == KeyKind::Window2 && object.serves()
        });
        let key = self.key(c, object, true);
        let mut by = self.scope(c, object.map(|object| object.pd));
        if let Some(&Object { memory: Memory::Window { qp: Some(qp), .. }, pd, .. }) = object
            && !c.rarely(4)
        {
            by = QpScope { pd, qp };
        }
        let expected = self.model.invalidate(by, key);
        let id = self.model.by_index(key).map(|object| object.id);
        let next = expected.clone().map(|effect| effect.memory);
        let running = c.rarely(2);
        let done =
            self.change("invalidate", id, next, running, |engine| engine.invalidate(by, key));
        if let (Some((_, rkey)), Ok(effect)) = (done, expected) {
            assert_eq!(rkey, key, "an invalidation leaves the key as it was");
            self.revoked(key);
            self.model.changed(effect);
        }
    }

    fn fast_register(&mut self, c: &mut Choices<'_>) {
        let object = self.pick(c, |object| object.kind == KeyKind::FastMr && !object.serves());
        let pd = object.map(|object| object.pd);
        let key = self.key(c, object, true);
        let key = if c.rarely(2) { Key(key.0 & !0xff | u32::from(c.byte())) } else { key };
        let rights = match c.below(10) {
            0..=2 | 8 | 9 => ALL,
            3 => Rights::REMOTE_READ,
            4 => Rights::MW_BIND,
            5 => Rights::REMOTE_READ | Rights::RELAXED_ORDERING,
            6 => ALL.difference(Rights::LOCAL_WRITE),
            _ => Rights::from_bits_retain(c.u32() & 0x1f_ffff),
        };
        let room = object.map_or(0, |object| object.room);
        let count = match c.below(8) {
            0 => [0, room.min(32) as usize + 1][c.below(2)],
            _ => c.below(room.clamp(1, 8) as usize) + 1,
        };
        let iova = match c.below(6) {
            0 => u64::MAX - u64::from(c.byte()),
            1 => c.u64(),
            _ => 0x9000,
        };
        let by = self.scope(c, pd);
        let mut entries: Vec<Sge> = Vec::new();
        for _ in 0..count {
            if let (Some(&last), true) = (entries.last(), c.rarely(3)) {
                entries.push(last);
                continue;
            }
            let parent = self.pick(c, |object| {
                object.kind == KeyKind::Region && object.serves() && Some(object.pd) == pd
            });
            let lkey = match parent {
                Some(parent) if !c.rarely(24) => parent.lkey.unwrap_or(parent.told_lkey),
                parent => self.key(c, parent, false),
            };
            let (base, length) = parent.map_or((0, 0), |parent| (parent.base, parent.length));
            let (address, length) = match (c.rarely(24), c.rarely(8)) {
                (true, _) => c.range(base, length),
                (false, true) => (base, 0),
                (false, false) => c.within(base, length),
            };
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            entries.push(Sge { address: IoAddr(address), length, lkey: Lkey(lkey) });
        }
        let what = RegMr { key, iova: IoAddr(iova), rights, entries: &entries };
        let expected = self.model.fast_register(by, &what);
        let id = self.model.by_index(key).map(|object| object.id);
        let next = expected.clone().map(|effect| effect.memory);
        let done =
            self.change("fast register", id, next, false, |engine| engine.fast_register(by, &what));
        if let (Some(keys), Ok(effect)) = (done, expected) {
            assert_eq!(keys, (key, key), "R-FR-10: both keys of {what:?}");
            self.model.changed(effect);
        }
    }

    fn some_deregistration(&mut self, c: &mut Choices<'_>) {
        let id = match c.below(8) {
            0 => ObjectId::from_raw(c.u64()),
            1 if !self.dead_ids.is_empty() => c.pick(&self.dead_ids),
            _ => match self.pick(c, |_| true) {
                Some(object) => object.id,
                None => return,
            },
        };
        self.deregister(id, c.rarely(2));
    }

    pub fn deregister(&mut self, id: ObjectId, running: bool) {
        let wrong = self.model.deregister(id);
        let expected = if wrong.is_empty() { Ok(Memory::None) } else { Err(wrong) };
        let done =
            self.change("deregister", Some(id), expected, running, |engine| engine.deregister(id));
        if done.is_some() {
            if let Some(object) = self.model.by_id(id) {
                let (name, keys) = (kind_name(object.kind), [object.told_lkey, object.rkey]);
                self.tally.count(&format!("deregister {name}"));
                keys.into_iter().for_each(|key| self.revoked(key));
            }
            self.model.ended(id);
            self.dead_ids.insert(0, id);
            self.dead_ids.truncate(32);
            assert_eq!(self.engine.deregister(id).err(), Some(ObjectError::Unknown));
        }
    }

    fn revoked(&mut self, key: Key) {
        self.dead_keys.insert(0, key);
        self.dead_keys.truncate(64);
    }

    fn reregister(&mut self, c: &mut Choices<'_>) {
        let Some(object) = self.pick(c, |object| object.kind == KeyKind::Region) else { return };
        let id = if c.rarely(16) { ObjectId::from_raw(c.u64()) } else { object.id };
        let what = c.below(7) + 1;
        let remap = Remap {
            pd: (what & 1 != 0).then(|| self.any_pd(c)),
            rights: (what & 2 != 0).then(|| Self::rights(c)),
            translation: (what & 4 != 0).then(|| Self::translation(c, false)),
        };
        let wrong = self.model.reregister(id);
        let next = match wrong.is_empty() {
            true => Ok(Memory::None),
            false => Err(wrong),
        };
        let keys = self.model.by_id(id).map(|object| (object.told_lkey, object.rkey));
        let running = c.rarely(2);
        let done = self
            .change("reregister", Some(id), next, running, |engine| engine.reregister(id, &remap));
        if done.is_some() {
            assert_eq!(done, keys, "re-registration keeps the keys");
            self.model.reregistered(id, &remap);
        }
    }

    fn detach(&mut self, c: &mut Choices<'_>) {
        let object = self.pick(c, |object| object.kind == KeyKind::Region);
        let host = match object.map(|object| &object.memory) {
            Some(Memory::Plain(host)) => *host,
            Some(Memory::OnDemand(on_demand)) => on_demand.host,
            _ => 0x10_0000,
        };
        let start = host.saturating_add(0x800 * u64::from(c.byte() % 6)) & !0x7ff;
        let len = c.pick(&[0x1000, 0x800, 0x4000, 1, 0, u64::MAX]);
        let range = HostRange { start: HostAddr(start), len };
        let cause = c.pick(&[DetachCause::Unmapped, DetachCause::Discarded, DetachCause::Moved]);
        let when = Duration::from_secs(c.byte().into());
        let met = self.engine.detach(range, cause, when);
        assert_eq!(met, self.model.detach(Gone { range, cause, when }), "regions met");
        self.tally.count("detach");
    }

    fn advise(&mut self, c: &mut Choices<'_>) {
        let object = self.pick(c, |object| object.on_demand().is_some());
        let lkey = Lkey(self.key(c, object, false));
        let pd = match object {
            Some(object) if !c.rarely(8) => object.pd,
            _ => self.any_pd(c),
        };
        let (base, length) = object.map_or((0, 0), |object| (object.base, object.length));
        let (address, length) = c.range(base, length);
        // Whoever asks touches the pages in parts of this size at most.
        let (address, length) = (IoAddr(address), length.min(1 << 20));
        let writes = c.rarely(2);
        let got = self.engine.advise(&mut self.executor.source, pd, lkey, address, length, writes);
        match (got, self.model.advise(pd, lkey, address, length, writes)) {
            (Ok(fault), Ok(absent)) => {
                assert_eq!(fault.range(), absent.range, "pages to touch");
                self.faults.insert(0, (fault, absent));
                self.tally.count("advise");
            }
            (Err(got), Err(wrong)) => {
                assert!(wrong.contains(&got), "advise: {got:?} is none of {wrong:?}");
                self.tally.count("advise: refused");
            }
            (got, expected) => panic!("advise: {got:?}, by the rules {expected:?}"),
        }
    }

    fn fault_in(&mut self, c: &mut Choices<'_>) {
        let Some(&(mut fault, mut absent)) =
            self.faults.get(usize::from(c.byte()) % self.faults.len().max(1))
        else {
            return;
        };
        if c.rarely(3) {
            let half = HostRange { len: 1 << absent.shift, ..absent.range };
            absent.range = half;
            fault = fault.part(half).expect("a part of the fault");
        }
        let cause = if c.rarely(3) { FaultCause::Prefetch } else { FaultCause::Access };
        let got = self.engine.fault_in(&mut self.executor.source, &fault, cause);
        assert_eq!(got, self.model.fault_in(&absent, cause), "fault in of {absent:?}");
        self.tally.count(if got { "fault in" } else { "fault in: too late" });
        if let Some(on_demand) =
            self.model.by_id(absent.region).and_then(|object| object.on_demand())
        {
            assert_eq!(self.engine.odp_stats(absent.region), Ok(on_demand.stats));
        }
    }

    fn pause(&mut self, c: &mut Choices<'_>) {
        let object = self.pick(c, Object::serves);
        let access = object.and_then(|object| self.model.some_access(object.id));
        let Self { engine, executor, model, .. } = self;
        let mut guard = access.and_then(|access| engine.open(&mut executor.source, &access).ok());
        let executors = engine.executors().clone();
        executors.pause();
        let (running, mut waited) = (guard.is_some(), false);
        executors.drain(|| {
            waited = true;
            guard = None;
        });
        drop(guard);
        assert_eq!(waited, running, "a drain waits for what runs, and for nothing else");
        model.pauses += 1;
        assert!(executors.paused());
        let twice = c.rarely(2);
        if twice {
            executors.pause();
            executors.resume();
        }
        for _ in 0..2 {
            self.some_access(c);
        }
        executors.resume();
        self.model.pauses -= 1;
        assert!(!executors.paused());
        self.tally.count("pause");
    }

    /// Domains and queue pairs come and go; their serial numbers do not come back.
    fn ids(&mut self, c: &mut Choices<'_>) {
        match c.below(4) {
            0 => self.add_pd(),
            1 if self.pds.len() > 2 => {
                self.pds.pop();
            }
            2 if self.qps.len() > 3 => {
                self.qps.pop();
            }
            _ => {
                let pd = c.byte().into();
                self.add_qp(pd);
            }
        }
    }

    /// So many regions come and go that freed indices are used again.
    fn churn(&mut self, c: &mut Choices<'_>) {
        if !c.rarely(4) {
            return;
        }
        let pd = self.any_pd(c);
        let backing = Backing::Plain { host: HostAddr(0x8000) };
        let what = Registration { iova: IoAddr(0), length: 16, rights: ALL, backing };
        for _ in 0..1100 {
            let told = self.engine.register(pd, &what);
            let Some(told) = self.unless_full(told) else { return };
            self.model.registered(told, pd, &what);
            let mut change = self.engine.deregister(told.id).expect("nothing lies on it");
            assert_eq!(self.engine.finish(&mut change), Progress::Quiet);
            self.model.ended(told.id);
        }
        self.tally.count("churn");
    }
}
