//! `mkey monitor`: hosts as folders, the screen, the served page, and the command itself.

#[path = "../common/mod.rs"]
mod common;
mod endpoint;
mod fixture;
mod judged;
mod screen;
mod terminal;
mod text;
