//! The same random programs over two devices: over two software RNICs, over broken ones, whose
//! errors have to be found, and over the kernel's own device.

use mkey_conformance::differential::campaign::Comparison;
use mkey_conformance::differential::deviations::RXE;
use mkey_conformance::differential::program::{Program, Step};
use mkey_conformance::fixture::Subject;
use mkey_conformance::ibverbs::Ibverbs;
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

/// Programs over two software RNICs, and those over the kernel's device unless the variable
/// `MKEY_PROGRAMS` asks for more.
const PROGRAMS: u64 = 2000;
/// The first of them.
const FIRST: u64 = 1;

#[test]
fn two_software_rnics_with_other_keys_show_the_same() {
    let (one, other) = (Soft::with_seed(1), Soft::with_seed(2));
    let comparison = Comparison::new(&one, &other, &[]);
    let tally = comparison
        .many(FIRST, PROGRAMS, 3, |_, _| ())
        .unwrap_or_else(|found| panic!("{}", found.concat()));
    assert_eq!((tally.programs, tally.whole), (PROGRAMS, PROGRAMS));
    println!("{tally:?}");
    // Not all of it fails, and every status is met.
    let met = |status: mkey_core::status::WcStatus| {
        tally.statuses.get(&(status as u32)).copied().unwrap_or(0)
    };
    use mkey_core::status::WcStatus::*;
    assert!(met(Success) * 2 > tally.statuses.values().sum(), "{:?}", tally.statuses);
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
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_kernels_device_shows_what_the_software_rnic_shows() {
    let programs = std::env::var("MKEY_PROGRAMS").ok();
    let programs = programs.map_or(PROGRAMS, |number| number.parse().expect("MKEY_PROGRAMS"));
    let (soft, rxe) = (Soft::new(), Ibverbs::new("rxe0"));
    let comparison = Comparison::new(&soft, &rxe, RXE);
    let tally = comparison
        .many(FIRST, programs, 5, |_, _| ())
        .unwrap_or_else(|found| panic!("{}", found.concat()));
    assert_eq!(tally.programs, programs);
    assert!(tally.whole * 3 > programs, "only {} were compared whole", tally.whole);
}

#[test]
fn an_error_of_a_device_is_found_and_made_small() {
    for bug in [Bug::OneMore, Bug::MoreRights, Bug::KeepsKeys] {
        let (soft, broken) = (Soft::new(), Broken { soft: Soft::new(), bug });
        let comparison = Comparison::new(&soft, &broken, &[]);
        let found = comparison.many(FIRST, PROGRAMS, 1, |_, _| ()).expect_err("the error is found");
        let report = found.concat();
        let program = Program::parse(&report).expect("the report can be replayed");
        assert!(program.steps.len() <= 6, "{bug:?}: not made small:\n{report}");
        let posts = program.steps.iter().any(|step| matches!(step, Step::Post { .. }));
        // A region that lives on shows when its domain is to be freed, too.
        assert!(posts || bug == Bug::KeepsKeys, "{bug:?}: {report}");
        let again = comparison.compare(&program).expect("it runs");
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
