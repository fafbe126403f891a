//! The rules, in a line each, and for those without a test the reason.

/// A section of the matrix.
#[derive(Debug)]
pub struct Section {
    /// What its rules are about.
    pub title: &'static str,
    /// Its rules in order: identifier and what it says.
    pub rules: &'static [(&'static str, &'static str)],
}

/// Why a rule has no test here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untested {
    /// Nothing in mkey can meet or break it.
    DoesNotApply(&'static str),
    /// It can be shown only with something that is not there yet.
    Waits(&'static str),
}

use Untested::{DoesNotApply, Waits};

/// The rules without a test.
pub const UNTESTED: &[(&str, Untested)] = &[
    ("R-REG-22", Waits("the libibverbs ABI: reg_mr_ex is a function of that library")),
    ("R-REG-28", Waits("device memory")),
    ("R-RA-13", Waits("packets on the wire: a requester of this process makes none that lie")),
    ("R-RA-14", Waits("packets on the wire: a requester of this process makes none that lie")),
    ("R-RA-21", Waits("packets on the wire: within a process nothing is sent twice")),
    ("R-AT-07", DoesNotApply("work requests here have no ATOMIC WRITE, an optional operation")),
    (
        "R-AT-09",
        DoesNotApply(
            "work requests here have no FLUSH, an optional operation; R-REG-04 shows its rights",
        ),
    ),
    (
        "R-MWU-04",
        DoesNotApply("type 2 windows are of type 2B here, and a device has 2A or 2B, never both"),
    ),
    (
        "R-FR-02",
        DoesNotApply(
            "fast registration lists (address, length, lkey); no device here declares page lists",
        ),
    ),
    (
        "R-FR-03",
        DoesNotApply(
            "fast registration lists (address, length, lkey) of any start and length: gaps are no matter",
        ),
    ),
    (
        "R-FR-04",
        DoesNotApply(
            "fast registration lists (address, length, lkey); R-FR-06 shows empty and bad lists refused",
        ),
    ),
    (
        "R-FR-05",
        DoesNotApply(
            "fast registration takes a list whole or refuses it; R-FR-06 shows lists that are too long refused",
        ),
    ),
    (
        "R-ODP-08",
        Waits("the libibverbs ABI: unknown numbers of advice can not be said to the Device trait"),
    ),
    ("R-ODP-18", Waits("fork")),
    ("R-ERR-04", Waits("packets on the wire: a requester of this process sends opcodes in order")),
    ("R-FORK-01", Waits("fork")),
    ("R-FORK-02", Waits("fork")),
    ("R-FORK-03", Waits("fork")),
    ("R-FORK-04", Waits("fork")),
    ("R-FORK-05", Waits("fork")),
    ("R-FORK-06", Waits("fork")),
    ("R-FORK-07", Waits("fork")),
    ("R-FORK-08", Waits("fork")),
];

/// All the rules.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Keys",
        rules: &[
            (
                "R-KEY-01",
                "A key is a 24-bit index and an 8-bit variant; after the look-up by index all 32 bits are compared.",
            ),
            (
                "R-KEY-02",
                "A region without remote rights has a valid lkey; a peer that uses any of its keys is refused.",
            ),
            (
                "R-KEY-03",
                "Index 0 is never handed out; key 0 and other keys below 256 match nothing.",
            ),
            ("R-KEY-04", "Regions and windows share one space of keys: a key names one object."),
            (
                "R-KEY-05",
                "The right index with a wrong variant is as bad as an unknown key, wherever keys are used.",
            ),
            ("R-KEY-06", "The next key adds one to the variant, modulo 256, and keeps the index."),
            ("R-KEY-07", "An index that is used again has keys other than its last ones."),
            (
                "R-KEY-08",
                "Any number of type 2 windows bound with the same requested key have different keys, with the requested variant.",
            ),
            (
                "R-KEY-09",
                "Range checks subtract; they never add an address and a length, which may wrap.",
            ),
        ],
    },
    Section {
        title: "Registration and deregistration",
        rules: &[
            ("R-REG-01", "REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE: EINVAL."),
            ("R-REG-02", "Unknown access bits that are not optional: EINVAL."),
            (
                "R-REG-03",
                "Optional access bits (20 to 29) that the device does not know are dropped silently.",
            ),
            (
                "R-REG-04",
                "Rights that need a capability which the device lacks (on-demand, flush): EOPNOTSUPP.",
            ),
            ("R-REG-05", "No rights at all are allowed; local reading is always on."),
            ("R-REG-06", "Length 0 registers."),
            ("R-REG-07", "A range that wraps around the address space: EINVAL."),
            ("R-REG-08", "A pinned region over memory that is not mapped: EFAULT."),
            (
                "R-REG-09",
                "More pages than RLIMIT_MEMLOCK allows: ENOMEM; if none may be locked at all: EPERM.",
            ),
            (
                "R-REG-10",
                "Read-only memory with LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC or MW_BIND: EFAULT.",
            ),
            (
                "R-REG-11",
                "Host address and chosen I/O address that differ within the page: EINVAL.",
            ),
            ("R-REG-12", "With a chosen I/O address, work requests count from it."),
            ("R-REG-13", "I/O address 0 or zero-based: addresses are offsets from the start."),
            ("R-REG-14", "A region is what was asked for, and its handle is its own."),
            ("R-REG-15", "Deregistering by a stale or garbled handle: ENOENT."),
            (
                "R-REG-16",
                "A protection domain with regions, windows, queue pairs, shared receive queues or address handles: EBUSY, and still usable.",
            ),
            (
                "R-REG-17",
                "Deregistration under a posted receive succeeds; the message that meets the receive fails it and is refused.",
            ),
            (
                "R-REG-18",
                "Deregistration of local memory under load succeeds; work fails with a protection error from then on, the rest is flushed.",
            ),
            ("R-REG-19", "Deregistration of remote memory under load: the next access is refused."),
            ("R-REG-20", "Two regions over the same memory have keys and rights of their own."),
            ("R-REG-21", "Region and queue pair have to be of one protection domain."),
            (
                "R-REG-22",
                "reg_mr_ex takes an address or a descriptor, not both, nor neither: EINVAL.",
            ),
            ("R-REG-23", "dma-buf memory takes only plain rights."),
            ("R-REG-24", "dma-buf offset and I/O address that differ within the page: EINVAL."),
            ("R-REG-25", "A range outside the dma-buf: EINVAL."),
            (
                "R-REG-26",
                "A dma-buf region has no processor address: accesses count from its I/O address alone.",
            ),
            (
                "R-REG-27",
                "The null region reads as zeros and swallows writes; it has an lkey only, and can neither be re-registered nor bound.",
            ),
            ("R-REG-28", "Device memory registers zero-based, aligned and within its bounds only."),
        ],
    },
    Section {
        title: "Re-registration",
        rules: &[
            (
                "R-RRG-01",
                "A failure tells how the region was left: as it was, or only to be deregistered.",
            ),
            (
                "R-RRG-02",
                "A translation without address or length, or a region that is not plain: EINVAL, the region is as it was.",
            ),
            ("R-RRG-03", "Illegal rights: the command fails."),
            ("R-RRG-04", "Nothing to change: EINVAL."),
            ("R-RRG-05", "What the device can not change: EOPNOTSUPP."),
            (
                "R-RRG-06",
                "Memory pinned for reading can not become writable without a new translation: EACCES.",
            ),
            ("R-RRG-07", "The same protection domain again: success."),
            (
                "R-RRG-08",
                "After success the region has the new domain, memory and rights; keys may have changed.",
            ),
            (
                "R-RRG-09",
                "A receive posted on the old memory fails when a message comes; traffic on the new memory works.",
            ),
            ("R-RRG-10", "REMOTE_ATOMIC removed: atomics are refused; given back: they work."),
            ("R-RRG-11", "REMOTE_WRITE or REMOTE_READ removed: WRITE or READ is refused."),
            ("R-RRG-12", "Moved to another domain: receives into it fail; moved back: they work."),
            ("R-RRG-13", "A region that windows are bound to: EBUSY, and the windows work on."),
            ("R-RRG-14", "An implicit on-demand region can not lose ON_DEMAND: EOPNOTSUPP."),
        ],
    },
    Section {
        title: "Access by a peer",
        rules: &[
            (
                "R-RA-01",
                "Order of checks: operation allowed by the queue pair, resources, length, then the key.",
            ),
            (
                "R-RA-02",
                "A queue pair without the right for the operation: invalid request, even if the region allows it; dropped on UC.",
            ),
            ("R-RA-03", "A region without the right for the operation: access error."),
            ("R-RA-04", "An unknown, stale or wrong key: access error."),
            ("R-RA-05", "A key of another protection domain: access error."),
            ("R-RA-06", "A fast-registration region that is not valid: access error."),
            ("R-RA-07", "One byte before the start or past the end: access error, no byte moved."),
            ("R-RA-08", "Access that ends exactly at the end: success."),
            (
                "R-RA-09",
                "The range of a whole message is checked at once: nothing is placed if the tail is out.",
            ),
            ("R-RA-10", "An address near 2^64 whose range wraps: access error."),
            ("R-RA-11", "READ and WRITE of length 0 succeed whatever address and key are."),
            ("R-RA-12", "More than 2^31 bytes: invalid request."),
            ("R-RA-13", "Payload and stated length of a WRITE that differ: invalid request."),
            (
                "R-RA-14",
                "Packets that are longer or shorter than their opcode allows: invalid request.",
            ),
            (
                "R-RA-15",
                "WRITE with immediate data and a bad key: the receive completes in error, both queue pairs fail, no event.",
            ),
            ("R-RA-16", "WRITE with immediate data without a receive: receiver not ready."),
            ("R-RA-17", "On UC a violation is dropped; the requester sees success."),
            ("R-RA-18", "A READ completes only after all its data has landed."),
            ("R-RA-19", "A peer in RESET, INIT or ERR does not answer: retries are exceeded."),
            ("R-RA-20", "No resources for READs and atomics: invalid request."),
            (
                "R-RA-21",
                "A repeated atomic is answered, not performed again; a repeated READ is checked again.",
            ),
            ("R-RA-22", "Every queue pair of a region's domain reaches it."),
        ],
    },
    Section {
        title: "Local protection",
        rules: &[
            ("R-LOC-01", "A source under a bad lkey: local protection error, nothing sent."),
            ("R-LOC-02", "A source that exceeds its region: local protection error."),
            ("R-LOC-03", "An lkey of another domain: local protection error."),
            (
                "R-LOC-04",
                "A bad landing place of a READ or atomic: local protection error; the peer has performed it and goes on.",
            ),
            ("R-LOC-05", "A source needs no LOCAL_WRITE."),
            (
                "R-LOC-06",
                "A receive buffer that can not be written: receiver protection error, sender remote operation error.",
            ),
            (
                "R-LOC-07",
                "A receive entry longer than its region whose payload fits: success or error; never a byte past the region.",
            ),
            ("R-LOC-08", "A receive too short: receiver length error, sender invalid request."),
            ("R-LOC-09", "An entry of length 0, or none at all, looks at no region."),
            ("R-LOC-10", "Inline data looks at no lkey and is taken at posting."),
            ("R-LOC-11", "WRITE with both keys bad: the local one is reported."),
            ("R-LOC-12", "READ or atomic with both keys bad: the remote one is reported."),
            (
                "R-LOC-13",
                "Errors complete even if unsignaled; work request, status and queue pair are told.",
            ),
            (
                "R-LOC-14",
                "Work behind a failed work request is flushed in order; the peer goes on after a local error.",
            ),
            ("R-LOC-15", "One bad entry of many, or one that wraps, fails the whole work request."),
        ],
    },
    Section {
        title: "Atomics",
        rules: &[
            ("R-AT-01", "8 bytes; what was there comes back, also when nothing was swapped."),
            (
                "R-AT-02",
                "An address that is not a multiple of 8: invalid request, nothing changed.",
            ),
            ("R-AT-03", "Misalignment is reported before bad keys."),
            (
                "R-AT-04",
                "A landing of another length than 8: local length error, nothing changed; in several entries: refused or done right.",
            ),
            ("R-AT-05", "REMOTE_ATOMIC is needed, REMOTE_WRITE is not."),
            ("R-AT-06", "All atomics of a device exclude each other."),
            ("R-AT-07", "ATOMIC WRITE needs REMOTE_WRITE, 8 bytes and alignment."),
            ("R-AT-08", "Through a window its REMOTE_ATOMIC counts."),
            ("R-AT-09", "FLUSH needs the matching flush rights."),
        ],
    },
    Section {
        title: "Memory windows: allocation and bind",
        rules: &[
            ("R-MW-01", "Windows of type 1 and 2; a type that the device lacks: EOPNOTSUPP."),
            ("R-MW-02", "A fresh window grants nothing."),
            ("R-MW-03", "Deallocation by a bad handle: ENOENT."),
            ("R-MW-04", "The bind verb on a type 2 window: EINVAL at once."),
            ("R-MW-05", "The bind verb without region but with a range: EINVAL."),
            ("R-MW-06", "The bind verb on window and region of different domains: EPERM at once."),
            ("R-MW-07", "A zero-based type 1 window: EINVAL."),
            ("R-MW-08", "A type 1 window on a zero-based region: refused."),
            ("R-MW-09", "A type 1 bind makes the next key; after an error the key is the old one."),
            ("R-MW-10", "The work request for type 2 does not bind a type 1 window."),
            (
                "R-MW-11",
                "A type 2 bind takes the low 8 bits of the requested key and the window's own index.",
            ),
            ("R-MW-12", "The key bound last is the window's current key in the next bind."),
            ("R-MW-13", "A region without MW_BIND: bind error."),
            (
                "R-MW-14",
                "A window for writing or atomics on a region without LOCAL_WRITE: bind error.",
            ),
            ("R-MW-15", "A window for reading needs only MW_BIND of its region."),
            (
                "R-MW-16",
                "A window for writing or atomics needs LOCAL_WRITE and MW_BIND of its region, no remote right.",
            ),
            ("R-MW-17", "A window without rights can be bound and grants nothing."),
            ("R-MW-18", "LOCAL_WRITE among a window's rights is accepted and grants nothing."),
            ("R-MW-19", "Rights that a window can not have: bind error."),
            (
                "R-MW-20",
                "A range that is not within the region, by one byte on either side: bind error.",
            ),
            ("R-MW-21", "A window may be longer than 2 GiB."),
            ("R-MW-22", "Window, region and queue pair of different domains: bind error."),
            ("R-MW-23", "A wrong current key of the window or lkey of the region: bind error."),
            ("R-MW-24", "A region that does not exist: bind error, nothing worse."),
            ("R-MW-25", "A type 1 bind of length 0 unbinds: old and new key are dead."),
            (
                "R-MW-26",
                "A type 1 window can be bound again by any queue pair of the domain; the old key is dead.",
            ),
            (
                "R-MW-27",
                "A bound type 2 window can not be bound again: bind error, the window is as it was.",
            ),
            ("R-MW-28", "A type 2 bind of length 0 or without region: bind error."),
            ("R-MW-29", "A zero-based type 2 window counts from its start."),
            ("R-MW-30", "A bind with data, or on datagrams: EINVAL; on UC it works."),
            ("R-MW-31", "A bind on a queue pair in ERR is flushed, the key is unchanged."),
            ("R-MW-32", "An unsignaled bind makes no completion and is in force for later work."),
            (
                "R-MW-33",
                "The device tells what types of window it has; type 2 is 2A or 2B, never both.",
            ),
        ],
    },
    Section {
        title: "Memory windows: use and lifetime",
        rules: &[
            ("R-MWU-01", "Type 1 serves every queue pair of its domain."),
            ("R-MWU-02", "Type 1 serves no queue pair of another domain."),
            (
                "R-MWU-03",
                "Type 2B serves only the queue pair that it was bound on, and its domain has to match.",
            ),
            ("R-MWU-04", "Type 2A looks at the queue pair number only."),
            ("R-MWU-05", "Access one byte outside the window but inside the region: access error."),
            ("R-MWU-06", "Length 0 through a window and outside it: success."),
            ("R-MWU-07", "The window's rights replace the region's remote rights."),
            ("R-MWU-08", "The region behind a window is looked at on every access."),
            ("R-MWU-09", "The key from before a bind is dead."),
            (
                "R-MWU-10",
                "A region with a bound window can not be deregistered: EBUSY, and the window works on.",
            ),
            ("R-MWU-11", "Deallocation of a bound window unbinds it, also under load."),
            ("R-MWU-12", "A type 1 window outlives the queue pair that it was bound on."),
            (
                "R-MWU-13",
                "A queue pair with a bound type 2 window is destroyed at once; the window can only be deallocated.",
            ),
            (
                "R-MWU-14",
                "A new queue pair with the number of a destroyed one does not get its windows.",
            ),
            ("R-MWU-15", "A type 2 bind survives RESET of its queue pair."),
            ("R-MWU-16", "A protection domain with a window: EBUSY."),
            (
                "R-MWU-17",
                "Unbind, rebind, invalidation, deallocation and the end of the queue pair let the region go.",
            ),
        ],
    },
    Section {
        title: "Invalidation",
        rules: &[
            ("R-INV-01", "LOCAL_INV on RC and UC, not on UD."),
            (
                "R-INV-02",
                "LOCAL_INV of a bound type 2 window on its queue pair: success, the key is dead, the window can be bound again.",
            ),
            (
                "R-INV-03",
                "LOCAL_INV of a type 2 window from another queue pair: error, the window works on.",
            ),
            ("R-INV-04", "LOCAL_INV of a wrong or unknown key: error."),
            ("R-INV-05", "LOCAL_INV of a type 1 window: error."),
            (
                "R-INV-06",
                "LOCAL_INV of a type 2 window that is not bound: error or nothing, never worse.",
            ),
            ("R-INV-07", "LOCAL_INV of a plain region: error, the region works on."),
            (
                "R-INV-08",
                "LOCAL_INV of a fast-registration region: its key is dead until the next registration; free already: success.",
            ),
            ("R-INV-09", "LOCAL_INV of a fast-registration region with a bound window: error."),
            ("R-INV-10", "The object has to be of the queue pair's domain."),
            ("R-INV-11", "LOCAL_INV waits for all earlier work of its queue."),
            (
                "R-INV-12",
                "SEND with invalidation: the receiver's key is dead before its completion, which names the key.",
            ),
            (
                "R-INV-13",
                "SEND with invalidation without a receive: receiver not ready, nothing invalidated.",
            ),
            (
                "R-INV-14",
                "SEND with invalidation of a bad key: the receive fails, neither acknowledgement nor refusal is sent.",
            ),
            ("R-INV-15", "There is no SEND with invalidation on UC and UD."),
            (
                "R-INV-16",
                "The key of a message of several packets is invalidated after the data is placed.",
            ),
        ],
    },
    Section {
        title: "Fast registration",
        rules: &[
            (
                "R-FR-01",
                "Allocated empty, for a limited number of entries; its keys grant nothing.",
            ),
            ("R-FR-02", "A page list is mapped as far as it goes, and the number of entries told."),
            ("R-FR-03", "A page list has no gaps."),
            ("R-FR-04", "An empty page list, or an offset past its first entry: EINVAL."),
            ("R-FR-05", "A full page list stops."),
            (
                "R-FR-06",
                "REG_MR on a free region: valid, with new key, address, length and rights. Here its list names registered memory, which it holds.",
            ),
            ("R-FR-07", "REG_MR on a valid region: error, the region is as it was."),
            ("R-FR-08", "REG_MR on a queue pair of another domain: error."),
            ("R-FR-09", "REG_MR with a key of another index: error."),
            ("R-FR-10", "The new variant is that of lkey and rkey alike."),
            ("R-FR-11", "REG_MR with inline data: EINVAL."),
            ("R-FR-12", "Later work on the same queue pair sees the registration."),
            ("R-FR-13", "Remote write or atomic without local write: refused."),
            ("R-FR-14", "In every cycle the old key is dead."),
            ("R-FR-15", "A peer's SEND with invalidation frees the region."),
            ("R-FR-16", "The list of a valid region can not be changed."),
            ("R-FR-17", "Free or valid, it can be deregistered."),
        ],
    },
    Section {
        title: "On-demand paging",
        rules: &[
            ("R-ODP-01", "Capabilities tell what works, by transport and operation."),
            (
                "R-ODP-02",
                "Registration touches no page; accesses fault pages in and find right data.",
            ),
            (
                "R-ODP-03",
                "After pages were discarded, unmapped or moved, the old page is never served.",
            ),
            (
                "R-ODP-04",
                "A fault that can not be resolved: access error for a peer, protection error for the owner.",
            ),
            ("R-ODP-05", "The implicit region is the whole address space, asked for whole."),
            ("R-ODP-06", "Implicit access to memory that is not mapped is refused."),
            ("R-ODP-07", "Advice on a device without it: EOPNOTSUPP."),
            ("R-ODP-08", "Unknown advice: EOPNOTSUPP."),
            ("R-ODP-09", "Advice on an unknown lkey: ENOENT."),
            ("R-ODP-10", "Advice on a window's key: EINVAL."),
            ("R-ODP-11", "Advice on a region of another domain: EPERM."),
            ("R-ODP-12", "Prefetch for writing without the right: EPERM."),
            ("R-ODP-13", "Advice outside the region: EFAULT."),
            (
                "R-ODP-14",
                "With flush, pages are present on return and errors told; without, later or never.",
            ),
            ("R-ODP-15", "Prefetch without faults never faults a page in."),
            ("R-ODP-16", "Advice on nothing: EINVAL or success."),
            ("R-ODP-17", "Advice on a region that is not on-demand: error."),
            ("R-ODP-18", "On-demand and dma-buf regions need no fork protection."),
            ("R-ODP-19", "Windows can be bound to on-demand regions; access faults pages in."),
        ],
    },
    Section {
        title: "Ordering, fences, receiver not ready",
        rules: &[
            ("R-ORD-01", "Fenced work starts after all earlier READs and atomics."),
            (
                "R-ORD-02",
                "A key sent behind its bind on the same queue pair is in force when it is received.",
            ),
            ("R-ORD-03", "LOCAL_INV takes no effect before earlier work is done."),
            ("R-ORD-04", "Bind, REG_MR and LOCAL_INV run in their place in the queue."),
            ("R-ORD-05", "Completions of a queue come in posting order."),
            (
                "R-ORD-06",
                "Receiver not ready: retried as often as asked, 7 is for ever; then an error.",
            ),
            ("R-ORD-07", "No answer: retried as often as asked, then an error."),
            ("R-ORD-08", "post_send before RTS: EINVAL."),
            ("R-ORD-09", "post_recv in RESET: EINVAL."),
            ("R-ORD-10", "A full queue: ENOMEM; what was posted before in the chain stays posted."),
            ("R-ORD-11", "Too many entries: EINVAL."),
            (
                "R-ORD-12",
                "ERR flushes both queues; with a shared receive queue an event tells the end.",
            ),
            ("R-ORD-13", "RELAXED_ORDERING is a hint: a completion still comes after all data."),
        ],
    },
    Section {
        title: "Errors and events",
        rules: &[
            ("R-ERR-01", "Completion statuses have the verbs' numbers and words."),
            (
                "R-ERR-02",
                "A key violation by READ, WRITE or atomic raises an access event for the responder's queue pair.",
            ),
            ("R-ERR-03", "A violation that a receive tells raises no event."),
            ("R-ERR-04", "A bad sequence of opcodes raises a request event, on RC only."),
            ("R-ERR-05", "A misaligned atomic raises an access event."),
            ("R-ERR-06", "The requester gets no event: the completion tells."),
            ("R-ERR-07", "Completion opcodes have the verbs' numbers."),
            ("R-ERR-08", "ERR, RESET, INIT, RTR, RTS restores traffic; regions are not affected."),
            ("R-ERR-09", "The drained event comes with SQD only."),
            ("R-ERR-10", "Unknown handles: ENOENT."),
            ("R-ERR-11", "ERR can be reached from every state but RESET; from there: EINVAL."),
        ],
    },
    Section {
        title: "Fork",
        rules: &[
            ("R-FORK-01", "fork_init after a region exists: EINVAL."),
            ("R-FORK-02", "A kernel without the needed advice: ENOSYS."),
            ("R-FORK-03", "Environment variables ask for it, too."),
            ("R-FORK-04", "Huge pages are respected on demand."),
            ("R-FORK-05", "Overlapping regions count their page ranges."),
            ("R-FORK-06", "A kernel that copies pinned pages needs none of it."),
            ("R-FORK-07", "Nothing, or length 0: no effect."),
            ("R-FORK-08", "A child's use of its parent's region is not defined."),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_231_rules_are_listed_once() {
        let ids: Vec<&str> =
            SECTIONS.iter().flat_map(|section| section.rules).map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), 231);
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 231);
        for section in SECTIONS {
            let prefix = section.rules[0].0.trim_end_matches(|c: char| c.is_ascii_digit());
            for (number, (id, text)) in section.rules.iter().enumerate() {
                assert_eq!(*id, format!("{prefix}{:02}", number + 1));
                assert!(text.ends_with('.'), "{id}: a sentence");
            }
        }
    }

    #[test]
    fn reasons_are_given_for_rules_that_exist_and_once() {
        let ids: HashSet<&str> =
            SECTIONS.iter().flat_map(|section| section.rules).map(|(id, _)| *id).collect();
        let mut seen = HashSet::new();
        for (id, _) in UNTESTED {
            assert!(ids.contains(id) && seen.insert(*id), "{id}");
        }
    }
}
