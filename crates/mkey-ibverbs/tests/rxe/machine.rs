//! What happens to the machine under an open device.

use crate::elsewhere;
use crate::side::*;
use mkey_core::data_plane::QueuePair;
use mkey_core::device::*;
use mkey_core::error::Reason;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::*;
use mkey_ibverbs::IbvDevice;
use mkey_os::confine;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Puts the network interface of the device up or down; up again when it is dropped.
struct Link;

impl Link {
    fn set(state: &str) {
        let link = std::fs::read_to_string("/sys/class/infiniband/rxe0/parent").expect("rxe0");
        let done = Command::new("ip").args(["link", "set", link.trim(), state]).status();
        assert!(done.expect("ip").success());
        if state == "up" {
            // The address goes with the link-local one only; the identifier needs it back.
            let _ = Command::new("ip")
                .args(["address", "add", "192.0.2.1/24", "dev", link.trim()])
                .output();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        Self::set("up");
    }
}

fn wait_for(device: &dyn Device, wanted: AsyncEvent) {
    let begun = Instant::now();
    loop {
        let event = device.get_async_event(Some(LIMIT)).expect("get_async_event");
        println!("event {event:?}");
        if event == Some(wanted) {
            return;
        }
        assert!(event.is_some() && begun.elapsed() < LIMIT, "{wanted:?} did not come");
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_port_that_goes_down_under_traffic_is_an_event_and_errors_and_no_hang() {
    let (device, _alone) = open_alone();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let buffer = Buffer::new(&device, pd, ALL);
    let sge = buffer.sge(0, 4096);
    let write = |wr_id| SendWr::new(wr_id, SendOp::Write(buffer.remote(8192)), &sge);
    let mut wr_id = 0;
    one.qp.post_send(&[write(1), write(2)]).unwrap();
    for _ in 0..2 {
        assert_eq!(one.next().status, WcStatus::Success);
    }
    let link = Link;
    // Work is under way as the link goes.
    for _ in 0..8 {
        wr_id += 1;
        one.qp.post_send(&[write(wr_id)]).unwrap();
    }
    Link::set("down");
    wait_for(&*device, AsyncEvent::PortErr(1));
    assert!(!device.port().active);
    wr_id += 1;
    one.qp.post_send(&[write(wr_id)]).unwrap_or_else(|refused| panic!("{}", refused.error));
    let mut last = WcStatus::Success;
    for _ in 0..9 {
        last = one.next().status;
        println!("completion {last}");
    }
    assert_ne!(last, WcStatus::Success);
    assert_eq!(one.state(), QpState::Err);
    drop(link);
    wait_for(&*device, AsyncEvent::PortActive(1));
    assert!(device.port().active);
    device.destroy_qp(one.info.handle).unwrap();
    device.destroy_qp(two.info.handle).unwrap();
}

/// The file that the device is opened by, which only root may until this is dropped.
struct Closed(PathBuf, Permissions);

impl Closed {
    fn new() -> Self {
        let verbs = fs::read_dir("/sys/class/infiniband_verbs").unwrap();
        let entry = verbs.map(|entry| entry.unwrap().path()).find(|entry| {
            fs::read_to_string(entry.join("ibdev")).is_ok_and(|name| name.trim() == NAME)
        });
        let file = entry.expect("rxe0");
        let path = PathBuf::from("/dev/infiniband").join(file.file_name().unwrap());
        let closed = Self(path.clone(), fs::metadata(&path).unwrap().permissions());
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        closed
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let restored = fs::set_permissions(&self.0, self.1.clone());
        if !std::thread::panicking() {
            restored.unwrap();
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_device_that_the_user_may_not_open_is_named_with_its_file_and_the_mend() {
    let (_device, _alone) = open_alone();
    let _closed = Closed::new();
    let mut child = Command::new(std::env::current_exe().unwrap());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        child.pre_exec(|| {
            confine::become_user(confine::NOBODY).map_err(|_| std::io::Error::last_os_error())
        });
    }
    elsewhere::run(child, OUTSIDER);
}

const OUTSIDER: &str = "machine::as_a_user_without_permission";

/// What the test above runs in another process.
#[test]
#[ignore = "run by a_device_that_the_user_may_not_open_is_named_with_its_file_and_the_mend"]
fn as_a_user_without_permission() {
    if !elsewhere::is_for(OUTSIDER) {
        return;
    }
    let refused = IbvDevice::open(NAME).unwrap_err();
    assert!(matches!(refused.reason, Reason::NoDevice { .. }), "{refused}");
    let said = refused.to_string();
    for word in ["no permission on /dev/infiniband/uverbs", "mode 0600", "chmod 666"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    elsewhere::tried(OUTSIDER, refused);
}
