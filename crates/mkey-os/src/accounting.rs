//! What a registration may pin, counted as the verbs count it.
//!
//! The kernel's RDMA core charges each registration by itself, whatever else covers the same
//! pages: base pages touched by `addr..addr+len`, against RLIMIT_MEMLOCK, per process, unless the
//! process has CAP_IPC_LOCK. io_uring (which does the pinning here) counts otherwise: per user
//! over all processes, and whole huge pages. So the decision is made here and io_uring's refusal
//! only costs the pin ([`crate::pin`]), never the registration.
//!
//! [`account`] is the rule, pure; [`Accountant`] applies it to a process.

use crate::error::{Errno, OsError};
use crate::limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The page the verbs count in, in bytes: the base page of x86-64.
pub const PAGE: u64 = 4096;

/// One registration to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Pages this process has registered already, each registration counted by itself.
    pub pinned: u64,
    /// What the process is allowed.
    pub allowance: Allowance,
}

/// What the system allows a process to pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// RLIMIT_MEMLOCK (soft) in bytes; `None` is "unlimited".
    pub memlock: Option<u64>,
    /// CAP_IPC_LOCK is effective.
    pub ipc_lock: bool,
}

impl Allowance {
    /// What the system allows the calling thread now: two system calls.
    ///
    /// # Errors
    /// [`OsError`] if the capabilities cannot be read.
    pub fn of_system() -> Result<Self, OsError> {
        Ok(Self { memlock: limits::memlock().soft, ipc_lock: limits::has_ipc_lock()? })
    }
}

/// A registration the verbs would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The range, rounded to pages, wraps around the address space.
    #[error("{addr:#x} + {len:#x} wraps around the address space")]
    Wraps {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// More pages than the kernel counts in 32 bits.
    #[error("{pages} pages are more than one registration can have")]
    TooManyPages {
        /// Pages in the range.
        pages: u64,
    },
    /// RLIMIT_MEMLOCK is 0 and there is no CAP_IPC_LOCK: nothing may be pinned at all.
    #[error("RLIMIT_MEMLOCK is 0 and CAP_IPC_LOCK is missing")]
    Forbidden,
    /// RLIMIT_MEMLOCK is reached and there is no CAP_IPC_LOCK.
    #[error("{pages} pages more than the {pinned} pinned exceed RLIMIT_MEMLOCK of {limit} bytes")]
    Limit {
        /// Pages asked for.
        pages: u64,
        /// Pages pinned before.
        pinned: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl AccountError {
    /// What `ibv_reg_mr` leaves in errno.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Wraps { .. } | Self::TooManyPages { .. } => Errno::INVAL,
            Self::Forbidden => Errno::PERM,
            Self::Limit { .. } => Errno::NOMEM,
        }
    }
}

/// The pages to charge for a registration, or why the verbs refuse it; checked in the order of
/// `ib_umem_get`. One deliberate difference: a length of 0 at a page's border is accepted and
/// costs nothing, where the kernel's core answers EINVAL.
///
/// # Errors
/// [`AccountError`].
pub fn account(case: &Case) -> Result<u64, AccountError> {
    let Case { addr, len, pinned, allowance } = *case;
    let wraps = AccountError::Wraps { addr, len };
    let end = addr.checked_add(len).ok_or(wraps)?;
    let end = end.checked_next_multiple_of(PAGE).ok_or(wraps)?;
    if allowance.memlock == Some(0) && !allowance.ipc_lock {
        return Err(AccountError::Forbidden);
    }
    let pages = (end - addr / PAGE * PAGE) / PAGE;
    if pages > u64::from(u32::MAX) {
        return Err(AccountError::TooManyPages { pages });
    }
    if let Some(limit) = allowance.memlock
        && !allowance.ipc_lock
        && pages > 0
        && pinned.saturating_add(pages) > limit / PAGE
    {
        return Err(AccountError::Limit { pages, pinned, limit });
    }
    Ok(pages)
}

/// The pages a process has registered, and what it may.
///
/// The allowance is read when the accountant is made and again before a refusal, so a raised
/// limit works at once and charging costs no system call; a lowered limit is noticed at the next
/// refusal or [`Accountant::refresh`].
#[derive(Debug)]
pub struct Accountant {
    pinned: AtomicU64,
    /// Soft limit in bytes; `u64::MAX` is "unlimited".
    memlock: AtomicU64,
    /// 1 if CAP_IPC_LOCK is effective.
    ipc_lock: AtomicU64,
    /// Whether the allowance is the system's, to be read again.
    follows_system: bool,
}

/// Pages charged to an [`Accountant`]; dropping gives them back.
#[derive(Debug)]
pub struct Charge {
    accountant: Arc<Accountant>,
    pages: u64,
}

impl Accountant {
    /// An accountant with the system's allowance. Verbs count over all devices of a process, so
    /// a process should have one.
    ///
    /// # Errors
    /// [`OsError`] if the capabilities cannot be read.
    pub fn of_system() -> Result<Arc<Self>, OsError> {
        Ok(Arc::new(Self::build(Allowance::of_system()?, true)))
    }

    /// An accountant with an allowance of its own, for a device that is given one.
    pub fn with_allowance(allowance: Allowance) -> Arc<Self> {
        Arc::new(Self::build(allowance, false))
    }

    fn build(allowance: Allowance, follows_system: bool) -> Self {
        let this = Self {
            pinned: AtomicU64::new(0),
            memlock: AtomicU64::new(0),
            ipc_lock: AtomicU64::new(0),
            follows_system,
        };
        this.set(allowance);
        this
    }

    /// Charges a registration.
    ///
    /// # Errors
    /// [`AccountError`] as the verbs would answer; nothing is charged then.
    pub fn charge(self: &Arc<Self>, addr: u64, len: u64) -> Result<Charge, AccountError> {
        let pages = self.try_charge(addr, len).or_else(|error| {
            if !self.follows_system || self.refresh().is_err() {
                return Err(error);
            }
            self.try_charge(addr, len)
        })?;
        Ok(Charge { accountant: Arc::clone(self), pages })
    }

    /// Pages charged now.
    pub fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// The allowance in force here.
    pub fn allowance(&self) -> Allowance {
        let memlock = self.memlock.load(Ordering::Relaxed);
        Allowance {
            memlock: (memlock != u64::MAX).then_some(memlock),
            ipc_lock: self.ipc_lock.load(Ordering::Relaxed) != 0,
        }
    }

    /// Reads the allowance from the system again.
    ///
    /// # Errors
    /// [`OsError`] if the capabilities cannot be read.
    pub fn refresh(&self) -> Result<(), OsError> {
        self.set(Allowance::of_system()?);
        Ok(())
    }

    fn set(&self, allowance: Allowance) {
        self.memlock.store(allowance.memlock.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.ipc_lock.store(u64::from(allowance.ipc_lock), Ordering::Relaxed);
    }

    fn try_charge(&self, addr: u64, len: u64) -> Result<u64, AccountError> {
        let allowance = self.allowance();
        let mut pinned = self.pinned();
        loop {
            let pages = account(&Case { addr, len, pinned, allowance })?;
            match self.pinned.compare_exchange_weak(
                pinned,
                pinned.saturating_add(pages),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(pages),
                Err(now) => pinned = now,
            }
        }
    }
}

impl Charge {
    /// Pages charged.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.accountant.pinned.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K64: Option<u64> = Some(64 << 10);

    fn case(addr: u64, len: u64, pinned: u64, memlock: Option<u64>, ipc_lock: bool) -> Case {
        Case { addr, len, pinned, allowance: Allowance { memlock, ipc_lock } }
    }

    #[test]
    fn the_rule_by_table() {
        use AccountError::*;
        let top = !(PAGE - 1);
        let table = [
            // Rounding to base pages, each registration by itself.
            (case(0x1000, 4096, 0, K64, false), Ok(1)),
            (case(0x1001, 4096, 0, K64, false), Ok(2)),
            (case(0x1fff, 2, 0, K64, false), Ok(2)),
            (case(0x1000, 1, 15, K64, false), Ok(1)),
            // Length 0: nothing at a border, the page it points into otherwise.
            (case(0x1000, 0, 16, K64, false), Ok(0)),
            (case(0x1001, 0, 0, K64, false), Ok(1)),
            // The limit, to the page.
            (case(0x1000, 64 << 10, 0, K64, false), Ok(16)),
            (
                case(0x1000, (64 << 10) + 1, 0, K64, false),
                Err(Limit { pages: 17, pinned: 0, limit: 64 << 10 }),
            ),
            (case(0x1000, 1, 16, K64, false), Err(Limit { pages: 1, pinned: 16, limit: 64 << 10 })),
            (case(0x1000, 4096, 0, Some(8191), false), Ok(1)),
            (
                case(0x1000, 8192, 0, Some(8191), false),
                Err(Limit { pages: 2, pinned: 0, limit: 8191 }),
            ),
            // Less than a page is not "nothing at all".
            (case(0x1000, 1, 0, Some(1), false), Err(Limit { pages: 1, pinned: 0, limit: 1 })),
            (case(0x1000, 1, 0, Some(0), false), Err(Forbidden)),
            // Privilege and "unlimited".
            (case(0x1000, 1 << 30, 0, Some(0), true), Ok(1 << 18)),
            (case(0x1000, 1 << 30, 16, K64, true), Ok(1 << 18)),
            (case(0x1000, 1 << 30, 1 << 40, None, false), Ok(1 << 18)),
            // Wrapping, before and after rounding; before the privilege is looked at.
            (case(u64::MAX, 1, 0, None, true), Err(Wraps { addr: u64::MAX, len: 1 })),
            (case(top, 1, 0, Some(0), false), Err(Wraps { addr: top, len: 1 })),
            (case(1, u64::MAX, 0, None, true), Err(Wraps { addr: 1, len: u64::MAX })),
            (case(0, u64::MAX, 0, None, true), Err(Wraps { addr: 0, len: u64::MAX })),
            (case(0, 1 << 44, 0, None, true), Err(TooManyPages { pages: 1 << 32 })),
            (case(0, (1 << 44) - 4096, 0, None, true), Ok((1 << 32) - 1)),
        ];
        for (case, expected) in table {
            assert_eq!(account(&case), expected, "{case:?}");
        }
    }

    #[test]
    fn errno_as_ibv_reg_mr() {
        assert_eq!(AccountError::Forbidden.errno(), Errno::PERM);
        let limit = AccountError::Limit { pages: 1, pinned: 1, limit: 1 };
        assert_eq!(limit.errno(), Errno::NOMEM);
        assert_eq!(AccountError::Wraps { addr: 1, len: 1 }.errno(), Errno::INVAL);
        assert_eq!(AccountError::TooManyPages { pages: 1 }.errno(), Errno::INVAL);
    }

    #[test]
    fn charges_come_back_and_overlap_counts_twice() {
        let accountant = Accountant::with_allowance(Allowance { memlock: K64, ipc_lock: false });
        let first = accountant.charge(0x1000, 40 << 10).unwrap();
        assert_eq!((first.pages(), accountant.pinned()), (10, 10));
        let error = accountant.charge(0x1000, 40 << 10).unwrap_err();
        assert_eq!(error, AccountError::Limit { pages: 10, pinned: 10, limit: 64 << 10 });
        let second = accountant.charge(0x1000, 24 << 10).unwrap();
        assert_eq!(accountant.pinned(), 16);
        drop(first);
        assert_eq!(accountant.pinned(), 6);
        drop(second);
        assert_eq!(accountant.pinned(), 0);
    }

    #[test]
    fn threads_never_exceed_the_limit() {
        let accountant = Accountant::with_allowance(Allowance { memlock: K64, ipc_lock: false });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let charge = accountant.charge(0x1000, 36 << 10);
                        assert!(accountant.pinned() <= 16);
                        drop(charge);
                    }
                });
            }
        });
        assert_eq!(accountant.pinned(), 0);
    }
}
