//! Unmodified programs on software RNICs, by `mkey run`: those of Debian's packages, C programs linked
//! to the distribution's libibverbs.

#[path = "../common/c.rs"]
mod c;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/confined.rs"]
mod in_container;
#[path = "../common/outlives.rs"]
mod outlives;
#[path = "../common/preloaded.rs"]
mod preloaded;
#[path = "../common/recorded.rs"]
mod recorded;

mod abuse;
mod check;
mod command;
mod confined;
mod direct;
mod every_byte;
mod exports;
mod fork;
mod kills;
mod loading;
mod objects;
mod report;
mod tools;
mod traced;

pub use preloaded::{ended, has, library, mkey_run, succeeds};
