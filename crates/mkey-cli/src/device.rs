//! The devices that commands can open by name.

use crate::bench::args::Pin;
use crate::exit::End;
use mkey_core::error::Error;
use mkey_ibverbs::IbvDevice;
use mkey_soft::{PinMode, SoftDevice, SoftOptions};
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// The software RNIC of this process.
pub const SOFTWARE: &str = "mkey0";

/// A device that can be opened, for lists of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is.
    pub what: String,
}

/// The devices that can be opened here, and why there is no real one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The software RNIC, then the real ones.
    pub devices: Vec<Listed>,
    /// In words, with what mends it.
    pub no_real: Option<String>,
}

/// Looks for devices. libibverbs is loaded for it.
pub fn find() -> Found {
    let (name, what) = (SOFTWARE.to_owned(), "software RNIC, in this process".to_owned());
    let mut devices = vec![Listed { name, what }];
    let real = mkey_ibverbs::list();
    let no_real = real.as_ref().err().map(ToString::to_string);
    devices.extend(real.into_iter().flatten().map(|device| {
        let driver = device.driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
        Listed { name: device.name, what: format!("RDMA device of this machine{driver}") }
    }));
    Found { devices, no_real }
}

/// A device that has not answered after this is left alone: its firmware hangs.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// What somebody asks of a device or a program, on a thread of its own: one that hangs keeps nobody,
/// and the thread is left to it. `None` if it took longer than `patience`, or could not be asked.
pub fn within<T: Send + 'static>(
    patience: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        // Nobody listens any more if it took too long.
        let _ = sender.send(ask());
    });
    thread.ok()?;
    receiver.recv_timeout(patience).ok()
}

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

/// Opens a real device.
///
/// # Errors
/// Why it can not be opened, with what mends it.
pub fn open_real(name: &str) -> Result<Arc<IbvDevice>, Error> {
    IbvDevice::open(name)
}

/// Opens a real device that is to be measured.
///
/// # Errors
/// `Failed`: it can not be opened, with what mends it. A usage error: it is not here, with the
/// devices there are; or something is asked for that only the software RNIC takes.
pub fn open_measured(
    name: &str,
    pin: Option<Pin>,
    command_cost: Duration,
) -> Result<Arc<IbvDevice>, End> {
    only_software(pin, command_cost)?;
    open_real(name).map_err(|error| not_here(name, &error))
}

/// Refuses what only the software RNIC takes.
fn only_software(pin: Option<Pin>, command_cost: Duration) -> Result<(), End> {
    if pin.is_none() && command_cost.is_zero() {
        return Ok(());
    }
    Err(End::Usage(format!("--pin and --command-cost are for {SOFTWARE} only")))
}

/// A device that could not be opened: one that is not there was asked for wrongly.
fn not_here(name: &str, error: &Error) -> End {
    if is_there(Path::new("/sys/class/infiniband"), name) {
        let why = error.reason.to_string();
        let named = why.starts_with(&format!("{name} cannot be opened"));
        return End::Failed(if named { why } else { format!("{name} cannot be opened: {why}") });
    }
    // The list tells why there is no real device, if there is none.
    End::Usage(format!("no device {name:?} here; there are:\n{}", list()))
}

/// Whether the kernel has a device of this name.
fn is_there(devices: &Path, name: &str) -> bool {
    Path::new(name).file_name() == Some(OsStr::new(name)) && devices.join(name).exists()
}

/// A device opened for the library.
#[derive(Debug)]
pub struct Opened {
    /// The library's device.
    pub device: mkey::Device,
    /// The same, if it is the software RNIC; for questions only.
    soft: Option<Arc<SoftDevice>>,
}

impl Opened {
    /// Opens a device that is to be measured.
    ///
    /// # Errors
    /// As [`open_software`] and [`open_measured`].
    #[allow(unsafe_code)] // The library asks for a promise; it is kept where it is given.
    pub fn open(name: &str, pin: Option<Pin>, command_cost: Duration) -> Result<Self, End> {
        if name != SOFTWARE {
            only_software(pin, command_cost)?;
            let device = mkey::Device::open(name).map_err(|error| not_here(name, &error))?;
            return Ok(Self { device, soft: None });
        }
        let pin = pin.unwrap_or(Pin::Kernel);
        let soft = open_software(pin.mode(), command_cost, false).map_err(End::failed)?;
        // SAFETY: `soft` is private here, and no method posts work to it.
        let device = unsafe { mkey::Device::from_soft(Arc::clone(&soft)) };
        Ok(Self { device, soft: Some(soft) })
    }

    /// How the software RNIC held the most spans so far.
    pub fn pin_mode(&self) -> Option<PinMode> {
        self.soft.as_ref().map(|soft| soft.pin_mode())
    }
}

/// The devices as lines of text.
pub fn list() -> String {
    let found = find();
    let lines = found.devices.iter().map(|d| format!("  {}  {}\n", d.name, d.what));
    let mut text: String = lines.collect();
    if let Some(why) = found.no_real {
        text.push_str(&format!("and no real one: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_keeps_nobody() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (_open, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || never.recv()), None);
    }
    use mkey_core::error::Reason;

    #[test]
    fn only_a_device_that_the_kernel_has_is_there() {
        let devices = tempfile::tempdir().unwrap();
        std::fs::create_dir(devices.path().join("rxe0")).unwrap();
        assert!(is_there(devices.path(), "rxe0"));
        for name in ["rxe1", "", ".", "..", "../..", "rxe0/.", "/"] {
            assert!(!is_there(devices.path(), name), "{name:?}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_asked_for_wrongly_and_told_once() {
        let why = "no library, and so on";
        let error = Error::new("open_device", "none0", Reason::NoDevice { why: why.into() });
        let End::Usage(text) = not_here("none0", &error) else { panic!("not a usage error") };
        assert!(text.starts_with("no device \"none0\" here; there are:\n  mkey0  "), "{text}");
        assert!(!text.contains(why), "{text}");
    }
}
