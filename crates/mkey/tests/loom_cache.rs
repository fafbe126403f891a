//! The use counts of the cache in every interleaving: no registration ends while it is used, and
//! the last use is noticed by somebody.
//!
//! The code is the library's own, with loom's atomics in place of the processor's and the portable
//! fences. A loom cell stands for the registration: loom fails a model in which it is touched by
//! two threads at a time or without an order between them.
#![allow(missing_docs)]

#[path = "../src/cache/uses.rs"]
mod uses;

/// What the counts are made of.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

/// Both halves as fences of the processor.
mod fences {
    use loom::sync::atomic::{Ordering, fence};

    #[derive(Clone, Copy)]
    pub(super) struct Fences;

    impl Fences {
        pub(super) fn light(self) {
            fence(Ordering::SeqCst);
        }

        pub(super) fn heavy(self) {
            fence(Ordering::SeqCst);
        }
    }
}

use fences::Fences;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use uses::{Shared, Uses, idle};

/// One registration and the uses of two threads. The cell counts how often it was ended.
struct Model {
    uses: [Uses; 2],
    shared: Shared,
    registration: UnsafeCell<u32>,
    /// The cache's lock: whether it has ended, and whether it is collected.
    lock: Mutex<(bool, bool)>,
}

impl Model {
    fn new() -> Arc<Self> {
        let model = Arc::new(Self {
            uses: [Uses::new(), Uses::new()],
            shared: Shared::new(),
            registration: UnsafeCell::new(0),
            lock: Mutex::new((false, false)),
        });
        model.uses.iter().for_each(Uses::begin);
        model
    }

    fn collect(&self, state: &mut (bool, bool)) {
        if state.0 && !state.1 && idle(&self.shared, self.uses.iter()) {
            state.1 = true;
            // SAFETY: loom fails the model if anybody else is there.
            self.registration.with_mut(|registration| unsafe { *registration += 1 });
        }
    }

    fn settle(&self) {
        self.collect(&mut self.lock.lock().unwrap());
    }

    fn end(&self) {
        let mut state = self.lock.lock().unwrap();
        state.0 = true;
        self.uses.iter().for_each(Uses::end);
        Fences.heavy();
        self.collect(&mut state);
    }

    fn look(&self) {
        // SAFETY: loom fails the model if anybody is there to write.
        let ended = self.registration.with(|registration| unsafe { *registration });
        assert_eq!(ended, 0, "used after it has ended");
    }

    fn give(&self, thread: usize) {
        if !self.uses[thread].give(Fences) {
            self.settle();
        }
    }

    fn give_elsewhere(&self, thread: usize) {
        self.shared.give();
        if !self.uses[thread].is_live() {
            self.settle();
        }
    }

    /// Takes a use if there is one to be had, and uses it.
    fn take(&self, thread: usize) -> bool {
        if !self.uses[thread].is_live() {
            return false;
        }
        let before = self.uses[thread].taken();
        let taken = self.uses[thread].take(Fences);
        assert_ne!(self.uses[thread].taken(), before, "taken and late uses count alike");
        if taken {
            self.look();
        } else {
            self.give(thread);
        }
        taken
    }

    fn done(&self) {
        assert_eq!(*self.lock.lock().unwrap(), (true, true), "ended, and nobody noticed");
        // SAFETY: the threads have ended.
        let ended = self.registration.with(|registration| unsafe { *registration });
        assert_eq!(ended, 1, "ended once");
    }
}

/// With at most `preemptions`; without a number in every interleaving.
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn a_use_is_taken_and_given_while_the_registration_ends() {
    explore(None, || {
        let model = Model::new();
        let there = Arc::clone(&model);
        let user = thread::spawn(move || {
            if there.take(0) {
                there.look();
                there.give(0);
            }
        });
        model.end();
        user.join().unwrap();
        model.done();
    });
}

#[test]
fn two_threads_use_it_while_it_ends() {
    explore(Some(3), || {
        let model = Model::new();
        let users: Vec<_> = (0..2)
            .map(|thread| {
                let there = Arc::clone(&model);
                thread::spawn(move || {
                    if there.take(thread) {
                        there.look();
                        there.give(thread);
                    }
                })
            })
            .collect();
        model.end();
        users.into_iter().for_each(|user| user.join().unwrap());
        model.done();
    });
}

#[test]
fn a_use_taken_here_is_given_back_there() {
    explore(None, || {
        let model = Model::new();
        assert!(model.take(0));
        let there = Arc::clone(&model);
        let user = thread::spawn(move || {
            there.look();
            there.give_elsewhere(0);
        });
        model.end();
        user.join().unwrap();
        model.done();
    });
}

/// The uses of one thread wander to another one and back while the counts are summed up.
#[test]
fn uses_cloned_on_both_sides_are_not_lost() {
    explore(Some(3), || {
        let model = Model::new();
        assert!(model.take(0));
        model.uses[0].take_held();
        let there = Arc::clone(&model);
        // Has one of the two, clones it, gives both back.
        let other = thread::spawn(move || {
            there.shared.take();
            there.look();
            there.give_elsewhere(0);
            there.look();
            there.give_elsewhere(0);
        });
        let there = Arc::clone(&model);
        let ending = thread::spawn(move || there.end());
        // The owner of the counts does the same with the other one.
        model.uses[0].take_held();
        model.give(0);
        model.look();
        model.give(0);
        other.join().unwrap();
        ending.join().unwrap();
        model.done();
    });
}

/// What is shared returns to the value it had while the use has moved on: the sum of values that
/// were read at different moments would be nought although somebody has a use all the time.
#[test]
fn a_use_that_wanders_is_not_lost_sight_of() {
    explore(None, || {
        let model = Model::new();
        assert!(model.take(0));
        let there = Arc::clone(&model);
        let ending = thread::spawn(move || there.end());
        // Cloned elsewhere, given back here; cloned here, given back elsewhere.
        model.shared.take();
        model.give(0);
        model.uses[0].take_held();
        model.give_elsewhere(0);
        model.look();
        model.give(0);
        ending.join().unwrap();
        model.done();
    });
}

/// A place serves another registration from another of the thread's lines: what the old one has
/// counted goes with it, so that a use that was given back elsewhere is neither missed nor lost.
#[test]
fn counts_that_a_thread_moves_are_not_lost() {
    explore(Some(3), || {
        let model = Model::new();
        // Of a registration that was here before: taken here, given back there.
        model.uses[0].take_held();
        let there = Arc::clone(&model);
        let before = thread::spawn(move || there.shared.give());
        before.join().unwrap();
        {
            let _locked = model.lock.lock().unwrap();
            model.uses[0].end();
            model.uses[1].end();
            model.uses[1].take_over(&model.uses[0]);
            model.uses[1].begin();
        }
        // One use of the new one: ended by one thread, given back by another.
        assert!(model.take(1));
        let there = Arc::clone(&model);
        let user = thread::spawn(move || {
            there.look();
            there.give_elsewhere(1);
        });
        let there = Arc::clone(&model);
        let ending = thread::spawn(move || there.end());
        // A late one, which comes to nothing or is given back.
        if model.take(1) {
            model.look();
            model.give(1);
        }
        user.join().unwrap();
        ending.join().unwrap();
        model.done();
    });
}
