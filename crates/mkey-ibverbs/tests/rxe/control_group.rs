//! A control group that allows its members few RDMA objects.

use crate::elsewhere;
use crate::memory::{PAGE, refused, spec};
use crate::side::*;
use mkey_core::device::*;
use mkey_core::error::{Error, Reason};
use mkey_ibverbs::IbvDevice;
use mkey_os::mapping::{Mapping, PageKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = "/sys/fs/cgroup";
const OBJECTS: u64 = 4;

/// A group with limits on the device; it ends with this.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let root = Path::new(ROOT);
        if !root.join("cgroup.subtree_control").exists() {
            let mounted = Command::new("mount").args(["-t", "cgroup2", "none", ROOT]).status();
            assert!(mounted.expect("mount").success());
        }
        fs::write(root.join("cgroup.subtree_control"), "+rdma").expect("a kernel with such groups");
        let group = Self(root.join(format!("mkey-{}", std::process::id())));
        fs::create_dir(&group.0).expect("root");
        let limits = format!("{NAME} hca_handle=1 hca_object={OBJECTS}");
        fs::write(group.0.join("rdma.max"), limits).expect("rdma.max");
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let ended = fs::remove_dir(&self.0);
        if !std::thread::panicking() {
            ended.expect("a group without members");
        }
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_control_group_without_room_is_named_with_its_mend() {
    let (_device, _alone) = open_alone();
    let group = Group::new();
    let join = "echo $$ > \"$0\" && exec \"$@\"";
    let mut child = Command::new("sh");
    child.args(["-c", join]).arg(group.0.join("cgroup.procs"));
    child.arg(std::env::current_exe().unwrap());
    elsewhere::run(child, MEMBER);
}

const MEMBER: &str = "control_group::as_a_member";

/// Whether an error says which limit was met, and what raises it.
fn names(error: &Error, counted: &str, most: u64) {
    let Reason::Exhausted { asked: 1, free: 0, limit, .. } = error.reason else {
        panic!("{error}")
    };
    let said = error.to_string();
    assert!(limit == most && said.contains(counted) && said.contains("rdma.max"), "{said}");
}

/// What the test above runs in another process.
#[test]
#[ignore = "run by a_control_group_without_room_is_named_with_its_mend"]
fn as_a_member() {
    if !elsewhere::is_for(MEMBER) {
        return;
    }
    let device = IbvDevice::open(NAME).unwrap_or_else(|error| panic!("{error}"));
    names(&IbvDevice::open(NAME).unwrap_err(), "hca_handle", 1);
    let domains = [(); OBJECTS as usize].map(|()| device.alloc_pd().unwrap());
    let full = device.alloc_pd().unwrap_err();
    names(&full, "hca_object", OBJECTS);
    names(&device.create_cq(1, None).unwrap_err(), "hca_object", OBJECTS);
    let map = Mapping::new(PAGE, PageKind::Base).unwrap();
    let reason = refused(&device, domains[0], &spec(&map, ALL));
    names(&Error::new("reg_mr", "", reason), "hca_object", OBJECTS);
    // As it says: with room for one it is done.
    device.dealloc_pd(domains[1]).unwrap();
    // SAFETY: deregistered below, before the mapping goes.
    let info = unsafe { device.reg_mr(domains[0], &spec(&map, ALL)) }.unwrap();
    device.dereg_mr(info.handle).unwrap();
    elsewhere::tried(MEMBER, full);
}
