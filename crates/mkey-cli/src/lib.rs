//! The `mkey` command as a library: `main` parses, runs and answers with an exit code.
//!
//! * [`cli`]: the arguments. [`exit`]: how a run may end, and with which code.
//! * [`device`]: the devices that commands can open by name.
//! * [`mod@devices`]: `mkey devices`, what each device can do, tried.
//! * [`mod@bench`]: `mkey bench`, what memory registration costs on this machine.
//! * [`mod@model`]: `mkey model`, the same as a formula. [`html`]: reports as pages.
//! * [`mod@run`]: `mkey run`, programs that know nothing of mkey on software RNICs.
//! * [`mod@trace`]: `mkey trace`, what registration costs a program. [`mod@replay`]: `mkey replay`, the same again.
//! * [`mod@pcap`]: `mkey pcap`, what RDMA traffic a capture holds.
//! * [`input`]: files that are read. [`whole`]: files that are written.
//! * [`mod@config`]: `mkey config`, switches, NICs and hosts for RoCE without loss.
//! * [`mod@doctor`]: `mkey doctor`, whether a host is ready for RDMA. [`process`]: what files of a process say.
//! * [`mod@explain`]: `mkey explain`, what an error means and what mends it. [`lang`]: in which language.
//! * [`mod@monitor`]: `mkey monitor`, what registration and the network do as it goes on.
//! * [`allocations`]: heap allocations, counted.
#![deny(unsafe_code)]

pub mod allocations;
pub mod bench;
pub mod cli;
mod codes;
pub mod config;
pub mod device;
pub mod devices;
pub mod doctor;
pub mod exit;
pub mod explain;
pub mod files;
pub mod html;
pub mod input;
pub mod interfaces;
pub mod lang;
pub mod model;
pub mod monitor;
pub mod pcap;
pub mod process;
pub mod replay;
pub mod run;
pub mod trace;
pub mod whole;

use clap::Parser;
use exit::End;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the command with these arguments (the first is the program's name). Results go to standard
/// output, all else to standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli::run(cli),
        Err(error) => {
            let error = cli::in_words(error);
            let printed = error.print().and_then(|()| io::stdout().flush());
            return match printed {
                // If standard error is closed there is nobody to tell.
                _ if error.use_stderr() => ExitCode::from(exit::USAGE),
                Ok(()) => ExitCode::from(exit::OK),
                // Help and version are results.
                Err(error) => End::output("standard output", &error).finish(),
            };
        }
    };
    match outcome {
        Ok(()) => ExitCode::from(exit::OK),
        Err(end) => end.finish(),
    }
}
