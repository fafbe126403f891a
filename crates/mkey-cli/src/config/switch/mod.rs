//! `mkey config switch`: a lossless class for RoCE on the switches of seven vendors.
//!
//! One file to a family of command lines. What they print is looked up in the vendor's patterns
//! ([`super::syntax`]) before anybody sees it.

mod comware;
mod eos;
mod linux;
mod nxos;
mod vrp;

use super::marking::{Marking, MarkingArgs};
use super::recipe::{Block, Recipe};
use super::vendor::Vendor;
use clap::Args;

/// What to configure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey config switch --vendor h3c --ports HundredGigE1/0/1,HundredGigE1/0/2
  mkey config switch --vendor nxos --roce-dscp 24 --ports Ethernet1/1
  mkey config switch --vendor sonic --dscp-map     # its stock map sends DSCP 26 to a lossy queue
  mkey config switch --vendor eos --json - | jq '.blocks[].lines[].text'")]
pub struct SwitchArgs {
    /// The switch
    #[arg(long)]
    pub vendor: Vendor,

    /// How hosts mark their traffic
    #[command(flatten)]
    pub marking: MarkingArgs,

    /// Ports that hosts and other switches are on, as the switch names them
    #[arg(long, value_name = "PORTS", value_delimiter = ',', value_parser = parse_port)]
    pub ports: Vec<String>,

    /// Speed of the ports, for their names where none is given and for what to look at again
    #[arg(long, value_name = "SPEED", default_value = "100G", value_parser = parse_speed)]
    pub speed: u16,

    /// Write the DSCP map, too, on switches where it is otherwise left as it comes
    #[arg(long)]
    pub dscp_map: bool,

    /// ECN marks from here on, in KB of queue, where the switch counts so
    #[arg(long, value_name = "KB", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ecn_min: u32,

    /// ECN marks most from here on, in KB of queue
    #[arg(long, value_name = "KB", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ecn_max: u32,
}

/// The per-hop behaviour of a queue, by which H3C and Huawei name it.
fn phb(queue: u8) -> &'static str {
    match queue {
        0 => "be",
        1 => "af1",
        2 => "af2",
        3 => "af3",
        4 => "af4",
        5 => "ef",
        6 => "cs6",
        _ => "cs7",
    }
}

/// What the writers need.
#[derive(Clone, Debug)]
struct Plan {
    marking: Marking,
    ports: Vec<String>,
    map: bool,
    ecn_min: u32,
    ecn_max: u32,
}

/// The configuration.
///
/// # Errors
/// What contradicts itself or the vendor's ways, each in words.
pub fn recipe(args: &SwitchArgs) -> Result<Recipe, Vec<String>> {
    let (vendor, marking) = (args.vendor, args.marking.marking());
    let mut wrong = vendor.contradictions(&marking, args.dscp_map);
    if args.ecn_min > args.ecn_max {
        wrong.push(format!(
            "ECN from {} KB to {} KB: the end is below the beginning",
            args.ecn_min, args.ecn_max
        ));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let mut ports = args.ports.clone();
    if ports.is_empty() {
        ports.push(example_port(vendor, args.speed));
    }
    let plan =
        Plan { marking, ports, map: args.dscp_map, ecn_min: args.ecn_min, ecn_max: args.ecn_max };
    let blocks = match vendor {
        Vendor::H3c => comware::blocks(&plan),
        Vendor::Huawei => vrp::blocks(&plan),
        Vendor::Nxos => nxos::blocks(&plan),
        Vendor::Eos => eos::blocks(&plan),
        Vendor::Sonic => linux::sonic(&plan),
        Vendor::Cumulus => linux::cumulus(&plan),
        Vendor::Onyx => linux::onyx(),
    };
    Ok(Recipe { head: head(args, &marking), blocks })
}

fn head(args: &SwitchArgs, marking: &Marking) -> Vec<String> {
    let Marking { roce_prio, roce_dscp, cnp_prio, cnp_dscp } = marking;
    let mut head = vec![
        format!("{}: RoCEv2 without loss, for review.", args.vendor.title()),
        format!(
            "RoCE: priority {roce_prio}, DSCP {roce_dscp} (traffic class byte {}), PFC and ECN. CNP: priority {cnp_prio}, DSCP {cnp_dscp}.",
            marking.traffic_class()
        ),
        "That is a convention, no default: hosts and every switch on the way have to agree. mkey config check compares them.".to_owned(),
        "802.3x pause (flow-control) is another thing: it stops all traffic of a port. Leave it off.".to_owned(),
        "Not run on a switch here. Try it on one port, and verify; changing PFC can stop a port for a moment.".to_owned(),
    ];
    if args.vendor == Vendor::H3c {
        head.push("Lines such as \"dcbx mode auto\", \"qos queue 0 pfc enable\", \"qos queue 0 ecn mode wred\" and \"flow-control send enable\" are copied widely and in no reference of H3C that could be found; queue 0 is not for RoCE, and H3C's guide says not to enable PFC on 0, 6 and 7.".to_owned());
    }
    if args.speed > 100 {
        head.push(format!(
            "Buffers and ECN thresholds are those of public configurations for 100G and below; at {}G look at them again.",
            args.speed
        ));
    }
    head
}

/// An interface of each port, in the vendor's words.
fn each_port(plan: &Plan, block: impl Fn(&str) -> Block) -> impl Iterator<Item = Block> {
    plan.ports.iter().map(move |port| block(port))
}

/// A port's name as the vendor forms it.
fn example_port(vendor: Vendor, speed: u16) -> String {
    match vendor {
        Vendor::H3c => {
            let kind = match speed {
                10 => "Ten-GigabitEthernet",
                25 => "Twenty-FiveGigE",
                40 => "FortyGigE",
                200 => "TwoHundredGigE",
                400 => "FourHundredGigE",
                800 => "EightHundredGigE",
                _ => "HundredGigE",
            };
            format!("{kind}1/0/1")
        }
        Vendor::Huawei => format!("{speed}GE1/0/1"),
        Vendor::Nxos => "Ethernet1/1".to_owned(),
        Vendor::Eos => "Ethernet1".to_owned(),
        Vendor::Sonic => "Ethernet0".to_owned(),
        Vendor::Cumulus => "swp1".to_owned(),
        Vendor::Onyx => "1/1".to_owned(),
    }
}

/// Names of ports are letters, digits and `-./:_`: nothing that a console would take for more.
fn parse_port(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-./:_".contains(c);
    if !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("letters, digits and -./:_, please".to_owned())
    }
}

fn parse_speed(text: &str) -> Result<u16, String> {
    let number = text.trim().trim_end_matches(['g', 'G']);
    match number.parse() {
        Ok(speed @ (10 | 25 | 40 | 50 | 100 | 200 | 400 | 800)) => Ok(speed),
        _ => Err("10G, 25G, 40G, 50G, 100G, 200G, 400G or 800G, please".to_owned()),
    }
}

#[cfg(test)]
mod tests;
