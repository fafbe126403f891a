use super::*;
use crate::config::check::told;
use crate::config::vendor::Vendor;

fn host(dscp: u8, prio: u8) -> Host {
    let mut host = Host::default();
    host.say(Some(dscp), Some(prio), Some(48), Some(6));
    host
}

fn with(found: &[Finding], level: Level) -> Vec<&str> {
    found.iter().filter(|f| f.level == level).map(|f| f.what.as_str()).collect()
}

#[test]
fn dscp_26_on_stock_sonic_is_lossy() {
    let text = r#"{"PORT_QOS_MAP":{"Ethernet0":{"pfc_enable":"3,4","dscp_to_tc_map":"AZURE"}},"PFC_WD":{"x":{}},
        "QUEUE":{"Ethernet0|3":{"wred_profile":"AZURE_LOSSLESS"}}}"#;
    let told = told::read(Vendor::Sonic, text).unwrap();
    let found = compare(&host(26, 3), &told);
    let wrong = with(&found, Level::Mismatch);
    assert!(
        wrong.len() == 1 && wrong[0].contains("DSCP 26 to be priority 3, the switch sends it to 1"),
        "{found:#?}"
    );
    assert!(wrong[0].contains("stock map"), "{wrong:?}");
    assert_eq!(with(&found, Level::Warning).len(), 1, "PFC for 4: {found:#?}");
    assert!(with(&compare(&host(3, 3), &told), Level::Mismatch).is_empty());
}

#[test]
fn each_thing_that_is_missing_on_a_port_is_told_with_the_port() {
    let text = "interface Ethernet1
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
interface Ethernet2
   qos trust dscp
   flowcontrol receive on
";
    let told = told::read(Vendor::Eos, text).unwrap();
    let found = compare(&host(26, 3), &told);
    let wrong = with(&found, Level::Mismatch);
    assert_eq!(wrong.len(), 2, "{found:#?}");
    assert!(wrong.iter().all(|what| what.contains("Ethernet2") && !what.contains("Ethernet1")));
    let warned = with(&found, Level::Warning);
    for part in [
        "ECN on queue 3: not on Ethernet1, Ethernet2",
        "802.3x pause off: not on Ethernet2",
        "no watchdog",
    ] {
        assert!(warned.iter().any(|what| what.contains(part)), "{part}: {warned:#?}");
    }
    // Where DSCPs go is not said, and EOS' own map is not known: no verdict is made up.
    assert!(with(&found, Level::Unknown).iter().any(|what| what.contains("where DSCP 26 goes")));
    // The worst first.
    assert_eq!(found[0].level, Level::Mismatch);
    let text = text_of(&host(26, 3), &told, &found);
    assert!(text.contains("MISMATCH") && text.lines().all(|line| line.len() <= 112), "{text}");
}

fn text_of(host: &Host, told: &Told, found: &[Finding]) -> String {
    super::text(host, told, found)
}

#[test]
fn a_host_that_contradicts_itself_is_told() {
    let mut host = host(26, 3);
    host.roce_dscp.push(Value { value: 24, from: "default_roce_tos".to_owned() });
    host.pfc.push(super::super::host::Pfc { priorities: [4].into(), from: "dcb".to_owned() });
    let from = "dcb app show dev eth2".to_owned();
    host.map.push(super::super::host::Mapped { dscp: 26, priority: 4, from });
    let told = told::read(Vendor::Onyx, "roce lossless\n").unwrap();
    let found = compare(&host, &told);
    let wrong = with(&found, Level::Mismatch);
    assert!(
        wrong.iter().any(|what| what.contains("26 (--roce-dscp), 24 (default_roce_tos)")),
        "{wrong:?}"
    );
    assert!(wrong.iter().any(|what| what.contains("PFC for priority 4, not for 3")), "{wrong:?}");
    assert!(wrong.iter().any(|what| what.contains("its DSCP 26 has 4 (dcb app")), "{wrong:?}");
    let lossy = told::read(Vendor::Onyx, "roce lossy\n").unwrap();
    assert!(
        with(&compare(&host, &lossy), Level::Mismatch)
            .iter()
            .any(|what| what.contains("lossy, not lossless"))
    );
}

#[test]
fn a_host_that_tells_only_its_dscp_is_compared_by_what_the_switch_makes_of_it() {
    let mut host = Host::default();
    host.say(Some(26), None, None, None);
    let text = r#"{"PORT_QOS_MAP":{"Ethernet0":{"pfc_enable":"3,4","dscp_to_tc_map":"AZURE"}}}"#;
    let told = told::read(Vendor::Sonic, text).unwrap();
    let found = compare(&host, &told);
    let unknown = with(&found, Level::Unknown);
    assert!(unknown.iter().any(|what| what.contains("sends DSCP 26 to priority 1")), "{unknown:?}");
    let wrong = with(&found, Level::Mismatch);
    assert_eq!(
        wrong,
        ["PFC for priority 1: not on Ethernet0 (packets are dropped there when queues fill)"]
    );
}

#[test]
fn many_ports_are_cut_short() {
    let names: Vec<String> = (0..20).map(|n| format!("e{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(few(&names), "e0, e1, e2, e3, e4, e5, e6, e7 and 12 more");
    assert_eq!(few(&names[..2]), "e0, e1");
}
