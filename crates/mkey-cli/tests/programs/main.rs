//! Unmodified programs on software RNICs, by `mkey run`: those of Debian's packages, C programs linked
//! to the distribution's libibverbs.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod abuse;
mod c;
mod check;
mod command;
mod confined;
mod direct;
mod every_byte;
mod exports;
mod fork;
mod loading;
mod objects;
mod report;
mod tools;

pub use preloaded::{ended, has, library, mkey_run, succeeds};
