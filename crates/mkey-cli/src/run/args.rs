//! The arguments of `mkey run`.

use crate::bench::args::{Pin, parse_cost};
use clap::builder::TypedValueParser as _;
use clap::builder::{BoolishValueParser, PossibleValuesParser};
use clap::{Args, ValueEnum};
use mkey_soft::{Faults, FaultsError, SoftOptions};
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// What to run, and on which devices.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Within a program that `mkey run` has started, another `mkey run` takes from that one what it is not told
itself.

Examples:
  mkey run                        the devices that a program would find
  mkey run ibv_devinfo -v         what libibverbs says of them
  mkey run --refusals - ./server  each refused access in words, on standard error
  mkey run --check make test      fails if an access was refused or memory stayed registered
  mkey run --only ./server        real devices hidden
  mkey run --address 10.0.0.2 ib_write_bw 10.0.0.1       to another host, by RoCEv2 over UDP
  mkey run --faults loss=1%,seed=7 ib_write_bw 127.0.0.1 one packet in a hundred is lost
  mkey run --capture a.pcap ib_write_bw 127.0.0.1        its packets, for Wireshark"
)]
pub struct RunArgs {
    /// How many devices there are: mkey0, mkey1, ..
    #[arg(long, hide_env = true, env = "MKEY_DEVICES", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub devices: u8,

    /// What they are like.
    #[command(flatten)]
    pub soft: SoftArgs,

    /// Fail if there was anything that --refusals tells of
    #[arg(long)]
    pub check: bool,

    /// The program and its arguments; what it starts finds the devices, too
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}

/// What the devices are like.
#[derive(Args, Clone, Debug)]
pub struct SoftArgs {
    /// Their address
    #[arg(long, hide_env = true, env = "MKEY_ADDRESS", value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    pub address: IpAddr,

    /// How programs in other processes are reached; within one process no packet is sent
    #[arg(long, hide_env = true, env = "MKEY_LINK", value_enum, default_value_t = Link::Auto)]
    pub link: Link,

    /// Bytes of payload of a packet at most [default: as the network of the address takes]. By shared
    /// memory they are 61440 whatever is said here
    #[arg(long, hide_env = true, env = "MKEY_MTU", value_name = "BYTES", value_parser = mtu())]
    pub mtu: Option<u32>,

    /// What befalls packets that are sent, such as loss=1%,dup=0.1%,reorder=1%,corrupt=0.1%,delay=1ms,seed=7:
    /// each part may be left out, and the same seed gives the same faults
    #[arg(long, hide_env = true, env = "MKEY_FAULTS", value_name = "SPEC", value_parser = faults)]
    pub faults: Option<String>,

    /// Write the packets that are sent and received to a file in the format of libpcap; programs that the
    /// program starts add to it. It grows without limit, by all that is transferred.
    ///
    /// A capture that is there is begun anew, unless a program adds to it still: then it goes on, so that
    /// both sides of a connection may name one file. Each packet is in it twice then, once as sent and once
    /// as received; `mkey pcap` counts it once. A file that is no capture is refused.
    ///
    /// By shared memory packets are larger than on any wire, of up to 61440 bytes of payload; with `--link udp`
    /// they are those that a wire would have.
    #[arg(long, hide_env = true, env = "MKEY_CAPTURE", value_name = "FILE.pcap")]
    pub capture: Option<PathBuf>,

    /// Let a program write by itself into memory of another one of this user and host, instead of waking
    /// it, where an RDMA WRITE of the same queue pair was let in before (experimental). Both sides have to
    /// be run so, and the kernel has to tell of unmapping (userfaultfd). A peer that is stopped in the
    /// middle of a WRITE (debugger, SIGSTOP, core dump) then holds up deregistering for as long as it is,
    /// and ending a queue pair or unmapping registered memory for half a second, after which its WRITE may
    /// still come; pages that were made read-only are written to; and where the kernel lets only a
    /// program's ancestors write to it (Yama), any of its user's may from then on
    #[arg(long, hide_env = true, env = "MKEY_DIRECT", value_parser = BoolishValueParser::new(), conflicts_with_all = ["faults", "capture"])]
    pub direct: bool,

    /// Declared time of one device command, as in 16us, which a NIC executes and this does not: added to
    /// each registration, deregistration and allocation, never to posted work
    #[arg(long, hide_env = true, env = "MKEY_COMMAND_COST", value_name = "TIME", default_value = "0ns", value_parser = parse_cost)]
    pub command_cost: Duration,

    /// Hide real devices
    #[arg(long, hide_env = true, env = "MKEY_ONLY", value_parser = BoolishValueParser::new())]
    pub only: bool,

    /// How pages are pinned
    #[arg(long, hide_env = true, env = "MKEY_PIN", value_enum, default_value_t = Pin::Kernel)]
    pub pin: Pin,

    /// What an access meets whose pages the program has unmapped under a live registration
    #[arg(long, hide_env = true, env = "MKEY_STALE", value_enum, default_value_t = Stale::Refuse)]
    pub stale: Stale,

    /// Tell in words of each refused access, of memory that was given back while it was registered, and
    /// of memory that stayed registered to the end; "-" is standard error. A file that is there is added to
    #[arg(long, hide_env = true, env = "MKEY_REFUSALS", value_name = "FILE")]
    pub refusals: Option<OsString>,
}

impl SoftArgs {
    /// How the device of this name is opened.
    pub fn options(&self, name: &str) -> SoftOptions {
        SoftOptions {
            pin: self.pin.mode(),
            link: self.link.link(),
            mtu: self.mtu,
            direct: self.direct,
            command_cost: self.command_cost,
            ..SoftOptions::new(name, self.address)
        }
    }
}

/// The sizes that there are (`enum ibv_mtu`).
fn mtu() -> impl clap::builder::TypedValueParser<Value = u32> {
    PossibleValuesParser::new(["256", "512", "1024", "2048", "4096"])
        .try_map(|size| size.parse::<u32>())
}

/// An address that a port can have.
fn address(words: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        words.parse().map_err(|_| "an IP address is like 10.0.0.1 or fd00::1".to_owned())?;
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    match address.is_unspecified() || address.is_multicast() || broadcast {
        true => Err("it names no single port: give one that this host has".to_owned()),
        false => Ok(address),
    }
}

/// The words for faults, which the programs read themselves.
fn faults(words: &str) -> Result<String, FaultsError> {
    words.parse::<Faults>().map(|_| words.to_owned())
}

/// How programs in other processes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Link {
    /// Those of this user, host and network namespace by shared memory, others by UDP
    Auto,
    /// Those of this user, host and network namespace by shared memory, others not at all
    Shm,
    /// By RoCEv2 over UDP, also on this host: the address has to be one of it
    Udp,
}

impl Link {
    /// The device's word for it.
    pub fn link(self) -> mkey_soft::Link {
        match self {
            Self::Auto => mkey_soft::Link::Auto,
            Self::Shm => mkey_soft::Link::SharedMemory,
            Self::Udp => mkey_soft::Link::Udp,
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Udp => "udp",
        })
    }
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
