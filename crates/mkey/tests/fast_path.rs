//! That the data path of grants and fast mappings makes no system call and allocates nothing.
//!
//! Allocations are counted. System calls are fatal: a child process sets everything up, then has the
//! kernel kill it on any but the one to exit, and goes on. That both traps work is seen by a child
//! that maps memory, and by an allocation.

mod common;
mod peers;

use common::allocations::{self, Counting};
use mkey::{
    Access, Completion, FastMrPool, GrantOptions, PeerAccess, Recv, RemoteKey, Slice, Work,
};
use peers::{Side, pair};
use seccompiler::{SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Rounds before and after the door is shut: together they do not use up a key.
const ROUNDS: usize = 120;
/// Entries of a mapping: more than fit anywhere inline.
const ENTRIES: usize = 64;

struct Ends {
    client: Side,
    server: Side,
    inbox: [Slice; 1],
    page: Slice,
    from: [Slice; 1],
}

impl Ends {
    fn new() -> Self {
        let (client, server) = pair();
        let page = |side: &Side| side.memory(4096);
        let (inbox, page, from) = (page(&server), page(&client), page(&server));
        Self { client, server, inbox: [inbox], page, from: [from] }
    }

    /// The server learns the key, and writes by it.
    fn serve(&self, length: usize) {
        let mut into = [Completion::BLANK; 4];
        assert_eq!(self.server.cq.poll(&mut into), Ok(1), "the message");
        let mut bytes = [0; RemoteKey::BYTES];
        self.inbox[0].read(0, &mut bytes).expect("within");
        let key = RemoteKey::from_bytes(&bytes);
        let from = [self.from[0].part(..length).expect("within")];
        self.server.qp.post(&[Work::write(&from, key)]).expect("posted");
        assert_eq!(self.server.cq.poll(&mut into), Ok(1), "the write");
        assert_eq!(into[0].status, mkey::WcStatus::Success);
    }

    fn ends(&self) {
        let mut into = [Completion::BLANK; 4];
        assert_eq!(self.client.cq.poll(&mut into), Ok(0), "the library's own");
    }
}

fn grants() -> Box<dyn FnMut()> {
    let ends = Ends::new();
    let pool = ends.client.pd.set_grants(GrantOptions::default().ready(2)).expect("pool");
    Box::new(move || {
        let Ends { client, server, inbox, page, .. } = &ends;
        server.qp.post_recv(&[Recv::new(inbox)]).expect("posted");
        let grant = page.prepare_grant(&client.qp, PeerAccess::WRITE).expect("grant");
        let key = grant.remote_key().to_bytes();
        let message = Work::send_inline(&key).unsignaled();
        client.qp.post(&[grant.bind(), message]).expect("posted");
        ends.serve(4096);
        let ending = grant.revoke();
        ends.ends();
        assert_eq!(ending.ended(), Ok(Some(mkey::Ended::Revoked)));
        drop(ending);
        assert_eq!(pool.stats().in_use, 0);
    })
}

fn fast_mappings() -> Box<dyn FnMut()> {
    let ends = Ends::new();
    let pool = FastMrPool::builder(&ends.client.pd).entries(ENTRIES as u32).ready(2);
    let pool = pool.build().expect("pool");
    let slices: Vec<_> = (0..ENTRIES).map(|at| ends.page.part(at * 64 + 1..at * 64 + 33)).collect();
    let slices: Vec<_> = slices.into_iter().map(|slice| slice.expect("within")).collect();
    Box::new(move || {
        let Ends { client, server, inbox, .. } = &ends;
        server.qp.post_recv(&[Recv::new(inbox)]).expect("posted");
        let access = Access::local().remote_write();
        let mapping = pool.prepare(&client.qp, &slices, access).expect("mapping");
        let key = mapping.remote_key().expect("exposed").to_bytes();
        let message = Work::send_inline(&key).unsignaled();
        client.qp.post(&[mapping.register(), message]).expect("posted");
        ends.serve(ENTRIES * 32);
        drop(mapping.slice());
        let ending = mapping.release().expect("no slice of it is out");
        ends.ends();
        assert_eq!(ending.ended(), Ok(Some(mkey::Ended::Revoked)));
        drop(ending);
        assert_eq!(pool.stats().in_use, 0);
    })
}

fn maps_memory() -> Box<dyn FnMut()> {
    Box::new(|| drop(mkey::Region::new(4096)))
}

type Case = (&'static str, fn() -> Box<dyn FnMut()>, bool);

const CASES: [Case; 3] = [
    ("grants", grants, false),
    ("fast_mappings", fast_mappings, false),
    ("the_trap_itself", maps_memory, true),
];

fn counted(round: &mut dyn FnMut()) -> u64 {
    let before = allocations::of_all();
    (0..ROUNDS).for_each(|_| round());
    allocations::of_all() - before
}

/// The child process: 0 if all went well and nothing was allocated.
fn child(case: &Case) -> ! {
    let mut round = case.1();
    (0..ROUNDS).for_each(|_| round());
    let allowed = BTreeMap::from([(libc::SYS_exit_group, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into().expect("a processor that seccomp knows");
    let (deny, allow) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(allowed, deny, allow, arch).expect("a filter");
    let program: seccompiler::BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter_all_threads(&program).expect("seccomp");
    let allocated = counted(&mut round);
    // SAFETY: ends the process at once, without the system calls of a clean end.
    unsafe { libc::_exit(i32::from(allocated > 0)) }
}

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if let Some(case) = std::env::var_os("MKEY_CONFINED") {
        let case = CASES.iter().find(|(name, ..)| case == *name).expect("a case");
        child(case);
    }
    assert!(counted(&mut || drop(Box::new(std::hint::black_box(1)))) > 0, "they are counted");
    let mut well = true;
    for (name, _, dies) in CASES.iter().filter(|(name, ..)| name.contains(&wanted)) {
        let own = std::env::current_exe().expect("this program");
        let status = Command::new(own).env("MKEY_CONFINED", name).status().expect("a child");
        let killed = status.signal() == Some(libc::SIGSYS);
        let passed = if *dies { killed } else { status.success() };
        let why = match (passed, killed, status.code()) {
            (true, ..) => "ok".to_owned(),
            (_, true, _) => "FAILED: a system call".to_owned(),
            (_, _, Some(1)) => "FAILED: allocations".to_owned(),
            _ => format!("FAILED: {status}"),
        };
        println!("test no_system_call_and_no_allocation::{name} ... {why}");
        well &= passed;
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
