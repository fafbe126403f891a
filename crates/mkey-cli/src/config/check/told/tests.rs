use super::*;
use proptest::prelude::*;

const H3C: &str = "#
qos map-table dscp-dot1p
 import 24 to 31 export 3
#
priority-flow-control deadlock cos 5 interval 10
qos wred queue table T
 queue 5 drop-level 0 low-limit 10 high-limit 20
 queue 5 ecn
#
interface HundredGigE1/0/1
 priority-flow-control enable
 priority-flow-control no-drop dot1p 3,5
 qos trust dscp
 qos wred apply T
#
interface HundredGigE1/0/2
 flow-control
";

#[test]
fn comware() {
    assert_eq!(vendor_of(H3C), Some(Vendor::H3c));
    let told = read(Vendor::H3c, H3C).unwrap();
    assert_eq!((told.goes(26), told.goes(48)), (Goes::Written(3), Goes::LikelyStock(6)));
    let port = &told.ports["HundredGigE1/0/1"];
    assert!(port.pfc_on && port.trust_dscp && !port.pause && told.watchdog);
    assert_eq!((&port.pfc, &port.ecn), (&[3, 5].into(), &[5].into()));
    assert!(told.ports["HundredGigE1/0/2"].pause);
    assert_eq!(told.roce_ports().len(), 2);
}

const SONIC: &str = r#"{
  "DSCP_TO_TC_MAP": {"AZURE": {"26": "1", "3": "3", "48": "6", "x": "1", "99": "3"}},
  "PORT_QOS_MAP": {"Ethernet0": {"pfc_enable": "3,4", "dscp_to_tc_map": "AZURE"}},
  "QUEUE": {"Ethernet0|3-4": {"wred_profile": "AZURE_LOSSLESS"}, "Ethernet0|1": {"scheduler": "x"}},
  "PFC_WD": {"Ethernet0": {"action": "drop"}}
}"#;

#[test]
fn sonic() {
    assert_eq!(vendor_of(SONIC), Some(Vendor::Sonic));
    let told = read(Vendor::Sonic, SONIC).unwrap();
    assert_eq!(told.dscp, [(3, 3), (26, 1), (48, 6)].into());
    assert_eq!((told.goes(46), told.goes(50)), (Goes::Stock(5), Goes::Unknown));
    let port = &told.ports["Ethernet0"];
    assert_eq!((&port.pfc, &port.ecn), (&[3, 4].into(), &[3, 4].into()));
    assert!(port.pfc_on && port.trust_dscp && told.watchdog);
    assert!(read(Vendor::Sonic, "hostname x").unwrap_err().contains("config_db.json"));
}

#[test]
fn nxos_classes_are_followed_and_numbers_that_disagree_are_told() {
    let text = "class-map type qos match-any ROCE
  match dscp 24-31,40
policy-map type qos IN
  class ROCE
    set qos-group 3
policy-map type network-qos N
  class type network-qos c-8q-nq3
    pause pfc-cos 4
interface Ethernet1/1
  priority-flow-control mode auto
  flowcontrol receive on
";
    assert_eq!(vendor_of(text), Some(Vendor::Nxos));
    let told = read(Vendor::Nxos, text).unwrap();
    assert_eq!(
        (told.goes(26), told.goes(40), told.goes(41)),
        (Goes::Written(3), Goes::Written(3), Goes::Unknown)
    );
    assert!(told.odd[0].contains("c-8q-nq3 pauses pfc-cos 4"), "{:?}", told.odd);
    let port = &told.ports["Ethernet1/1"];
    assert!(port.pfc_on && port.pause && !told.watchdog);
}

#[test]
fn eos_lists_and_old_forms() {
    let text = "qos map dscp 24 25 26 to traffic-class 3
interface Ethernet1
   priority-flow-control mode on
   priority-flow-control priority 3 no-drop
   uc-tx-queue 3
      random-detect ecn minimum-threshold 150 kbytes maximum-threshold 1500 kbytes max-mark-probability 10
";
    assert_eq!(vendor_of(text), Some(Vendor::Eos));
    let told = read(Vendor::Eos, text).unwrap();
    assert_eq!((told.goes(25), told.goes(27)), (Goes::Written(3), Goes::Unknown));
    let port = &told.ports["Ethernet1"];
    assert!(port.pfc_on && !port.trust_dscp);
    assert_eq!((&port.pfc, &port.ecn), (&[3].into(), &[3].into()));
}

#[test]
fn profiles() {
    for (vendor, text, profile) in [
        (Vendor::Cumulus, "nv set qos roce\n", Some("lossless")),
        (Vendor::Cumulus, "nv set qos roce mode lossy\n", Some("lossy")),
        (Vendor::Cumulus, "nv set qos roce\nnv set qos roce mode lossy\n", Some("lossy")),
        (Vendor::Cumulus, "nv set system hostname x\n", None),
        (Vendor::Onyx, "roce lossless\n", Some("lossless")),
        (Vendor::Onyx, "roce semi-lossless\n", Some("semi-lossless")),
        (Vendor::Onyx, "roce lossy\nno roce\ndcb priority-flow-control enable force\n", None),
    ] {
        assert_eq!(vendor_of(text), Some(vendor), "{text}");
        let told = read(vendor, text).unwrap();
        assert_eq!(told.profile.as_deref(), profile, "{text}");
        assert_eq!(told.lossless_profile(), profile == Some("lossless"));
    }
}

#[test]
fn a_text_of_nobody_is_nobodys() {
    for text in ["", "hello", "{}", "interface eth0\n address 1.2.3.4\n"] {
        assert_eq!(vendor_of(text), None, "{text}");
    }
}

/// Words that the readers look for, so that random texts get far.
const WORDS: &[&str] = &[
    "interface ",
    "qos map-table dscp-dot1p",
    "import",
    "export",
    "to",
    "priority-flow-control",
    "no-drop",
    "dot1p",
    "priority",
    "dcb pfc",
    "ip-dscp-inbound",
    "phb",
    "af3",
    "match dscp",
    "class-map type qos ",
    "class ",
    "set qos-group",
    "pause pfc-cos",
    "tx-queue ",
    "random-detect",
    "ecn",
    "traffic-class",
    "qos map dscp",
    "nv set qos roce",
    "mode",
    "roce",
    "queue",
    "3",
    "26",
    "24-31",
    "999",
    "-",
    ",",
    "qos wred",
    "table",
    "apply",
    "class type network-qos c-8q-nq",
];

proptest! {
    #[test]
    fn no_text_panics(
        lines in prop::collection::vec((0usize..5, prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..6)), 0..12),
        noise in ".{0,60}",
        vendor in prop::sample::select(Vendor::ALL.to_vec()),
    ) {
        let lines: Vec<String> =
            lines.into_iter().map(|(indent, words)| format!("{}{}", " ".repeat(indent), words.join(" "))).collect();
        let text = format!("{}\n{noise}", lines.join("\n"));
        let _ = vendor_of(&text);
        if let Ok(told) = read(vendor, &text) {
            let _ = told.roce_ports();
            for dscp in 0..=255 {
                let _ = told.goes(dscp);
            }
        }
    }

    #[test]
    fn no_json_panics(table in "DSCP_TO_TC_MAP|PORT_QOS_MAP|QUEUE|PFC_WD", inner in r#"\{"[a-z|0-9,]{0,8}":("[0-9,-]{0,6}"|\{"(26|x|pfc_enable|wred_profile)":("[0-9,-]{0,5}"|null|7|\[\])\}|null)\}|\[\]|3"#) {
        let _ = read(Vendor::Sonic, &format!("{{\"{table}\":{inner}}}"));
    }
}
