//! A device's data plane, with faults.

use crate::plane::{CqPlane, Plane, QpPlane};
use crate::sync::lock;
use crate::testing::faults::{Call, Faults, Late, WorkFault};
use event_listener::Event;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::PostError;
use mkey_core::device::{Device, QpHandle};
use mkey_core::error::Result;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::{QpModify, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{
    BindMw, Completion, Payload, RecvWr, RegMr, RemoteAddr, SendOp, SendWr, Sge,
};
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A key that names nothing: index 0 is never handed out.
const NOTHING: Key = Key(0);
/// A local entry that no device takes.
const NOWHERE: [Sge; 1] = [Sge { address: IoAddr(0), length: 1, lkey: Lkey(NOTHING) }];
/// Completions taken from the device at a time.
const BATCH: usize = 32;

/// A queue pair some of whose work goes wrong.
#[derive(Debug)]
pub(crate) struct FaultyQp {
    inner: QpPlane,
    handle: QpHandle,
    control: Arc<dyn Device>,
    faults: Faults,
}

impl FaultyQp {
    pub(crate) fn new(
        inner: QpPlane,
        handle: QpHandle,
        control: &Arc<dyn Device>,
        faults: &Faults,
    ) -> Self {
        Self { inner, handle, control: control.clone(), faults: faults.clone() }
    }

    pub(crate) fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        let mut posted = 0;
        let mut rest = Vec::with_capacity(chain.len());
        for wr in chain {
            let call = format_args!("wr_id {:#x}", wr.wr_id);
            if let Err(error) = self.faults.allow(Call::PostSend, call) {
                self.post(&mut rest, &mut posted)?;
                return Err(PostError { posted, error });
            }
            match self.faults.of_work(wr.op.opcode()) {
                Some(WorkFault::Fail) => rest.push(bound_to_fail(wr)),
                Some(WorkFault::Break) => {
                    self.post(&mut rest, &mut posted)?;
                    let change = QpModify { state: Some(QpState::Err), ..QpModify::default() };
                    // It may be past that already.
                    let _ = self.control.modify_qp(self.handle, &change);
                    rest.push(*wr);
                }
                None => rest.push(*wr),
            }
        }
        self.post(&mut rest, &mut posted)?;
        self.faults.look();
        Ok(())
    }

    /// Posts what has come together; `posted` counts.
    fn post(
        &self,
        chain: &mut Vec<SendWr<'_>>,
        posted: &mut usize,
    ) -> std::result::Result<(), PostError> {
        let before = *posted;
        let done = self.inner.post_send(chain);
        done.map_err(|error| PostError { posted: before + error.posted, ..error })?;
        *posted += chain.len();
        chain.clear();
        Ok(())
    }

    pub(crate) fn post_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        for (sound, wr) in chain.iter().enumerate() {
            let call = format_args!("wr_id {:#x}", wr.wr_id);
            if let Err(error) = self.faults.allow(Call::PostRecv, call) {
                let before = chain.get(..sound).unwrap_or(chain);
                self.inner.post_recv(before)?;
                return Err(PostError { posted: sound, error });
            }
        }
        self.inner.post_recv(chain)
    }
}

/// The same work, naming a key that names nothing.
fn bound_to_fail<'a>(wr: &SendWr<'a>) -> SendWr<'a> {
    let nothing = |remote: RemoteAddr| RemoteAddr { rkey: Rkey(NOTHING), ..remote };
    let empty = match wr.payload {
        Payload::Sges(sges) => sges.iter().all(|sge| sge.length == 0),
        Payload::Inline(bytes) => bytes.is_empty(),
    };
    let nowhere = Payload::Sges(&NOWHERE);
    // No key is looked at for no bytes (R-RA-11).
    let payload = if empty { nowhere } else { wr.payload };
    let (op, payload) = match wr.op {
        SendOp::Write(remote) => (SendOp::Write(nothing(remote)), payload),
        SendOp::WriteImm(remote, imm) => (SendOp::WriteImm(nothing(remote), imm), payload),
        SendOp::Read(remote) => (SendOp::Read(nothing(remote)), payload),
        SendOp::FetchAdd { remote, add } => {
            (SendOp::FetchAdd { remote: nothing(remote), add }, payload)
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            (SendOp::CompareSwap { remote: nothing(remote), compare, swap }, payload)
        }
        SendOp::BindMw(bind) => (SendOp::BindMw(BindMw { mr: Lkey(NOTHING), ..bind }), wr.payload),
        SendOp::BindMw1(bind) => {
            (SendOp::BindMw1(BindMw { mr: Lkey(NOTHING), ..bind }), wr.payload)
        }
        SendOp::LocalInv(_) => (SendOp::LocalInv(NOTHING), wr.payload),
        SendOp::RegMr(reg) => (SendOp::RegMr(RegMr { entries: &NOWHERE, ..reg }), wr.payload),
        op => (op, nowhere),
    };
    SendWr { op, payload, ..*wr }
}

/// A completion queue some of whose completions come late, or when their queue pair has ended.
#[derive(Debug)]
pub(crate) struct FaultyCq {
    inner: CqPlane,
    control: Arc<dyn Device>,
    plane: Plane,
    faults: Faults,
    held: Mutex<VecDeque<Held>>,
}

/// A completion that the device has made.
#[derive(Debug)]
struct Held {
    completion: Completion,
    until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Now,
    Time(Duration),
    Ended,
}

impl Held {
    /// Completions of one queue come in order. The library's own numbers name it.
    fn queue(&self) -> u64 {
        self.completion.wr_id >> 32
    }
}

impl FaultyCq {
    pub(crate) fn new(
        inner: CqPlane,
        plane: &Plane,
        control: &Arc<dyn Device>,
        faults: &Faults,
    ) -> Arc<Self> {
        let (control, plane) = (control.clone(), plane.clone());
        let held = Mutex::default();
        let cq = Arc::new(Self { inner, control, plane, faults: faults.clone(), held });
        faults.made_cq(&cq);
        cq
    }

    pub(crate) fn wakes(&self, event: &Arc<Event>) {
        self.faults.wakes(event);
    }

    pub(crate) fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        let mut held = lock(&self.held);
        let now = self.plane.now();
        let failed = self.take(&mut held, now).err();
        let taken = self.give(&mut held, now, into);
        match failed {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(taken),
        }
    }

    pub(super) fn look(&self) {
        // An overrun is told to who polls.
        let _ = self.take(&mut lock(&self.held), self.plane.now());
    }

    pub(crate) fn request_notify(&self, solicited_only: bool) -> Result<()> {
        self.inner.request_notify(solicited_only)
    }

    /// Takes all that the device has.
    fn take(&self, held: &mut VecDeque<Held>, now: Duration) -> Result<()> {
        loop {
            let mut batch = [Completion::BLANK; BATCH];
            let taken = self.inner.poll(&mut batch)?;
            if taken == 0 {
                return Ok(());
            }
            for &completion in batch.iter().take(taken) {
                let late = match completion.status {
                    WcStatus::Success => self.faults.of_completion(completion.opcode),
                    _ => None,
                };
                let until = match late {
                    None => Until::Now,
                    Some(Late::Lost) => Until::Ended,
                    Some(Late::By(by)) => {
                        let at = now.saturating_add(by);
                        self.faults.releases(at);
                        Until::Time(at)
                    }
                };
                held.push_back(Held { completion, until });
            }
        }
    }

    /// Gives what may be seen, in order.
    fn give(&self, held: &mut VecDeque<Held>, now: Duration, into: &mut [Completion]) -> usize {
        self.flush_ended(held);
        let mut waiting = HashSet::new();
        let mut places = into.iter_mut();
        let mut given = 0;
        held.retain(|held| {
            let ready = match held.until {
                Until::Now => true,
                Until::Time(at) => now >= at,
                Until::Ended => false,
            };
            if !ready || waiting.contains(&held.queue()) {
                waiting.insert(held.queue());
                return true;
            }
            let Some(place) = places.next() else { return true };
            *place = held.completion;
            given += 1;
            false
        });
        given
    }

    /// Nothing waits on queue pairs that have ended since; what was lost on them, and what came
    /// after that, is flushed.
    fn flush_ended(&self, held: &mut VecDeque<Held>) {
        let mut flushed = HashSet::new();
        for held in held.iter_mut() {
            if held.until != Until::Now && self.has_ended(held.completion.qp_num) {
                if held.until == Until::Ended {
                    flushed.insert(held.queue());
                }
                held.until = Until::Now;
            }
            if flushed.contains(&held.queue()) {
                held.completion.status = WcStatus::WrFlushErr;
            }
        }
    }

    fn has_ended(&self, qp_num: u32) -> bool {
        let Some(qp) = self.faults.qp(qp_num) else { return true };
        !self.control.query_qp(qp).is_ok_and(|attr| attr.state == QpState::Rts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Pair, When};
    use crate::{Mr, Region};
    use mkey_core::device::MwKind;
    use mkey_core::rights::Rights;
    use mkey_core::status::WcOpcode;

    /// Posts beside the library, which has no such work of its own here, and polls beside it.
    fn run(pair: &Pair, faults: &Faults, op: SendOp<'_>) -> (WcOpcode, WcStatus) {
        let (qp, cq) = (pair.a.qp.info().handle, pair.a.cq.handle());
        let plane = pair.a.device.plane();
        let inner = plane.qp(qp).expect("it lives");
        let qp = FaultyQp::new(inner, qp, pair.a.device.control(), faults);
        qp.post_send(&[SendWr::new(1, op, &[])]).expect("posted");
        let mut one = [Completion::BLANK];
        assert_eq!(plane.cq(cq).expect("it lives").poll(&mut one), Ok(1));
        let [one] = one;
        (one.opcode, one.status)
    }

    #[test]
    fn keys_whose_work_is_to_fail_stay_as_they_were() {
        let faults = Faults::new(0);
        let pair = Pair::new().expect("connected");
        let (control, pd) = (pair.a.device.control(), pair.a.pd.handle());
        let region = Region::new(4096).expect("memory");
        let mr = Mr::builder(&pair.a.pd).windows().register(region).expect("mr");
        let whole = mr.whole();
        let window = control.alloc_mw(pd, MwKind::Type2).expect("mw");
        let fast = control.alloc_fast_mr(pd, 4).expect("fast mr");
        let new_key = Rkey(window.rkey.0.next());
        let (address, lkey) = (whole.iova(), whole.lkey());
        let rights = Rights::REMOTE_WRITE;
        let bind = BindMw { mw: window.rkey, new_key, mr: lkey, address, length: 4096, rights };
        let sges = [Sge { address, length: 4096, lkey }];
        let (key, rights) = (fast.rkey.0.next(), Rights::LOCAL_WRITE);
        let reg = RegMr { key, iova: address, rights, entries: &sges };
        let begins = [SendOp::BindMw(bind), SendOp::RegMr(reg)];
        let ends = [SendOp::LocalInv(new_key.0), SendOp::LocalInv(key)];
        for (begin, end) in begins.into_iter().zip(ends) {
            let kind = begin.opcode();
            // Refused, it has not happened: it can be done after that, once.
            faults.fail(kind, When::Nth(1));
            let (_, status) = run(&pair, &faults, begin);
            assert!(matches!(status, WcStatus::MwBindErr | WcStatus::LocQpOpErr), "{status}");
            pair.reconnect().expect("connected again");
            assert_eq!(run(&pair, &faults, begin), (kind, WcStatus::Success));
            faults.fail(WcOpcode::LocalInv, When::Nth(1));
            let (_, status) = run(&pair, &faults, end);
            assert!(matches!(status, WcStatus::MwBindErr | WcStatus::LocQpOpErr), "{status}");
            pair.reconnect().expect("connected again");
            assert_eq!(run(&pair, &faults, end), (WcOpcode::LocalInv, WcStatus::Success), "once");
        }
        assert_eq!(faults.injected().len(), 4);
        control.dealloc_mw(window.handle).expect("freed");
        control.dereg_mr(fast.handle).expect("freed");
    }
}
