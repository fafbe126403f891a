//! Hosts as folders: what the kernel's files hold, and in `mkey-monitor.json` what it answers.

use mkey_cli::monitor::kernel::ANSWERS;
use mkey_cli::monitor::sample::{Host, Sample};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A host in a folder.
pub struct Fixture(TempDir);

impl Fixture {
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    fn new(name: &str) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        this.put("proc/sys/kernel/hostname", format!("{name}\n"));
        this
    }

    fn put(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn pool(&self, kib: u64, nodes: &[[u64; 2]], reserved: u64) {
        let folder = format!("hugepages/hugepages-{kib}kB");
        let put = |below: &str, total: u64, free: u64| {
            self.put(format!("{below}/{folder}/nr_hugepages"), format!("{total}\n"));
            self.put(format!("{below}/{folder}/free_hugepages"), format!("{free}\n"));
            self.put(format!("{below}/{folder}/surplus_hugepages"), "0\n");
        };
        let sum = |at: usize| nodes.iter().map(|node| node[at]).sum();
        put("sys/kernel/mm", sum(0), sum(1));
        let resv = format!("sys/kernel/mm/{folder}/resv_hugepages");
        self.put(resv, format!("{reserved}\n"));
        for (node, [total, free]) in nodes.iter().enumerate() {
            put(&format!("sys/devices/system/node/node{node}"), *total, *free);
        }
        let last = nodes.len() - 1;
        let online = if last == 0 { "0\n".to_owned() } else { format!("0-{last}\n") };
        self.put("sys/devices/system/node/online", online);
    }

    fn process(&self, pid: u32, name: &[u8], pinned_kib: u64, limit: &str) {
        let folder = format!("proc/{pid}");
        self.put(format!("{folder}/comm"), [name, b"\n"].concat());
        let status = format!("Name:\tx\nVmLck:\t 0 kB\nVmPin:\t{pinned_kib:>8} kB\nCapEff:\t00\n");
        self.put(format!("{folder}/status"), status);
        let limits = format!("Max locked memory         {limit:<20} {limit:<20} bytes\n");
        self.put(format!("{folder}/limits"), limits);
    }

    /// A port's folder, up and with an interface.
    fn port(&self, device: &str, driver: &str, interface: &str) -> PathBuf {
        let folder = Path::new("sys/class/infiniband").join(device);
        let port = folder.join("ports/1");
        self.put(port.join("state"), "4: ACTIVE\n");
        self.put(port.join("gid_attrs/ndevs/0"), format!("{interface}\n"));
        self.put(folder.join("device/numa_node"), "0\n");
        symlink(
            format!("../../../../bus/pci/drivers/{driver}"),
            self.root().join(folder.join("device/driver")),
        )
        .unwrap();
        port
    }

    fn counters(&self, port: &Path, counters: &[(&str, u64)]) {
        for (name, value) in counters {
            self.put(port.join("hw_counters").join(name), format!("{value}\n"));
        }
        self.put(port.join("hw_counters/lifespan"), "10\n");
    }

    fn answers(&self, answers: &Value) {
        self.put(ANSWERS, answers.to_string());
    }
}

/// Two looks at hosts a second apart, compared; what differs from run to run is fixed.
pub fn looked(before: &Fixture, after: &Fixture) -> [Sample; 2] {
    let look = |fixture: &Fixture, at| {
        let mut sample = Host::new(fixture.root(), None).unwrap().look(Duration::from_secs(at));
        sample.time = 1_800_000_000.0 + at as f64;
        sample
    };
    let (first, mut second) = (look(before, 0), look(after, 1));
    second.compare(&first);
    [first, second]
}

fn kind(kind: &str, in_use: Value, limit: u64, owners: Value) -> Value {
    json!({ "kind": kind, "in_use": in_use, "limit": limit, "owners": owners })
}

fn windows() -> Value {
    let why = json!({ "not_read": "the kernel does not count them" });
    kind("mw", why.clone(), 16_777_216, why)
}

/// A host at work on which all is well; the second look, after a second.
pub fn healthy(second: bool) -> Fixture {
    let fixture = Fixture::new("well");
    fixture.pool(2048, &[[4096, 1024], [4096, 3000]], 512);
    fixture.pool(1_048_576, &[[8, 8], [0, 0]], 0);
    fixture.process(1, b"systemd", 0, "8388608");
    fixture.process(4711, b"storaged", 6 << 20, "unlimited");
    fixture.process(4712, b"trainer", 2048, "67108864");
    let port = fixture.port("mlx5_0", "mlx5_core", "ens1f0");
    let more = u64::from(second);
    fixture.counters(
        &port,
        &[
            ("rx_write_requests", 1000 + 5000 * more),
            ("out_of_sequence", 0),
            ("req_remote_access_errors", 0),
            ("rnr_nak_retry_err", 0),
            ("local_ack_timeout_err", 0),
            ("rp_cnp_handled", 40 + 12 * more),
            ("rp_cnp_ignored", 0),
            ("np_cnp_sent", 7),
            ("np_ecn_marked_roce_packets", 9),
        ],
    );
    fixture.put(port.join("counters/port_rcv_data"), "123456\n");
    fixture.put(port.join("counters/port_xmit_discards"), "0\n");
    let regions = (0..3).map(|number| {
        json!({ "number": number, "owner": { "pid": 4711 }, "bytes": 1 << 30, "counters": {} })
    });
    let held = |counts: [u64; 2]| json!([{ "pid": 4711, "count": counts[0] }, { "kernel": "ib_core", "count": counts[1] }]);
    fixture.answers(&json!({
        "devices": { "mlx5_0": {
            "objects": [
                kind("mr", json!(3), 16_777_216, held([3, 0])),
                windows(),
                kind("qp", json!(65), 131_072, held([64, 1])),
                kind("cq", json!(9), 16_777_216, held([8, 1])),
                kind("pd", json!(2), 16_777_216, held([1, 1])),
            ],
            "regions": regions.collect::<Vec<_>>(),
        } },
        "interfaces": { "ens1f0": {
            "rx_bytes": 5, "rx_prio3_pause": 0, "rx_prio3_pause_duration": 0, "tx_prio3_pause": 0,
        } },
    }));
    fixture
}

/// A host on which much is wrong.
pub fn sick(second: bool) -> Fixture {
    let fixture = Fixture::new("sick");
    fixture.pool(2048, &[[512, 0]], 0);
    fixture.process(900, b"kvcache", 8100, "8388608");
    fixture.process(901, b"indexer", 7000, "8388608");
    let more = u64::from(second);
    let port = fixture.port("mlx5_0", "mlx5_core", "ens1f0");
    fixture.counters(
        &port,
        &[
            ("req_remote_access_errors", 3 + 2 * more),
            ("resp_remote_access_errors", 5),
            // 32 bits, and they wrap.
            ("out_of_sequence", if second { 10 } else { 4_294_967_290 }),
            ("rnr_nak_retry_err", 100 + 250 * more),
            ("local_ack_timeout_err", 8),
            ("rp_cnp_ignored", 50 * more),
            ("np_ecn_marked_roce_packets", 1000 + 90 * more),
            ("np_cnp_sent", 77),
        ],
    );
    let bnxt = fixture.port("bnxt_re0", "bnxt_en", "ens2f0np0");
    fixture.put(bnxt.join("state"), "1: DOWN\n");
    fixture.counters(
        &bnxt,
        &[("res_rx_range_err", 0), ("to_retransmits", 4 + more), ("active_mrs", 20 - 5 * more)],
    );
    let rxe = fixture.port("rxe0", "rxe", "eth0");
    fixture.counters(&rxe, &[("out_of_seq_request", 0), ("retry_exceeded_err", more)]);
    let irdma = fixture.port("irdma0", "irdma", "ens3");
    fixture.counters(&irdma, &[("cnpIgnored", 2), ("RNR received", 5 + more)]);
    let faulty = |number: u32, faults: u64| {
        json!({ "number": number, "owner": { "pid": 900 }, "bytes": 1 << 20, "counters": {
            "page_faults": faults, "page_invalidations": 40 + more, "page_prefetch": 0,
        } })
    };
    let plain = |pid: u32, count: u64| json!([{ "pid": pid, "count": count }]);
    fixture.answers(&json!({
        "devices": {
            "mlx5_0": {
                "objects": [
                    kind("mr", json!(990), 1000, plain(900, 990)),
                    windows(),
                    kind("qp", json!(85), 100, plain(901, 85)),
                    kind("cq", json!(2), 100, plain(901, 2)),
                    kind("pd", json!(1), 100, plain(901, 1)),
                ],
                "regions": [faulty(7, 5), faulty(8, 100 + 20_000 * more)],
            },
            "rxe0": { "objects": { "not_read": "EPERM" }, "regions": [] },
            "bnxt_re0": { "objects": [kind("mr", json!(20), 65_536, plain(900, 20))], "regions": [] },
            "irdma0": { "objects": [kind("mr", json!(20), 21, plain(900, 20))], "regions": [] },
        },
        "interfaces": {
            "ens1f0": {
                "rx_prio3_pause": 10_000 + 500 * more,
                "rx_prio3_pause_duration": 70_000_000 + 250_000 * more,
                "rx_prio3_discards": 3 * more,
                "tx_pause_storm_error_events": 1,
                "rx_prio0_pause": 0,
            },
            "ens2f0np0": { "pfc_pri3_rx_duration_us": 40 },
            "eth0": {},
            "ens3": { "not_read": "EOPNOTSUPP" },
        },
    }));
    fixture
}

/// A host whose devices are odd in every way that devices were seen to be, and some more.
pub fn odd(second: bool) -> Fixture {
    let fixture = Fixture::new("\u{1b}[31modd");
    fixture.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "many\n");
    fixture.put("sys/kernel/mm/hugepages/hugepages-kB/nr_hugepages", "1\n");
    fixture.process(5, b"\x1b]0;evil\x07\xff", 4, "a lot");
    fixture.put("proc/6/status", [0xff; 300]);
    fixture.put("proc/99999999999999999999/status", "VmPin: 4 kB\n");
    fs::create_dir_all(fixture.root().join("proc/7/status")).unwrap();
    // A virtual function of mlx4: it counts nothing that it would tell.
    let port = fixture.port("mlx4_0", "mlx4_core", "enp3s0");
    for name in ["symbol_error", "port_rcv_errors", "link_downed"] {
        fixture.put(port.join("counters").join(name), "N/A (no PMA)\n");
    }
    // No ports; a port of a name that is no number; one that is not there twice.
    fs::create_dir_all(fixture.root().join("sys/class/infiniband/empty0/ports")).unwrap();
    fixture.put("sys/class/infiniband/empty0/ports/one/state", "4: ACTIVE\n");
    // A name that is no text.
    let name = OsStr::from_bytes(b"rxe\xff\x1b[2J");
    let folder = Path::new("sys/class/infiniband").join(name).join("ports/1");
    fixture.put(folder.join("hw_counters/rcvd_seq_err"), if second { "7\n" } else { "900\n" });
    fixture.put(folder.join("hw_counters/retry_exceeded_err"), "99999999999999999999999\n");
    fs::create_dir_all(fixture.root().join(folder.join("hw_counters/rcvd_rnr_err"))).unwrap();
    // efa counts for the device as a whole.
    let efa = Path::new("sys/class/infiniband/efa0");
    fixture.put(efa.join("hw_counters/reg_mr_err"), if second { "3\n" } else { "2\n" });
    fixture.put(efa.join("ports/1/state"), "4: ACTIVE\n");
    // A file where a folder belongs.
    fixture.put("sys/class/infiniband/file0", "");
    if !second {
        fixture.port("leaves0", "mlx5_core", "ens9");
    }
    fixture.answers(&json!({
        "devices": { "mlx4_0": {
            "objects": [{
                "kind": "mr", "in_use": u64::MAX, "limit": 0, "owners": { "not_read": "EINVAL" },
            }],
            "regions": { "not_read": "EMSGSIZE" },
        } },
        "interfaces": { "enp3s0": { "not_read": "ENODEV" } },
    }));
    fixture
}

/// A host with very many regions and processes, some of them named to be taken for something else.
pub fn crowded() -> Fixture {
    let fixture = Fixture::new("crowded");
    fixture.process(50, b"q\"uote\\ {a=\"b\"} # EOF", 8, "8388608");
    for pid in 1000..1300 {
        fixture.process(pid, b"worker", u64::from(pid), "8388608");
    }
    fixture.port("mlx5_0", "mlx5_core", "ens1f0");
    let regions = (0..1500).map(|number| {
        json!({ "number": number, "owner": { "pid": 1000 }, "bytes": 4096, "counters": {
            "page_faults": number, "page_invalidations": 0, "page_prefetch": 0,
        } })
    });
    let objects =
        json!([kind("mr", json!(1500), 16_777_216, json!([{ "pid": 1000, "count": 1500 }]))]);
    fixture.answers(&json!({ "devices": { "mlx5_0": {
        "objects": objects, "regions": regions.collect::<Vec<_>>(),
    } } }));
    fixture
}
