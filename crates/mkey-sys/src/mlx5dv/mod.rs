//! The part of `infiniband/mlx5dv.h` that makes fast memory registration: memory keys whose
//! scatter list is written by work requests (UMR), and what is needed to post these.

mod context;
mod inline;
mod mkey;
mod qp;

pub use context::*;
pub use inline::*;
pub use mkey::*;
pub use qp::*;

/// The tables of the files above.
pub(crate) const TABLES: &[crate::abi::Table] = &[context::TABLE, mkey::TABLE, qp::TABLE];
