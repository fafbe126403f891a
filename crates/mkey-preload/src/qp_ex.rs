//! Extended queue pairs: work requests built call by call, and posted together or not at all.

use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb, plain, verb};
use crate::mr::Mw;
use crate::objects::Object;
use crate::post;
use crate::qp::Qp;
use crate::turn::Turn;
use mkey_core::address::IoAddr;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::QpKind;
use mkey_core::work::{Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge, UdDest};
use mkey_sys::types::*;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;

/// Operations that a queue pair of this kind may be made with.
pub(crate) fn offered(kind: QpKind) -> u64 {
    let send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let manage = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    match kind {
        QpKind::Ud => send,
        QpKind::Uc => send | write | manage,
        _ => {
            send | write
                | manage
                | IBV_QP_EX_WITH_RDMA_READ
                | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
                | IBV_QP_EX_WITH_SEND_WITH_INV
                | IBV_QP_EX_WITH_ATOMIC_WRITE
        }
    }
}

/// What is being built. From `wr_start` to `wr_complete` or `wr_abort` it is one thread's.
#[derive(Debug)]
pub(crate) struct Building {
    /// What the queue pair was made with; 0: it is not an extended one.
    pub(crate) operations: u64,
    turn: Turn,
    list: UnsafeCell<List>,
}

// SAFETY: `list` is touched only in a turn, by the thread whose turn it is: the verbs ask that from
// `wr_start` to the end one thread builds, and who builds without having begun touches nothing.
unsafe impl Sync for Building {}

#[derive(Debug, Default)]
struct List {
    requests: Vec<Request>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    /// The first mistake.
    mistake: Option<Errno>,
}

#[derive(Debug)]
struct Request {
    wr_id: u64,
    flags: u32,
    op: SendOp<'static>,
    data: Data,
    dest: Option<UdDest>,
    srq: Option<u32>,
    /// The window that a bind is about, whose key changes with the posting.
    window: Option<&'static Object<Mw>>,
}

#[derive(Debug)]
enum Data {
    Sges(Range<usize>),
    Bytes(Range<usize>),
}

impl Building {
    pub(crate) fn new(operations: u64) -> Self {
        Self { operations, turn: Turn::default(), list: UnsafeCell::default() }
    }
}

impl List {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.bytes.clear();
        self.mistake = None;
    }

    fn note(&mut self, mistake: Errno) {
        self.mistake.get_or_insert(mistake);
    }
}

/// Sets the operations of a queue pair. All are there; those it was not made with are a mistake.
pub(crate) fn fill(base: &mut ibv_qp_ex) {
    base.wr_atomic_cmp_swp = Some(compare_swap);
    base.wr_atomic_fetch_add = Some(fetch_add);
    base.wr_bind_mw = Some(bind_mw);
    base.wr_local_inv = Some(local_inv);
    base.wr_rdma_read = Some(rdma_read);
    base.wr_rdma_write = Some(rdma_write);
    base.wr_rdma_write_imm = Some(rdma_write_imm);
    base.wr_send = Some(send);
    base.wr_send_imm = Some(send_imm);
    base.wr_send_inv = Some(send_inv);
    base.wr_send_tso = Some(send_tso);
    base.wr_set_ud_addr = Some(set_ud_addr);
    base.wr_set_xrc_srqn = Some(set_xrc_srqn);
    base.wr_set_inline_data = Some(set_inline_data);
    base.wr_set_inline_data_list = Some(set_inline_data_list);
    base.wr_set_sge = Some(set_sge);
    base.wr_set_sge_list = Some(set_sge_list);
    base.wr_start = Some(start);
    base.wr_complete = Some(complete);
    base.wr_abort = Some(abort);
    base.wr_atomic_write = Some(atomic_write);
}

unsafe fn find(qp: *mut ibv_qp_ex) -> Option<&'static Qp> {
    // SAFETY: the caller's: the operation of a queue pair of ours is called with one of ours.
    unsafe { Object::<Qp>::live(qp) }.and_then(Object::own)
}

/// Runs `work` with the list of a queue pair that is being built. Where none is, nothing happens.
unsafe fn with(qp: *mut ibv_qp_ex, work: impl FnOnce(&Qp, &mut List)) {
    plain((), || {
        // SAFETY: the caller's: the operation of a queue pair of ours is called with one of ours.
        if let Some(own) = unsafe { find(qp) }.filter(|own| own.building.turn.is_taken()) {
            // SAFETY: the caller's: it is this thread's turn, so the list is this thread's.
            work(own, unsafe { &mut *own.building.list.get() });
        }
    });
}

/// Begins a work request.
unsafe fn begin(qp: *mut ibv_qp_ex, operation: u64, op: impl FnOnce(&Qp) -> Verb<SendOp<'static>>) {
    // SAFETY: the caller's.
    unsafe {
        with(qp, |own, list| {
            if own.building.operations & operation == 0 {
                return list.note(EOPNOTSUPP);
            }
            match op(own) {
                Err(errno) => list.note(errno),
                Ok(op) => list.requests.push(Request {
                    wr_id: (*qp).wr_id,
                    flags: (*qp).wr_flags,
                    op,
                    data: Data::Sges(0..0),
                    dest: None,
                    srq: None,
                    window: None,
                }),
            }
        });
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    plain((), || {
        // SAFETY: the operation of a queue pair of ours is called with one of ours.
        if let Some(own) = unsafe { find(qp) } {
            own.building.turn.begin();
            // SAFETY: it is this thread's turn now.
            unsafe { &mut *own.building.list.get() }.clear();
        }
    });
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    plain((), || {
        // SAFETY: as above.
        if let Some(own) = unsafe { find(qp) } {
            own.building.turn.end();
        }
    });
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    verb(|| -> Verb<()> {
        // SAFETY: as above.
        let own = unsafe { find(qp) }.ok_or(EINVAL)?;
        if !own.building.turn.is_taken() {
            return Err(EINVAL);
        }
        // SAFETY: since `wr_start` it is this thread's turn.
        let done = post_all(own, unsafe { &*own.building.list.get() });
        own.building.turn.end();
        done
    })
}

/// Posts all or nothing.
fn post_all(own: &Qp, list: &List) -> Verb<()> {
    if let Some(mistake) = list.mistake {
        return Err(mistake);
    }
    if list.requests.iter().any(|request| request.flags & !post::FLAGS != 0) {
        return Err(EINVAL);
    }
    let chain = list.requests.iter().map(|request| {
        let payload = match &request.data {
            Data::Sges(range) => Payload::Sges(list.sges.get(range.clone()).unwrap_or_default()),
            Data::Bytes(range) => {
                Payload::Inline(list.bytes.get(range.clone()).unwrap_or_default())
            }
        };
        let flags = SendFlags::from_bits_truncate(request.flags);
        let (wr_id, op, dest, srq) = (request.wr_id, request.op, request.dest, request.srq);
        SendWr { wr_id, op, payload, flags, dest, srq }
    });
    own.queue()?.post_send_all(chain).map_err(|refused| Errno::from(refused.error))?;
    for request in &list.requests {
        if let (Some(window), SendOp::BindMw(bind)) = (request.window, request.op) {
            // SAFETY: the window was live when the bind was built; objects are never freed.
            unsafe { (*window.base()).rkey = bind.new_key.0.0 };
        }
    }
    Ok(())
}

fn remote(rkey: u32, address: u64) -> RemoteAddr {
    RemoteAddr { address: IoAddr(address), rkey: Rkey(Key(rkey)) }
}

macro_rules! operations {
    ($($name:ident($($arg:ident: $ty:ty),*) $flag:ident => $op:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: called between `wr_start` and the end, on the thread that began.
            unsafe { begin(qp, $flag, |_| $op) };
        }
    )*};
}

operations! {
    compare_swap(rkey: u32, address: u64, compare: u64, swap: u64)
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        => Ok(SendOp::CompareSwap { remote: remote(rkey, address), compare, swap });
    fetch_add(rkey: u32, address: u64, add: u64) IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        => Ok(SendOp::FetchAdd { remote: remote(rkey, address), add });
    local_inv(rkey: u32) IBV_QP_EX_WITH_LOCAL_INV => Ok(SendOp::LocalInv(Key(rkey)));
    rdma_read(rkey: u32, address: u64) IBV_QP_EX_WITH_RDMA_READ
        => Ok(SendOp::Read(remote(rkey, address)));
    rdma_write(rkey: u32, address: u64) IBV_QP_EX_WITH_RDMA_WRITE
        => Ok(SendOp::Write(remote(rkey, address)));
    rdma_write_imm(rkey: u32, address: u64, imm: be32) IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        => Ok(SendOp::WriteImm(remote(rkey, address), u32::from_be(imm)));
    send() IBV_QP_EX_WITH_SEND => Ok(SendOp::Send);
    send_imm(imm: be32) IBV_QP_EX_WITH_SEND_WITH_IMM => Ok(SendOp::SendImm(u32::from_be(imm)));
    send_inv(rkey: u32) IBV_QP_EX_WITH_SEND_WITH_INV => Ok(SendOp::SendInv(Rkey(Key(rkey))));
    send_tso(_header: *mut c_void, _size: u16, _mss: u16) IBV_QP_EX_WITH_TSO => Err(EOPNOTSUPP);
}

unsafe extern "C" fn atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    value: *const c_void,
) {
    // SAFETY: called between `wr_start` and the end, with 8 bytes of the program's.
    unsafe {
        begin(qp, IBV_QP_EX_WITH_ATOMIC_WRITE, |_| Ok(SendOp::AtomicWrite(remote(rkey, address))));
        last(qp, |_, list, request| {
            let start = list.bytes.len();
            list.bytes.resize(start + 8, 0);
            let place = list.bytes.get_mut(start..).unwrap_or_default();
            crate::copy::from_program(place, value.cast())?;
            request.data = Data::Bytes(start..list.bytes.len());
            Ok(())
        });
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: called between `wr_start` and the end, with objects and a structure of the program's.
    unsafe {
        begin(qp, IBV_QP_EX_WITH_BIND_MW, |own| {
            let info = info.as_ref().ok_or(EINVAL)?;
            Ok(SendOp::BindMw(post::bind(own, mw, rkey, info, IBV_MW_TYPE_2)?))
        });
        with(qp, |_, list| {
            if list.mistake.is_none()
                && let Some(last) = list.requests.last_mut()
            {
                last.window = Object::<Mw>::live(mw);
            }
        });
    }
}

/// Changes the work request that was begun last.
unsafe fn last(qp: *mut ibv_qp_ex, change: impl FnOnce(&Qp, &mut List, &mut Request) -> Verb<()>) {
    // SAFETY: the caller's.
    unsafe {
        with(qp, |own, list| {
            let Some(mut request) = list.requests.pop() else { return list.note(EINVAL) };
            if let Err(mistake) = change(own, list, &mut request) {
                list.note(mistake);
            }
            list.requests.push(request);
        });
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: called between `wr_start` and the end, with an object of the program's.
    unsafe {
        last(qp, |own, _, request| {
            request.dest = Some(post::destination(own, ah, qpn, qkey)?);
            Ok(())
        });
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: called between `wr_start` and the end.
    unsafe {
        last(qp, |_, _, request| {
            request.srq = Some(number);
            Ok(())
        });
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) {
    let sge = Sge { address: IoAddr(address), length, lkey: Lkey(Key(lkey)) };
    // SAFETY: called between `wr_start` and the end.
    unsafe { last(qp, |own, list, request| put(own, list, request, &[sge])) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: called between `wr_start` and the end, with a list of the program's.
    unsafe {
        last(qp, |own, all, request| {
            let count = c_int::try_from(count).map_err(|_| EINVAL)?;
            put(own, all, request, post::sges(list, count)?)
        });
    }
}

fn put(own: &Qp, list: &mut List, request: &mut Request, sges: &[Sge]) -> Verb<()> {
    if sges.len() > own.cap.max_send_sge as usize {
        return Err(Errno(libc::ENOMEM));
    }
    let start = list.sges.len();
    list.sges.extend_from_slice(sges);
    request.data = Data::Sges(start..list.sges.len());
    Ok(())
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, address: *mut c_void, length: usize) {
    let part = ibv_data_buf { addr: address, length };
    // SAFETY: called between `wr_start` and the end, with bytes of the program's.
    unsafe { last(qp, |own, list, request| put_inline(own, list, request, &[part])) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: called between `wr_start` and the end, with a list of the program's.
    unsafe {
        last(qp, |own, all, request| {
            let parts = match count {
                0 => &[],
                _ if list.is_null() => return Err(EINVAL),
                _ => slice::from_raw_parts(list, count),
            };
            put_inline(own, all, request, parts)
        });
    }
}

/// Copies inline data at once.
///
/// # Safety
/// The parts are bytes of the program's.
unsafe fn put_inline(
    own: &Qp,
    list: &mut List,
    request: &mut Request,
    parts: &[ibv_data_buf],
) -> Verb<()> {
    let start = list.bytes.len();
    for part in parts {
        let at = list.bytes.len();
        let end = at.checked_add(part.length).ok_or(EINVAL)?;
        if end - start > own.cap.max_inline_data as usize {
            return Err(Errno(libc::ENOMEM));
        }
        list.bytes.resize(end, 0);
        let place = list.bytes.get_mut(at..).unwrap_or_default();
        // SAFETY: the caller's.
        unsafe { crate::copy::from_program(place, part.addr.cast()) }?;
    }
    request.data = Data::Bytes(start..list.bytes.len());
    Ok(())
}
