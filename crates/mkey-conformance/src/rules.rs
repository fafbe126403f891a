//! The rule tests, a file for each section of the matrix.

use crate::fixture::Subject;
use crate::registry::RuleTest;

pub mod atomics;
pub mod local;
pub mod registration;
pub mod remote_access;
pub mod rereg;

/// All rule tests, in the order of the matrix.
pub fn all<S: Subject>() -> Vec<RuleTest<S>> {
    [
        registration::tests(),
        rereg::tests(),
        remote_access::tests(),
        local::tests(),
        atomics::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
