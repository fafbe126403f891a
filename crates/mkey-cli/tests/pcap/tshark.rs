//! What tshark says of a capture's packets.

use std::path::Path;
use std::process::Command;

/// A RoCE packet, in tshark's words; an empty one where it has no such field.
#[derive(Clone, Debug)]
pub struct Row(Vec<String>);

const COLUMNS: [&str; 20] = [
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "ip.dsfield.ecn",
    "ipv6.tclass.ecn",
    "udp.length",
    "udp.srcport",
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.ieth",
    "frame.time_epoch",
    "frame.number",
];

impl Row {
    fn text(&self, name: &str) -> &str {
        let at = COLUMNS.iter().position(|column| *column == name).unwrap();
        &self.0[at]
    }

    /// A number; `None` where there is no such field.
    pub fn number(&self, name: &str) -> Option<u64> {
        let text = self.text(name);
        match text.strip_prefix("0x") {
            Some(hex) => Some(u64::from_str_radix(hex, 16).unwrap()),
            None if text.is_empty() => None,
            None => Some(text.parse().unwrap()),
        }
    }

    /// Whether there is such a field.
    pub fn has(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// One of two fields, by version of IP.
    pub fn either(&self, v4: &str, v6: &str) -> String {
        [v4, v6].map(|name| self.text(name)).concat()
    }
}

/// Its RoCE packets.
pub fn rows(capture: &Path) -> Vec<Row> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-n", "-Y", "infiniband", "-T", "fields"]);
    command.args(["-E", "occurrence=f", "--disable-protocol", "rpcordma"]);
    for column in COLUMNS {
        command.args(["-e", column]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| Row(line.split('\t').map(str::to_owned).collect())).collect()
}
