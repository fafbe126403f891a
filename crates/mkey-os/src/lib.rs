//! Linux for mkey.

pub mod copy;
