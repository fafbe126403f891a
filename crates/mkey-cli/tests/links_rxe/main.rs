//! Programs that `mkey run` starts and programs on the kernel's soft-RoCE talk to each other, packet
//! for packet: in a virtual machine (`cargo xtask vm`). soft-RoCE has RoCEv2's UDP port in its network
//! namespace, ours is in another one.

#[path = "../common/namespaces.rs"]
mod namespaces;
#[path = "../links/pcap.rs"]
mod pcap;
#[path = "../links/process.rs"]
mod process;

use mkey_wire::frame::Frame;
use mkey_wire::pcap::LinkType;
use mkey_wire::udp_ip::Ip;
use namespaces::{in_namespace, ip};
use process::{await_listener, ended, said};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// So long a run may take: the machine is emulated.
const PATIENCE: Duration = Duration::from_secs(60);
const OURS: &str = "ours";
const DEVICE: &str = "rxe1";
/// The kernel's address and ours.
const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

const MACS: [&str; 2] = ["02:00:00:00:77:01", "02:00:00:00:77:02"];

/// What each side runs; an answer may take a second there.
const PROGRAMS: [&str; 7] = [
    "ibv_rc_pingpong -n 20 -s 4000 -c",
    "ibv_uc_pingpong -n 20 -c",
    "ibv_ud_pingpong -n 20 -s 1000 -c",
    "ib_write_bw -F -u 18 -s 20000 -n 20",
    "ib_read_bw -F -u 18 -s 20000 -n 20",
    "ib_send_bw -F -u 18 -s 20000 -n 20",
    "ib_atomic_bw -F -u 18 -n 20",
];

/// What the kernel counts of packets that should not have been sent so.
const COUNTERS: [&str; 3] = ["duplicate_request", "rcvd_seq_err", "completer_retry_err"];
/// It waits 67 ms for an answer, which can not be changed and is too short for an emulated machine at
/// times; and the kernel's timer does not begin anew with each request. Then packets are sent again.
const HASTY: &str = "ibv_rc_pingpong";

/// A machine that is emulated may stand still for longer than an answer is waited for. What is wrong with
/// packets is wrong each time.
const TRIES: usize = 3;

#[test]
#[ignore = "needs the kernel's soft-RoCE: cargo xtask test --only vm-links"]
fn programs_of_ours_and_of_the_kernel_s_device_understand_each_other() {
    cable();
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::tap(&folder.path().join("wire.pcap"));
    for v6 in [false, true] {
        let index = gid_index(if v6 { V6[0] } else { V4[0] });
        for program in PROGRAMS {
            for kernel_serves in [true, false] {
                let who = (if v6 { "IPv6" } else { "IPv4" }, kernel_serves);
                let mut told = Vec::new();
                for _ in 0..TRIES {
                    told = exchange_counted(program, v6, index, kernel_serves);
                    if told.is_empty() {
                        break;
                    }
                    println!("{program} {who:?}: {told:?}");
                }
                assert!(told.is_empty(), "{program} {who:?}: {told:?}, {TRIES} times");
            }
        }
    }
    check(&wire.cut());
}

/// What the kernel has counted meanwhile.
fn exchange_counted(
    program: &str,
    v6: bool,
    index: usize,
    kernel_serves: bool,
) -> Vec<(&'static str, u64)> {
    let before = COUNTERS.map(count);
    exchange(program, v6, index, kernel_serves);
    let after = COUNTERS.map(count);
    let more = |at: usize| (COUNTERS[at], after[at] - before[at]);
    let hasty = program.starts_with(HASTY);
    let told = (0..COUNTERS.len()).map(more).filter(|(_, more)| *more > 0);
    told.filter(|(counter, _)| !hasty || *counter == "rcvd_seq_err").collect()
}

fn count(counter: &str) -> u64 {
    let path = format!("/sys/class/infiniband/{DEVICE}/ports/1/hw_counters/{counter}");
    fs::read_to_string(&path).unwrap().trim().parse().unwrap()
}

/// A cable between this namespace, with a device of the kernel's at its end, and ours.
fn cable() {
    let lines = [
        format!("netns add {OURS}"),
        format!(
            "link add cable0 address {} type veth peer name eth0 address {} netns {OURS}",
            MACS[0], MACS[1]
        ),
        // The kernel cuts packets out of what is sent at once before it goes out, so that it is seen.
        format!("-n {OURS} link set eth0 gso_max_segs 1"),
        format!("address add {}/24 dev cable0", V4[0]),
        format!("address add {}/64 dev cable0 nodad", V6[0]),
        format!("-n {OURS} address add {}/24 dev eth0", V4[1]),
        format!("-n {OURS} address add {}/64 dev eth0 nodad", V6[1]),
        format!("-n {OURS} link set lo up"),
        format!("-n {OURS} link set eth0 up"),
        "link set cable0 up".to_owned(),
    ];
    // So that no first packet waits until the other side's address is found out.
    let neighbours = [V4, V6].into_iter().flat_map(|addresses| {
        [
            format!("neighbour add {} lladdr {} dev cable0", addresses[1], MACS[1]),
            format!("-n {OURS} neighbour add {} lladdr {} dev eth0", addresses[0], MACS[0]),
        ]
    });
    for line in lines.into_iter().chain(neighbours) {
        ip(&line).unwrap();
    }
    // One processor takes in all packets of an end: by two, they could overtake each other.
    let steer = |device: &str| {
        let mut steer = Command::new("sh");
        steer.args(["-c", &format!("echo 1 >/sys/class/net/{device}/queues/rx-0/rps_cpus")]);
        steer
    };
    assert!(steer("cable0").status().unwrap().success());
    assert!(in_namespace(OURS, &steer("eth0")).status().unwrap().success());
    let mut rdma = Command::new("rdma");
    rdma.args(["link", "add", DEVICE, "type", "rxe", "netdev", "cable0"]);
    assert!(rdma.status().unwrap().success());
}

/// Which of the kernel's device's addresses this is. It learns of them one by one.
fn gid_index(address: &str) -> usize {
    let wanted = match address.parse().unwrap() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let port = PathBuf::from(format!("/sys/class/infiniband/{DEVICE}/ports/1"));
    let until = Instant::now() + PATIENCE;
    loop {
        let found = (0..16).find(|index| {
            let gid = fs::read_to_string(port.join(format!("gids/{index}"))).unwrap_or_default();
            let kind = port.join(format!("gid_attrs/types/{index}"));
            let kind = fs::read_to_string(kind).unwrap_or_default();
            gid.trim().parse::<Ipv6Addr>() == Ok(wanted) && kind.trim() == "RoCE v2"
        });
        if let Some(index) = found {
            return index;
        }
        assert!(Instant::now() < until, "{DEVICE} has no address {address}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program on both sides to a good end.
fn exchange(program: &str, v6: bool, gid_index: usize, kernel_serves: bool) {
    let words: Vec<&str> = program.split(' ').collect();
    // The tools of rdma-core and perftest name the address to be used differently.
    let index = if words[0].starts_with("ibv_") { "-g" } else { "-x" };
    let kernels = |more: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["-d", DEVICE, index, &gid_index.to_string()]).args(more);
        start(&mut command)
    };
    let ours = |more: &[&str]| {
        let address = if v6 { V6[1] } else { V4[1] };
        let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
        command.args(["run", "--only", "--link", "udp", "--address", address, "--"]);
        command.args(&words).args([index, "0"]).args(more);
        start(&mut in_namespace(OURS, &command))
    };
    let (mut server, namespace) = match kernel_serves {
        true => (kernels(&[]), None),
        false => (ours(&[]), Some(OURS)),
    };
    await_listener(&mut server, namespace, PATIENCE);
    let mut client = match kernel_serves {
        true => ours(&[V4[0]]),
        false => kernels(&[V4[1]]),
    };
    let until = Instant::now() + PATIENCE;
    let ends = [ended(&mut client, until), ended(&mut server, until)];
    let said = [client, server].map(said).join("\n");
    let version = if v6 { 6 } else { 4 };
    let who = if kernel_serves { "the kernel serves" } else { "we serve" };
    assert_eq!(ends, [Some(0); 2], "{program} by IPv{version}, {who}:\n{said}");
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A capture of what goes over the cable.
struct Wire {
    path: PathBuf,
    dumpcap: Child,
    /// What it says later must not find a closed pipe.
    _words: BufReader<ChildStderr>,
}

impl Wire {
    fn tap(path: &Path) -> Self {
        let mut command = Command::new("dumpcap");
        command.args(["-P", "-q", "-i", "cable0", "-f", "udp port 4791", "-w"]).arg(path);
        let mut dumpcap = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(dumpcap.stderr.take().unwrap());
        // When it says into which file it writes, it listens.
        let mut line = String::new();
        while !line.starts_with("File: ") {
            line.clear();
            assert!(words.read_line(&mut line).unwrap() > 0, "dumpcap has ended");
        }
        Self { path: path.to_owned(), dumpcap, _words: words }
    }

    /// Ends it; what there is.
    fn cut(mut self) -> Vec<Vec<u8>> {
        let pid = rustix::process::Pid::from_child(&self.dumpcap);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.dumpcap.wait().unwrap();
        pcap::frames(&self.path)
    }
}

/// Each packet on the cable is one with the right ICRC, from whomever it comes.
fn check(frames: &[Vec<u8>]) {
    let mut counts = [[0; 2]; 2];
    for bytes in frames {
        let frame = Frame::parse(LinkType::Ethernet, bytes).unwrap();
        let packet = frame.packet().unwrap();
        assert_eq!(frame.icrc(), Some(packet.icrc), "{:?} {packet:?}", frame.around);
        let (version, from) = match frame.around.ip {
            Ip::V4(ip) => (0, IpAddr::V4(ip.source)),
            Ip::V6(ip) => (1, IpAddr::V6(ip.source)),
        };
        let ours = [V4[1], V6[1]][version].parse() == Ok(from);
        counts[version][usize::from(ours)] += 1;
    }
    println!("packets by IPv4 and IPv6, of the kernel's device and ours: {counts:?}");
    assert!(counts.iter().flatten().all(|&count| count > 300), "{counts:?}");
}
