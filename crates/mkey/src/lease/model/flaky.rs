//! A device that fails on command.

use mkey_core::device::{self as core, *};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify};
use mkey_soft::SoftDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// A software RNIC that fails on command, and counts its windows.
#[derive(Debug)]
pub(super) struct Flaky {
    soft: Arc<SoftDevice>,
    pub(super) fail_alloc: AtomicBool,
    pub(super) fail_free: AtomicBool,
    pub(super) windows: AtomicI64,
}

impl Flaky {
    pub(super) fn new(soft: Arc<SoftDevice>) -> Self {
        let (fail_alloc, fail_free) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { soft, fail_alloc, fail_free, windows: AtomicI64::new(0) }
    }

    fn fails(&self, flag: &AtomicBool, verb: &'static str) -> Result<()> {
        match flag.swap(false, Ordering::Relaxed) {
            true => Err(Error::new(verb, "on command", Reason::System { call: verb, errno: 5 })),
            false => Ok(()),
        }
    }
}

impl core::Device for Flaky {
    fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        self.fails(&self.fail_alloc, "alloc_mw")?;
        self.windows.fetch_add(1, Ordering::Relaxed);
        self.soft.alloc_mw(pd, kind)
    }
    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.fails(&self.fail_free, "dealloc_mw")?;
        self.windows.fetch_sub(1, Ordering::Relaxed);
        self.soft.dealloc_mw(mw)
    }
    fn name(&self) -> &str {
        self.soft.name()
    }
    fn capabilities(&self) -> &Capabilities {
        self.soft.capabilities()
    }
    fn port(&self) -> PortInfo {
        self.soft.port()
    }
    fn alloc_pd(&self) -> Result<PdHandle> {
        self.soft.alloc_pd()
    }
    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        self.soft.dealloc_pd(pd)
    }
    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        // SAFETY: as the caller promises.
        unsafe { self.soft.reg_mr(pd, spec) }
    }
    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.soft.dereg_mr(mr)
    }
    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        self.soft.create_comp_channel()
    }
    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        self.soft.destroy_comp_channel(channel)
    }
    fn get_cq_event(&self, ch: ChannelHandle, wait: Option<Duration>) -> Result<Option<CqHandle>> {
        self.soft.get_cq_event(ch, wait)
    }
    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        self.soft.create_cq(depth, channel)
    }
    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        self.soft.destroy_cq(cq)
    }
    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        self.soft.create_qp(pd, init)
    }
    fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()> {
        self.soft.modify_qp(qp, change)
    }
    fn query_qp(&self, qp: QpHandle) -> Result<QpAttr> {
        self.soft.query_qp(qp)
    }
    fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        self.soft.destroy_qp(qp)
    }
    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle> {
        self.soft.create_ah(pd, attr)
    }
    fn destroy_ah(&self, ah: AhHandle) -> Result<()> {
        self.soft.destroy_ah(ah)
    }
    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.soft.get_async_event(timeout)
    }
}
