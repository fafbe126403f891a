//! The arguments of `mkey run`.

use crate::bench::args::Pin;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// What to run, and on which devices.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey run                        the devices that a program would find
  mkey run ibv_devinfo -v         what libibverbs says of them
  mkey run --refusals - ./server  each refused access in words, on standard error
  mkey run --check make test      fails if an access was refused or memory stayed registered
  mkey run --only ./server        real devices hidden")]
pub struct RunArgs {
    /// How many devices there are: mkey0, mkey1, ..
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub devices: u8,

    /// Their address
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub address: IpAddr,

    /// Hide real devices
    #[arg(long)]
    pub only: bool,

    /// How pages are pinned
    #[arg(long, value_enum, default_value_t = Pin::Kernel)]
    pub pin: Pin,

    /// What an access meets whose pages the program has unmapped under a live registration
    #[arg(long, value_enum, default_value_t = Stale::Refuse)]
    pub stale: Stale,

    /// Tell in words of each refused access, of memory that was given back while it was registered, and
    /// of memory that stayed registered to the end; "-" is standard error
    #[arg(long, value_name = "FILE")]
    pub refusals: Option<OsString>,

    /// Fail if there was anything that --refusals tells of
    #[arg(long)]
    pub check: bool,

    /// The program and its arguments; what it starts finds the devices, too
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}

/// What becomes of an access to pages that have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stale {
    /// It is refused, and the refusal tells why
    Refuse,
    /// As on a NIC: it goes to the pages that were pinned, and nobody is told
    Nic,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::Nic => "nic",
        })
    }
}
