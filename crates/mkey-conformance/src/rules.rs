//! The rule tests, a file for each section of the matrix.

use crate::fixture::Subject;
use crate::registry::RuleTest;

pub mod registration;

/// All rule tests, in the order of the matrix.
pub fn all<S: Subject>() -> Vec<RuleTest<S>> {
    [registration::tests()].into_iter().flatten().collect()
}
