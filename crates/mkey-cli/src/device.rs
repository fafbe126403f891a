//! The devices that commands can open by name.

use mkey_core::error::Error;
use mkey_soft::{PinMode, SoftDevice, SoftOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The software RNIC of this process.
pub const SOFTWARE: &str = "mkey0";

/// A device that can be opened, for lists of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
}

/// The devices of this machine that can be opened.
pub const LIST: &[Listed] = &[Listed { name: SOFTWARE, what: "software RNIC, in this process" }];

/// Opens the software RNIC; with `measure` it times its registrations by term.
///
/// # Errors
/// Where the operating system refuses what the device can not do without.
pub fn open_software(
    pin: PinMode,
    command_cost: Duration,
    measure: bool,
) -> Result<Arc<SoftDevice>, Error> {
    SoftDevice::open(SoftOptions {
        pin,
        command_cost,
        measure,
        ..SoftOptions::new(SOFTWARE, IpAddr::V4(Ipv4Addr::LOCALHOST))
    })
}

/// The devices as lines of text.
pub fn list() -> String {
    LIST.iter().map(|d| format!("  {}  {}\n", d.name, d.what)).collect()
}
