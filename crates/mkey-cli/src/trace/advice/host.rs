//! What this machine and its device cost, measured now: what a recording can not tell.

use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::median;
use crate::bench::populate;
use crate::bench::progress::Progress;
use crate::bench::rows::region::WRITABLE;
use crate::bench::stop::Stop;
use crate::device::{Opened, SOFTWARE};
use crate::model::fit::{Line, Point, fit};
use crate::replay::player;
use crate::replay::script::{Act, PAGE, Registered, Script, Step};
use crate::replay::stage::Stage;
use crate::replay::strategy::Strategy;
use mkey::{Pd, Rights};
use mkey_os::mapping::PageKind;
use std::time::{Duration, Instant};

/// Sizes that are registered, bytes: what a line needs, and what programs register.
const SIZES: [u64; 7] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Memory that they are taken from.
const MEMORY: u64 = 32 << 20;
/// Times that each is registered.
const TIMES: usize = 15;
/// Windows and fast registrations that are made and ended.
const GRANTS: usize = 512;
/// Sizes that are copied, bytes.
const COPIES: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 8 << 20];

/// What this machine and its device cost. Times are nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The device that was measured.
    pub device: String,
    /// Whether that is software.
    pub is_software: bool,
    /// Registering and deregistering on base pages, by pages.
    pub base: Option<Costs>,
    /// The same on huge pages, by pages of 2 MiB.
    pub huge: Option<Costs>,
    /// Which huge pages those were.
    pub huge_pages: Option<PageKind>,
    /// A window of type 2, bound and invalidated.
    pub window_ns: Option<f64>,
    /// A fast registration, made and invalidated.
    pub fast_ns: Option<f64>,
    /// Copies, by bytes.
    pub copies: Vec<(u64, f64)>,
    /// What was not measured, and why, a sentence each.
    pub missing: Vec<String>,
}

/// What registering and deregistering cost, T = T(fixed) + pages x T(page).
#[derive(Clone, Debug)]
pub struct Costs {
    /// Registering.
    pub register: Straight,
    /// Deregistering.
    pub deregister: Straight,
}

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straight {
    /// T(fixed), nanoseconds.
    pub fixed: f64,
    /// T(page), nanoseconds.
    pub page: f64,
}

impl Straight {
    /// Of so many pages; never below zero.
    pub fn at(&self, pages: f64) -> f64 {
        (self.fixed + self.page * pages).max(0.0)
    }
}

impl From<&Line> for Straight {
    fn from(line: &Line) -> Self {
        Self { fixed: line.fixed.value, page: line.page.value }
    }
}

impl Costs {
    /// Both, of so many bytes on pages of `page` bytes.
    pub fn both(&self, bytes: u64, page: u64) -> f64 {
        let pages = bytes.div_ceil(page.max(1)).max(1) as f64;
        self.register.at(pages) + self.deregister.at(pages)
    }
}

impl Host {
    /// Measures the device of this name: a software RNIC where the recording was of one. Takes about
    /// a second.
    pub fn measure(device: &str, is_software: bool) -> Self {
        let name = if is_software { SOFTWARE } else { device };
        let mut host = Self { device: name.to_owned(), is_software, ..Self::default() };
        match copies() {
            Ok(copies) => host.copies = copies,
            Err(error) => host.missing.push(format!("copies: {error}")),
        }
        let opened = match Opened::open(name, None, Duration::ZERO) {
            Ok(opened) => opened,
            Err(_) => {
                host.missing
                    .push(format!("{name} can not be opened here: nothing was measured on it"));
                return host;
            }
        };
        match registrations(&opened, PageKind::Base) {
            Ok(costs) => host.base = Some(costs),
            Err(error) => host.missing.push(format!("registering on 4 KiB pages: {error}")),
        }
        for kind in [PageKind::Huge2M, PageKind::Thp] {
            match registrations(&opened, kind) {
                Ok(costs) => {
                    (host.huge, host.huge_pages) = (Some(costs), Some(kind));
                    break;
                }
                Err(error) => host.missing.push(format!("registering on {kind} pages: {error}")),
            }
        }
        match grants(&opened, Strategy::Mw) {
            Ok(ns) => host.window_ns = Some(ns),
            Err(error) => host.missing.push(format!("windows of type 2: {error}")),
        }
        match grants(&opened, Strategy::Frmr) {
            Ok(ns) => host.fast_ns = Some(ns),
            Err(error) => host.missing.push(format!("fast registrations: {error}")),
        }
        host
    }

    /// A copy of so many bytes; `None`: not measured.
    pub fn copy_ns(&self, bytes: u64) -> Option<f64> {
        let (size, ns) =
            self.copies.iter().find(|(size, _)| bytes <= *size).or(self.copies.last())?;
        Some(ns * bytes as f64 / (*size).max(1) as f64)
    }
}

/// Registers sizes on pages of a kind, each time another part of the memory.
fn registrations(opened: &Opened, kind: PageKind) -> Result<Costs> {
    let (stop, progress) = (Stop::default(), Progress::new(0));
    let arena = populate::map(MEMORY, kind)?;
    populate::prefault(&arena, 1, &stop, &progress)?;
    let pd = Pd::new(&opened.device)?;
    let device: &dyn mkey_core::device::Device = &**opened.device.control();
    let (mut register, mut deregister) = (Vec::new(), Vec::new());
    for bytes in SIZES {
        let (mut registering, mut deregistering) = (Vec::new(), Vec::new());
        for time in 0..TIMES as u64 {
            let offset = (time * bytes) % (MEMORY - bytes + PAGE);
            let offset = offset - offset % PAGE;
            let start = Instant::now();
            let registration = arena.register(device, pd.handle(), offset, bytes, WRITABLE)?;
            registering.push(ns_since(start));
            let start = Instant::now();
            registration.deregister()?;
            deregistering.push(ns_since(start));
        }
        let pages = bytes.div_ceil(kind.size() as u64).max(1) as f64;
        register.extend(median(&mut registering).map(|ns| Point { pages, ns }));
        deregister.extend(median(&mut deregistering).map(|ns| Point { pages, ns }));
    }
    let line = |points: &[Point]| {
        let line = fit(points).map_err(|_| RowError::Protocol("times that no line follows"))?;
        Ok::<_, RowError>(Straight::from(&line))
    };
    Ok(Costs { register: line(&register)?, deregister: line(&deregister)? })
}

/// Makes and ends windows or fast registrations over one page each; what a pair takes.
fn grants(opened: &Opened, strategy: Strategy) -> Result<f64> {
    let (stop, progress) = (Stop::default(), Progress::new(0));
    let range = |number: usize| Registered {
        domain: 0,
        addr: number as u64 % 64 * PAGE,
        len: PAGE,
        rights: Rights::LOCAL_WRITE | Rights::REMOTE_WRITE,
        on_demand: false,
        pages: PageKind::Base,
        register_ns: None,
        deregister_ns: None,
        is_source: false,
        is_target: true,
    };
    let steps = (0..GRANTS).flat_map(|range| {
        let at = range as u64;
        [Act::Register, Act::Deregister].map(|act| Step { at, range, act })
    });
    let script = Script {
        ranges: (0..GRANTS).map(range).collect(),
        steps: steps.collect(),
        domains: 1,
        ..Script::default()
    };
    let mut room = u64::MAX;
    let stage = Stage::new(&opened.device, script, &[strategy], &mut room, &stop, &progress)?;
    let mut player = player::start(strategy, &stage)?;
    player.begin()?;
    let mut times = Vec::with_capacity(GRANTS);
    for step in stage.script.steps.chunks_exact(2) {
        let start = Instant::now();
        for step in step {
            match step.act {
                Act::Register => player.register(step.range)?,
                Act::Deregister => player.deregister(step.range)?,
            }
        }
        times.push(ns_since(start));
    }
    player.finish()?;
    median(&mut times).ok_or(RowError::Protocol("nothing was timed"))
}

/// Copies between two arenas, each time another part where they have several.
fn copies() -> Result<Vec<(u64, f64)>> {
    let largest = COPIES.iter().copied().max().unwrap_or(PAGE);
    let (from, to) = (Arena::map(largest, PageKind::Base)?, Arena::map(largest, PageKind::Base)?);
    from.fill(1);
    to.fill(2);
    let mut copies = Vec::with_capacity(COPIES.len());
    for bytes in COPIES {
        let mut times = Vec::with_capacity(TIMES);
        for time in 0..TIMES as u64 {
            let offset = time.saturating_mul(bytes) % (largest - bytes + 1);
            let start = Instant::now();
            to.copy_from(offset, &from, offset, bytes)?;
            times.push(ns_since(start));
        }
        copies.extend(median(&mut times).map(|ns| (bytes, ns)));
    }
    Ok(copies)
}

fn ns_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9
}
