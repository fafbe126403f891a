//! Programs that know nothing of mkey, from their distribution's packages, by `mkey run`: the table of
//! `docs/compatibility.md` is what these tests see.
//!
//! They are slow and use all processors, so they are a part of their own of `cargo xtask test`, and take
//! turns.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/confined.rs"]
mod in_container;
#[path = "../common/namespaces.rs"]
mod namespaces;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod confined;
mod crates;
mod list;
mod page;
mod pair;
mod python;
mod traced;
mod two_processes;

pub use preloaded::{ended, has, library, mkey_run};
