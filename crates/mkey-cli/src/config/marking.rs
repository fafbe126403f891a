//! How RoCE and its congestion notifications are marked: what host and switches have to agree on.

use clap::Args;
use serde::Serialize;

/// Priorities and DSCPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Marking {
    /// IEEE 802.1p priority of RoCE, which is its traffic class and queue, too.
    pub roce_prio: u8,
    /// DSCP of RoCE.
    pub roce_dscp: u8,
    /// Priority of congestion notification packets.
    pub cnp_prio: u8,
    /// DSCP of congestion notification packets.
    pub cnp_dscp: u8,
}

impl Marking {
    /// The byte of the IP header for RoCE: the DSCP, and "capable of ECN" (ECT(0)) below it.
    pub fn traffic_class(&self) -> u8 {
        self.roce_dscp << 2 | 2
    }

    /// What contradicts itself in this, whatever the device; nothing if all is well.
    pub fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.roce_prio == self.cnp_prio {
            wrong.push(format!(
                "RoCE and CNP both on priority {}: a notification that queues behind the traffic it is to slow down, or is paused with it, comes too late",
                self.roce_prio
            ));
        }
        if self.roce_dscp == self.cnp_dscp {
            wrong.push(format!(
                "RoCE and CNP both with DSCP {}: no switch could tell them apart",
                self.roce_dscp
            ));
        }
        if self.roce_prio == 0 {
            wrong.push("RoCE on priority 0: all traffic that nobody marked is there; PFC would pause it with RoCE".to_owned());
        }
        if self.roce_dscp == 0 {
            wrong.push("RoCE with DSCP 0: that is what traffic has that nobody marked".to_owned());
        }
        wrong
    }
}

/// The marking as arguments, with what is usual as default.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkingArgs {
    /// Priority of RoCE, lossless
    #[arg(long, value_name = "0-7", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub roce_prio: u8,

    /// DSCP of RoCE
    #[arg(long, value_name = "0-63", default_value_t = 26, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub roce_dscp: u8,

    /// Priority of congestion notification packets
    #[arg(long, value_name = "0-7", default_value_t = 6, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub cnp_prio: u8,

    /// DSCP of congestion notification packets
    #[arg(long, value_name = "0-63", default_value_t = 48, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub cnp_dscp: u8,
}

impl MarkingArgs {
    /// The marking.
    pub fn marking(&self) -> Marking {
        let Self { roce_prio, roce_dscp, cnp_prio, cnp_dscp } = *self;
        Marking { roce_prio, roce_dscp, cnp_prio, cnp_dscp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Marking = Marking { roce_prio: 3, roce_dscp: 26, cnp_prio: 6, cnp_dscp: 48 };

    #[test]
    fn the_usual_marking_is_106_on_the_wire_and_consistent() {
        assert_eq!(USUAL.traffic_class(), 106);
        assert_eq!(USUAL.contradictions(), Vec::<String>::new());
    }

    #[test]
    fn contradictions_are_told_each() {
        for (marking, part) in [
            (Marking { cnp_prio: 3, ..USUAL }, "both on priority 3"),
            (Marking { cnp_dscp: 26, ..USUAL }, "both with DSCP 26"),
            (Marking { roce_prio: 0, ..USUAL }, "priority 0"),
            (Marking { roce_dscp: 0, ..USUAL }, "DSCP 0"),
        ] {
            let wrong = marking.contradictions();
            assert!(wrong.len() == 1 && wrong[0].contains(part), "{wrong:?}");
        }
    }
}
