//! Changes that must wait until nobody uses the old key: revocation without waiting.

use super::entry::{Entry, Fields, Link, Meta, State, flag};
use super::executor::{Waits, tag};
use super::sync::{Ordering, lock};
use super::{Engine, fast_mr, on_demand};
use crate::key::{Key, Lkey, Rkey};
use crate::refusal::{KeyKind, QpId};

/// Whether a change has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Yes: no access through what was before touches memory any more.
    Quiet,
    /// Accesses that had begun before are running still; ask again.
    Pending,
}

/// A change of an object that has begun: its old key is refused from now on. It takes effect when
/// [`Engine::finish`] answers [`Progress::Quiet`]; dropped before that, the object stays unusable.
#[derive(Debug)]
#[must_use]
pub struct Change {
    slot: u32,
    lkey: Lkey,
    rkey: Rkey,
    /// Few changes meet a running access; those that do carry the rest with them.
    pending: Option<Box<Pending>>,
}

#[derive(Debug)]
struct Pending {
    waits: Waits,
    step: Step,
}

impl Change {
    /// The object's local key after the change.
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// The object's remote key after the change.
    pub fn rkey(&self) -> Rkey {
        self.rkey
    }
}

#[derive(Debug)]
pub(super) enum Step {
    Done,
    /// Replace the content, which was in force if `old` was. `translated`: the memory behind is
    /// another. `closed`: the change has closed the entry to new holders.
    Replace {
        old: Meta,
        fields: Fields,
        meta: Meta,
        translated: bool,
        closed: bool,
    },
    /// Free the object.
    Retire {
        old: Meta,
    },
}

/// Ends the object of an entry whose memory is free.
fn empty(entry: &Entry, old: Meta) {
    // Nobody else writes it while the entry is being changed.
    let generation = entry.generation.load(Ordering::Relaxed).wrapping_add(1);
    entry.generation.store(generation, Ordering::Relaxed);
    entry.reopen();
    entry.meta.store(old.with_state(State::Empty).0, Ordering::Release);
}

impl Engine {
    /// Carries a change out if nobody uses the old key any more. Never waits.
    #[inline]
    pub fn finish(&self, change: &mut Change) -> Progress {
        match change.pending {
            None => Progress::Quiet,
            Some(_) => self.finish_pending(change),
        }
    }

    #[cold]
    fn finish_pending(&self, change: &mut Change) -> Progress {
        let Some(mut pending) = change.pending.take() else { return Progress::Quiet };
        if !pending.waits.quiet() {
            change.pending = Some(pending);
            return Progress::Pending;
        }
        self.carry_out(change.slot, pending.step);
        Progress::Quiet
    }

    /// Takes a step. Nobody uses the old key any more.
    #[inline]
    fn carry_out(&self, slot: u32, step: Step) {
        let Some(entry) = self.table.entry(slot) else { return };
        match step {
            Step::Done => {}
            Step::Replace { old, fields, meta, translated, closed } => {
                self.let_go(entry, old);
                match old.kind() {
                    KeyKind::Region => {
                        self.replace_region(slot, entry, old, &fields, meta, translated);
                    }
                    _ => entry.publish(&fields, meta),
                }
                // Not what another thread has closed, which is about to take the entry.
                if closed {
                    entry.reopen();
                }
            }
            Step::Retire { old } => {
                self.let_go(entry, old);
                // Locked until the entry is empty, so that no record is made that nobody forgets.
                let mut detached = (old.kind() == KeyKind::Region).then(|| lock(&self.detached));
                let gone = detached.as_mut().and_then(|detached| detached.remove(&slot));
                let fields = entry.fields();
                empty(entry, old);
                drop(detached);
                drop(gone);
                self.free_run(&fields, old);
                self.table.free(slot);
            }
        }
    }

    /// Gives a region new content. Pages that were taken away stay so, unless it has another
    /// translation.
    pub(super) fn replace_region(
        &self,
        slot: u32,
        entry: &Entry,
        old: Meta,
        fields: &Fields,
        meta: Meta,
        translated: bool,
    ) {
        let before = entry.fields();
        let mut detached = lock(&self.detached);
        let forgotten = if translated { detached.remove(&slot) } else { None };
        let gone = detached.contains_key(&slot);
        entry.publish(fields, if gone { meta.with(flag::DETACHED) } else { meta });
        drop(detached);
        if translated {
            drop(forgotten);
            self.free_run(&before, old);
        }
    }

    /// Begins a change of an entry that the caller has taken (and closed, where it has holders).
    #[inline]
    pub(super) fn begin(&self, slot: u32, old: Meta, step: Step) -> Change {
        // What was not in force has no users: readers look at the state after they publish.
        let waits = match old.state() {
            State::Valid => self.executors.users_of(tag(self.tag, slot)),
            _ => Waits::default(),
        };
        let variants = match &step {
            Step::Replace { meta, .. } => meta.variants(),
            _ => old.variants(),
        };
        let index = self.table.index(slot);
        let pending = if waits.is_empty() {
            self.carry_out(slot, step);
            None
        } else {
            Some(Box::new(Pending { waits, step }))
        };
        let lkey = Lkey(Key::new(index, variants.local));
        Change { slot, lkey, rkey: Rkey(Key::new(index, variants.remote)), pending }
    }

    /// Releases the regions that a window or fast registration held.
    #[inline]
    fn let_go(&self, entry: &Entry, old: Meta) {
        if old.state() != State::Valid {
            return;
        }
        match old.kind() {
            KeyKind::Window1 | KeyKind::Window2 => self.release(entry.link() as u32),
            KeyKind::FastMr => {
                let link = Link::unpack(entry.link());
                let held = fast_mr::held(self.runs.words(link.run), link.detail, entry.host());
                held.for_each(|parent| self.release(parent));
            }
            KeyKind::Region | KeyKind::Null => {}
        }
    }

    pub(super) fn release(&self, parent: u32) {
        if let Some(parent) = self.table.entry(parent) {
            parent.release();
        }
    }

    /// Frees the page list of an entry that was so, and is so no more.
    fn free_run(&self, fields: &Fields, old: Meta) {
        if old.kind() == KeyKind::FastMr {
            let link = Link::unpack(fields.link);
            self.runs.free(link.run, fast_mr::words(link.detail));
        } else if old.has(flag::ON_DEMAND | flag::IMPLICIT) {
            on_demand::free(&self.runs, fields.link, fields.length, fields.host);
        }
    }

    /// Fields of an object without memory behind it.
    pub(super) fn unbound(entry: &Entry, qp: QpId) -> Fields {
        let owner = super::entry::Owner::new(entry.owner().pd(), qp);
        Fields { owner, base: 0, length: 0, host: 0, ..entry.fields() }
    }
}
