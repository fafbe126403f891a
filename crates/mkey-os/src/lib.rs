//! Linux for mkey: what memory registration needs of the operating system.
//!
//! A software RNIC must hold pages in place, notice when a program takes them away, and touch
//! addresses it was given without trusting them. This crate does that and nothing else: it knows
//! no keys, no queues and no rights. What the system refuses is answered in one of two ways, never
//! silently: a typed error, or a weaker means that is reported with its reason and with the command
//! that would mend it.
//!
//! # Chapters
//!
//! **[`copy`], the tolerant copy.** Reads, writes and atomics that answer a fault (`SIGSEGV`,
//! `SIGBUS`) instead of dying of it, in the order of visibility that programs polling their memory
//! rely on. `copy::install()` once, then methods of the token it returns.
//!
//! **[`mapping`], [`ladder`], [`prefault`], [`numa`], memory of one's own.** A
//! [`mapping::Mapping`] lies on pages of one kind; [`ladder::obtain`] finds the largest kind that
//! can be had (1 GiB, 2 MiB, transparent, base) and says why not a larger one;
//! [`prefault::prefault`] brings it in on several threads.
//!
//! **[`hugepages`], the pools.** What is there per size and node; [`hugepages::reserve`] makes more
//! for as long as its guard lives.
//!
//! **[`file_mapping`], memory of file descriptors.** Shared mappings of memfd, hugetlbfs and dma-buf.
//!
//! **[`pin`], pinned spans.** [`pin::Pinner`] holds pages in place as counted spans: by the kernel
//! (io_uring registered buffers), by `mlock`, or not at all (`none`), each span by the strongest
//! mode that can be had. It fails where the verbs fail. A guard also reaches the pinned pages
//! themselves, after their mapping has gone, as a NIC does.
//!
//! **[`accounting`], what may be pinned.** The verbs' own rule, pure ([`accounting::account`]), and
//! a counter that applies it to this process. io_uring and `mlock` have budgets of their own that
//! differ; they cost the pin, not the registration.
//!
//! **[`events`], mappings that go away.** [`events::process`], the one watcher of a process, tells
//! its sinks of unmapping, discarding and moving of registered memory, and has the word by which an
//! access waits for an event in hand.
//!
//! **[`limits`], [`proc`], small readers.** Memory locks, privileges, mappings, NUMA nodes; which
//! mapping an address lies in; how much of a range huge pages map. **[`kernel`], its version.**
//!
//! **[`usage`], what a thread has used.** Whether others ran in its place.
//!
//! **[`count_fd`], descriptors that count, [`quiet_thread`], threads that take no signals**: what a
//! program can poll for, and what runs beside a program that knows nothing of it.
//!
//! **[`tracefs`], the kernel's own times.** Kernel functions timed by kprobes while a thread calls
//! them.
//!
//! **[`rdma_netlink`], the kernel's word on RDMA objects.** The counters of a memory region; which
//! driver a device is of; what objects there are, and whose.
//!
//! **[`ethtool`], what a network interface counts**, pause frames among it.
//!
//! **[`cgroup`], control groups.** The folders whose limits hold for a process.
//!
//! **[`rdma_cgroup`], limits on RDMA objects.** Whether a control group leaves no room for another.
//!
//! **[`vfio`], memory behind an IOMMU.** Mapped for DMA without a device that would do any.
//!
//! **[`system_calls`], counted.** How many a piece of work makes, exactly and without a tracer.
//!
//! **[`signals`], dispositions.** Whether a signal was inherited as ignored.
//!
//! **`confine`, for tests** (feature `test-support`). Docker's seccomp profile, another user, a
//! small memlock limit; the example `under_docker_seccomp` runs a command so.
//!
//! # How they play together
//! A device registering memory: [`accounting::Accountant::charge`] decides, [`pin::Pinner::pin`]
//! holds, [`events::Watcher::watch`] watches, and the device's sink calls
//! [`pin::Pinner::detach`] beside marking the device's own tables. No access may run while an event
//! is dealt with: the sink stops them before the event is read ([`events::Sink`]), or each looks at
//! [`events::InHand`] first. What may run copies by [`copy::Installed`].
//!
//! # Fork
//! Pins and events belong to the process that made them. In a forked child they refuse, and
//! dropping them there does nothing; the tolerant copy works on.
//!
//! # Platforms
//! Linux. x86-64 has the assembly copy; elsewhere [`copy`] goes through the kernel
//! ([`copy::portable`]). What newer kernels add (`PROCMAP_QUERY`, `PAGEMAP_SCAN`,
//! `MADV_POPULATE_WRITE`, io_uring's sparse tables) is used where it is there.

#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod accounting;
pub mod cgroup;
#[cfg(all(feature = "test-support", target_arch = "x86_64"))]
pub mod confine;
pub mod copy;
pub mod count_fd;
pub mod error;
pub mod ethtool;
pub mod events;
pub mod file_mapping;
pub mod fork;
mod gone;
pub mod hugepages;
pub mod kernel;
pub mod ladder;
pub mod limits;
pub mod mapping;
pub mod numa;
pub mod pin;
pub mod prefault;
pub mod proc;
pub mod quiet_thread;
pub mod rdma_cgroup;
pub mod rdma_netlink;
pub mod signals;
mod spans;
pub mod system_calls;
pub mod tracefs;
pub mod usage;
pub mod vfio;
