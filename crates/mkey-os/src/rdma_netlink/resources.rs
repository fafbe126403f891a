//! What objects a device has, and whose they are, as `rdma resource show` prints it. No privilege is
//! needed to read it. Memory windows are not among what the kernel counts.

use super::message::{self, Attributes, attributes, dump};
use super::{Counter, NetlinkError, Socket, Unreadable, counters_of, device_index};
use std::collections::BTreeMap;

/// The objects of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub device: String,
    /// By kind.
    pub objects: Vec<InUse>,
}

/// How many objects of a kind there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// As the kernel calls it: `pd`, `cq`, `qp`, `cm_id`, `mr`, `ctx`, `srq`.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// The most there may be, where the kernel tells; older ones do not.
    pub most: Option<u64>,
}

/// Kinds of objects that the kernel lists one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Protection domains.
    Pd,
    /// Completion queues.
    Cq,
    /// Queue pairs.
    Qp,
    /// Memory regions.
    Mr,
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A process, by its number as this one sees it; 0 if the kernel does not tell, as of one in
    /// another namespace, and of a thread that made an object and has ended since.
    Process(u32),
    /// A part of the kernel.
    Kernel(String),
}

/// A memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// What the kernel numbers it by.
    pub number: u32,
    /// Whose it is.
    pub owner: Owner,
    /// Its length in bytes.
    pub bytes: u64,
    /// What its driver counts for it. Nothing for one whose pages are pinned, and of drivers that
    /// count nothing.
    pub counters: Vec<Counter>,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Mr, Self::Qp, Self::Cq, Self::Pd];

    /// As [`InUse::kind`] has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pd => "pd",
            Self::Cq => "cq",
            Self::Qp => "qp",
            Self::Mr => "mr",
        }
    }

    /// The command that lists them, the list, and one of it.
    fn numbers(self) -> (u16, u16, u16) {
        match self {
            Self::Pd => (message::RES_PD_GET, message::RES_PD, message::RES_PD_ENTRY),
            Self::Cq => (message::RES_CQ_GET, message::RES_CQ, message::RES_CQ_ENTRY),
            Self::Qp => (message::RES_QP_GET, message::RES_QP, message::RES_QP_ENTRY),
            Self::Mr => (message::RES_MR_GET, message::RES_MR, message::RES_MR_ENTRY),
        }
    }
}

/// How many objects each device has.
///
/// # Errors
/// [`NetlinkError`].
pub fn summaries() -> Result<Vec<Summary>, NetlinkError> {
    let mut socket = Socket::open()?;
    let mut found = BTreeMap::new();
    socket.ask(&dump(message::RES_GET), |answer| {
        if let Some(summary) = summary_of(answer)? {
            // Again, where the list is asked for again.
            found.insert(summary.device.clone(), summary);
        }
        Ok(())
    })?;
    Ok(found.into_values().collect())
}

/// How many objects of each kind a device has.
///
/// # Errors
/// [`NetlinkError`].
pub fn in_use(device: &str) -> Result<Vec<InUse>, NetlinkError> {
    let found = summaries()?.into_iter().find(|summary| summary.device == device);
    let found = found.ok_or_else(|| NetlinkError::NoDevice { device: device.to_owned() })?;
    Ok(found.objects)
}

/// How many objects of a kind a device has, by whose they are.
///
/// # Errors
/// [`NetlinkError`].
pub fn owners(device: &str, kind: Kind) -> Result<BTreeMap<Owner, u64>, NetlinkError> {
    let mut makers: BTreeMap<Owner, u64> = BTreeMap::new();
    for entry in list(device, kind, None)? {
        *makers.entry(maker_of(attributes(&entry))?).or_default() += 1;
    }
    let mut counts = BTreeMap::new();
    for (maker, count) in makers {
        *counts.entry(owner(maker)).or_default() += count;
    }
    Ok(counts)
}

/// The memory regions of a device, each with what is counted for it.
///
/// # Errors
/// [`NetlinkError`].
pub fn regions(device: &str) -> Result<Vec<Region>, NetlinkError> {
    let (mut regions, mut owners) = (BTreeMap::new(), BTreeMap::new());
    for entry in list(device, Kind::Mr, None)? {
        if let Some(mut region) = region_of(attributes(&entry))? {
            let known = owners.entry(region.owner.clone());
            region.owner = known.or_insert_with_key(|maker| owner(maker.clone())).clone();
            regions.insert(region.number, region);
        }
    }
    for entry in list(device, Kind::Mr, Some(message::STAT_GET))? {
        let number = attributes(&entry).u32(message::RES_MRN)?;
        // One that was made in between has its counters the next time.
        if let Some(region) = number.and_then(|number| regions.get_mut(&number)) {
            counters_of(&entry, &mut region.counters)?;
        }
    }
    Ok(regions.into_values().collect())
}

/// The objects of a kind, each as its attributes; by another command, what that tells of them.
fn list(device: &str, kind: Kind, by: Option<u16>) -> Result<Vec<Vec<u8>>, NetlinkError> {
    let (command, table, one) = kind.numbers();
    let mut socket = Socket::open()?;
    let index = device_index(&mut socket, device)?;
    let mut request = dump(by.unwrap_or(command)).u32(message::DEV_INDEX, index);
    if by.is_some() {
        request = request.u32(message::STAT_RES, u32::from(table));
    }
    socket.list(&request, |answer, entries: &mut Vec<Vec<u8>>| {
        let Some(table) = attributes(answer).get(table)? else { return Ok(()) };
        for entry in attributes(table).all(one) {
            entries.push(entry?.to_vec());
        }
        Ok(())
    })
}

fn summary_of(answer: &[u8]) -> Result<Option<Summary>, Unreadable> {
    let answer = attributes(answer);
    let Some(device) = answer.name(message::DEV_NAME)? else { return Ok(None) };
    let mut objects = Vec::new();
    if let Some(table) = answer.get(message::RES_SUMMARY)? {
        for entry in attributes(table).all(message::RES_SUMMARY_ENTRY) {
            let entry = attributes(entry?);
            let kind = entry.name(message::RES_SUMMARY_ENTRY_NAME)?;
            let count = entry.u64(message::RES_SUMMARY_ENTRY_CURR)?;
            let most = entry.u64(message::RES_SUMMARY_ENTRY_MAX)?;
            if let (Some(kind), Some(count)) = (kind, count) {
                objects.push(InUse { kind, count, most });
            }
        }
    }
    Ok(Some(Summary { device, objects }))
}

/// Who made an object. The kernel tells the thread, and calls that its process.
fn maker_of(entry: Attributes<'_>) -> Result<Owner, Unreadable> {
    if let Some(name) = entry.name(message::RES_KERN_NAME)? {
        return Ok(Owner::Kernel(name));
    }
    Ok(Owner::Process(entry.u32(message::RES_PID)?.unwrap_or(0)))
}

/// The owner, by who made it: the process of a thread.
fn owner(maker: Owner) -> Owner {
    let Owner::Process(thread) = maker else { return maker };
    // A thread has a folder there, although it is not listed.
    let status = std::fs::read(format!("/proc/{thread}/status")).unwrap_or_default();
    Owner::Process(process_in(&String::from_utf8_lossy(&status)).unwrap_or(thread))
}

/// The process in a thread's status.
fn process_in(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn region_of(entry: Attributes<'_>) -> Result<Option<Region>, Unreadable> {
    let Some(number) = entry.u32(message::RES_MRN)? else { return Ok(None) };
    let bytes = entry.u64(message::RES_MRLEN)?.unwrap_or(0);
    Ok(Some(Region { number, owner: maker_of(entry)?, bytes, counters: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attribute, table};
    use super::*;

    #[test]
    fn objects_are_counted_by_kind_and_an_odd_name_hides_nothing() {
        let entry = |kind: &[u8], count: u64, most: Option<u64>| {
            let kind = attribute(message::RES_SUMMARY_ENTRY_NAME, kind);
            let count = attribute(message::RES_SUMMARY_ENTRY_CURR, &count.to_ne_bytes());
            let most =
                most.map(|most| attribute(message::RES_SUMMARY_ENTRY_MAX, &most.to_ne_bytes()));
            table(message::RES_SUMMARY_ENTRY, &[kind, count, most.unwrap_or_default()])
        };
        let answer = [
            attribute(message::DEV_NAME, b"rxe\xff0\0"),
            table(message::RES_SUMMARY, &[entry(b"qp\0", 2, None), entry(b"mr\0", 9, Some(64))]),
        ];
        let summary = summary_of(&answer.concat()).unwrap().unwrap();
        assert_eq!(summary.device, "rxe\u{fffd}0");
        let in_use = |kind: &str, count, most| InUse { kind: kind.to_owned(), count, most };
        assert_eq!(summary.objects, [in_use("qp", 2, None), in_use("mr", 9, Some(64))]);
        assert_eq!(summary_of(&[]).unwrap(), None);
        assert!(summary_of(&answer.concat()[..20]).is_err());
    }

    #[test]
    fn a_region_has_its_owner_and_length() {
        let number = attribute(message::RES_MRN, &5u32.to_ne_bytes());
        let bytes = attribute(message::RES_MRLEN, &4096u64.to_ne_bytes());
        let process = attribute(message::RES_PID, &77u32.to_ne_bytes());
        let kernel = attribute(message::RES_KERN_NAME, b"rdma_ucm\0");
        let read = |parts: &[&[u8]]| region_of(attributes(&parts.concat())).unwrap();
        let region =
            |owner: Owner| Some(Region { number: 5, owner, bytes: 4096, counters: Vec::new() });
        assert_eq!(read(&[&number, &bytes, &process]), region(Owner::Process(77)));
        let owner = Owner::Kernel("rdma_ucm".to_owned());
        assert_eq!(read(&[&number, &bytes, &kernel]), region(owner));
        assert_eq!(read(&[&number, &bytes]), region(Owner::Process(0)));
        assert_eq!(read(&[&bytes]), None);
    }

    #[test]
    fn the_owner_is_the_process_of_the_thread_that_made_it() {
        // The tests run on threads of their own.
        let thread = u32::try_from(rustix::thread::gettid().as_raw_pid()).unwrap();
        assert_ne!(thread, std::process::id());
        assert_eq!(owner(Owner::Process(thread)), Owner::Process(std::process::id()));
        assert_eq!(owner(Owner::Process(0)), Owner::Process(0));
        assert_eq!(process_in("Name:\tTgid: 7\nTgid:\t12\nPid:\t13\n"), Some(12));
        assert_eq!(process_in("Name:\tx\n"), None);
    }

    /// On machines without RDMA, too: there is no netlink of RDMA then, or no such device.
    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(regions("no such device").is_err());
        assert!(Kind::ALL.into_iter().all(|kind| owners("no such device", kind).is_err()));
    }
}
