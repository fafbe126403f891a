//! What captures hold.

use crate::pair::Pair;
use crate::pcap::frames;
use mkey_wire::frame::Frame;
use mkey_wire::pcap::LinkType;
use std::path::Path;
use std::process::Command;

/// Looks at the captures of both sides: each packet is one, with the ICRC that it should have, and
/// Wireshark has nothing to say about it. How many packets there are.
pub fn check(pair: &Pair<'_>) -> usize {
    let mut count = 0;
    for path in pair.captures() {
        let frames = frames(path);
        for bytes in &frames {
            let frame = Frame::parse(LinkType::Cooked, bytes).unwrap();
            let packet = frame.packet().unwrap();
            assert_eq!(frame.icrc(), Some(packet.icrc), "{packet:?}");
        }
        assert_eq!(complaints(path), "", "{}", path.display());
        count += frames.len();
    }
    count
}

/// What tshark says of packets that it does not take for RoCEv2, or finds fault with.
fn complaints(path: &Path) -> String {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-n", "-T", "fields", "-e", "frame.number"]);
    command.args(["-e", "_ws.malformed", "-e", "_ws.expert"]);
    // It takes every short payload for some storage protocol's.
    command.args(["--disable-protocol", "rpcordma"]);
    for wanted in ["ip.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{wanted}:TRUE")]);
    }
    // Less than a warning is that packets may go no further than to the next router: the programs of
    // rdma-core want it so.
    command.args(["-Y", "_ws.malformed or _ws.expert.severity >= 0x600000 or not infiniband"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}
