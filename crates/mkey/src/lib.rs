//! RDMA memory registration, safe by type and cheap by design.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod keep;
mod pool;
