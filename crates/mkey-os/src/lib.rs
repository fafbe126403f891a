//! Linux for mkey.

pub mod copy;
pub mod error;
pub mod hugepages;
pub mod ladder;
pub mod limits;
pub mod mapping;
pub mod numa;
pub mod prefault;
pub mod proc;
