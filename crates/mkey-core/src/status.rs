//! How a work request ended (numbers of `enum ibv_wc_status` and `enum ibv_wc_opcode`, R-ERR-01,
//! R-ERR-07).

use core::fmt;

macro_rules! verbs_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// Every value, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The value with this number.
            pub const fn from_u32(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }
    };
}

verbs_enum! {
    /// Status of a completion.
    WcStatus {
        /// The work request did what it asked.
        Success = 0, "success";
        /// A local length did not fit: a receive too short, an atomic's landing not 8 bytes.
        LocLenErr = 1, "local length error";
        /// The queue pair could not perform the operation.
        LocQpOpErr = 2, "local QP operation error";
        /// An end-to-end context error; not produced by mkey.
        LocEecOpErr = 3, "local EE context operation error";
        /// A scatter/gather entry named memory that its lkey does not allow.
        LocProtErr = 4, "local protection error";
        /// The queue pair went into the error state before this work request was done.
        WrFlushErr = 5, "work request flushed";
        /// Binding or invalidating was refused.
        MwBindErr = 6, "memory window bind error";
        /// The peer answered with something unexpected.
        BadRespErr = 7, "bad response error";
        /// A receive consumed by WRITE_WITH_IMM met a protection error on its buffer.
        LocAccessErr = 8, "local access error";
        /// The peer could not accept the request's form.
        RemInvReqErr = 9, "remote invalid request error";
        /// The peer's memory may not be accessed so.
        RemAccessErr = 10, "remote access error";
        /// The peer could not finish the operation.
        RemOpErr = 11, "remote operation error";
        /// The peer did not answer.
        RetryExcErr = 12, "transport retry counter exceeded";
        /// The peer had no receive posted for too long.
        RnrRetryExcErr = 13, "receiver-not-ready retry counter exceeded";
        /// Local RDD violation; not produced by mkey.
        LocRddViolErr = 14, "local RDD violation error";
        /// The peer refused an RD request; not produced by mkey.
        RemInvRdReqErr = 15, "remote invalid RD request";
        /// The operation was aborted.
        RemAbortErr = 16, "aborted error";
        /// Bad end-to-end context number; not produced by mkey.
        InvEecnErr = 17, "invalid EE context number";
        /// Bad end-to-end context state; not produced by mkey.
        InvEecStateErr = 18, "invalid EE context state";
        /// The device failed.
        FatalErr = 19, "fatal error";
        /// The answer did not come in time.
        RespTimeoutErr = 20, "response timeout error";
        /// Any other error.
        GeneralErr = 21, "general error";
    }
}

verbs_enum! {
    /// What kind of work a completion is about.
    WcOpcode {
        /// SEND, with or without immediate data or invalidation.
        Send = 0, "send";
        /// RDMA WRITE, with or without immediate data.
        RdmaWrite = 1, "RDMA write";
        /// RDMA READ.
        RdmaRead = 2, "RDMA read";
        /// Compare and swap.
        CompSwap = 3, "compare and swap";
        /// Fetch and add.
        FetchAdd = 4, "fetch and add";
        /// Memory window bind.
        BindMw = 5, "bind memory window";
        /// Local invalidate.
        LocalInv = 6, "local invalidate";
        /// Atomic write of 8 bytes.
        AtomicWrite = 9, "atomic write";
        /// Fast registration; a number of mkey's own, libibverbs has none.
        RegMr = 64, "fast register";
        /// A receive.
        Recv = 128, "receive";
        /// A receive consumed by RDMA WRITE with immediate data.
        RecvRdmaWithImm = 129, "receive of RDMA write with immediate";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_err_01_status_numbers() {
        let numbers = [
            (WcStatus::Success, 0),
            (WcStatus::LocLenErr, 1),
            (WcStatus::LocQpOpErr, 2),
            (WcStatus::LocProtErr, 4),
            (WcStatus::WrFlushErr, 5),
            (WcStatus::MwBindErr, 6),
            (WcStatus::BadRespErr, 7),
            (WcStatus::LocAccessErr, 8),
            (WcStatus::RemInvReqErr, 9),
            (WcStatus::RemAccessErr, 10),
            (WcStatus::RemOpErr, 11),
            (WcStatus::RetryExcErr, 12),
            (WcStatus::RnrRetryExcErr, 13),
        ];
        for (status, number) in numbers {
            assert_eq!(status as u32, number);
            assert_eq!(WcStatus::from_u32(number), Some(status));
        }
        assert_eq!(WcStatus::from_u32(22), None);
    }

    #[test]
    fn r_err_07_opcode_numbers() {
        assert_eq!(WcOpcode::BindMw as u32, 5);
        assert_eq!(WcOpcode::LocalInv as u32, 6);
        assert_eq!(WcOpcode::Recv as u32, 128);
    }
}
