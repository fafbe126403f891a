//! H3C Comware 7.

use super::{Plan, each_port, phb};
use crate::config::recipe::Block;

pub(super) fn blocks(plan: &Plan) -> Vec<Block> {
    let roce = plan.marking.roce_prio;
    let mut blocks = vec![
        Block::new("DCBX is told by LLDP; both ends of a link can compare by it.")
            .line("lldp global enable"),
        Block::new("The watchdog: a queue that stays paused for too long is let go, so that a storm of pauses does not spread.")
            .line(format!("priority-flow-control deadlock cos {roce} interval 10"))
            .line("priority-flow-control deadlock precision high")
            .line(format!("priority-flow-control deadlock auto-recover cos {roce} delay 10")),
        Block::new("Headroom: what is still under way when a pause is sent has to fit somewhere. The size depends on the model.")
            .tune("priority-flow-control poolID 0 headroom <n>")
            .verify("display buffer usage"),
    ];
    if plan.map {
        let m = &plan.marking;
        let map = Block::new("Which priority a DSCP has.")
            .line("qos map-table dscp-dot1p")
            .line(format!(" import {} export {}", m.roce_dscp, m.roce_prio))
            .line(format!(" import {} export {}", m.cnp_dscp, m.cnp_prio));
        blocks.push(map.verify("display qos map-table dscp-dot1p"));
    }
    blocks.extend(each_port(plan, |port| interface(plan, port)));
    blocks
}

fn interface(plan: &Plan, port: &str) -> Block {
    let (roce, cnp) = (plan.marking.roce_prio, phb(plan.marking.cnp_prio));
    let mut block = Block::new(format!(
        "Port {port}: trust DSCP; PFC on priority {roce} alone; half of the rest of the bandwidth for RoCE, CNP before all; ECN long before PFC. ECN limits are in cells of the chip (208 bytes on S9820-64H)."
    ))
    .line(format!("interface {port}"))
    .line(" lldp tlv-enable dot1-tlv dcbx")
    .line(" qos trust dscp")
    .line(" priority-flow-control enable")
    .line(format!(" priority-flow-control no-drop dot1p {roce}"))
    .line(" priority-flow-control deadlock enable")
    .line(" qos wfq byte-count")
    .line(format!(" qos wfq {} group 1 byte-count 60", phb(roce)))
    .line(format!(" qos wfq {cnp} group sp"))
    .tune(format!(" priority-flow-control dot1p {roce} headroom <n>"))
    .tune(format!(" priority-flow-control dot1p {roce} ingress-buffer dynamic <n>"));
    for level in 0..3 {
        block = block.tune(format!(
            " qos wred queue {roce} drop-level {level} low-limit <n> high-limit <n> discard-probability <n>"
        ));
    }
    block
        .line(format!(" qos wred queue {roce} weighting-constant 0"))
        .line(format!(" qos wred queue {roce} ecn"))
        .verify("display priority-flow-control interface")
        .verify("display qos wred interface")
        .verify("display qos map-table dscp-dot1p")
}
