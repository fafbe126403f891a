//! The codes of the checks.

use serde::{Deserialize, Serialize};

/// Declares the codes, once: their variants, their names, and the list of all.
macro_rules! codes {
    ($($variant:ident $name:literal $about:literal,)+) => {
        /// What is checked. The names are stable; what each means is told by [`super::texts`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $about] #[serde(rename = $name)] $variant,)+
        }

        impl Code {
            /// All of them, in the order of a report.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

codes! {
    Memlock "MEMLOCK" "RLIMIT_MEMLOCK, soft and hard.",
    IpcLock "IPC_LOCK" "CAP_IPC_LOCK, and in which user namespace.",
    MemlockUser "MEMLOCK_USER" "What limits.d, PAM and systemd give a user.",
    Pinned "PINNED" "VmPin and VmLck against the limit.",
    PinProbe "PIN_PROBE" "A page, pinned.",
    HugePages "HUGE_PAGES" "The pool of huge pages of a size.",
    HugePagesNode "HUGE_PAGES_NODE" "Huge pages on the node of a device.",
    HugePagesBoot "HUGE_PAGES_BOOT" "Huge pages asked for at boot.",
    HugePagesCgroup "HUGE_PAGES_CGROUP" "The control groups' limit on huge pages.",
    HugePageProbe "HUGE_PAGE_PROBE" "A huge page of a size, obtained.",
    Thp "THP" "Transparent huge pages.",
    MapCount "MAP_COUNT" "Mappings against vm.max_map_count.",
    ForkProtection "FORK_PROTECTION" "Whether libibverbs protects forks, and whether it needs to.",
    Userfaultfd "USERFAULTFD" "userfaultfd.",
    IoUring "IO_URING" "io_uring.",
    Seccomp "SECCOMP" "A filter of system calls.",
    Namespaces "NAMESPACES" "User and network namespaces.",
    MemoryCgroup "MEMORY_CGROUP" "The control groups' limit on memory.",
    RdmaCgroup "RDMA_CGROUP" "The control groups' limits on RDMA objects.",
    Nofile "NOFILE" "Open files.",
    Iommu "IOMMU" "How the IOMMU translates.",
    Numa "NUMA" "The node of a device against the CPUs allowed.",
    RdmaDevices "RDMA_DEVICES" "Which devices there are.",
    Device "DEVICE" "What a device is.",
    DeviceFile "DEVICE_FILE" "The file by which programs reach a device.",
    DeviceOpen "DEVICE_OPEN" "A device, opened.",
    Port "PORT" "The state of a port.",
    Gid "GID" "The identifiers of a port.",
    Mtu "MTU" "The MTU of a device's network interface.",
    DeviceLimits "DEVICE_LIMITS" "What a device says it can hold.",
    Windows "WINDOWS" "Memory windows, tried.",
    OnDemand "ON_DEMAND" "On-demand paging, tried.",
    DmaBuf "DMA_BUF" "Regions of a dma-buf, tried.",
    Resources "RESOURCES" "Objects in use against the device's limits.",
    RkeyPredictable "RKEY_PREDICTABLE" "How guessable keys are, sampled.",
    PeerMemory "PEER_MEMORY" "GPU memory: peer-memory modules and dma-buf.",
    TrafficClass "TRAFFIC_CLASS" "How this host marks RoCE.",
    Trust "TRUST" "Which priority the marking has.",
    Pfc "PFC" "Priority flow control on this host.",
    Ecn "ECN" "Congestion notification on this host.",
    Counters "COUNTERS" "Counters that show trouble.",
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
