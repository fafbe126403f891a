//! The regions that there are, by their keys and by the objects that the program has.

use super::count::in_flight;
use super::finding::Found;
use super::lock::Spin;
use super::log::{Log, Placed};
use super::memory;
use super::spans::{Span, Spans};
use super::table::Table;
use super::{Called, Entered, Recorder, key};
use crate::raw::access::{ON_DEMAND, ZERO_BASED};
use crate::raw::{Call, Head, Header, Mr, Slot, USES, Verb, Wrong};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Regions at a time, at most.
pub const MOST: usize = super::spans::MOST;
/// Keys that were deregistered last, which are known for what they were.
const ENDED: usize = 1024;
/// Regions whose object others have before their deregistration is noted: so many threads may be amid one.
const DISPLACED: usize = 64;

/// `enum ibv_rereg_mr_flags`, the `detail` of an `ibv_rereg_mr`.
const CHANGE_TRANSLATION: u32 = 1;
const CHANGE_PD: u32 = 2;
const CHANGE_ACCESS: u32 = 4;

/// All of them.
pub struct Regions {
    by_key: Table,
    ended: Table,
    /// A region and its span, see [`both`].
    by_object: Table,
    pub spans: Spans,
    state: Spin<State>,
}

struct State {
    /// The keys of `ended` and what they had, a ring.
    ended: &'static mut [(u64, Slot)],
    next_ended: usize,
    /// Objects, and what they had.
    displaced: &'static mut [(u64, u64)],
    next_displaced: usize,
}

impl Regions {
    /// None yet. `None`: there is no memory.
    pub fn new() -> Option<Self> {
        Some(Self {
            by_key: Table::new(MOST),
            ended: Table::new(2 * ENDED),
            by_object: Table::new(MOST),
            spans: Spans::new(),
            state: Spin::new(State {
                ended: memory::zeros(ENDED)?,
                next_ended: 0,
                displaced: memory::zeros(DISPLACED)?,
                next_displaced: 0,
            }),
        })
    }

    /// The region of a local key, by the [`key`] of both.
    #[inline]
    pub fn find(&self, log: &Log, name: u64) -> Option<Placed<Mr>> {
        log.placed(self.by_key.get(name)? as Slot)
    }

    /// The region that a local key was of, if it was deregistered lately.
    pub fn find_ended(&self, log: &Log, name: u64) -> Option<Placed<Mr>> {
        log.placed(self.ended.get(name)? as Slot)
    }

    /// Whether it is of memory of the process that it names by its address.
    #[inline]
    pub fn is_memory(&self, mr: Placed<Mr>) -> bool {
        let verb = verb(mr);
        [Verb::RegMr, Verb::RegMrIova, Verb::ReregMr].iter().any(|of| *of as u16 == verb)
    }

    /// Whether it is one that has no memory.
    pub fn is_null(&self, mr: Placed<Mr>) -> bool {
        verb(mr) == Verb::NullMr as u16
    }

    /// A region's key names it from now on.
    pub fn insert_key(&self, name: u64, mr: Slot) -> bool {
        self.ended.remove(name);
        self.by_key.insert(name, mr.into()).is_ok()
    }

    /// A region is none any more, and was none.
    pub fn forget(&self, call: &Called, mr: Placed<Mr>) {
        self.remove_key(key(call.device, call.lkey), mr.slot);
        self.by_object.remove(call.object);
    }

    /// A key names nothing any more.
    pub fn remove_key(&self, name: u64, mr: Slot) {
        self.by_key.remove_if(name, |value| value == u64::from(mr));
    }
}

impl Recorder {
    /// A region was registered, by the call of this name.
    pub(super) fn registered(&self, call: &Called, by: Slot, span_of: Option<(u64, u64)>) -> Slot {
        let iova = match call.verb {
            // The device takes it from the address.
            Verb::RegMr if call.access & ZERO_BASED != 0 => 0,
            Verb::RegMr => call.addr,
            _ => call.iova,
        };
        let written = self.log.write(
            Mr {
                head: Head { len: 0, kind: 0, zero: 0 },
                addr: call.addr,
                len: call.len,
                iova,
                access: call.access,
                lkey: call.lkey,
                rkey: call.rkey,
                device: call.device,
                reg: by,
                dereg: 0,
                verb: call.verb as u16,
                zero: [0; 3],
                uses: [0; USES],
                done: 0,
                outside: 0,
                pd: call.parent,
                owners: [0; 2],
                own_uses: [0; USES - 1],
                own_done: [0; 2],
            },
            &[],
        );
        let Some(mr) = written else { return 0 };
        let span = span_of.map_or(0, |(addr, len)| self.regions.spans.add(addr, len, mr.slot));
        let known = self.regions.insert_key(key(call.device, call.lkey), mr.slot);
        match self.regions.by_object.insert(call.object, both(mr.slot, span)) {
            Ok(None) if known => {}
            Ok(None) => self.unfollowed(),
            // The object was freed by a deregistration that another thread is just back from.
            Ok(Some(before)) => self.displace(call.object, before),
            Err(_) => {
                self.unfollowed();
                self.regions.spans.remove(span);
            }
        }
        mr.slot
    }

    /// Whether memory of a call is memory of the process that has to stay: where it lies. What is
    /// registered on demand may go.
    pub(super) fn memory_of(call: &Called) -> Option<(u64, u64)> {
        let memory = matches!(call.verb, Verb::RegMr | Verb::RegMrIova | Verb::ReregMr);
        let memory = memory && call.access & ON_DEMAND == 0;
        memory.then_some((call.addr, call.len))
    }

    /// A region was deregistered, by a call of this name.
    pub(super) fn deregistered(&self, entered: Entered, call: &Called, by: Slot) -> Slot {
        let Some((mr, span)) = self.take_object(call.object, entered.begin) else { return 0 };
        self.regions.spans.remove(span);
        self.end_region(mr, by);
        mr.slot
    }

    /// A region was registered anew: it goes on, if its memory and its keys are the same, else it ends and
    /// another begins.
    pub(super) fn reregistered(&self, entered: Entered, call: &Called, by: Slot) -> Slot {
        let Some((old, span)) = self.take_object(call.object, entered.begin) else {
            return self.registered(call, by, Self::memory_of(call));
        };
        let translation = call.detail & CHANGE_TRANSLATION != 0;
        let access = old.half::<{ offset_of!(Mr, access) }>();
        let lkey = old.half::<{ offset_of!(Mr, lkey) }>().load(Relaxed);
        let rkey = old.half::<{ offset_of!(Mr, rkey) }>().load(Relaxed);
        let pd = old.word::<{ offset_of!(Mr, pd) }>();
        if !translation && (lkey, rkey) == (call.lkey, call.rkey) {
            if call.detail & CHANGE_ACCESS != 0 {
                access.store(call.access, Relaxed);
            }
            if call.detail & CHANGE_PD != 0 {
                pd.store(call.parent, Relaxed);
            }
            if self.regions.by_object.insert(call.object, both(old.slot, span)).is_err() {
                self.unfollowed();
            }
            return old.slot;
        }
        let mut new = *call;
        if !translation {
            new.addr = old.word::<{ offset_of!(Mr, addr) }>().load(Relaxed);
            new.len = old.word::<{ offset_of!(Mr, len) }>().load(Relaxed);
            new.iova = old.word::<{ offset_of!(Mr, iova) }>().load(Relaxed);
        }
        if call.detail & CHANGE_ACCESS == 0 {
            new.access = access.load(Relaxed);
        }
        if call.detail & CHANGE_PD == 0 {
            new.parent = pd.load(Relaxed);
        }
        // New memory is called by its address.
        if translation {
            new.iova = if new.access & ZERO_BASED != 0 { 0 } else { new.addr };
        }
        self.regions.spans.remove(span);
        self.end_region(old, by);
        self.registered(&new, by, Self::memory_of(&new))
    }

    /// The program gives memory back, within registered memory.
    pub(super) fn gone_near(&self, addr: u64, len: u64, how: Wrong) {
        let end = addr.saturating_add(len);
        // Blocks of an arena are freed all the time, by many threads: they do not wait for each other. Then
        // one that work in flight names may be missed.
        let spans = &self.regions.spans;
        let patient = how != Wrong::FreedRegistered || spans.may_be_within(addr, len);
        spans.overlapping(addr, len, patient, |slot, start, stop| {
            let Some(mr) = self.log.placed::<Mr>(slot) else { return };
            let (start_gone, end_gone) = (addr.max(start), end.min(stop));
            let queue = match in_flight(mr) {
                0 => None,
                _ => self.in_flight_within(slot, start_gone, end_gone),
            };
            let wrong = match queue {
                Some(_) => Wrong::GoneInFlight,
                // A region over many blocks is one that the program allocates from.
                None if how == Wrong::FreedRegistered && !(addr <= start && stop <= end) => return,
                None => how,
            };
            let found = Found {
                wrong,
                mr: Some(mr),
                queue: queue.unwrap_or(0),
                addr: start_gone,
                len: end_gone - start_gone,
                key: mr.half::<{ offset_of!(Mr, lkey) }>().load(Relaxed),
                against: mr.half::<{ offset_of!(Mr, reg) }>().load(Relaxed),
            };
            // The program's own allocator may be amid something: what allocates is not asked for.
            self.found(&found, false);
        });
    }

    /// A region found no place in the tables.
    pub(super) fn unfollowed(&self) {
        self.log.header().word::<{ offset_of!(Header, unfollowed) }>().fetch_add(1, Relaxed);
    }

    fn end_region(&self, mr: Placed<Mr>, by: Slot) {
        let lkey = mr.half::<{ offset_of!(Mr, lkey) }>().load(Relaxed);
        let device = mr.half::<{ offset_of!(Mr, device) }>().load(Relaxed);
        let name = key(device, lkey);
        self.regions.remove_key(name, mr.slot);
        mr.half::<{ offset_of!(Mr, dereg) }>().store(by, Relaxed);
        {
            let mut state = self.regions.state.lock();
            let at = state.next_ended % ENDED;
            state.next_ended = at + 1;
            if let Some(oldest) = state.ended.get_mut(at) {
                let (oldest, was) = std::mem::replace(oldest, (name, mr.slot));
                // It may have been another region's since, which ended later.
                self.regions.ended.remove_if(oldest, |slot| slot == u64::from(was));
            }
            // It holds twice as many.
            let _ = self.regions.ended.insert(name, mr.slot.into());
        }
        // Only what is known to be in flight still is told of.
        if in_flight(mr) > 0
            && let Some(queue) = self.in_flight(mr.slot, 0, u64::MAX)
        {
            let addr = mr.word::<{ offset_of!(Mr, addr) }>().load(Relaxed);
            let len = mr.word::<{ offset_of!(Mr, len) }>().load(Relaxed);
            let found = Found {
                wrong: Wrong::DeregInFlight,
                mr: Some(mr),
                queue,
                addr,
                len,
                key: lkey,
                against: mr.half::<{ offset_of!(Mr, reg) }>().load(Relaxed),
            };
            self.found(&found, true);
        }
    }

    /// Takes out what an object had when a call began.
    fn take_object(&self, object: u64, begin: u64) -> Option<(Placed<Mr>, Span)> {
        let regions = &self.regions;
        let taken = regions.by_object.remove_if(object, |value| {
            // Of a registration that returned since, the object is another's.
            let mr = self.log.placed::<Mr>(value as Slot);
            let reg = mr.and_then(|mr| {
                self.log.placed::<Call>(mr.half::<{ offset_of!(Mr, reg) }>().load(Relaxed))
            });
            reg.is_none_or(|call| call.word::<{ offset_of!(Call, end) }>().load(Relaxed) <= begin)
        });
        let value = taken.or_else(|| {
            let mut state = regions.state.lock();
            let found = state.displaced.iter_mut().find(|(of, _)| *of == object)?;
            Some(std::mem::take(found).1)
        })?;
        Some((self.log.placed(value as Slot)?, (value >> 32) as Span))
    }

    /// An object is another region's before the deregistration of the one it had is noted.
    fn displace(&self, object: u64, value: u64) {
        let mut state = self.regions.state.lock();
        let at = state.next_displaced % DISPLACED;
        state.next_displaced = at + 1;
        let Some(place) = state.displaced.get_mut(at) else { return };
        let (_, never) = std::mem::replace(place, (object, value));
        drop(state);
        // Its end was never told: it lies there no more, whatever became of it.
        self.regions.spans.remove((never >> 32) as Span);
    }
}

/// A region and its span in one number.
fn both(mr: Slot, span: Span) -> u64 {
    u64::from(span) << 32 | u64::from(mr)
}

#[inline]
fn verb(mr: Placed<Mr>) -> u16 {
    let [a, b, ..] = mr.word::<{ offset_of!(Mr, verb) }>().load(Relaxed).to_ne_bytes();
    u16::from_ne_bytes([a, b])
}
