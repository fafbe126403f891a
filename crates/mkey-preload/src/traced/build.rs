//! Work requests that are built call by call, of extended queue pairs.
//!
//! Each is noted when the next one begins, or the whole is completed; if it is not, all are told of as not
//! posted. The pointers of the queue pair's own structure are taken for this.

use crate::boundary::plain;
use crate::traced::contexts::{give_back as put_back, take};
use crate::traced::post::{CLOSED, bound_to, this_thread};
use crate::traced::queues::{PAIRS, Pair};
use mkey_sys::types::*;
use mkey_trace::raw::Op;
use mkey_trace::record::{Entry, Recorder, Work};
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the pointers of a queue pair led to, and what is being built.
pub(super) struct Building {
    /// Its mask is 0 if the pointers were not taken.
    kept: UnsafeCell<ibv_qp_ex>,
    /// The thread that has begun; 0: none has.
    thread: AtomicUsize,
    list: UnsafeCell<List>,
}

// SAFETY: `kept` is written while the queue pair is known to nobody but the thread that makes it; `list`
// is touched by the thread alone that has begun, as the verbs have it.
unsafe impl Sync for Building {}

impl Default for Building {
    fn default() -> Self {
        Self {
            kept: UnsafeCell::new(bytemuck::Zeroable::zeroed()),
            thread: AtomicUsize::new(0),
            list: UnsafeCell::default(),
        }
    }
}

/// The work request that is being built, and what was before it.
#[derive(Default)]
struct List {
    current: Option<Request>,
    /// Its entries; there is room for as many as the queue pair takes.
    entries: Vec<Entry>,
    /// So many were noted since the beginning.
    noted: u32,
    /// Windows that were bound and keys that were invalidated, told of when they are posted. Few of many
    /// are: what does not fit is left out.
    keys: Vec<Change>,
}

struct Request {
    id: u64,
    op: Op,
    signaled: bool,
    inlined: bool,
    invalidates: bool,
    remote: Option<(u32, u64)>,
}

#[derive(Clone, Copy)]
enum Change {
    Bound(*mut ibv_mw, u32, ibv_mw_bind_info),
    Invalidated(u32),
}

/// Room for entries and changes of keys at least.
const ROOM: usize = 16;

impl Building {
    /// For a new queue pair.
    pub(super) fn prepare(&self, entries: u32) {
        self.thread.store(0, Ordering::Relaxed);
        // SAFETY: nobody knows the queue pair yet.
        let (kept, list) = unsafe { (&mut *self.kept.get(), &mut *self.list.get()) };
        *kept = bytemuck::Zeroable::zeroed();
        list.current = None;
        list.entries.clear();
        list.entries.reserve(ROOM.max(entries as usize));
        list.keys.clear();
        list.keys.reserve(ROOM);
    }

    fn kept(&self) -> &ibv_qp_ex {
        // SAFETY: as for `Sync`.
        unsafe { &*self.kept.get() }
    }
}

impl List {
    /// Notes the current request.
    fn note(&mut self, recorder: &Recorder, pair: &Pair) {
        if let Some(request) = self.current.take()
            && let Some(queue) = pair.queue()
        {
            let Request { id, op, signaled, inlined, invalidates, remote } = request;
            let entries = &self.entries;
            queue.post(recorder, &Work { id, op, signaled, inlined, invalidates, entries, remote });
            self.noted = self.noted.saturating_add(1);
        }
        self.entries.clear();
    }
}

/// The pointers that are taken, with what takes their places.
macro_rules! pointers {
    ($($op:ident = $ours:path;)*) => {
        /// The pointers of an extended queue pair are taken.
        ///
        /// # Safety
        /// It is live, and nobody else uses it.
        pub(super) unsafe fn take_over(qp: *mut ibv_qp_ex, pair: &Pair) {
            // SAFETY: the caller's; the memory is written by its maker as well.
            unsafe {
                let kept = &mut *pair.building.kept.get();
                kept.comp_mask = 1;
                $(take!((*qp).$op, kept.$op, $ours);)*
            }
        }

        /// They are taken again, if they were taken and given back.
        ///
        /// # Safety
        /// As for [`take_over`].
        pub(super) unsafe fn take_back(pair: &Pair) {
            if pair.building.kept().comp_mask != 0 {
                // SAFETY: the caller's.
                unsafe { take_over(pair.object.load(Ordering::Relaxed).cast(), pair) };
            }
        }

        /// They are given back, if they were taken.
        ///
        /// # Safety
        /// The queue pair's memory is there.
        pub(super) unsafe fn give_back(pair: &Pair) {
            let qp = pair.object.load(Ordering::Relaxed).cast::<ibv_qp_ex>();
            let kept = pair.building.kept();
            if kept.comp_mask == 0 {
                return;
            }
            // SAFETY: the caller's: it was made an extended one, as its pointers were taken.
            unsafe { $(put_back!((*qp).$op, kept.$op);)* }
        }
    };
}

pointers! {
    wr_start = start;
    wr_complete = complete;
    wr_abort = abort;
    wr_atomic_cmp_swp = compare_swap;
    wr_atomic_fetch_add = fetch_add;
    wr_atomic_write = atomic_write;
    wr_bind_mw = bind_mw;
    wr_local_inv = local_inv;
    wr_rdma_read = rdma_read;
    wr_rdma_write = rdma_write;
    wr_rdma_write_imm = rdma_write_imm;
    wr_send = send;
    wr_send_imm = send_imm;
    wr_send_inv = send_inv;
    wr_send_tso = send_tso;
    wr_set_inline_data = set_inline_data;
    wr_set_inline_data_list = set_inline_data_list;
    wr_set_sge = set_sge;
    wr_set_sge_list = set_sge_list;
}

/// The queue pair, and whether it is this process's own.
unsafe fn find(qp: *const ibv_qp_ex) -> Option<(&'static Pair, bool)> {
    // SAFETY: the caller's: the operation of a queue pair is called with one.
    let place = unsafe { PAIRS.get((*qp).qp_base.context, (*qp).qp_base.qp_num) }?;
    Some((&place.value, place.is_own()))
}

/// Runs `work` with the list that this thread is building; where it is not, nothing happens.
fn with(pair: &Pair, work: impl FnOnce(&'static Recorder, &mut List)) {
    plain((), || {
        let thread = pair.building.thread.load(Ordering::Relaxed);
        if let Some(recorder) = Recorder::current()
            && thread == this_thread()
        {
            // SAFETY: this thread has begun, so the list is its own.
            work(recorder, unsafe { &mut *pair.building.list.get() });
        }
    });
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, own)) = (unsafe { find(qp) }) else { return };
    let Some(original) = pair.building.kept().wr_start else { return };
    // SAFETY: the caller's.
    unsafe { original(qp) };
    if own {
        // The driver has let this thread in.
        pair.building.thread.store(this_thread(), Ordering::Relaxed);
        with(pair, |_, list| {
            list.current = None;
            list.entries.clear();
            list.keys.clear();
            list.noted = 0;
        });
    }
}

/// What was noted since the beginning was not posted.
fn dropped(recorder: &Recorder, pair: &Pair, noted: u32) {
    if let Some(queue) = pair.queue().filter(|_| noted > 0) {
        queue.not_posted(recorder, noted, false);
    }
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return CLOSED };
    let Some(original) = pair.building.kept().wr_complete else { return CLOSED };
    let mut done = None;
    with(pair, |recorder, list| {
        list.note(recorder, pair);
        // The next one may begin as soon as the driver lets it in: what is to be told is taken out.
        let mut keys = [None; ROOM];
        for (place, change) in keys.iter_mut().zip(&list.keys) {
            *place = Some(*change);
        }
        done = Some((recorder, list.noted, keys));
    });
    if done.is_some() {
        pair.building.thread.store(0, Ordering::Relaxed);
    }
    // SAFETY: the caller's.
    let result = unsafe { original(qp) };
    if let Some((recorder, noted, keys)) = done {
        plain((), || match result {
            0 => {
                let device = pair.device.load(Ordering::Relaxed);
                for change in keys.into_iter().flatten() {
                    match change {
                        Change::Invalidated(rkey) => recorder.invalidated(device, rkey),
                        // SAFETY: the region was live when the bind was built.
                        Change::Bound(mw, rkey, info) => unsafe {
                            bound_to(recorder, device, mw, rkey, &info);
                        },
                    }
                }
            }
            _ => dropped(recorder, pair, noted),
        });
    }
    result
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return };
    with(pair, |recorder, list| {
        pair.building.thread.store(0, Ordering::Relaxed);
        list.current = None;
        dropped(recorder, pair, list.noted);
    });
    if let Some(original) = pair.building.kept().wr_abort {
        // SAFETY: the caller's.
        unsafe { original(qp) };
    }
}

/// Notes what was before, and begins a work request.
unsafe fn begin(qp: *const ibv_qp_ex, pair: &Pair, op: Op, remote: Option<(u32, u64)>) {
    with(pair, |recorder, list| {
        list.note(recorder, pair);
        // SAFETY: the operation of a queue pair is called with one.
        let (id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
        list.current = Some(Request {
            id,
            op,
            signaled: flags & IBV_SEND_SIGNALED != 0 || pair.signal_all.load(Ordering::Relaxed),
            inlined: flags & IBV_SEND_INLINE != 0,
            invalidates: false,
            remote,
        });
    });
}

/// Operations that begin a work request. What they are called with is handed on.
macro_rules! operations {
    ($($name:ident = $op:ident ($($arg:ident: $ty:ty),*) $kind:ident $remote:expr
        $(, |$pair:ident| $more:expr)?;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $ty)*) {
            // SAFETY: the operation of a queue pair is called with one.
            let Some((pair, _)) = (unsafe { find(qp) }) else { return };
            // SAFETY: as above.
            unsafe { begin(qp, pair, Op::$kind, $remote) };
            $(
                let $pair = pair;
                $more;
            )?
            if let Some(original) = pair.building.kept().$op {
                // SAFETY: the caller's.
                unsafe { original(qp $(, $arg)*) };
            }
        }
    )*};
}

operations! {
    compare_swap = wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64)
        Atomic Some((rkey, addr));
    fetch_add = wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) Atomic Some((rkey, addr));
    atomic_write = wr_atomic_write(rkey: u32, addr: u64, value: *const c_void)
        Write Some((rkey, addr)), |pair| inline(pair, &[(value.addr(), 8)]);
    bind_mw = wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info)
        Bind None, |pair| {
            // SAFETY: null or a structure of the program's.
            if let Some(info) = unsafe { info.as_ref() } {
                change(pair, Change::Bound(mw, rkey, *info));
            }
        };
    local_inv = wr_local_inv(rkey: u32) LocalInv None, |pair| change(pair, Change::Invalidated(rkey));
    rdma_read = wr_rdma_read(rkey: u32, addr: u64) Read Some((rkey, addr));
    rdma_write = wr_rdma_write(rkey: u32, addr: u64) Write Some((rkey, addr));
    rdma_write_imm = wr_rdma_write_imm(rkey: u32, addr: u64, imm: be32) Write Some((rkey, addr));
    send = wr_send() Send None;
    send_imm = wr_send_imm(imm: be32) Send None;
    send_inv = wr_send_inv(rkey: u32) Send None, |pair| with(pair, |_, list| {
        if let Some(request) = &mut list.current {
            request.invalidates = true;
        }
    });
    send_tso = wr_send_tso(header: *mut c_void, size: u16, mss: u16) Send None;
}

fn change(pair: &Pair, change: Change) {
    with(pair, |_, list| {
        if list.keys.len() < ROOM {
            list.keys.push(change);
        }
    });
}

/// Sets the entries of the current request, if there are not more than there is room for: those are
/// refused by the driver.
fn put(pair: &Pair, inlined: bool, entries: impl ExactSizeIterator<Item = Entry>) {
    with(pair, |_, list| {
        let Some(request) = &mut list.current else { return };
        list.entries.clear();
        if entries.len() <= list.entries.capacity() {
            list.entries.extend(entries);
        }
        request.inlined |= inlined;
    });
}

fn inline(pair: &Pair, parts: &[(usize, usize)]) {
    put(
        pair,
        true,
        parts.iter().map(|&(address, length)| Entry {
            addr: address as u64,
            len: u32::try_from(length).unwrap_or(u32::MAX),
            lkey: 0,
        }),
    );
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, len: u32) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return };
    put(pair, false, [Entry { addr, len, lkey }].into_iter());
    if let Some(original) = pair.building.kept().wr_set_sge {
        // SAFETY: the caller's.
        unsafe { original(qp, lkey, addr, len) };
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return };
    let most = pair.most.send_entries.load(Ordering::Relaxed) as usize;
    if !list.is_null() && count <= most {
        // SAFETY: the program's list has so many.
        let list = unsafe { slice::from_raw_parts(list, count) };
        let entry = |sge: &ibv_sge| Entry { addr: sge.addr, len: sge.length, lkey: sge.lkey };
        put(pair, false, list.iter().map(entry));
    }
    if let Some(original) = pair.building.kept().wr_set_sge_list {
        // SAFETY: the caller's.
        unsafe { original(qp, count, list) };
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, address: *mut c_void, length: usize) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return };
    inline(pair, &[(address.addr(), length)]);
    if let Some(original) = pair.building.kept().wr_set_inline_data {
        // SAFETY: the caller's.
        unsafe { original(qp, address, length) };
    }
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the operation of a queue pair is called with one.
    let Some((pair, _)) = (unsafe { find(qp) }) else { return };
    // How much it is in all is what is told of it.
    let total = match list.is_null() || count > ROOM {
        true => 0,
        false => {
            // SAFETY: the program's list has so many.
            let list = unsafe { slice::from_raw_parts(list, count) };
            list.iter().fold(0usize, |sum, part| sum.saturating_add(part.length))
        }
    };
    inline(pair, &[(0, total)]);
    if let Some(original) = pair.building.kept().wr_set_inline_data_list {
        // SAFETY: the caller's.
        unsafe { original(qp, count, list) };
    }
}
