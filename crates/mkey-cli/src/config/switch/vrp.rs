//! Huawei CloudEngine.

use super::{Plan, each_port, phb};
use crate::config::recipe::Block;

pub(super) fn blocks(plan: &Plan) -> Vec<Block> {
    let m = &plan.marking;
    let roce = m.roce_prio;
    let mut blocks = vec![
        Block::new("PFC on one priority alone. Some models want headroom and the DSCP map for PFC by themselves, and let the watchdog's times be set.")
            .line("dcb pfc")
            .line(format!(" priority {roce}"))
            .tune(format!(" priority {roce} deadlock-detect time 100"))
            .tune(format!(" priority {roce} deadlock-recovery time 100"))
            .tune(format!(" priority {roce} turn-off threshold 30"))
            .tune("qos buffer headroom-pool size 4 mbytes slot 1")
            .tune("dcb pfc dscp-mapping enable slot 1"),
        Block::new("Which class a DSCP has. Huawei's own examples use queue 4 with DSCP 24; what counts is that hosts and switches agree.")
            .line("diffserv domain mkey-roce")
            .line(format!(" ip-dscp-inbound {} phb {} green", m.roce_dscp, phb(roce)))
            .line(format!(" ip-dscp-inbound {} phb {} green", m.cnp_dscp, phb(m.cnp_prio))),
        Block::new("Where ECN begins to mark, in percent of the queue.")
            .line("drop-profile mkey-ecn")
            .line(" ecn low-limit 30 high-limit 50 discard-percentage 20"),
    ];
    blocks.extend(each_port(plan, |port| {
        Block::new(format!(
            "Port {port}: trust DSCP by that map; PFC; its watchdog; ECN on queue {roce}."
        ))
        .line(format!("interface {port}"))
        .line(" trust dscp")
        .line(" trust upstream mkey-roce")
        .line(" dcb pfc enable mode manual")
        .line(" port pfc-deadlock trigger turn-off")
        .line(format!(" qos queue {roce} wred mkey-ecn"))
        .line(format!(" qos queue {roce} ecn"))
        .verify(format!("display qos ecn threshold interface {port}"))
    }));
    blocks.push(Block::new("Nothing is in force before this.").line("commit"));
    blocks
}
