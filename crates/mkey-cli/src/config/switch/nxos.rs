//! Cisco NX-OS.

use super::{Plan, each_port};
use crate::config::recipe::Block;

pub(super) fn blocks(plan: &Plan) -> Vec<Block> {
    let m = &plan.marking;
    let (roce, cnp) = (m.roce_prio, m.cnp_prio);
    let mut blocks = vec![
        Block::new("The watchdog: a queue that stays paused for too long is let go.")
            .line("priority-flow-control watch-dog-interval on"),
        Block::new("Which class a DSCP has. The numbers have to agree all the way: qos-group N, c-8q-nqN, pfc-cos N, c-out-8q-qN.")
            .line("class-map type qos match-any MKEY-ROCE")
            .line(format!("  match dscp {}", m.roce_dscp))
            .line("class-map type qos match-any MKEY-CNP")
            .line(format!("  match dscp {}", m.cnp_dscp))
            .line("policy-map type qos MKEY-CLASSIFY")
            .line("  class MKEY-ROCE")
            .line(format!("    set qos-group {roce}"))
            .line("  class MKEY-CNP")
            .line(format!("    set qos-group {cnp}")),
        Block::new("PFC on that class alone, and room for large frames.")
            .line("policy-map type network-qos MKEY-NETWORK")
            .line(format!("  class type network-qos c-8q-nq{roce}"))
            .line("    mtu 9216")
            .line(format!("    pause pfc-cos {roce}"))
            .line("  class type network-qos c-8q-nq-default")
            .line("    mtu 9216"),
        Block::new("CNP before all; half of the rest for RoCE, with ECN.")
            .line("policy-map type queuing MKEY-EGRESS")
            .line(format!("  class type queuing c-out-8q-q{cnp}"))
            .line("    priority level 1")
            .line(format!("  class type queuing c-out-8q-q{roce}"))
            .line("    bandwidth remaining percent 50")
            .line(format!(
                "    random-detect minimum-threshold {} kbytes maximum-threshold {} kbytes drop-probability 7 weight 0 ecn",
                plan.ecn_min, plan.ecn_max
            )),
        Block::new("In force for the whole switch.")
            .line("system qos")
            .line("  service-policy type network-qos MKEY-NETWORK")
            .line("  service-policy type queuing output MKEY-EGRESS"),
    ];
    blocks.extend(each_port(plan, |port| {
        Block::new(format!("Port {port}: PFC on, whatever DCBX says."))
            .line(format!("interface {port}"))
            .line("  service-policy type qos input MKEY-CLASSIFY")
            .line("  priority-flow-control mode on")
            .line("  priority-flow-control watch-dog-interval on")
            .verify("show interface priority-flow-control")
            .verify(format!("show queuing interface {port}"))
            .verify("show queuing pfc-queue")
    }));
    blocks
}
