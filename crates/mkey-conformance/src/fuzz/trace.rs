//! Recordings of traced programs, and what their processes write.

use mkey_cli::trace::gather::assemble::{Assembled, assemble};
use mkey_trace::format::{Job, Recording, VERSION};
use std::collections::BTreeMap;

/// What is read of a recording is written, and read as the same.
pub(super) fn recording(data: &[u8]) {
    if let Ok(recording) = Recording::read(data) {
        check(&recording);
    }
}

/// A recording comes of whatever bytes a process has left.
pub(super) fn assembly(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("1");
    std::fs::write(&path, data).expect("a file");
    let job = Job { version: VERSION, ..Job::default() };
    let Assembled { recording, .. } = assemble(job, 0, &[path], BTreeMap::new(), Vec::new());
    check(&recording);
}

fn check(recording: &Recording) {
    let mut bytes = Vec::new();
    recording.write(&mut bytes).expect("a vector takes all");
    let read = Recording::read(&*bytes).expect("what was written can be read");
    assert!(*recording == read, "it is another");
}
