//! Linux for mkey.

pub mod accounting;
pub mod copy;
pub mod error;
mod fork;
pub mod hugepages;
pub mod ladder;
pub mod limits;
pub mod mapping;
pub mod numa;
pub mod pin;
pub mod prefault;
pub mod proc;
