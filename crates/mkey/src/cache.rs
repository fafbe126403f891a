//! A cache of registrations of memory that the program owns.

mod core;
mod error;
mod failures;
mod fences;
mod gate;
mod index;
mod local;
mod registrar;
mod slab;
mod span;
mod state;
mod stats;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod uses;

pub use error::CacheError;
pub use stats::CacheStats;
