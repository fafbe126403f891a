//! The arguments of `mkey`.

use crate::bench;
use crate::config;
use crate::devices;
use crate::doctor;
use crate::exit::End;
use crate::explain;
use crate::model;
use crate::monitor;
use crate::pcap;
use crate::replay;
use crate::run as programs;
use crate::trace;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::io::{self, Write};

/// RDMA memory registration made visible.
///
/// Exit codes: 0 done, 1 failed, 2 asked for wrongly. Results go to standard output, errors and
/// progress to standard error.
#[derive(Debug, Parser)]
#[command(
    name = "mkey",
    version,
    after_help = "Examples:
  mkey devices                        what the RDMA devices of this machine can do
  mkey bench                          what registration costs on this machine
  mkey bench --json - | jq '.rows[]'  the same for programs
  mkey bench storage --bs 4k,128k     what a storage target's I/O costs, in fio's words
  mkey model --predict 64GiB          the same as a formula
  mkey run ib_write_bw                an RDMA program without RDMA hardware
  mkey doctor                         whether this host is ready for RDMA, and what is not
  mkey explain ibv_reg_mr ENOMEM      what an error means, and what mends it
  mkey config switch --vendor eos     a lossless class for RoCE on a switch
  mkey monitor                        counters, limits and pins as they go on
  mkey pcap trace.pcap                what was on the wire, and what went wrong
  mkey completions bash > ~/.local/share/bash-completion/completions/mkey
  mkey man > mkey.1"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `mkey` does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure what each registration strategy costs on this machine
    ///
    /// Takes less than a minute. Memory, pages, pinning and copies are this machine's own; the
    /// device is the software RNIC unless `--device` names another, so no NIC is needed and no
    /// figure is that of a NIC that was not measured. Huge pages
    /// are reserved where the user may, and given back at the end, also after Ctrl-C.
    Bench(Box<bench::args::BenchArgs>),
    /// Show every RDMA device here, real and software, and what it can do
    ///
    /// What a device says of itself is tried: an object of each kind is made and ended again, and
    /// the table marks what worked. Nothing is sent. Where there is no real device, it says why and
    /// what would mend it.
    Devices(devices::DevicesArgs),
    /// Fit what registration costs to a formula, and predict sizes that are not measured
    ///
    /// T = T(fixed) + pages x T(page) for each kind of page, with intervals, what each coefficient
    /// consists of, and how far off it is on sizes left out. Measures a sweep of its own in less
    /// than a minute, or takes one of `mkey bench registration --json`.
    Model(Box<model::args::ModelArgs>),
    /// Run a program on software RNICs: any that uses libibverbs, unchanged
    ///
    /// The program and all that it starts find the devices, with a NIC's rules of protection, beside
    /// real ones. No hardware, no kernel module and no privilege is needed. Signals and the exit
    /// status are the program's own; 127 stands for no such program.
    Run(Box<programs::args::RunArgs>),
    /// Say whether this host is ready for RDMA: each check, what was found, what mends it
    ///
    /// Looks at limits, pages, mappings, control groups, devices, their counters and marking, and
    /// tries what can be tried. Changes nothing. Exit codes: 0 all is well, 1 warnings, 2 something
    /// will fail, 3 no verdict: no report, or what all rests on could not be read.
    Doctor(Box<doctor::DoctorArgs>),
    /// Say what an error means, why it happens, and what mends it
    ///
    /// An errno with its verb, a completion status, mlx5's vendor_err, an asynchronous event, a line
    /// of the kernel's log, a key, a code of mkey's own, or a claim that is copied widely. With --pid
    /// it looks at the live process and ranks the causes by what it sees. A log on standard input is
    /// annotated.
    Explain(Box<explain::ExplainArgs>),
    /// Print what switches, NICs and hosts need for RoCE without loss, for review
    ///
    /// No command is printed that no source vouches for; each says how sure that is. Nothing is
    /// changed.
    Config(Box<config::ConfigArgs>),
    /// Watch huge pages, pins, RDMA objects, errors and congestion
    ///
    /// A dashboard in the terminal, or text, JSON, or OpenMetrics for Prometheus. What is worth a look
    /// is marked, with the command that explains it. Nothing is changed, and no privilege is needed;
    /// what may not be read says so.
    Monitor(Box<monitor::MonitorArgs>),
    /// Say what RDMA traffic a capture holds, and what went wrong in it
    ///
    /// Reads pcap and pcapng with Ethernet (VLANs too), Linux cooked or raw IP frames, IPv4 and IPv6, RoCEv2 and
    /// RoCEv1. For each pair of queue pairs: messages, bytes, what was sent again, duplicates, gaps, negative
    /// acknowledgements, congestion, remote keys with the memory that they were used for, wrong ICRCs, and how
    /// long answers took; then a verdict in words. Memory stays the same however long the capture is.
    ///
    /// What went wrong in the traffic is a result, not a failure: the exit code is 0 if the file could be read
    /// to its end. A file that is cut or damaged gives 1, after the summary of what was read until there.
    Pcap(Box<pcap::PcapArgs>),
    /// Show what registration costs an unmodified program, where, and what would mend it
    Trace(Box<trace::args::TraceArgs>),
    /// Do the registrations of a recording again, on any device and by any strategy
    Replay(Box<replay::ReplayArgs>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    Man,
}

/// An error of the arguments with a better reason than that something is not expected, where there is one:
/// the advice to pass it behind `--` does not help then.
pub fn in_words(error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return error,
    };
    let digits =
        word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let why = match word.split('=').next() {
        _ if digits => format!("{word} is a negative number, which nothing here takes"),
        Some("--lang") => {
            "--lang is for doctor, explain, monitor and trace: the rest speaks English".to_owned()
        }
        _ => return error,
    };
    Cli::command().error(ErrorKind::UnknownArgument, why)
}

/// Carries out a command.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(cli: Cli) -> Result<(), End> {
    match cli.command {
        Command::Bench(args) => bench::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Run(args) => programs::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Pcap(args) => pcap::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "mkey", &mut script);
            print(&script)
        }
        Command::Man => print(&manual().map_err(End::failed)?),
    }
}

/// The manual: the page of `mkey`, followed by those of its commands.
fn manual() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    pages(&command, &mut page)?;
    Ok(keep_lines(&String::from_utf8_lossy(&page)).into_bytes())
}

/// The page of a command and, after it, those of its commands.
fn pages(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(page)?;
    let commands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    commands.into_iter().try_for_each(|sub| pages(sub, page))
}

/// Commands that are to be copied must not be filled and hyphenated: the sections with examples
/// keep their lines.
fn keep_lines(page: &str) -> String {
    let (mut kept, mut examples) = (String::with_capacity(page.len() + 64), false);
    for line in page.lines() {
        if examples && (line.starts_with(".SH") || line.starts_with(".TH")) {
            kept.push_str(".fi\n");
            examples = false;
        }
        if line == ".SH EXTRA" {
            kept.push_str(".SH EXAMPLES\n.nf\n");
            examples = true;
        } else if !(examples && line == "Examples:") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    if examples {
        kept.push_str(".fi\n");
    }
    kept
}

/// Writes a result to standard output.
///
/// # Errors
/// [`End::ClosedPipe`] if nobody reads any more, else [`End::Failed`].
pub fn print(result: &[u8]) -> Result<(), End> {
    let mut out = io::stdout().lock();
    out.write_all(result)
        .and_then(|()| out.flush())
        .map_err(|error| End::output("standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_manual_names_commands_and_options() {
        let page = String::from_utf8(manual().unwrap()).unwrap();
        for word in [
            "bench",
            "devices",
            "completions",
            "command\\-cost",
            "no\\-reserve",
            "iodepth",
            "iterations",
            "registration",
            "predict",
            "roce\\-dscp",
            "vendor_err",
            "hugepages",
            "OpenMetrics",
            "no\\-icrc",
            "fix\\-script",
        ] {
            assert!(page.contains(word), "{word} missing");
        }
    }

    #[test]
    fn examples_of_the_manual_keep_their_lines() {
        let page = String::from_utf8(manual().unwrap()).unwrap();
        let sections: Vec<_> = page.split(".SH ").filter(|s| s.starts_with("EXAMPLES")).collect();
        fn with_examples(command: &clap::Command) -> usize {
            let below: usize = command.get_subcommands().map(with_examples).sum();
            below + usize::from(command.get_after_help().is_some())
        }
        let expected = with_examples(&Cli::command());
        assert!(expected >= 4);
        assert_eq!(sections.len(), expected, "{page}");
        for section in sections {
            assert!(section.starts_with("EXAMPLES\n.nf\n") && section.contains("\n.fi\n"));
        }
        assert!(!page.contains(".SH EXTRA"), "{page}");
    }

    #[test]
    fn the_help_of_bench_says_what_it_does_to_the_machine() {
        let mut command = Cli::command();
        let bench = command.find_subcommand_mut("bench").unwrap();
        let help = bench.render_long_help().to_string();
        assert!(help.contains("less than a minute") && help.contains("given back"), "{help}");
    }

    #[test]
    fn the_help_of_bench_has_examples() {
        let mut command = Cli::command();
        let bench = command.find_subcommand_mut("bench").unwrap();
        let mut texts = vec![bench.render_long_help().to_string()];
        for inner in ["storage", "tensor"] {
            let inner = bench.find_subcommand_mut(inner).unwrap();
            texts.push(inner.render_long_help().to_string());
        }
        for help in texts {
            assert!(help.contains("Examples:") && help.contains("--command-cost 16us"), "{help}");
        }
    }
}
