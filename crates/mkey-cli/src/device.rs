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

/// The software RNIC, opened for the library.
#[derive(Debug)]
pub struct Software {
    /// The library's device.
    pub device: mkey::Device,
    /// The same; for questions only.
    soft: Arc<SoftDevice>,
}

impl Software {
    /// Opens it.
    ///
    /// # Errors
    /// As [`open_software`].
    #[allow(unsafe_code)] // The library asks for a promise; it is kept two lines below.
    pub fn open(pin: PinMode, command_cost: Duration) -> Result<Self, Error> {
        let soft = open_software(pin, command_cost, false)?;
        // SAFETY: `soft` is private here, and no method posts work to it.
        let device = unsafe { mkey::Device::from_soft(Arc::clone(&soft)) };
        Ok(Self { device, soft })
    }

    /// The pin mode that held the most spans so far.
    pub fn pin_mode(&self) -> PinMode {
        self.soft.pin_mode()
    }
}

/// The devices as lines of text.
pub fn list() -> String {
    LIST.iter().map(|d| format!("  {}  {}\n", d.name, d.what)).collect()
}
