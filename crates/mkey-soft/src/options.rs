//! How a software RNIC is opened.

use crate::clock::{Clock, RealClock};
use crate::link::{Capture, Faults, VirtualNetwork};
use crate::listener::Listener;
use mkey_core::device::Gid;
use mkey_os::accounting::Accountant;
pub use mkey_os::pin::PinMode;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// What happens to an access whose pages the program has unmapped, discarded or moved under a live
/// registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stale {
    /// It is refused, and the log of refusals tells by which event the pages were detached.
    #[default]
    Refuse,
    /// As a NIC does: the pages that were pinned are read and written, whatever the program has at
    /// the address now. Needs pages pinned by the kernel; others are refused.
    Nic,
}

/// How queue pairs of other processes are reached. Those of this process are reached without any
/// of it, unless the link says otherwise.
///
/// On a [virtual clock](crate::VirtualClock) only the network in memory is one: other processes live by
/// real time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Link {
    /// They are not.
    None,
    /// Those of other processes of this user, on this host and in this network namespace, by shared
    /// memory; all others by UDP.
    #[default]
    Auto,
    /// Those of other processes of this user, on this host and in this network namespace, by shared
    /// memory; others not at all.
    ///
    /// Nothing is lost on this way, so a peer that is alive and has not looked yet at what it was sent is
    /// waited for: for 5 seconds its silence uses up none of a queue pair's tries. That a peer has
    /// ended shows by itself.
    SharedMemory,
    /// By RoCEv2 over UDP, from the port's address. That must be one of this host, and its UDP port
    /// 4791 free, or of processes of the same user.
    ///
    /// Nobody signs these packets: a queue pair takes what has the address of its peer, its own number,
    /// and a sequence number that fits, and a host on the way, or one that may send from any address,
    /// can make such packets. The UDP port that a packet comes from is not looked at, as devices
    /// choose it for the sake of routing and may change it.
    Udp,
    /// By a network in memory, which also carries all that queue pairs of this process say to each
    /// other: for tests.
    Virtual(Arc<VirtualNetwork>),
}

impl Link {
    /// Whether a port with this address can have the link, now.
    ///
    /// # Errors
    /// In words, if RoCEv2's UDP port is asked for and is not to be had: the address is not of this
    /// host, or somebody else has the port, such as the kernel's own soft-RoCE.
    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        match self {
            Self::Udp => crate::link::check_udp(gid_of(address)),
            _ => Ok(()),
        }
    }
}

/// How to open a [`SoftDevice`](crate::SoftDevice).
#[derive(Clone, Debug)]
pub struct SoftOptions {
    /// The device's name.
    pub name: String,
    /// Its port's address; peers name the device by it. Devices of one process may share one.
    pub gid: Gid,
    /// How queue pairs of other processes are reached.
    pub link: Link,
    /// Bytes of payload of a packet at most, 256 to 4096; `None`: as much as the network of the
    /// port's address takes.
    pub mtu: Option<u32>,
    /// What befalls packets on their way.
    pub faults: Option<Faults>,
    /// Who is shown the packets.
    pub capture: Option<Arc<dyn Capture>>,
    /// Whether a peer that is reached by shared memory, and asks for the same, may write by itself to
    /// regions of this process that WRITEs of its queue pair were let in to before, and the other way
    /// round. Not with [`Stale::Nic`]. Only memory that is pinned and [watched](Self::watch) is written so.
    ///
    /// What that changes:
    /// * A peer that is stopped in the middle of a WRITE (a debugger, SIGSTOP, a frozen container, a core
    ///   that is being written) is waited for by who deregisters or registers anew, however long that is.
    ///   Who ends a queue pair or unmaps registered memory waits for half a second, during the latter with
    ///   all accesses of the process stopped; what such a WRITE does if the peer goes on later is not
    ///   guaranteed, and the device's notes count it.
    /// * Page protections are not looked at, as a NIC does not: a peer writes to pages that were made
    ///   read-only or inaccessible after they were registered.
    /// * A post may wait for as long as the target's kernel is busy with its address space (a fork or an
    ///   unmapping of very much memory).
    /// * What is longer than 8 bytes, or not in one aligned word, is stored in whatever order the kernel
    ///   does; only the last word comes last. A word in front of or within a longer WRITE may be seen in
    ///   parts.
    /// * Where the kernel lets only ancestors write to a process (Yama), all processes of the user may read
    ///   and write this one's memory from the first such region on until it ends.
    /// * A peer of the same user that writes nonsense to the memory that both share may be waited for as if
    ///   it was stopped, or go on writing to what was lent to it.
    pub direct: bool,
    /// How pages are pinned.
    pub pin: PinMode,
    /// What an access to detached pages meets.
    pub stale: Stale,
    /// Whether the device hears of it when the program unmaps, discards or moves registered pages.
    /// That costs such calls some microseconds; without it stale registrations are not detected.
    pub watch: bool,
    /// A declared time that registering, re-registering, deregistering and allocating a window or
    /// a fast-registration region take longer: the firmware command of a NIC. Spent busy-waiting
    /// and counted in [`RegistrationTerms::command`](mkey_core::device::RegistrationTerms); never
    /// charged to posted work.
    pub command_cost: Duration,
    /// The most keys that may be live, up to 2^24 - 1.
    pub max_keys: u32,
    /// Makes keys and queue pair numbers repeatable; `None`: from the operating system.
    pub seed: Option<u64>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether pinned memory counts against RLIMIT_MEMLOCK as the verbs count it.
    pub accounting: bool,
    /// An account of the device's own, instead of the one that all devices of the process share.
    pub accountant: Option<Arc<Accountant>>,
    /// Whether the whole address space may be registered for on-demand paging.
    pub implicit_odp: bool,
    /// How many refusals the log keeps.
    pub refusal_log: usize,
    /// Who is told of refusals and of pages that were taken away, as it happens.
    pub listener: Option<Arc<dyn Listener>>,
    /// Whether registrations are timed by term
    /// ([`registration_terms`](mkey_core::device::Device::registration_terms)).
    pub measure: bool,
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            name: "soft0".to_owned(),
            gid: gid_of(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
            link: Link::default(),
            mtu: None,
            faults: None,
            capture: None,
            direct: false,
            pin: PinMode::Kernel,
            stale: Stale::default(),
            watch: true,
            command_cost: Duration::ZERO,
            max_keys: mkey_core::key::MAX_KEYS,
            seed: None,
            clock: Arc::new(RealClock::new()),
            accounting: true,
            accountant: None,
            implicit_odp: true,
            refusal_log: 256,
            listener: None,
            measure: false,
        }
    }
}

impl SoftOptions {
    /// The defaults with a name and an address.
    pub fn new(name: impl Into<String>, address: IpAddr) -> Self {
        Self { name: name.into(), gid: gid_of(address), ..Self::default() }
    }
}

/// The identifier of a port with this address: an IPv6 address as it is, an IPv4 address mapped
/// into IPv6, as RoCEv2 does.
pub fn gid_of(address: IpAddr) -> Gid {
    Gid(match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}
