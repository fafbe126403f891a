//! Switches that are configured from a shell or by one profile: SONiC, Cumulus, Onyx.

use super::{Plan, each_port};
use crate::config::recipe::Block;

pub(super) fn sonic(plan: &Plan) -> Vec<Block> {
    let m = &plan.marking;
    let mut blocks = vec![
        Block::new("The stock QoS of SONiC: lossless priorities 3 and 4, ECN profile AZURE_LOSSLESS. This replaces what is there, the DSCP map included.")
            .line("sudo config qos reload"),
    ];
    if plan.map {
        let map = Block::new("Which traffic class a DSCP has: the stock map sends 26 to 1, which is lossy. After each config qos reload again.")
            .line(format!(
                "echo '{{\"DSCP_TO_TC_MAP\":{{\"AZURE\":{{\"{}\":\"{}\",\"{}\":\"{}\"}}}}}}' > roce-dscp.json",
                m.roce_dscp, m.roce_prio, m.cnp_dscp, m.cnp_prio
            ))
            .line("sudo config load -y roce-dscp.json");
        blocks.push(map);
    }
    blocks.extend(each_port(plan, |port| {
        Block::new(format!("Port {port}: PFC on priority {}.", m.roce_prio))
            .line(format!("sudo config interface pfc priority {port} {} on", m.roce_prio))
            .verify("show pfc priority")
            .verify("show pfc counters")
    }));
    blocks.push(
        Block::new("The watchdog: a queue that stays paused for 400 ms drops instead, until it was not paused for 400 ms.")
            .line("sudo config pfcwd start --action drop all 400 --restoration-time 400")
            .verify("show pfcwd config"),
    );
    blocks.push(
        Block::new("Where ECN begins to mark, in bytes.")
            .line(format!(
                "sudo config ecn -profile AZURE_LOSSLESS -gmin {} -gmax {}",
                u64::from(plan.ecn_min) * 1000,
                u64::from(plan.ecn_max) * 1000
            ))
            .verify("ecnconfig -l"),
    );
    blocks
}

pub(super) fn cumulus(plan: &Plan) -> Vec<Block> {
    let mut blocks = vec![
        Block::new("One profile does all of it: priority 3 for RoCE, 6 for CNP before all; half of the bandwidth each way; ECN from 150 to 1500 KB; PFC on 3 alone; DCBX tells UDP port 4791.")
            .line("nv set qos roce mode lossless"),
    ];
    blocks.extend(each_port(plan, |port| {
        Block::new(format!("Port {port}: the watchdog."))
            .tune(format!("nv set interface {port} qos pfc-watchdog"))
    }));
    blocks.push(
        Block::new("Nothing is in force before this.")
            .line("nv config apply")
            .verify("nv show qos roce"),
    );
    blocks
}

pub(super) fn onyx() -> Vec<Block> {
    vec![
        Block::new("One profile does all of it, on all ports: trust DSCP, priority 3 for RoCE with half of the bandwidth, 6 for CNP before all, ECN from 150 to 1500 KB, PFC on 3. Changing it may take links down for a moment.")
            .line("roce lossless")
            .verify("show roce")
            .verify("show interfaces ethernet 1/1 counters roce"),
    ]
}
