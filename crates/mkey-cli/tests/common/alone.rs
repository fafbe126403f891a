//! Taking turns at the machine's huge pages, across the processes of a test run.

use std::fs::{File, OpenOptions};

/// Runs that reserve huge pages take turns: they watch the same pool, which is the machine's. Held
/// while a run may reserve some; the file stays, and says nothing.
#[must_use]
pub fn alone() -> File {
    let path = std::env::temp_dir().join("mkey-tests-huge-pages.lock");
    // It may be there already, as another user's: to lock it, reading is enough.
    let _ = OpenOptions::new().append(true).create(true).open(&path);
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    file
}
