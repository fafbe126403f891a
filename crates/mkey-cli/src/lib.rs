//! The `mkey` command as a library.
