//! What `mkey monitor --prometheus` serves, and whom.

use crate::common::{mkey, run, skipped};
use crate::fixture::{Fixture, crowded, healthy, odd, sick};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3";
const PARSER: &str = "/usr/lib/python3/dist-packages/prometheus_client/__init__.py";

/// A server, ended when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(fixture: &Fixture) -> Self {
        Self::below(fixture.root())
    }

    fn below(root: &Path) -> Self {
        let root = root.to_str().unwrap();
        let arguments = ["monitor", "--prometheus", "127.0.0.1:0", "--root", root];
        let mut child = mkey(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// What is answered to these bytes.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        // One that is refused before it was read whole may be cut.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn page(&self) -> String {
        let answer = self.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.contains(kind), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        body.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page as the Prometheus project's own parser reads it: a line a figure.
fn parsed(test: &str, page: &str) -> Option<String> {
    if !Path::new(PARSER).exists() {
        skipped(test, "python3-prometheus-client is not installed");
        return None;
    }
    let script = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = ','.join(f'{k}={v}' for k, v in sorted(sample.labels.items()))
        print(family.type, sample.name, labels, int(sample.value))
";
    let mut python = Command::new(PYTHON);
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(page.as_bytes()).unwrap();
    drop(input);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}\n{page}", String::from_utf8_lossy(&ended.stderr));
    Some(String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn a_parser_reads_what_was_seen() {
    let test = "a_parser_reads_what_was_seen";
    let Some(figures) = parsed(test, &Server::start(&sick(true)).page()) else { return };
    for line in [
        "gauge mkey_huge_pages node=0,page_bytes=2097152 512",
        "gauge mkey_huge_pages_free node=0,page_bytes=2097152 0",
        "gauge mkey_pinned_bytes pid=900,process=kvcache 8294400",
        "gauge mkey_memlock_limit_bytes pid=900,process=kvcache 8388608",
        "gauge mkey_objects device=mlx5_0,kind=mr 990",
        "gauge mkey_objects_limit device=mlx5_0,kind=mw 16777216",
        "gauge mkey_objects_held device=mlx5_0,kind=qp,pid=901,process=indexer 85",
        "gauge mkey_port_active device=bnxt_re0,port=1 0",
        "counter mkey_port_events_total about=access,counter=req_remote_access_errors,device=mlx5_0,port=1 5",
        "counter mkey_port_events_total about=not ready,counter=RNR received,device=irdma0,port=1 6",
        "gauge mkey_port_objects about=other,counter=active_mrs,device=bnxt_re0,port=1 15",
        "counter mkey_interface_events_total about=pause,counter=rx_prio3_pause,interface=ens1f0 10500",
        "counter mkey_region_events_total counter=page_faults,device=mlx5_0,mr=8 20100",
        "gauge mkey_regions_uncounted device=mlx5_0 0",
        "gauge mkey_monitor_unread kind=objects 1",
        "gauge mkey_monitor_unread kind=interface 1",
    ] {
        assert!(figures.lines().any(|one| one == line), "{line:?} is not in\n{figures}");
    }
}

#[test]
fn a_parser_reads_healthy_and_odd_hosts_and_this_one() {
    let test = "a_parser_reads_healthy_and_odd_hosts_and_this_one";
    let live = Server::below(Path::new("/"));
    for (page, part) in [
        (Server::start(&healthy(false)).page(), "mkey_objects_held device=mlx5_0,kind=qp"),
        (Server::start(&odd(false)).page(), "mkey_monitor_unread kind=counter 5"),
        (live.page(), "mkey_monitor_unread kind=pinned 0"),
    ] {
        let Some(figures) = parsed(test, &page) else { return };
        assert!(figures.contains(part), "{part:?} is not in\n{figures}");
    }
}

#[test]
fn names_are_taken_as_they_are_and_very_many_regions_are_bounded() {
    let test = "names_are_taken_as_they_are_and_very_many_regions_are_bounded";
    let Some(figures) = parsed(test, &Server::start(&crowded()).page()) else { return };
    let named = "gauge mkey_pinned_bytes pid=50,process=q\"uote\\ {a=\"b\"} # EOF 8192";
    assert!(figures.lines().any(|line| line == named), "{figures}");
    let faults = |line: &&str| line.contains("counter=page_faults,");
    let told: Vec<&str> = figures.lines().filter(faults).collect();
    assert_eq!(told.len(), 1000);
    // Those with the most.
    assert!(told.iter().any(|line| line.ends_with("mr=1499 1499")), "{told:?}");
    assert!(!told.iter().any(|line| line.ends_with("mr=499 499")), "{told:?}");
}

#[test]
fn only_the_page_is_served_and_only_by_get() {
    let server = Server::start(&healthy(false));
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 Not Found"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x00\xa5\r\n\r\n", "400 Bad Request"),
    ] {
        let answer = server.ask(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert_eq!(answer.contains("Allow: GET\r\n"), status.starts_with("405"), "{answer}");
    }
    assert!(server.page().ends_with("# EOF\n"));
}

/// Headers without end, from one that never stops sending.
#[test]
fn a_request_that_is_too_long_is_refused() {
    let server = Server::start(&healthy(false));
    let long = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &vec![b'a'; 1 << 20]].concat();
    let mut stream = server.connect();
    let _ = stream.write_all(&long);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    // The answer arrives, or the connection is cut while it sends on; it is never served.
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = [&b"GET /metrics HTTP/1.1\r\n"[..], &b"a: b\r\n".repeat(65), b"\r\n"].concat();
    assert!(server.ask(&many).starts_with("HTTP/1.1 431 "));
    assert!(server.page().ends_with("# EOF\n"));
}

/// Silent ones, slow ones and such as do not leave, and more of them than are answered at a time: whoever
/// asks is answered at once, and they are sent away.
#[test]
fn who_only_connects_keeps_nobody_out() {
    let server = Server::start(&healthy(false));
    let whole = b"GET /metrics HTTP/1.1\r\n\r\n";
    for words in [&b""[..], b"GET /metrics HT", whole] {
        let mut idle: Vec<TcpStream> = (0..64).map(|_| server.connect()).collect();
        for stream in &mut idle {
            // The oldest may be sent away already.
            let _ = stream.write_all(words);
        }
        let mut asked = 0;
        // Those who have asked are being answered still, perhaps: they are told apart by nothing else.
        while !server.ask(whole).starts_with("HTTP/1.1 200 ") {
            asked += 1;
            assert!(words == whole && asked < 1_000_000, "{words:?} keeps others out");
        }
        let mut late = 0;
        for mut stream in idle {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            late += usize::from(answer.starts_with(b"HTTP/1.1 408 "));
        }
        // The others have made room.
        assert!(
            late <= 16 && (late > 0) == (words != whole),
            "{late} were told that they are slow"
        );
    }
}

#[test]
fn a_signal_ends_it_and_the_address_is_free_again() {
    let fixture = healthy(false);
    let mut server = Server::start(&fixture);
    // Somebody who is connected and says nothing does not hold it.
    let _silent = server.connect();
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    let status = server.child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn an_address_that_is_taken_is_told() {
    let fixture = healthy(false);
    let server = Server::start(&fixture);
    let root = fixture.root().to_str().unwrap();
    let taken = server.address.to_string();
    let (code, stdout, stderr) =
        run(&mut mkey(&["monitor", "--prometheus", &taken, "--root", root]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains(&taken) && stderr.contains("in use"), "{stderr}");
}
