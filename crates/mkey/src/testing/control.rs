//! A device's control plane, with faults.

use crate::testing::faults::{Call, Faults};
use mkey_core::device::*;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify};
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use std::sync::Arc;
use std::time::Duration;

/// A device some of whose verbs fail.
#[derive(Debug)]
pub(super) struct FaultyControl {
    inner: Arc<dyn Device>,
    /// What it offers: not all that the device does.
    offers: Capabilities,
    faults: Faults,
}

impl FaultyControl {
    pub(super) fn new(inner: Arc<dyn Device>, offers: Capabilities, faults: Faults) -> Self {
        Self { inner, offers, faults }
    }

    fn allow(&self, call: Call, handle: u64) -> Result<()> {
        self.faults.allow(call, format_args!("handle {handle:#x}"))
    }
}

fn offered(verb: &'static str, has: bool, capability: Capability) -> Result<()> {
    if has { Ok(()) } else { Err(Error::new(verb, "", Reason::Unsupported { capability })) }
}

impl Device for FaultyControl {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.offers
    }

    fn port(&self) -> PortInfo {
        self.inner.port()
    }

    fn alloc_pd(&self) -> Result<PdHandle> {
        self.faults.allow(Call::AllocPd, "")?;
        self.inner.alloc_pd()
    }

    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        self.allow(Call::DeallocPd, pd.0)?;
        self.inner.dealloc_pd(pd)
    }

    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        let what = format_args!("{} bytes at {}, {}", spec.length, spec.address, spec.rights);
        self.faults.allow(Call::RegMr, what)?;
        offered(
            "reg_mr",
            self.offers.odp.explicit || !spec.rights.contains(Rights::ON_DEMAND),
            Capability::OnDemand,
        )?;
        if spec.length > self.offers.max_mr_size {
            let (value, allowed) = (spec.length, "at most the device's max_mr_size");
            let reason = Reason::Argument { what: "length", value, allowed };
            return Err(Error::new("reg_mr", what, reason));
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { self.inner.reg_mr(pd, spec) }
    }

    unsafe fn rereg_mr(
        &self,
        mr: MrHandle,
        change: &MrChange,
    ) -> std::result::Result<MrInfo, ReregError> {
        self.allow(Call::ReregMr, mr.0)
            .map_err(|error| ReregError { error, state: ReregState::Unchanged })?;
        // SAFETY: the caller's promise is handed on.
        unsafe { self.inner.rereg_mr(mr, change) }
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.allow(Call::DeregMr, mr.0)?;
        self.inner.dereg_mr(mr)
    }

    fn alloc_null_mr(&self, pd: PdHandle) -> Result<MrInfo> {
        self.allow(Call::AllocNullMr, pd.0)?;
        self.inner.alloc_null_mr(pd)
    }

    fn advise_mr(&self, pd: PdHandle, advice: Advice, flush: bool, sges: &[Sge]) -> Result<()> {
        self.allow(Call::AdviseMr, pd.0)?;
        self.inner.advise_mr(pd, advice, flush, sges)
    }

    fn odp_stats(&self, mr: MrHandle) -> Result<OdpStats> {
        self.inner.odp_stats(mr)
    }

    fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        self.allow(Call::AllocMw, pd.0)?;
        let (has, capability) = match kind {
            MwKind::Type1 => (self.offers.window1, Capability::Window1),
            MwKind::Type2 => (self.offers.window2, Capability::Window2),
        };
        offered("alloc_mw", has, capability)?;
        self.inner.alloc_mw(pd, kind)
    }

    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.allow(Call::DeallocMw, mw.0)?;
        self.inner.dealloc_mw(mw)
    }

    fn alloc_fast_mr(&self, pd: PdHandle, max_entries: u32) -> Result<MrInfo> {
        self.allow(Call::AllocFastMr, pd.0)?;
        offered("alloc_mr", self.offers.max_fast_mr_entries > 0, Capability::FastMr)?;
        self.inner.alloc_fast_mr(pd, max_entries)
    }

    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        self.faults.allow(Call::CreateCompChannel, "")?;
        self.inner.create_comp_channel()
    }

    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        self.inner.destroy_comp_channel(channel)
    }

    fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        self.inner.get_cq_event(channel, timeout)
    }

    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        self.faults.allow(Call::CreateCq, format_args!("depth {depth}"))?;
        self.inner.create_cq(depth, channel)
    }

    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        self.allow(Call::DestroyCq, cq.0)?;
        self.inner.destroy_cq(cq)
    }

    fn create_srq(&self, pd: PdHandle, max_wr: u32, max_sge: u32) -> Result<SrqHandle> {
        self.allow(Call::CreateSrq, pd.0)?;
        self.inner.create_srq(pd, max_wr, max_sge)
    }

    fn modify_srq(&self, srq: SrqHandle, limit: u32) -> Result<()> {
        self.inner.modify_srq(srq, limit)
    }

    fn destroy_srq(&self, srq: SrqHandle) -> Result<()> {
        self.allow(Call::DestroySrq, srq.0)?;
        self.inner.destroy_srq(srq)
    }

    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        self.allow(Call::CreateQp, pd.0)?;
        let info = self.inner.create_qp(pd, init)?;
        self.faults.made_qp(info.qp_num, info.handle);
        Ok(info)
    }

    fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()> {
        self.allow(Call::ModifyQp, qp.0)?;
        let modified = self.inner.modify_qp(qp, change);
        // Completions that were lost come now.
        self.faults.wake();
        modified
    }

    fn query_qp(&self, qp: QpHandle) -> Result<QpAttr> {
        self.allow(Call::QueryQp, qp.0)?;
        self.inner.query_qp(qp)
    }

    fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        self.allow(Call::DestroyQp, qp.0)?;
        self.inner.destroy_qp(qp)
    }

    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle> {
        self.allow(Call::CreateAh, pd.0)?;
        self.inner.create_ah(pd, attr)
    }

    fn destroy_ah(&self, ah: AhHandle) -> Result<()> {
        self.allow(Call::DestroyAh, ah.0)?;
        self.inner.destroy_ah(ah)
    }

    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.inner.get_async_event(timeout)
    }

    fn refusals(&self) -> Result<Vec<RefusalReport>> {
        self.inner.refusals()
    }

    fn registration_terms(&self) -> RegistrationTerms {
        self.inner.registration_terms()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.inner.notes();
        notes.push("faults are injected into this device, for a test".to_owned());
        notes
    }
}
