//! Posting of work requests as C writes them: lists of structures.

use crate::ah::Ah;
use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb, plain};
use crate::mr::{Mr, Mw, rights};
use crate::objects::Object;
use crate::qp::Qp;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::{PostError, QueuePair};
use mkey_core::error::{Error, Reason};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::work::{
    BindMw, Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, UdDest,
};
use mkey_soft::SoftQp;
use mkey_sys::types::*;
use std::ffi::c_int;
use std::mem::offset_of;
use std::slice;

// A list of C's entries is read as one of ours.
const _: () = assert!(
    size_of::<Sge>() == size_of::<ibv_sge>()
        && offset_of!(Sge, address) == offset_of!(ibv_sge, addr)
        && offset_of!(Sge, length) == offset_of!(ibv_sge, length)
        && offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey)
);

/// Flags that work requests may have.
pub(crate) const FLAGS: u32 =
    IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
/// Work requests that are handed on at a time.
const BATCH: usize = 8;
/// Entries of one work request at most: more are refused whatever the queue takes.
const MOST_SGES: c_int = 1 << 10;

/// The error of a queue that is nobody's any more.
#[cold]
pub(crate) fn nobodys() -> PostError {
    let reason = Reason::Ended { what: "queue" };
    PostError { posted: 0, error: Error::new("post", "", reason) }
}

/// C's list of entries as ours.
///
/// # Safety
/// `list` has `count` entries if that is above 0, unchanged for as long as the answer is used.
#[inline]
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: c_int) -> Verb<&'a [Sge]> {
    if count <= 0 || list.is_null() {
        return if count == 0 { Ok(&[]) } else { Err(EINVAL) };
    }
    if count > MOST_SGES {
        return Err(EINVAL);
    }
    // SAFETY: the caller's; the layouts are the same, as asserted above, and all values are valid.
    Ok(unsafe { slice::from_raw_parts(list.cast(), count as usize) })
}

/// `ibv_post_send`.
pub(crate) unsafe extern "C" fn send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    plain(libc::EIO, || {
        // SAFETY: the operation of a queue pair of ours is called with one of ours.
        let own = unsafe { Object::<Qp>::live(qp) }.and_then(Object::own);
        // SAFETY: the program's list, as the verbs have it.
        unsafe { sends(own, wr, bad) }.map_or_else(|Errno(errno)| errno, |()| 0)
    })
}

/// Posts a list; of what could not be posted, `bad` is told the first.
///
/// # Safety
/// `wr` is a list as the verbs have it, `bad` is null or may be written.
unsafe fn sends(
    own: Option<&Qp>,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> Verb<()> {
    let fail = |at: *mut ibv_send_wr, errno| {
        if !bad.is_null() {
            // SAFETY: the caller's.
            unsafe { bad.write(at) };
        }
        Err(errno)
    };
    let Some((own, queue)) = own.and_then(|own| Some((own, own.queue().ok()?))) else {
        return fail(wr, EINVAL);
    };
    let mut inline = Inline::new();
    while !wr.is_null() {
        let first = wr;
        // SAFETY: an element of the program's list.
        let request = unsafe { &*wr };
        if request.send_flags & IBV_SEND_INLINE != 0 {
            // SAFETY: as above; its parts are as its opcode says.
            let posted = unsafe { send_inline(own, &queue, request, &mut inline) };
            match posted {
                Ok(()) => wr = request.next,
                Err(errno) => return fail(wr, errno),
            }
            continue;
        }
        let mut chain = [SendWr::new(0, SendOp::Send, &[]); BATCH];
        let mut count = 0;
        let mut refused = None;
        while let Some(place) = chain.get_mut(count)
            // SAFETY: an element of the program's list, if it is not the end.
            && let Some(request) = unsafe { wr.as_ref() }
            && request.send_flags & IBV_SEND_INLINE == 0
        {
            // SAFETY: as above; its parts are as its opcode says.
            match unsafe { read(own, request) } {
                Ok(read) => *place = read,
                Err(errno) => {
                    refused = Some(errno);
                    break;
                }
            }
            (count, wr) = (count + 1, request.next);
        }
        if let Err(error) = queue.post_send(chain.get(..count).unwrap_or_default()) {
            // SAFETY: so many steps of the program's list.
            let at = unsafe { nth(first, error.posted, |wr| (*wr).next) };
            // SAFETY: as above.
            unsafe { posted_windows(first, error.posted) };
            return fail(at, error.error.into());
        }
        // SAFETY: as above.
        unsafe { posted_windows(first, count) };
        if let Some(errno) = refused {
            return fail(wr, errno);
        }
    }
    Ok(())
}

/// Posts one with inline data.
///
/// # Safety
/// As for [`read`].
unsafe fn send_inline(
    own: &Qp,
    queue: &SoftQp,
    request: &ibv_send_wr,
    inline: &mut Inline,
) -> Verb<()> {
    // SAFETY: the caller's.
    let bytes = unsafe {
        let list = sges(request.sg_list, request.num_sge)?;
        inline.gather(list, own.cap.max_inline_data)
    }?;
    // SAFETY: the caller's.
    let wr = SendWr { payload: Payload::Inline(bytes), ..unsafe { read(own, request) }? };
    queue.post_send(&[wr]).map_err(|refused| refused.error.into())
}

/// The element of a list after `steps` steps.
unsafe fn nth<T>(mut element: *mut T, steps: usize, next: impl Fn(*mut T) -> *mut T) -> *mut T {
    for _ in 0..steps {
        element = next(element);
    }
    element
}

/// The keys of type 2 windows change with the posting of their bind.
///
/// # Safety
/// `wr` is a list of at least `count` elements.
unsafe fn posted_windows(mut wr: *mut ibv_send_wr, count: usize) {
    for _ in 0..count {
        // SAFETY: the caller's; the window was looked at before posting.
        unsafe {
            if (*wr).opcode == IBV_WR_BIND_MW
                && let Some(mw) = (*wr).bind_mw.mw.as_mut()
            {
                mw.rkey = (*wr).bind_mw.rkey;
            }
            wr = (*wr).next;
        }
    }
}

/// Bytes of a work request, copied when it is posted.
struct Inline {
    few: [u8; 256],
    many: Vec<u8>,
}

impl Inline {
    fn new() -> Self {
        Self { few: [0; 256], many: Vec::new() }
    }

    /// Gathers the bytes of some entries.
    ///
    /// # Safety
    /// The entries name memory of the program that can be read.
    unsafe fn gather(&mut self, sges: &[Sge], most: u32) -> Verb<&[u8]> {
        let total = sges.iter().try_fold(0u32, |sum, sge| sum.checked_add(sge.length));
        let Some(total) = total.filter(|&total| total <= most) else { return Err(EINVAL) };
        let total = total as usize;
        let place = match self.few.get_mut(..total) {
            Some(few) => few,
            None => {
                self.many.clear();
                self.many.resize(total, 0);
                &mut self.many
            }
        };
        let mut rest = &mut *place;
        for sge in sges {
            let (now, later) = rest.split_at_mut_checked(sge.length as usize).ok_or(EINVAL)?;
            // SAFETY: the caller's; a bad address is answered by the copy.
            unsafe { crate::copy::from_program(now, sge.address.0 as *const u8) }?;
            rest = later;
        }
        Ok(place)
    }
}

/// A work request of C's as ours, inline data left out.
///
/// # Safety
/// `request` is as the verbs have it: what it points to is there until it is posted.
unsafe fn read<'a>(own: &Qp, request: &'a ibv_send_wr) -> Verb<SendWr<'a>> {
    if request.send_flags & !FLAGS != 0 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's: the unions hold what the opcode says.
    let op = unsafe {
        let (rdma, atomic) = (request.wr.rdma, request.wr.atomic);
        let remote = RemoteAddr { address: IoAddr(rdma.remote_addr), rkey: Rkey(Key(rdma.rkey)) };
        let word = RemoteAddr { address: IoAddr(atomic.remote_addr), rkey: Rkey(Key(atomic.rkey)) };
        match request.opcode {
            IBV_WR_SEND => SendOp::Send,
            IBV_WR_SEND_WITH_IMM => SendOp::SendImm(u32::from_be(request.imm_data)),
            // The key has the place of the immediate.
            IBV_WR_SEND_WITH_INV => SendOp::SendInv(Rkey(Key(request.imm_data))),
            IBV_WR_RDMA_WRITE => SendOp::Write(remote),
            IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote, u32::from_be(request.imm_data)),
            IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite(remote),
            IBV_WR_RDMA_READ => SendOp::Read(remote),
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                SendOp::FetchAdd { remote: word, add: atomic.compare_add }
            }
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                SendOp::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
            }
            IBV_WR_LOCAL_INV => SendOp::LocalInv(Key(request.imm_data)),
            IBV_WR_BIND_MW => {
                let bind = request.bind_mw;
                SendOp::BindMw(self::bind(own, bind.mw, bind.rkey, &bind.bind_info, IBV_MW_TYPE_2)?)
            }
            _ => return Err(EOPNOTSUPP),
        }
    };
    // SAFETY: the caller's.
    let payload = Payload::Sges(unsafe { sges(request.sg_list, request.num_sge) }?);
    let dest = match own.is_datagram() {
        false => None,
        // SAFETY: the caller's: on such a queue pair the union holds a destination.
        true => Some(unsafe {
            let ud = request.wr.ud;
            destination(own, ud.ah, ud.remote_qpn, ud.remote_qkey)
        }?),
    };
    let flags = SendFlags::from_bits_truncate(request.send_flags);
    let srq = match own.names_srq() {
        false => None,
        // SAFETY: the caller's: on such a queue pair the union holds the number.
        true => Some(unsafe { request.qp_type.xrc.remote_srqn }),
    };
    Ok(SendWr { wr_id: request.wr_id, op, payload, flags, dest, srq })
}

/// Where a datagram goes.
///
/// # Safety
/// `ah` is null or an object of libibverbs' kind.
#[inline]
pub(crate) unsafe fn destination(
    own: &Qp,
    ah: *mut ibv_ah,
    qp_num: u32,
    qkey: u32,
) -> Verb<UdDest> {
    // SAFETY: the caller's.
    let ah = unsafe { Object::<Ah>::beside(own.context, ah) }.and_then(Object::own);
    Ok(UdDest { ah: ah.ok_or(EINVAL)?.handle, qp_num, qkey })
}

/// Binding of a window. The window is of type `kind`.
///
/// # Safety
/// The window and the region are null or objects of libibverbs' kind.
pub(crate) unsafe fn bind(
    own: &Qp,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
    kind: ibv_mw_type,
) -> Verb<BindMw> {
    // SAFETY: the caller's.
    let window = unsafe { Object::<Mw>::beside(own.context, mw) }.ok_or(EINVAL)?;
    let base = window.base();
    // SAFETY: the window is live.
    let (key, its_kind) = unsafe { ((*base).rkey, (*base).r#type) };
    if its_kind != kind {
        return Err(EINVAL);
    }
    let lkey = match info.mr.is_null() {
        true => 0,
        // SAFETY: the caller's; objects are never freed.
        false => unsafe {
            let region = Object::<Mr>::beside(own.context, info.mr).ok_or(EINVAL)?;
            (*region.base()).lkey
        },
    };
    Ok(BindMw {
        mw: Rkey(Key(key)),
        new_key: Rkey(Key(rkey)),
        mr: Lkey(Key(lkey)),
        address: IoAddr(info.addr),
        length: info.length,
        rights: rights(info.mw_access_flags)?,
    })
}

/// `ibv_bind_mw` of a type 1 window.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    request: *mut ibv_mw_bind,
) -> c_int {
    crate::boundary::verb(|| -> Verb<()> {
        // SAFETY: the operation of a queue pair of ours is called with one of ours, and with a
        // structure of the program's.
        unsafe {
            let own = Object::<Qp>::live(qp).and_then(Object::own).ok_or(EINVAL)?;
            let request = request.as_ref().ok_or(EINVAL)?;
            let current = mw.as_ref().ok_or(EINVAL)?.rkey;
            let next = Key(current).next();
            let bind = bind(own, mw, next.0, &request.bind_info, IBV_MW_TYPE_1)?;
            let flags = request.send_flags & !IBV_SEND_INLINE;
            let wr = SendWr {
                wr_id: request.wr_id,
                op: SendOp::BindMw1(bind),
                payload: Payload::Sges(&[]),
                flags: SendFlags::from_bits(flags).ok_or(EINVAL)?,
                dest: None,
                srq: None,
            };
            own.queue()?.post_send(&[wr]).map_err(|refused| Errno::from(refused.error))?;
            (*mw).rkey = next.0;
            Ok(())
        }
    })
}

/// `ibv_post_recv`.
pub(crate) unsafe extern "C" fn recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    plain(libc::EIO, || {
        // SAFETY: the operation of a queue pair of ours is called with one of ours.
        let own = unsafe { Object::<Qp>::live(qp) }.and_then(Object::own);
        let queue = own.and_then(|own| own.queue().ok());
        // SAFETY: the program's list, as the verbs have it.
        unsafe {
            receives(wr, bad, |chain| match &queue {
                Some(queue) => queue.post_recv(chain),
                None => Err(nobodys()),
            })
        }
        .map_or_else(|Errno(errno)| errno, |()| 0)
    })
}

/// Posts a list of receives.
///
/// # Safety
/// `wr` is a list as the verbs have it, `bad` is null or may be written.
pub(crate) unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl Fn(&[RecvWr<'_>]) -> Result<(), PostError>,
) -> Verb<()> {
    let fail = |at: *mut ibv_recv_wr, errno| {
        if !bad.is_null() {
            // SAFETY: the caller's.
            unsafe { bad.write(at) };
        }
        Err(errno)
    };
    while !wr.is_null() {
        let first = wr;
        let mut chain = [RecvWr { wr_id: 0, sges: &[] }; BATCH];
        let mut count = 0;
        let mut refused = None;
        while let Some(place) = chain.get_mut(count)
            && !wr.is_null()
        {
            // SAFETY: an element of the program's list.
            let request = unsafe { &*wr };
            // SAFETY: as above.
            match unsafe { sges(request.sg_list, request.num_sge) } {
                Ok(sges) => *place = RecvWr { wr_id: request.wr_id, sges },
                Err(errno) => {
                    refused = Some(errno);
                    break;
                }
            }
            (count, wr) = (count + 1, request.next);
        }
        if let Err(error) = post(chain.get(..count).unwrap_or_default()) {
            // SAFETY: so many steps of the program's list.
            let at = unsafe { nth(first, error.posted, |wr| (*wr).next) };
            return fail(at, error.error.into());
        }
        if let Some(errno) = refused {
            return fail(wr, errno);
        }
    }
    Ok(())
}
