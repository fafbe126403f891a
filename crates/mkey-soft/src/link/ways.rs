//! Which links a port has, and which of them leads to a peer.

use super::datagram::address;
use super::shm::{BLOCK_BITS, Endpoint};
use super::udp::Udp;
use super::{Inbound, Link, Path, VirtualNetwork};
use crate::driver::Driver;
use crate::options;
use mkey_core::device::Gid;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The links of a port.
#[derive(Debug)]
pub(super) enum Ways {
    /// All goes by packets then, and one drives all.
    Virtual {
        network: Arc<VirtualNetwork>,
        link: Arc<dyn Link>,
    },
    Real(Real),
}

/// Links to other processes. Each is made when it is first needed.
#[derive(Debug)]
pub(super) struct Real {
    gid: Gid,
    choice: Choice,
    shared: OnceLock<io::Result<Arc<Endpoint>>>,
    udp: OnceLock<io::Result<Arc<Udp>>>,
    /// Ports that were found to be on other hosts.
    far: RwLock<HashSet<Gid>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Auto,
    SharedMemory,
    Udp,
}

impl Ways {
    /// The links of a port that is opened so; `None` if it has none.
    pub(super) fn new(link: &options::Link, gid: Gid) -> Option<Self> {
        let choice = match link {
            options::Link::None => return None,
            options::Link::Virtual(_) => return Self::in_memory(link, gid),
            options::Link::Auto => Choice::Auto,
            options::Link::SharedMemory => Choice::SharedMemory,
            options::Link::Udp => Choice::Udp,
        };
        let (shared, udp) = (OnceLock::new(), OnceLock::new());
        Some(Self::Real(Real { gid, choice, shared, udp, far: RwLock::default() }))
    }

    /// The same, if it is a network in memory.
    pub(super) fn in_memory(link: &options::Link, gid: Gid) -> Option<Self> {
        let options::Link::Virtual(network) = link else { return None };
        let (network, link) = (network.clone(), network.attach(gid));
        Some(Self::Virtual { network, link })
    }

    /// The network in memory, if it is one.
    pub(super) fn network(&self) -> Option<&Arc<VirtualNetwork>> {
        match self {
            Self::Virtual { network, .. } => Some(network),
            Self::Real(_) => None,
        }
    }

    /// A number that is not of another process: which, `counter` tells. `tries` were in use.
    pub(super) fn number(&self, counter: u32, tries: u32) -> Option<u32> {
        if let Self::Real(real) = self {
            let made = real.shared.get_or_init(|| Endpoint::of(real.gid, counter >> BLOCK_BITS));
            if let Ok(endpoint) = made {
                return endpoint.number(counter, tries);
            }
        }
        Some(counter % (1 << 24))
    }

    /// Whether a number at this port is of this process.
    pub(super) fn owns(&self, gid: Gid, qp_num: u32) -> bool {
        match self {
            Self::Virtual { .. } => false,
            Self::Real(real) => {
                gid == real.gid && real.shared().is_some_and(|shared| shared.owns(qp_num))
            }
        }
    }

    /// Makes those links that this peer, or any, needs; whether there is one.
    pub(super) fn open(&self, driver: &'static Driver, peer: Option<(Gid, u32)>) -> bool {
        let Self::Real(real) = self else { return true };
        if let Some(shared) = real.shared() {
            shared.open(driver);
        }
        let by_udp = match real.choice {
            Choice::SharedMemory => false,
            Choice::Udp => true,
            Choice::Auto => match peer {
                Some((gid, number)) => gid != real.gid && !Endpoint::is_on_this_host(gid, number),
                None => !address(real.gid).is_loopback(),
            },
        };
        if by_udp && let Some(udp) = real.udp() {
            udp.open(driver);
        }
        real.made().next().is_some()
    }

    /// As [`Link::path`].
    pub(super) fn path(&self, gid: Gid, qp_num: u32, lasting: bool) -> Option<Arc<dyn Path>> {
        let real = match self {
            Self::Virtual { link, .. } => return link.path(gid, qp_num, lasting),
            Self::Real(real) => real,
        };
        let shared = || real.shared()?.path(gid, qp_num, lasting);
        match real.choice {
            Choice::SharedMemory => shared(),
            Choice::Udp => real.udp()?.path(gid, qp_num, lasting),
            Choice::Auto if gid == real.gid => shared(),
            Choice::Auto => {
                // Looked up anew for each connection: of datagrams that would be slow.
                if lasting || !real.is_known_to_be_far(gid) {
                    if let Some(path) = shared() {
                        return Some(path);
                    }
                    // It only does not listen yet.
                    if Endpoint::is_on_this_host(gid, qp_num) {
                        return None;
                    }
                    real.far.write().unwrap_or_else(PoisonError::into_inner).insert(gid);
                }
                real.udp()?.path(gid, qp_num, lasting)
            }
        }
    }

    /// As [`Link::receive`].
    pub(super) fn receive(&self, wait: bool, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        match self {
            Self::Virtual { link, .. } => link.receive(wait, deliver),
            Self::Real(real) => real.made().filter(|link| link.receive(wait, deliver)).count() > 0,
        }
    }

    /// As [`Link::hang_bells`].
    pub(super) fn hang_bells(&self) -> bool {
        match self {
            Self::Virtual { .. } => false,
            Self::Real(real) => real.made().filter(|link| link.hang_bells()).count() > 0,
        }
    }

    /// As [`Link::take_bells_down`].
    pub(super) fn take_bells_down(&self, program_polls: bool) {
        if let Self::Real(real) = self {
            real.made().for_each(|link| link.take_bells_down(program_polls));
        }
    }

    /// Why a peer may not have answered, in words.
    pub(super) fn why_no_answer(&self, gid: Gid, qp_num: u32) -> String {
        let Self::Real(real) = self else {
            return "its packets, or the answers, were lost".to_owned();
        };
        if real.choice == Choice::SharedMemory || real.choice == Choice::Auto && gid == real.gid {
            return real.why_not_here(gid, qp_num);
        }
        if real.choice == Choice::Auto && Endpoint::is_on_this_host(gid, qp_num) {
            return real.why_not_here(gid, qp_num);
        }
        real.why_not_there(gid)
    }

    /// What there is not although there was to be, in words.
    pub(super) fn troubles(&self) -> Vec<String> {
        let Self::Real(real) = self else { return Vec::new() };
        let mut troubles = Vec::new();
        if let Some(Err(error)) = real.shared.get() {
            troubles.push(format!(
                "processes of this host are not reached by shared memory, and their queue pairs may \
                 have the numbers of ours, since there is no folder to meet in: {error}"
            ));
        }
        if let Some(why) = real.shared().and_then(|shared| shared.trouble()) {
            troubles.push(format!(
                "processes of this host can not connect by shared memory, as there is no place for them \
                 to do so: {why}"
            ));
        }
        match real.udp.get() {
            Some(Err(error)) => {
                troubles.push(format!("other hosts are not reached: {}", no_udp(real.gid, error)));
            }
            Some(Ok(udp)) => troubles.extend(udp.trouble()),
            None => {}
        }
        troubles
    }
}

/// Whether a port can have RoCEv2's UDP port; else why not, in words.
pub(crate) fn check_udp(gid: Gid) -> Result<(), String> {
    Udp::check(gid).map_err(|error| no_udp(gid, &error))
}

fn no_udp(gid: Gid, error: &io::Error) -> String {
    let (address, port) = (super::datagram::address(gid), mkey_wire::udp::ROCE_PORT);
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => " (another user's process has it, or the kernel's soft-RoCE)",
        io::ErrorKind::AddrNotAvailable => " (it is no address of this host)",
        _ => "",
    };
    format!("UDP port {port} of {address} can not be used: {error}{why}")
}

impl Real {
    /// Why a process of this host may not have answered.
    fn why_not_here(&self, gid: Gid, qp_num: u32) -> String {
        let shared = match self.shared.get() {
            Some(Ok(shared)) => shared,
            Some(Err(error)) => {
                return format!("there is no folder for processes to meet in: {error}");
            }
            None => return "it is by shared memory only, which was not begun".to_owned(),
        };
        if let Some(why) = shared.trouble() {
            return format!("this process could not be connected to: {why}");
        }
        if !Endpoint::is_on_this_host(gid, qp_num) {
            return "no process of this user has it in this network namespace: it has ended, or it is \
                    another user's or in another namespace, to which packets go by UDP, for which each \
                    side needs an address of its own"
                .to_owned();
        }
        match shared.try_to_connect(gid, qp_num) {
            Err(error) => format!("its process can not be connected to: {error}"),
            Ok(()) => {
                "its process is there, but the queue pair is not connected with this one, or the \
                       process was stopped"
                    .to_owned()
            }
        }
    }

    /// Why one that is reached by UDP may not have answered.
    fn why_not_there(&self, gid: Gid) -> String {
        match self.udp.get() {
            Some(Err(error)) => no_udp(self.gid, error),
            None => "it is by UDP only, which was not begun".to_owned(),
            Some(Ok(_)) if address(self.gid).is_loopback() != address(gid).is_loopback() => {
                format!(
                    "{} and {} do not reach each other: each side needs an address of its host",
                    address(self.gid),
                    address(gid)
                )
            }
            Some(Ok(_)) => format!(
                "UDP packets to port {} of {} had no answer: the queue pair is not there or not \
                 connected with this one, or packets do not get there and back",
                mkey_wire::udp::ROCE_PORT,
                address(gid)
            ),
        }
    }

    fn shared(&self) -> Option<&Arc<Endpoint>> {
        self.shared.get()?.as_ref().ok()
    }

    fn udp(&self) -> Option<&Arc<Udp>> {
        let made = self.udp.get_or_init(|| Udp::of(self.gid, self.shared().cloned()));
        made.as_ref().ok()
    }

    /// The links that there are.
    fn made(&self) -> impl Iterator<Item = &dyn Link> {
        let shared = self.shared().map(|shared| &**shared as &dyn Link);
        let udp = self.udp.get().and_then(|udp| udp.as_ref().ok()).map(|udp| &**udp as &dyn Link);
        shared.into_iter().chain(udp)
    }

    fn is_known_to_be_far(&self, gid: Gid) -> bool {
        self.far.read().unwrap_or_else(PoisonError::into_inner).contains(&gid)
    }
}
