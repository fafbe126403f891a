//! `mkey config nic`: the marking of a host, for its NIC.

use super::marking::{Marking, MarkingArgs};
use super::recipe::{Block, Recipe};
use super::syntax::Syntax;
use clap::{Args, ValueEnum};

/// Whose NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// NVIDIA ConnectX and BlueField (mlx5_core)
    Mlx5,
    /// Broadcom NetXtreme-E (bnxt_re)
    Bnxt,
}

/// By which program QoS is set on mlx5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tool {
    /// iproute2's, with any kernel
    Dcb,
    /// mlnx-tools'
    MlnxQos,
}

/// What to configure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey config nic --driver mlx5 --netdev eth2 --device mlx5_0 --pci 0000:c1:00.0
  mkey config nic --driver mlx5 --tool mlnx-qos
  mkey config nic --driver bnxt --netdev p1p1 --device bnxt_re0
  mkey config nic --driver mlx5 --json -")]
pub struct NicArgs {
    /// The NIC's driver
    #[arg(long)]
    pub driver: Driver,

    /// How the host marks its traffic
    #[command(flatten)]
    pub marking: MarkingArgs,

    /// The network device
    #[arg(long, value_name = "NAME", default_value = "eth0", value_parser = parse_netdev)]
    pub netdev: String,

    /// The RDMA device; mlx5_0 or bnxt_re0 if none is named
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub device: Option<String>,

    /// The PCI address of a mlx5 NIC; 0000:01:00.0 if none is named
    #[arg(long, value_name = "ADDRESS", value_parser = parse_pci)]
    pub pci: Option<String>,

    /// What sets QoS on mlx5; dcb if nothing is named
    #[arg(long)]
    pub tool: Option<Tool>,
}

/// The commands of a driver.
pub fn syntax(driver: Driver) -> Syntax {
    Syntax::new(match driver {
        Driver::Mlx5 => include_str!("syntax/nic-mlx5.txt"),
        Driver::Bnxt => include_str!("syntax/nic-bnxt.txt"),
    })
}

/// The configuration, a script for a root shell.
///
/// # Errors
/// What contradicts itself, each in words.
pub fn recipe(args: &NicArgs) -> Result<Recipe, Vec<String>> {
    let marking = args.marking.marking();
    let mut wrong = marking.contradictions();
    if args.driver == Driver::Bnxt {
        let only =
            |option: &str| format!("{option} is for mlx5: nothing here depends on it for bnxt");
        wrong.extend(args.pci.is_some().then(|| only("--pci")));
        wrong.extend(args.tool.is_some().then(|| only("--tool")));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let blocks = match args.driver {
        Driver::Mlx5 => mlx5(args, &marking),
        Driver::Bnxt => bnxt(args, &marking),
    };
    let Marking { roce_prio, roce_dscp, cnp_prio, cnp_dscp } = marking;
    let head = vec![
        "A script for a root shell, for review.".to_owned(),
        format!("RoCE: priority {roce_prio}, DSCP {roce_dscp}. CNP: priority {cnp_prio}, DSCP {cnp_dscp}. The switches have to agree: mkey config check compares them."),
        "Not run on a NIC here. All but mlxconfig's settings are lost at the next boot.".to_owned(),
        "How many memory regions a NIC takes, and whether it does on-demand paging, can be configured on none: ibv_devinfo -v shows max_mr and general_odp_caps. Parameters MR_MAX and ODP_SUPPORT of mlxconfig do not exist.".to_owned(),
    ];
    Ok(Recipe { head, blocks })
}

fn mlx5(args: &NicArgs, m: &Marking) -> Vec<Block> {
    let device = args.device.as_deref().unwrap_or("mlx5_0");
    let mut blocks = vec![
        Block::new("Which NIC.")
            .line(format!("NETDEV={}", args.netdev))
            .line(format!("DEVICE={device}"))
            .line(format!("PCI={}", args.pci.as_deref().unwrap_or("0000:01:00.0"))),
        pause_off(),
    ];
    let qos = Block::new(format!(
        "PFC on priority {} alone, DSCP trusted. Counters rx_prio{}_pause of ethtool -S exist only while it is on.",
        m.roce_prio, m.roce_prio
    ));
    blocks.push(match args.tool.unwrap_or(Tool::Dcb) {
        Tool::Dcb => qos
            .line(format!("dcb pfc set dev \"$NETDEV\" prio-pfc all:off {}:on", m.roce_prio))
            .line(format!(
                "dcb app add dev \"$NETDEV\" dscp-prio {}:{} {}:{}",
                m.roce_dscp, m.roce_prio, m.cnp_dscp, m.cnp_prio
            ))
            .verify("dcb pfc show dev \"$NETDEV\"")
            .verify("dcb app show dev \"$NETDEV\""),
        Tool::MlnxQos => {
            let pfc: Vec<&str> = (0..8).map(|p| if p == m.roce_prio { "1" } else { "0" }).collect();
            qos.line("mlnx_qos -i \"$NETDEV\" --trust dscp")
                .line(format!("mlnx_qos -i \"$NETDEV\" --pfc {}", pfc.join(",")))
                .line(format!(
                    "mlnx_qos -i \"$NETDEV\" --dscp2prio set,{},{}",
                    m.roce_dscp, m.roce_prio
                ))
                .line(format!(
                    "mlnx_qos -i \"$NETDEV\" --dscp2prio set,{},{}",
                    m.cnp_dscp, m.cnp_prio
                ))
                .verify("mlnx_qos -i \"$NETDEV\" -a")
        }
    });
    let tos = m.traffic_class();
    blocks.push(
        Block::new(format!(
            "Programs that connect by RDMA-CM: {tos} is DSCP {} and \"capable of ECN\". configfs has to be mounted, and rdma_cm loaded.",
            m.roce_dscp
        ))
        .line("mkdir -p \"/sys/kernel/config/rdma_cm/$DEVICE\"")
        .line(format!("echo {tos} > \"/sys/kernel/config/rdma_cm/$DEVICE/ports/1/default_roce_tos\"")),
    );
    blocks.push(programs(tos));
    blocks.push(
        Block::new("How the NIC marks the notifications it sends (debugfs, until the next boot).")
            .line(format!(
                "echo {} > \"/sys/kernel/debug/mlx5/$PCI/cc_params/np_cnp_dscp\"",
                m.cnp_dscp
            ))
            .line(format!(
                "echo {} > \"/sys/kernel/debug/mlx5/$PCI/cc_params/np_cnp_prio\"",
                m.cnp_prio
            )),
    );
    blocks.push(
        Block::new("The same for good, in the NIC itself, and congestion control on the priority of RoCE. In force after the reset, which takes the link down, or a power cycle; mst restart does not do it.")
            .line(format!(
                "mlxconfig -d \"$PCI\" set CNP_DSCP_P1={} CNP_802P_PRIO_P1={}",
                m.cnp_dscp, m.cnp_prio
            ))
            .line(format!("mlxconfig -d \"$PCI\" set ROCE_CC_PRIO_MASK_P1={}", 1u16 << m.roce_prio))
            .tune("mlxfwreset -d \"$PCI\" reset")
            .verify("mlxconfig -d \"$PCI\" query"),
    );
    blocks
}

fn bnxt(args: &NicArgs, m: &Marking) -> Vec<Block> {
    let device = args.device.as_deref().unwrap_or("bnxt_re0");
    vec![
        Block::new("Which NIC.")
            .line(format!("NETDEV={}", args.netdev))
            .line(format!("DEVICE={device}")),
        pause_off(),
        Block::new("PFC, congestion control and marking in one, by Broadcom's script. Its options: -r and -s priority and DSCP of RoCE, -c and -p those of CNP.")
            .line(format!(
                "bnxt_setupcc.sh -d \"$DEVICE\" -i \"$NETDEV\" -m 3 -r {} -s {} -c {} -p {}",
                m.roce_prio, m.roce_dscp, m.cnp_prio, m.cnp_dscp
            ))
            .verify("dcb pfc show dev \"$NETDEV\"")
            .verify("dcb app show dev \"$NETDEV\"")
            .verify("cat \"/sys/kernel/config/bnxt_re/$DEVICE/ports/1/cc/roce_dscp\"")
            .verify("cat \"/sys/kernel/config/bnxt_re/$DEVICE/ports/1/cc/cnp_dscp\""),
        programs(m.traffic_class()),
    ]
}

fn pause_off() -> Block {
    Block::new("802.3x pause stops all traffic of the link, and does not go with PFC.")
        .line("ethtool -A \"$NETDEV\" rx off tx off")
}

fn programs(tos: u8) -> Block {
    Block::new("Programs that set the traffic class themselves; in their environment.")
        .line(format!("export NCCL_IB_TC={tos}"))
        .line(format!("export UCX_IB_TRAFFIC_CLASS={tos}"))
}

/// The kernel's rule for network devices, and what a script takes.
fn parse_netdev(text: &str) -> Result<String, String> {
    if text.len() > 15 {
        return Err("a network device's name has at most 15 characters".to_owned());
    }
    if text == "." || text == ".." || text.contains(':') {
        return Err("no network device can have this name".to_owned());
    }
    parse_name(text)
}

/// As sysfs writes it: domain, bus, device and function; the domain may be left out.
fn parse_pci(text: &str) -> Result<String, String> {
    let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&part.len()) && part.chars().all(|c| c.is_ascii_hexdigit())
    };
    let parts = |text: &str| -> Option<bool> {
        let (before, function) = text.rsplit_once('.')?;
        let (before, device) = before.rsplit_once(':')?;
        let (domain, bus) = before.rsplit_once(':').unwrap_or(("0000", before));
        let device = hex(device, 2..=2) && u8::from_str_radix(device, 16).is_ok_and(|n| n < 32);
        let function = matches!(function.as_bytes(), [b'0'..=b'7']);
        Some(hex(domain, 4..=8) && hex(bus, 2..=2) && device && function)
    };
    match parts(text) {
        Some(true) => Ok(text.to_owned()),
        _ => Err("a PCI address, please, as in 0000:c1:00.0".to_owned()),
    }
}

/// Names stand in a script: letters, digits and `-.:_` alone.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
    // The kernel's longest name of an RDMA device is of 63.
    let is_path = text == "." || text == "..";
    if !text.is_empty()
        && text.len() < 64
        && !is_path
        && !text.starts_with('-')
        && text.chars().all(fits)
    {
        Ok(text.to_owned())
    } else {
        Err("letters, digits and -.:_, please".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_can_not_become_commands() {
        for bad in ["", "-i", "eth0;reboot", "$(x)", "a b", "\"", "`x`"] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_name("mlx5_bond-0").as_deref(), Ok("mlx5_bond-0"));
    }

    #[test]
    fn names_and_addresses_are_ones_that_can_be() {
        for good in ["eth0", "enp193s0f0np0.4", "a2345678901234_"] {
            assert!(parse_netdev(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a23456789012345x", "eth0:1", "a/b"] {
            assert!(parse_netdev(bad).is_err(), "{bad}");
        }
        for good in ["0000:c1:00.0", "c1:1f.7", "10000:00:00.0"] {
            assert!(parse_pci(good).is_ok(), "{good}");
        }
        for bad in
            ["zz", "0000:c1:20.0", "0000:c1:00.8", "0000:c1:00", "c1:00.0;x", "c1:00.", "1:00.0"]
        {
            assert!(parse_pci(bad).is_err(), "{bad}");
        }
    }
}
