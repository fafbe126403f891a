//! `mkey trace`: what a program asks of its devices, real ones and ours, is told to the recorder.
//!
//! It is decided by the environment ([`FOLDER`]), once, when the first device is opened. Without it the
//! functions that are exported lead straight to the others of this library, and no operation is changed.
//!
//! What is told:
//! * the exported verbs that make and end objects (`control`), and those behind pointers of the context
//!   (`operations`): the pointers of each context that is opened are replaced (`contexts`);
//! * work requests and completions, by the same pointers (`post`, `poll`), and by those that an extended
//!   queue pair (`build`) and an extended completion queue (`poll`) have of their own;
//! * memory that is given back (`gone`), if `libmkey_watch.so` is loaded, too.
//!
//! What is not:
//! * what a program posts past libibverbs: rings that it writes to by itself (`mlx5dv_init_obj`, and
//!   GPUs that do), and work requests that only a vendor's library has (`mlx5dv_wr_*`);
//! * queue pairs that a vendor's library makes (`mlx5dv_create_qp`, `efadv_create_qp_ex`): their work
//!   goes on unseen;
//! * work queues (`ibv_create_wq`), counters and flows; `ibv_wr_flush`, which the bindings do not know;
//!   tag matching of shared receive queues;
//! * regions that another process made (`ibv_import_mr`);
//! * programs that load libibverbs into another namespace (`dlmopen`), static ones.

mod build;
mod contexts;
pub(crate) mod control;
mod gone;
mod operations;
mod poll;
mod post;
mod queues;
mod table;

use crate::boundary::plain;
use mkey_sys::types::ibv_context;
use mkey_trace::raw::{Slot, Verb};
use mkey_trace::record::{Called, FOLDER, Recorder};
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// Whether this process is to be recorded.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os(FOLDER).is_some_and(|folder| !folder.is_empty()))
}

/// The recorder, which begins now.
fn begin() -> Option<&'static Recorder> {
    static ONCE: Once = Once::new();
    let recorder = is_wanted().then(Recorder::begin).flatten();
    if recorder.is_some() {
        ONCE.call_once(|| {
            mkey_os::fork::in_children(in_child);
            mkey_os::fork::around(before_fork, after_fork);
            gone::listen();
        });
    }
    recorder
}

/// Counts the forks that this process has come from: what an object was put in with.
static EPOCH: AtomicU32 = AtomicU32::new(0);

#[inline]
fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

extern "C" fn before_fork() {
    Recorder::forks();
}

/// In the child, too, after [`in_child`].
extern "C" fn after_fork() {
    Recorder::has_forked();
}

extern "C" fn in_child() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    Recorder::forked();
}

/// Called when the program ends, after its own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    plain((), || {
        if let Some(recorder) = Recorder::current() {
            recorder.end();
        }
    });
}

/// The calling thread's errno.
fn errno() -> c_int {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    crate::boundary::set_errno(crate::boundary::Errno(errno));
}

/// A call of which nothing is known.
const BLANK: Called = Called {
    verb: Verb::OpenDevice,
    errno: 0,
    device: 0,
    object: 0,
    parent: 0,
    addr: 0,
    len: 0,
    iova: 0,
    access: 0,
    lkey: 0,
    rkey: 0,
    detail: 0,
};

/// How verbs answer.
trait Outcome: Copy {
    /// 0, or what it failed with; `errno` is what it left there.
    fn failure(self, errno: c_int) -> c_int;
}

impl<T> Outcome for *mut T {
    fn failure(self, errno: c_int) -> c_int {
        match (self.is_null(), errno) {
            (false, _) => 0,
            (true, 0) => libc::EIO,
            (true, errno) => errno,
        }
    }
}

impl Outcome for c_int {
    fn failure(self, errno: c_int) -> c_int {
        match (self, errno) {
            (0.., _) => self,
            (_, 0) => libc::EIO,
            (_, errno) => errno,
        }
    }
}

thread_local! {
    /// Whether this thread is within a verb that is told of: libibverbs calls its own functions.
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// Calls a verb on a context that is followed, and tells of it. `tell` says what it was, errno, device
/// and verb aside.
fn told<T: Outcome>(
    context: *mut ibv_context,
    verb: Verb,
    inner: impl FnOnce() -> T,
    tell: impl FnOnce(&'static Recorder, Slot, T) -> Called,
) -> T {
    let device = || {
        let place = contexts::CONTEXTS.get(context, 0).filter(|place| place.is_own())?;
        Some(place.value.device())
    };
    let followed = plain(None, || Some((Recorder::current()?, device()?)));
    let Some((recorder, device)) = followed else { return inner() };
    told_by(recorder, verb, inner, |answer| Called { device, ..tell(recorder, device, answer) })
}

/// The same where the context is not known yet.
fn told_by<T: Outcome>(
    recorder: &'static Recorder,
    verb: Verb,
    inner: impl FnOnce() -> T,
    tell: impl FnOnce(T) -> Called,
) -> T {
    if WITHIN.try_with(|within| within.replace(true)).unwrap_or(true) {
        return inner();
    }
    let before = errno();
    let entered = recorder.enter();
    set_errno(before);
    let answer = inner();
    let after = errno();
    plain((), || {
        let left = recorder.leave();
        let call = Called { verb, errno: answer.failure(after), ..tell(answer) };
        recorder.called(entered, left, &call);
    });
    let _ = WITHIN.try_with(|within| within.set(false));
    set_errno(after);
    answer
}
