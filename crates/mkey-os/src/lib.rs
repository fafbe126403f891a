//! Linux for mkey.
