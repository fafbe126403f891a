//! Random programs: mostly such as work, with mistakes made on purpose.

use super::program::*;
use fastrand::Rng;
use mkey_core::rights::Rights;

/// What the devices at hand have in common; programs use no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// On-demand regions.
    pub on_demand: bool,
}

impl Offer {
    /// Everything.
    pub const ALL: Self = Self { on_demand: true };
}

/// The program with this number.
pub fn program(seed: u64, offer: Offer) -> Program {
    let mut generator = Generator {
        rng: Rng::with_seed(seed),
        offer,
        regions: Default::default(),
        windows: Default::default(),
        receives: [0; 2],
        broken: false,
    };
    let steps = generator.rng.usize(4..16);
    let mut program = Program { steps: generator.prelude() };
    while program.steps.len() < steps + 6 {
        let step = generator.step();
        generator.note(&step);
        program.steps.push(step);
    }
    program
}

const PEER: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_READ).union(Rights::REMOTE_ATOMIC);
const ALL: Rights = PEER.union(Rights::LOCAL_WRITE).union(Rights::MW_BIND);
/// Lengths at which something changes: nothing, an atomic, inline, a packet, several.
const LENGTHS: [u32; 11] = [0, 1, 7, 8, 64, 65, 500, 1024, 1025, 3000, MESSAGE];

/// What a generator remembers of a region.
#[derive(Clone, Copy, Debug)]
struct Region {
    length: u64,
    rights: Rights,
    apart: bool,
}

/// What it remembers of a window.
#[derive(Clone, Copy, Debug)]
struct Window {
    type2: bool,
    /// By which end, how long, with which rights.
    bound: Option<(End, u64, Rights)>,
}

struct Generator {
    rng: Rng,
    offer: Offer,
    regions: [Option<Region>; REGIONS],
    windows: [Option<Window>; WINDOWS],
    receives: [usize; 2],
    /// A mistake was made by which the queue pairs may have failed.
    broken: bool,
}

impl Generator {
    /// What most programs need: regions of both ends, a window of each type.
    fn prelude(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for region in [0, 4] {
            let offset = if region == 0 { 0 } else { HALF };
            let (length, iova) = (8192, None);
            let register = Register { region, apart: false, offset, length, iova, rights: ALL };
            steps.push(Step::Register(register));
        }
        steps.push(Step::Allocate { window: 0, type2: true, apart: false });
        steps.push(Step::Allocate { window: 1, type2: false, apart: false });
        for step in &steps {
            self.note(step);
        }
        steps
    }

    /// Whether a mistake is made here.
    fn slip(&mut self) -> bool {
        let slips = self.rng.u8(..) < 3;
        self.broken |= slips;
        slips
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.rng.choice(from).copied()
    }

    fn end(&mut self) -> End {
        if self.rng.bool() { End::A } else { End::B }
    }

    fn step(&mut self) -> Step {
        if self.broken && self.chance(80) {
            return Step::Connect;
        }
        match self.rng.u8(..100) {
            // Once in a while also where nothing may come of it.
            23..38 if self.broken && self.chance(90) => Step::Connect,
            0..10 => self.register(),
            10..11 => {
                let rights = if self.slip() { Rights::REMOTE_WRITE } else { self.rights() };
                Step::Reregister { region: self.some_region(), rights }
            }
            11..16 => Step::Deregister { region: self.some_region() },
            16..20 => Step::Allocate {
                window: self.rng.u8(..WINDOWS as u8),
                type2: self.rng.bool(),
                apart: self.slip(),
            },
            20..23 => Step::Free { window: self.rng.u8(..WINDOWS as u8) },
            23..38 => {
                let at = self.end();
                Step::Receive { at, chain: self.receives(at) }
            }
            38..92 => self.post(),
            92..96 => self.modify(),
            _ => Step::Connect,
        }
    }

    /// A slot, whatever is in it.
    fn some_region(&mut self) -> u8 {
        // Not those of the prelude: without them little is left that works.
        if self.chance(5) {
            return self.rng.u8(..REGIONS as u8);
        }
        self.pick(&[1, 2, 3, 5, 6, 7]).unwrap_or(1)
    }

    fn rights(&mut self) -> Rights {
        let mut rights = Rights::LOCAL_WRITE;
        for right in [
            Rights::REMOTE_WRITE,
            Rights::REMOTE_READ,
            Rights::REMOTE_ATOMIC,
            Rights::MW_BIND,
            Rights::RELAXED_ORDERING,
        ] {
            rights.set(right, self.chance(70));
        }
        if self.offer.on_demand && self.chance(15) {
            rights |= Rights::ON_DEMAND;
        }
        if self.slip() {
            rights.remove(Rights::LOCAL_WRITE);
        }
        rights
    }

    fn register(&mut self) -> Step {
        let region = self.some_region();
        let half = if usize::from(region) < REGIONS / 2 { 0 } else { HALF };
        let (mut offset, mut length) = (half + self.rng.u64(..HALF / 2), self.rng.u64(1..HALF / 2));
        if self.chance(30) {
            (offset, length) = (offset & !4095, 4096);
        }
        let mut iova = self.chance(30).then(|| (self.rng.u64(..1 << 20) << 12) | (offset & 4095));
        if self.slip() {
            match self.rng.u8(..6) {
                0 => (offset, length) = (READ_ONLY, 4096),
                1 => (offset, length) = (READ_ONLY, 8192),
                2 => (offset, length) = (HOLE, 100),
                3 => length = u64::MAX - self.rng.u64(..4096),
                4 => length = 0,
                _ => iova = Some((self.rng.u64(..1 << 20) << 12) | (offset + 1) & 4095),
            }
        }
        let (apart, rights) = (self.slip(), self.rights());
        Step::Register(Register { region, apart, offset, length, iova, rights })
    }

    fn key(&mut self) -> Key {
        if !self.slip() {
            return Key::Current;
        }
        self.pick(&[Key::Stale, Key::Variant, Key::Zero, Key::Unknown]).unwrap_or_default()
    }

    /// A place for `length` bytes within `room`, or a little outside of it.
    fn place(&mut self, length: u64, room: u64) -> i64 {
        let most = room.saturating_sub(length) as i64;
        if self.slip() {
            return self.pick(&[-1, most + 1, -4096, most + 4096, i64::MIN + 8]).unwrap_or(-1);
        }
        match self.rng.u8(..4) {
            0 => 0,
            1 => most,
            _ => self.rng.i64(0..=most),
        }
    }

    /// A slot of `of` whose region will do for `length` bytes and these rights.
    fn region(&mut self, of: End, length: u64, rights: Rights) -> u8 {
        let first = of.index() * REGIONS / 2;
        let fits = |region: &Region| {
            region.length >= length && region.rights.contains(rights) && !region.apart
        };
        let own = (first..first + REGIONS / 2).filter(|&slot| {
            self.regions.get(slot).is_some_and(|region| region.as_ref().is_some_and(fits))
        });
        let own: Vec<_> = own.map(|slot| slot as u8).collect();
        match self.slip() {
            false => self.pick(&own).unwrap_or(first as u8),
            true => first as u8 + self.rng.u8(..REGIONS as u8 / 2),
        }
    }

    fn entries(&mut self, of: End, length: u32, rights: Rights) -> Vec<Entry> {
        let parts = if self.chance(75) { 1 } else { self.rng.u32(..5) };
        let (mut left, mut entries) = (length, Vec::new());
        for part in (0..parts).rev() {
            let length = if part == 0 { left } else { self.rng.u32(..=left) };
            left -= length;
            let region = self.region(of, length.into(), rights);
            let room = self.regions.get(usize::from(region)).copied().flatten();
            let room = room.map_or(0, |region| region.length);
            let at = self.place(length.into(), room);
            entries.push(Entry { region, key: self.key(), at, length });
        }
        entries
    }

    fn receives(&mut self, at: End) -> Vec<Vec<Entry>> {
        let count = self.rng.usize(1..4);
        (0..count)
            .map(|_| {
                let length = if self.chance(80) { MESSAGE } else { self.length() };
                self.entries(at, length, Rights::LOCAL_WRITE)
            })
            .collect()
    }

    fn length(&mut self) -> u32 {
        self.pick(&LENGTHS).unwrap_or(1)
    }

    /// Memory of `of`, by a region's key or a window's.
    fn target(&mut self, of: End, length: u64, rights: Rights) -> Target {
        let windows = self.windows.iter().enumerate().filter_map(|(slot, window)| {
            let (end, bytes, granted) = window.as_ref()?.bound?;
            (end == of && bytes >= length && granted.contains(rights)).then_some((slot, bytes))
        });
        let windows: Vec<_> = windows.collect();
        let (owner, room) = match self.pick(&windows).filter(|_| self.chance(60)) {
            Some((slot, bytes)) => (Owner::Window(slot as u8), bytes),
            None if self.slip() => (Owner::Window(self.rng.u8(..WINDOWS as u8)), 64),
            None => {
                let slot = self.region(of, length, rights);
                let region = self.regions.get(usize::from(slot)).copied().flatten();
                (Owner::Region(slot), region.map_or(0, |region| region.length))
            }
        };
        Target { owner, key: self.key(), at: self.place(length, room) }
    }

    fn post(&mut self) -> Step {
        let from = self.end();
        let many = if self.chance(75) { 1 } else { self.rng.usize(2..5) };
        let mut chain: Vec<Request> = Vec::new();
        let mut must_wait = false;
        for _ in 0..many {
            let mut request = self.request(from);
            // What runs while a READ or a change of keys is under way may meet either side of it.
            let changes = matches!(request.op, Op::Bind(_) | Op::LocalInv(..));
            request.fence = must_wait || changes || self.chance(10);
            must_wait |= !matches!(request.op, Op::Send | Op::SendImm(_) | Op::Write(_));
            chain.push(request);
        }
        Step::Post { from, chain }
    }

    fn request(&mut self, from: End) -> Request {
        let peer = from.peer();
        let waiting = self.receives.get(peer.index()).copied().unwrap_or(0);
        // A message without a receive ends the connection: seldom.
        let sends = waiting > 0 || self.slip();
        let length = self.length();
        let op = match self.rng.u8(..100) {
            0..20 if sends => Op::Send,
            20..25 if sends => Op::SendImm(self.rng.u32(..)),
            25..30 if sends && (self.has_bound(peer) || self.slip()) => {
                Op::SendInv(self.invalid(peer), self.key())
            }
            30..37 if sends => {
                Op::WriteImm(self.target(peer, length.into(), Rights::REMOTE_WRITE), 7)
            }
            ..55 => Op::Write(self.target(peer, length.into(), Rights::REMOTE_WRITE)),
            55..68 => Op::Read(self.target(peer, length.into(), Rights::REMOTE_READ)),
            68..74 => Op::FetchAdd(self.word(peer), self.rng.u64(..)),
            74..78 => Op::CompareSwap(self.word(peer), 0, self.rng.u64(..)),
            78..92 => Op::Bind(self.bind(from)),
            _ if !self.has_bound(from) && !self.slip() => {
                Op::Write(self.target(peer, length.into(), Rights::REMOTE_WRITE))
            }
            _ => Op::LocalInv(self.invalid(from), self.key()),
        };
        let data = match op {
            Op::Bind(_) | Op::LocalInv(..) if !self.slip() => Data::Entries(Vec::new()),
            Op::FetchAdd(..) | Op::CompareSwap(..) => {
                let length = if self.slip() { 7 + 2 * u32::from(self.rng.bool()) } else { 8 };
                let mut entries = self.entries(from, length, Rights::LOCAL_WRITE);
                entries.truncate(if self.slip() { 2 } else { 1 });
                for entry in &mut entries {
                    entry.length = length;
                }
                Data::Entries(entries)
            }
            Op::Read(_) => Data::Entries(self.entries(from, length, Rights::LOCAL_WRITE)),
            Op::Bind(_) | Op::LocalInv(..) => {
                Data::Entries(self.entries(from, length, Rights::empty()))
            }
            _ if length <= 64 && self.chance(30) => Data::Inline(length),
            _ if self.slip() && self.chance(20) => Data::Inline(65),
            _ => Data::Entries(self.entries(from, length, Rights::empty())),
        };
        Request { op, data, signaled: self.chance(70), fence: false }
    }

    /// Eight bytes for an atomic.
    fn word(&mut self, of: End) -> Target {
        let mut target = self.target(of, 8, Rights::REMOTE_ATOMIC);
        if target.at > 0 && !self.slip() {
            target.at &= !7;
        }
        target
    }

    fn bind(&mut self, by: End) -> Bind {
        let free = |window: &Window| !window.type2 || window.bound.is_none();
        let free =
            self.windows.iter().enumerate().filter_map(|(slot, window)| {
                window.as_ref().is_some_and(free).then_some(slot as u8)
            });
        let free: Vec<_> = free.collect();
        let any = self.rng.u8(..WINDOWS as u8);
        let window = if self.slip() { any } else { self.pick(&free).unwrap_or(any) };
        let length = self.pick(&[1, 64, 1000, 4096, 4097, 0]).unwrap_or(64);
        let length = if length == 0 && self.chance(70) { 64 } else { length };
        let region = self.region(by, length, Rights::MW_BIND);
        let room = self.regions.get(usize::from(region)).copied().flatten();
        let at = self.place(length, room.map_or(0, |region| region.length));
        let mut rights = PEER;
        for right in [Rights::REMOTE_WRITE, Rights::REMOTE_READ, Rights::REMOTE_ATOMIC] {
            rights.set(right, self.chance(80));
        }
        rights.set(Rights::LOCAL_WRITE, self.chance(10));
        if self.slip() {
            rights |= self
                .pick(&[Rights::ZERO_BASED, Rights::MW_BIND, Rights::ON_DEMAND])
                .unwrap_or(Rights::MW_BIND);
        }
        Bind {
            window,
            key: self.key(),
            step: self.rng.u8(1..=255),
            wrong_type: self.slip(),
            region,
            region_key: self.key(),
            at,
            length,
            rights,
        }
    }

    /// What to invalidate, which `of` has bound.
    fn invalid(&mut self, of: End) -> Owner {
        if self.slip() {
            return match self.rng.bool() {
                true => Owner::Region(self.rng.u8(..REGIONS as u8)),
                false => Owner::Window(self.rng.u8(..WINDOWS as u8)),
            };
        }
        let bound = self.bound(of);
        self.broken |= bound.is_empty();
        Owner::Window(self.pick(&bound).unwrap_or(0))
    }

    /// The windows of type 2 that `by` has bound.
    fn bound(&self, by: End) -> Vec<u8> {
        let bound =
            |window: &Window| window.type2 && window.bound.is_some_and(|(end, ..)| end == by);
        let slots = self.windows.iter().enumerate();
        let slots = slots.filter(|(_, window)| window.as_ref().is_some_and(bound));
        slots.map(|(slot, _)| slot as u8).collect()
    }

    fn has_bound(&self, by: End) -> bool {
        !self.bound(by).is_empty()
    }

    fn modify(&mut self) -> Step {
        let to = self.pick(&[State::Reset, State::Init, State::Rtr, State::Rts, State::Err]);
        let without = self.chance(30).then(|| {
            self.pick(&[
                Attribute::Port,
                Attribute::Rights,
                Attribute::Path,
                Attribute::RqPsn,
                Attribute::MinRnrTimer,
                Attribute::SqPsn,
                Attribute::Timeout,
            ])
        });
        self.broken = true;
        Step::Modify { at: self.end(), to: to.unwrap_or(State::Err), without: without.flatten() }
    }

    /// Remembers what a step does if it works.
    fn note(&mut self, step: &Step) {
        match step {
            Step::Register(register) => {
                let Register { length, rights, apart, .. } = *register;
                if let Some(slot) = self.regions.get_mut(usize::from(register.region)) {
                    *slot =
                        (length > 0 && length < HALF).then_some(Region { length, rights, apart });
                }
            }
            Step::Deregister { region } => {
                if let Some(slot) = self.regions.get_mut(usize::from(*region)) {
                    *slot = None;
                }
            }
            Step::Allocate { window, type2, .. } => {
                if let Some(slot) = self.windows.get_mut(usize::from(*window)) {
                    *slot = Some(Window { type2: *type2, bound: None });
                }
            }
            Step::Free { window } => {
                if let Some(slot) = self.windows.get_mut(usize::from(*window)) {
                    *slot = None;
                }
            }
            Step::Receive { at, chain } => {
                if let Some(count) = self.receives.get_mut(at.index()) {
                    *count += chain.len();
                }
            }
            Step::Post { from, chain } => {
                for request in chain {
                    self.note_request(*from, &request.op);
                }
            }
            Step::Connect => {
                self.receives = [0; 2];
                self.broken = false;
            }
            Step::Reregister { .. } | Step::Modify { .. } => {}
        }
    }

    fn note_request(&mut self, from: End, op: &Op) {
        let (slot, bound) = match op {
            Op::Bind(bind) => {
                let bound = (bind.length > 0).then_some((from, bind.length, bind.rights));
                (usize::from(bind.window), bound)
            }
            Op::LocalInv(Owner::Window(slot), _) | Op::SendInv(Owner::Window(slot), _) => {
                (usize::from(*slot), None)
            }
            _ => (WINDOWS, None),
        };
        if let Some(Some(window)) = self.windows.get_mut(slot) {
            window.bound = bound;
        }
        if matches!(op, Op::Send | Op::SendImm(_) | Op::SendInv(..) | Op::WriteImm(..))
            && let Some(count) = self.receives.get_mut(from.peer().index())
        {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_makes_the_same_program_and_all_operations_occur() {
        let mut kinds = HashSet::new();
        for seed in 0..300 {
            let program = super::program(seed, Offer::ALL);
            assert_eq!(program, super::program(seed, Offer::ALL));
            for step in &program.steps {
                kinds.extend(step.kind());
                if let Step::Post { chain, .. } = step {
                    kinds.extend(chain.iter().map(|request| request.op.kind(true)));
                }
            }
        }
        // All but BIND of type 1, which is one with the other here, and CleanUp, which is no step.
        assert_eq!(kinds.len(), 16, "{kinds:?}");
    }
}
