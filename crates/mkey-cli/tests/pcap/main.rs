//! `mkey pcap`: captures of every form, what is made of the traffic in them, and each figure beside what
//! tshark says of the same file.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod command;
mod compared;
mod damage;
mod ends;
mod formats;
mod software;
mod trace;
mod traffic;
mod tshark;
