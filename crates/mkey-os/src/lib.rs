//! Linux for mkey.

pub mod accounting;
pub mod copy;
pub mod error;
pub mod events;
mod fork;
mod gone;
pub mod hugepages;
pub mod ladder;
pub mod limits;
pub mod mapping;
pub mod numa;
pub mod pin;
pub mod prefault;
pub mod proc;
mod spans;
