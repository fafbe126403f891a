//! What the fuzz targets run: operations read from arbitrary bytes, the protection engine's
//! answers compared with the [`model`](crate::model)'s.

use crate::model::{Mix, run};

/// A target: any bytes will do; panics where the engine and the rules part.
pub type Target = fn(&[u8]);

/// The targets and their names, which are those of their programs and corpora.
pub const TARGETS: &[(&str, Target)] =
    &[("access_check", fuzz_access_check), ("work_request", fuzz_work_request)];

/// Accesses, most of them: any key, domain, queue pair, address and length.
pub fn fuzz_access_check(data: &[u8]) {
    run(data, Mix::Accesses);
}

/// Memory-management work requests: bind, invalidate, fast registration.
pub fn fuzz_work_request(data: &[u8]) {
    run(data, Mix::WorkRequests);
}
