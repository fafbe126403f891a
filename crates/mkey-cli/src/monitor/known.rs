//! What counters of RDMA ports mean. The names are those of their drivers: mlx5, bnxt_re, irdma,
//! rxe, efa, and the port counters that InfiniBand prescribes.

use crate::lang::Lang;
use serde::Serialize;

/// What a counter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Accesses that were refused.
    Access,
    /// Other completions with an error.
    Completion,
    /// What was sent again, or given up.
    Retry,
    /// Receivers that were not ready.
    Rnr,
    /// Packets that were missed or came in another order.
    Sequence,
    /// Congestion notification packets.
    Cnp,
    /// Packets marked by switches.
    Ecn,
    /// Packets that were thrown away.
    Discard,
    /// Packets that were damaged.
    Damage,
    /// PFC and global pause.
    Pause,
    /// On-demand paging.
    Paging,
    /// Something else.
    Other,
}

/// When an increase is worth a look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Always, and it is a failure of a program or of the network.
    Bad,
    /// Always.
    Warn,
    /// Beyond so many a second; and beyond so many it is bad.
    Above(f64, f64),
    /// Never.
    Never,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meaning {
    /// What it is about.
    pub class: Class,
    /// When it is worth a look.
    pub rule: Rule,
}

impl Class {
    /// In words.
    pub fn name(self, lang: Lang) -> &'static str {
        match self {
            Self::Access => lang.pick("access", "访问"),
            Self::Completion => lang.pick("completion", "完成"),
            Self::Retry => lang.pick("retry", "重传"),
            Self::Rnr => lang.pick("not ready", "未就绪"),
            Self::Sequence => lang.pick("sequence", "乱序"),
            Self::Cnp => lang.pick("CNP", "CNP"),
            Self::Ecn => lang.pick("ECN", "ECN"),
            Self::Discard => lang.pick("discard", "丢弃"),
            Self::Damage => lang.pick("damage", "损坏"),
            Self::Pause => lang.pick("pause", "暂停"),
            Self::Paging => lang.pick("paging", "缺页"),
            Self::Other => lang.pick("other", "其他"),
        }
    }
}

/// Congestion notifications and marks that a network under load has without harm.
const MANY: Rule = Rule::Above(1_000.0, 100_000.0);

/// Counters of ports, by name.
pub const COUNTERS: &[(&str, Class, Rule)] = &[
    // mlx5
    ("req_remote_access_errors", Class::Access, Rule::Bad),
    ("resp_remote_access_errors", Class::Access, Rule::Bad),
    ("req_remote_invalid_request", Class::Completion, Rule::Bad),
    ("resp_local_length_error", Class::Completion, Rule::Bad),
    ("req_cqe_error", Class::Completion, Rule::Warn),
    ("resp_cqe_error", Class::Completion, Rule::Warn),
    ("req_cqe_flush_error", Class::Completion, Rule::Never),
    ("resp_cqe_flush_error", Class::Completion, Rule::Never),
    ("req_transport_retries_exceeded", Class::Retry, Rule::Bad),
    ("local_ack_timeout_err", Class::Retry, Rule::Warn),
    ("duplicate_request", Class::Retry, Rule::Warn),
    ("roce_adp_retrans", Class::Retry, Rule::Warn),
    ("roce_adp_retrans_to", Class::Retry, Rule::Warn),
    ("roce_slow_restart", Class::Retry, Rule::Warn),
    ("req_rnr_retries_exceeded", Class::Rnr, Rule::Bad),
    ("rnr_nak_retry_err", Class::Rnr, Rule::Warn),
    ("out_of_buffer", Class::Rnr, Rule::Warn),
    ("out_of_sequence", Class::Sequence, Rule::Warn),
    ("packet_seq_err", Class::Sequence, Rule::Warn),
    ("implied_nak_seq_err", Class::Sequence, Rule::Warn),
    ("rp_cnp_handled", Class::Cnp, MANY),
    ("rp_cnp_ignored", Class::Cnp, Rule::Bad),
    ("np_cnp_sent", Class::Cnp, MANY),
    ("np_ecn_marked_roce_packets", Class::Ecn, MANY),
    ("rx_icrc_encapsulated", Class::Damage, Rule::Bad),
    // bnxt_re
    ("remote_access_err", Class::Access, Rule::Bad),
    ("res_rx_invalid_rkey", Class::Access, Rule::Bad),
    ("res_rx_range_err", Class::Access, Rule::Bad),
    ("res_rx_no_perm", Class::Access, Rule::Bad),
    ("max_retry_exceeded", Class::Retry, Rule::Bad),
    ("to_retransmits", Class::Retry, Rule::Warn),
    ("rnr_naks_rcvd", Class::Rnr, Rule::Warn),
    ("rx_out_of_buffer", Class::Rnr, Rule::Warn),
    ("seq_err_naks_rcvd", Class::Sequence, Rule::Warn),
    ("oos_drop_count", Class::Sequence, Rule::Warn),
    ("tx_cnp_pkts", Class::Cnp, MANY),
    ("rx_cnp_pkts", Class::Cnp, MANY),
    ("rx_ecn_marked_pkts", Class::Ecn, MANY),
    // irdma
    ("RetransSegs", Class::Retry, Rule::Warn),
    ("RTO", Class::Retry, Rule::Warn),
    ("RNR sent", Class::Rnr, Rule::Warn),
    ("RNR received", Class::Rnr, Rule::Warn),
    ("Nak Sequence Error", Class::Sequence, Rule::Warn),
    ("Nak Sequence Error Implied", Class::Sequence, Rule::Warn),
    ("Rcvd Out of order packets", Class::Sequence, Rule::Warn),
    ("cnpHandled", Class::Cnp, MANY),
    ("cnpIgnored", Class::Cnp, Rule::Bad),
    ("cnpSent", Class::Cnp, MANY),
    ("RxECNMrkd", Class::Ecn, MANY),
    // rxe; duplicate_request is as above
    ("retry_exceeded_err", Class::Retry, Rule::Bad),
    ("completer_retry_err", Class::Retry, Rule::Warn),
    ("retry_rnr_exceeded_err", Class::Rnr, Rule::Bad),
    ("rcvd_rnr_err", Class::Rnr, Rule::Warn),
    ("send_rnr_err", Class::Rnr, Rule::Warn),
    ("out_of_seq_request", Class::Sequence, Rule::Warn),
    ("rcvd_seq_err", Class::Sequence, Rule::Warn),
    ("send_err", Class::Discard, Rule::Warn),
    // efa
    ("rx_drops", Class::Discard, Rule::Warn),
    ("reg_mr_err", Class::Other, Rule::Warn),
    // of every port
    ("port_rcv_errors", Class::Damage, Rule::Warn),
    ("port_rcv_remote_physical_errors", Class::Damage, Rule::Warn),
    ("symbol_error", Class::Damage, Rule::Warn),
    ("local_link_integrity_errors", Class::Damage, Rule::Warn),
    ("port_rcv_constraint_errors", Class::Discard, Rule::Warn),
    ("port_xmit_constraint_errors", Class::Discard, Rule::Warn),
    ("port_xmit_discards", Class::Discard, Rule::Warn),
    ("excessive_buffer_overrun_errors", Class::Discard, Rule::Warn),
    ("VL15_dropped", Class::Discard, Rule::Never),
    ("port_xmit_wait", Class::Pause, Rule::Never),
    ("link_downed", Class::Damage, Rule::Bad),
    ("link_error_recovery", Class::Damage, Rule::Warn),
];

/// Counters of packets marked by switches, each with that of the notifications that answer them.
const ANSWERED: [(&str, &str); 3] = [
    ("np_ecn_marked_roce_packets", "np_cnp_sent"),
    ("rx_ecn_marked_pkts", "tx_cnp_pkts"),
    ("RxECNMrkd", "cnpSent"),
];

/// The counter of marked packets and that of the notifications that answer them, where both are.
pub fn answered<'c, T>(find: impl Fn(&str) -> Option<&'c T>) -> Option<(&'c T, &'c T)> {
    ANSWERED.iter().find_map(|(marked, sent)| find(marked).zip(find(sent)))
}

/// Counters that go down as well: how many there are now.
const GAUGES: [&str; 2] = ["active_", "watermark_"];

/// What is known of a counter of a port.
pub fn of_port(name: &str) -> Meaning {
    let known = COUNTERS.iter().find(|(known, ..)| *known == name);
    let (class, rule) =
        known.map_or((Class::Other, Rule::Never), |(_, class, rule)| (*class, *rule));
    Meaning { class, rule }
}

/// Whether it is no counter but how many there are now.
pub fn is_gauge(name: &str) -> bool {
    GAUGES.iter().any(|start| name.starts_with(start))
}

/// What is known of a statistic of a network interface; `None` if it has nothing to do with losses
/// and pauses.
pub fn of_interface(name: &str) -> Option<Meaning> {
    let (lower, has) = (name.to_ascii_lowercase(), |part: &str| name.contains(part));
    let meaning = |class, rule| Some(Meaning { class, rule });
    let pauses = ["pause", "pfc", "xoff", "xon"].iter().any(|part| lower.contains(part));
    if pauses && has("storm") {
        return meaning(Class::Pause, if has("error") { Rule::Bad } else { Rule::Warn });
    }
    if name == "continuous_roce_pause_events" {
        return meaning(Class::Pause, Rule::Warn);
    }
    if pauses && has("duration") {
        // In microseconds: held for a hundredth, and for a tenth of the time.
        return meaning(Class::Pause, Rule::Above(10_000.0, 100_000.0));
    }
    if pauses {
        return meaning(Class::Pause, Rule::Above(100.0, 10_000.0));
    }
    if has("prio") && has("marked") {
        return meaning(Class::Ecn, MANY);
    }
    if has("discard") && (has("prio") || has("phy")) {
        return meaning(Class::Discard, Rule::Bad);
    }
    None
}

/// What is known of a counter of an on-demand region.
pub fn of_region(name: &str) -> Meaning {
    let faults = name.starts_with("page_faults") && !name.ends_with("_handled");
    let rule = if faults { Rule::Above(1_000.0, 10_000.0) } else { Rule::Never };
    Meaning { class: Class::Paging, rule }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_is_listed_twice() {
        for (at, (name, ..)) in COUNTERS.iter().enumerate() {
            assert!(COUNTERS.iter().take(at).all(|(other, ..)| other != name), "{name}");
        }
    }

    #[test]
    fn statistics_of_interfaces_are_told_by_their_words() {
        let class = |name| of_interface(name).map(|meaning| meaning.class);
        for name in [
            "rx_prio3_pause",
            "rx_prio3_pause_duration",
            "tx_pause_storm_error_events",
            "rx_pfc_ena_frames_pri3",
            "pfc_pri3_rx_duration_us",
            "continuous_roce_pause_events",
            "rx_priority_3_xoff.nic",
        ] {
            assert_eq!(class(name), Some(Class::Pause), "{name}");
        }
        assert_eq!(class("rx_prio3_marked"), Some(Class::Ecn));
        assert_eq!(class("rx_prio3_buf_discard"), Some(Class::Discard));
        assert_eq!(class("rx_discards_phy"), Some(Class::Discard));
        assert_eq!(class("rx_bytes"), None);
        let rule = |name| of_interface(name).unwrap().rule;
        assert_eq!(rule("tx_pause_storm_error_events"), Rule::Bad);
        assert_eq!(rule("rx_prio3_pause_duration"), Rule::Above(10_000.0, 100_000.0));
    }

    #[test]
    fn faults_count_and_what_was_done_about_them_does_not() {
        assert_ne!(of_region("page_faults").rule, Rule::Never);
        assert_eq!(of_region("page_faults_handled").rule, Rule::Never);
        assert_eq!(of_region("page_invalidations").rule, Rule::Never);
    }
}
