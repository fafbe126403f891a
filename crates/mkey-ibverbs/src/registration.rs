//! Memory regions and windows.

use crate::context::Fork;
use crate::device::Core;
use crate::diagnosis::{Limits, bad_memory};
use crate::failure::{Refused, create, errno_of, not_offered};
use crate::fast_mr::{self, Mkey};
use crate::objects::{Memory, Mr, Mw, Pd};
use crate::post::index;
use crate::trial::unsupported;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::*;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_sys::inline;
use mkey_sys::types::*;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Addresses must agree within a page of this size (R-REG-11).
const PAGE: u64 = 4096;

/// What the device lacks if it refuses such a registration as not offered.
fn lacking(rights: Rights, implicit: bool) -> Option<Capability> {
    if implicit {
        Some(Capability::OnDemandImplicit)
    } else if rights.contains(Rights::ON_DEMAND) {
        Some(Capability::OnDemand)
    } else if rights.intersects(Rights::FLUSH_GLOBAL | Rights::FLUSH_PERSISTENT) {
        Some(Capability::Flush)
    } else if rights.contains(Rights::ZERO_BASED) {
        Some(Capability::ZeroBased)
    } else {
        None
    }
}

fn pointer(address: HostAddr) -> *mut c_void {
    // A device reads and writes what this names, not this program: no provenance is used by it.
    ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// The rights as drivers take them. Not all know the flag of zero-based regions, and some ignore it:
/// the address 0 says the same.
fn access_bits(rights: Rights) -> u32 {
    (rights - Rights::ZERO_BASED).bits()
}

impl Core {
    /// Keeps a region; what its caller is told.
    fn keep_mr(&self, mr: NonNull<ibv_mr>, pd: Arc<Pd>, rights: Rights) -> MrInfo {
        // SAFETY: a live region.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        self.keep(Mr { memory: Memory::Region(mr), pd, lkey, rights }, rkey)
    }

    fn keep(&self, mr: Mr, rkey: u32) -> MrInfo {
        let handle = self.objects.mrs.table.handle();
        let lkey = mr.lkey;
        self.objects.mrs.put(handle, index(lkey), mr);
        MrInfo { handle: MrHandle(handle), lkey: Lkey(Key(lkey)), rkey: Rkey(Key(rkey)) }
    }

    /// How many regions there are, and the most there may be.
    fn regions(&self) -> (u64, u64) {
        let most = u64::try_from(self.attr.orig_attr.max_mr).unwrap_or(0);
        (self.objects.mrs.table.read().len() as u64, most)
    }

    pub(crate) fn reg_mr(&self, pd: Arc<Pd>, spec: &MrSpec) -> Result<MrInfo> {
        let verb = "reg_mr";
        let MrSpec { address, length, iova, rights } = *spec;
        let fail = |reason| {
            let arguments = format_args!("{address}, {length} bytes, {rights}");
            Error::new(verb, arguments, reason)
        };
        rights.validate().map_err(fail)?;
        let implicit = rights.contains(Rights::ON_DEMAND) && address.0 == 0 && length == u64::MAX;
        if !implicit && address.checked_add(length).is_none() {
            return Err(fail(Reason::Wraps { address, length }));
        }
        if rights.contains(Rights::ON_DEMAND) && !self.offers_on_demand(implicit) {
            let capability =
                if implicit { Capability::OnDemandImplicit } else { Capability::OnDemand };
            return Err(fail(Reason::Unsupported { capability }));
        }
        let zero_based = rights.contains(Rights::ZERO_BASED);
        let iova = if zero_based { Some(iova.unwrap_or(IoAddr(0))) } else { iova };
        let access = access_bits(rights);
        if let Some(iova) = iova.filter(|iova| !(iova.0 ^ address.0).is_multiple_of(PAGE)) {
            return Err(fail(Reason::PageOffset { address, iova }));
        }
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let verbs = self.context.verbs;
        let made = pd.live.with(|pd| {
            // SAFETY: the domain is live; the memory is the caller's promise.
            create(|| unsafe {
                match iova {
                    None => inline::ibv_reg_mr(verbs, pd, pointer(address), bytes, access),
                    Some(iova) => {
                        inline::ibv_reg_mr_iova(verbs, pd, pointer(address), bytes, iova.0, access)
                            .unwrap_or_else(|_| unsupported())
                    }
                }
            })
        });
        let made = made.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))?;
        let mr = made.map_err(|errno| fail(self.why_unregistered(errno, spec, implicit)))?;
        Ok(self.keep_mr(mr, pd, rights))
    }

    /// Whether on-demand registration is worth asking for: kernels differ in how they refuse it.
    fn offers_on_demand(&self, implicit: bool) -> bool {
        let bit = if implicit { IBV_ODP_SUPPORT_IMPLICIT } else { IBV_ODP_SUPPORT };
        self.attr.odp_caps.general_caps & bit != 0
    }

    /// What an errno of a registration stands for.
    #[cold]
    fn why_unregistered(&self, errno: i32, spec: &MrSpec, implicit: bool) -> Reason {
        let (verb, context) = ("ibv_reg_mr", &self.context);
        let lacks = lacking(spec.rights, implicit);
        let other = Refused { context, verb, errno, lacks }.reason();
        let pins = !spec.rights.contains(Rights::ON_DEMAND);
        let found = match errno {
            libc::EFAULT => {
                let range = HostRange { start: spec.address, len: spec.length };
                bad_memory(range, spec.rights)
            }
            libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
                let limits = Limits::now(self.regions(), context.fork == Fork::Library);
                limits.met(spec.address, spec.length, pins)
            }
            libc::EINVAL => self.why_invalid(spec),
            _ => None,
        };
        found.unwrap_or(other)
    }

    fn why_invalid(&self, spec: &MrSpec) -> Option<Reason> {
        let (regions, most) = self.regions();
        if most > 0 && regions >= most {
            return Some(Reason::TableFull { object: Object::Mr, most });
        }
        let max = self.attr.orig_attr.max_mr_size;
        if max > 0 && spec.length > max && !spec.rights.contains(Rights::ON_DEMAND) {
            let (what, value) = ("length", spec.length);
            return Some(Reason::Argument {
                what,
                value,
                allowed: "at most the device's max_mr_size",
            });
        }
        if self.context.fork == Fork::Library {
            let maps = mkey_os::proc::Maps::open().ok()?;
            let vma = maps.vma_at(usize::try_from(spec.address.0).ok()?).ok()??;
            let page = vma.page_size as u64;
            if page > PAGE && !(spec.address.0 | spec.length).is_multiple_of(page) {
                let allowed = "whole huge pages while libibverbs protects forks (or set \
                               RDMAV_HUGEPAGES_SAFE=1)";
                return Some(Reason::Argument { what: "length", value: spec.length, allowed });
            }
        }
        None
    }

    pub(crate) fn reg_dmabuf_mr(&self, pd: Arc<Pd>, spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
        let verb = "reg_dmabuf_mr";
        let DmaBufSpec { offset, length, iova, rights, .. } = *spec;
        let fail = |reason| {
            let arguments = format_args!("offset {offset:#x}, {length} bytes, {rights}");
            Error::new(verb, arguments, reason)
        };
        spec.validate().map_err(fail)?;
        let lacks = Some(Capability::DmaBuf);
        let reg = self.context.verbs.ibv_reg_dmabuf_mr();
        let reg = reg.map_err(|_| fail(Reason::Unsupported { capability: Capability::DmaBuf }))?;
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let (fd, access) = (spec.fd.as_raw_fd(), rights.bits().cast_signed());
        // SAFETY: the domain is live and the descriptor open; the memory is the caller's promise.
        let made =
            pd.live.with(|pd| create(|| unsafe { reg(pd, offset, bytes, iova.0, fd, access) }));
        let made = made.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))?;
        let mr = made.map_err(|errno| {
            // A descriptor of other memory.
            if matches!(errno, libc::EINVAL | libc::EBADF) {
                let what = "the descriptor of a dma-buf that has this range";
                return fail(Reason::System { call: what, errno });
            }
            fail(
                Refused { context: &self.context, verb: "ibv_reg_dmabuf_mr", errno, lacks }
                    .reason(),
            )
        })?;
        Ok(self.keep_mr(mr, pd, rights))
    }

    pub(crate) fn alloc_null_mr(&self, pd: Arc<Pd>) -> Result<MrInfo> {
        let verb = "alloc_null_mr";
        // SAFETY: the domain is live.
        let made = pd.live.with(|pd| create(|| unsafe { inline::ibv_alloc_null_mr(pd) }));
        let made = made.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))?;
        let lacks = Some(Capability::NullMr);
        let refused = |errno| Refused { context: &self.context, verb, errno, lacks }.error("");
        Ok(self.keep_mr(made.map_err(refused)?, pd, Rights::empty()))
    }

    pub(crate) fn alloc_fast_mr(&self, pd: Arc<Pd>, max_entries: u32) -> Result<MrInfo> {
        let verb = "alloc_mr";
        let fail = |reason| Error::new(verb, format_args!("{max_entries} entries"), reason);
        let lacks = Capability::FastMr;
        let Some(mlx5) = self.context.mlx5 else {
            return Err(fail(Reason::Unsupported { capability: lacks }));
        };
        let most = u16::try_from(max_entries).ok();
        let most = most.filter(|most| (1..=fast_mr::MOST_ENTRIES).contains(&u32::from(*most)));
        let most = most.ok_or_else(|| {
            let (what, value) = ("max_entries", u64::from(max_entries));
            fail(Reason::Argument { what, value, allowed: "1 to the device's max_fast_mr_entries" })
        })?;
        let made = pd.live.with(|raw| {
            Mkey::create(mlx5, raw, most).map(|key| {
                let (lkey, rkey) = key.keys();
                // Those of each registration are its work request's.
                let (memory, rights) = (Memory::Fast(key), Rights::empty());
                // Before the domain may end: the kernel does not know of such a key.
                self.keep(Mr { memory, pd: pd.clone(), lkey, rights }, rkey)
            })
        });
        let made = made.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))?;
        made.map_err(|errno| {
            let (context, verb) = (&self.context, "mlx5dv_create_mkey");
            fail(Refused { context, verb, errno, lacks: Some(lacks) }.reason())
        })
    }

    pub(crate) fn dereg_mr(&self, handle: MrHandle) -> Result<()> {
        let verb = "dereg_mr";
        // Out of the table first: nobody finds it while it is ended.
        let mr = self.objects.mrs.table.take(verb, handle.0)?;
        match self.end_mr(&mr) {
            Ok(()) => {
                self.objects.mrs.forget(handle.0, index(mr.lkey));
                Ok(())
            }
            Err(errno) => {
                self.objects.mrs.table.put(handle.0, mr);
                // A live region is refused for one reason only, and drivers differ in its errno.
                let errno = if errno == libc::EINVAL { libc::EBUSY } else { errno };
                let refused = Refused { context: &self.context, verb, errno, lacks: None };
                Err(refused.destroying(Object::Mr, handle.0, "memory windows are bound to it"))
            }
        }
    }

    pub(crate) fn end_mr(&self, mr: &Mr) -> std::result::Result<(), i32> {
        match &mr.memory {
            Memory::Region(mr) => {
                // SAFETY: a live region, which its owner has taken out of the table.
                match unsafe { self.context.verbs.ibv_dereg_mr(mr.as_ptr()) } {
                    0 => Ok(()),
                    errno => Err(errno_of(errno)),
                }
            }
            Memory::Fast(key) => key.destroy(),
        }
    }

    pub(crate) fn rereg_mr(
        &self,
        handle: MrHandle,
        change: &MrChange,
    ) -> std::result::Result<MrInfo, ReregError> {
        let verb = "rereg_mr";
        let unchanged = |error| ReregError { error, state: ReregState::Unchanged };
        let fail = |reason| Error::new(verb, format_args!("handle {:#x}", handle.0), reason);
        let new_pd = match change.pd {
            None => None,
            Some(pd) => Some(self.objects.pds.get(verb, pd.0).map_err(unchanged)?),
        };
        let mut flags = 0;
        if new_pd.is_some() {
            flags |= IBV_REREG_MR_CHANGE_PD;
        }
        let (address, length) = change.translation.unwrap_or((HostAddr(0), 0));
        if change.translation.is_some() {
            flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
        }
        if change.rights.is_some() {
            flags |= IBV_REREG_MR_CHANGE_ACCESS;
        }
        let access = change.rights.map_or(0, access_bits).cast_signed();
        let mut mr = self.objects.mrs.table.take(verb, handle.0).map_err(unchanged)?;
        let Memory::Region(region) = mr.memory else {
            self.objects.mrs.table.put(handle.0, mr);
            let reason = Reason::NotHere { operation: verb, on: "a fast-registration region" };
            return Err(unchanged(fail(reason)));
        };
        if let Some(Err(reason)) = change.rights.map(Rights::validate) {
            // What the kernel refuses so is refused as a command: the region stays (R-RRG-03).
            self.objects.mrs.table.put(handle.0, mr);
            return Err(ReregError { error: fail(reason), state: ReregState::Refused });
        }
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let rereg = |pd: *mut ibv_pd| {
            // SAFETY: a live region that was taken out of the table, and a live domain or none; the
            // memory is the caller's promise.
            unsafe {
                *libc::__errno_location() = 0;
                let raw = region.as_ptr();
                let code = self.context.verbs.ibv_rereg_mr(
                    raw,
                    flags,
                    pd,
                    pointer(address),
                    bytes,
                    access,
                );
                (code, crate::failure::last_errno())
            }
        };
        let answer = match &new_pd {
            None => Some(rereg(ptr::null_mut())),
            Some(pd) => pd.live.with(rereg),
        };
        let Some((code, errno)) = answer else {
            self.objects.mrs.table.put(handle.0, mr);
            return Err(unchanged(self.objects.pds.unknown(verb, change.pd.map_or(0, |pd| pd.0))));
        };
        // SAFETY: the region still exists, whatever became of it.
        let (lkey, rkey) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        let old = mr.lkey;
        if code == 0 || code == IBV_REREG_MR_ERR_DO_FORK_OLD.0 {
            mr.lkey = lkey;
            mr.pd = new_pd.unwrap_or(mr.pd);
            mr.rights = change.rights.unwrap_or(mr.rights);
        }
        if mr.lkey != old {
            self.objects.mrs.forget(handle.0, index(old));
        }
        self.objects.mrs.put(handle.0, index(mr.lkey), mr);
        // Only taking the old memory out of forked children failed: it is done.
        if code == 0 || code == IBV_REREG_MR_ERR_DO_FORK_OLD.0 {
            return Ok(MrInfo { handle, lkey: Lkey(Key(lkey)), rkey: Rkey(Key(rkey)) });
        }
        let spec =
            MrSpec { address, length, iova: None, rights: change.rights.unwrap_or_default() };
        let reason = match errno {
            _ if not_offered(errno) => Reason::Unsupported { capability: Capability::Rereg },
            libc::EACCES => Reason::PinnedReadOnly,
            _ if change.translation.is_some() => self.why_unregistered(errno, &spec, false),
            _ => Refused { context: &self.context, verb, errno, lacks: None }.reason(),
        };
        let state = match ibv_rereg_mr_err_code(code) {
            _ if not_offered(errno) => ReregState::Unchanged,
            IBV_REREG_MR_ERR_INPUT | IBV_REREG_MR_ERR_DONT_FORK_NEW => ReregState::Unchanged,
            // The kernel refuses these before it touches the region.
            _ if matches!(errno, libc::EACCES | libc::EINVAL) => ReregState::Refused,
            _ => ReregState::Lost,
        };
        Err(ReregError { error: fail(reason), state })
    }

    pub(crate) fn alloc_mw(&self, pd: Arc<Pd>, kind: MwKind) -> Result<MwInfo> {
        let verb = "alloc_mw";
        let (raw, lacks) = match kind {
            MwKind::Type1 => (IBV_MW_TYPE_1, Capability::Window1),
            MwKind::Type2 => (IBV_MW_TYPE_2, Capability::Window2),
        };
        // SAFETY: the domain is live.
        let made = pd.live.with(|pd| create(|| unsafe { inline::ibv_alloc_mw(pd, raw) }));
        let made = made.ok_or_else(|| self.objects.pds.unknown(verb, pd.handle))?;
        let window = made.map_err(|errno| {
            let live = self.objects.mws.table.read().len();
            let most = crate::attributes::limit(self.attr.orig_attr.max_mw);
            let refused = Refused { context: &self.context, verb, errno, lacks: Some(lacks) };
            refused.creating(Object::Mw, live, most, Kind(kind))
        })?;
        // SAFETY: a live window.
        let rkey = unsafe { window.as_ref().rkey };
        let handle = self.objects.mws.table.handle();
        self.objects.mws.put(handle, index(rkey), Mw { window, kind, pd, region: None });
        Ok(MwInfo { handle: MwHandle(handle), rkey: Rkey(Key(rkey)) })
    }

    pub(crate) fn dealloc_mw(&self, handle: MwHandle) -> Result<()> {
        let verb = "dealloc_mw";
        let mw = self.objects.mws.table.take(verb, handle.0)?;
        // SAFETY: a live window, out of its table.
        let key = unsafe { mw.window.as_ref().rkey };
        match self.end_mw(&mw) {
            Ok(()) => {
                self.objects.mws.forget(handle.0, index(key));
                Ok(())
            }
            Err(errno) => {
                self.objects.mws.table.put(handle.0, mw);
                let refused = Refused { context: &self.context, verb, errno, lacks: None };
                Err(refused.destroying(Object::Mw, handle.0, "the device keeps it"))
            }
        }
    }

    pub(crate) fn end_mw(&self, mw: &Mw) -> std::result::Result<(), i32> {
        // SAFETY: a live window, which its owner has taken out of the table.
        match unsafe { inline::ibv_dealloc_mw(mw.window.as_ptr()) } {
            0 => Ok(()),
            errno => Err(errno_of(errno)),
        }
    }
}

struct Kind(MwKind);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            MwKind::Type1 => "type 1",
            MwKind::Type2 => "type 2",
        })
    }
}
