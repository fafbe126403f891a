//! Who hears of the library's own work requests: windows and fast registrations, which end when a
//! completion says so and not before.

use crate::sync::lock;
use mkey_core::key::Rkey;
use mkey_core::status::WcStatus;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

/// What a work request of the library's own was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make the key valid: bind a window, or register fast.
    Begin,
    /// Make it invalid.
    End,
}

/// Something whose key is made valid and invalid by posted work.
pub(crate) trait Posted: Send + Sync + fmt::Debug {
    /// A step's work request has completed, or was flushed. Called without any lock of the queues
    /// held; may be called by any thread.
    fn completed(&self, step: Step, status: WcStatus);
    /// The peer has invalidated the key (SEND_WITH_INV).
    fn invalidated(&self, key: Rkey);
}

/// The objects of a protection domain that a peer may invalidate, by the index of their key.
#[derive(Debug, Default)]
pub(crate) struct Remotes(Mutex<HashMap<u32, Weak<dyn Posted>>>);

impl Remotes {
    pub(crate) fn insert(&self, key: Rkey, posted: Weak<dyn Posted>) {
        lock(&self.0).insert(key.0.index(), posted);
    }

    pub(crate) fn remove(&self, key: Rkey) {
        lock(&self.0).remove(&key.0.index());
    }

    pub(crate) fn find(&self, key: Rkey) -> Option<Arc<dyn Posted>> {
        lock(&self.0).get(&key.0.index())?.upgrade()
    }
}
