//! The types of `infiniband/verbs.h`, as rdma-core 44 has them.
//!
//! Structures that have grown since then, or may yet, keep their old part: a library that knows
//! more is told the size it deals with, or (`verbs_context`) tells its own. Every structure is
//! [`bytemuck::Zeroable`], which is how C programs begin with them.

mod ah;
mod context;
mod counters;
mod cq;
mod cq_ex;
mod device;
mod device_ex;
mod dm;
mod domain;
mod event;
mod gid;
mod mr;
mod mw;
mod port;
mod pthread;
mod qp;
mod qp_attr;
mod qp_ex;
mod srq;
mod wc;
mod wr;

pub use ah::*;
pub use context::*;
pub use counters::*;
pub use cq::*;
pub use cq_ex::*;
pub use device::*;
pub use device_ex::*;
pub use dm::*;
pub use domain::*;
pub use event::*;
pub use gid::*;
pub use mr::*;
pub use mw::*;
pub use port::*;
pub use pthread::{pthread_cond_t, pthread_mutex_t, timespec};
pub use qp::*;
pub use qp_attr::*;
pub use qp_ex::*;
pub use srq::*;
pub use wc::*;
pub use wr::*;

/// Two bytes in network order.
pub type be16 = u16;
/// Four bytes in network order.
pub type be32 = u32;
/// Eight bytes in network order.
pub type be64 = u64;

/// The tables of the files above.
pub(crate) const TABLES: &[crate::abi::Table] = &[
    ah::TABLE,
    context::TABLE,
    counters::TABLE,
    cq::TABLE,
    cq_ex::TABLE,
    device::TABLE,
    device_ex::TABLE,
    dm::TABLE,
    domain::TABLE,
    event::TABLE,
    gid::TABLE,
    mr::TABLE,
    mw::TABLE,
    port::TABLE,
    qp::TABLE,
    qp_attr::TABLE,
    qp_ex::TABLE,
    srq::TABLE,
    wc::TABLE,
    wr::TABLE,
];
