//! A device for tests: a table of live objects, writes executed at posting, and a verb that fails
//! when asked to.
#![allow(unsafe_code)] // Writes into the memory that tests register.

use mkey_core::address::HostAddr;
use mkey_core::data_plane::*;
use mkey_core::device::*;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::*;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What is behind a key index.
#[derive(Clone, Copy, Debug)]
struct Entry {
    variant: u8,
    /// Where a peer may write; `None`: nowhere now.
    range: Option<(u64, u64)>,
}

/// Makes what a panic says.
type Message = fn() -> String;

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u32, Entry>,
    next: u32,
    completions: BTreeMap<u64, VecDeque<(u64, WcStatus)>>,
    /// Verbs and work by name, how often.
    calls: BTreeMap<&'static str, u64>,
    /// Objects live now, PDs, CQs and QPs included.
    others: u64,
    /// The verb that fails, and how many calls of it still go well.
    fails: Option<(&'static str, u64)>,
    /// Where the memory of a fast registration is, by the index of its key.
    hosts: BTreeMap<u32, u64>,
    /// The verb that panics, and with what.
    panics: Option<(&'static str, Message)>,
}

/// The device.
#[derive(Clone, Debug)]
pub struct Fake {
    capabilities: Arc<Capabilities>,
    state: Arc<Mutex<State>>,
}

/// A queue pair.
pub struct FakeQp(Fake, u64);
/// A completion queue.
pub struct FakeCq(Fake, u64);
/// There are none.
pub struct FakeSrq;

impl Fake {
    /// With nothing live.
    pub fn new() -> Self {
        let capabilities = Arc::new(Capabilities {
            driver: "fake".to_owned(),
            software: true,
            max_mr: 100,
            max_mr_size: u64::MAX,
            max_mw: 100,
            max_qp: 100,
            max_cq: 100,
            max_cqe: 100,
            max_srq: 0,
            max_pd: 100,
            max_ah: 0,
            max_qp_wr: 100,
            max_sge: 1,
            max_inline: 0,
            max_rd_atomic: 1,
            max_fast_mr_entries: 1,
            fast_mr_zero_based: false,
            window1: false,
            window2: true,
            atomic_write: false,
            atomics: false,
            zero_based: false,
            null_mr: false,
            rereg: false,
            srq: false,
            xrc: false,
            dma_buf: false,
            max_dm_size: 0,
            flush: false,
            advise: false,
            odp: OdpCaps::default(),
            page_sizes: 4096,
        });
        Self { capabilities, state: Arc::default() }
    }

    /// Whose fast registrations count from 0, as those of mlx5.
    pub fn zero_based() -> Self {
        let fake = Self::new();
        let capabilities =
            Capabilities { fast_mr_zero_based: true, ..(*fake.capabilities).clone() };
        Self { capabilities: Arc::new(capabilities), ..fake }
    }

    /// `verb` fails after `good` calls.
    pub fn failing(verb: &'static str, good: u64) -> Self {
        let fake = Self::new();
        fake.lock().fails = Some((verb, good));
        fake
    }

    /// `verb` panics with what `message` makes then.
    pub fn panicking(verb: &'static str, message: Message) -> Self {
        let fake = Self::new();
        fake.lock().panics = Some((verb, message));
        fake
    }

    /// How often a verb or a kind of work was asked for.
    pub fn calls(&self, name: &str) -> u64 {
        self.lock().calls.get(name).copied().unwrap_or(0)
    }

    /// Objects that are live.
    pub fn live(&self) -> u64 {
        let state = self.lock();
        state.entries.len() as u64 + state.others
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn call(&self, verb: &'static str) -> Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if let Some((_, message)) = state.panics.filter(|(panics, _)| *panics == verb) {
            state.panics = None;
            drop(state);
            panic!("{}", message());
        }
        *state.calls.entry(verb).or_default() += 1;
        match &mut state.fails {
            Some((failing, 0)) if *failing == verb => {
                let reason = Reason::System { call: verb, errno: 5 };
                return Err(Error::new(verb, "as the test asks", reason));
            }
            Some((failing, good)) if *failing == verb => *good -= 1,
            _ => {}
        }
        Ok(state)
    }

    fn other(&self, verb: &'static str) -> Result<u64> {
        let mut state = self.call(verb)?;
        state.others += 1;
        state.next += 1;
        Ok(u64::from(state.next))
    }

    fn no_other(&self, verb: &'static str) -> Result<()> {
        self.call(verb)?.others -= 1;
        Ok(())
    }

    fn entry(&self, verb: &'static str, range: Option<(u64, u64)>) -> Result<(u64, Key)> {
        let mut state = self.call(verb)?;
        state.next += 1;
        let index = state.next;
        state.entries.insert(index, Entry { variant: 7, range });
        Ok((u64::from(index), Key::new(index, 7)))
    }

    fn no_entry(&self, verb: &'static str, handle: u64) -> Result<()> {
        let mut state = self.call(verb)?;
        state.entries.remove(&(handle as u32)).map(|_| ()).ok_or_else(|| {
            Error::new(
                verb,
                "",
                Reason::UnknownHandle { object: mkey_core::error::Object::Mr, handle },
            )
        })
    }

    fn execute(&self, wr: &SendWr<'_>) -> Result<WcStatus> {
        let name = match wr.op {
            SendOp::Write(_) => "WRITE",
            SendOp::BindMw(_) => "BIND_MW",
            SendOp::RegMr(_) => "REG_MR",
            SendOp::LocalInv(_) => "LOCAL_INV",
            _ => "other work",
        };
        let mut state = self.call(name)?;
        let mut grant = |old: Option<Key>, new: Key, range| {
            let entry = state.entries.get_mut(&new.index()).unwrap();
            assert!(old.is_none_or(|old| old.variant() == entry.variant), "stale key");
            assert!(entry.range.is_none(), "granted twice");
            *entry = Entry { variant: new.variant(), range };
        };
        match wr.op {
            SendOp::BindMw(bind) => {
                grant(Some(bind.mw.0), bind.new_key.0, Some((bind.address.0, bind.length)));
            }
            SendOp::RegMr(reg) => {
                let [entry] = *reg.entries else { panic!("one entry, please") };
                assert!(!self.capabilities.fast_mr_zero_based || reg.iova.0 == 0);
                grant(None, reg.key, Some((reg.iova.0, entry.length.into())));
                state.hosts.insert(reg.key.index(), entry.address.0);
            }
            SendOp::LocalInv(key) => {
                let entry = state.entries.get_mut(&key.index()).unwrap();
                assert!(entry.variant == key.variant() && entry.range.take().is_some());
            }
            SendOp::Write(remote) => {
                let Payload::Sges(&[sge]) = wr.payload else { panic!("one entry, please") };
                let key = remote.rkey.0;
                let entry = state.entries.get(&key.index()).copied();
                let length = u64::from(sge.length);
                let good = entry.is_some_and(|e| {
                    e.variant == key.variant()
                        && e.range.is_some_and(|(start, bytes)| {
                            remote.address.0 >= start && remote.address.0 + length <= start + bytes
                        })
                });
                if !good {
                    return Ok(WcStatus::RemAccessErr);
                }
                let host = match (entry.and_then(|e| e.range), state.hosts.get(&key.index())) {
                    (Some((start, _)), Some(host)) => host + (remote.address.0 - start),
                    _ => remote.address.0,
                };
                let (from, to) = (sge.address.0 as *const u8, host as *mut u8);
                // SAFETY: both ranges are registered, so mapped and nobody else's.
                unsafe { std::ptr::copy(from, to, sge.length as usize) };
            }
            other => panic!("{other:?}"),
        }
        Ok(WcStatus::Success)
    }
}

impl QueuePair for FakeQp {
    fn post_send(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        for (posted, wr) in chain.iter().enumerate() {
            let status = self.0.execute(wr).map_err(|error| PostError { posted, error })?;
            if wr.flags.contains(SendFlags::SIGNALED) || status != WcStatus::Success {
                let mut state = self.0.lock();
                state.completions.entry(self.1).or_default().push_back((wr.wr_id, status));
            }
        }
        Ok(())
    }
    fn post_recv(&self, _: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        unreachable!()
    }
    fn qp_num(&self) -> u32 {
        self.1 as u32
    }
}

impl CompletionQueue for FakeCq {
    fn poll(&self, into: &mut [Completion]) -> Result<usize> {
        let mut state = self.0.lock();
        let queue = state.completions.entry(self.1).or_default();
        let Some((wr_id, status)) = queue.pop_front() else { return Ok(0) };
        into[0] = Completion { wr_id, status, opcode: WcOpcode::RdmaWrite, ..Completion::BLANK };
        Ok(1)
    }
    fn request_notify(&self, _: bool) -> Result<()> {
        Ok(())
    }
}

impl SharedReceive for FakeSrq {
    fn post_recv(&self, _: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        unreachable!()
    }
}

impl DataPlane for Fake {
    type Qp = FakeQp;
    type Cq = FakeCq;
    type Srq = FakeSrq;
    fn qp(&self, qp: QpHandle) -> Result<FakeQp> {
        Ok(FakeQp(self.clone(), qp.0))
    }
    fn cq(&self, cq: CqHandle) -> Result<FakeCq> {
        Ok(FakeCq(self.clone(), cq.0))
    }
    fn srq(&self, _: SrqHandle) -> Result<FakeSrq> {
        Ok(FakeSrq)
    }
}

impl Device for Fake {
    fn name(&self) -> &str {
        "fake0"
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn port(&self) -> PortInfo {
        PortInfo { active: true, active_mtu: 4096, gid: Gid::default(), gid_index: 0 }
    }
    fn alloc_pd(&self) -> Result<PdHandle> {
        self.other("alloc_pd").map(PdHandle)
    }
    fn dealloc_pd(&self, _: PdHandle) -> Result<()> {
        self.no_other("dealloc_pd")
    }
    unsafe fn reg_mr(&self, _: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        let HostAddr(start) = spec.address;
        let (handle, key) = self.entry("reg_mr", Some((start, spec.length)))?;
        Ok(MrInfo { handle: MrHandle(handle), lkey: Lkey(key), rkey: Rkey(key) })
    }
    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.no_entry("dereg_mr", mr.0)
    }
    fn advise_mr(&self, _: PdHandle, _: Advice, _: bool, _: &[Sge]) -> Result<()> {
        self.call("advise_mr").map(|_| ())
    }
    fn alloc_mw(&self, _: PdHandle, _: MwKind) -> Result<MwInfo> {
        let (handle, key) = self.entry("alloc_mw", None)?;
        Ok(MwInfo { handle: MwHandle(handle), rkey: Rkey(key) })
    }
    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.no_entry("dealloc_mw", mw.0)
    }
    fn alloc_fast_mr(&self, _: PdHandle, _: u32) -> Result<MrInfo> {
        let (handle, key) = self.entry("alloc_mr", None)?;
        Ok(MrInfo { handle: MrHandle(handle), lkey: Lkey(key), rkey: Rkey(key) })
    }
    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        unreachable!()
    }
    fn destroy_comp_channel(&self, _: ChannelHandle) -> Result<()> {
        unreachable!()
    }
    fn get_cq_event(&self, _: ChannelHandle, _: Option<Duration>) -> Result<Option<CqHandle>> {
        unreachable!()
    }
    fn create_cq(&self, _: u32, _: Option<ChannelHandle>) -> Result<CqHandle> {
        self.other("create_cq").map(CqHandle)
    }
    fn destroy_cq(&self, _: CqHandle) -> Result<()> {
        self.no_other("destroy_cq")
    }
    fn create_qp(&self, _: PdHandle, init: &QpInit) -> Result<QpInfo> {
        self.other("create_qp")?;
        // Completions are kept by queue pair under its queue's number.
        Ok(QpInfo { handle: QpHandle(init.send_cq.0), qp_num: init.send_cq.0 as u32 })
    }
    fn modify_qp(&self, _: QpHandle, _: &QpModify) -> Result<()> {
        self.call("modify_qp").map(|_| ())
    }
    fn query_qp(&self, _: QpHandle) -> Result<QpAttr> {
        unreachable!()
    }
    fn destroy_qp(&self, _: QpHandle) -> Result<()> {
        self.no_other("destroy_qp")
    }
    fn create_ah(&self, _: PdHandle, _: &AhAttr) -> Result<AhHandle> {
        unreachable!()
    }
    fn destroy_ah(&self, _: AhHandle) -> Result<()> {
        unreachable!()
    }
    fn get_async_event(&self, _: Option<Duration>) -> Result<Option<AsyncEvent>> {
        unreachable!()
    }
}
