//! libibverbs and libmlx5 for mkey: their types, their inline operations, and loading them.
//!
//! The libraries are loaded when they are first asked for, never at start: a program with this
//! crate runs where they are not installed, and can say exactly why a real device is not usable.
//!
//! # Chapters
//!
//! **[`Verbs`] and [`Mlx5`], the libraries.** [`Verbs::load`] opens libibverbs, of the system or as
//! the environment variable `MKEY_LIBIBVERBS` says (`MKEY_LIBMLX5` for libmlx5). Exported functions
//! are methods. Those that older libraries lack answer [`Missing`], which says from which
//! rdma-core on they are there.
//!
//! **[`devices`], what there is to open.** [`Verbs::devices`] and [`Verbs::open_device`].
//!
//! **[`error`], why not.** [`LoadError`] tells no library from one of another architecture, a
//! kernel without RDMA from one without a device, a device without provider from one without
//! permission, each with what mends it.
//!
//! **[`types`], the structures of `infiniband/verbs.h`**, and **[`inline`], its inline functions**,
//! which are most of the data path. **[`mlx5dv`], the same of `infiniband/mlx5dv.h`**: memory keys
//! and UMR work requests.
//!
//! **[`abi`], all of it as data.** A test compares every size, offset, type and value with the
//! distribution's headers.
//!
//! Names are the verbs' own, and so are the rules: this crate adds nothing but what C leaves to
//! chance, such as a call through a null pointer.
//!
//! # Platforms
//! Linux, on any architecture that rdma-core is built for.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]
#![allow(non_camel_case_types, non_snake_case, reason = "the names are the verbs' own")]

pub mod abi;
pub mod devices;
mod elf;
pub mod error;
pub mod inline;
mod library;
mod mlx5;
pub mod mlx5dv;
pub mod types;
mod verbs;

pub use error::{LoadError, Missing, NotOffered};
pub use mlx5::Mlx5;
pub use verbs::Verbs;
