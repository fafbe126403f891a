//! Tells the caches of the process what its watcher hears.
//!
//! The watcher keeps a sink for ever, so there is one for all caches. Its list of gates grows
//! while the event thread reads it; gates of caches that are gone serve new ones.

use super::gate::Gate;
use mkey_os::events::{Event, EventKind, Sink, Unavailable, Watcher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Default)]
struct Hub(Link);

type Link = OnceLock<Box<Node>>;

struct Node {
    gate: Arc<Gate>,
    /// Whether a cache has it.
    taken: AtomicBool,
    next: Link,
}

/// A gate that hears of events, for as long as this lives.
pub(super) struct Subscription {
    watcher: &'static Watcher,
    node: &'static Node,
}

/// Has a gate told of events.
pub(super) fn subscribe() -> Result<Subscription, &'static Unavailable> {
    static HUB: Hub = Hub(Link::new());
    static JOINED: OnceLock<()> = OnceLock::new();

    let watcher = mkey_os::events::process()?;
    JOINED.get_or_init(|| watcher.add_sink(&HUB));
    Ok(Subscription { watcher, node: HUB.claim() })
}

impl Subscription {
    pub(super) fn watcher(&self) -> &'static Watcher {
        self.watcher
    }

    pub(super) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.node.gate)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.node.taken.store(false, Ordering::Release);
    }
}

impl Hub {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.0.get(), |node| node.next.get()).map(|node| &**node)
    }

    fn claim(&'static self) -> &'static Node {
        let unclaimed = |node: &&Node| !node.taken.swap(true, Ordering::AcqRel);
        if let Some(node) = self.nodes().find(unclaimed) {
            return node;
        }
        let mut end = &self.0;
        loop {
            let mut mine = false;
            let node = end.get_or_init(|| {
                mine = true;
                let (gate, taken) = (Arc::default(), AtomicBool::new(true));
                Box::new(Node { gate, taken, next: Link::new() })
            });
            if mine {
                return node;
            }
            // Somebody else was faster.
            end = &node.next;
        }
    }
}

impl Sink for Hub {
    fn before_read(&self) {
        self.nodes().for_each(|node| node.gate.before_read());
    }

    fn event(&self, event: &Event) {
        for node in self.nodes() {
            node.gate.leave(event.range.clone());
            if let EventKind::Moved { to } = event.kind {
                // What was at the new place is gone, too.
                node.gate.leave(to..to.saturating_add(event.range.len()));
            }
        }
    }

    fn after_read(&self) {
        self.nodes().for_each(|node| node.gate.after_read());
    }
}
