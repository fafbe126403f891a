//! The rule tests, a file for each section of the matrix.

use crate::fixture::Subject;
use crate::registry::RuleTest;

pub mod atomics;
pub mod dma_buf;
pub mod errors;
pub mod fast_mr;
pub mod invalidate;
pub mod keys;
pub mod local;
pub mod on_demand;
pub mod ordering;
pub mod registration;
pub mod remote_access;
pub mod rereg;
pub mod window;
pub mod window_bind;
pub mod window_use;

/// All rule tests, in the order of the matrix.
pub fn all<S: Subject>() -> Vec<RuleTest<S>> {
    [
        keys::tests(),
        registration::tests(),
        dma_buf::tests(),
        rereg::tests(),
        remote_access::tests(),
        local::tests(),
        atomics::tests(),
        window::tests(),
        window_bind::tests(),
        window_use::tests(),
        invalidate::tests(),
        fast_mr::tests(),
        on_demand::tests(),
        ordering::tests(),
        errors::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
