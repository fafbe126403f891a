//! mkey's accounting against the kernel's: `data/accounting-rxe-6.1.json` is what `ibv_reg_mr`
//! answered, and how `VmPin` moved, on soft-RoCE (recorded by `tools/accounting`). Replayed here
//! step by step: the same outcome, the same pages counted.
//!
//! R-REG-06, R-REG-07, R-REG-09; the order of refusals; that R-REG-08 and R-REG-10 leave nothing
//! counted.

#[allow(clippy::undocumented_unsafe_blocks, reason = "the helpers' memory is the tests' own")]
mod common;

use common::{Ended, in_child};
use mkey_os::accounting::{AccountError, Accountant, Allowance, Case, Charge, PAGE, account};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::sync::{Arc, Barrier};

#[derive(Deserialize)]
struct Table {
    page_size: u64,
    cases: Vec<Recorded>,
}

/// One case: what a fresh process may, and what it did.
#[derive(Deserialize)]
struct Recorded {
    name: String,
    privilege: Privilege,
    memlock: Memlock,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Privilege {
    Root,
    RootWithoutIpcLock,
    Unprivileged,
    UnprivilegedWithIpcLock,
    UserNamespaceRoot,
    UserNamespaceAllIds,
}

#[derive(Clone, Copy, Deserialize)]
struct Memlock {
    soft: Option<u64>,
}

#[derive(Deserialize)]
struct Step {
    process: String,
    /// `VmPin` before and after, of steps that the kernel judged.
    vm_pin_kib: Option<[u64; 2]>,
    #[serde(flatten)]
    what: What,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum What {
    Map {
        region: String,
    },
    Unmap {},
    Mlock {},
    As {
        privilege: Privilege,
    },
    Memlock {
        memlock: Memlock,
    },
    Process {
        name: String,
    },
    Register {
        mr: String,
        region: String,
        offset: u64,
        length: u64,
        access: Vec<String>,
        outcome: String,
    },
    Deregister {
        mr: String,
        outcome: String,
    },
    Parallel {
        mr: String,
        threads: u64,
        region: String,
        length: u64,
        outcomes: Vec<String>,
    },
    DeregisterEach {
        mr: String,
        outcome: String,
    },
    Churn {
        threads: u64,
        rounds: u64,
        region: String,
        length: u64,
        outcomes: Vec<String>,
    },
}

fn table() -> Table {
    let table: Table = serde_json::from_str(include_str!("data/accounting-rxe-6.1.json")).unwrap();
    assert_eq!(table.page_size, PAGE);
    table
}

impl Privilege {
    /// Whether the kernel finds CAP_IPC_LOCK, as the cases of each privilege over the limit show.
    fn ipc_lock(self) -> bool {
        matches!(self, Self::Root | Self::UnprivilegedWithIpcLock)
    }
}

impl What {
    fn changes_the_allowance(&self) -> bool {
        matches!(self, Self::As { .. } | Self::Memlock { .. })
    }
}

/// Where a process's pages are counted.
enum Ledger {
    /// The pure rule, with the count kept here.
    Rule {
        pinned: u64,
    },
    Accountant(Arc<Accountant>),
}

/// What a live registration has counted.
enum Counted {
    Pages(u64),
    Charge(Charge),
}

impl Ledger {
    fn pinned(&self) -> u64 {
        match self {
            Self::Rule { pinned } => *pinned,
            Self::Accountant(accountant) => accountant.pinned(),
        }
    }

    fn charge(
        &mut self,
        addr: u64,
        len: u64,
        allowance: Allowance,
    ) -> Result<Counted, AccountError> {
        match self {
            Self::Rule { pinned } => {
                let pages = account(&Case { addr, len, pinned: *pinned, allowance })?;
                *pinned += pages;
                Ok(Counted::Pages(pages))
            }
            Self::Accountant(accountant) => accountant.charge(addr, len).map(Counted::Charge),
        }
    }

    fn give_back(&mut self, counted: Counted) {
        match (self, counted) {
            (Self::Rule { pinned }, Counted::Pages(pages)) => *pinned -= pages,
            (_, Counted::Charge(charge)) => drop(charge),
            (_, Counted::Pages(_)) => unreachable!("pages are the rule's"),
        }
    }

    /// Charges `length` at `base + i * length` for each of `threads`, at the same time where the
    /// ledger takes threads; what was charged, and every outcome.
    fn charge_in_threads(
        &mut self,
        (base, length, threads): (u64, u64, u64),
        allowance: Allowance,
    ) -> Vec<Result<Counted, AccountError>> {
        if let Self::Accountant(accountant) = self {
            let start = Barrier::new(threads as usize);
            return std::thread::scope(|scope| {
                let all: Vec<_> = (0..threads)
                    .map(|i| {
                        let (accountant, start) = (&*accountant, &start);
                        scope.spawn(move || {
                            start.wait();
                            accountant.charge(base + i * length, length).map(Counted::Charge)
                        })
                    })
                    .collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
        }
        (0..threads).map(|i| self.charge(base + i * length, length, allowance)).collect()
    }
}

fn outcome<T>(result: &Result<T, AccountError>) -> &'static str {
    match result.as_ref().map_err(|error| error.errno().raw_os_error()) {
        Ok(_) => "ok",
        Err(libc::EINVAL) => "EINVAL",
        Err(libc::EPERM) => "EPERM",
        Err(libc::ENOMEM) => "ENOMEM",
        Err(other) => panic!("errno {other}"),
    }
}

/// How a recorded refusal comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DecidedBy {
    /// Rights that do not fit each other, before anything is counted (R-REG-01).
    Rights,
    Accounting,
    /// The pages (EFAULT), after the accounting let them pass.
    Pages,
    /// A length of 0 at a page's border: mkey accepts it and counts nothing (R-REG-06).
    ZeroLength,
}

fn decided_by(access: &[String], addr: u64, length: u64, outcome: &str) -> DecidedBy {
    let has = |name: &str| access.iter().any(|right| right == name);
    if (has("REMOTE_WRITE") || has("REMOTE_ATOMIC")) && !has("LOCAL_WRITE") {
        DecidedBy::Rights
    } else if outcome == "EFAULT" {
        DecidedBy::Pages
    } else if length == 0 && addr.is_multiple_of(PAGE) && outcome == "EINVAL" {
        DecidedBy::ZeroLength
    } else {
        DecidedBy::Accounting
    }
}

/// Replays a case; every registration's (recorded outcome, what decided it).
fn replay(case: &Recorded, ledger: impl Fn(Allowance) -> Ledger) -> Vec<(String, DecidedBy)> {
    let allowance_of = |privilege: Privilege, memlock: Memlock| Allowance {
        memlock: memlock.soft,
        ipc_lock: privilege.ipc_lock(),
    };
    let mut privilege = case.privilege;
    let mut memlock = case.memlock;
    let mut bases: HashMap<&str, u64> = HashMap::from([("absolute", 0)]);
    let mut ledgers = HashMap::from([("first", ledger(allowance_of(privilege, memlock)))]);
    // Live registrations, with the process whose pages they are.
    let mut live: Vec<(&str, &str, Counted)> = Vec::new();
    let mut seen = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        let at = format!("case {}, step {number}", case.name);
        let process = step.process.as_str();
        let allowance = allowance_of(privilege, memlock);
        if let Some([before, _]) = step.vm_pin_kib {
            assert_eq!(ledgers[process].pinned() * PAGE, before * 1024, "{at}: counted before");
        }
        match &step.what {
            What::Map { region } => {
                // Any page-aligned places far apart will do.
                let base = 0x1000_0000_0000 + 0x100_0000_0000 * bases.len() as u64;
                bases.insert(region, base);
            }
            // Neither moves what is counted: the check after the step says so.
            What::Unmap {} | What::Mlock {} => {}
            What::As { privilege: new } => privilege = *new,
            What::Memlock { memlock: new } => memlock = *new,
            What::Process { name } => {
                ledgers.insert(name, ledger(allowance));
            }
            What::Register { mr, region, offset, length, access, outcome: recorded } => {
                let addr = bases[region.as_str()] + offset;
                let by = decided_by(access, addr, *length, recorded);
                seen.push((recorded.clone(), by));
                let here = ledgers.get_mut(process).unwrap();
                if by != DecidedBy::Rights {
                    let result = here.charge(addr, *length, allowance);
                    match by {
                        DecidedBy::Accounting => assert_eq!(outcome(&result), recorded, "{at}"),
                        _ => assert_eq!(outcome(&result), "ok", "{at}"),
                    }
                    if let Ok(counted) = result {
                        if by == DecidedBy::Accounting {
                            live.push((mr, process, counted));
                        } else {
                            here.give_back(counted);
                        }
                    }
                }
            }
            What::Deregister { mr, outcome } | What::DeregisterEach { mr, outcome } => {
                assert_eq!(outcome, "ok", "{at}");
                let (ended, rest): (Vec<_>, _) =
                    live.into_iter().partition(|(name, ..)| name == mr);
                assert!(!ended.is_empty(), "{at}: {mr} is not live");
                live = rest;
                for (_, owner, counted) in ended {
                    ledgers.get_mut(owner).unwrap().give_back(counted);
                }
            }
            What::Parallel { mr, threads, region, length, outcomes } => {
                let here = ledgers.get_mut(process).unwrap();
                let all =
                    here.charge_in_threads((bases[region.as_str()], *length, *threads), allowance);
                let mut found: Vec<_> = all.iter().map(outcome).collect();
                found.sort_unstable();
                assert_eq!(found, *outcomes, "{at}");
                live.extend(
                    all.into_iter().flatten().map(|counted| (mr.as_str(), process, counted)),
                );
            }
            What::Churn { threads, rounds, region, length, outcomes } => {
                let here = ledgers.get_mut(process).unwrap();
                for _ in 0..*rounds {
                    let all = here
                        .charge_in_threads((bases[region.as_str()], *length, *threads), allowance);
                    assert!(all.iter().map(outcome).eq(outcomes), "{at}");
                    for counted in all.into_iter().flatten() {
                        here.give_back(counted);
                    }
                }
            }
        }
        if let Some([_, after]) = step.vm_pin_kib {
            assert_eq!(ledgers[process].pinned() * PAGE, after * 1024, "{at}: counted after");
        }
    }
    seen
}

#[test]
fn r_reg_09_the_rule_answers_and_counts_as_the_kernel_did() {
    let mut seen = Vec::new();
    let table = table();
    for case in &table.cases {
        seen.extend(replay(case, |_| Ledger::Rule { pinned: 0 }));
    }
    // The table is whole, and each kind of answer is in it.
    assert!(table.cases.len() >= 71, "{} cases", table.cases.len());
    assert!(seen.len() >= 110, "{} registrations", seen.len());
    let kinds: BTreeSet<_> = seen.iter().map(|(answer, by)| (answer.as_str(), *by)).collect();
    use DecidedBy::*;
    assert_eq!(
        kinds,
        BTreeSet::from([
            ("ok", Accounting),
            ("EINVAL", Accounting),
            ("EPERM", Accounting),
            ("ENOMEM", Accounting),
            ("EINVAL", Rights),
            ("EFAULT", Pages),
            ("EINVAL", ZeroLength),
        ])
    );
}

#[test]
fn r_reg_09_the_accountant_answers_and_counts_as_the_kernel_did() {
    // An accountant is given its allowance once: the other cases are the rule's, and the next test's.
    let table = table();
    let (changing, fixed): (Vec<_>, Vec<_>) = table
        .cases
        .iter()
        .partition(|case| case.steps.iter().any(|step| step.what.changes_the_allowance()));
    assert_eq!(changing.len(), 4, "cases that change limit or privilege on the way");
    for case in fixed {
        replay(case, |allowance| Ledger::Accountant(Accountant::with_allowance(allowance)));
    }
}

/// What the table's cases show for a lowered limit, on the limit of a real process. The kernel
/// reads the limit at each registration; an accountant reads it before each refusal, and when told.
#[test]
fn r_reg_09_the_limit_of_the_process_is_followed() {
    /// The first thing in the child that went wrong.
    fn wrong() -> Option<&'static str> {
        let set = |soft, hard| {
            let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
            setrlimit(Resource::Memlock, limit).is_ok()
        };
        let refused = |accountant: &Arc<Accountant>, len| {
            matches!(accountant.charge(0x1000, len), Err(AccountError::Limit { .. }))
        };
        if !drop_ipc_lock() || !set(16 << 10, 64 << 10) {
            return Some("no limit could be set");
        }
        let Ok(accountant) = Accountant::of_system() else { return Some("no accountant") };
        let Ok(full) = accountant.charge(0x1000, 16 << 10) else { return Some("within the limit") };
        if !refused(&accountant, 1) {
            return Some("the limit is full");
        }
        if !set(64 << 10, 64 << 10) {
            return Some("the limit could not be raised");
        }
        let Ok(more) = accountant.charge(0x1000, 48 << 10) else { return Some("raised limit") };
        drop(full);
        if !set(16 << 10, 64 << 10) || accountant.refresh().is_err() {
            return Some("the limit could not be lowered");
        }
        if !refused(&accountant, 1) {
            return Some("lowered below what is pinned");
        }
        drop(more);
        let again = accountant.charge(0x1000, 16 << 10).map(|charge| charge.pages());
        (again != Ok(4)).then_some("all given back")
    }
    assert_eq!(in_child_without_panic(wrong), None);
}

/// The privileges that a process here can take are read as the recorded kernel read them.
#[test]
fn r_reg_09_privilege_is_what_the_kernel_takes_for_it() {
    use Privilege::*;
    const NOT_HERE: &str = "cannot be taken here";
    let mut missing = Vec::new();
    let all = [
        Root,
        RootWithoutIpcLock,
        Unprivileged,
        UnprivilegedWithIpcLock,
        UserNamespaceRoot,
        UserNamespaceAllIds,
    ];
    for privilege in all {
        let wrong = in_child_without_panic(|| {
            if !privileges::take(privilege) {
                return Some(NOT_HERE);
            }
            match Allowance::of_system() {
                Ok(allowance) if allowance.ipc_lock == privilege.ipc_lock() => None,
                Ok(_) => Some("taken for what it is not"),
                Err(_) => Some("not to be read"),
            }
        });
        if wrong.as_deref() == Some(NOT_HERE) {
            missing.push(privilege);
        } else {
            assert_eq!(wrong, None, "{privilege:?}");
        }
    }
    assert_ne!(missing, all, "no privilege could be taken at all");
    if !missing.is_empty() {
        skip(&format!("no process here can become {missing:?}"));
    }
}

/// Runs `wrong` in a forked child and returns what it found. The child neither panics nor prints:
/// another thread may have held a lock of either at the fork, and the child would wait for ever.
fn in_child_without_panic(wrong: impl FnOnce() -> Option<&'static str>) -> Option<String> {
    let (found, find) = rustix::pipe::pipe().unwrap();
    let ended = in_child(|| match wrong() {
        Some(what) => i32::from(rustix::io::write(&find, what.as_bytes()).is_err()),
        None => 0,
    });
    assert_eq!(ended, Ended::Exit(0));
    drop(find);
    let mut text = String::new();
    std::fs::File::from(found).read_to_string(&mut text).unwrap();
    (!text.is_empty()).then_some(text)
}

/// Notes that a test could not run in full, and why. Fails where nobody reads such notes.
fn skip(reason: &str) {
    let line = format!("r_reg_09_privilege_is_what_the_kernel_takes_for_it: {reason}\n");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

fn drop_ipc_lock() -> bool {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let bit = CapabilitySet::IPC_LOCK;
    capabilities(None).is_ok_and(|sets| {
        let without = CapabilitySets {
            effective: sets.effective - bit,
            permitted: sets.permitted - bit,
            inheritable: sets.inheritable - bit,
        };
        set_capabilities(None, without).is_ok()
    })
}

/// Taking each privilege of the table in a forked child, as the recorder does.
mod privileges {
    use super::{Privilege, drop_ipc_lock};
    use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
    use rustix::thread::{
        CapabilitySet, CapabilitySets, UnshareFlags, capabilities, set_capabilities,
        set_keep_capabilities, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
    };
    use std::fs;

    /// Whether the calling process, which has one thread, now is what `privilege` says.
    pub fn take(privilege: Privilege) -> bool {
        let root = geteuid().is_root();
        match privilege {
            Privilege::Root => root && ipc_lock() && initial_namespace(),
            Privilege::RootWithoutIpcLock => root && drop_ipc_lock(),
            Privilege::Unprivileged => !root || leave_root(),
            Privilege::UnprivilegedWithIpcLock => {
                let only = CapabilitySets {
                    effective: CapabilitySet::IPC_LOCK,
                    permitted: CapabilitySet::IPC_LOCK,
                    inheritable: CapabilitySet::empty(),
                };
                root && ipc_lock()
                    && initial_namespace()
                    && set_keep_capabilities(true).is_ok()
                    && leave_root()
                    && set_capabilities(None, only).is_ok()
            }
            Privilege::UserNamespaceRoot => (!root || leave_root()) && map_one_id() && ipc_lock(),
            Privilege::UserNamespaceAllIds => root && map_all_ids() && ipc_lock(),
        }
    }

    fn ipc_lock() -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK))
    }

    /// Whether the test runs in the kernel's first user namespace: elsewhere nobody is `Root` in
    /// the table's sense.
    fn initial_namespace() -> bool {
        fs::read_link("/proc/self/ns/user").is_ok_and(|ns| ns.as_os_str() == "user:[4026531837]")
    }

    fn leave_root() -> bool {
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        set_thread_res_gid(group, group, group).is_ok()
            && set_thread_res_uid(user, user, user).is_ok()
    }

    fn enter_user_namespace() -> bool {
        // SAFETY: a new user namespace takes no file descriptor from anyone.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.is_ok()
    }

    /// A user namespace whose root is the present user.
    fn map_one_id() -> bool {
        let id = geteuid().as_raw();
        // A change of user made /proc/self root's; its uid_map is to be written by ourselves.
        set_dumpable_behavior(DumpableBehavior::Dumpable).is_ok()
            && enter_user_namespace()
            && fs::write("/proc/self/uid_map", format!("0 {id} 1")).is_ok()
    }

    /// A user namespace with every id mapped to itself, which may be written only from outside: by
    /// a child left there.
    fn map_all_ids() -> bool {
        let map = format!("/proc/{}/uid_map", std::process::id());
        let Ok((entered, enter)) = rustix::pipe::pipe() else { return false };
        // SAFETY: this process has one thread, so the child may do all that it may.
        let writer = unsafe { libc::fork() };
        if writer == 0 {
            drop(enter);
            let ready = rustix::io::read(&entered, &mut [0]) == Ok(1);
            let done = ready && fs::write(map, "0 0 4294967295").is_ok();
            // SAFETY: ends the child here, without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        // Closing without a byte tells the writer to give up.
        let told = enter_user_namespace() && rustix::io::write(&enter, &[1]) == Ok(1);
        drop(enter);
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let waited = unsafe { libc::waitpid(writer, &mut status, 0) } == writer;
        told && waited && status == 0
    }
}
