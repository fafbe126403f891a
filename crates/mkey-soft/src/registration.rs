//! Memory regions and windows: pins, accounting, the engine's entries.

mod advise;
mod device_memory;
mod dma_buf;
mod rereg;
#[cfg(test)]
mod tests;

use crate::core::Core;
use crate::device_memory::Dm;
use crate::link::lease;
use crate::memory;
use crate::object::{PdUse, Use};
use crate::options::SoftOptions;
use crate::qp::settle;
use crate::slots::Slots;
use crate::sync::lock;
use crate::watch::{marked, watch};
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::{
    Capability, MrHandle, MrInfo, MrSpec, MwHandle, MwInfo, MwKind, OdpStats, RegistrationTerms,
};
use mkey_core::engine::{
    Backing, Change, ObjectError, ObjectId, Progress, Registered, Registration, TableFull,
};
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::key::{Key, Rkey};
use mkey_core::refusal::PdId;
use mkey_core::rights::Rights;
use mkey_os::accounting::{AccountError, Accountant, Charge};
use mkey_os::events::{WatchError, WatchGuard};
use mkey_os::file_mapping::FileMapping;
use mkey_os::pin::{PinError, PinGuard, PinRequest, Pinner};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// The registrations of a device.
#[derive(Debug)]
pub(crate) struct Registrations {
    regions: Mutex<Slots<Region>>,
    windows: Mutex<Windows>,
    /// Regions by the indexes of their remote keys, where they may be lent. Another region may have an
    /// index meanwhile: what is found is to be looked at. Not locked together with the regions.
    by_index: Option<Mutex<HashMap<u32, u64>>>,
    pub(crate) pinner: Pinner,
    accountant: Option<Arc<Accountant>>,
    /// Why memory could not be watched, the last time.
    unwatched: Mutex<Option<WatchError>>,
    terms: Terms,
    command_cost: Duration,
}

/// A memory region of any kind.
#[derive(Debug)]
pub(crate) struct Region {
    id: ObjectId,
    pd: PdUse,
    kind: Kind,
    info: MrInfo,
    rights: Rights,
    /// Goes after the engine's entry has gone.
    hold: Hold,
}

/// What keeps a region's pages in place.
#[derive(Debug, Default)]
struct Hold {
    range: Option<HostRange>,
    /// It is heard of when the program unmaps any of what is pinned.
    watched: bool,
    /// Of memory that is not pinned; a pin keeps its own.
    _watch: Option<WatchGuard>,
    pin: Option<PinGuard>,
    _charge: Option<Charge>,
    /// Our own, of a file's memory; goes after the pin of it. Boxed, as it is rare.
    _mapping: Option<Box<FileMapping>>,
    /// Memory of the device itself.
    _own: Option<Use<Dm>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pinned,
    OnDemand,
    Implicit,
    Null,
    Fast,
    DmaBuf,
    Device,
}

#[derive(Debug)]
struct Windows {
    slots: Slots<Window>,
    /// Type and domain by the key's index.
    by_index: HashMap<u32, (MwKind, PdId)>,
}

#[derive(Debug)]
struct Window {
    id: ObjectId,
    pd: PdUse,
    index: u32,
}

/// Time spent, by term; see [`RegistrationTerms`].
#[derive(Debug, Default)]
struct Terms {
    measure: bool,
    registrations: AtomicU64,
    deregistrations: AtomicU64,
    pin: AtomicU64,
    unpin: AtomicU64,
    table: AtomicU64,
    command: AtomicU64,
}

impl Terms {
    /// Adds one, with the table of regions locked.
    #[inline]
    fn count(&self, counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Runs `work`, and adds its time to `term` if terms are measured.
    #[inline]
    fn time<R>(&self, term: &AtomicU64, work: impl FnOnce() -> R) -> R {
        if !self.measure {
            return work();
        }
        let start = Instant::now();
        let result = work();
        add(term, start.elapsed());
        result
    }
}

fn add(term: &AtomicU64, time: Duration) {
    term.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The accountant of the process: verbs count over all devices.
fn accountant() -> std::result::Result<Arc<Accountant>, mkey_os::error::OsError> {
    static ACCOUNTANT: OnceLock<Arc<Accountant>> = OnceLock::new();
    if let Some(accountant) = ACCOUNTANT.get() {
        return Ok(accountant.clone());
    }
    let fresh = Accountant::of_system()?;
    Ok(ACCOUNTANT.get_or_init(|| fresh).clone())
}

impl Registrations {
    pub(crate) fn new(options: &SoftOptions) -> Result<Self> {
        let accountant = match &options.accountant {
            Some(own) => Some(own.clone()),
            None if options.accounting => Some(accountant().map_err(|error| {
                let reason = Reason::System { call: error.call, errno: error.errno.raw_os_error() };
                Error::new("open_device", &options.name, reason)
            })?),
            None => None,
        };
        Ok(Self {
            // The engine's limit comes first.
            regions: Mutex::new(Slots::with_room_for(u32::MAX)),
            windows: Mutex::new(Windows {
                slots: Slots::with_room_for(u32::MAX),
                by_index: HashMap::new(),
            }),
            by_index: options.direct.then(Mutex::default),
            pinner: Pinner::new(options.pin),
            accountant,
            unwatched: Mutex::default(),
            terms: Terms { measure: options.measure, ..Terms::default() },
            command_cost: options.command_cost,
        })
    }

    /// Type and domain of the window that the index of `key` names.
    pub(crate) fn window(&self, key: Key) -> Option<(MwKind, PdId)> {
        lock(&self.windows).by_index.get(&key.index()).copied()
    }

    /// The memory of a region that may be lent, by its key: it is pinned, and it is heard of when the
    /// program unmaps it.
    pub(crate) fn lendable(&self, rkey: Rkey) -> Option<HostRange> {
        let handle = *lock(self.by_index.as_ref()?).get(&rkey.0.index())?;
        let regions = lock(&self.regions);
        let found = regions.get(handle).filter(|region| region.info.rkey == rkey)?;
        found.hold.range.filter(|_| found.kind == Kind::Pinned && found.hold.watched)
    }

    /// How many regions and windows belong to a domain.
    pub(crate) fn members(&self, pd: PdId) -> (usize, usize) {
        let regions = lock(&self.regions).iter().filter(|region| region.pd.id() == pd).count();
        let windows = lock(&self.windows);
        (regions, windows.slots.iter().filter(|window| window.pd.id() == pd).count())
    }

    pub(crate) fn terms(&self) -> RegistrationTerms {
        let read = |term: &AtomicU64| term.load(Ordering::Relaxed);
        let terms = &self.terms;
        RegistrationTerms {
            registrations: read(&terms.registrations),
            deregistrations: read(&terms.deregistrations),
            pin: read(&terms.pin),
            unpin: read(&terms.unpin),
            table: read(&terms.table),
            command: read(&terms.command),
        }
    }

    /// Spends the declared time of a device command.
    #[inline]
    fn command(&self) {
        if !self.command_cost.is_zero() {
            let start = Instant::now();
            while start.elapsed() < self.command_cost {
                std::hint::spin_loop();
            }
            add(&self.terms.command, self.command_cost);
        }
    }

    /// Charges and pins memory for rights.
    fn hold(
        &self,
        core: &Arc<Core>,
        address: HostAddr,
        length: u64,
        rights: Rights,
    ) -> std::result::Result<Hold, Reason> {
        let range = HostRange::new(address, length).ok_or(Reason::Wraps { address, length })?;
        // What was unmapped before this call must be marked, or the pinner would take the old
        // mapping's span, with its watch, for the new one's.
        marked();
        let charge = match &self.accountant {
            Some(accountant) => Some(
                accountant
                    .charge(address.0, length)
                    .map_err(|error| charge_reason(error, range))?,
            ),
            None => None,
        };
        let (Ok(addr), Ok(len)) = (usize::try_from(address.0), usize::try_from(length)) else {
            return Err(Reason::NotMapped { range });
        };
        let write = rights.intersects(Rights::NEED_WRITABLE);
        let request = PinRequest { addr, len, write, page: None };
        let pin = self.terms.time(&self.terms.pin, || self.pinner.pin(&request));
        match pin {
            Ok(pin) => {
                let mut watched = pin.is_watched();
                if !watched && let Some(watch) = self.watch_over(core, range) {
                    pin.keep(watch);
                    watched = true;
                }
                let (pin, _charge) = (Some(pin), charge);
                Ok(Hold { range: Some(range), watched, pin, _charge, ..Hold::default() })
            }
            Err(PinError::Wraps { .. }) => Err(Reason::Wraps { address, length }),
            Err(PinError::Fault { .. }) if shares_file(range) => Err(Reason::SharedFile { range }),
            Err(PinError::Fault { .. })
                if write && memory::touch(core.tolerant, range, false).is_ok() =>
            {
                Err(Reason::NotWritable { range })
            }
            Err(PinError::Fault { .. }) => Err(Reason::NotMapped { range }),
            Err(error) => Err(Reason::System { call: "pin", errno: error.errno().raw_os_error() }),
        }
    }

    /// On-demand memory is not pinned, only watched where it is mapped already.
    fn hold_on_demand(&self, core: &Arc<Core>, address: HostAddr, length: u64) -> Hold {
        let range = HostRange { start: address, len: length };
        Hold { _watch: self.watch_over(core, range), ..Hold::default() }
    }

    /// Has the mappings of a range watched, where that is possible.
    pub(super) fn watch_over(&self, core: &Arc<Core>, range: HostRange) -> Option<WatchGuard> {
        if !core.options.watch || range.len == 0 {
            return None;
        }
        let watch = match core.watch.get() {
            Some(watch) => *watch,
            None => {
                // The reason is among the device's notes.
                let watch = watch().ok()?;
                if core.watch.set(watch).is_ok() {
                    watch.join(core);
                }
                watch
            }
        };
        watch
            .over(range)
            .inspect_err(|error| {
                // What is not mapped yet is on-demand memory, or about to be refused.
                if !matches!(error, WatchError::Unmapped { .. }) {
                    *lock(&self.unwatched) = Some(error.clone());
                }
            })
            .ok()
    }

    /// Why some registered memory is not watched, if any.
    pub(crate) fn unwatched(&self) -> Option<WatchError> {
        lock(&self.unwatched).clone()
    }

    /// Keeps a new region.
    #[inline]
    fn keep(
        &self,
        verb: &'static str,
        pd: PdUse,
        kind: Kind,
        rights: Rights,
        hold: Hold,
        registered: std::result::Result<Registered, TableFull>,
    ) -> Result<MrInfo> {
        let full = |most| Error::new(verb, "", Reason::TableFull { object: Object::Mr, most });
        let Registered { id, lkey, rkey } =
            registered.map_err(|TableFull { most }| full(u64::from(most)))?;
        let mut regions = lock(&self.regions);
        self.terms.count(&self.terms.registrations);
        let info = regions
            .insert_with(|handle| {
                let info = MrInfo { handle: MrHandle(handle), lkey, rkey };
                (Region { id, pd, kind, info, rights, hold }, info)
            })
            .ok_or_else(|| full(u64::from(u32::MAX)))?;
        drop(regions);
        if let Some(by_index) = &self.by_index {
            lock(by_index).insert(rkey.0.index(), info.handle.0);
        }
        Ok(info)
    }

    /// Registers memory. Order of checks: rights (R-REG-01 to 04), page offset (R-REG-11), address
    /// range (R-REG-07), limits (R-REG-09), pages (R-REG-08, R-REG-10).
    pub(crate) fn register(&self, core: &Arc<Core>, pd: PdUse, spec: &MrSpec) -> Result<MrInfo> {
        let Form { iova, kind, backing } = form(core, spec).map_err(|r| reg_error(spec, r))?;
        let hold = match kind {
            Kind::Pinned => self
                .hold(core, spec.address, spec.length, spec.rights)
                .map_err(|reason| reg_error(spec, reason))?,
            Kind::OnDemand => self.hold_on_demand(core, spec.address, spec.length),
            _ => Hold::default(),
        };
        let (rights, length) = (spec.rights, spec.length);
        let what = Registration { iova, length, rights, backing };
        let registered =
            self.terms.time(&self.terms.table, || core.engine.register(pd.id(), &what));
        self.command();
        self.keep("reg_mr", pd, kind, rights, hold, registered)
    }

    pub(crate) fn allocate_null(&self, core: &Core, pd: PdUse) -> Result<MrInfo> {
        let rights = Rights::LOCAL_WRITE;
        let (iova, length, backing) = (IoAddr(0), u64::MAX, Backing::Null);
        let what = Registration { iova, length, rights, backing };
        let registered = core.engine.register(pd.id(), &what);
        self.keep("alloc_null_mr", pd, Kind::Null, rights, Hold::default(), registered)
    }

    pub(crate) fn allocate_fast(&self, core: &Core, pd: PdUse, entries: u32) -> Result<MrInfo> {
        let most = core.capabilities.max_fast_mr_entries;
        if entries == 0 || entries > most {
            let allowed = "1 to the device's max_fast_mr_entries";
            let (what, value) = ("max_entries", u64::from(entries));
            return Err(Error::new(
                "alloc_mr",
                format_args!("max_entries {entries}"),
                Reason::Argument { what, value, allowed },
            ));
        }
        let registered =
            self.terms.time(&self.terms.table, || core.engine.allocate_fast_mr(pd.id(), entries));
        self.command();
        self.keep("alloc_mr", pd, Kind::Fast, Rights::empty(), Hold::default(), registered)
    }

    /// Deregisters: on return no access through the region's keys touches memory.
    pub(crate) fn deregister(&self, core: &Core, handle: MrHandle) -> Result<()> {
        let fail = |reason| Error::new("dereg_mr", format_args!("handle {:#x}", handle.0), reason);
        let unknown = || fail(Reason::UnknownHandle { object: Object::Mr, handle: handle.0 });
        let started = self.terms.measure.then(Instant::now);
        let mut regions = lock(&self.regions);
        let mut change = loop {
            let region = regions.get(handle.0).ok_or_else(unknown)?;
            match core.engine.deregister(region.id) {
                Ok(change) => break change,
                Err(ObjectError::Held { by }) => {
                    let by = format!("{by} memory windows or fast registrations lie on it").into();
                    return Err(fail(Reason::InUse { object: Object::Mr, by }));
                }
                Err(ObjectError::Busy) => {
                    drop(regions);
                    let_others_go_on(core);
                    regions = lock(&self.regions);
                }
                Err(_) => return Err(unknown()),
            }
        };
        if core.engine.finish(&mut change) == Progress::Pending {
            drop(regions);
            settle(&core.engine, &mut change);
            regions = lock(&self.regions);
        }
        let region = regions.remove(handle.0);
        self.terms.count(&self.terms.deregistrations);
        drop(regions);
        if let (Some(by_index), Some(region)) = (&self.by_index, &region) {
            let index = region.info.rkey.0.index();
            let mut by_index = lock(by_index);
            if by_index.get(&index) == Some(&handle.0) {
                by_index.remove(&index);
            }
        }
        // Others go on meanwhile, but no key is given out anew.
        lease::settle();
        drop(change);
        if let Some(started) = started {
            add(&self.terms.table, started.elapsed());
        }
        self.terms.time(&self.terms.unpin, || drop(region));
        self.command();
        Ok(())
    }

    pub(crate) fn allocate_window(&self, core: &Core, pd: PdUse, kind: MwKind) -> Result<MwInfo> {
        let full = |most| {
            let reason = Reason::TableFull { object: Object::Mw, most };
            Error::new("alloc_mw", format_args!("{kind:?}"), reason)
        };
        let registered =
            self.terms.time(&self.terms.table, || core.engine.allocate_window(pd.id(), kind));
        let Registered { id, rkey, .. } = registered.map_err(|f| full(u64::from(f.most)))?;
        self.command();
        let index = rkey.0.index();
        let mut windows = lock(&self.windows);
        // More than ever before: half of it stays empty, so that freeing and allocating in turn
        // never makes it grow.
        let windows = &mut *windows;
        let count = windows.by_index.len() + 1;
        if count > windows.slots.most_ever() {
            windows.by_index.reserve(count);
        }
        windows.by_index.insert(index, (kind, pd.id()));
        let handle = windows.slots.insert(Window { id, pd, index });
        let handle = handle.ok_or_else(|| full(u64::from(u32::MAX)))?;
        Ok(MwInfo { handle: MwHandle(handle), rkey })
    }

    /// Frees a window, ending what it grants (R-MWU-11).
    pub(crate) fn free_window(&self, core: &Core, handle: MwHandle) -> Result<()> {
        let unknown = || {
            let reason = Reason::UnknownHandle { object: Object::Mw, handle: handle.0 };
            Error::new("dealloc_mw", format_args!("handle {:#x}", handle.0), reason)
        };
        // Taken out first, so that it is freed once only.
        let window = {
            let mut windows = lock(&self.windows);
            let window = windows.slots.remove(handle.0).ok_or_else(unknown)?;
            windows.by_index.remove(&window.index);
            window
        };
        let mut change = begin_free(core, window.id).ok_or_else(unknown)?;
        settle(&core.engine, &mut change);
        self.command();
        Ok(())
    }

    pub(crate) fn odp_stats(&self, core: &Core, handle: MrHandle) -> Result<OdpStats> {
        let fail = |reason| Error::new("odp_stats", format_args!("handle {:#x}", handle.0), reason);
        let id = lock(&self.regions).get(handle.0).map(|region| region.id);
        let unknown = Reason::UnknownHandle { object: Object::Mr, handle: handle.0 };
        let id = id.ok_or_else(|| fail(unknown))?;
        core.engine.odp_stats(id).map_err(|_| {
            let (operation, on) = ("counting of faults", "a region that is not on demand");
            fail(Reason::NotHere { operation, on })
        })
    }

    /// Runs `work` on the pin of a region that holds all of `range`, that of `key` first: what a
    /// NIC would access although the program has taken the pages away.
    pub(crate) fn with_pin<R>(
        &self,
        key: Key,
        range: HostRange,
        work: impl FnOnce(&PinGuard) -> R,
    ) -> Option<R> {
        let regions = lock(&self.regions);
        let holds = |region: &&Region| {
            region.hold.range.is_some_and(|held| held.intersect(&range) == Some(range))
        };
        let own = |region: &&Region| region.info.lkey.0.index() == key.index();
        let found = regions.iter().filter(holds).find(own);
        let pin = found.or_else(|| regions.iter().find(holds))?.hold.pin.as_ref()?;
        Some(work(pin))
    }

    /// Waits until no [`Registrations::with_pin`] is at work that has begun before.
    pub(crate) fn await_pinned(&self) {
        drop(lock(&self.regions));
    }

    /// Frees everything, for a device that closes.
    pub(crate) fn close(&self, core: &Core) {
        for window in lock(&self.windows).slots.drain() {
            if let Some(mut change) = begin_free(core, window.id) {
                settle(&core.engine, &mut change);
            }
        }
        let mut regions = lock(&self.regions).drain();
        // Fast registrations hold other regions, so they go first.
        regions.sort_by_key(|region| region.kind != Kind::Fast);
        for region in regions {
            if let Some(mut change) = begin_free(core, region.id) {
                settle(&core.engine, &mut change);
            }
        }
        lease::settle();
    }
}

/// Whether part of a range that could not be pinned is mapped shared from a file, writable: that is
/// why then.
#[cold]
fn shares_file(range: HostRange) -> bool {
    let Ok(maps) = mkey_os::proc::Maps::open() else { return false };
    let (mut at, end) = (range.start.0, range.start.0.saturating_add(range.len));
    while at < end {
        match maps.vma_at(at as usize) {
            Ok(Some(vma)) if vma.shared && vma.inode != 0 && vma.writable => return true,
            Ok(Some(vma)) if vma.range.end as u64 > at => at = vma.range.end as u64,
            _ => return false,
        }
    }
    false
}

/// Begins to free an object; waits while another operation changes it.
fn begin_free(core: &Core, id: ObjectId) -> Option<Change> {
    loop {
        match core.engine.deregister(id) {
            Ok(change) => return Some(change),
            Err(ObjectError::Busy) => let_others_go_on(core),
            Err(_) => return None,
        }
    }
}

/// An object is being changed: by another thread, or by work that was posted and waits for an
/// access. Freeing it is no error then (R-FR-17, R-MWU-11) but comes after that, which a queue pair
/// ends when its timer fires. Not to be called with a lock held.
#[cold]
fn let_others_go_on(core: &Core) {
    core.pump();
    std::thread::yield_now();
}

/// What a registration asks for, checked.
struct Form {
    iova: IoAddr,
    kind: Kind,
    backing: Backing,
}

fn form(core: &Core, spec: &MrSpec) -> std::result::Result<Form, Reason> {
    let MrSpec { address, length, rights, .. } = *spec;
    let rights = check_rights(rights)?;
    let iova = spec.iova.unwrap_or(match rights.contains(Rights::ZERO_BASED) {
        true => IoAddr(0),
        false => IoAddr(address.0),
    });
    if !rights.contains(Rights::ON_DEMAND) {
        check_offset(spec)?;
        return Ok(Form { iova, kind: Kind::Pinned, backing: Backing::Plain { host: address } });
    }
    if length == u64::MAX {
        if !core.options.implicit_odp {
            return Err(Reason::Unsupported { capability: Capability::OnDemandImplicit });
        }
        if address.0 != 0 || iova.0 != 0 {
            return Err(Reason::Wraps { address, length });
        }
        if rights.contains(Rights::HUGETLB) {
            let allowed = "not together with the whole address space";
            let (what, value) = ("HUGETLB", u64::from(Rights::HUGETLB.bits()));
            return Err(Reason::Argument { what, value, allowed });
        }
        return Ok(Form { iova, kind: Kind::Implicit, backing: Backing::Implicit });
    }
    check_offset(spec)?;
    HostRange::new(address, length).ok_or(Reason::Wraps { address, length })?;
    let page_shift = if rights.contains(Rights::HUGETLB) { 21 } else { 12 };
    let backing = Backing::OnDemand { host: address, page_shift };
    Ok(Form { iova, kind: Kind::OnDemand, backing })
}

/// R-REG-01 to 04.
fn check_rights(rights: Rights) -> std::result::Result<Rights, Reason> {
    let rights = rights.validate()?;
    if rights.intersects(Rights::FLUSH_GLOBAL | Rights::FLUSH_PERSISTENT) {
        return Err(Reason::Unsupported { capability: Capability::Flush });
    }
    Ok(rights)
}

/// R-REG-11.
fn check_offset(spec: &MrSpec) -> std::result::Result<(), Reason> {
    match spec.iova {
        Some(iova) if !(iova.0 ^ spec.address.0).is_multiple_of(PAGE) => {
            Err(Reason::PageOffset { address: spec.address, iova })
        }
        _ => Ok(()),
    }
}

fn reg_error(spec: &MrSpec, reason: Reason) -> Error {
    let MrSpec { address, length, iova, rights } = *spec;
    match iova {
        None => Error::new("reg_mr", format_args!("{address}, {length}, {rights}"), reason),
        Some(iova) => Error::new(
            "reg_mr_iova",
            format_args!("{address}, {length}, iova {iova}, {rights}"),
            reason,
        ),
    }
}

fn charge_reason(error: AccountError, range: HostRange) -> Reason {
    match error {
        AccountError::Wraps { .. } => Reason::Wraps { address: range.start, length: range.len },
        AccountError::Forbidden => Reason::MemlockForbidden,
        AccountError::Limit { pages, pinned, limit } => Reason::MemlockLimit {
            needed: pages.saturating_mul(PAGE),
            used: pinned.saturating_mul(PAGE),
            limit,
        },
        AccountError::TooManyPages { pages } => Reason::Argument {
            what: "the number of pages",
            value: pages,
            allowed: "at most 2^32 - 1",
        },
    }
}
