//! Random programs: mostly such as work, with mistakes made on purpose.

use super::offer::Offer;
use super::program::*;
use fastrand::Rng;
use mkey_core::rights::Rights;
use std::sync::OnceLock;

/// Programs that show what random ones seldom do, each under a comment that says what.
const KEPT: &str = include_str!("kept.txt");

/// The program with this number: the first are those that are kept, the others are random.
pub fn program(number: u64, offer: Offer) -> Program {
    static PARSED: OnceLock<Vec<Program>> = OnceLock::new();
    let kept = PARSED.get_or_init(|| kept().unwrap_or_default());
    let number_of = usize::try_from(number).ok();
    if let Some(program) = number_of.and_then(|number| kept.get(number)) {
        return program.clone();
    }
    let mut generator = Generator {
        rng: Rng::with_seed(number),
        offer,
        regions: Default::default(),
        windows: Default::default(),
        receives: [0; 2],
        broken: false,
        walks: false,
        states: [State::Rts; 2],
    };
    let steps = generator.rng.usize(4..16);
    let mut program = Program { steps: generator.prelude() };
    let all = program.steps.len() + steps;
    while program.steps.len() < all {
        let step = generator.step();
        generator.note(&step);
        program.steps.push(step);
    }
    program
}

/// The programs that are kept.
///
/// # Errors
/// The line that is no step, counted in its program, and why.
fn kept() -> Result<Vec<Program>, String> {
    KEPT.split("\n\n").map(Program::parse).collect()
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
    /// How far its first byte is behind a multiple of 8.
    odd: u64,
}

/// What it remembers of a window.
#[derive(Clone, Copy, Debug)]
struct Window {
    type2: bool,
    bound: Option<Bound>,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
struct Bound {
    by: End,
    length: u64,
    rights: Rights,
    /// As for regions.
    odd: u64,
}

struct Generator {
    rng: Rng,
    offer: Offer,
    regions: [Option<Region>; REGIONS],
    windows: [Option<Window>; WINDOWS],
    receives: [usize; 2],
    /// A mistake was made by which the queue pairs may have failed.
    broken: bool,
    /// The last step changed a state.
    walks: bool,
    /// The states that the queue pairs are in if all has worked.
    states: [State; 2],
}

impl Generator {
    /// What most programs need: regions of both ends, a window of each type, receives.
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
        for at in [End::A, End::B] {
            steps.push(Step::Receive { at, chain: self.receives(at) });
        }
        for step in &steps {
            self.note(step);
        }
        if self.rng.bool() {
            let from = self.end();
            let op = Op::Bind(Bind { window: 0, wrong_type: false, ..self.bind(from) });
            let data = Data::Entries(Vec::new());
            let chain = vec![Request { op, data, signaled: true, fence: false }];
            let step = Step::Post { from, chain };
            self.note(&step);
            steps.push(step);
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
        // Changes of state come in a row, so that states are met which Connect leaves at once.
        if self.walks && self.chance(60) {
            return self.modify();
        }
        self.walks = false;
        // Once in a while also where nothing may come of it.
        if self.broken && self.chance(75) {
            return Step::Connect;
        }
        match self.rng.u8(..100) {
            0..10 => self.register(),
            10..12 if self.offer.contains(Offer::REREG) => {
                let rights = if self.slip() { Rights::REMOTE_WRITE } else { self.rights() };
                Step::Reregister { region: self.some_region(true), rights }
            }
            10..16 => Step::Deregister { region: self.some_region(true) },
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

    /// A slot, mostly one whose region is there or is not, as is asked.
    fn some_region(&mut self, there: bool) -> u8 {
        // Not those of the prelude: without them little is left that works.
        if self.chance(5) {
            return self.rng.u8(..REGIONS as u8);
        }
        let fits = |slot: &u8| {
            let region = self.regions.get(usize::from(*slot)).copied().flatten();
            !slot.is_multiple_of(4) && region.is_some() == there
        };
        let fits: Vec<_> = (0..REGIONS as u8).filter(fits).collect();
        match self.pick(&fits).filter(|_| self.chance(90)) {
            Some(slot) => slot,
            None => self.pick(&[1, 2, 3, 5, 6, 7]).unwrap_or(1),
        }
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
        if self.offer.contains(Offer::ON_DEMAND) && self.chance(15) {
            rights |= Rights::ON_DEMAND;
        }
        if self.slip() {
            rights.remove(Rights::LOCAL_WRITE);
        }
        rights
    }

    fn register(&mut self) -> Step {
        let region = self.some_region(false);
        let half = if usize::from(region) < REGIONS / 2 { 0 } else { HALF };
        let (mut offset, mut length) = (half + self.rng.u64(..HALF / 2), self.rng.u64(1..HALF / 2));
        if self.chance(30) {
            (offset, length) = (offset & !4095, 4096);
        }
        let mut iova = self.chance(30).then(|| (self.rng.u64(..1 << 20) << 12) | (offset & 4095));
        if self.slip() {
            match self.rng.u8(..8) {
                0 => (offset, length) = (READ_ONLY, 4096),
                1 => (offset, length) = (READ_ONLY, 8192),
                2 => (offset, length) = (HOLE, 100),
                3 => length = u64::MAX - self.rng.u64(..4096),
                4 | 5 => (offset, length) = (if self.rng.bool() { half } else { offset }, 0),
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
                let length = if self.chance(90) { MESSAGE } else { self.length() };
                self.entries(at, length, Rights::LOCAL_WRITE)
            })
            .collect()
    }

    fn length(&mut self) -> u32 {
        self.pick(&LENGTHS).unwrap_or(1)
    }

    /// Memory of `of`, by a region's key or a window's, and how odd its first byte is.
    fn owner(&mut self, of: End, length: u64, rights: Rights) -> (Owner, u64, u64) {
        let fits = |bound: &Bound| {
            bound.by == of && bound.length >= length && bound.rights.contains(rights)
        };
        let windows = self.windows.iter().enumerate().filter_map(|(slot, window)| {
            let bound = window.as_ref()?.bound.filter(fits)?;
            Some((Owner::Window(slot as u8), bound.length, bound.odd))
        });
        let windows: Vec<_> = windows.collect();
        match self.pick(&windows).filter(|_| self.chance(60)) {
            Some(window) => window,
            None if self.slip() => (Owner::Window(self.rng.u8(..WINDOWS as u8)), 64, 0),
            None => {
                let slot = self.region(of, length, rights);
                let region = self.regions.get(usize::from(slot)).copied().flatten();
                let (room, odd) = region.map_or((0, 0), |region| (region.length, region.odd));
                (Owner::Region(slot), room, odd)
            }
        }
    }

    fn target(&mut self, of: End, length: u64, rights: Rights) -> Target {
        let (owner, room, _) = self.owner(of, length, rights);
        let mut at = self.place(length, room);
        // Out of a window, but mostly not out of its region.
        if matches!(owner, Owner::Window(_)) && self.chance(5) {
            self.broken = true;
            at = if self.rng.bool() { -1 } else { room as i64 - i64::from(self.rng.u8(..8)) };
        }
        Target { owner, key: self.key(), at }
    }

    /// Eight bytes for an atomic.
    fn word(&mut self, of: End) -> Target {
        let (owner, room, odd) = self.owner(of, 8, Rights::REMOTE_ATOMIC);
        let (mut at, first) = (self.place(8, room), (8 - odd as i64) % 8);
        if (0..=room as i64 - 8).contains(&at) && !self.slip() {
            at = if at < first { first } else { at - (at - first) % 8 };
        }
        Target { owner, key: self.key(), at }
    }

    fn post(&mut self) -> Step {
        let from = self.end();
        let many = if self.chance(75) { 1 } else { self.rng.usize(2..5) };
        let mut chain: Vec<Request> = Vec::new();
        let (mut must_wait, mut sent, mut fenced) = (false, false, false);
        let behind = self.offer.contains(Offer::BEHIND);
        for _ in 0..many {
            let mut request = self.request(from);
            let reads = matches!(request.op, Op::Read(_) | Op::FetchAdd(..) | Op::CompareSwap(..));
            let binds = matches!(request.op, Op::Bind(_));
            let local = binds || matches!(request.op, Op::LocalInv(..));
            if !behind && (reads && fenced || binds && sent) {
                break;
            }
            // What runs while a READ or a change of keys is under way may meet either side of it.
            request.fence = (must_wait || local || self.chance(10)) && (behind || !reads);
            must_wait |= !matches!(request.op, Op::Send | Op::SendImm(_) | Op::Write(_));
            sent |= !local;
            fenced |= request.fence;
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
            0..12 if sends && self.has_bound(peer) => Op::SendInv(self.invalid(peer), self.key()),
            0..24 if sends => Op::Send,
            24..29 if sends => Op::SendImm(self.rng.u32(..)),
            29..30 if sends && self.slip() => Op::SendInv(self.invalid(peer), self.key()),
            30..38 if sends => {
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
        // What the other end has bound.
        let of = if self.chance(4) { of.peer() } else { of };
        let bound = self.bound(of);
        self.broken |= bound.is_empty();
        Owner::Window(self.pick(&bound).unwrap_or(0))
    }

    /// The windows of type 2 that `by` has bound.
    fn bound(&self, by: End) -> Vec<u8> {
        let bound =
            |window: &Window| window.type2 && window.bound.is_some_and(|bound| bound.by == by);
        let slots = self.windows.iter().enumerate();
        let slots = slots.filter(|(_, window)| window.as_ref().is_some_and(bound));
        slots.map(|(slot, _)| slot as u8).collect()
    }

    fn has_bound(&self, by: End) -> bool {
        !self.bound(by).is_empty()
    }

    fn modify(&mut self) -> Step {
        (self.broken, self.walks) = (true, true);
        let at = self.end();
        let next: &[State] = match self.states.get(at.index()).copied().unwrap_or(State::Rts) {
            State::Reset => &[State::Init],
            State::Init => &[State::Rtr, State::Err],
            State::Rtr => &[State::Rts],
            State::Rts => &[State::Rts, State::Reset, State::Err],
            State::Err => &[State::Reset],
        };
        let any = &[State::Reset, State::Init, State::Rtr, State::Rts, State::Err];
        let to = if self.chance(65) { self.pick(next) } else { self.pick(any) };
        let without = self.chance(15).then(|| {
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
        Step::Modify { at, to: to.unwrap_or(State::Err), without: without.flatten() }
    }

    /// Remembers what a step does if it works.
    fn note(&mut self, step: &Step) {
        match step {
            Step::Register(register) => {
                let Register { length, rights, apart, offset, iova, .. } = *register;
                let odd = iova.unwrap_or(offset) % 8;
                if let Some(slot) = self.regions.get_mut(usize::from(register.region)) {
                    let region = Region { length, rights, apart, odd };
                    *slot = (length > 0 && length < HALF).then_some(region);
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
                (self.receives, self.states) = ([0; 2], [State::Rts; 2]);
                self.broken = false;
            }
            Step::Modify { at, to, .. } => {
                if let Some(state) = self.states.get_mut(at.index()) {
                    *state = *to;
                }
            }
            Step::Reregister { .. } => {}
        }
    }

    fn note_request(&mut self, from: End, op: &Op) {
        let (slot, bound) = match op {
            Op::Bind(bind) => {
                let region = self.regions.get(usize::from(bind.region)).copied().flatten();
                let odd = region.map_or(0, |region| region.odd).wrapping_add_signed(bind.at) % 8;
                let Bind { length, rights, .. } = *bind;
                let bound = Bound { by: from, length, rights, odd };
                (usize::from(bind.window), (length > 0).then_some(bound))
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
    fn what_is_kept_can_be_read() {
        let kept = kept().expect("each line is a step");
        assert!(kept.len() > 5 && kept.iter().all(|program| !program.steps.is_empty()));
        assert_eq!(program(1, Offer::all()), kept[1]);
    }

    #[test]
    fn the_same_seed_makes_the_same_program_and_all_operations_occur() {
        let mut kinds = HashSet::new();
        for seed in 0..300 {
            let program = super::program(seed, Offer::all());
            assert_eq!(program, super::program(seed, Offer::all()));
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
