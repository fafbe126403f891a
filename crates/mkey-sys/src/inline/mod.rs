//! What `infiniband/verbs.h` does in inline functions, which no library exports: calls through the
//! pointers that a provider has put into its objects.
//!
//! Where C would call a null pointer, a verb that answers an errno answers `EOPNOTSUPP`, one that
//! answers a pointer answers null with that errno set, and one that answers neither
//! [`NotOffered`](crate::error::NotOffered).
//!
//! A function that needs the library itself takes it first.

mod counters;
mod cq;
mod cq_ex;
mod device;
mod dispatch;
mod domain;
mod mr;
mod mw;
mod qp;
mod srq;
mod wr;

pub use counters::*;
pub use cq::*;
pub use cq_ex::*;
pub use device::*;
pub(crate) use dispatch::offered;
pub use dispatch::verbs_get_ctx;
pub use domain::*;
pub use mr::*;
pub use mw::*;
pub use qp::*;
pub use srq::*;
pub use wr::*;
