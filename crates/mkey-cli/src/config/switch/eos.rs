//! Arista EOS.

use super::{Plan, each_port};
use crate::config::recipe::Block;

pub(super) fn blocks(plan: &Plan) -> Vec<Block> {
    let m = &plan.marking;
    let mut blocks = vec![
        Block::new("Which traffic class a DSCP has.")
            .line(format!("qos map dscp {} to traffic-class {}", m.roce_dscp, m.roce_prio))
            .line(format!("qos map dscp {} to traffic-class {}", m.cnp_dscp, m.cnp_prio)),
        Block::new("The watchdog: a queue that stays paused for too long drops instead. It watches queues with guaranteed bandwidth only. cEOS takes none of these commands.")
            .line("priority-flow-control pause watchdog default timeout 0.20")
            .line("priority-flow-control pause watchdog default recovery-time 0.20")
            .line("priority-flow-control pause watchdog default polling-interval 0.10")
            .line("priority-flow-control pause watchdog action drop"),
    ];
    blocks.extend(each_port(plan, |port| {
        Block::new(format!("Port {port}: PFC on one priority alone; half of the bandwidth for RoCE, with ECN; CNP before all."))
            .line(format!("interface {port}"))
            .line("   qos trust dscp")
            .line("   priority-flow-control on")
            .line(format!("   priority-flow-control priority {} no-drop", m.roce_prio))
            .line(format!("   tx-queue {}", m.roce_prio))
            .line("      bandwidth percent 50")
            .line(format!(
                "      random-detect ecn minimum-threshold {} kbytes maximum-threshold {} kbytes max-mark-probability 10",
                plan.ecn_min, plan.ecn_max
            ))
            .line(format!("   tx-queue {}", m.cnp_prio))
            .line("      priority strict")
            .verify("show priority-flow-control")
            .verify("show qos maps")
            .verify("show qos interfaces")
    }));
    blocks
}
