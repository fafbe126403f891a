//! The rows, in the order of the table.

pub mod cache;
pub mod check;
pub mod confined;
pub mod copies;
pub mod idle;
pub mod links;
pub mod pins;
pub mod pool;
pub mod posted;
pub mod scale;

use crate::report::Line;
use anyhow::Result;

/// How to measure.
pub struct Setup {
    /// Rounds per figure.
    pub rounds: usize,
    /// The processors; the process is pinned to the first.
    pub cpus: Vec<usize>,
}

/// A row of the table.
pub struct Row {
    /// What `--only` calls it.
    pub number: u8,
    /// What is measured.
    pub work: &'static str,
    /// Measures it.
    pub measure: fn(&Setup) -> Result<Vec<Line>>,
}

/// All of them.
pub const ALL: &[Row] = &[
    Row { number: 1, work: "access check + guard + translation", measure: check::hot },
    Row { number: 2, work: "access check by two threads on one key", measure: check::two_threads },
    Row { number: 3, work: "access check over many keys", measure: scale::measure },
    Row { number: 4, work: "MW bind + invalidate", measure: posted::windows },
    Row { number: 5, work: "FRMR: REG_MR and LOCAL_INV", measure: posted::fast_mr },
    Row { number: 6, work: "reg_mr of 1 GiB beyond the kernel's pin", measure: pins::large },
    Row { number: 7, work: "reg_mr + dereg_mr of 4 KiB", measure: pins::small },
    Row { number: 8, work: "RDMA WRITE of 8 B, same process", measure: copies::latency },
    Row { number: 9, work: "RDMA WRITE against a bare copy", measure: copies::bandwidth },
    Row { number: 10, work: "idle", measure: idle::measure },
    Row { number: 11, work: "pool", measure: pool::measure },
    Row { number: 12, work: "registration cache", measure: cache::measure },
    Row { number: 13, work: "latency between processes", measure: links::latency },
    Row { number: 14, work: "RDMA WRITE between processes", measure: links::bandwidth },
    Row { number: 15, work: "RDMA WRITE by UDP", measure: links::udp },
    Row { number: 16, work: "idle, connected with another process", measure: links::nothing },
];
