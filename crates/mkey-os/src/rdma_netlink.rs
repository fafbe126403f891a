//! What the kernel tells of RDMA objects by netlink (include/uapi/rdma/rdma_netlink.h): the
//! counters of a memory region, as `rdma statistic show mr` prints them, which driver a device is of,
//! what holds for all devices, and in [`resources`] what objects there are and whose they are.
//!
//! Drivers differ in what they count. mlx5 counts the pages of on-demand regions; soft-RoCE counts
//! nothing for a region.

mod message;
pub mod resources;

use self::message::{Answer, Request, attributes, dump};
use crate::error::{Errno, OsError};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::os::fd::OwnedFd;

/// A counter of an object: its name, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// As the driver calls it.
    pub name: String,
    /// How far it has come.
    pub value: u64,
}

/// Why the kernel's word on an object can not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetlinkError {
    /// A system call, or the kernel's answer to a request.
    #[error(transparent)]
    System(#[from] OsError),
    /// There is no such device.
    #[error("the kernel has no RDMA device {device}")]
    NoDevice {
        /// Its name.
        device: String,
    },
    /// The kernel lists no region with this key.
    #[error("the kernel lists no memory region with the lkey {lkey:#x}")]
    NoRegion {
        /// The key.
        lkey: u32,
    },
    /// The kernel lists regions without their keys.
    #[error(
        "the kernel tells the keys of memory regions only to who may administer the network \
         (CAP_NET_ADMIN)"
    )]
    KeysHidden,
    /// An answer that is not what netlink's rules allow.
    #[error("an answer of the kernel can not be read: {what}")]
    Unreadable {
        /// What is wrong with it.
        what: &'static str,
    },
}

/// The counters that the driver of `device` keeps for the memory region `lkey`; none where it keeps
/// none.
///
/// # Errors
/// [`NetlinkError`].
pub fn mr_counters(device: &str, lkey: u32) -> Result<Vec<Counter>, NetlinkError> {
    let mut socket = Socket::open()?;
    let index = device_index(&mut socket, device)?;
    let mrn = region_number(&mut socket, index, lkey)?;
    let request = Request::new(message::STAT_GET)
        .u32(message::DEV_INDEX, index)
        .u32(message::STAT_RES, u32::from(message::RES_MR))
        .u32(message::RES_MRN, mrn);
    let mut counters = Vec::new();
    socket.ask(&request, |answer| counters_of(answer, &mut counters))?;
    Ok(counters)
}

/// How the kernel numbers the driver of `device` (`enum rdma_driver_id`); `None` where the driver
/// does not let it tell.
///
/// # Errors
/// [`NetlinkError`]; `System` with `EINVAL` of kernels before 5.3.
pub fn driver_id(device: &str) -> Result<Option<u32>, NetlinkError> {
    let mut socket = Socket::open()?;
    let index = device_index(&mut socket, device)?;
    // The kernel tells it with the device's file for programs.
    let request = Request::new(message::GET_CHARDEV)
        .u32(message::DEV_INDEX, index)
        .text(message::CHARDEV_TYPE, "uverbs");
    let mut id = None;
    socket.ask(&request, |answer| {
        id = attributes(answer).u32(message::UVERBS_DRIVER_ID)?;
        Ok(())
    })?;
    Ok(id)
}

/// What holds for all devices, as `rdma system show` prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Pages pinned by a parent are copied for a child at fork: fork protection is not needed. `None`
    /// where the kernel does not tell (before 5.12).
    pub copy_on_fork: Option<bool>,
    /// Each device belongs to one network namespace; else all see all devices.
    pub netns_exclusive: Option<bool>,
}

/// Reads it.
///
/// # Errors
/// [`NetlinkError`].
pub fn system() -> Result<System, NetlinkError> {
    let mut socket = Socket::open()?;
    let mut system = System::default();
    socket.ask(&Request::new(message::SYS_GET), |answer| {
        system = system_of(answer)?;
        Ok(())
    })?;
    Ok(system)
}

fn system_of(answer: &[u8]) -> Result<System, Unreadable> {
    let answer = attributes(answer);
    Ok(System {
        copy_on_fork: answer.u8(message::SYS_COPY_ON_FORK)?.map(|on| on != 0),
        // RDMA_SYS_NETNS_MODE: 1 where it is shared.
        netns_exclusive: answer.u8(message::SYS_NETNS_MODE)?.map(|shared| shared == 0),
    })
}

/// The counters in an answer.
fn counters_of(answer: &[u8], into: &mut Vec<Counter>) -> Result<(), Unreadable> {
    let Some(table) = attributes(answer).get(message::STAT_HWCOUNTERS)? else { return Ok(()) };
    for entry in attributes(table).all(message::STAT_HWCOUNTER_ENTRY) {
        let entry = attributes(entry?);
        let name = entry.text(message::STAT_HWCOUNTER_ENTRY_NAME)?;
        let value = entry.u64(message::STAT_HWCOUNTER_ENTRY_VALUE)?;
        if let (Some(name), Some(value)) = (name, value) {
            into.push(Counter { name: name.to_owned(), value });
        }
    }
    Ok(())
}

/// What the kernel numbers a device by.
fn device_index(socket: &mut Socket, device: &str) -> Result<u32, NetlinkError> {
    let mut found = None;
    socket.ask(&dump(message::GET), |answer| {
        let answer = attributes(answer);
        if answer.name(message::DEV_NAME)?.as_deref() == Some(device) {
            found = answer.u32(message::DEV_INDEX)?;
        }
        Ok(())
    })?;
    found.ok_or_else(|| NetlinkError::NoDevice { device: device.to_owned() })
}

/// What the kernel numbers the region `lkey` of a device by.
fn region_number(socket: &mut Socket, index: u32, lkey: u32) -> Result<u32, NetlinkError> {
    let mut search = Search { lkey, found: None, hidden: false };
    let request = dump(message::RES_MR_GET).u32(message::DEV_INDEX, index);
    socket.ask(&request, |answer| search.look(answer))?;
    match search.found {
        Some(number) => Ok(number),
        None if search.hidden => Err(NetlinkError::KeysHidden),
        None => Err(NetlinkError::NoRegion { lkey }),
    }
}

/// A search for a region by its key.
struct Search {
    lkey: u32,
    /// Its number.
    found: Option<u32>,
    /// Some region is listed without a key.
    hidden: bool,
}

impl Search {
    /// Looks through the regions of an answer.
    fn look(&mut self, answer: &[u8]) -> Result<(), Unreadable> {
        let Some(table) = attributes(answer).get(message::RES_MR)? else { return Ok(()) };
        for entry in attributes(table).all(message::RES_MR_ENTRY) {
            let entry = attributes(entry?);
            match entry.u32(message::RES_LKEY)? {
                Some(key) if key == self.lkey => self.found = entry.u32(message::RES_MRN)?,
                Some(_) => {}
                None => self.hidden = true,
            }
        }
        Ok(())
    }
}

/// How often a list is asked for that changes while the kernel gives it.
const TRIES: u32 = 8;
/// The kernel gives a list in pieces of at most this size.
const PIECE: usize = 32 << 10;

/// A socket to the kernel's RDMA part.
struct Socket {
    fd: OwnedFd,
    sequence: u32,
    piece: Vec<u8>,
}

impl Socket {
    fn open() -> Result<Self, NetlinkError> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let protocol = Some(netlink::RDMA);
        let fd = net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)
            .map_err(|errno| OsError::new("socket (netlink, RDMA)", errno))?;
        Ok(Self { fd, sequence: 0, piece: vec![0; PIECE] })
    }

    /// Asks the kernel, and hands each object of its answer to `each`: again, from the first, where
    /// the list changed meanwhile.
    fn ask(
        &mut self,
        request: &Request,
        mut each: impl FnMut(&[u8]) -> Result<(), Unreadable>,
    ) -> Result<(), NetlinkError> {
        for _ in 0..TRIES {
            if self.ask_once(request, &mut each)? == Whole::Yes {
                return Ok(());
            }
        }
        Err(restless())
    }

    fn ask_once(
        &mut self,
        request: &Request,
        each: &mut impl FnMut(&[u8]) -> Result<(), Unreadable>,
    ) -> Result<Whole, NetlinkError> {
        self.sequence += 1;
        net::send(&self.fd, &request.bytes(self.sequence), SendFlags::empty())
            .map_err(|errno| OsError::new("send (netlink, RDMA)", errno))?;
        self.answers(each)
    }

    /// Asks the kernel for a list, begun anew where it changed meanwhile.
    fn list<T>(
        &mut self,
        request: &Request,
        each: impl Fn(&[u8], &mut Vec<T>) -> Result<(), Unreadable>,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut list = Vec::new();
        for _ in 0..TRIES {
            list.clear();
            if self.ask_once(request, &mut |answer| each(answer, &mut list))? == Whole::Yes {
                return Ok(list);
            }
        }
        Err(restless())
    }

    fn answers(
        &mut self,
        each: &mut impl FnMut(&[u8]) -> Result<(), Unreadable>,
    ) -> Result<Whole, NetlinkError> {
        let mut whole = Whole::Yes;
        loop {
            // The answer to a request is there when `send` returns, the next piece of a list when
            // the last is read.
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let (length, _) = net::recv(&self.fd, self.piece.as_mut_slice(), flags)
                .map_err(|errno| OsError::new("recv (netlink, RDMA)", errno))?;
            let piece = self.piece.get(..length).ok_or(Unreadable("a piece is cut off"))?;
            for answer in message::answers(piece, self.sequence) {
                match answer? {
                    Answer::Object { payload, changed } => {
                        each(payload)?;
                        if changed {
                            whole = Whole::No;
                        }
                    }
                    Answer::Done { changed: true } => return Ok(Whole::No),
                    Answer::Done { changed: false } => return Ok(whole),
                    Answer::Refused(errno) => {
                        let errno = Errno::from_raw_os_error(errno);
                        return Err(OsError::new("the kernel's RDMA netlink", errno).into());
                    }
                    Answer::Other => {}
                }
            }
        }
    }
}

fn restless() -> NetlinkError {
    OsError::new("a list of RDMA objects that does not come to rest", Errno::INTR).into()
}

/// Whether a list was whole, or changed while it was given.
#[derive(PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unreadable(&'static str);

impl From<Unreadable> for NetlinkError {
    fn from(Unreadable(what): Unreadable) -> Self {
        Self::Unreadable { what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute with its padding.
    pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    pub(super) fn table(kind: u16, entries: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind | 0x8000, &entries.concat())
    }

    /// As mlx5 answers for an on-demand region.
    #[test]
    fn counters_are_told_by_name() {
        let counter = |name: &[u8], value: u64| {
            let name = attribute(message::STAT_HWCOUNTER_ENTRY_NAME, name);
            let value = attribute(message::STAT_HWCOUNTER_ENTRY_VALUE, &value.to_ne_bytes());
            table(message::STAT_HWCOUNTER_ENTRY, &[name, value])
        };
        let counters = [counter(b"page_faults\0", 3), counter(b"page_prefetch\0", u64::MAX)];
        let answer = [
            attribute(message::DEV_INDEX, &2u32.to_ne_bytes()),
            attribute(message::DEV_NAME, b"mlx5_0\0"),
            attribute(message::RES_MRN, &8u32.to_ne_bytes()),
            table(message::STAT_HWCOUNTERS, &counters),
        ]
        .concat();
        let mut read = Vec::new();
        counters_of(&answer, &mut read).unwrap();
        let counter = |name: &str, value| Counter { name: name.to_owned(), value };
        assert_eq!(read, [counter("page_faults", 3), counter("page_prefetch", u64::MAX)]);
        // Without the table: a driver that counts nothing.
        let mut read = Vec::new();
        counters_of(&answer[..28], &mut read).unwrap();
        assert_eq!(read, []);
        assert!(counters_of(&answer[..50], &mut read).is_err());
    }

    #[test]
    fn a_region_is_found_by_its_key_and_hidden_keys_are_told() {
        let region = |key: Option<u32>, number: u32| {
            let key = key.map(|key| attribute(message::RES_LKEY, &key.to_ne_bytes()));
            let number = attribute(message::RES_MRN, &number.to_ne_bytes());
            table(message::RES_MR_ENTRY, &[key.unwrap_or_default(), number])
        };
        let search = |regions: &[Vec<u8>]| {
            let mut search = Search { lkey: 0x1234, found: None, hidden: false };
            search.look(&table(message::RES_MR, regions)).unwrap();
            (search.found, search.hidden)
        };
        assert_eq!(search(&[region(Some(1), 4), region(Some(0x1234), 5)]), (Some(5), false));
        assert_eq!(search(&[region(Some(1), 4)]), (None, false));
        assert_eq!(search(&[region(None, 4)]), (None, true));
        assert_eq!(search(&[]), (None, false));
    }

    #[test]
    fn what_holds_for_all_devices_is_told() {
        let answer =
            [attribute(message::SYS_NETNS_MODE, &[1]), attribute(message::SYS_COPY_ON_FORK, &[1])]
                .concat();
        let told = System { copy_on_fork: Some(true), netns_exclusive: Some(false) };
        assert_eq!(system_of(&answer), Ok(told));
        assert_eq!(system_of(&[]), Ok(System::default()));
        assert!(system_of(&attribute(message::SYS_COPY_ON_FORK, &[])).is_err());
    }

    /// On machines without RDMA, too: there is no netlink of RDMA then, or no such device.
    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        let counters = mr_counters("no such device", 1).unwrap_err();
        for error in [counters, driver_id("no such device").unwrap_err()] {
            match error {
                NetlinkError::System(error) => assert!(error.call.contains("netlink"), "{error}"),
                error => {
                    let device = "no such device".to_owned();
                    assert_eq!(error, NetlinkError::NoDevice { device });
                }
            }
        }
    }
}
