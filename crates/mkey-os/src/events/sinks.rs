//! Who is told of events: a list that grows while the event thread reads it.

use super::Event;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// Who is told of events, on the watcher's thread; see the module for what it must not do. A
/// closure is a sink of events alone.
pub trait Sink: Sync {
    /// Events are about to be read, after which the threads that made them go on. The word of
    /// [`InHand`](super::InHand) is raised.
    fn before_read(&self) {}
    /// An event, in order.
    fn event(&self, event: &Event);
    /// The events that were read have all been told, to all sinks.
    fn after_read(&self) {}
}

impl<F: Fn(&Event) + Sync> Sink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// The sinks in the order they were added. Reading takes a load a sink: no lock, no allocation.
#[derive(Default)]
pub(super) struct Sinks(Link);

type Link = OnceLock<Box<Node>>;

struct Node {
    sink: &'static dyn Sink,
    next: Link,
}

impl Sinks {
    /// Adds one at the end.
    pub(super) fn add(&self, sink: &'static dyn Sink) {
        let mut node = Box::new(Node { sink, next: Link::new() });
        let mut end = &self.0;
        loop {
            match end.get() {
                Some(other) => end = &other.next,
                // Somebody else may have been faster.
                None => match end.set(node) {
                    Ok(()) => break,
                    Err(mine) => node = mine,
                },
            }
        }
        // Whoever adds looks at the word next: either the event thread, which raises the word and
        // looks at the list then, sees the sink, or the word is seen raised.
        fence(Ordering::SeqCst);
    }

    fn iter(&self) -> impl Iterator<Item = &'static dyn Sink> {
        let mut next = self.0.get();
        std::iter::from_fn(move || {
            let node = next?;
            next = node.next.get();
            Some(node.sink)
        })
    }

    /// Tells those who are there now that events are about to be read; the word is raised.
    pub(super) fn begin(&self) -> Reading<'_> {
        fence(Ordering::SeqCst);
        // Who is added from now on was not told of the beginning, so hears of the next reading.
        let mut reading = Reading { sinks: self, told: 0 };
        for sink in self.iter().take(self.iter().count()) {
            // Counted first: one that panics half way is told of the end as well.
            reading.told += 1;
            sink.before_read();
        }
        reading
    }
}

impl std::fmt::Debug for Sinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sinks").field(&self.iter().count()).finish()
    }
}

/// A reading of events, of which the sinks hear the end when it is dropped: also when one of them
/// panics, or the accesses that the others have stopped would never go on.
pub(super) struct Reading<'a> {
    sinks: &'a Sinks,
    told: usize,
}

impl Reading<'_> {
    pub(super) fn event(&self, event: &Event) {
        self.sinks.iter().take(self.told).for_each(|sink| sink.event(event));
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.sinks.iter().take(self.told).for_each(|sink| sink.after_read());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EventKind;
    use std::sync::Mutex;
    use std::time::Instant;

    /// Notes what it is told, and adds another sink in the middle of a reading.
    struct Teller {
        name: &'static str,
        told: &'static Mutex<Vec<String>>,
        sinks: &'static Sinks,
        adds: Mutex<Option<&'static Teller>>,
    }

    impl Teller {
        fn note(&self, what: &str) {
            self.told.lock().unwrap().push(format!("{} {what}", self.name));
        }
    }

    impl Sink for Teller {
        fn before_read(&self) {
            self.note("before");
            if let Some(other) = self.adds.lock().unwrap().take() {
                self.sinks.add(other);
            }
        }

        fn event(&self, _: &Event) {
            self.note("event");
        }

        fn after_read(&self) {
            self.note("after");
        }
    }

    #[test]
    fn a_sink_added_in_the_middle_hears_of_whole_readings_only() {
        let told: &Mutex<Vec<String>> = Box::leak(Box::default());
        let sinks: &Sinks = Box::leak(Box::default());
        let teller = |name, adds| -> &'static Teller {
            Box::leak(Box::new(Teller { name, told, sinks, adds: Mutex::new(adds) }))
        };
        let second = teller("b", None);
        sinks.add(teller("a", Some(second)));
        let event = Event { kind: EventKind::Unmapped, range: 0..1, when: Instant::now() };
        for expected in [
            &["a before", "a event", "a after"][..],
            &["a before", "b before", "a event", "b event", "a after", "b after"],
        ] {
            let reading = sinks.begin();
            reading.event(&event);
            drop(reading);
            assert_eq!(std::mem::take(&mut *told.lock().unwrap()), expected);
        }
    }

    #[test]
    fn sinks_added_by_many_threads_are_all_there() {
        let sinks = Sinks::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        sinks.add(&|_: &Event| ());
                    }
                });
            }
        });
        assert_eq!(sinks.iter().count(), 40);
    }
}
