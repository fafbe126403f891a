//! Memory regions and windows.

use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb};
use crate::objects::{Found, Kind, Object, Spares, of};
use crate::pd::Pd;
use crate::report::{self, Memory};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{
    Advice, Device, DmaBufSpec, MrChange, MrHandle, MrInfo, MrSpec, MwHandle, MwInfo, MwKind,
    ReregState,
};
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use mkey_sys::types::*;
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) handle: MrHandle,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) handle: MwHandle,
}

static MRS: Spares<Mr> = Spares::new();
static MWS: Spares<Mw> = Spares::new();

// SAFETY: `ibv_mr` begins with its context.
unsafe impl Kind for Mr {
    type Base = ibv_mr;

    fn spares() -> &'static Spares<Self> {
        &MRS
    }
}

// SAFETY: `ibv_mw` begins with its context.
unsafe impl Kind for Mw {
    type Base = ibv_mw;

    fn spares() -> &'static Spares<Self> {
        &MWS
    }
}

/// Rights as C gives them.
pub(crate) fn rights(access: u32) -> Verb<Rights> {
    Rights::from_verbs(access).map_err(|reason| Errno(reason.errno()))
}

fn show(
    pd: &Found<Pd>,
    info: &MrInfo,
    (addr, length): (*mut c_void, usize),
    memory: Memory,
) -> *mut ibv_mr {
    let base = ibv_mr {
        context: pd.open.base(),
        pd: pd.object.base(),
        addr,
        length,
        handle: info.handle.0 as u32,
        lkey: info.lkey.0.0,
        rkey: info.rkey.0.0,
    };
    report::registered(&pd.open, info.handle, addr as u64, length as u64, memory);
    Object::new(pd.open.number, base, Mr { handle: info.handle }).base()
}

/// `ibv_reg_mr`, and `ibv_reg_mr_iova` and `ibv_reg_mr_iova2` with an `iova`. Of both, the memory is
/// the program's to answer for.
pub(crate) fn reg(
    pd: &Found<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: u32,
) -> Verb<*mut ibv_mr> {
    let spec = MrSpec {
        address: HostAddr(addr as u64),
        // All of the address space, as the verbs say it.
        length: if length == usize::MAX { u64::MAX } else { length as u64 },
        // A zero-based region begins at 0 whatever the program passes on from an inline function.
        iova: iova
            .filter(|&iova| iova != addr as u64 && access & IBV_ACCESS_ZERO_BASED == 0)
            .map(IoAddr),
        rights: rights(access)?,
    };
    // SAFETY: that the memory may be accessed is what the program says by this very call; what it
    // has taken away meanwhile is refused.
    let info = unsafe { pd.open.device.reg_mr(pd.handle, &spec) }?;
    Ok(show(pd, &info, (addr, length), Memory::of(spec.rights)))
}

/// `ibv_reg_dmabuf_mr`.
pub(crate) fn reg_dmabuf(
    pd: &Found<Pd>,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> Verb<*mut ibv_mr> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    let spec = DmaBufSpec {
        // SAFETY: not -1; if it is no open descriptor the system says so.
        fd: unsafe { BorrowedFd::borrow_raw(fd) },
        offset,
        length: length as u64,
        iova: IoAddr(iova),
        rights: rights(access as u32)?,
    };
    // SAFETY: as for `reg`.
    let info = unsafe { pd.open.device.reg_dmabuf_mr(pd.handle, &spec) }?;
    Ok(show(pd, &info, (iova as *mut c_void, length), Memory::Other))
}

/// `ibv_alloc_null_mr`.
pub(crate) fn alloc_null(pd: &Found<Pd>) -> Verb<*mut ibv_mr> {
    let info = pd.open.device.alloc_null_mr(pd.handle)?;
    Ok(show(pd, &info, (ptr::null_mut(), usize::MAX), Memory::Other))
}

/// `ibv_dereg_mr`.
pub(crate) fn dereg(mr: &Found<Mr>) -> Verb<()> {
    report::about_to_deregister(&mr.open);
    mr.open.device.dereg_mr(mr.handle)?;
    report::deregistered(&mr.open, mr.handle);
    mr.object.end();
    Ok(())
}

/// `ibv_rereg_mr`: 0, or how the region was left, errno set.
///
/// # Safety
/// `pd` is null or an object of libibverbs' kind.
pub(crate) unsafe fn rereg(
    mr: &Found<Mr>,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Result<(), (Errno, ibv_rereg_mr_err_code)> {
    let input = |errno| (errno, IBV_REREG_MR_ERR_INPUT);
    if flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 || flags == 0 {
        return Err(input(EINVAL));
    }
    let mut change = MrChange::default();
    let mut domain = None;
    if flags & IBV_REREG_MR_CHANGE_PD != 0 {
        // SAFETY: the caller's.
        let found = unsafe { of::<Pd, _>(&mr.open, pd) }.map_err(input)?;
        change.pd = Some(found.handle);
        domain = Some(found);
    }
    if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
        if addr.is_null() || length == 0 {
            return Err(input(EINVAL));
        }
        change.translation = Some((HostAddr(addr as u64), length as u64));
    }
    if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
        let rights = rights(access as u32);
        change.rights = Some(rights.map_err(|errno| (errno, IBV_REREG_MR_ERR_CMD))?);
    }
    report::about_to_deregister(&mr.open);
    // SAFETY: as for `reg`.
    let changed = unsafe { mr.open.device.rereg_mr(mr.handle, &change) };
    let info = changed.map_err(|failed| {
        let code = match failed.state {
            ReregState::Unchanged => IBV_REREG_MR_ERR_INPUT,
            ReregState::Refused => IBV_REREG_MR_ERR_CMD,
            ReregState::Lost => {
                report::deregistered(&mr.open, mr.handle);
                IBV_REREG_MR_ERR_CMD
            }
        };
        (failed.error.into(), code)
    })?;
    let base = mr.object.base();
    // SAFETY: the object is live; its fields are read by the program, which has asked for the change.
    unsafe {
        (*base).lkey = info.lkey.0.0;
        (*base).rkey = info.rkey.0.0;
        if let Some(pd) = domain {
            (*base).pd = pd.object.base();
        }
        if change.translation.is_some() {
            (*base).addr = addr;
            (*base).length = length;
        }
    }
    report::changed(&mr.open, mr.handle, &change);
    Ok(())
}

/// `ibv_advise_mr`. Lists of more than 1,024 entries are refused, as of work requests.
pub(crate) fn advise(
    pd: &Found<Pd>,
    advice: ibv_advise_mr_advice,
    flags: u32,
    list: &[Sge],
) -> Verb<()> {
    let advice = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => Advice::Prefetch,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Advice::PrefetchWrite,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Advice::PrefetchNoFault,
        _ => return Err(EOPNOTSUPP),
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || list.is_empty() {
        return Err(EINVAL);
    }
    let flush = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
    Ok(pd.open.device.advise_mr(pd.handle, advice, flush, list)?)
}

/// `ibv_alloc_mw`.
pub(crate) fn alloc_mw(pd: &Found<Pd>, kind: ibv_mw_type) -> Verb<*mut ibv_mw> {
    let chosen = match kind {
        IBV_MW_TYPE_1 => MwKind::Type1,
        IBV_MW_TYPE_2 => MwKind::Type2,
        _ => return Err(EINVAL),
    };
    let MwInfo { handle, rkey } = pd.open.device.alloc_mw(pd.handle, chosen)?;
    let base = ibv_mw {
        context: pd.open.base(),
        pd: pd.object.base(),
        rkey: rkey.0.0,
        handle: handle.0 as u32,
        r#type: kind,
    };
    Ok(Object::new(pd.open.number, base, Mw { handle }).base())
}

/// `ibv_dealloc_mw`.
pub(crate) fn dealloc_mw(mw: &Found<Mw>) -> Verb<()> {
    mw.open.device.dealloc_mw(mw.handle)?;
    mw.object.end();
    Ok(())
}

/// A region over device memory, shown: it has no address.
pub(crate) fn show_dm(pd: &Found<Pd>, info: &MrInfo, length: usize) -> *mut ibv_mr {
    show(pd, info, (ptr::null_mut(), length), Memory::Other)
}
