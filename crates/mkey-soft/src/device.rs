//! The device: the control plane.

use crate::options::SoftOptions;
use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair, SharedReceive};
use mkey_core::device::*;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify};
use mkey_core::work::{Completion, RecvWr, SendWr};
use std::sync::Arc;
use std::time::Duration;

/// A software RNIC.
#[derive(Debug)]
pub struct SoftDevice {
    options: SoftOptions,
    capabilities: Capabilities,
}

/// The data plane of a queue pair.
#[derive(Clone, Debug)]
pub struct SoftQp(u32);
/// The data plane of a completion queue.
#[derive(Clone, Debug)]
pub struct SoftCq(());
/// The data plane of a shared receive queue.
#[derive(Clone, Debug)]
pub struct SoftSrq(());

fn not_yet<T>(verb: &'static str) -> Result<T> {
    Err(Error::new(verb, "", Reason::Unsupported { capability: Capability::Transport }))
}

impl SoftDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// `System` where the operating system refuses what the device can not do without.
    pub fn open(options: SoftOptions) -> Result<Arc<SoftDevice>> {
        let capabilities = Capabilities {
            driver: "mkey software RNIC".to_owned(),
            software: true,
            max_mr: options.max_keys,
            max_mr_size: u64::MAX,
            max_mw: options.max_keys,
            max_qp: 1 << 16,
            max_cq: 1 << 16,
            max_cqe: 1 << 20,
            max_srq: 1 << 16,
            max_pd: 1 << 16,
            max_ah: 1 << 20,
            max_qp_wr: 1 << 15,
            max_sge: 32,
            max_inline: 1024,
            max_rd_atomic: 128,
            max_fast_mr_entries: 1 << 16,
            window1: true,
            window2: true,
            atomics: true,
            zero_based: true,
            null_mr: true,
            rereg: true,
            srq: true,
            odp: OdpCaps::default(),
            page_sizes: !0xfff,
        };
        Ok(Arc::new(SoftDevice { options, capabilities }))
    }

    /// Moves a virtual clock to `now` and fires the timers that are due; on a real clock fires
    /// those that are due by `now`.
    pub fn advance(&self, now: Duration) {
        self.options.clock.advance_to(now);
    }
}

impl QueuePair for SoftQp {
    fn post_send(&self, _chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        not_yet("post_send").map_err(|error| PostError { posted: 0, error })
    }
    fn post_recv(&self, _chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        not_yet("post_recv").map_err(|error| PostError { posted: 0, error })
    }
    fn qp_num(&self) -> u32 {
        self.0
    }
}
impl SharedReceive for SoftSrq {
    fn post_recv(&self, _chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        not_yet("post_srq_recv").map_err(|error| PostError { posted: 0, error })
    }
}
impl CompletionQueue for SoftCq {
    fn poll(&self, _into: &mut [Completion]) -> Result<usize> {
        not_yet("poll_cq")
    }
    fn request_notify(&self, _solicited_only: bool) -> Result<()> {
        not_yet("req_notify_cq")
    }
}
impl DataPlane for SoftDevice {
    type Qp = SoftQp;
    type Cq = SoftCq;
    type Srq = SoftSrq;
    fn qp(&self, _qp: QpHandle) -> Result<SoftQp> {
        not_yet("qp")
    }
    fn cq(&self, _cq: CqHandle) -> Result<SoftCq> {
        not_yet("cq")
    }
    fn srq(&self, _srq: SrqHandle) -> Result<SoftSrq> {
        not_yet("srq")
    }
}

#[allow(unsafe_code)]
impl Device for SoftDevice {
    fn name(&self) -> &str {
        &self.options.name
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn port(&self) -> PortInfo {
        PortInfo { active: true, active_mtu: 4096, gid: self.options.gid }
    }
    fn alloc_pd(&self) -> Result<PdHandle> {
        not_yet("alloc_pd")
    }
    fn dealloc_pd(&self, _pd: PdHandle) -> Result<()> {
        not_yet("dealloc_pd")
    }
    unsafe fn reg_mr(&self, _pd: PdHandle, _spec: &MrSpec) -> Result<MrInfo> {
        not_yet("reg_mr")
    }
    fn dereg_mr(&self, _mr: MrHandle) -> Result<()> {
        not_yet("dereg_mr")
    }
    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        not_yet("create_comp_channel")
    }
    fn destroy_comp_channel(&self, _channel: ChannelHandle) -> Result<()> {
        not_yet("destroy_comp_channel")
    }
    fn get_cq_event(
        &self,
        _channel: ChannelHandle,
        _timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        not_yet("get_cq_event")
    }
    fn create_cq(&self, _depth: u32, _channel: Option<ChannelHandle>) -> Result<CqHandle> {
        not_yet("create_cq")
    }
    fn destroy_cq(&self, _cq: CqHandle) -> Result<()> {
        not_yet("destroy_cq")
    }
    fn create_qp(&self, _pd: PdHandle, _init: &QpInit) -> Result<QpInfo> {
        not_yet("create_qp")
    }
    fn modify_qp(&self, _qp: QpHandle, _change: &QpModify) -> Result<()> {
        not_yet("modify_qp")
    }
    fn query_qp(&self, _qp: QpHandle) -> Result<QpAttr> {
        not_yet("query_qp")
    }
    fn destroy_qp(&self, _qp: QpHandle) -> Result<()> {
        not_yet("destroy_qp")
    }
    fn create_ah(&self, _pd: PdHandle, _attr: &AhAttr) -> Result<AhHandle> {
        not_yet("create_ah")
    }
    fn destroy_ah(&self, _ah: AhHandle) -> Result<()> {
        not_yet("destroy_ah")
    }
    fn get_async_event(&self, _timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        not_yet("get_async_event")
    }
}
