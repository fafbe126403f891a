use super::*;
use crate::config::check::compare::{self, Level};
use crate::config::check::host::Host;
use crate::config::check::told;
use crate::config::recipe::text;
use proptest::prelude::*;

fn args(vendor: Vendor) -> SwitchArgs {
    SwitchArgs {
        vendor,
        marking: MarkingArgs { roce_prio: 3, roce_dscp: 26, cnp_prio: 6, cnp_dscp: 48 },
        ports: Vec::new(),
        speed: 100,
        dscp_map: vendor == Vendor::Sonic,
        ecn_min: 150,
        ecn_max: 1500,
    }
}

fn printed(args: &SwitchArgs) -> String {
    let document = recipe(args).unwrap().document(&args.vendor.syntax()).unwrap();
    text(&document, args.vendor.comments())
}

/// The configuration of each vendor is in a file that people have read. `MKEY_WRITE_GOLDEN=1`
/// writes them anew, to be read again.
#[test]
fn golden_files() {
    for vendor in Vendor::ALL {
        let name = format!("{vendor:?}").to_lowercase();
        let file = format!("{}/tests/golden/config/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let now = printed(&args(vendor));
        if std::env::var_os("MKEY_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &now).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap();
        assert_eq!(now, golden, "{file}");
    }
}

#[test]
fn consoles_get_plain_ascii_in_short_lines() {
    for vendor in Vendor::ALL {
        let text = printed(&args(vendor));
        assert!(text.is_ascii(), "{vendor:?}");
        // A console line; what has to be long is what the vendor's command makes long.
        assert!(text.lines().all(|line| line.len() <= 130), "{text}");
    }
}

#[test]
fn what_is_open_is_a_comment() {
    for vendor in Vendor::ALL {
        let comment = vendor.comments().start;
        for line in printed(&args(vendor)).lines().filter(|l| l.contains("TUNE") || l.contains('<'))
        {
            assert!(line.trim_start().starts_with(comment), "{line}");
        }
    }
}

#[test]
fn no_comment_stands_where_it_would_end_a_view() {
    for vendor in [Vendor::H3c, Vendor::Huawei] {
        let text = printed(&args(vendor));
        let lines: Vec<&str> = text.lines().collect();
        let mut within = 0;
        for pair in lines.windows(2) {
            let [line, next] = pair else { unreachable!() };
            assert!(!line.starts_with(" #"), "{line}");
            assert!(!(line.starts_with('#') && next.starts_with(' ')), "{line}\n{next}");
            within += usize::from(next.starts_with(' '));
        }
        assert!(within > 5, "{text}");
    }
}

fn hosts(marking: &MarkingArgs) -> Host {
    let MarkingArgs { roce_prio, roce_dscp, cnp_prio, cnp_dscp } = *marking;
    let mut host = Host::default();
    host.say(Some(roce_dscp), Some(roce_prio), Some(cnp_dscp), Some(cnp_prio));
    host
}

/// What is printed is read again by `config check`, and agrees with what was asked for; with any
/// other DSCP it does not.
#[test]
fn check_understands_what_is_printed() {
    let mut compared = 0;
    for vendor in Vendor::ALL.into_iter().filter(|vendor| *vendor != Vendor::Sonic) {
        let args = args(vendor);
        let text = printed(&args);
        assert_eq!(told::vendor_of(&text), Some(vendor), "{text}");
        let told = told::read(vendor, &text).unwrap();
        let findings = compare::compare(&hosts(&args.marking), &told);
        let wrong: Vec<_> = findings.iter().filter(|f| f.level > Level::Unknown).collect();
        assert!(wrong.is_empty(), "{vendor:?}: {wrong:#?}\n{text}");
        let other = MarkingArgs { cnp_dscp: 26, roce_dscp: 48, ..args.marking };
        let findings = compare::compare(&hosts(&other), &told);
        let wrong = findings.iter().filter(|f| f.level == Level::Mismatch).count();
        assert_eq!(wrong, 2, "{vendor:?}: {findings:#?}");
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn ports_and_speeds() {
    for bad in ["", "a b", "x;y", "$(x)", "Ethernet1/1\n", "\"", "x'"] {
        let parsed = parse_port(bad);
        assert!(
            parsed.is_err() || parsed == Ok(bad.trim().to_owned()) && !bad.trim().contains(' '),
            "{bad:?}"
        );
    }
    assert!(parse_port("x;y").is_err() && parse_port("$(x)").is_err());
    assert_eq!(parse_port("HundredGigE1/0/1").as_deref(), Ok("HundredGigE1/0/1"));
    assert_eq!((parse_speed("400G"), parse_speed("25")), (Ok(400), Ok(25)));
    assert!(parse_speed("1G").is_err() && parse_speed("x").is_err());
    let mut fast = args(Vendor::H3c);
    fast.speed = 400;
    let text = printed(&fast);
    assert!(text.contains("interface FourHundredGigE1/0/1") && text.contains("at 400G"));
}

proptest! {
    /// Whatever is asked for: refused with a reason, or every line printed is known to exist.
    #[test]
    fn refused_or_vouched_for(
        vendor in prop::sample::select(Vendor::ALL.to_vec()),
        roce_prio in 0u8..8, roce_dscp in 0u8..64, cnp_prio in 0u8..8, cnp_dscp in 0u8..64,
        speed in prop::sample::select(vec![10u16, 25, 100, 400, 800]),
        dscp_map: bool, ports in 0usize..3, ecn_min in 1u32..2000,
    ) {
        let marking = MarkingArgs { roce_prio, roce_dscp, cnp_prio, cnp_dscp };
        let ports = (0..ports).map(|n| format!("Ethernet1/{n}")).collect();
        let args = SwitchArgs { vendor, marking, ports, speed, dscp_map, ecn_min, ecn_max: 1500 };
        match recipe(&args) {
            Err(wrong) => prop_assert!(!wrong.is_empty()),
            Ok(recipe) => {
                prop_assert!(recipe.document(&vendor.syntax()).is_ok());
                prop_assert!(roce_prio != cnp_prio && roce_dscp != cnp_dscp && roce_prio != 0);
                prop_assert!(vendor != Vendor::H3c || !matches!(roce_prio, 0 | 6 | 7));
            }
        }
    }
}
