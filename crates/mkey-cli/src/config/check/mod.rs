//! `mkey config check`: whether a host and a switch mean the same.
//!
//! * [`told`]: what a saved configuration says, whoever made the switch. [`mod@host`]: what this host
//!   says. [`compare`]: where they contradict each other.

pub mod compare;
pub mod host;
mod reader;
pub mod told;

use super::vendor::Vendor;
use crate::bench::export;
use crate::bench::outputs::check_apart;
use crate::cli::print;
use crate::exit::{End, FAILED, NO_REPORT};
use crate::files::Files;
use crate::input;
use clap::Args;
use compare::{Finding, Level};
use host::Host;
use serde::Serialize;
use std::path::{Path, PathBuf};
use told::Told;

/// What to compare.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey config check --host --switch running-config.txt      this host with a saved configuration
  mkey config check --host --device mlx5_0 --switch config_db.json
  mkey config check --roce-dscp 26 --roce-prio 3 --switch leaf1.cfg   hosts as they ought to be
  mkey config check --host --switch leaf1.cfg --json - | jq '.findings[]'")]
pub struct CheckArgs {
    /// Look at this host: sysfs, configfs, debugfs, the program dcb, NCCL_IB_TC and
    /// UCX_IB_TRAFFIC_CLASS
    #[arg(long)]
    pub host: bool,

    /// The RDMA device to look at; all if none is named
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// The saved configuration; "-" is standard input
    #[arg(long, value_name = "FILE")]
    pub switch: PathBuf,

    /// Whose it is; found out if not given
    #[arg(long)]
    pub vendor: Option<Vendor>,

    /// Priority of RoCE on the hosts, in place of what this one says
    #[arg(long, value_name = "0-7", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub roce_prio: Option<u8>,

    /// DSCP of RoCE on the hosts
    #[arg(long, value_name = "0-63", value_parser = clap::value_parser!(u8).range(0..=63))]
    pub roce_dscp: Option<u8>,

    /// Priority of congestion notification packets on the hosts
    #[arg(long, value_name = "0-7", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub cnp_prio: Option<u8>,

    /// DSCP of congestion notification packets on the hosts
    #[arg(long, value_name = "0-63", value_parser = clap::value_parser!(u8).range(0..=63))]
    pub cnp_dscp: Option<u8>,

    /// Write everything as JSON to FILE; "-" is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// No configuration is as long as this, in bytes.
const LONGEST: u64 = 64 << 20;

/// The result as programs read it.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: u32,
    vendor: Vendor,
    host: &'a Host,
    switch: &'a Told,
    findings: &'a [Finding],
}

/// Compares, and prints what was found.
///
/// # Errors
/// [`End`]: how the run ended before it was done; [`End::Status`] 1 where something contradicts, 3 where
/// no comparison could be made.
pub fn run(args: &CheckArgs) -> Result<(), End> {
    // 1 would say that something contradicts.
    compared(args).map_err(|end| match end {
        End::Failed(why) => End::Status(NO_REPORT, why),
        other => other,
    })
}

fn compared(args: &CheckArgs) -> Result<(), End> {
    check_apart([("--json", args.json.as_deref())], &args.switch)?;
    let text = read(&args.switch)?;
    let name = args.switch.display();
    let vendor = args.vendor.or_else(|| told::vendor_of(&text)).ok_or_else(|| {
        End::Usage(format!(
            "{name}: whose configuration this is can not be seen; name it by --vendor"
        ))
    })?;
    let mut host = if args.host {
        let files = Files::below(None).map_err(End::failed)?;
        host::read(&files, args.device.as_deref(), &host::dcb, &|name| std::env::var(name).ok())
    } else {
        Host::default()
    };
    host.say(args.roce_dscp, args.roce_prio, args.cnp_dscp, args.cnp_prio);
    if host.says_nothing() {
        let why = if args.host {
            "this host says nothing of its marking (no RDMA device that is configured, or not root)"
        } else {
            "neither --host nor a marking is given"
        };
        return Err(End::Usage(format!(
            "{why}; --roce-dscp, --roce-prio, --cnp-dscp and --cnp-prio say it"
        )));
    }
    told::fits(vendor, &text).map_err(|why| End::failed(format!("{name}: {why}")))?;
    let told = told::read(vendor, &text).map_err(|why| End::failed(format!("{name}: {why}")))?;
    let findings = compare::compare(&host, &told);
    if let Some(path) = &args.json {
        let report = Report { schema: 1, vendor, host: &host, switch: &told, findings: &findings };
        export::write(path, &export::json(&report)?)?;
    }
    if !args.json.as_ref().is_some_and(|path| export::is_stdout(path)) {
        print(compare::text(&host, &told, &findings).as_bytes())?;
    }
    match findings.iter().filter(|finding| finding.level == Level::Mismatch).count() {
        0 => Ok(()),
        1 => Err(End::status(FAILED, "host and switch contradict each other in one point")),
        n => {
            let why = format!("host and switch contradict each other in {n} points");
            Err(End::status(FAILED, why))
        }
    }
}

fn read(path: &Path) -> Result<String, End> {
    let bytes = input::read(path, &path.display().to_string(), LONGEST, "configuration")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
