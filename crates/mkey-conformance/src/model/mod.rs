//! The rules of memory protection once more, as naively as can be: lists that are searched from
//! the start, counts that are counted anew, 128-bit sums. Written from the rules, to be compared
//! with the protection engine operation by operation.
//!
//! [`run`] reads operations from bytes, performs each on the engine and on the model, and panics
//! at the first difference: allowed or not, the exact refusal with its values, the host address of
//! every byte, keys, counts. Where several things are wrong with one request and no rule says
//! which is told, the engine may tell any of them.

mod access;
mod arguments;
mod bed;
mod choices;
mod lifetime;
mod object;
mod operations;
mod pending;
mod requests;

pub use bed::{Mix, Tally, run};
pub use choices::BLOCK;
