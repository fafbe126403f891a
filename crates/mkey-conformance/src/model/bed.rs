//! The engine and the model side by side.

use super::access::{Absent, No, joined};
use super::choices::{BLOCK, Choices};
use super::object::Model;
use mkey_core::address::IoAddr;
use mkey_core::engine::{
    Access, Change, Denied, Engine, EngineConfig, Executor, Executors, Fault, Lane, ObjectId,
    Place, Progress, Segment,
};
use mkey_core::key::Key;
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::Want;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Which operations prevail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All kinds.
    Everything,
    /// Accesses.
    Accesses,
    /// Bind, invalidate, fast registration.
    WorkRequests,
}

/// What happened in a run, for tests that must not pass without having checked anything.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Each kind of answer, in words, and how often it was given: by the engine and the model
    /// alike.
    pub answers: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds what happened in another run.
    pub fn add(&mut self, other: Tally) {
        self.operations += other.operations;
        for (answer, times) in other.answers {
            *self.answers.entry(answer).or_default() += times;
        }
    }

    pub(super) fn count(&mut self, answer: &str) {
        match self.answers.get_mut(answer) {
            Some(times) => *times += 1,
            None => {
                self.answers.insert(answer.to_owned(), 1);
            }
        }
    }

    /// Counts a refusal by its variant's name, and what it is a refusal of.
    fn count_refusal(&mut self, of: &str, refusal: &impl Debug) {
        let text = format!("{refusal:?}");
        let name = text.split([' ', '{']).next().unwrap_or_default();
        self.count(&format!("{of}: {name}"));
    }
}

pub(super) struct Bed {
    pub engine: Engine,
    pub executor: Executor,
    pub model: Model,
    pub tally: Tally,
    pub most: u32,
    pub pds: Vec<PdId>,
    pub qps: Vec<(QpId, PdId)>,
    /// Serial numbers given to domains and queue pairs so far.
    pub serial: u32,
    /// Keys and objects that were revoked.
    pub dead_keys: Vec<Key>,
    pub dead_ids: Vec<ObjectId>,
    pub faults: Vec<(Fault, Absent)>,
}

/// Performs the operations that `data` tells: a block of [`BLOCK`] bytes is one operation, the
/// first byte chooses the size of the table. Panics where the engine and the model part.
pub fn run(data: &[u8], mix: Mix) -> Tally {
    let (&first, rest) = data.split_first().unwrap_or((&0, &[]));
    let mut bed = Bed::new(first);
    for block in rest.chunks(BLOCK) {
        bed.operation(&mut Choices(block), mix);
        bed.tally.operations += 1;
        assert_eq!(bed.engine.live() as usize, bed.model.objects.len(), "live objects");
    }
    bed.end()
}

impl Bed {
    fn new(size: u8) -> Self {
        let executors = Executors::new();
        let executor = executors.enter().expect("an executor slot");
        let most = if size % 8 == 7 { 6 } else { 64 };
        let config = EngineConfig { max_keys: most, seed: u64::from(size) };
        let mut bed = Self {
            engine: Engine::new(config, executors),
            executor,
            model: Model::default(),
            tally: Tally::default(),
            most,
            pds: Vec::new(),
            qps: Vec::new(),
            serial: 0,
            dead_keys: vec![Key(0), Key(u32::MAX)],
            dead_ids: Vec::new(),
            faults: Vec::new(),
        };
        for _ in 0..2 {
            bed.add_pd();
            bed.add_qp(0);
            bed.add_qp(0);
        }
        bed
    }

    pub fn add_pd(&mut self) {
        self.serial += 1;
        self.pds.insert(0, PdId(self.serial));
    }

    pub fn add_qp(&mut self, pd: usize) {
        self.serial += 1;
        let pd = self.pds[pd % self.pds.len()];
        self.qps.insert(0, (QpId(self.serial), pd));
    }

    /// Takes everything down, holders first. Nothing may be left.
    fn end(mut self) -> Tally {
        while !self.model.objects.is_empty() {
            let before = self.model.objects.len();
            for id in self.model.objects.iter().map(|object| object.id).collect::<Vec<_>>() {
                self.deregister(id, false);
            }
            assert!(self.model.objects.len() < before, "what is held has no holder that can end");
        }
        assert_eq!(self.engine.live(), 0, "objects left");
        for key in std::mem::take(&mut self.dead_keys) {
            for want in [Want::LocalRead, Want::RemoteRead] {
                let (pd, qp) = (PdId(1), QpId(1));
                let access = Access { key, pd, qp, address: IoAddr(0), length: 1, want };
                self.access(&access);
            }
        }
        self.tally
    }

    /// Asks both about an access; a fault is kept for later.
    pub fn access(&mut self, access: &Access) {
        let lane = &mut self.executor.target;
        if let Some(fault) = compare(&self.engine, lane, &self.model, &mut self.tally, access) {
            self.faults.insert(0, fault);
            self.faults.truncate(8);
        }
    }

    /// Performs a change of `id`. `expected` is what stands against it. With `running` an access
    /// through the object goes on meanwhile, if one is allowed: then the change stays pending and
    /// the object refuses everything. True once it has taken effect; the model is to follow.
    pub fn change<E: Debug + PartialEq>(
        &mut self,
        name: &str,
        id: Option<ObjectId>,
        expected: Result<super::object::Memory, Vec<E>>,
        running: bool,
        begin: impl FnOnce(&Engine) -> Result<Change, E>,
    ) -> Option<(Key, Key)> {
        let Self { engine, executor, model, tally, .. } = self;
        let access = id.filter(|_| running).and_then(|id| model.some_access(id));
        let guard = access.and_then(|access| engine.open(&mut executor.source, &access).ok());
        let live = engine.live();
        let (mut change, next) = match (begin(engine), expected) {
            (Ok(change), Ok(next)) => (change, next),
            (Err(refused), Err(wrong)) => {
                assert!(wrong.contains(&refused), "{name}: {refused:?} is none of {wrong:?}");
                tally.count_refusal(name, &refused);
                return None;
            }
            (got, expected) => panic!("{name}: {got:?}, by the rules {expected:?}"),
        };
        if let (Some(guard), Some(id), Some(access)) = (guard, id, access) {
            tally.count("pending change");
            assert_eq!(engine.finish(&mut change), Progress::Pending, "{name}: an access runs");
            model.begin(id, next);
            let lane = &mut executor.target;
            compare(engine, lane, model, tally, &access);
            model.busy(engine, tally, id);
            if name == "reregister" && tally.operations.is_multiple_of(4) {
                model.lose_a_page(engine, id);
                tally.count("pages gone while pending");
            }
            assert_eq!(engine.live(), live, "{name} pending");
            assert_eq!(engine.finish(&mut change), Progress::Pending, "{name}: still runs");
            drop(guard);
        }
        assert_eq!(engine.finish(&mut change), Progress::Quiet, "{name}: nothing runs");
        assert_eq!(engine.finish(&mut change), Progress::Quiet, "{name}: quiet stays quiet");
        tally.count(name);
        Some((change.lkey().0, change.rkey().0))
    }
}

/// Asks the engine and the model about an access; they must agree.
pub(super) fn compare(
    engine: &Engine,
    lane: &mut Lane,
    model: &Model,
    tally: &mut Tally,
    access: &Access,
) -> Option<(Fault, Absent)> {
    let checked = engine.check(lane, access);
    assert_eq!(checked, model.allowed(access).map(|_| ()), "check of {access:?}");
    if access.length > 1 << 16 {
        match checked {
            Ok(()) => tally.count("check: allowed"),
            Err(refusal) => tally.count_refusal("check", &refusal),
        }
        return None;
    }
    let expected = model.access(access);
    match (engine.open(lane, access), expected) {
        (Ok(guard), Ok(bytes)) => {
            let place = |segment: Segment| match segment.place {
                Place::Memory(host) => (Some(host.0), segment.len),
                Place::Null => (None, segment.len),
            };
            let got: Vec<_> = guard.segments().map(place).collect();
            let single = guard.single().map(place);
            let only = <[_; 1]>::try_from(got.as_slice()).ok().map(|[only]| only);
            assert_eq!(single, only, "the single segment of {access:?}");
            let pieces = got.len();
            assert_eq!(joined(got), joined(bytes), "the bytes of {access:?}");
            tally.count(if pieces > 1 { "access: several segments" } else { "access: allowed" });
        }
        (Err(Denied::Refused(got)), Err(No::Refused(expected))) => {
            assert_eq!(got, expected, "{access:?}");
            tally.count_refusal("access", &got);
        }
        (Err(Denied::Fault(fault)), Err(No::Fault(absent))) => {
            assert_eq!(fault.range(), absent.range, "absent pages of {access:?}");
            assert_eq!(fault.page_size(), 1 << absent.shift, "page of {access:?}");
            tally.count("access: fault");
            return Some((fault, absent));
        }
        (Err(Denied::Paused), Err(No::Paused)) => tally.count("access: paused"),
        (got, expected) => panic!("{access:?}: {got:?}, by the rules {expected:?}"),
    }
    None
}
