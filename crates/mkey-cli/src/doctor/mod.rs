//! `mkey doctor`: whether a host is ready for RDMA, and what is not.
//!
//! * [`context`]: what is looked at, by [`crate::files`] below a root; [`launcher`]: how the process was
//!   started. [`code`]: what is checked. [`finding`]: what a check found, without words.
//! * A module for each family of checks. They read, and try what can be tried; none changes anything,
//!   and none fails: what can not be found out is a finding, too.
//! * [`texts`] puts findings into words, in two languages, with what mends them. [`report`] is what
//!   JSON has; [`text`], [`checklist`] and [`fix_script`] are ways to show it.
//! * [`merge`]: the reports of many hosts, compared.

mod cgroups;
pub mod checklist;
pub mod code;
pub mod context;
mod counters;
mod devices;
pub mod finding;
pub mod fix_script;
mod huge_pages;
mod iommu;
pub mod launcher;
mod maps;
mod marking;
mod memlock;
pub mod merge;
mod nofile;
mod numa;
mod opened;
mod peer_memory;
mod pin;
mod pools;
mod ports;
pub mod report;
mod rkey;
mod sandbox;
pub mod text;
pub mod texts;
mod thp;
mod user;
mod writer;

use crate::bench::export;
use crate::cli::print;
use crate::device;
use crate::exit::{End, NO_REPORT};
use crate::files::{Files, Why};
use crate::interfaces::DEVICES;
use crate::lang::{Lang, LangArg};
use crate::process::{field, is_mounted, without_memory};
use clap::Args;
use code::Code;
use context::Context;
use finding::Finding;
use launcher::Launcher;
use report::{KIND, Process, Report, SCHEMA, printable};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use texts::Words;

/// What to look at, and how to show it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey doctor                              this host, and what a program started here would get
  mkey doctor --pid 4711                   a process that runs: its limits, groups, mappings
  mkey doctor --user storage               what limits.d, PAM and systemd give a user
  mkey doctor --device mlx5_0              one device alone
  mkey doctor --checklist                  the five points of a deployment
  mkey doctor --fix-script > mend.sh       what would mend it, to review
  mkey doctor --json > reports/$(hostname).json
  mkey doctor --merge reports              what differs between hosts that should be alike
  mkey doctor --root /mnt/copied-host      files of another host; nothing is tried

Exit codes: 0 all is well, 1 warnings, 2 something will fail (or a wrong command line), 3 no verdict: no
report could be made (no such process, device, host, folder or report, or it could not be written), or the
kernel's release, the process' status or its limits could not be read. What else could not be read is told
by ? and does not change the code.")]
pub struct DoctorArgs {
    /// Say what this user gets at a login
    #[arg(long, value_name = "USER", value_parser = parse_user)]
    pub user: Option<String>,

    /// Look at this process
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,

    /// Look at this device alone; mkey0 is the software RNIC
    #[arg(long, value_name = "NAME", value_parser = parse_device)]
    pub device: Option<String>,

    /// Read the files of a host below this folder; nothing is tried then
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Write everything as JSON to FILE, to standard output if none is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Print a script that would mend what was found, for review
    #[arg(long, conflicts_with_all = ["checklist", "json", "merge"])]
    pub fix_script: bool,

    /// Print the five-point checklist of a deployment
    #[arg(long, conflicts_with_all = ["merge"])]
    pub checklist: bool,

    /// Compare the reports (--json) of many hosts in this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["user", "pid", "device", "root"])]
    pub merge: Option<PathBuf>,

    /// The language
    #[command(flatten)]
    pub lang: LangArg,
}

/// Looks, and shows what was found.
///
/// # Errors
/// [`End`]: how the run ended before it was done; [`End::Status`] 1 for warnings, 2 for failures, 3 if
/// there is no report, or no verdict.
pub fn run(args: &DoctorArgs) -> Result<(), End> {
    // 1 would say that a report has warnings.
    made(args).map_err(|end| match end {
        End::Failed(why) => End::Status(NO_REPORT, why),
        other => other,
    })
}

fn made(args: &DoctorArgs) -> Result<(), End> {
    let (words, lang) = (Words::load()?, args.lang.lang());
    if let Some(folder) = &args.merge {
        return merge::run(folder, args.json.as_deref(), &words, lang);
    }
    let report = look(args, &words, lang)?;
    let to_stdout = args.json.as_deref().is_some_and(export::is_stdout);
    if let Some(path) = &args.json {
        export::write(path, &export::json(&report)?)?;
    }
    if !to_stdout {
        let shown = if args.fix_script {
            fix_script::script(&report, &words)
        } else if args.checklist {
            text::checklist(&report, &words)
        } else {
            text::report(&report, &words)
        };
        print(shown.as_bytes())?;
    }
    if !report.unread.is_empty() {
        let what = [("what", report.unread.join(lang.pick(", ", "，")))];
        return Err(End::Status(NO_REPORT, words.fill("essential-unread", lang, &what)));
    }
    ended(report.exit_code())
}

/// How a run ends that has shown what it found.
pub(crate) fn ended(code: u8) -> Result<(), End> {
    if code == 0 { Ok(()) } else { Err(End::Status(code, String::new())) }
}

/// Makes the report.
///
/// # Errors
/// [`End::Failed`] if the root or the process is not there.
pub fn look(args: &DoctorArgs, words: &Words, lang: Lang) -> Result<Report, End> {
    let files = Files::below(args.root.as_deref()).map_err(|error| {
        End::failed(format!(
            "{}: {error}",
            args.root.as_deref().unwrap_or(Path::new("/")).display()
        ))
    })?;
    no_host(&files, words, lang)?;
    let process = args.pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    if args.pid.is_some() {
        no_such_process(&files, &process, words, lang)?;
    }
    let launcher = Launcher::of(&files, &process);
    let probes = files.live() && args.pid.is_none();
    let (device, user) = (args.device.clone(), args.user.clone());
    let at = Context { files, process, probes, launcher, device, user };
    no_such_device(&at, words, lang)?;
    Ok(put_together(&at, args.pid, findings(&at), words, lang))
}

/// What is no host's, and a device that is not there, have no report: nothing would have been looked at.
fn no_host(files: &Files, words: &Words, lang: Lang) -> Result<(), End> {
    if files.live() || ["proc", "sys"].iter().any(|folder| files.exists(folder)) {
        return Ok(());
    }
    let root = printable(&files.root().display().to_string());
    Err(End::Failed(words.fill("no-host", lang, &[("root", root)])))
}

/// A process that is not there has no report, nor one that has no memory to register.
fn no_such_process(files: &Files, pid: &str, words: &Words, lang: Lang) -> Result<(), End> {
    if !files.exists(&format!("proc/{pid}")) {
        let mounted = is_mounted(&files.path("proc"));
        let name = if mounted { "no-process" } else { "no-proc" };
        return Err(End::Failed(words.fill(name, lang, &[("pid", pid.to_owned())])));
    }
    let status = files.text(&format!("proc/{pid}/status")).unwrap_or_default();
    match without_memory(&status) {
        Some(why) => Err(End::Failed(why.told(pid, lang))),
        None => Ok(()),
    }
}

fn no_such_device(at: &Context, words: &Words, lang: Lang) -> Result<(), End> {
    let Some(wanted) = &at.device else { return Ok(()) };
    if wanted == device::SOFTWARE || !at.devices().is_empty() {
        return Ok(());
    }
    let wanted = printable(wanted);
    let there = match at.files.names(DEVICES) {
        Ok(names) if !names.is_empty() => {
            words.fill("there-are", lang, &[("names", printable(&names.join(", ")))])
        }
        Err(unread) if unread.why != Why::Missing => {
            words.fill("there-unread", lang, &[("path", unread.path)])
        }
        _ => words.common("there-is-none", lang),
    };
    let told = [("device", wanted), ("there", there)];
    Err(End::Failed(words.fill("no-such-device", lang, &told)))
}

/// All checks.
fn findings(at: &Context) -> Vec<Finding> {
    let software = at.device.as_deref() == Some(device::SOFTWARE);
    // Loading it costs milliseconds; without a device nobody needs it.
    let library = (at.probes && !at.devices().is_empty()).then(device::find);
    let library = library.and_then(|found| found.no_real);
    let mut all = memlock::check(at);
    all.extend(user::check(at));
    let pins = pin::check(at);
    let denied = pins.iter().any(|found| found.code == Code::IoUring && found.says == "denied");
    all.extend(pins);
    all.extend(huge_pages::check(at));
    all.extend(thp::check(at));
    all.extend(maps::check(at));
    all.extend(sandbox::check(at, denied));
    all.extend(cgroups::check(at));
    all.extend(nofile::check(at));
    all.extend(iommu::check(at));
    all.extend(numa::check(at));
    if !software {
        all.extend(devices::check(at, library.as_deref()));
    }
    all.extend(ports::check(at));
    all.extend(opened::check(at));
    let peers = peer_memory::check(at, &all);
    all.extend(peers);
    all.extend(marking::check(at));
    all.extend(counters::check(at));
    // Codes in their order; of one code in the order they were found.
    all.sort_by_key(|finding| finding.code);
    all
}

fn put_together(
    at: &Context,
    pid: Option<u32>,
    findings: Vec<Finding>,
    words: &Words,
    lang: Lang,
) -> Report {
    let checks: Vec<_> =
        findings.iter().map(|finding| words.check(finding, &at.launcher, lang)).collect();
    let mut summary = BTreeMap::new();
    for check in &checks {
        *summary.entry(check.status).or_default() += 1;
    }
    let status = at.files.text(&at.of_process("status")).unwrap_or_default();
    let uid = field(&status, "Uid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
    let name = field(&status, "Name").unwrap_or("?");
    let host = at.files.line("proc/sys/kernel/hostname").or_else(|_| at.files.line("etc/hostname"));
    let host = host.ok().filter(|host| !host.is_empty()).unwrap_or_else(|| "?".to_owned());
    Report {
        kind: KIND,
        schema: SCHEMA,
        mkey: env!("CARGO_PKG_VERSION"),
        lang,
        host: printable(&host),
        kernel: at.kernel().map_or_else(|_| "?".to_owned(), |kernel| printable(&kernel)),
        probes: at.probes,
        process: Process { pid, name: printable(name), uid, launcher: at.launcher.clone() },
        checklist: checklist::points(&checks, words, lang),
        unread: at.essential().iter().map(|unread| words.unread(unread, lang)).collect(),
        checks,
        summary,
    }
}

fn parse_user(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._$@\\".contains(c);
    if !text.is_empty() && text.len() <= 256 && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("the name of a user, please".to_owned())
    }
}

fn parse_device(text: &str) -> Result<String, String> {
    if !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0']) {
        Ok(text.to_owned())
    } else {
        Err("the name of a device, as in mlx5_0, please".to_owned())
    }
}
