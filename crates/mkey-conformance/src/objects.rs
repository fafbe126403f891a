//! Re-registration, memory windows and fast registrations in tests.

use crate::expect::Expect;
use crate::fixture::{Side, Subject};
use crate::region::Mr;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, MrChange, MrInfo, MwInfo, MwKind, PdHandle, ReregError};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, Completion, RegMr, RemoteAddr, SendOp, Sge};

/// A memory window; remembers the key it has now.
#[derive(Clone, Copy, Debug)]
pub struct Mw {
    /// As allocated.
    pub info: MwInfo,
    /// Its type.
    pub kind: MwKind,
    /// Its key as of the last bind that succeeded.
    pub key: Key,
}

impl Mw {
    /// The work request that binds it to `length` bytes of `mr` from `offset`: as the verb does
    /// for type 1, with the next variant for type 2.
    pub fn bind_to<'a>(&self, mr: &Mr, offset: i64, length: u64, rights: Rights) -> SendOp<'a> {
        self.bind_as(self.key.next(), mr, offset, length, rights)
    }

    /// The same asking for a certain new key.
    pub fn bind_as<'a>(
        &self,
        new_key: Key,
        mr: &Mr,
        offset: i64,
        length: u64,
        rights: Rights,
    ) -> SendOp<'a> {
        let bind = BindMw {
            mw: Rkey(self.key),
            new_key: Rkey(new_key),
            mr: mr.info.lkey,
            address: mr.at(offset),
            length,
            rights,
        };
        match self.kind {
            MwKind::Type1 => SendOp::BindMw1(bind),
            MwKind::Type2 => SendOp::BindMw(bind),
        }
    }

    /// Remote memory by the window's key, addressed as `mr` counts.
    pub fn remote(&self, mr: &Mr, offset: i64) -> RemoteAddr {
        mr.remote_by(self.key, offset)
    }

    /// Remote memory by the window's key, counted from the window's start (zero-based).
    pub fn offset(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { address: IoAddr(offset), rkey: Rkey(self.key) }
    }
}

/// A region for fast registration; remembers the key it has now.
#[derive(Clone, Copy, Debug)]
pub struct FastMr {
    /// As allocated.
    pub info: MrInfo,
    /// The key for the next registration or, once registered, the key in force.
    pub key: Key,
}

impl FastMr {
    /// The work request that registers `entries` at `iova` under `key`.
    pub fn reg_as<'a>(
        &self,
        key: Key,
        iova: u64,
        rights: Rights,
        entries: &'a [Sge],
    ) -> SendOp<'a> {
        SendOp::RegMr(RegMr { key, iova: IoAddr(iova), rights, entries })
    }

    /// Remote memory by its key.
    pub fn remote(&self, address: u64) -> RemoteAddr {
        RemoteAddr { address: IoAddr(address), rkey: Rkey(self.key) }
    }

    /// A local entry by its key.
    pub fn sge(&self, address: u64, length: u32) -> Sge {
        Sge { address: IoAddr(address), length, lkey: Lkey(self.key) }
    }
}

impl<S: Subject> Side<'_, S> {
    /// Re-registers; on success `mr` knows its new keys, memory and domain.
    pub fn rereg(&self, mr: &mut Mr, change: &MrChange) -> Result<(), ReregError> {
        // SAFETY: as for `Side::try_reg`: tests name memory of `keep`, or nothing that is mapped.
        mr.info = unsafe { self.device().rereg_mr(mr.info.handle, change) }?;
        if let Some((address, length)) = change.translation {
            mr.offset = address.0.wrapping_sub(mr.memory.address()) as usize;
            mr.length = length as usize;
            mr.base = address.0;
        }
        mr.pd = change.pd.unwrap_or(mr.pd);
        Ok(())
    }

    /// Allocates a window in the queue pair's domain.
    #[track_caller]
    pub fn mw(&self, kind: MwKind) -> Mw {
        self.mw_in(self.pd, kind)
    }

    /// Allocates a window in any domain.
    #[track_caller]
    pub fn mw_in(&self, pd: PdHandle, kind: MwKind) -> Mw {
        let info = self.device().alloc_mw(pd, kind).expect("alloc_mw");
        Mw { info, kind, key: info.rkey.0 }
    }

    /// Binds `mw` on this side's queue pair and takes the completion; a bind that succeeded has
    /// made the next key of the same index.
    #[track_caller]
    pub fn bind(
        &self,
        mw: &mut Mw,
        mr: &Mr,
        offset: i64,
        length: u64,
        rights: Rights,
    ) -> Completion {
        let bound = self.run(mw.bind_to(mr, offset, length, rights), &[]).ok();
        mw.key = mw.key.next();
        bound
    }

    /// A window bound to `length` bytes of `mr` from `offset`.
    #[track_caller]
    pub fn bound(&self, kind: MwKind, mr: &Mr, offset: i64, length: u64, rights: Rights) -> Mw {
        let mut mw = self.mw(kind);
        self.bind(&mut mw, mr, offset, length, rights);
        mw
    }

    /// Allocates a region for fast registration in the queue pair's domain.
    #[track_caller]
    pub fn fast_mr(&self, max_entries: u32) -> FastMr {
        let info = self.device().alloc_fast_mr(self.pd, max_entries).expect("alloc_mr");
        FastMr { info, key: info.rkey.0.next() }
    }

    /// Registers `entries` fast, under the region's next key, and takes the completion.
    #[track_caller]
    pub fn reg_fast(
        &self,
        fast: &mut FastMr,
        iova: u64,
        rights: Rights,
        entries: &[Sge],
    ) -> Completion {
        self.run(fast.reg_as(fast.key, iova, rights, entries), &[]).ok()
    }

    /// Invalidates a key on this side's queue pair and takes the completion.
    #[track_caller]
    pub fn invalidate(&self, key: Key) -> Completion {
        self.run(SendOp::LocalInv(key), &[])
    }
}
