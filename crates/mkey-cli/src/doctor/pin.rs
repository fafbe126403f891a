//! A pin, tried: io_uring pins pages as a driver does, `mlock` keeps them in memory.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::bench::units::size;
use crate::explain::errno;
use mkey_os::error::Errno;
use mkey_os::mapping::{Mapping, PageKind};
use mkey_os::pin::{PinMode, PinRequest, Pinner};

/// What is pinned: as much as the smallest limit allows.
const BYTES: usize = 16 << 10;

/// CAP_SYS_ADMIN's bit.
const SYS_ADMIN: u32 = 21;

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let path = "proc/sys/kernel/io_uring_disabled";
    let setting = at.files.number(path);
    let told = |finding: Finding| match &setting {
        Ok(setting) => finding.value("io_uring_disabled", *setting).file(path),
        Err(_) => finding.word("io_uring_disabled", "-"),
    };
    if !at.probes {
        let ring = match &setting {
            Ok(0) => Finding::new(Code::IoUring, Status::Ok, "allowed"),
            Ok(_) => Finding::new(Code::IoUring, Status::Warn, "switched-off").mend("io-uring"),
            Err(unread) => Finding::unread(Code::IoUring, unread),
        };
        return vec![Finding::untried(Code::PinProbe), told(ring)];
    }
    let (mode, refused) = match attempt() {
        Ok(done) => done,
        Err(why) => {
            let failed = |code| {
                Finding::new(code, Status::NotReadable, "unread-error")
                    .word("file", "pin")
                    .word("what", &why)
            };
            return vec![failed(Code::PinProbe), failed(Code::IoUring)];
        }
    };
    let why = refused.map(|refused| errno::shown(&refused.into())).unwrap_or_default();
    let pin = match mode {
        PinMode::Kernel => Finding::new(Code::PinProbe, Status::Ok, "kernel"),
        PinMode::Mlock => Finding::new(Code::PinProbe, Status::Ok, "mlock"),
        PinMode::None => Finding::new(Code::PinProbe, Status::Fail, "none").mend("memlock"),
    };
    let pin = pin
        .word("size", size(BYTES as u64))
        .word("errno", &why)
        .value("mode", mode.name())
        .by("io_uring_register(IORING_REGISTER_BUFFERS)")
        .by("mlock");
    let ring = match (mode, refused) {
        (PinMode::Kernel, _) => Finding::new(Code::IoUring, Status::Ok, "works"),
        (_, Some(Errno::NOMEM | Errno::AGAIN)) => {
            Finding::new(Code::IoUring, Status::Ok, "no-room")
        }
        (_, Some(Errno::NOSYS)) => {
            denial(at, Finding::new(Code::IoUring, Status::Warn, "not-there"), None)
        }
        _ => {
            let setting = setting.as_ref().ok().copied();
            denial(at, Finding::new(Code::IoUring, Status::Warn, "denied"), setting)
        }
    };
    vec![pin, told(ring.word("errno", why).by("io_uring_setup"))]
}

/// What mends that io_uring is denied: what denies it.
fn denial(at: &Context, finding: Finding, setting: Option<u64>) -> Finding {
    // 1: for the privileged alone; 2: for nobody.
    let off = match setting {
        Some(0) | None => false,
        Some(1) => !at.has_capability(SYS_ADMIN),
        Some(_) => true,
    };
    let finding = if off { finding.mend("io-uring") } else { finding };
    if at.is_filtered() { finding.mend("seccomp") } else { finding }
}

/// How a pin was held, and why not by the kernel.
fn attempt() -> Result<(PinMode, Option<Errno>), String> {
    let mapping = Mapping::new(BYTES, PageKind::Base).map_err(|error| error.to_string())?;
    let pinner = Pinner::new(PinMode::Kernel);
    let (addr, len) = (mapping.addr(), mapping.len());
    let request = PinRequest { addr, len, write: true, page: None };
    let guard = pinner.pin(&request).map_err(|error| error.to_string())?;
    let mode = guard.mode();
    let refusals = pinner.stats().refusals;
    let refused = refusals.iter().find(|refusal| refusal.mode == PinMode::Kernel);
    Ok((mode, refused.map(|refusal| refusal.errno)))
}
