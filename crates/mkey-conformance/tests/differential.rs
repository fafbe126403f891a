//! The same random programs over two software RNICs, and over broken ones, whose errors have to be
//! found.

use mkey_conformance::differential::campaign::{Campaign, Comparison};
use mkey_conformance::differential::document;
use mkey_conformance::differential::program::{Kind, Program, Step};
use mkey_conformance::differential::record;
use mkey_conformance::fixture::Subject;
use mkey_conformance::soft::Soft;
use mkey_core::data_plane::DataPlane;
use mkey_core::device::*;
use mkey_core::error::Result;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify};
use mkey_core::rights::Rights;
use mkey_soft::SoftDevice;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn two_software_rnics_with_other_keys_show_the_same() {
    let campaign = Campaign::USUAL;
    let tally = campaign
        .run(&[], || (Soft::with_seed(1), Soft::with_seed(2)), |_| ())
        .unwrap_or_else(|found| panic!("{}", found.concat()));
    assert_eq!((tally.programs, tally.whole), (campaign.programs, campaign.programs));
    // Not all of it fails, and every status is met. Receives that no message came for are flushed
    // at the end of each program.
    use mkey_core::status::WcStatus::*;
    let sent = |of: &dyn Fn(u32) -> bool| {
        let sends = tally.completions.iter().filter(|((kind, _), _)| *kind != Kind::Receive);
        sends.filter(|((_, status), _)| of(*status)).map(|(_, count)| count).sum::<u64>()
    };
    let succeeded = sent(&|status| status == Success as u32);
    assert!(succeeded * 2 > sent(&|_| true), "{:?}", tally.completions);
    let met = |status| tally.ended(status);
    for status in [
        LocLenErr,
        LocQpOpErr,
        LocProtErr,
        WrFlushErr,
        MwBindErr,
        RemInvReqErr,
        RemAccessErr,
        RemOpErr,
        RetryExcErr,
        RnrRetryExcErr,
    ] {
        assert!(met(status) >= 2, "{status}: {}", met(status));
    }
    let recorded = record::recorded().expect("what is recorded");
    let page = document::page(&campaign, &tally, &recorded);
    let same = page == include_str!("../../../docs/differential.md");
    assert!(same, "docs/differential.md is old: differential --page --write (CONTRIBUTING.md)");
}

#[test]
fn an_error_of_a_device_is_found_and_made_small() {
    for bug in [Bug::OneMore, Bug::MoreRights, Bug::KeepsKeys] {
        let pair = || (Soft::new(), Broken { soft: Soft::new(), bug });
        let campaign = Campaign { most: 1, ..Campaign::USUAL };
        let found = campaign.run(&[], pair, |_| ()).expect_err("the error is found");
        let report = found.concat();
        let program = Program::parse(&report).expect("the report can be replayed");
        assert!(program.steps.len() <= 6, "{bug:?}: not made small:\n{report}");
        let posts = program.steps.iter().any(|step| matches!(step, Step::Post { .. }));
        // A region that lives on shows when its domain is to be freed, too.
        assert!(posts || bug == Bug::KeepsKeys, "{bug:?}: {report}");
        let (soft, broken) = pair();
        let comparison = Comparison::new(&soft, &broken, &[]);
        let again = comparison.compare(&program, 1).expect("it runs");
        assert!(again.unknown.is_some(), "{bug:?}: the replay shows nothing:\n{report}");
    }
}

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// Regions are longer by one byte than was asked.
    OneMore,
    /// Regions may be written by peers if the owner may.
    MoreRights,
    /// Regions live on after they are deregistered.
    KeepsKeys,
}

#[derive(Debug)]
struct Broken {
    soft: Soft,
    bug: Bug,
}

#[derive(Debug)]
struct BrokenDevice(Arc<SoftDevice>, Bug);

impl Subject for Broken {
    type Device = BrokenDevice;

    fn open(&self) -> (Arc<BrokenDevice>, Arc<BrokenDevice>) {
        let device = Arc::new(BrokenDevice(self.soft.open().0, self.bug));
        (Arc::clone(&device), device)
    }

    fn open_limited(&self, memlock: u64) -> Arc<BrokenDevice> {
        Arc::new(BrokenDevice(self.soft.open_limited(memlock), self.bug))
    }

    fn pass(&self, device: &BrokenDevice, time: Duration) {
        self.soft.pass(&device.0, time);
    }
}

impl DataPlane for BrokenDevice {
    type Qp = <SoftDevice as DataPlane>::Qp;
    type Cq = <SoftDevice as DataPlane>::Cq;
    type Srq = <SoftDevice as DataPlane>::Srq;

    fn qp(&self, qp: QpHandle) -> Result<Self::Qp> {
        self.0.qp(qp)
    }
    fn cq(&self, cq: CqHandle) -> Result<Self::Cq> {
        self.0.cq(cq)
    }
    fn srq(&self, srq: SrqHandle) -> Result<Self::Srq> {
        self.0.srq(srq)
    }
}

macro_rules! delegate {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $answer:ty;)*) => {$(
        fn $name(&self $(, $arg: $type)*) -> $answer {
            self.0.$name($($arg),*)
        }
    )*};
}

impl Device for BrokenDevice {
    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        let mut spec = *spec;
        match self.1 {
            Bug::OneMore => spec.length = spec.length.saturating_add(1),
            Bug::MoreRights if spec.rights.contains(Rights::LOCAL_WRITE) => {
                spec.rights |= Rights::REMOTE_WRITE;
            }
            _ => {}
        }
        // SAFETY: the caller's; a byte more is within the memory of the programs, too.
        unsafe { self.0.reg_mr(pd, &spec) }
    }

    unsafe fn rereg_mr(
        &self,
        mr: MrHandle,
        change: &MrChange,
    ) -> std::result::Result<MrInfo, ReregError> {
        // SAFETY: the caller's.
        unsafe { self.0.rereg_mr(mr, change) }
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        if self.1 == Bug::KeepsKeys {
            return Ok(());
        }
        self.0.dereg_mr(mr)
    }

    delegate! {
        fn name(&self) -> &str;
        fn capabilities(&self) -> &Capabilities;
        fn port(&self) -> PortInfo;
        fn alloc_pd(&self) -> Result<PdHandle>;
        fn dealloc_pd(&self, pd: PdHandle) -> Result<()>;
        fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo>;
        fn dealloc_mw(&self, mw: MwHandle) -> Result<()>;
        fn create_comp_channel(&self) -> Result<ChannelHandle>;
        fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()>;
        fn get_cq_event(&self, channel: ChannelHandle, timeout: Option<Duration>) -> Result<Option<CqHandle>>;
        fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle>;
        fn destroy_cq(&self, cq: CqHandle) -> Result<()>;
        fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo>;
        fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()>;
        fn query_qp(&self, qp: QpHandle) -> Result<QpAttr>;
        fn destroy_qp(&self, qp: QpHandle) -> Result<()>;
        fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle>;
        fn destroy_ah(&self, ah: AhHandle) -> Result<()>;
        fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>>;
    }
}
