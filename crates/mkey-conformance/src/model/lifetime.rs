//! Registration, re-registration, deregistration, advice, events: sections R-REG, R-RRG, R-ODP.

use super::access::Absent;
use super::object::{Gone, Memory, Model, Object, OnDemand, Present};
use super::requests::Effect;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::OdpStats;
use mkey_core::engine::{
    Backing, FaultCause, ObjectError, ObjectId, Registered, Registration, Remap,
};
use mkey_core::error::Reason;
use mkey_core::key::{Key, Lkey};
use mkey_core::refusal::{KeyKind, PdId};
use mkey_core::rights::Rights;

impl Model {
    /// Checks the keys of a new object and remembers it.
    fn made(&mut self, told: Registered, object: Object) {
        let (lkey, rkey) = (told.lkey.0, told.rkey.0);
        assert_eq!(lkey.index(), rkey.index(), "one index per object");
        assert_ne!(rkey.index(), 0, "R-KEY-03: index 0 is never handed out");
        assert!(self.by_index(rkey).is_none(), "R-KEY-04: {rkey} names two objects");
        assert!(self.by_id(told.id).is_none(), "an id names two objects");
        if object.kind != KeyKind::FastMr {
            assert_ne!(lkey, rkey, "an lkey is no rkey");
        }
        for old in self.last_keys.get(&rkey.index()).into_iter().flatten() {
            assert!(*old != lkey && *old != rkey, "R-KEY-07: {old} names the next object");
        }
        self.objects.push(object);
    }

    fn object(told: Registered, kind: KeyKind, pd: PdId) -> Object {
        let windows = matches!(kind, KeyKind::Window1 | KeyKind::Window2);
        Object {
            id: told.id,
            kind,
            pd,
            lkey: (!windows).then_some(told.lkey.0),
            rkey: told.rkey.0,
            told_lkey: told.lkey.0,
            rights: Rights::empty(),
            base: 0,
            length: 0,
            zero_based: false,
            memory: Memory::None,
            room: 0,
            gone: Vec::new(),
            change: None,
        }
    }

    pub fn registered(&mut self, told: Registered, pd: PdId, what: &Registration) {
        let kind = match what.backing {
            Backing::Null => KeyKind::Null,
            _ => KeyKind::Region,
        };
        let memory = self.memory(what.backing);
        let object = Object {
            rights: what.rights,
            base: what.iova.0,
            length: what.length,
            zero_based: what.rights.contains(Rights::ZERO_BASED),
            memory,
            ..Self::object(told, kind, pd)
        };
        self.made(told, object);
    }

    pub fn allocated(&mut self, told: Registered, pd: PdId, kind: KeyKind, room: u32) {
        if kind == KeyKind::FastMr {
            assert_eq!(told.lkey.0, told.rkey.0, "R-FR-10: one number for both keys");
        }
        self.made(told, Object { room, ..Self::object(told, kind, pd) });
    }

    fn memory(&mut self, backing: Backing) -> Memory {
        self.translations += 1;
        let on_demand = |host, shift, present| {
            let (translation, stats) = (self.translations, OdpStats::default());
            Memory::OnDemand(OnDemand { host, shift, present, translation, events: 0, stats })
        };
        match backing {
            Backing::Plain { host } => Memory::Plain(host.0),
            Backing::OnDemand { host, page_shift } => {
                on_demand(host.0, page_shift.into(), Present::All(Default::default()))
            }
            Backing::Implicit => on_demand(0, 12, Present::Places(Default::default())),
            Backing::Null => Memory::Null,
        }
    }

    /// What stands against deregistration.
    pub fn deregister(&self, id: ObjectId) -> Vec<ObjectError> {
        let Some(object) = self.by_id(id) else { return vec![ObjectError::Unknown] };
        let mut wrong = Vec::new();
        if object.change.is_some() {
            wrong.push(ObjectError::Busy);
        }
        let by = self.held_by(id);
        if by > 0 {
            wrong.push(ObjectError::Held { by });
        }
        wrong
    }

    /// What stands against re-registration.
    pub fn reregister(&self, id: ObjectId) -> Vec<ObjectError> {
        match self.by_id(id) {
            Some(object) if object.kind != KeyKind::Region => {
                let busy = object.change.as_ref().map(|_| ObjectError::Busy);
                [ObjectError::Unknown].into_iter().chain(busy).collect()
            }
            _ => self.deregister(id),
        }
    }

    /// A change has begun.
    pub fn begin(&mut self, id: ObjectId, next: Memory) {
        if let Some(object) = self.by_id_mut(id) {
            object.change = Some(next);
        }
    }

    /// A bind, invalidation or fast registration has taken effect.
    pub fn changed(&mut self, effect: Effect) {
        let Some(object) = self.by_id_mut(effect.id) else { return };
        object.rkey = effect.rkey;
        if object.kind == KeyKind::FastMr {
            object.lkey = Some(effect.rkey);
        }
        object.rights = effect.rights;
        object.base = effect.base;
        object.length = effect.length;
        object.zero_based = effect.zero_based;
        object.memory = effect.memory;
        object.change = None;
    }

    pub fn reregistered(&mut self, id: ObjectId, remap: &Remap) {
        let translation =
            remap.translation.map(|(iova, length, backing)| (iova, length, self.memory(backing)));
        let Some(object) = self.by_id_mut(id) else { return };
        object.change = None;
        object.pd = remap.pd.unwrap_or(object.pd);
        object.rights = remap.rights.unwrap_or(object.rights);
        if let Some((iova, length, memory)) = translation {
            object.base = iova.0;
            object.length = length;
            object.memory = memory;
            object.zero_based = object.rights.contains(Rights::ZERO_BASED);
            object.gone.clear();
        }
    }

    pub fn ended(&mut self, id: ObjectId) {
        let Some(at) = self.objects.iter().position(|object| object.id == id) else { return };
        let object = self.objects.remove(at);
        let keys = object.lkey.into_iter().chain([object.rkey]).collect();
        self.last_keys.insert(object.rkey.index(), keys);
    }

    /// Pages are taken away; the number of regions that it meets.
    pub fn detach(&mut self, gone: Gone) -> usize {
        let mut met = 0;
        for object in self.objects.iter_mut().filter(|object| object.kind == KeyKind::Region) {
            let length = object.length;
            match &mut object.memory {
                Memory::Plain(host) => {
                    let Some(range) = overlap(*host, length, gone.range) else { continue };
                    object.gone.push(Gone { range, ..gone });
                    met += 1;
                }
                Memory::OnDemand(on_demand) => {
                    let Present::All(pages) = &mut on_demand.present else { continue };
                    let Some(range) = overlap(on_demand.host, length, gone.range) else {
                        continue;
                    };
                    let page = 1u64 << on_demand.shift;
                    for number in range.start.0 / page..=(range.start.0 + range.len - 1) / page {
                        on_demand.stats.invalidations += u64::from(pages.remove(&number));
                    }
                    on_demand.events += 1;
                    met += 1;
                }
                _ => {}
            }
        }
        met
    }

    /// What advice has to touch, or everything that is wrong with it.
    pub fn advise(
        &self,
        pd: PdId,
        lkey: Lkey,
        address: IoAddr,
        length: u64,
        writes: bool,
    ) -> Result<Absent, Vec<Reason>> {
        let key: Key = lkey.0;
        let unknown = || Reason::UnknownLkey { key };
        let Some(object) = self.by_index(key) else { return Err(vec![unknown()]) };
        let mut wrong = Vec::new();
        if object.kind != KeyKind::Region {
            let allowed = "the lkey of a memory region";
            wrong.push(Reason::Argument { what: "lkey", value: key.0.into(), allowed });
        }
        if object.lkey != Some(key) || object.change.is_some() {
            wrong.push(unknown());
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let Some(on_demand) = object.on_demand() else { return Err(vec![unknown()]) };
        if object.pd != pd {
            wrong.push(Reason::OtherPd);
        }
        if writes && !object.rights.contains(Rights::LOCAL_WRITE) {
            wrong.push(Reason::RightMissing { missing: Rights::LOCAL_WRITE });
        }
        let offset = super::access::place(object, key, address.0, length).unwrap_or_else(|_| {
            wrong.push(Reason::OutOfRange { address, length });
            0
        });
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let page = 1u64 << on_demand.shift;
        let first = (on_demand.host + offset) / page;
        let pages = match length {
            0 => 0,
            _ => (on_demand.host + offset + (length - 1)) / page - first + 1,
        };
        Ok(Absent {
            region: object.id,
            translation: on_demand.translation,
            events: on_demand.events,
            shift: on_demand.shift,
            range: HostRange { start: HostAddr(first * page), len: pages * page },
        })
    }

    /// Pages were touched: whether they count as present now.
    pub fn fault_in(&mut self, absent: &Absent, cause: FaultCause) -> bool {
        let Some(object) = self.by_id_mut(absent.region).filter(|object| object.serves()) else {
            return false;
        };
        let Memory::OnDemand(on_demand) = &mut object.memory else { return false };
        if on_demand.translation != absent.translation || on_demand.events != absent.events {
            return false;
        }
        let page = 1u64 << on_demand.shift;
        let first = absent.range.start.0 / page;
        let count =
            (first..first + absent.range.len / page).filter(|&n| on_demand.present.add(n)).count();
        let counter = match cause {
            FaultCause::Access => &mut on_demand.stats.faults,
            FaultCause::Prefetch => &mut on_demand.stats.prefetches,
        };
        *counter += count as u64;
        true
    }
}

fn overlap(host: u64, length: u64, with: HostRange) -> Option<HostRange> {
    let start = host.max(with.start.0);
    let end = (u128::from(host) + u128::from(length))
        .min(u128::from(with.start.0) + u128::from(with.len));
    (u128::from(start) < end)
        .then(|| HostRange { start: HostAddr(start), len: (end - u128::from(start)) as u64 })
}
