//! Calls of the control path.

use super::{Called, Entered, Recorder, SHORT, now, stack, thread};
use crate::raw::{Call, Device, Head, Header, Slot, Verb};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// A process that has run for so long (ns) has its mappings looked at before it first deregisters.
const LOOKS_AFTER: u64 = 1_000_000;

impl Recorder {
    /// It has returned: notes it with its place in the program. `left` is what [`Recorder::leave`]
    /// gives, taken right after the call.
    #[inline(never)]
    pub fn called(&self, entered: Entered, left: Entered, call: &Called) {
        let Some(_inside) = thread::Inside::enter() else { return };
        let looked = self.note(entered, left, call, &stack::here());
        let header = self.log.header();
        header.word::<{ offset_of!(Header, calls) }>().fetch_add(1, Relaxed);
        let took = now().saturating_sub(left.begin).saturating_sub(looked);
        // Taking the times at the beginning; those at the end are within.
        let took = took + self.entering.load(Relaxed);
        header.word::<{ offset_of!(Header, calls_overhead) }>().fetch_add(took, Relaxed);
    }

    /// A device that was opened, by the address of its context.
    pub fn device(&self, object: u64, name: &[u8], guid: u64, soft: bool) -> Slot {
        let Some(_inside) = thread::Inside::enter() else { return 0 };
        let fixed = Device {
            head: Head { len: 0, kind: 0, zero: 0 },
            object,
            guid,
            soft: soft.into(),
            name: name.len() as u32,
            rest: [0; 4],
        };
        // One byte more: the zero.
        let room = self.log.room::<Device>(name.len() + 1);
        room.map_or(0, |mut room| {
            room.tail().iter_mut().zip(name).for_each(|(to, from)| *to = *from);
            room.finish(fixed).slot
        })
    }

    /// Notes a call; how long looking at the mappings took with it.
    fn note(&self, entered: Entered, left: Entered, call: &Called, here: &stack::Here) -> u64 {
        let thread = thread::here(self);
        let written = self.log.write(
            Call {
                head: Head { len: 0, kind: 0, zero: 0 },
                begin: entered.begin,
                end: left.begin,
                cpu: cpu(entered, left),
                posts: thread::posts(thread).load(Relaxed),
                object: call.object,
                parent: call.parent,
                addr: call.addr,
                len: call.len,
                iova: call.iova,
                verb: call.verb as u16,
                zero: 0,
                errno: call.errno,
                access: call.access,
                lkey: call.lkey,
                rkey: call.rkey,
                stack: self.stacks.place(&self.log, here, true),
                thread: thread.slot,
                device: call.device,
                mr: 0,
                detail: call.detail,
                rest: [0; 18],
            },
            &[],
        );
        if call.errno != 0 {
            return 0;
        }
        let by = written.map_or(0, |written| written.slot);
        let mut looked = 0;
        let mr = match call.verb {
            Verb::RegMr | Verb::RegMrIova | Verb::RegDmabufMr | Verb::RegDmMr | Verb::NullMr => {
                self.registered(call, by, Self::memory_of(call))
            }
            Verb::ReregMr => self.reregistered(entered, call, by),
            Verb::DeregMr => {
                looked = self.look_first();
                self.deregistered(entered, call, by)
            }
            Verb::AllocMw => {
                self.allocated(call, by);
                0
            }
            Verb::DeallocMw => {
                self.deallocated(call, by);
                0
            }
            _ => 0,
        };
        if let Some(written) = written {
            written.half::<{ offset_of!(Call, mr) }>().store(mr, Relaxed);
        }
        looked
    }

    /// Looks at the mappings, if that was not done and the process is not short-lived: how long that took.
    fn look_first(&self) -> u64 {
        let header = self.log.header();
        let began = header.word::<{ offset_of!(Header, began) }>().load(Relaxed);
        let overhead = header.word::<{ offset_of!(Header, maps_overhead) }>();
        let before = overhead.load(Relaxed);
        if before != 0 || now().saturating_sub(began) < LOOKS_AFTER {
            return 0;
        }
        self.looks.first(&self.log);
        overhead.load(Relaxed).saturating_sub(before)
    }
}

/// What of the CPU the thread had between two times.
fn cpu(entered: Entered, left: Entered) -> u64 {
    let wall = left.begin.saturating_sub(entered.begin);
    match (entered.cpu, left.cpu) {
        (_, u64::MAX) if wall < SHORT => wall,
        (u64::MAX, _) | (_, u64::MAX) => u64::MAX,
        (before, after) => after.saturating_sub(before),
    }
}
