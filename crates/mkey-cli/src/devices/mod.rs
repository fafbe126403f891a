//! `mkey devices`: every device, real and software, and what it can do.
//!
//! * [`facts`]: what is found out, as it is written to JSON. [`text`] prints it.

pub mod facts;
pub mod text;

use crate::bench::export;
use crate::cli::print;
use crate::device;
use crate::exit::End;
use clap::Args;
use facts::{DeviceFacts, Failed, Report};
use mkey_core::device::Device;
use mkey_soft::PinMode;
use std::path::PathBuf;
use std::time::Duration;

/// Which devices to show, and how.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey devices                    all of them
  mkey devices --device mlx5_0    one
  mkey devices --json - | jq '.devices[].name'  the same for programs")]
pub struct DevicesArgs {
    /// The device to show; all if none is named
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Write everything as JSON to FILE; "-" is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Looks at the devices, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &DevicesArgs) -> Result<(), End> {
    let found = device::find();
    let wanted = |name: &str| args.device.as_deref().is_none_or(|wanted| wanted == name);
    let listed: Vec<_> = found.devices.iter().filter(|listed| wanted(&listed.name)).collect();
    if listed.is_empty() {
        let name = args.device.as_deref().unwrap_or_default();
        return Err(End::Usage(format!("no device {name:?} here; there are:\n{}", device::list())));
    }
    let (mut devices, mut failed) = (Vec::new(), Vec::new());
    for listed in listed {
        match look(&listed.name) {
            Ok(facts) => devices.push(facts),
            Err(error) => failed.push(Failed { name: listed.name.clone(), why: error.to_string() }),
        }
    }
    let no_real = found.no_real.filter(|_| args.device.is_none());
    let report = Report::new(devices, failed, no_real, facts::locks());
    if let Some(path) = &args.json {
        export::write(path, &facts::json(&report)?)?;
    }
    if !args.json.as_ref().is_some_and(|path| export::is_stdout(path)) {
        print(text::report(&report).as_bytes())?;
    }
    if report.devices.is_empty() {
        return Err(End::failed("not one device could be opened"));
    }
    Ok(())
}

/// Opens a device and tries what it can do.
fn look(name: &str) -> mkey_core::error::Result<DeviceFacts> {
    if name == device::SOFTWARE {
        let device = device::open_software(PinMode::Kernel, Duration::ZERO, false)?;
        return Ok(DeviceFacts::of(&*device as &dyn Device, None));
    }
    let device = device::open_real(name)?;
    Ok(DeviceFacts::of(&*device as &dyn Device, Some(device.tried())))
}
