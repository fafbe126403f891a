//! What `mkey run` asks for, by the environment.

use crate::report::Ear;
use crate::traced;
use mkey_soft::{Capture, CaptureFile, Faults, Link, Listener, PinMode, SoftOptions, Stale};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Devices that a program sees at most.
const MOST_DEVICES: u8 = 64;

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How many devices there are (`MKEY_DEVICES`).
    pub(crate) devices: u8,
    /// Their address (`MKEY_ADDRESS`).
    pub(crate) address: IpAddr,
    /// Whether real devices are hidden (`MKEY_ONLY`).
    pub(crate) only: bool,
    /// How other processes are reached (`MKEY_LINK`).
    pub(crate) link: Link,
    /// Bytes of payload of a packet at most (`MKEY_MTU`).
    pub(crate) mtu: Option<u32>,
    /// What befalls packets on their way (`MKEY_FAULTS`).
    pub(crate) faults: Option<Faults>,
    /// What shows the packets (`MKEY_CAPTURE`).
    pub(crate) capture: Option<Arc<dyn Capture>>,
    /// Whether peers write by themselves to memory that they were let in to before (`MKEY_DIRECT`).
    pub(crate) direct: bool,
    /// Declared time of a device command (`MKEY_COMMAND_COST`).
    pub(crate) command_cost: Duration,
    /// `MKEY_PIN`.
    pub(crate) pin: PinMode,
    /// `MKEY_STALE`.
    pub(crate) stale: Stale,
    /// Where findings are told in words (`MKEY_REFUSALS`): a file, or `-`.
    pub(crate) refusals: Option<OsString>,
    /// Where findings are noted for `mkey run --check` (`MKEY_FINDINGS`).
    pub(crate) findings: Option<OsString>,
}

/// As the environment has them when they are first asked for.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        devices: devices(),
        address: read("MKEY_ADDRESS", "an IP address", IpAddr::V4(Ipv4Addr::LOCALHOST), parsed),
        only: read("MKEY_ONLY", "0 or 1", false, yes_or_no),
        link: read("MKEY_LINK", "auto, shm or udp", Link::Auto, |text| match text {
            "auto" => Some(Link::Auto),
            "shm" => Some(Link::SharedMemory),
            "udp" => Some(Link::Udp),
            _ => None,
        }),
        mtu: read("MKEY_MTU", "256, 512, 1024, 2048 or 4096", None, |text| {
            let sizes = [256, 512, 1024, 2048, 4096];
            text.parse().ok().filter(|size| sizes.contains(size)).map(Some)
        }),
        faults: read("MKEY_FAULTS", "faults such as loss=1%,seed=7", None, |text| {
            text.parse().ok().map(Some)
        }),
        capture: env::var_os("MKEY_CAPTURE").filter(|path| !path.is_empty()).and_then(capture),
        direct: read("MKEY_DIRECT", "0 or 1", false, yes_or_no),
        command_cost: read("MKEY_COMMAND_COST", "a time such as 16000ns", Duration::ZERO, |text| {
            text.strip_suffix("ns")?.parse().ok().map(Duration::from_nanos)
        }),
        pin: read("MKEY_PIN", "kernel, mlock or none", PinMode::Kernel, |text| {
            PinMode::ALL.into_iter().find(|mode| mode.to_string() == text)
        }),
        stale: read("MKEY_STALE", "refuse or nic", Stale::Refuse, |text| match text {
            "refuse" => Some(Stale::Refuse),
            "nic" => Some(Stale::Nic),
            _ => None,
        }),
        refusals: env::var_os("MKEY_REFUSALS").filter(|path| !path.is_empty()),
        findings: env::var_os("MKEY_FINDINGS").filter(|path| !path.is_empty()),
    })
}

impl Settings {
    /// Whether anybody is told of findings.
    pub(crate) fn reports(&self) -> bool {
        self.refusals.is_some() || self.findings.is_some()
    }

    /// How a device is opened, as the opening of this number.
    pub(crate) fn options(&self, name: &str, opening: u32) -> SoftOptions {
        let listener: Arc<dyn Listener> = Arc::new(Ear { opening, name: name.to_owned() });
        SoftOptions {
            link: self.link.clone(),
            mtu: self.mtu,
            faults: self.faults,
            capture: self.capture.clone(),
            direct: self.direct,
            command_cost: self.command_cost,
            pin: self.pin,
            stale: self.stale,
            listener: Some(listener),
            ..SoftOptions::new(name, self.address)
        }
    }
}

/// `mkey trace` may ask for none, so that real devices alone are found.
fn devices() -> u8 {
    let (least, allowed) = match traced::is_wanted() {
        true => (0, "a number from 0 to 64"),
        false => (1, "a number from 1 to 64"),
    };
    read("MKEY_DEVICES", allowed, 1, |text| {
        text.parse().ok().filter(|count| (least..=MOST_DEVICES).contains(count))
    })
}

/// The capture in a file that `mkey run` has begun.
fn capture(path: OsString) -> Option<Arc<dyn Capture>> {
    match CaptureFile::append(Path::new(&path)) {
        Ok(file) => Some(Arc::new(file)),
        Err(error) => {
            // As in `read`.
            let _ = writeln!(std::io::stderr(), "mkey: MKEY_CAPTURE={}: {error}", path.display());
            None
        }
    }
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// A variable's value, or `default`; what is none is said.
fn read<T: fmt::Debug>(
    variable: &str,
    allowed: &str,
    default: T,
    parse: impl FnOnce(&str) -> Option<T>,
) -> T {
    let Some(value) = env::var_os(variable).filter(|value| !value.is_empty()) else {
        return default;
    };
    value.to_str().and_then(parse).unwrap_or_else(|| {
        // Without standard error there is nobody to tell.
        let _ = writeln!(
            std::io::stderr(),
            "mkey: {variable}={} is not {allowed}; {default:?} it is",
            value.display()
        );
        default
    })
}
