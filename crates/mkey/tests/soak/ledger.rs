//! What all threads know of keys.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the end of a key has been reported.
#[derive(Default)]
pub struct Ledger(Mutex<HashMap<u32, Entry>>);

#[derive(Clone, Copy)]
struct Entry {
    serial: u64,
    over: bool,
}

/// Keys known at a time; those whose end was reported are forgotten beyond.
const MOST: usize = 1 << 16;

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key is given out. Fails if it is out already.
    pub fn given(&self, key: u32, serial: u64) -> Result<(), String> {
        let mut entries = self.entries();
        if entries.len() >= MOST {
            entries.retain(|_, entry| !entry.over);
        }
        match entries.insert(key, Entry { serial, over: false }) {
            Some(Entry { serial: other, over: false }) => Err(format!(
                "key {key:#x} was given for {serial:#x} while it is that of {other:#x}"
            )),
            _ => Ok(()),
        }
    }

    /// Its end was reported: from now on it opens nothing.
    pub fn over(&self, key: u32, serial: u64) {
        if let Some(entry) = self.entries().get_mut(&key).filter(|entry| entry.serial == serial) {
            entry.over = true;
        }
    }

    /// Nobody hears of its end.
    pub fn forget(&self, key: u32, serial: u64) {
        let mut entries = self.entries();
        if entries.get(&key).is_some_and(|entry| entry.serial == serial) {
            entries.remove(&key);
        }
    }

    /// Whether it is known to have ended.
    pub fn is_over(&self, key: u32, serial: u64) -> bool {
        self.entries().get(&key).is_some_and(|entry| entry.serial == serial && entry.over)
    }
}
