use super::*;
use crate::link::shm::segment::Segment;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::device::{Device, MrInfo, MrSpec};
use mkey_core::rights::Rights;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Rounds at least.
const ENOUGH: u64 = 20;
/// What one takes back or waits for is that of all: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const LEND: Lend = Lend { from_qp: 17, connection: 1, to_qp: 18, rkey: 99 };

/// Both sides in this process, which lends to itself.
struct Both {
    lending: Lending,
    borrowing: Borrowing,
    area: usize,
    memory: Arc<FileMapping>,
}

fn pidfd(pid: u32) -> OwnedFd {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
}

/// The peer's process only has to be there.
fn both(process: OwnedFd) -> Both {
    let (Segment { lending: area, memory, .. }, _) = Segment::create().unwrap();
    let (memory, process) = (Arc::new(memory), Arc::new(process));
    // SAFETY: the area is of the memory.
    let (lending, borrowing) = unsafe {
        (
            Lending::new(area, &memory, Some(&process)).unwrap(),
            Borrowing::new(area, &memory, Some(std::process::id())).unwrap(),
        )
    };
    Both { lending, borrowing, area, memory }
}

fn to_itself() -> Both {
    both(pidfd(std::process::id()))
}

impl Both {
    /// Lends `region`, as 1000 and so on, until nobody else in this process has taken that back.
    fn lend(&self, region: &mut [u8]) {
        let (length, host) = (region.len() as u64, region.as_mut_ptr() as u64);
        let mut lent = || Some(Lent { address: 1000, length, host });
        while !self.borrowing.is_lent(&borrow(LEND, 1000, length)) {
            self.lending.lend(&LEND, 1000, length, &mut lent);
        }
    }

    fn write(&self, borrow: &Borrow, source: &[u8]) -> bool {
        assert_eq!(source.len() as u64, borrow.length);
        // SAFETY: so many bytes.
        unsafe { self.borrowing.write(borrow, source.as_ptr(), || true) }
    }
}

fn borrow(lend: Lend, address: u64, length: u64) -> Borrow {
    Borrow { lend, address, length }
}

#[test]
fn what_is_lent_is_written_and_nothing_else() {
    let _alone = lock(&ALONE);
    let both = to_itself();
    // One for all: the lease is of this memory.
    let mut room = vec![0u8; 6000];
    for start in 0..9 {
        for length in (1..40).chain([200, 4096, 5000]) {
            room.fill(0);
            let source: Vec<u8> = (0..length).map(|at| at as u8 | 1).collect();
            let whole = borrow(LEND, 1000 + start, length as u64);
            // Others of this process may take back what is lent just now.
            loop {
                both.lend(&mut room);
                if both.write(&whole, &source) {
                    break;
                }
            }
            let end = start as usize + length;
            assert_eq!(room[start as usize..end], source);
            assert!(room[..start as usize].iter().chain(&room[end..]).all(|&byte| byte == 0));
        }
    }
}

#[test]
fn what_differs_in_anything_is_not_lent() {
    let _alone = lock(&ALONE);
    let both = to_itself();
    let mut room = [0u8; 64];
    both.lend(&mut room);
    let others = [
        borrow(LEND, 999, 8),
        borrow(LEND, 1000, 65),
        borrow(LEND, 1063, 2),
        borrow(LEND, 1064, 1),
        borrow(LEND, u64::MAX, 8),
        borrow(LEND, 1008, u64::MAX),
        borrow(Lend { from_qp: 1, ..LEND }, 1000, 8),
        borrow(Lend { to_qp: 1, ..LEND }, 1000, 8),
        borrow(Lend { rkey: 1, ..LEND }, 1000, 8),
        borrow(Lend { connection: 2, ..LEND }, 1000, 8),
    ];
    for other in others {
        assert!(!both.borrowing.is_lent(&other), "{other:?}");
    }
    assert!(!both.write(&borrow(Lend { connection: 2, ..LEND }, 1000, 8), &[1; 8]));
    settle();
    assert!(!both.write(&borrow(LEND, 1000, 8), &[1; 8]));
    assert_eq!(room, [0; 64]);
}

/// Something ends while its maker looks whether the access is allowed: the lease was never good.
#[test]
fn a_lease_that_is_made_too_late_is_good_for_nothing() {
    let _alone = lock(&ALONE);
    let both = to_itself();
    let mut room = [0u8; 64];
    let host = room.as_mut_ptr() as u64;
    both.lending.lend(&LEND, 1000, 8, &mut || {
        end();
        Some(Lent { address: 1000, length: 64, host })
    });
    assert!(!both.borrowing.is_lent(&borrow(LEND, 1000, 8)));
    assert!(!both.write(&borrow(LEND, 1000, 8), &[1; 8]));
    assert_eq!(room, [0; 64]);
}

/// A sender writes on and on; after each `settle` the memory is its owner's again.
#[test]
fn nothing_is_written_after_what_was_lent_was_taken_back() {
    let _alone = lock(&ALONE);
    let both = to_itself();
    let mut room = vec![0u8; 32 << 10];
    let (length, host) = (room.len() as u64, room.as_mut_ptr() as u64);
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = vec![0xee; length as usize];
            while !stop.load(Ordering::Relaxed) {
                let done = both.write(&borrow(LEND, 1000, length), &source);
                written.fetch_add(u64::from(done), Ordering::Relaxed);
            }
        });
        let _stop = Stop(&stop);
        let begun = Instant::now();
        for round in 0..300 {
            // On a machine that is busy, each waits for the other to have its turn.
            if round >= ENOUGH && begun.elapsed() > Duration::from_secs(5) {
                break;
            }
            let before = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) == before {
                let mut lent = || Some(Lent { address: 1000, length, host });
                both.lending.lend(&LEND, 1000, length, &mut lent);
                std::thread::yield_now();
            }
            settle();
            let (first, last) = (host as *mut u8, (host + length - 1) as *mut u8);
            for _ in 0..200 {
                for byte in [first, last] {
                    // SAFETY: of `room`, which nobody else has a reference to now.
                    unsafe { byte.write_volatile(0x5a) };
                }
                std::hint::spin_loop();
                // SAFETY: as above.
                let seen = unsafe { (first.read_volatile(), last.read_volatile()) };
                assert_eq!(seen, (0x5a, 0x5a), "written to after it was taken back");
            }
        }
    });
    assert!(written.load(Ordering::Relaxed) >= ENOUGH);
    drop(room);
}

/// Ends the other thread, also when this one fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A copy that has looked at its lease, and goes on when it is told to.
struct Held<'a> {
    go_on: Sender<()>,
    copy: std::thread::ScopedJoinHandle<'a, bool>,
}

impl Held<'_> {
    fn ends(self) -> bool {
        self.go_on.send(()).unwrap();
        self.copy.join().unwrap()
    }
}

impl Both {
    /// A thread begins to write 8 bytes, and is held before the copy.
    fn hold<'a>(&'a self, scope: &'a std::thread::Scope<'a, '_>) -> Held<'a> {
        let (go_on, told): (_, Receiver<()>) = channel();
        let (tell, begun) = channel();
        let copy = scope.spawn(move || {
            let held = || {
                tell.send(()).unwrap();
                // Also if the test fails.
                let _ = told.recv();
            };
            // SAFETY: 8 bytes.
            unsafe {
                let whole = borrow(LEND, 1000, 8);
                self.borrowing.write_then(&whole, [7u8; 8].as_ptr(), || true, held)
            }
        });
        begun.recv().unwrap();
        Held { go_on, copy }
    }
}

/// A sender that is stopped in the middle keeps nobody from anything but from what has to wait for it.
#[test]
fn a_copy_that_is_stopped_holds_up_nobody_else() {
    let _alone = lock(&ALONE);
    let (stopped, other) = (to_itself(), to_itself());
    let mut room = [0u8; 64];
    stopped.lend(&mut room);
    std::thread::scope(|scope| {
        let held = stopped.hold(scope);
        let (done, is_done) = channel();
        scope.spawn(move || {
            settle();
            let _ = done.send(());
        });
        // Not even while somebody waits for it already.
        while stopped.borrowing.is_lent(&borrow(LEND, 1000, 8)) {
            std::thread::yield_now();
        }
        end();
        let mut next = [0u8; 64];
        while !other.write(&borrow(LEND, 1000, 8), &[1; 8]) {
            other.lend(&mut next);
        }
        assert_eq!(next[..8], [1; 8]);
        drop(other);
        assert!(is_done.try_recv().is_err(), "it waits for the copy");
        // Who has no time gives up, and the next time at once.
        let mut left = 3;
        let is_left = || {
            left -= 1;
            left > 0
        };
        assert!(!settle_within(is_left));
        assert!(!settle_within(|| panic!("it is known")));
        // A second WRITE does not wait for the first one either, it is sent.
        assert!(!stopped.write(&borrow(LEND, 1000, 8), &[1; 8]));
        assert!(held.ends(), "it had looked before");
        is_done.recv().unwrap();
    });
    assert_eq!(room[..8], [7; 8]);
}

/// A region of a device; its memory is another one's.
fn region(device: &crate::SoftDevice, room: &mut [u8]) -> MrInfo {
    let pd = device.alloc_pd().unwrap();
    let (address, length) = (HostAddr(room.as_mut_ptr() as u64), room.len() as u64);
    let spec = MrSpec { address, length, iova: None, rights: Rights::LOCAL_WRITE };
    // SAFETY: nobody accesses it.
    unsafe { device.reg_mr(pd, &spec) }.unwrap()
}

/// Deregistering waits for a sender that is stopped, and meanwhile others register and deregister.
#[test]
fn who_deregisters_waits_with_no_lock_held() {
    let _alone = lock(&ALONE);
    let device = crate::SoftDevice::open(crate::SoftOptions::default()).unwrap();
    let stopped = to_itself();
    let mut room = [0u8; 64];
    stopped.lend(&mut room);
    let mut other = [0u8; 64];
    let mr = region(&device, &mut other);
    std::thread::scope(|scope| {
        let held = stopped.hold(scope);
        let (done, is_done) = channel();
        let device = &device;
        scope.spawn(move || {
            device.dereg_mr(mr.handle).unwrap();
            let _ = done.send(());
        });
        // Its leases go first.
        while stopped.borrowing.is_lent(&borrow(LEND, 1000, 8)) {
            std::thread::yield_now();
        }
        region(device, &mut [0u8; 64]);
        assert!(is_done.try_recv().is_err(), "it waits for the copy");
        held.ends();
        is_done.recv().unwrap();
    });
}

/// The file by which a peer writes goes through page protections, so what is unmapped unheard of is not
/// lent; what is, is, where the system lets us hear.
#[test]
fn only_memory_that_is_watched_is_lent() {
    let _alone = lock(&ALONE);
    for (direct, watch) in [(true, false), (false, true), (true, true)] {
        let options = crate::SoftOptions { direct, watch, ..crate::SoftOptions::default() };
        let device = crate::SoftDevice::open(options).unwrap();
        let memory = page();
        // SAFETY: a mapping of this test's own, which nobody else knows.
        let room = unsafe { std::slice::from_raw_parts_mut(memory as *mut u8, 4096) };
        let mr = region(&device, room);
        let hears =
            device.core.watch.get().is_some() && device.core.registrations.unwatched().is_none();
        let lent = device.core.registrations.lendable(mr.rkey);
        let whole = HostRange { start: HostAddr(memory as u64), len: 4096 };
        assert_eq!(lent, Some(whole).filter(|_| direct && watch && hears), "{direct} {watch}");
        device.dereg_mr(mr.handle).unwrap();
        assert_eq!(device.core.registrations.lendable(mr.rkey), None);
        // SAFETY: as above.
        unsafe { rustix::mm::munmap(memory, 4096) }.unwrap();
    }
}

fn page() -> *mut std::ffi::c_void {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping touches no other.
    unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE) }.unwrap()
}

/// The side that has lent ends while the sender is stopped: what comes later waits for that copy still.
#[test]
fn a_copy_is_waited_for_after_the_pair_has_gone() {
    let _alone = lock(&ALONE);
    let one = to_itself();
    let mut room = [0u8; 64];
    one.lend(&mut room);
    std::thread::scope(|scope| {
        let held = one.hold(scope);
        lenders::leave(one.lending.area);
        assert!(!settle_within(|| false));
        assert!(held.ends());
    });
    assert_eq!(room[..8], [7; 8]);
    *lock(&one.lending.making) = false;
}

const ROLE: &str = "MKEY_TEST_COPIER";

/// The sender of the test below: one thread is held in the middle of a copy, another one starts a new
/// program or ends.
#[test]
#[ignore = "the other process of a test"]
fn copier() {
    let Ok(file) = std::env::var(ROLE) else { return };
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{file}"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let segment = Segment::open(file.unwrap().into()).unwrap();
    let (area, memory) = (segment.borrowing, Arc::new(segment.memory));
    // SAFETY: the area is of the memory.
    let pid = unsafe { NonNull::new(area as *mut Area).unwrap().as_ref() };
    let pid = pid.lender.load(Ordering::Relaxed);
    // SAFETY: as above.
    let borrowing = unsafe { Borrowing::new(area, &memory, Some(pid)).unwrap() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let held = || {
                std::io::stdout().write_all(b"\nheld\n").unwrap();
                loop {
                    std::thread::park();
                }
            };
            // SAFETY: 8 bytes.
            unsafe {
                let whole = borrow(LEND, 1000, 8);
                borrowing.write_then(&whole, [7u8; 8].as_ptr(), || true, held)
            }
        });
        std::io::stdin().read_line(&mut line).unwrap();
        panic!("{}", Command::new("sleep").arg("600").exec());
    });
}

/// A sender that has gone in the middle of a copy is not waited for: one that was killed, and one of which
/// another thread has started a new program, which is the same process still.
#[test]
fn who_has_gone_in_the_middle_is_not_waited_for() {
    let _alone = lock(&ALONE);
    for how in ["kill", "exec"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "--nocapture", "link::shm::lease::tests::copier"]);
        let (Segment { lending: area, memory, .. }, file) = Segment::create().unwrap();
        let own = format!("{}/fd/{}", std::process::id(), file.as_raw_fd());
        command.env(ROLE, own).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut peer = command.spawn().unwrap();
        let (memory, process) = (Arc::new(memory), Arc::new(pidfd(peer.id())));
        // SAFETY: the area is of the memory.
        let lending = unsafe { Lending::new(area, &memory, Some(&process)).unwrap() };
        let mut room = [0u8; 64];
        let host = room.as_mut_ptr() as u64;
        lending.lend(&LEND, 1000, 8, &mut || Some(Lent { address: 1000, length: 64, host }));
        let mut say = peer.stdin.take().unwrap();
        say.write_all(b"begin\n").unwrap();
        let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "held"), "{how}");
        assert!(!settle_within(|| false), "{how}: it lives, and its copy is not done");
        let settled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                settle();
                settled.store(true, Ordering::Release);
            });
            assert!(!settled.load(Ordering::Acquire), "{how}");
            match how {
                "kill" => peer.kill().unwrap(),
                _ => say.write_all(b"go\n").unwrap(),
            }
        });
        assert!(settle_within(|| false), "{how}");
        if how == "exec" {
            assert!(peer.try_wait().unwrap().is_none(), "the process lives");
            peer.kill().unwrap();
        }
        peer.wait().unwrap();
        assert_eq!(room, [0; 64]);
    }
}

#[test]
fn nothing_is_lent_to_who_can_not_be_waited_for_and_nothing_is_written_to_another() {
    let _alone = lock(&ALONE);
    let (Segment { lending: area, memory, .. }, _) = Segment::create().unwrap();
    // SAFETY: the area is of the memory.
    let lending = unsafe { Lending::new(area, &Arc::new(memory), None).unwrap() };
    lending.lend(&LEND, 1000, 8, &mut || panic!("asked without need"));

    let both = to_itself();
    let mut room = [0u8; 64];
    both.lend(&mut room);
    for pid in [None, Some(1)] {
        // SAFETY: as above.
        let borrowing = unsafe { Borrowing::new(both.area, &both.memory, pid).unwrap() };
        // SAFETY: 8 bytes.
        let done = unsafe { borrowing.write(&borrow(LEND, 1000, 8), [1u8; 8].as_ptr(), || true) };
        assert!(!done);
    }
    assert_eq!(room, [0; 64]);
}
