//! Fake roots.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// A host's files.
pub struct Host(TempDir);

const IB: &str = "sys/class/infiniband";

impl Host {
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file.
    pub fn put(&self, file: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn link(&self, file: &str, to: &str) -> &Self {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }

    fn pool(&self, kib: u64, total: u64, free: u64) {
        for folder in ["sys/kernel/mm/hugepages", "sys/devices/system/node/node0/hugepages"] {
            let file = |name: &str| format!("{folder}/hugepages-{kib}kB/{name}");
            self.put(&file("nr_hugepages"), format!("{total}\n"));
            self.put(&file("free_hugepages"), format!("{free}\n"));
            self.put(&file("resv_hugepages"), "0\n");
            self.put(&file("surplus_hugepages"), "0\n");
            self.put(&file("nr_overcommit_hugepages"), "0\n");
        }
    }

    /// A mlx5 port that is as it should be.
    pub fn device(&self, name: &str, net: &str) {
        let put = |file: &str, text: &str| {
            self.put(&format!("{IB}/{name}/{file}"), text);
        };
        put("node_type", "1: CA\n");
        put("fw_ver", "28.39.1002\n");
        put("board_id", "MT_0000000838\n");
        put("device/vendor", "0x15b3\n");
        put("device/numa_node", "0\n");
        put("device/iommu_group/type", "identity\n");
        put(&format!("device/net/{net}/name"), "");
        put("device/infiniband_verbs/uverbs0/dev", "231:192\n");
        put("tc/1/traffic_class", "Global tclass=106\n");
        put("ports/1/state", "4: ACTIVE\n");
        put("ports/1/phys_state", "5: LinkUp\n");
        put("ports/1/rate", "400 Gb/sec (4X NDR)\n");
        put("ports/1/link_layer", "Ethernet\n");
        put("ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n");
        put("ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        put("ports/1/gid_attrs/types/0", "RoCE v2\n");
        put("ports/1/gid_attrs/ndevs/0", &format!("{net}\n"));
        put("ports/1/hw_counters/packet_seq_err", "0\n");
        put("ports/1/hw_counters/rx_write_requests", "77\n");
        put("ports/1/hw_counters/lifespan", "10\n");
        put("ports/1/counters/symbol_error", "0\n");
        self.put(&format!("sys/class/net/{net}/mtu"), "9000\n");
        self.put(&format!("sys/class/net/{net}/ecn/roce_np/enable/3"), "1\n");
        self.put(&format!("sys/class/net/{net}/ecn/roce_rp/enable/3"), "1\n");
        self.put(&format!("sys/class/net/{net}/ecn/roce_np/cnp_dscp"), "48\n");
    }

    /// Limits of the process.
    pub fn limits(&self, memlock: &str, files: &str) {
        self.put(
            "proc/self/limits",
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max open files            {files} {files} files\n\
                 Max locked memory         {memlock} {memlock} bytes\n"
            ),
        );
    }

    /// What the process may do.
    pub fn status(&self, capabilities: &str, seccomp: u8, cpus: &str) {
        self.put(
            "proc/self/status",
            format!(
                "Name:\tserver\nUid:\t1000\t1000\t1000\t1000\nVmLck:\t 0 kB\nVmPin:\t 40 kB\n\
                 CapEff:\t{capabilities}\nCapBnd:\t000001ffffffffff\nSeccomp:\t{seccomp}\n\
                 Seccomp_filters:\t{seccomp}\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n"
            ),
        );
    }

    pub fn maps(&self, count: usize) {
        self.put(
            "proc/self/maps",
            "7f0000000000-7f0000200000 rw-p 00000000 00:00 0\n".repeat(count),
        );
    }

    /// All is well.
    pub fn healthy() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.limits("unlimited", "1048576");
        host.status("0000000000000000", 0, "0-63");
        host.maps(40);
        host.put("proc/self/environ", "HOME=/root\0").put("proc/self/fd/0", "");
        host.put("proc/self/cgroup", "0::/user.slice/user-0.slice/session-3.scope\n");
        host.put("sys/fs/cgroup/user.slice/user-0.slice/session-3.scope/cgroup.procs", "7\n");
        host.link("proc/self/ns/user", "user:[4026531837]");
        host.link("proc/self/ns/pid", "pid:[4026531836]");
        host.link("proc/self/ns/net", "net:[4026531840]");
        host.link("proc/1/ns/net", "net:[4026531840]");
        host.put("sys/module/ib_core/initstate", "live\n");
        host.put("proc/cmdline", "ro hugepagesz=2M hugepages=1024 iommu=pt\n");
        host.put("proc/sys/kernel/osrelease", "6.12.0\n");
        host.put("proc/sys/kernel/hostname", "node1\n");
        host.put("proc/sys/kernel/io_uring_disabled", "0\n");
        host.put("proc/sys/vm/max_map_count", "65530\n");
        host.put("proc/sys/vm/unprivileged_userfaultfd", "0\n");
        host.put("sys/devices/system/node/online", "0\n");
        host.put("sys/devices/system/node/node0/cpulist", "0-31\n");
        host.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        host.put("sys/kernel/mm/transparent_hugepage/defrag", "always [madvise] never\n");
        host.put("sys/class/infiniband_verbs/abi_version", "6\n");
        host.pool(2048, 1024, 1000);
        host.pool(1_048_576, 0, 0);
        host.device("mlx5_0", "eth2");
        host
    }

    /// As much as can be is wrong; a service of systemd.
    pub fn sick() -> Self {
        let host = Self::healthy();
        host.limits("65536", "1024");
        host.status("0000000000000000", 2, "32-63");
        host.maps(65_000);
        host.put("proc/self/environ", "RDMAV_FORK_SAFE=1\0RDMAV_HUGEPAGES_SAFE=1\0NCCL_IB_TC=96\0");
        host.put("proc/self/cgroup", "0::/system.slice/target.service\n");
        host.put("proc/cmdline", "ro hugepagesz=2M hugepages=2048 intel_iommu=on\n");
        host.put("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
        host.put("proc/sys/kernel/io_uring_disabled", "2\n");
        host.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        host.pool(2048, 1024, 0);
        let group = |file: &str| format!("sys/fs/cgroup/system.slice/target.service/{file}");
        host.put(&group("memory.max"), "1073741824\n")
            .put(&group("memory.current"), "1073700000\n");
        host.put(&group("hugetlb.2MB.max"), "0\n").put(&group("hugetlb.2MB.current"), "0\n");
        host.put(&group("rdma.max"), "mlx5_0 hca_handle=max hca_object=100\n");
        host.put(&group("rdma.current"), "mlx5_0 hca_handle=1 hca_object=100\n");
        let device = |file: &str| format!("{IB}/mlx5_0/{file}");
        host.put(&device("device/iommu_group/type"), "DMA-FQ\n");
        host.put(&device("ports/1/state"), "1: DOWN\n");
        host.put(&device("ports/1/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        host.put(&device("ports/1/hw_counters/packet_seq_err"), "12\n");
        host.put(&device("ports/1/hw_counters/resp_remote_access_errors"), "3\n");
        host.put("sys/class/net/eth2/mtu", "1500\n");
        host.put("sys/class/net/eth2/ecn/roce_np/enable/3", "0\n");
        host.put("sys/module/nvidia/version", "570.00\n");
        host
    }

    /// Two nodes with pages, all of those of the device's node in use.
    pub fn two_nodes() -> Self {
        let host = Self::healthy();
        host.put("sys/devices/system/node/online", "0-1\n");
        host.put("sys/devices/system/node/node1/cpulist", "32-63\n");
        host.pool(2048, 8192, 4000);
        for (node, free) in [(0, 0), (1, 4000)] {
            let file = |name: &str| {
                format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/{name}")
            };
            host.put(&file("nr_hugepages"), "4096\n");
            host.put(&file("free_hugepages"), format!("{free}\n"));
            host.put(&file("surplus_hugepages"), "0\n");
        }
        host
    }

    /// The healthy host, and devices such as nobody expects.
    pub fn odd() -> Self {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let host = Self::healthy();
        fs::create_dir(host.root().join(IB).join("empty")).unwrap();
        host.put(&format!("{IB}/a_file"), "x");
        host.put(&format!("{IB}/ports_file/ports"), "x");
        let bad = |file: &str| format!("{IB}/garbage/{file}");
        host.put(&bad("node_type"), b"\xff\xfe\n")
            .put(&bad("device/numa_node"), "99999999999999999999");
        host.put(&bad("device/vendor"), "").put(&bad("device/iommu_group/type"), "\u{1b}[31mred");
        host.put(&bad("ports/1/state"), "").put(&bad("ports/1/gids/0"), b"\x00\xff");
        host.put(&bad("ports/1/link_layer"), "Ethernet");
        host.put(&bad("ports/1/hw_counters/packet_seq_err"), "N/A (no PMA)\n");
        host.put(&bad("ports/18446744073709551616/state"), "4: ACTIVE");
        host.put(&bad("ports/x/state"), "4: ACTIVE");
        host.put(&bad("ports/1/gid_attrs/ndevs/0"), "../../../../etc");
        let huge = |file: &str| format!("{IB}/huge/{file}");
        host.put(&huge("node_type"), "1: CA").put(&huge("device/numa_node"), "4294967295");
        host.put(&huge("ports/1/state"), "4: ACTIVE".repeat(100_000));
        host.put(&huge("ports/1/hw_counters/out_of_buffer"), u64::MAX.to_string());
        host.link(&format!("{IB}/loop/device"), "device").link(&format!("{IB}/out"), "/etc");
        let name = host.root().join(IB).join(OsStr::from_bytes(b"mlx5_\xff"));
        fs::create_dir(name).unwrap();
        fs::create_dir(host.root().join(IB).join("red\u{1b}[31m")).unwrap();
        host
    }
}
