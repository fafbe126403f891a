//! Asynchronous events (`enum ibv_event_type`).

use crate::device::{CqHandle, QpHandle, SrqHandle};

/// Something that no completion tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran.
    CqErr(CqHandle),
    /// A queue pair failed outside a work request.
    QpFatal(QpHandle),
    /// A peer sent a request that the queue pair could not understand (R-ERR-04).
    QpReqErr(QpHandle),
    /// A peer violated access rights by this queue pair (R-ERR-02).
    QpAccessErr(QpHandle),
    /// The first message came before the queue pair was RTS.
    CommEst(QpHandle),
    /// The send queue drained after SQD (R-ERR-09).
    SqDrained(QpHandle),
    /// The last receive of a queue pair in error, taken from a shared queue, is done (R-ORD-12).
    QpLastWqeReached(QpHandle),
    /// A shared receive queue failed.
    SrqErr(SrqHandle),
    /// A shared receive queue fell below its limit.
    SrqLimitReached(SrqHandle),
    /// The port came up.
    PortActive(u8),
    /// The port went down.
    PortErr(u8),
    /// The device failed or was removed.
    DeviceFatal,
}
