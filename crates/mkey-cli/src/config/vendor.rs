//! The switches whose commands are known well enough, and what each does by itself.

use super::marking::Marking;
use super::recipe::Comments;
use super::syntax::Syntax;
use clap::ValueEnum;
use serde::Serialize;

/// A vendor and its operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// H3C Comware 7 (S6850, S9820, S9825, S9850, S9855)
    H3c,
    /// Huawei CloudEngine (6800, 8800)
    Huawei,
    /// Cisco Nexus 9000, NX-OS
    #[value(alias = "cisco", alias = "nx-os")]
    Nxos,
    /// Arista EOS
    #[value(alias = "arista")]
    Eos,
    /// SONiC, the community's
    Sonic,
    /// NVIDIA Cumulus Linux 5 (NVUE)
    Cumulus,
    /// NVIDIA Onyx
    Onyx,
}

/// Where a DSCP goes on a switch that nobody told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stock {
    /// To this priority, by the vendor's own source.
    Known(u8),
    /// To this priority, as far as known.
    Likely(u8),
    /// Not known.
    Unknown,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::H3c, Self::Huawei, Self::Nxos, Self::Eos, Self::Sonic, Self::Cumulus, Self::Onyx];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::H3c => "H3C Comware 7",
            Self::Huawei => "Huawei CloudEngine",
            Self::Nxos => "Cisco NX-OS (Nexus 9000)",
            Self::Eos => "Arista EOS",
            Self::Sonic => "SONiC (community)",
            Self::Cumulus => "NVIDIA Cumulus Linux 5",
            Self::Onyx => "NVIDIA Onyx",
        }
    }

    /// Its commands.
    pub fn syntax(self) -> Syntax {
        Syntax::new(match self {
            Self::H3c => include_str!("syntax/h3c.txt"),
            Self::Huawei => include_str!("syntax/huawei.txt"),
            Self::Nxos => include_str!("syntax/nxos.txt"),
            Self::Eos => include_str!("syntax/eos.txt"),
            Self::Sonic => include_str!("syntax/sonic.txt"),
            Self::Cumulus => include_str!("syntax/cumulus.txt"),
            Self::Onyx => include_str!("syntax/onyx.txt"),
        })
    }

    /// How it takes comments. In a configuration file of Comware and VRP a `#` ends a view, so none
    /// may stand within one.
    pub fn comments(self) -> Comments {
        match self {
            Self::H3c | Self::Huawei => Comments { start: "#", within: false },
            Self::Nxos | Self::Eos => Comments { start: "!", within: true },
            Self::Sonic | Self::Cumulus => Comments { start: "#", within: true },
            Self::Onyx => Comments { start: "##", within: true },
        }
    }

    /// The priority of a DSCP in the map that the switch comes with.
    pub fn stock(self, dscp: u8) -> Stock {
        match (self, dscp) {
            // sonic-buildimage, qos_config template: the map AZURE.
            (Self::Sonic, 3 | 4) => Stock::Known(dscp),
            (Self::Sonic, 8) => Stock::Known(0),
            (Self::Sonic, 26) => Stock::Known(1),
            (Self::Sonic, 46) => Stock::Known(5),
            (Self::Sonic, 48) => Stock::Known(6),
            (Self::H3c | Self::Cumulus | Self::Onyx, _) => Stock::Likely(dscp >> 3),
            _ => Stock::Unknown,
        }
    }

    /// Whether the configuration printed leaves the DSCP map as it is, unless asked to write one.
    pub fn keeps_stock_map(self) -> bool {
        matches!(self, Self::H3c | Self::Sonic | Self::Cumulus | Self::Onyx)
    }

    /// Whether a DSCP map can be written at all: Cumulus and Onyx have one profile for RoCE.
    pub fn writes_map(self) -> bool {
        !matches!(self, Self::Cumulus | Self::Onyx)
    }

    /// What contradicts the vendor's own ways; nothing if all is well. `map` says that the DSCP map
    /// is to be written.
    pub fn contradictions(self, marking: &Marking, map: bool) -> Vec<String> {
        let mut wrong = marking.contradictions();
        let Marking { roce_prio, roce_dscp, cnp_prio, cnp_dscp } = *marking;
        let title = self.title();
        match self {
            Self::H3c if matches!(roce_prio, 0 | 6 | 7) => wrong.push(format!(
                "PFC on priority {roce_prio}: H3C's PFC configuration guide says not to enable it on 0, 6 and 7, which carry IRF and protocol traffic"
            )),
            Self::Sonic if !matches!(roce_prio, 3 | 4) => wrong.push(format!(
                "RoCE on priority {roce_prio}: the stock TC_TO_PRIORITY_GROUP_MAP of SONiC has lossless priority groups for 3 and 4 only"
            )),
            Self::Cumulus | Self::Onyx if (roce_prio, cnp_prio) != (3, 6) => wrong.push(format!(
                "RoCE on priority {roce_prio}, CNP on {cnp_prio}: the RoCE profile of {title} has them on 3 and 6, and no other; mark the hosts so"
            )),
            _ => {}
        }
        if map && !self.writes_map() {
            wrong.push(format!("--dscp-map: the RoCE profile of {title} brings its own map"));
        }
        if self.keeps_stock_map() && !(map && self.writes_map()) {
            for (what, dscp, prio) in [("RoCE", roce_dscp, roce_prio), ("CNP", cnp_dscp, cnp_prio)]
            {
                wrong.extend(self.stock_contradicts(what, dscp, prio));
            }
        }
        wrong
    }

    fn stock_contradicts(self, what: &str, dscp: u8, prio: u8) -> Option<String> {
        let title = self.title();
        let lossy = if what == "RoCE" { ", a lossy queue" } else { "" };
        let mend = if self.writes_map() {
            let stock: Vec<String> = (0..64)
                .filter(|dscp| matches!(self.stock(*dscp), Stock::Known(p) | Stock::Likely(p) if p == prio))
                .map(|dscp| dscp.to_string())
                .collect();
            let stock = match stock.as_slice() {
                [] => String::new(),
                [one] => format!(", or mark the hosts with DSCP {one}"),
                [first, .., last] => format!(", or mark the hosts with DSCP {first} to {last}"),
            };
            format!("write the map with --dscp-map{stock}")
        } else {
            format!("mark the hosts with DSCP {} to {}", prio << 3, (prio << 3) + 7)
        };
        match self.stock(dscp) {
            Stock::Known(to) | Stock::Likely(to) if to == prio => None,
            Stock::Known(to) => Some(format!(
                "{what} has DSCP {dscp}, which the stock map of {title} sends to priority {to}{lossy}, not to {prio}: {mend}"
            )),
            Stock::Likely(to) => Some(format!(
                "{what} has DSCP {dscp}, which the stock map of {title} sends to priority {to} as far as is known, not to {prio}: {mend}"
            )),
            Stock::Unknown => Some(format!(
                "{what} has DSCP {dscp}: where the stock map of {title} sends it is not known to be {prio}: {mend}"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Marking = Marking { roce_prio: 3, roce_dscp: 26, cnp_prio: 6, cnp_dscp: 48 };

    #[test]
    fn the_usual_marking_fits_all_but_stock_sonic() {
        for vendor in Vendor::ALL {
            let wrong = vendor.contradictions(&USUAL, false);
            if vendor == Vendor::Sonic {
                assert_eq!(wrong.len(), 1, "{wrong:?}");
                assert!(wrong[0].contains("DSCP 26") && wrong[0].contains("priority 1, a lossy"));
                assert!(
                    wrong[0].contains("--dscp-map, or mark the hosts with DSCP 3"),
                    "{wrong:?}"
                );
                assert_eq!(vendor.contradictions(&USUAL, true), Vec::<String>::new());
                let stock = Marking { roce_dscp: 3, ..USUAL };
                assert_eq!(vendor.contradictions(&stock, false), Vec::<String>::new());
            } else {
                assert_eq!(wrong, Vec::<String>::new(), "{vendor:?}");
            }
        }
    }

    #[test]
    fn each_vendor_refuses_what_it_can_not_do() {
        for (vendor, marking, part) in [
            (Vendor::H3c, Marking { roce_prio: 6, cnp_prio: 5, ..USUAL }, "IRF"),
            (Vendor::H3c, Marking { roce_prio: 7, ..USUAL }, "0, 6 and 7"),
            (Vendor::H3c, Marking { roce_prio: 5, ..USUAL }, "DSCP 40 to 47"),
            (Vendor::Sonic, Marking { roce_prio: 5, ..USUAL }, "3 and 4 only"),
            (Vendor::Sonic, Marking { roce_dscp: 24, ..USUAL }, "not known to be 3"),
            (Vendor::Cumulus, Marking { roce_prio: 5, ..USUAL }, "on 3 and 6"),
            (Vendor::Onyx, Marking { roce_dscp: 40, ..USUAL }, "DSCP 24 to 31"),
            (Vendor::Eos, Marking { cnp_prio: 3, ..USUAL }, "both on priority 3"),
        ] {
            let wrong = vendor.contradictions(&marking, false);
            assert!(wrong.iter().any(|why| why.contains(part)), "{vendor:?}: {wrong:?}");
        }
        assert!(!Vendor::Onyx.contradictions(&USUAL, true).is_empty());
    }
}
