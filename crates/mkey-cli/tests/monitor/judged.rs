//! What two looks at a host say: rates, and what is worth a look.

use crate::fixture::{healthy, looked, odd, sick};
use mkey_cli::lang::Lang;
use mkey_cli::monitor::judge::{Finding, Level, findings};
use mkey_cli::monitor::sample::Sample;
use mkey_cli::monitor::told::Told;

fn rate(sample: &Sample, device: &str, counter: &str) -> Option<Told<f64>> {
    let device = sample.devices.value().unwrap().iter().find(|one| one.name == device).unwrap();
    let mut counters = device.ports.iter().flat_map(|port| &port.counters);
    counters.find(|one| one.name == counter).unwrap().per_second.clone()
}

fn commands(found: &[Finding]) -> Vec<&str> {
    found.iter().filter_map(|one| one.command.as_deref()).collect()
}

#[test]
fn a_healthy_host_has_nothing_worth_a_look() {
    let [first, second] = looked(&healthy(false), &healthy(true));
    assert_eq!(findings(&first, Lang::En), []);
    assert_eq!(findings(&second, Lang::En), []);
    assert_eq!(first.interval, None);
    assert_eq!(second.interval, Some(1.0));
    assert_eq!(rate(&first, "mlx5_0", "rx_write_requests"), None);
    assert_eq!(rate(&second, "mlx5_0", "rx_write_requests"), Some(Told::Is(5000.0)));
    assert_eq!(rate(&second, "mlx5_0", "rp_cnp_handled"), Some(Told::Is(12.0)));
    let pinned = second.pinned.value().unwrap();
    let names: Vec<_> = pinned.processes.iter().map(|one| (one.pid, one.pinned)).collect();
    assert_eq!(names, [(4711, 6 << 30), (4712, 2 << 20)]);
    let pools = second.huge_pages.value().unwrap();
    assert_eq!(pools.len(), 2);
    assert_eq!((pools[1].total, pools[1].free, pools[1].nodes[1].free), (8192, 4024, 3000));
}

#[test]
fn each_ill_of_a_sick_host_is_found_with_what_explains_it() {
    let [first, second] = looked(&sick(false), &sick(true));
    // Before rates are known: limits, pools and ports, but no counter.
    let early = findings(&first, Lang::En);
    assert!(early.iter().all(|one| !one.what.contains("/s")), "{early:?}");
    let found = findings(&second, Lang::En);
    let commands = commands(&found);
    for explain in [
        "req_remote_access_errors",
        "out_of_sequence",
        "rnr_nak_retry_err",
        "rp_cnp_ignored",
        "np_ecn_marked_roce_packets",
        "to_retransmits",
        "retry_exceeded_err",
        "'RNR received'",
        "rx_prio3_pause",
        "rx_prio3_pause_duration",
        "rx_prio3_discards",
        "page_faults",
        "ibv_reg_mr ENOMEM",
        "ibv_create_qp ENOMEM",
        "ibv_reg_mr EFAULT",
        "ibv_reg_mr ENOMEM --pid 900",
        "IBV_EVENT_PORT_ERR",
    ] {
        let command = format!("mkey explain {explain}");
        assert!(commands.contains(&command.as_str()), "{command}: {commands:#?}");
    }
    // What happened once and does not go on is no finding; nor is a limit that moves (irdma's), or
    // a gauge that goes down.
    for quiet in ["resp_remote_access_errors", "local_ack_timeout_err", "cnpIgnored", "active_mrs"]
    {
        assert!(!commands.iter().any(|one| one.ends_with(quiet)), "{quiet}");
    }
    assert!(found.iter().all(|one| one.place != "irdma0"), "{found:?}");
    assert_eq!(rate(&second, "bnxt_re0", "active_mrs"), None);
    // The worst first.
    let levels: Vec<Level> = found.iter().map(|one| one.level).collect();
    assert!(levels.is_sorted_by(|a, b| a >= b) && levels.contains(&Level::Bad));
    let warned = found.iter().find(|one| one.place == "indexer 901").unwrap();
    assert_eq!((warned.level, warned.what.contains("85 %")), (Level::Warn, true), "{warned:?}");
}

#[test]
fn a_counter_of_32_bits_that_wraps_goes_on() {
    let [_, second] = looked(&sick(false), &sick(true));
    assert_eq!(rate(&second, "mlx5_0", "out_of_sequence"), Some(Told::Is(16.0)));
}

#[test]
fn one_odd_device_hides_no_other() {
    let [first, second] = looked(&odd(false), &odd(true));
    let names = |sample: &Sample| {
        let devices = sample.devices.value().unwrap();
        devices.iter().map(|one| one.name.clone()).collect::<Vec<_>>()
    };
    let named = "rxe\u{fffd}\u{fffd}[2J";
    assert_eq!(names(&first), ["efa0", "empty0", "file0", "leaves0", "mlx4_0", named]);
    assert_eq!(second.gone, ["leaves0"]);
    let found = findings(&second, Lang::En);
    assert!(found.iter().any(|one| one.place == "leaves0" && one.level == Level::Bad));
    assert!(found.iter().any(|one| one.place == "efa0" && one.what.starts_with("reg_mr_err +1")));
    // Set back, so without a rate.
    let anew = rate(&second, named, "rcvd_seq_err").unwrap();
    assert!(anew.why_not().is_some(), "{anew:?}");
    let device =
        |name: &str| second.devices.value().unwrap().iter().find(|one| one.name == name).unwrap();
    let why = |device: &str, counter: &str| {
        let mut counters = self::device_counters(device, &second);
        counters.find(|one| one.name == counter).unwrap().value.why_not().unwrap().to_owned()
    };
    assert!(why(named, "rcvd_rnr_err").contains("directory"));
    assert!(why(named, "retry_exceeded_err").contains("is no number"));
    assert!(why("mlx4_0", "symbol_error").contains("N/A (no PMA)"));
    assert_eq!(device("empty0").ports, []);
    assert_eq!(device("mlx4_0").regions.why_not(), Some("EMSGSIZE"));
    let pinned = second.pinned.value().unwrap();
    assert_eq!((pinned.processes.len(), pinned.unread), (1, 1));
    assert_eq!(pinned.processes[0].name, "\u{fffd}]0;evil\u{fffd}\u{fffd}");
    assert!(pinned.processes[0].limit.why_not().is_some());
    assert!(second.huge_pages.why_not().is_some());
}

fn device_counters<'s>(
    name: &str,
    sample: &'s Sample,
) -> impl Iterator<Item = &'s mkey_cli::monitor::counter::Counter> + use<'s> {
    let devices = sample.devices.value().unwrap();
    let device = devices.iter().find(|one| one.name == name).unwrap();
    device.ports.iter().flat_map(|port| &port.counters)
}

#[test]
fn hosts_of_other_times_are_not_compared() {
    let [first, mut second] = looked(&healthy(false), &healthy(true));
    let before = second.clone();
    // The clock stood still, or went back.
    second.interval = None;
    second.at = first.at;
    second.compare(&first);
    assert_eq!(second.interval, None);
    let mut first = first;
    first.compare(&before);
    assert_eq!(first.interval, None);
}
