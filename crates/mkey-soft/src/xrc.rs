//! Extended reliable connections: a queue pair takes messages for several shared receive queues, each of
//! which the message names.

use crate::object::Used;
use crate::receive::Srq;
use crate::sync::lock;
use mkey_core::refusal::PdId;
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};

/// An XRC domain.
#[derive(Debug, Default)]
pub(crate) struct Xrcd {
    /// Its shared receive queues by number.
    queues: Mutex<HashMap<u32, Weak<Srq>>>,
    users: AtomicU32,
}

impl Xrcd {
    /// Makes a shared receive queue known.
    pub(crate) fn enter(&self, number: u32, srq: Weak<Srq>) {
        lock(&self.queues).insert(number, srq);
    }

    /// Forgets one.
    pub(crate) fn leave(&self, number: u32) {
        lock(&self.queues).remove(&number);
    }

    fn find(&self, number: u32) -> Option<Arc<Srq>> {
        lock(&self.queues).get(&number)?.upgrade()
    }
}

impl Used for Xrcd {
    fn users(&self) -> &AtomicU32 {
        &self.users
    }
}

/// The end of an extended connection that a queue pair is.
#[derive(Debug)]
pub(crate) enum End {
    Send,
    Receive {
        domain: Arc<Xrcd>,
        /// What the request in hand names. One peer sends, one request at a time.
        named: Mutex<Option<Arc<Srq>>>,
    },
}

impl End {
    pub(crate) fn receive(domain: Arc<Xrcd>) -> Self {
        Self::Receive { domain, named: Mutex::default() }
    }

    pub(crate) fn is_send(&self) -> bool {
        matches!(self, Self::Send)
    }

    /// Takes note of the queue that a request names. Its protection domain; `None` if there is no such
    /// queue.
    pub(crate) fn name(&self, number: Option<u32>) -> Option<PdId> {
        let found = self.find(number);
        let Self::Receive { named, .. } = self else { return None };
        let pd = found.as_ref().map(|srq| srq.pd);
        *lock(named) = found;
        pd
    }

    /// The queue of this number.
    pub(crate) fn find(&self, number: Option<u32>) -> Option<Arc<Srq>> {
        match self {
            Self::Send => None,
            Self::Receive { domain, .. } => domain.find(number?),
        }
    }

    /// The queue that the request in hand names.
    pub(crate) fn named(&self) -> Option<Arc<Srq>> {
        match self {
            Self::Send => None,
            Self::Receive { named, .. } => lock(named).clone(),
        }
    }
}
