//! What the recorder keeps for each thread.

use super::Recorder;
use super::log::Placed;
use crate::raw::{self, Head};
use std::cell::Cell;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Here {
    /// The recorder, by its address, that the rest is of.
    owner: Cell<usize>,
    thread: Cell<Option<Placed<raw::Thread>>>,
    /// When it entered a call last, ns.
    entered: Cell<u64>,
    /// The thread is within the recorder.
    inside: Cell<bool>,
    /// It is because it forks.
    forks: Cell<bool>,
    /// Its stack, once it was looked for: an empty range if it was not found.
    stack: Cell<Option<(usize, usize)>>,
}

thread_local! {
    // Nothing in it is dropped: it can be reached for as long as the thread runs.
    static HERE: Here = const {
        Here {
            owner: Cell::new(0),
            thread: Cell::new(None),
            entered: Cell::new(0),
            inside: Cell::new(false),
            forks: Cell::new(false),
            stack: Cell::new(None),
        }
    };
}

/// The thread is within the recorder for as long as this is there: what it frees or unmaps there is not the
/// program's doing, and finds the recorder's locks held.
pub struct Inside(());

impl Inside {
    /// `None`: it is already.
    pub fn enter() -> Option<Self> {
        HERE.with(|here| (!here.inside.replace(true)).then_some(Self(())))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HERE.with(|here| here.inside.set(false));
    }
}

/// The calling thread's record.
#[inline]
pub fn here(recorder: &Recorder) -> Placed<raw::Thread> {
    HERE.with(|here| match here.thread.get() {
        Some(thread) if here.owner.get() == std::ptr::from_ref(recorder) as usize => thread,
        _ => begin(recorder, here),
    })
}

/// The calling thread enters a call.
#[inline]
pub fn enters(at: u64) {
    HERE.with(|here| here.entered.set(at));
}

/// When it entered one last.
#[inline]
pub fn entered() -> u64 {
    HERE.with(|here| here.entered.get())
}

/// Adds to a counter that only one thread, or who holds one lock, adds to.
#[inline(always)]
pub fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

/// Posted so far.
#[inline(always)]
pub fn posts(thread: Placed<raw::Thread>) -> &'static AtomicU64 {
    thread.word::<{ offset_of!(raw::Thread, posts) }>()
}

#[cold]
fn begin(recorder: &Recorder, here: &Here) -> Placed<raw::Thread> {
    let thread = recorder.log.write(
        raw::Thread {
            head: Head { len: 0, kind: 0, zero: 0 },
            tid: rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(),
            zero: 0,
            name: name(),
            posts: 0,
            polls: 0,
            empty: 0,
            completions: 0,
        },
        &[],
    );
    let thread = thread.unwrap_or(recorder.no_thread);
    here.thread.set(Some(thread));
    here.owner.set(std::ptr::from_ref(recorder) as usize);
    thread
}

fn name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: PR_GET_NAME writes 16 bytes at most, with the zero that ends them.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Where the calling thread's own stack lies, as far as it may be read: what is known, or, if `ask`, found
/// out, which allocates. Empty: not known.
pub fn stack(ask: bool) -> Range<usize> {
    HERE.with(|here| match here.stack.get() {
        Some((low, high)) => low..high,
        None if ask => {
            let found = find_stack();
            here.stack.set(Some((found.start, found.end)));
            found
        }
        None => 0..0,
    })
}

/// Beyond this from its top the first thread's stack is not taken to reach.
const FIRST_STACK: usize = 8 << 20;

fn find_stack() -> Range<usize> {
    let first = rustix::process::getpid() == rustix::thread::gettid();
    if first {
        // The kernel puts these bytes above the first frame. What lies between is on the stack, which has no
        // holes; where it ends below is not asked for, since it grows.
        // SAFETY: asks for a number.
        let top = unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
        return top.saturating_sub(FIRST_STACK)..top;
    }
    let mut found = 0..0;
    // SAFETY: `attributes` is written by pthread_getattr_np before it is read, and destroyed once, as
    // pthread_getattr_np wants; the calling thread is one, so that pthread_self is valid.
    unsafe {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) == 0 {
            let (mut low, mut size) = (std::ptr::null_mut(), 0);
            if libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) == 0 {
                found = low as usize..(low as usize).saturating_add(size);
            }
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    found
}

/// The thread is about to fork: until that is over, in the parent and in the child, what other handlers of the
/// program's free is not looked at. In the child the recorder is still the parent's, and its locks may be held
/// by threads that are not there.
pub fn forks() {
    HERE.with(|here| here.forks.set(!here.inside.replace(true)));
}

/// It has.
pub fn has_forked() {
    HERE.with(|here| {
        if here.forks.replace(false) {
            here.inside.set(false);
        }
    });
}

/// In a forked child: the thread is another one now, if on the same stack.
pub fn forked() {
    HERE.with(|here| {
        here.owner.set(0);
        here.inside.set(false);
        here.forks.set(false);
        if here.stack.get().is_none() {
            // Its first thread may be on what was another's stack in the parent, which nothing tells of.
            here.stack.set(Some((0, 0)));
        }
    });
}
