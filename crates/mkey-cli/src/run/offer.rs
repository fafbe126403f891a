//! The devices that a program would find.

use super::args::RunArgs;
use crate::cli::print;
use crate::device;
use crate::exit::End;
use mkey_core::device::Device;
use mkey_soft::SoftDevice;
use std::fmt::Write;
use std::net::Ipv6Addr;
use std::path::Path;

/// Prints them.
///
/// # Errors
/// `Failed` where such a device can not be opened.
pub fn show(args: &RunArgs, library: &Path) -> Result<(), End> {
    print(text(args, library)?.as_bytes())
}

fn text(args: &RunArgs, library: &Path) -> Result<String, End> {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "A program that `mkey run` starts finds these RDMA devices:\n");
    let mut notes = Vec::new();
    for index in 0..args.devices {
        let name = format!("mkey{index}");
        let device = SoftDevice::open(args.soft.options(&name)).map_err(End::failed)?;
        let port = device.port();
        let _ = writeln!(
            text,
            "  {name}  software RNIC, port 1 active, Ethernet, MTU {}, GID 0 {} (RoCEv2)",
            port.active_mtu,
            Ipv6Addr::from(port.gid.0)
        );
        notes = device.notes();
    }
    if !args.soft.only {
        for real in device::find().devices.iter().filter(|listed| listed.name != device::SOFTWARE) {
            let _ = writeln!(text, "  {}  {}", real.name, real.what);
        }
    }
    for note in notes {
        let _ = writeln!(text, "\nNote: {note}");
    }
    let _ = writeln!(text, "\nBy {}, loaded before libibverbs.", library.display());
    Ok(text)
}
